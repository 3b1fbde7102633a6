// Which of two ways to do the same takes less, found by doing the first ones in both.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "wait/wait.h"

namespace hocket {

// Of calls of one kind, say: what is faster is a matter of the processor and the kernel, of how much is moved, of who
// moves something at the same time, and of what the caller does between them.
class Trial {
 public:
  enum Found { unknown, usual, other };

  static constexpr unsigned unseen = 4;  // calls, in which memory is touched for the first time, and mapped
  static constexpr unsigned turn = 4;    // calls in one way, of which the first finds the caches as the other left them
  static constexpr unsigned trials = 64;  // calls, in turns: the usual way, the other, the other, the usual
  static constexpr double surely = 0.4;  // so much off what the other way must gain is clear after the first four turns

  // Whether the next call is one of these.
  bool goes_on() const { return calls_ < unseen + trials; }

  // Whether the next call, if it is, goes the other way.
  bool begin() { return is_other(++calls_); }

  // How long the call that was begun last has taken, if it has come to its end. The other way must take less than
  // `worth` of what the usual one does; after each four turns that may be clear enough.
  void tell(Clock::duration time, double worth) {
    if (calls_ <= unseen || found_ != unknown) return;
    const unsigned trial = calls_ - unseen;
    if (trial % turn != 1) times_[is_other(calls_)].push_back(time);
    if (trial % (4 * turn) != 0 || times_[false].empty() || times_[true].empty()) return;
    const std::chrono::duration<double> others = middle(true), usuals = middle(false);
    const double doubt = trial == trials ? 0 : surely * 4 * turn / trial;
    if (others < (worth - doubt) * usuals) {
      found_ = other;
    } else if (others >= (worth + doubt) * usuals) {
      found_ = usual;
    }
  }

  Found found() const { return found_; }

 private:
  // Whether the call of that number, from 1 on, goes the other way.
  static bool is_other(unsigned number) { return number > unseen && ((number - unseen - 1) / turn + 1) % 4 / 2 != 0; }

  Clock::duration middle(bool of_other) {
    const auto begin = times_[of_other].begin(), end = times_[of_other].end();
    const auto found = begin + (end - begin) / 2;
    std::nth_element(begin, found, end);
    return *found;
  }

  unsigned calls_ = 0;
  Found found_ = unknown;
  std::array<std::vector<Clock::duration>, 2> times_;
};

}  // namespace hocket
