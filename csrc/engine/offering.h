// Whether long messages that are only copied are offered where they lie, in memory of this process's own, from which
// the kernel copies them once, or staged and copied twice. Found by making the first calls in both ways.
#pragma once

#include <cstdint>

#include "engine/trial.h"

namespace hocket {

constexpr uint64_t least_offered = 32 << 10;  // bytes of a message: for less a call of the kernel's is too much

// Of one program. All ranks try the same way at the same time, as they make the same calls, and then do as rank 0 has
// found best, from the end of the same call on. No bit of a result depends on it, nor need all keep to it.
class Offering {
 public:
  enum Found : uint32_t { unknown = Trial::unknown, staged = Trial::usual, offered = Trial::other };

  static constexpr double clearly = 0.95;  // of the time that staging takes; where ranks share cores, and what one of
  static constexpr double crowded = 0.9;   // them takes is not half of what there is to know, of that

  bool tries() const { return settled_ == unknown && trial_.goes_on(); }

  // Whether the next call offers.
  bool begin() { return tries() ? trial_.begin() : settled_ == offered; }

  // How long that call has taken, if it was one of the first and has come to its end. The trials go on until it is
  // settled, since rank 0 may not be as sure as this one.
  void tell(Clock::duration time, bool in_crowd) { trial_.tell(time, in_crowd ? crowded : clearly); }

  // What it has found out, and what all do once that is told.
  Found found() const { return static_cast<Found>(trial_.found()); }
  void settle(uint32_t found_by_first) {
    if (found_by_first != unknown) settled_ = found_by_first;
  }

 private:
  Trial trial_;
  uint32_t settled_ = unknown;
};

}  // namespace hocket
