// What a thread lets go of before it waits, and the clock that tells when a wait begins.
#include <time.h>

#include <thread>

#include "check.h"
#include "wait/wait.h"

using namespace hocket;
using namespace hocket::testing;

namespace {

struct Kept final : Hold {
  int given = 0;
  explicit Kept(bool kept = true) : Hold(kept) {}
  void give_back() override { ++given; }
};

// A world in which nothing ever happens.
struct Nowhere : Waiter {
  const Kept* kept = nullptr;
  bool crowded = false;
  int looked = 0, slept = 0;

  void let_go_before() const { testing::check(kept->given == 1, kept->given, " times before it takes long"); }
  void notify(int) override {}
  bool shares_core(int) override { return crowded; }
  uint32_t announce() override {
    let_go_before();
    return 0;
  }
  void sleep(uint32_t, std::chrono::microseconds) override {
    let_go_before();
    ++slept;
  }
  void withdraw() override {}
  void check(int, Deadline) override {
    let_go_before();
    ++looked;
  }
};

void a_wait_lets_go_before_it_takes_long(bool crowded) {
  Nowhere nowhere;
  nowhere.crowded = crowded;
  const Kept kept;
  nowhere.kept = &kept;
  Wait wait(nowhere, watchdog());
  wait.idle(1);
  check(kept.given == (crowded ? 1 : 0), "what most likely comes in a moment is waited for as it is");
  while (nowhere.slept == 0) wait.idle(1);
  check(nowhere.looked > 0 && kept.given == 1, "it is given back once");
}

void what_was_held_before_is_left_alone() {
  const Kept outer;
  {
    const Kept nothing(false);
    Hold::let_go();
    check(nothing.given == 0 && outer.given == 0, "beneath one that holds nothing");
  }
  {
    const Kept inner;
    Hold::let_go();
    check(inner.given == 1 && outer.given == 0, "beneath another one");
  }
  std::thread(Hold::let_go).join();
  check(outer.given == 0, "by another thread");
  Hold::let_go();
  Hold::let_go();
  check(outer.given == 1, "once");
}

void the_next_tick_is_near() {
  timespec length{};
  clock_getres(CLOCK_MONOTONIC_COARSE, &length);
  const auto tick = std::chrono::seconds(length.tv_sec) + std::chrono::nanoseconds(length.tv_nsec);
  const Clock::time_point begun = Clock::now();
  const Deadline end = watchdog();
  for (Clock::time_point last{}; last <= begun + tick;) {  // it goes on, though this be stopped for a while
    const Clock::time_point next = next_tick();
    check(next >= last && next <= Clock::now() + tick, "no more than a tick away, and never back");
    if (!check(Clock::now() < end, "it goes on")) return;
    last = next;
  }
}

}  // namespace

int main() {
  a_wait_lets_go_before_it_takes_long(false);
  a_wait_lets_go_before_it_takes_long(true);
  what_was_held_before_is_left_alone();
  the_next_tick_is_near();
  return report();
}
