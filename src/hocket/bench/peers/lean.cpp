// The least that two processes can do to sum their vectors over a socket, and to move bytes over it: no frames, no
// deadlines, no Python. What a library is compared with between hosts; compiled by with_socket.py when it is timed.
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>

namespace {

constexpr size_t piece = 256 << 10;

// What a call on a socket moved; 0 where it would have to wait, -1 where the other end is gone.
ssize_t moved(ssize_t result) {
  if (result > 0) return result;
  return result < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

// Waits until one of the two can go on: looking again and again for so long, then asleep.
class Patience {
 public:
  explicit Patience(int microseconds) : spin_(microseconds) {}

  void had_luck() { waiting_ = false; }

  void wait(int to, int from, bool sending, bool receiving) {
    auto now = std::chrono::steady_clock::now();
    if (!waiting_) until_ = now + spin_;
    waiting_ = true;
    if (now < until_) {
      sched_yield();
      return;
    }
    pollfd both[] = {{sending ? to : -1, POLLOUT, 0}, {receiving ? from : -1, POLLIN, 0}};
    poll(both, 2, -1);
  }

 private:
  std::chrono::microseconds spin_;
  std::chrono::steady_clock::time_point until_;
  bool waiting_ = false;
};

}  // namespace

// Both give 0, or -1 where the other end is gone.
extern "C" {

// `bytes` to one neighbour, while as many come from the other: in pieces, from and into memory that stays in a cache.
int pump(int to, int from, const char* out, char* in, size_t bytes, int spin) {
  Patience patience(spin);
  for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
    ssize_t s = sent < bytes ? moved(send(to, out, std::min(piece, bytes - sent), MSG_NOSIGNAL)) : 0;
    ssize_t g = got < bytes ? moved(recv(from, in, std::min(piece, bytes - got), 0)) : 0;
    if (s < 0 || g < 0) return -1;
    sent += s, got += g;
    s || g ? patience.had_luck() : patience.wait(to, from, sent < bytes, got < bytes);
  }
  return 0;
}

// x += the x of the other process, which does the same. What comes is added where x has been sent already: never more
// is read than that, which cannot stand still, since one of the two is always behind the other.
int all_reduce(int link, float* x, char* in, size_t count, int spin) {
  Patience patience(spin);
  size_t bytes = count * sizeof(float), left = 0;  // of a float that came in two parts
  const char* vector = reinterpret_cast<const char*>(x);
  for (size_t sent = 0, got = 0; sent < bytes || got < bytes;) {
    ssize_t s = sent < bytes ? moved(send(link, vector + sent, bytes - sent, MSG_NOSIGNAL)) : 0;
    if (s < 0) return -1;
    sent += s;
    size_t room = std::min(piece - left, sent - got);
    ssize_t g = room ? moved(recv(link, in + left, room, 0)) : 0;
    if (g < 0) return -1;
    float* at = x + (got - left) / sizeof(float);
    size_t whole = (left + g) / sizeof(float);
    const float* theirs = reinterpret_cast<const float*>(in);
    for (size_t i = 0; i < whole; i++) at[i] += theirs[i];
    got += g, left = (left + g) % sizeof(float);
    std::copy_n(in + whole * sizeof(float), left, in);
    s || g ? patience.had_luck() : patience.wait(link, link, sent < bytes, got < sent);
  }
  return 0;
}
}
