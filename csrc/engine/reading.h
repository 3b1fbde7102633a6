// How long messages are copied from where another rank has written them, found by reading the first ones in both ways.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "kernels/copy.h"
#include "wait/wait.h"

namespace hocket {

// As the C library does, from the front to the end, or woven from several pages. Which is faster is a matter of the
// processor, and of where the writer's core is; who else reads need not know.
class Reading {
 public:
  static constexpr int trials = 62;        // messages, in turns: one as the C library does, two woven, one
  static constexpr uint64_t clearly = 97;  // hundredths of the time that the C library takes

  void copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (is_known()) return is_woven_ ? copy_woven(to, from, bytes) : copy_bytes(to, from, bytes);
    const auto begin = Clock::now();
    tries_woven() ? copy_woven(to, from, bytes) : copy_bytes(to, from, bytes);
    const auto took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    tell((static_cast<uint64_t>(took) << 20) / bytes);
  }

  bool is_known() const { return trials_ == trials; }
  bool is_woven() const { return is_woven_; }
  bool tries_woven() const { return (trials_ + 1) / 2 % 2 != 0; }

  // How many nanoseconds a MiB of such a trial has taken.
  void tell(uint64_t pace) {
    if (is_known()) return;
    paces_[tries_woven()][trials_ / 2] = pace;
    if (++trials_ == trials) is_woven_ = 100 * middle(paces_[true]) < clearly * middle(paces_[false]);
  }

 private:
  using Paces = std::array<uint64_t, trials / 2>;
  static uint64_t middle(Paces& paces) {
    const auto found = paces.begin() + trials / 4;
    std::nth_element(paces.begin(), found, paces.end());
    return *found;
  }

  bool is_woven_ = false;
  int trials_ = 0;
  std::array<Paces, 2> paces_{};  // as the C library does, and woven
};

// For messages of two lengths, since what longer ones gain shorter ones may lose.
class Readings {
 public:
  static constexpr uint64_t least = 4 * woven_block;  // bytes of a message: shorter ones gained nothing

  void copy(std::byte* to, const std::byte* from, uint64_t bytes) {
    if (bytes < least) return copy_bytes(to, from, bytes);
    (bytes < 2 * least ? long_ : longer_).copy(to, from, bytes);
  }

 private:
  Reading long_, longer_;
};

}  // namespace hocket
