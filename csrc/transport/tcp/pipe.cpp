#include "transport/tcp/pipe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

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

ssize_t Pipe::send(std::span<iovec> parts) {
  const msghdr message = as_message(parts);
  return sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t Pipe::receive(std::span<iovec> parts) {
  msghdr message = as_message(parts);
  return recvmsg(socket_, &message, MSG_DONTWAIT);
}

// Of a socket that is none of TCP the kernel refuses it, and there is nothing to limit.
void Pipe::limit(std::chrono::milliseconds time) {
  const auto most = static_cast<unsigned>(time.count());
  setsockopt(socket_, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, sizeof most);
}

void Pipe::shut() { shutdown(socket_, SHUT_WR); }

}  // namespace hocket::tcp
