#include "transport/outbox/liveness.h"

#include <poll.h>

#include <fstream>

#include "transport/outbox/text.h"

namespace hocket {

namespace {

constexpr Clock::duration between_looks = std::chrono::milliseconds(50);
constexpr Clock::duration between_looks_for_stopped = std::chrono::milliseconds(100);
// From when one is stopped until that is seen: it is `silent` first; and until all others know: for so much sooner it
// is given up, so that they do within a `life`.
constexpr Clock::duration until_all_know = std::chrono::milliseconds(400);
constexpr Clock::duration absence = std::chrono::seconds(1);  // of this process itself, between two looks

// What the kernel says of a process that has a name of its own in this one's /proc. That may be another one's number in
// the namespace of who gave the descriptor, but never here.
bool is_stopped_by_signal(int pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd));
  for (std::string word; info >> word;) {
    int pid = 0;
    if (word != "Pid:" || !(info >> pid)) continue;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    const size_t name = text.rfind(')');  // which may hold anything
    return pid > 0 && name != std::string::npos && text.size() > name + 2 && text[name + 2] == 'T';
  }
  return false;
}

}  // namespace

Liveness::Liveness(int rank, std::vector<Outbox*> boxes, std::vector<int> sockets, std::vector<int> pidfds,
                   Clock::duration silence, Clock::duration life)
    : rank_(rank),
      size_(static_cast<int>(boxes.size())),
      boxes_(std::move(boxes)),
      silence_(silence),
      life_(life),
      stopped_("was stopped for " + in_seconds(life)),
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
  int stopped;
  {
    const std::lock_guard lock(mutex_);
    listen(now);
    stopped = stopped_for_long(now);
    for (int fd : sockets_) polls.push_back({fd, POLLRDHUP, 0});  // poll leaves out negative ones
    for (int fd : pidfds_) polls.push_back({fd, POLLIN, 0});
    if (poll(polls.data(), polls.size(), 0) <= 0) polls.clear();
  }
  if (stopped >= 0) gone(stopped, stopped_.c_str());
  for (size_t i = 0; i < polls.size(); ++i) {
    const int peer = static_cast<int>(i) % size_;
    if (polls[i].revents != 0 && !boxes_[peer]->left.load(std::memory_order_acquire)) gone(peer, "died");
  }
  return true;
}

void Liveness::gone(int peer, const char* how) {
  if (gone_[peer].exchange(true)) throw Failure{Failure::peer_lost, peer, how};
}

Ranks Liveness::dead() {
  Ranks all;
  std::vector<pollfd> polls;
  const std::lock_guard lock(mutex_);
  for (int fd : pidfds_) polls.push_back({fd, POLLIN, 0});
  if (poll(polls.data(), polls.size(), 0) <= 0) return all;
  for (size_t peer = 0; peer < polls.size(); ++peer) all[peer] = polls[peer].revents != 0;
  return all;
}

bool Liveness::is_stopped(int peer) {
  const std::lock_guard lock(mutex_);
  const auto rank = static_cast<size_t>(peer);
  return rank < pidfds_.size() && pidfds_[rank] >= 0 && is_stopped_by_signal(pidfds_[rank]);
}

// One of those that do not beat; -1: none.
int Liveness::stopped_for_long(Clock::time_point now) {
  const Clock::duration passed = now - looked_for_stopped_;
  int found = -1;
  if (passed < (any_stopped_ ? between_looks : between_looks_for_stopped)) return found;
  any_stopped_ = false;
  looked_for_stopped_ = now;
  for (size_t peer = 0; peer < pidfds_.size(); ++peer) {
    Clock::time_point& since = pulses_[peer].stopped;
    const bool stopped =
        pidfds_[peer] >= 0 && silent(static_cast<int>(peer), now) && is_stopped_by_signal(pidfds_[peer]);
    any_stopped_ = any_stopped_ || stopped;
    // Where this process was stopped too, all begin anew.
    if (!stopped || since == Clock::time_point{} || passed > absence) {
      since = stopped ? now : Clock::time_point{};
    } else if (now - since > life_ - until_all_know && !boxes_[peer]->left.load(std::memory_order_acquire)) {
      found = static_cast<int>(peer);
    }
  }
  return found;
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
