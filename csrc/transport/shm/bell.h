// How a rank sleeps, and how the others wake it; and on which core it waits.
//
// A sleeper announces itself, looks once more, and sleeps; whoever publishes something for it looks for sleepers
// afterwards: so one of the two always sees the other. The words for it are in each rank's outbox.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "transport/shm/layout.h"
#include "wait/wait.h"

namespace hocket {

class Bell {
 public:
  Bell(int rank, std::vector<Outbox*> boxes);

  // Wakes `peer` if it sleeps; else a fence and a load.
  void notify(int peer) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (boxes_[peer]->sleepers.load(std::memory_order_relaxed) != 0) wake(peer);
  }
  void notify_all();

  uint32_t announce();
  void sleep(uint32_t seen, std::chrono::microseconds slice);
  void withdraw();

  // Whether ranks share cores: all of them do, or `peer` and this one seem to. Where more are on this core than it has
  // to bear, this one may go to another.
  bool shares_core(int peer);

 private:
  void wake(int peer);
  bool is_one_too_many(uint32_t here) const;

  const int rank_, size_;
  const std::vector<Outbox*> boxes_;
  const bool crowded_;
  const int share_;                             // ranks that a core has to bear
  std::atomic<Clock::duration::rep> moved_{0};  // when this rank last stepped aside
};

}  // namespace hocket
