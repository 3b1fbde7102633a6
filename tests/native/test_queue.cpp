// The queue: every job once, in order, one at a time; by whoever waits, and by the engine where nobody does.
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
    void run() override {
      check(++room.inside == 1, "two jobs at once");
      room.done.push_back(number);
      room.by.push_back(std::this_thread::get_id());
      --room.inside;
      if (what) what();
    }
  };

  Queue queue;
  std::vector<std::unique_ptr<Made>> jobs;
  std::vector<size_t> done;
  std::vector<std::thread::id> by;
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

  Made& put(Queue::When when, std::function<void()> what = {}) {
    jobs.push_back(std::make_unique<Made>(*this, jobs.size(), std::move(what)));
    queue.put(*jobs.back(), when);
    return *jobs.back();
  }
};

void who_waits_does_what_there_is_to_do() {
  Room room(false);
  for (int i = 0; i < 10; ++i) room.put(Queue::later);
  check(room.queue.wait(*room.jobs[6], {}, no_signals) == Queue::done_here);
  check(room.done.size() == 7, "up to the one that is waited for");
  check(room.queue.wait(*room.jobs[3], {}, no_signals) == Queue::over);
  check(room.queue.turn().owns_lock());
  check(room.done.size() == 10, "whoever has the turn comes behind what is queued");
  for (const auto& by : room.by) check(by == std::this_thread::get_id());
}

void what_nobody_waits_for_is_done(Queue::When when) {
  Room room;
  for (int i = 0; i < 10; ++i) room.put(when);
  while (room.queue.busy()) std::this_thread::yield();
  check(room.queue.wait(*room.jobs.back(), {}, no_signals) == Queue::over);
  for (const auto& by : room.by) check(by == room.engine.get_id());
}

void a_wait_with_a_deadline_leaves_it_to_the_engine() {
  Room room;
  std::atomic<bool> goes{false};
  Job& slow = room.put(Queue::later, [&] {
    while (!goes) std::this_thread::yield();
  });
  check(room.queue.wait(slow, Clock::now(), no_signals) == Queue::in_flight);
  check(room.queue.wait(slow, Clock::now() + std::chrono::milliseconds(20), no_signals) == Queue::in_flight);
  goes = true;
  check(room.queue.wait(slow, watchdog(), no_signals) == Queue::over);
  check(room.by == std::vector{room.engine.get_id()});
}

void signals_end_a_wait() {
  struct Signal {};
  Room room;
  std::atomic<bool> goes{false}, runs{false};
  Job& slow = room.put(Queue::soon, [&] {
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
  check(room.queue.wait(slow, {}, no_signals) == Queue::over);
}

// Also where there is no engine, and the turn itself is waited for.
void signals_end_a_wait_for_the_turn() {
  struct Signal {};
  Room room(false);
  room.put(Queue::by_caller);
  bool ended = false;
  {
    auto turn = room.queue.turn();
    room.put(Queue::by_caller);
    std::thread([&] {
      try {
        room.queue.wait(*room.jobs[1], {}, [] { throw Signal{}; });
      } catch (const Signal&) {
        ended = true;
      }
    }).join();
  }
  check(ended && room.done.size() == 1);
  check(room.queue.wait(*room.jobs[1], {}, no_signals) == Queue::done_here);
}

void what_a_job_throws_is_for_who_does_it() {
  struct Interruption {};
  Room room(false);
  room.put(Queue::later, [] { throw Interruption{}; });
  Job& next = room.put(Queue::later);
  bool thrown = false;
  try {
    room.queue.wait(next, {}, no_signals);
  } catch (const Interruption&) {
    thrown = true;
  }
  check(thrown && room.done.size() == 1);
  check(room.queue.wait(next, {}, no_signals) == Queue::done_here);
}

void the_engine_survives_what_a_job_throws() {
  Room room;
  for (int i = 0; i < 4; ++i) room.put(Queue::soon, [] { throw 1; });
  check(room.queue.wait(*room.jobs.back(), watchdog(), no_signals) == Queue::over);
}

void a_job_cannot_wait_for_a_later_one() {
  Room room(false);
  bool refused = false;
  Job& first = room.put(Queue::later, [&] {
    try {
      room.queue.wait(*room.jobs[1], {}, no_signals);
    } catch (const Failure&) {
      refused = true;
    }
    check(!room.queue.turn().owns_lock());
    room.queue.stop(no_signals);  // does not wait for itself
  });
  room.put(Queue::later);
  room.queue.wait(first, {}, no_signals);
  check(refused);
}

// Several threads put and wait, in all the ways there are, and take the turn in between.
void many_threads(uint64_t seed) {
  constexpr int threads = 4, turns = 300;
  Queue queue;
  std::atomic<int> inside{0}, done{0};
  struct Counted : Job {
    std::atomic<int>&inside, &done;
    int times = 0;
    Counted(std::atomic<int>& i, std::atomic<int>& d) : inside(i), done(d) {}
    void run() override {
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
        queue.put(*jobs.back(), dice % 2 == 0 ? Queue::soon : Queue::later);
        const Job& any = *jobs[dice / 2 % jobs.size()];
        if (dice % 5 == 0) check(queue.wait(any, {}, no_signals) != Queue::in_flight);
        if (dice % 5 == 1) check(queue.wait(any, watchdog(), no_signals) == Queue::over);
        if (dice % 5 == 2) {
          const auto turn = queue.turn();
          if (turn) check(inside == 0);
        }
      }
      for (const auto& job : jobs) check(queue.wait(*job, {}, no_signals) != Queue::in_flight && job->times == 1);
    });
  }
  for (auto& user : users) user.join();
  check(done == threads * turns);
  queue.stop(no_signals);
  engine.join();
}

}  // namespace

int main() {
  who_waits_does_what_there_is_to_do();
  what_nobody_waits_for_is_done(Queue::soon);
  what_nobody_waits_for_is_done(Queue::later);
  a_wait_with_a_deadline_leaves_it_to_the_engine();
  signals_end_a_wait();
  signals_end_a_wait_for_the_turn();
  what_a_job_throws_is_for_who_does_it();
  the_engine_survives_what_a_job_throws();
  a_job_cannot_wait_for_a_later_one();
  for (uint64_t seed = 0; seed < 20; ++seed) many_threads(seed);
  return report();
}
