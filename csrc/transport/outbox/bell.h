// How a rank sleeps, and how the others wake it; and on which core it waits.
//
// A sleeper announces itself, looks once more, and sleeps; whoever publishes something for it looks for sleepers
// afterwards: so one of the two always sees the other. The words for it are in each rank's outbox. A rank that is
// behind a wire is woken by sending it what is new; one that waits for wires too sleeps on descriptors, and the bell is
// one of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "transport/outbox/layout.h"
#include "transport/outbox/wire.h"
#include "wait/wait.h"

namespace hocket {

// How long a rank stays on a core that it moved to. The kernel soon puts back whom somebody wakes who runs on the core
// that was left; it moves again, and each time stays for twice as long, until it has stayed for long enough to have
// been left alone.
class Stay {
 public:
  // A move takes some 40 us.
  static constexpr Clock::duration shortest = std::chrono::microseconds(100);
  static constexpr Clock::duration longest = std::chrono::milliseconds(4);
  static constexpr Clock::duration lasting = 4 * longest;

  explicit Stay(Clock::duration least) : least_(least), length_(least) {}
  // Whether it may move `now`; another one begins then.
  bool ends(Clock::duration now) {
    const Clock::duration stayed = now - since_.load(std::memory_order_relaxed);
    const Clock::duration length = length_.load(std::memory_order_relaxed);
    if (stayed < length) return false;
    since_.store(now, std::memory_order_relaxed);
    length_.store(stayed < lasting ? std::min(2 * length, longest) : least_, std::memory_order_relaxed);
    return true;
  }

 private:
  const Clock::duration least_;
  std::atomic<Clock::duration> length_;
  std::atomic<Clock::duration> since_{-lasting};
};

class Bell {
 public:
  // wires[r] leads to rank r, whose box is a mirror; null where the box is its own. events[r] is an eventfd that wakes
  // rank r; -1 where a futex does. `crowd` ranks share the cores of this machine.
  Bell(int rank, std::vector<Outbox*> boxes, std::vector<Wire*> wires, std::vector<int> events, int crowd);

  // Wakes `peer` if it sleeps; else a fence and a load.
  void notify(int peer) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (boxes_[peer]->sleepers.load(std::memory_order_relaxed) != 0) wake(peer);
  }
  void notify_all();
  // Whether something came from `peer` just now over its wire, if there is one.
  bool hear(int peer) {
    if (wires_[peer] == nullptr || !wires_[peer]->turn()) return false;
    notify(rank_);  // another thread may wait for it
    return true;
  }
  bool is_behind_wire(int peer) const { return wires_[peer] != nullptr; }

  uint32_t announce();
  void sleep(uint32_t seen, std::chrono::microseconds slice);
  // Whether the bell was rung since it showed `seen`.
  bool rung(uint32_t seen) const { return boxes_[rank_]->bell.load(std::memory_order_seq_cst) != seen; }
  void withdraw();

  // Whether ranks share cores: all of them do, or `peer` and this one seem to. Where more are on this core than it has
  // to bear, this one may go to another.
  bool shares_core(int peer);
  // Whether ranks share cores, `peer` is on another one, and this is true of all that were seen on this one's.
  template <class True>
  bool is_elsewhere_and(int peer, True is_true) const {
    if (!crowded_ || peer < 0 || wires_[peer] != nullptr || is_beside(peer)) return false;
    for (int other = 0; other < size_; ++other) {
      if (other != rank_ && is_beside(other) && !is_true(other)) return false;
    }
    return true;
  }

 private:
  void wake(int peer);
  bool is_beside(int peer) const {
    return boxes_[peer]->cpu.load(std::memory_order_relaxed) == boxes_[rank_]->cpu.load(std::memory_order_relaxed);
  }
  bool is_one_too_many(uint32_t here) const;

  const int rank_, size_;
  const std::vector<Outbox*> boxes_;
  const std::vector<Wire*> wires_;
  const std::vector<int> events_;
  const bool crowded_;
  const int share_;  // ranks that a core has to bear
  Stay stay_;
};

}  // namespace hocket
