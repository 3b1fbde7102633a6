#include "transport/tcp/stripes.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace hocket::tcp {

namespace {

constexpr std::chrono::milliseconds between_looks{1};

}  // namespace

Stripes::Stripes(std::vector<std::shared_ptr<Pipe>> pipes)
    : Pipe(pipes.front()->socket()), pipes_(std::move(pipes)), full_(pipes_.size()) {}

// Sends or receives a piece after the other, until a pipe moves less than it was asked to.
ssize_t Stripes::deal(Place& at, std::span<iovec> parts, ssize_t (Pipe::*move)(std::span<iovec>)) {
  size_t moved = 0;
  for (;;) {
    size_t count = 0, asked = 0;
    while (count != parts.size() && asked < at.left) asked += parts[count++].iov_len;
    if (asked == 0) break;
    const size_t beyond = asked - std::min(asked, at.left);  // the piece, of the last part
    parts[count - 1].iov_len -= beyond;
    const ssize_t n = (pipes_[at.pipe].get()->*move)(parts.first(count));
    parts[count - 1].iov_len += beyond;
    if (n <= 0) return moved != 0 ? static_cast<ssize_t>(moved) : n;
    const auto bytes = static_cast<size_t>(n);
    moved += bytes;
    at.left -= bytes;
    if (at.left != 0 && bytes < asked - beyond) break;
    parts = without(parts, bytes);
    if (at.left != 0) continue;
    at.pipe = (at.pipe + 1) % pipes_.size();
    at.left = piece;
  }
  return static_cast<ssize_t>(moved);
}

// What one of them has taken goes out also where another one takes no more: the other end may wait for just that.
ssize_t Stripes::send(std::span<iovec> parts) {
  flush();
  const ssize_t n = deal(writing_, parts, &Pipe::send);
  if (n < 0) full_[writing_.pipe] = true;
  return n;
}

ssize_t Stripes::receive(std::span<iovec> parts) {
  const ssize_t n = deal(reading_, parts, &Pipe::receive);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    const int why = failure();
    errno = why != 0 ? why : EAGAIN;
  }
  return n;
}

// Why one of them has failed, or 0. An end of one of them, in peace, is none of the stream: what is still on its way by
// the others may come before it.
int Stripes::failure() {
  const auto now = Clock::now();
  if (now - looked_ < between_looks) return 0;
  looked_ = now;
  std::vector<pollfd> polls;
  for (const auto& pipe : pipes_) polls.push_back({pipe->socket(), 0, 0});
  if (poll(polls.data(), polls.size(), 0) <= 0) return 0;
  const int failed = is_shut_ ? POLLERR : POLLERR | POLLHUP;
  for (const pollfd& each : polls) {
    if ((each.revents & failed) == 0) continue;
    int why = 0;
    socklen_t length = sizeof why;
    getsockopt(each.fd, SOL_SOCKET, SO_ERROR, &why, &length);
    return why != 0 ? why : ECONNRESET;
  }
  return 0;
}

bool Stripes::flush() {
  bool all = true;
  for (size_t i = 0; i < pipes_.size(); ++i) {
    full_[i] = !pipes_[i]->flush();
    all = all && !full_[i];
  }
  return all;
}

void Stripes::read_ahead() {
  for (const auto& pipe : pipes_) pipe->read_ahead();
}

// Those that nothing is expected of show a failure all the same.
void Stripes::watch(std::vector<pollfd>& polls, short events) const {
  const size_t read = reading_.pipe;
  for (size_t i = 0; i < pipes_.size(); ++i) {
    const int wanted = (i == read ? POLLIN : 0) | (full_[i] ? POLLOUT : 0);
    const auto each = static_cast<short>(events & wanted);
    if (each != 0 || !is_shut_) polls.push_back({pipes_[i]->socket(), each, 0});
  }
}

std::chrono::microseconds Stripes::arm() {
  auto least = Pipe::arm();
  for (const auto& pipe : pipes_) least = std::min(least, pipe->arm());
  return least;
}

void Stripes::limit(std::chrono::milliseconds time) {
  for (const auto& pipe : pipes_) pipe->limit(time);
}

uint64_t Stripes::in_flight() const {
  uint64_t all = 0;
  for (const auto& pipe : pipes_) all += pipe->in_flight();
  return all;
}

bool Stripes::is_silent(std::chrono::milliseconds time) const {
  return std::any_of(pipes_.begin(), pipes_.end(), [&](const auto& pipe) { return pipe->is_silent(time); });
}

void Stripes::shut() {
  is_shut_ = true;
  for (const auto& pipe : pipes_) pipe->shut();
}

void Stripes::close() {
  for (const auto& pipe : pipes_) pipe->close();
}

}  // namespace hocket::tcp
