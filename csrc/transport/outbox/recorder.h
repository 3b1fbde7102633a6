// Writes what its rank does into its own outbox (recording.h). A call costs two looks at the processor's counter of
// time, which is a third of asking the system for it, and a few stores into one cache line; all else is for waits that
// last.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "transport/outbox/layout.h"
#include "wait/fork.h"
#include "wait/wait.h"

namespace hocket {

// The counter: it runs evenly, alike on all cores, from nowhere in particular.
inline uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t now;
  asm volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return static_cast<uint64_t>(Clock::now().time_since_epoch().count());
#endif
}

class Recorder {
 public:
  Recorder(int rank, int size, Outbox& own) : rank_(rank), size_(size), born_(forks()), own_(own) {}

  // Whose outbox this is. pids[r] is rank r's process where that is on this host, else 0.
  void sign(uint64_t key, const std::string& host, const std::vector<int32_t>& pids);

  // What calls of that fingerprint are; before the first of them is entered.
  void name(uint64_t fingerprint, const std::string& title);

  void enter(uint64_t number, uint64_t fingerprint) {
    Recording::Call& call = own_.recording.calls[number % Recording::calls_kept];
    const uint64_t now = ticks();
    call.number.store(number, std::memory_order_relaxed);
    call.fingerprint.store(fingerprint, std::memory_order_relaxed);
    call.entered.store(now, std::memory_order_relaxed);
    call.left.store(0, std::memory_order_relaxed);
    call.waited_for.store(-1, std::memory_order_relaxed);
    call.failed.store(0, std::memory_order_relaxed);
    call.place.store(0, std::memory_order_relaxed);
    call.seal.store(Recording::Call::sealed(number, fingerprint, now), std::memory_order_relaxed);
    open_.store(&call, std::memory_order_relaxed);
    thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    fetch_to_write(&own_.recording.calls[(number + 1) % Recording::calls_kept]);
  }
  void leave() {
    Recording::Call* const call = open_.load(std::memory_order_relaxed);
    if (call == nullptr) return;  // another thread has broken the group
    call->left.store(ticks(), std::memory_order_relaxed);
    open_.store(nullptr, std::memory_order_relaxed);
  }
  // The call that this rank is in, if it is in one, has failed. From any thread, as what follows; and nothing in a
  // forked child, where the outbox is the parent's.
  void fail();
  // This thread waits for `peer`.
  void wait(int peer) {
    if (thread_.load(std::memory_order_relaxed) != std::this_thread::get_id()) return;
    if (Recording::Call* const call = open_.load(std::memory_order_relaxed))
      call->waited_for.store(peer, std::memory_order_relaxed);
  }
  // A wait lasts: in that call, or where it is 0 in what the text says, until the same one takes it back. One thread
  // at a time.
  void report(const void* by, uint64_t call, const std::string& text, const std::string& place,
              Clock::time_point since);
  void retract(const void* by);

 private:
  uint64_t keep(const std::string& place);

  const int rank_, size_, born_;
  Outbox& own_;
  std::atomic<Recording::Call*> open_{nullptr};      // the call that this rank is in,
  std::atomic<std::thread::id> thread_{};            // and who made it
  uint64_t titles_ = 0, places_ = 0, waits_ = 0;     // that were written
  const void* waiting_[Recording::waits_kept] = {};  // who reported those that last
};

}  // namespace hocket
