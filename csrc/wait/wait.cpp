#include "wait/wait.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace hocket {

namespace {

constexpr unsigned pauses_per_turn = 8;
constexpr unsigned turns_of_spinning = 96;  // about 20 us, and only while every rank has a core
constexpr unsigned turns_of_patience = 16;  // for one on another core, where ranks share cores: about a change of tasks
constexpr unsigned turns_of_holding = 8;    // one to three microseconds
constexpr std::chrono::microseconds time_to_yield{200};  // then the core is given back for good

Clock::duration duration_of(const timespec& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

const Clock::duration tick = [] {
  timespec length{};
  clock_getres(CLOCK_MONOTONIC_COARSE, &length);
  return duration_of(length);
}();

}  // namespace

thread_local constinit Hold* Hold::current = nullptr;

Clock::time_point next_tick() {
  timespec last{};
  if (clock_gettime(CLOCK_MONOTONIC_COARSE, &last) != 0) return Clock::now();
  return Clock::time_point(duration_of(last) + tick);
}

void Wait::idle(int peer) {
  const unsigned turn = turn_++;
  if (turn == 0 && waited_ != nullptr) begun_ = Clock::now();
  if (waiter_.listens) waiter_.hear(peer);
  if (turn % 16 == 0) spins_ = !waiter_.shares_core(peer) && turn < turns_of_spinning;
  if (spins_ || (turn < turns_of_patience && waiter_.all_wait_here(peer))) {
    if (turn >= turns_of_holding) Hold::let_go();
    for (unsigned i = 0; i < pauses_per_turn; ++i) pause();
    return;
  }
  Hold::let_go();
  if (announced_) {
    waiter_.check(peer, deadline_);
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(deadline_ - Clock::now());
    waiter_.sleep(seen_, std::clamp(left, std::chrono::microseconds(1), slice_));
    slice_ = std::min(slice_ * 2, last_slice);
    waiter_.withdraw();
    announced_ = false;
    return;
  }
  const auto now = Clock::now();
  if (since_ == Clock::time_point{}) since_ = now;
  if (now - since_ < time_to_yield) {
    if (turn % 32 == 31) waiter_.check(peer, deadline_);
    sched_yield();
    return;
  }
  seen_ = waiter_.announce();
  announced_ = true;
}

}  // namespace hocket
