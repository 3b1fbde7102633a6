// The executor: every job once, in order, one at a time; by whoever waits, and by the engine where nobody does.
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "calls/executor.h"
#include "check.h"

using namespace hocket;
using namespace hocket::testing;

namespace {

const std::function<void()> no_signals = [] {};

// Jobs, what they did in which order, and an engine thread for as long as it lives.
struct Room {
  struct Made : Job {
    Room& room;
    const size_t number;
    std::function<void()> what;
    Made(Room& in, size_t at, std::function<void()> does) : room(in), number(at), what(std::move(does)) {}
    void run(Deadline limit) override {
      check(++room.inside == 1, "two jobs at once");
      room.limits.push_back(limit);
      room.done.push_back(number);
      room.by.push_back(std::this_thread::get_id());
      --room.inside;
      if (what) what();
    }
  };

  Executor queue;
  std::vector<std::unique_ptr<Made>> jobs;
  std::vector<size_t> done;
  std::vector<std::thread::id> by;
  std::vector<Deadline> limits;
  std::atomic<int> inside{0};
  std::thread engine;

  explicit Room(bool served = true) {
    if (!served) return;
    engine = std::thread([this] {
      while (queue.serve()) {
      }
    });
    while (!queue.served()) std::this_thread::yield();
  }
  ~Room() {
    queue.stop(no_signals);
    if (engine.joinable()) engine.join();
    check(done.size() == jobs.size(), done.size(), " of ", jobs.size(), " jobs were done");
    for (size_t i = 0; i < done.size(); ++i) check(done[i] == i, "job ", done[i], " came as number ", i);
  }

