#include "calls/executor.h"

#include <algorithm>
#include <exception>

#include "wait/fork.h"

namespace hocket {

namespace {

constexpr std::chrono::milliseconds a_while{1};
constexpr std::chrono::milliseconds between_looks{50};

}  // namespace

thread_local constinit const Executor* Executor::interrupted = nullptr;

void Executor::look(const Signals& signals) {
  struct Mark {
    const Executor* const before = interrupted;
    ~Mark() { interrupted = before; }
  } const mark;
  interrupted = this;
  signals();
}

Executor::Executor() : born_(forks()), state_(std::make_unique<State>()) {}

Executor::~Executor() {
  if (forks() != born_) state_.release();
}

bool Executor::put(Job& job, When when) {
  bool wakes;
  {
    const Lock lock(state_->mutex);
    if (state_->stopping) return false;
    job.number_ = put_.load(std::memory_order_relaxed);
    state_->jobs.push_back(&job);
    put_.store(job.number_ + 1, std::memory_order_relaxed);
    if (when == soon) state_->due = job.number_ + 1;
    wakes = when == soon || state_->asleep;
  }
  if (wakes) state_->engine.notify_one();
  return true;
}

Executor::Outcome Executor::wait(const Job& job, std::optional<Deadline> deadline, Deadline last,
                                 const Signals& signals) {
  return wait_until(job.number_ + 1, deadline, last, signals);
}

void Executor::wait_for_room(uint64_t count, const Signals& signals) {
  if (in_flight_now() > count && !inside())
    wait_until(put_.load(std::memory_order_relaxed) - count, {}, Deadline::max(), signals);
}

// Until `count` jobs have ended.
Executor::Outcome Executor::wait_until(uint64_t count, std::optional<Deadline> deadline, Deadline last,
                                       const Signals& signals) {
  State& s = *state_;
  const auto all_ended = [&] { return ended_.load(std::memory_order_acquire) >= count; };
  if (!all_ended() && inside()) {
    throw Refusal{
        "inside of a call, by its operator or by a signal handler, nothing can be waited for that comes after it"};
  }
  while (!all_ended()) {
    if (!deadline) {
      std::unique_lock<Turn> turn(s.turn, std::try_to_lock);
      if (!turn && !served() && !turn.try_lock_until(std::min(last, Clock::now() + between_looks))) {
        if (Clock::now() >= last) return in_flight;
        look(signals);
        continue;
      }
      if (turn && all_ended()) break;
      if (turn) {
        lead(count, Deadline::max());
        return done_here;
      }
    }
    Lock lock(s.mutex);
    if (all_ended()) break;
    s.due = std::max(s.due, count);
    s.engine.notify_one();
    ++s.waiting;
    const Deadline end = deadline.value_or(last);
    s.waiters.wait_until(lock, std::min(end, Clock::now() + between_looks));
    --s.waiting;
    lock.unlock();
    if (all_ended()) break;
    if (Clock::now() >= end) return in_flight;
    look(signals);
  }
  return over;
}

// Does jobs until `count` have ended. The turn is ours.
void Executor::lead(uint64_t count, Deadline limit) {
  Lock lock(state_->mutex);
  while (!state_->jobs.empty() && ended_.load(std::memory_order_relaxed) < count) {
    Job& job = *state_->jobs.front();
    lock.unlock();
    std::exception_ptr thrown;
    try {
      job.run(limit);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    state_->jobs.pop_front();
    ended_.fetch_add(1, std::memory_order_release);
    if (state_->waiting > 0) state_->waiters.notify_all();
    if (thrown) std::rethrow_exception(thrown);
  }
}

std::unique_lock<Turn> Executor::acquire(Deadline deadline, const Signals& signals) {
  if (inside()) {
    throw Refusal{
        "a call was made inside of another call of this group, by its operator or by a signal handler that interrupted "
        "it: it would wait for itself. Make it when that call has returned, or in another group"};
  }
  std::unique_lock<Turn> turn(state_->turn, std::try_to_lock);
  if (!turn || busy()) Hold::let_go();
  while (!turn && !turn.try_lock_until(std::min(deadline, Clock::now() + between_looks))) {
    if (Clock::now() >= deadline) return turn;
    look(signals);
  }
  if (busy()) lead(UINT64_MAX, deadline);
  return turn;
}

bool Executor::serve() {
  State& s = *state_;
  Lock lock(s.mutex);
  served_ = !s.stopping;
  engine_ = std::this_thread::get_id();
  const auto due = [&] { return s.stopping || ended_.load(std::memory_order_relaxed) < s.due; };
  s.asleep = true;
  s.engine.wait(lock, [&] { return due() || put_.load(std::memory_order_relaxed) != s.seen; });
  s.asleep = false;
  bool refused = false;  // whether another thread had the turn a while ago
  while (!s.stopping) {
    if (!due()) {
      refused = false;
    } else {
      lock.unlock();
      try {
        std::unique_lock<Turn> turn(s.turn, std::try_to_lock);
        if (!turn && refused) turn.try_lock_until(Clock::now() + between_looks);
        refused = !turn;
        if (turn) lead(UINT64_MAX, Deadline::max());
      } catch (...) {  // a job keeps its error; and nobody is here to be interrupted
      }
      lock.lock();
    }
    if (!due() && put_.load(std::memory_order_relaxed) == s.seen) return true;
    // Who has the turn will most likely do what is due, and be done before long: to wait for the turn at once would
    // make a wake-up of each release of it.
    s.seen = put_.load(std::memory_order_relaxed);
    s.engine.wait_for(lock, a_while, [&, before = s.due] { return due() && (s.stopping || s.due != before); });
    s.due = std::max(s.due, s.seen);
  }
  return false;
}

void Executor::stop(const Signals& signals) {
  if (!inside()) wait_until(put_.load(std::memory_order_relaxed), {}, Deadline::max(), signals);
  dismiss();
  // What was put between the two is done here: there is no engine any more, and nothing more can come.
  if (!inside()) wait_until(put_.load(std::memory_order_relaxed), {}, Deadline::max(), signals);
}

void Executor::dismiss() {
  if (forks() != born_) return;  // there the engine is not, and may have held the mutex as it vanished
  const Lock lock(state_->mutex);
  state_->stopping = true;
  served_ = false;
  state_->engine.notify_one();
}

}  // namespace hocket
