// Whether long messages that are only copied are offered where they lie, in memory of this process's own, from which
// the kernel copies them once, or staged and copied twice. Found by making the first calls in both ways.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "wait/wait.h"

namespace hocket {

constexpr uint64_t least_offered = 32 << 10;  // bytes of a message: for less a call of the kernel's is too much

// Of one program: what is faster is a matter of the processor and the kernel, of how long messages are, and of who
// sends at the same time. All ranks try the same way at the same time, as they make the same calls; but each decides
// for itself, no other need know, and no bit of a result depends on it.
class Offering {
 public:
  static constexpr unsigned unseen = 4;    // calls, in which memory is touched for the first time, and mapped
  static constexpr unsigned trials = 40;   // calls, in turns: staged, offered, offered, staged
  static constexpr double clearly = 0.95;  // of the time that staging takes

  bool is_known() const { return calls_ == unseen + trials; }

  // Whether the next call offers.
  bool begin() {
    if (is_known()) return offers_;
    const unsigned number = calls_++;
    return number >= unseen && (number % 4 == 1 || number % 4 == 2);
  }

  // How long that call has taken, if it was one of the first and has come to its end.
  void tell(bool offered, Clock::duration time) {
    if (calls_ <= unseen) return;
    times_[offered][told_[offered]++] = time;
    if (is_known()) offers_ = std::chrono::duration<double>(middle(true)) < clearly * middle(false);
  }

 private:
  Clock::duration middle(bool offered) {
    const auto begin = times_[offered].begin();
    const auto found = begin + told_[offered] / 2;
    std::nth_element(begin, found, begin + told_[offered]);
    return *found;
  }

  unsigned calls_ = 0;
  bool offers_ = false;
  std::array<std::array<Clock::duration, trials>, 2> times_{};
  std::array<unsigned, 2> told_{};
};

}  // namespace hocket
