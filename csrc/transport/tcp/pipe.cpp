#include "transport/tcp/pipe.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>

#include "wait/failpoint.h"

namespace hocket::tcp {

namespace {

msghdr as_message(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

}  // namespace

// Where the kernel gave up, it also tells what the way said last.
bool is_cut(int error) { return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH; }

std::span<iovec> without(std::span<iovec> parts, size_t bytes) {
  while (!parts.empty() && bytes >= parts.front().iov_len) {
    bytes -= parts.front().iov_len;
    parts = parts.subspan(1);
  }
  if (bytes != 0)
    parts.front() = {static_cast<std::byte*>(parts.front().iov_base) + bytes, parts.front().iov_len - bytes};
  return parts;
}

ssize_t Pipe::send(std::span<iovec> parts) {
  FAILPOINT_FROM(short_send, parts = a_few(parts));
  const msghdr message = as_message(parts);
  return sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t Pipe::receive(std::span<iovec> parts) {
  FAILPOINT_FROM(short_receive, parts = a_few(parts));
  msghdr message = as_message(parts);
  const ssize_t n = recvmsg(socket_, &message, MSG_DONTWAIT);
  if (n > 0) {
    FAILPOINT_AT(flipped, flip(parts, n));
  }
  return n;
}

// Of a socket that is none of TCP the kernel refuses it, and there is nothing to limit.
void Pipe::limit(std::chrono::milliseconds time) {
  const auto most = static_cast<unsigned>(time.count());
  setsockopt(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

bool Pipe::is_silent(std::chrono::milliseconds time) const {
  tcp_info found{};
  socklen_t length = sizeof found;
  if (getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &found, &length) != 0) return false;
  return found.tcpi_unacked != 0 && found.tcpi_last_ack_recv > static_cast<uint64_t>(time.count());
}

uint64_t Pipe::in_flight() const {
  int waiting = 0;
  return ioctl(socket_, SIOCOUTQ, &waiting) == 0 ? static_cast<uint64_t>(waiting) : 0;
}

void Pipe::shut() { shutdown(socket_, SHUT_WR); }

}  // namespace hocket::tcp