  Made& put(Executor::When when, std::function<void()> what = {}) {
    jobs.push_back(std::make_unique<Made>(*this, jobs.size(), std::move(what)));
    queue.put(*jobs.back(), when);
    return *jobs.back();
  }
};

void who_waits_does_what_there_is_to_do() {
  Room room(false);
  for (int i = 0; i < 10; ++i) room.put(Executor::later);
  check(room.queue.wait(*room.jobs[6], {}, no_signals) == Executor::done_here);
  check(room.done.size() == 7, "up to the one that is waited for");
  check(room.queue.wait(*room.jobs[3], {}, no_signals) == Executor::over);
  check(room.queue.acquire(watchdog(), no_signals).owns_lock());
  check(room.done.size() == 10, "whoever has the turn comes behind what is queued");
  for (const auto& by : room.by) check(by == std::this_thread::get_id());
}

void what_nobody_waits_for_is_done(Executor::When when) {
  Room room;
  for (int i = 0; i < 10; ++i) room.put(when);
  while (room.queue.busy()) std::this_thread::yield();
  check(room.queue.wait(*room.jobs.back(), {}, no_signals) == Executor::over);
  for (const auto& by : room.by) check(by == room.engine.get_id());
}

void a_wait_with_a_deadline_leaves_it_to_the_engine() {
  Room room;
  std::atomic<bool> goes{false};
  Job& slow = room.put(Executor::later, [&] {
    while (!goes) std::this_thread::yield();
  });
  check(room.queue.wait(slow, Clock::now(), no_signals) == Executor::in_flight);
  check(room.queue.wait(slow, Clock::now() + std::chrono::milliseconds(20), no_signals) == Executor::in_flight);
  goes = true;
  check(room.queue.wait(slow, watchdog(), no_signals) == Executor::over);
  check(room.by == std::vector{room.engine.get_id()});
}

void signals_end_a_wait() {
  struct Signal {};
  Room room;
  std::atomic<bool> goes{false}, runs{false};
  Job& slow = room.put(Executor::soon, [&] {
    runs = true;
    while (!goes) std::this_thread::yield();
  });
  while (!runs) std::this_thread::yield();
  bool ended = false;
  try {
    room.queue.wait(slow, {}, [] { throw Signal{}; });
  } catch (const Signal&) {
    ended = true;
  }
  check(ended && room.queue.busy());
  goes = true;
  check(room.queue.wait(slow, {}, no_signals) == Executor::over);
}

// Also where there is no engine, and the turn itself is waited for.
void signals_end_a_wait_for_the_turn() {
  struct Signal {};
  Room room(false);
  room.put(Executor::later);
  bool ended = false;
  {
    auto turn = room.queue.acquire(watchdog(), no_signals);
    room.put(Executor::later);
    std::thread([&] {
      try {
        room.queue.wait(*room.jobs[1], {}, [] { throw Signal{}; });
      } catch (const Signal&) {
        ended = true;
      }
    }).join();
  }
  check(ended && room.done.size() == 1);
  check(room.queue.wait(*room.jobs[1], {}, no_signals) == Executor::done_here);
}

void what_a_job_throws_is_for_who_does_it() {
  struct Interruption {};
  Room room(false);
  room.put(Executor::later, [] { throw Interruption{}; });
  Job& next = room.put(Executor::later);
  bool thrown = false;
  try {
    room.queue.wait(next, {}, no_signals);
  } catch (const Interruption&) {
    thrown = true;
  }
  check(thrown && room.done.size() == 1);
  check(room.queue.wait(next, {}, no_signals) == Executor::done_here);
}

void the_engine_survives_what_a_job_throws() {
  Room room;
  for (int i = 0; i < 4; ++i) room.put(Executor::soon, [] { throw 1; });
  check(room.queue.wait(*room.jobs.back(), watchdog(), no_signals) == Executor::over);
}

void a_job_cannot_wait_for_a_later_one() {
  Room room(false);
  int refused = 0;
  Job& first = room.put(Executor::later, [&] {
    check(room.queue.inside());
    try {
      room.queue.wait(*room.jobs[1], {}, no_signals);
    } catch (const Refusal&) {
      ++refused;
    }
    try {
      room.queue.acquire(watchdog(), no_signals);
    } catch (const Refusal&) {
      ++refused;
    }
    room.queue.stop(no_signals);  // does not wait for itself
  });
  room.put(Executor::later);
  room.queue.wait(first, {}, no_signals);
  check(refused == 2 && !room.queue.inside());
}

// Who has no more time does not get the turn; and what it does for others until then has no more time either.
void the_turn_is_not_waited_for_longer_than_one_may() {
  Room room(false);
  std::atomic<bool> held{false}, goes{false};
  std::thread other([&] {
    const auto turn = room.queue.acquire(watchdog(), no_signals);
    held = true;
    while (!goes) std::this_thread::yield();
  });
  while (!held) std::this_thread::yield();
  check(!room.queue.acquire(Clock::now() + std::chrono::milliseconds(5), no_signals).owns_lock());
  goes = true;
  other.join();
  const Deadline soon = Clock::now() + std::chrono::seconds(100);
  room.put(Executor::later);
  check(room.queue.acquire(soon, no_signals).owns_lock() && room.limits == std::vector{soon});
}

// A signal handler that interrupts a wait must not wait for what comes after that.
void a_handler_is_inside_of_the_wait_that_it_interrupts() {
  struct Signal {};
  Room room;
  std::atomic<bool> goes{false}, runs{false};
  Job& slow = room.put(Executor::soon, [&] {
    runs = true;
    while (!goes) std::this_thread::yield();
  });
  while (!runs) std::this_thread::yield();
  Job& next = room.put(Executor::later);
  bool refused = false;
  try {
    room.queue.wait(slow, {}, [&] {
      check(room.queue.inside(), "a handler that seems to be outside");
      try {
        room.queue.wait(next, {}, no_signals);
      } catch (const Refusal&) {
        refused = true;
      }
      throw Signal{};
    });
  } catch (const Signal&) {
  }
  check(refused && !room.queue.inside());
  goes = true;
  check(room.queue.wait(next, {}, no_signals) != Executor::in_flight);
}

// Of several threads that want an engine, one starts it.
void the_engine_is_claimed_once() {
  Executor executor;
  std::atomic<int> claims{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) threads.emplace_back([&] { claims += executor.claim(); });
  for (auto& thread : threads) thread.join();
  check(claims == 1);
}

// Back-pressure: who waits for room does what is in the way.
void room_is_made() {
  Room room(false);
  for (int i = 0; i < 10; ++i) room.put(Executor::later);
  room.queue.wait_for_room(4, no_signals);
  check(room.done.size() == 6 && room.queue.in_flight_now() == 4);
  room.queue.wait_for_room(4, no_signals);
  check(room.done.size() == 6);
}

// Several threads put and wait, in all the ways there are, and take the turn in between.
void many_threads(uint64_t seed) {
  constexpr int threads = 4, turns = 300;
  Executor queue;
  std::atomic<int> inside{0}, done{0};
  struct Counted : Job {
    std::atomic<int>&inside, &done;
    int times = 0;
    Counted(std::atomic<int>& i, std::atomic<int>& d) : inside(i), done(d) {}
    void run(Deadline) override {
      check(++inside == 1, "two jobs at once");
      ++times;
      ++done;
      --inside;
    }
  };
  std::thread engine([&] {
    while (queue.serve()) {
    }
  });
  std::vector<std::thread> users;
  for (int t = 0; t < threads; ++t) {
    users.emplace_back([&, t] {
      std::vector<std::unique_ptr<Counted>> jobs;
      for (int i = 0; i < turns; ++i) {
        const uint64_t dice = mix(seed, t, i);
        jobs.push_back(std::make_unique<Counted>(inside, done));
        queue.put(*jobs.back(), dice % 2 == 0 ? Executor::soon : Executor::later);
        const Job& any = *jobs[dice / 2 % jobs.size()];
        if (dice % 5 == 0) check(queue.wait(any, {}, no_signals) != Executor::in_flight);
        if (dice % 5 == 1) check(queue.wait(any, watchdog(), no_signals) == Executor::over);
        if (dice % 5 == 2) {
          const auto turn = queue.acquire(watchdog(), no_signals);
          if (turn) check(inside == 0);
        }
      }
      for (const auto& job : jobs) check(queue.wait(*job, {}, no_signals) != Executor::in_flight && job->times == 1);
    });
  }
  for (auto& user : users) user.join();
  check(done == threads * turns);
  queue.stop(no_signals);
  engine.join();
}

// Each child is born while another thread most likely holds what is not the child's.
void a_forked_child_sends_nobody_away() {
  auto queue = std::make_unique<Executor>();
  std::atomic<bool> over{false};
  std::thread busy([&] {
    while (!over) queue->dismiss();
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);
      queue->dismiss();
      queue.reset();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (!check(status == 0, "the child of a busy rank hangs")) break;
  }
  over = true;
  busy.join();
}

}  // namespace

int main() {
  who_waits_does_what_there_is_to_do();
  what_nobody_waits_for_is_done(Executor::soon);
  what_nobody_waits_for_is_done(Executor::later);
  a_wait_with_a_deadline_leaves_it_to_the_engine();
  signals_end_a_wait();
  signals_end_a_wait_for_the_turn();
  what_a_job_throws_is_for_who_does_it();
  the_engine_survives_what_a_job_throws();
  a_job_cannot_wait_for_a_later_one();
  the_turn_is_not_waited_for_longer_than_one_may();
  a_handler_is_inside_of_the_wait_that_it_interrupts();
  the_engine_is_claimed_once();
  room_is_made();
  a_forked_child_sends_nobody_away();
  for (uint64_t seed = 0; seed < 20; ++seed) many_threads(seed);
  return report();
}
