// Which of a few ways to do the same takes least, found by doing it in turns, and found anew as time goes on.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "wait/wait.h"

namespace hocket {

// Of calls of one kind, say: what is faster is a matter of the processor and the kernel, of where the cores lie, of how
// much is moved, of who moves something at the same time, and of what the caller does between them. Some of that
// changes.
//
//   4 calls    a round                                     512, 1024, … 4096 calls                     a round
//   ┌────────┬──────────────┬──────────────┬─────────────────────────────────────────────────────────┬─────
//   │ unseen │ way 0 with 1 │ best with 2  │ best, until so many are over, or it takes another time   │ …
//   └────────┴──────────────┴──────────────┴─────────────────────────────────────────────────────────┴─────
class Choice {
 public:
  static constexpr unsigned unseen = 4;  // calls, in which memory is touched for the first time, and mapped
  static constexpr unsigned turn = 4;    // calls in one way, of which the first finds the caches as the other left them
  static constexpr unsigned trials = 64;   // calls with one other way: the best in a turn, the other in two, the best
  static constexpr unsigned hopeless = 3;  // calls of the other way, after which it may be clear that it does not gain
  static constexpr unsigned late = 8;      // calls more, within which their times are told
  static constexpr double surely = 0.4;    // so much off what the other way must gain is clear after the first 16
  // Calls to the next round, twice as many each time that a round finds the same. If it finds another way, no fewer
  // than before: by chance that happens again and again, where ranks come late and times say little. Where two choices
  // take turns, each rests while the other one has its round.
  static constexpr unsigned least_rest = 512, most_rest = 4096;
  // Such a part of these is waited for in any case, and so many: where ranks come late, times change all the time.
  static constexpr unsigned patience = 8, least_patience = least_rest / 2;
  static constexpr unsigned looked_at = 8;  // calls in a row, whose median is
  static constexpr double another = 1.3;    // times that of the first of them, or the other way round: times changed
  // Calls of a rest to one that goes another way: the best may take as long as ever and be the best no more. So it is
  // if the other one took 1.3 times less than each of the last eight: by chance calls take longer, hardly less. These
  // alone are too few for a 99th percentile.
  static constexpr unsigned glance = 128;

  // The way of the next call, of so many, of which 0 is the usual one. Unless it `may_try`, it is `best_`, or one
  // of a round that has begun.
  unsigned begin(unsigned ways, bool may_try = true) {
    if (number_ == trials + late) win(best_);
    if (number_ == 0 && !challenge(ways, may_try)) {
      if (++rested_ % glance != 0 || !may_try || ways < 2) return best_;
      do glanced_at_ = (glanced_at_ + 1) % ways;
      while (glanced_at_ == best_);
      return glanced_at_;
    }
    ++number_;
    const bool other = number_ <= trials && ((number_ - 1) / turn + 1) % 4 / 2 != 0;
    return other ? challenger_ : best_;
  }

  // Whether the call that was begun last is one of a round. A glance is not: no median shows it.
  bool tries() const { return number_ != 0; }

  // How long a call has taken, which went that way, and has come to its end. Of two ways the one with the higher number
  // must take less than `worth` of what the other one does; after each 16 calls that may be clear enough. The
  // challenger has lost as soon as a few of its calls are there, none of which takes less than the best one's median,
  // nor, where the best must gain to stay, that by `worth`: what would gain little is lost so at times, until the next
  // round, and what takes longer is not tried on for its sake.
  void tell(unsigned way, Clock::duration time, double worth) {
    const bool first = std::exchange(last_, way) != way;
    if (number_ == 0 && way != best_) return compare(time);
    if (first) return;  // also after a glance
    if (number_ == 0) return watch(time);
    if (way != best_ && way != challenger_) return;
    const unsigned usual = std::min(best_, challenger_), other = std::max(best_, challenger_);
    times_[way == other].push_back(time);
    auto &of_best = times_[best_ == other], &of_challenger = times_[challenger_ == other];
    if (way == challenger_ && of_challenger.size() == hopeless && of_best.size() >= hopeless) {
      const std::chrono::duration<double> least = *std::ranges::min_element(of_challenger);
      if ((challenger_ < best_ ? worth * least : least) >= middle(of_best)) return win(best_);
    }
    constexpr size_t each = 2 * turn - 1, all = each * trials / (4 * turn);  // times of one way, in 16 calls and at all
    const size_t count = std::min(times_[false].size(), times_[true].size());
    if (count < checked_ + each) return;
    checked_ += each;
    const std::chrono::duration<double> others = middle(times_[true]), usuals = middle(times_[false]);
    const double doubt = checked_ >= all ? 0 : surely * each / static_cast<double>(checked_);
    if (others < (worth - doubt) * usuals) {
      win(other);
    } else if (others >= (worth + doubt) * usuals) {
      win(usual);
    }
  }

