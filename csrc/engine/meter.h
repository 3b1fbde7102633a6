// What calls have cost, by kind of call and by peer.
//
// All are counted, and of the short ones few are timed: a look at the clock takes several hundredths of a call of a
// microsecond. A rank's calls are made in turns, so whoever has the turn writes; anyone reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "wait/wait.h"

namespace hocket {

// Written by one thread at a time.
class Count {
 public:
  void add(uint64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Bytes that calls sent to each peer and received from it.
struct Traffic {
  struct Peer {
    Count sent, received;
  };
  explicit Traffic(size_t size) : peers(size) {}
  Traffic(const Traffic&) = delete;
  std::vector<Peer> peers;
};

// What one program moves in a call to and from one peer, in bytes.
struct Flow {
  int32_t peer;
  uint64_t sent, received;
};

// What calls of one kind have cost. The times are estimates: of short calls the first few are timed, and then one for
// all of a few.
class Meter {
 public:
  explicit Meter(std::shared_ptr<Traffic> traffic) : traffic_(std::move(traffic)) {}
  Meter(const Meter&) = delete;

  // For how many calls the next one, of so many bytes, stands where it is timed; else 0.
  uint64_t weight(uint64_t vector) const {
    const uint64_t n = calls.get();
    return vector >= worth_timing || n < few ? 1 : n % few == 0 ? few : 0;
  }
  void add(uint64_t moved, const std::vector<Flow>& flows) {
    calls.add(1);
    bytes.add(moved);
    for (const Flow& flow : flows) {
      traffic_->peers[flow.peer].sent.add(flow.sent);
      traffic_->peers[flow.peer].received.add(flow.received);
    }
  }
  void time(uint64_t weight, Clock::duration all, Clock::duration waiting) {
    nanoseconds.add(weight * static_cast<uint64_t>(std::chrono::nanoseconds(all).count()));
    waited.add(weight * static_cast<uint64_t>(std::chrono::nanoseconds(waiting).count()));
  }

  Count calls, bytes, nanoseconds, waited;

 private:
  static constexpr uint64_t few = 64;
  static constexpr uint64_t worth_timing = 64 << 10;  // bytes, beside which a look at the clock is nothing
  const std::shared_ptr<Traffic> traffic_;
};

}  // namespace hocket
