#include "transport/outbox/liveness.h"

#include <poll.h>

namespace hocket {

namespace {

constexpr Clock::duration between_looks = std::chrono::milliseconds(50);

}  // namespace

Liveness::Liveness(int rank, std::vector<Outbox*> boxes, std::vector<int> sockets, std::vector<int> pidfds,
                   Clock::duration silence)
    : rank_(rank),
      size_(static_cast<int>(boxes.size())),
      boxes_(std::move(boxes)),
      silence_(silence),
      gone_(boxes_.size()),
      sockets_(std::move(sockets)),
      pidfds_(std::move(pidfds)),
      pulses_(boxes_.size()) {}

void Liveness::beat(int peer) {
  boxes_[rank_]->waits_for.store(peer, std::memory_order_relaxed);
  beat();
}

void Liveness::beat() { boxes_[rank_]->beat.fetch_add(1, std::memory_order_relaxed); }

bool Liveness::look(Clock::time_point now) {
  if (now.time_since_epoch().count() - looked_.load(std::memory_order_relaxed) < between_looks.count()) return false;
  looked_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  std::vector<pollfd> polls;
  {
    const std::lock_guard lock(mutex_);
    listen(now);
    for (int fd : sockets_) polls.push_back({fd, POLLRDHUP, 0});  // poll leaves out negative ones
    for (int fd : pidfds_) polls.push_back({fd, POLLIN, 0});
    if (poll(polls.data(), polls.size(), 0) <= 0) return true;
  }
  for (size_t i = 0; i < polls.size(); ++i) {
    const int peer = static_cast<int>(i) % size_;
    if (polls[i].revents != 0 && !boxes_[peer]->left.load(std::memory_order_acquire)) gone(peer, "died");
  }
  return true;
}

void Liveness::gone(int peer, const char* how) {
  if (gone_[peer].exchange(true)) throw Failure{Failure::peer_lost, peer, how};
}

int Liveness::culprit(int peer, const std::function<bool(int)>& is_here) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  listen(now);
  return follow(peer, now, is_here);
}

bool Liveness::is_silent(int peer, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  listen(now);
  return silent(peer, now);
}

void Liveness::disconnect() {
  const std::lock_guard lock(mutex_);
  sockets_.clear();
  pidfds_.clear();
}

void Liveness::listen(Clock::time_point now) {
  for (int peer = 0; peer < size_; ++peer) {
    const uint64_t beat = boxes_[peer]->beat.load(std::memory_order_relaxed);
    if (beat != pulses_[peer].beat) pulses_[peer] = {beat, now};
  }
}

bool Liveness::silent(int peer, Clock::time_point now) const {
  return peer != rank_ && now - pulses_[peer].since > silence_;
}

int Liveness::follow(int peer, Clock::time_point now, const std::function<bool(int)>& is_here) const {
  std::vector<bool> seen(size_);
  for (int at = peer; at >= 0 && at < size_ && !seen[at]; at = boxes_[at]->waits_for.load(std::memory_order_relaxed)) {
    if (silent(at, now) || (at != rank_ && !is_here(at))) return at;
    seen[at] = true;
  }
  for (int other = 0; other < size_; ++other) {  // a circle of those that wait, beside one that does not
    if (silent(other, now)) return other;
  }
  return peer;
}

}  // namespace hocket