 private:
  // Whether this call is tried with another way than the best, of which the round has one left, or begins.
  bool challenge(unsigned ways, bool may_try) {
    if (!in_round_) {
      const bool is_due =
          rested_ >= rest_ || ((changed_ || surpassed_) && rested_ >= std::max(rest_ / patience, least_patience));
      if (!is_due || !may_try || ways < 2) return false;
      in_round_ = true;
      first_ = best_;
      next_ = 0;
    }
    while (next_ < ways && (next_ == first_ || next_ == best_)) ++next_;
    if (next_ < ways) {
      challenger_ = next_++;
      return true;
    }
    in_round_ = false;
    if (best_ == first_) rest_ = std::min(2 * rest_, most_rest);
    rest_ = std::max(rest_, least_rest);
    rested_ = seen_ = 0;
    changed_ = surpassed_ = false;
    return false;
  }

  void win(unsigned way) {
    pace_ = Clock::duration();
    best_ = way;
    number_ = 0;
    checked_ = 0;
    for (auto& each : times_) each.clear();
  }

  void watch(Clock::duration time) {
    recent_[seen_++ % looked_at] = time;
    if (seen_ % looked_at != 0) return;
    auto sorted = recent_;
    const std::chrono::duration<double> now = middle(sorted), then = pace_;
    if (pace_ == Clock::duration()) {
      pace_ = middle(sorted);
    } else {
      changed_ = now > another * then || then > another * now;
    }
  }

  // A glance, or what is told late of a round, of a way that has lost.
  void compare(Clock::duration time) {
    surpassed_ |= another * std::chrono::duration<double>(time) < *std::ranges::min_element(recent_);
  }

  static Clock::duration middle(auto& times) {
    const auto begin = times.begin(), end = times.end();
    const auto found = begin + (end - begin) / 2;
    std::nth_element(begin, found, end);
    return *found;
  }

  unsigned best_ = 0, challenger_ = 0;
  unsigned number_ = 0;                                // of the call, of those with this challenger; 0: there is none
  unsigned last_ = 0;                                  // way that was told of
  std::array<std::vector<Clock::duration>, 2> times_;  // of the way with the lower number of both, and of the other one
  size_t checked_ = 0;                                 // so many of each
  bool in_round_ = false;
  unsigned first_ = 0, next_ = 0;  // the best one before this round, and the next challenger
  unsigned rested_ = 0, rest_ = unseen;
  unsigned glanced_at_ = 0;
  Clock::duration pace_{};  // of the best one's first calls since it was found; 0: they are not over
  std::array<Clock::duration, looked_at> recent_{};
  unsigned seen_ = 0;
  bool changed_ = false;    // times, since then
  bool surpassed_ = false;  // the best, at a glance
};

// What `bytes` would have taken, where `of` have taken this: also where it was minutes, since others came late.
inline Clock::duration pace(Clock::duration time, uint64_t of, uint64_t bytes) {
  const double share = static_cast<double>(bytes) / static_cast<double>(of);
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, Clock::period>(time) * share);
}

}  // namespace hocket
