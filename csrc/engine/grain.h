// How long the turns are in which chores are done, found by doing the first long ones in both ways.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/copy.h"
#include "wait/wait.h"

namespace hocket {

// Bytes of each chore in a turn, how it copies them, and whether all turns are one loop, where there is one for what is
// to be done (kernels/reduce.h).
struct Grain {
  uint64_t bytes;
  void (*copy)(std::byte*, const std::byte*, size_t);
  bool interleaves;
};

// A few lines: what comes from another core's cache is on its way while other chores work on what is near.
inline constexpr Grain fine{1 << 10, copy_short, true};
// As many as the C library is good at, which writes whole lines without fetching them first.
inline constexpr Grain coarse{16 << 10, copy_bytes, false};

// Which of the two is faster is a matter of the processor. Each rank finds it for itself, while it makes its calls: it
// is only the order in which memory is worked on, and no bit of a result depends on it, but for which of two NaNs is
// left.
class GrainChoice {
 public:
  static constexpr int trials = 31;
  static constexpr double clearly = 0.97;  // of the time that fine turns take

  bool is_known() const { return trials_ == trials; }
  const Grain& best() const { return *best_; }

  // Which is to be done first, so that neither gains by that: in turns, and the other way round in the next trial,
  // since chores may be of two kinds in turns, too.
  bool coarse_first() const { return is_second_ == (trials_ % 2 == 0); }

  // What as many bytes of one chore took in either way: two such make a trial, one in each order.
  void tell(Clock::duration of_fine, Clock::duration of_coarse) {
    if (is_known()) return;
    of_fine_ += of_fine, of_coarse_ += of_coarse;
    is_second_ = !is_second_;
    if (is_second_) return;
    ratios_[trials_++] = std::chrono::duration<double>(std::exchange(of_coarse_, {})) /
                         std::max(std::exchange(of_fine_, {}), Clock::duration(1));
    if (!is_known()) return;
    const auto middle = ratios_.begin() + trials / 2;
    std::nth_element(ratios_.begin(), middle, ratios_.end());
    if (*middle < clearly) best_ = &coarse;
  }

 private:
  std::array<double, trials> ratios_{};
  int trials_ = 0;
  Clock::duration of_fine_{}, of_coarse_{};
  bool is_second_ = false;
  const Grain* best_ = &fine;
};

// Of what one loop can do, and of what takes turns call by call.
struct Grains {
  GrainChoice loops, turns;
};

}  // namespace hocket
