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
// sends at the same time. All ranks try the same way at the same time, as they make the same calls, and then do as rank
// 0 has found best, from the end of the same call on. No bit of a result depends on it, nor need all keep to it.
class Offering {
 public:
  enum Found : uint32_t { unknown, staged, offered };

  static constexpr unsigned unseen = 4;  // calls, in which memory is touched for the first time, and mapped
  static constexpr unsigned turn = 4;    // calls in one way, of which the first finds the caches as the other left them
  static constexpr unsigned trials = 64;   // calls, in turns: staged, offered, offered, staged
  static constexpr double clearly = 0.95;  // of the time that staging takes; where ranks share cores, and what one of
  static constexpr double crowded = 0.9;   // them takes is not half of what there is to know, of that;
  static constexpr double surely = 0.4;    // or so much less or more than that after the first four turns

  bool tries() const { return settled_ == unknown && calls_ < unseen + trials; }

  // Whether the next call offers.
  bool begin() {
    if (!tries()) return settled_ == offered;
    const unsigned number = calls_++;
    return number >= unseen && ((number - unseen) / turn + 1) % 4 / 2 != 0;
  }

  // How long that call has taken, if it was one of the first and has come to its end. After each four turns it may be
  // clear enough; the trials go on until it is settled, since rank 0 may not be as sure.
  void tell(bool is_offered, Clock::duration time, bool in_crowd) {
    if (calls_ <= unseen || found_ != unknown) return;
    const unsigned trial = calls_ - unseen;
    if (trial % turn != 1) times_[is_offered][told_[is_offered]++] = time;
    if (trial % (4 * turn) != 0 || told_[false] == 0 || told_[true] == 0) return;
    const std::chrono::duration<double> by_offers = middle(true), staging = middle(false);
    const double worth = in_crowd ? crowded : clearly, doubt = trial == trials ? 0 : surely * 4 * turn / trial;
    if (by_offers < (worth - doubt) * staging) {
      found_ = offered;
    } else if (by_offers >= (worth + doubt) * staging) {
      found_ = staged;
    }
  }

  // What it has found out, and what all do once that is told.
  Found found() const { return found_; }
  void settle(uint32_t found_by_first) {
    if (found_by_first != unknown) settled_ = found_by_first;
  }

 private:
  Clock::duration middle(bool is_offered) {
    const auto begin = times_[is_offered].begin();
    const auto found = begin + told_[is_offered] / 2;
    std::nth_element(begin, found, begin + told_[is_offered]);
    return *found;
  }

  unsigned calls_ = 0;
  Found found_ = unknown;
  uint32_t settled_ = unknown;
  std::array<std::array<Clock::duration, trials>, 2> times_{};
  std::array<unsigned, 2> told_{};
};

}  // namespace hocket
