#include "transport/tcp/pipe.h"

#include <sys/socket.h>

namespace hocket::tcp {

namespace {

msghdr as_message(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  return message;
}

}  // namespace

ssize_t Pipe::send(std::span<iovec> parts) {
  const msghdr message = as_message(parts);
  return sendmsg(socket_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

ssize_t Pipe::receive(std::span<iovec> parts) {
  msghdr message = as_message(parts);
  return recvmsg(socket_, &message, MSG_DONTWAIT);
}

void Pipe::shut() { shutdown(socket_, SHUT_WR); }

}  // namespace hocket::tcp
