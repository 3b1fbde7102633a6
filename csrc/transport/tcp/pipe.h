// A connected socket as two streams of bytes that never wait: in clear, through TLS (tls.h), or beside it through UCX
// (transport/ucx); or several of them as one (stripes.h).
#pragma once

#include <poll.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

namespace hocket::tcp {

// Whether it tells of a connection that the other end is not reached by any more.
bool is_cut(int error);
// Steps over the first `bytes` of them.
std::span<iovec> without(std::span<iovec> parts, size_t bytes);

class Pipe {
 public:
  explicit Pipe(int socket) : socket_(socket) {}  // which is not owned
  virtual ~Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  // What it is over; the first, where there are several.
  int socket() const { return socket_; }
  // How many bytes were taken, of `parts` in their order, and need not be there any more; or -1, and errno, as of
  // sendmsg. `parts` may be changed, here and below.
  virtual ssize_t send(std::span<iovec> parts);
  // How many came; 0 where nothing will come any more; or -1, and errno, as of recvmsg. Fewer than asked for: no more
  // are there.
  virtual ssize_t receive(std::span<iovec> parts);
  // Whether the socket has all that was taken.
  virtual bool flush() { return true; }
  // From now on `receive` may take more from the socket than it gives: who waits for the socket calls it first, until
  // nothing is left.
  virtual void read_ahead() {}
  // The socket by which the next bytes will come.
  virtual int reads() const { return socket_; }
  // Adds what can be polled to `polls`, for those of POLLIN and POLLOUT that are asked for: that something has come,
  // and that what was not taken, or not flushed, may be by now.
  virtual void watch(std::vector<pollfd>& polls, short events) const { polls.push_back({socket_, events, 0}); }
  // Who is about to sleep until the socket shows something asks first, how long that may be.
  virtual std::chrono::microseconds arm() { return std::chrono::microseconds::max(); }
  // Has the kernel end it where nothing that was sent is acknowledged, or may be sent, for so long; zero: it decides.
  virtual void limit(std::chrono::milliseconds time);
  // Whether the kernel has waited for so long for a word that what was sent has arrived. That of a process that is
  // stopped says so, too.
  virtual bool is_silent(std::chrono::milliseconds time) const;
  // Bytes that this end's kernel was given and the other one's has not acknowledged; none that never will be.
  virtual uint64_t in_flight() const;
  // Nothing more will be sent.
  virtual void shut();
  // Nothing more is asked of it, and the socket is about to be closed.
  virtual void close() {}

 protected:
  const int socket_;
};

}  // namespace hocket::tcp
