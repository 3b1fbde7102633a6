#include "calls/executor.h"

#include <algorithm>
#include <exception>

namespace hocket {

namespace {

constexpr std::chrono::milliseconds a_while{1};
constexpr std::chrono::milliseconds between_looks{50};

}  // namespace

void Queue::put(Job& job, When when) {
  bool wakes;
  {
    const Lock lock(mutex_);
    job.number_ = put_.load(std::memory_order_relaxed);
    jobs_.push_back(&job);
    put_.store(job.number_ + 1, std::memory_order_relaxed);
    if (when == soon) due_ = job.number_ + 1;
    wakes = when == soon || (when == later && asleep_);
  }
  if (wakes) engine_.notify_one();
}

Queue::Outcome Queue::wait(const Job& job, std::optional<Deadline> deadline, const std::function<void()>& signals) {
  return wait_until(job.number_ + 1, deadline, signals);
}

// Until `count` jobs have ended.
Queue::Outcome Queue::wait_until(uint64_t count, std::optional<Deadline> deadline,
                                 const std::function<void()>& signals) {
  const auto all_ended = [&] { return ended_.load(std::memory_order_acquire) >= count; };
  if (!all_ended() && turn_.mine())
    throw Failure{Failure::internal, -1, "a call cannot wait for one that comes after it"};
  while (!all_ended()) {
    if (!deadline) {
      std::unique_lock<Turn> turn(turn_, std::try_to_lock);
      if (!turn && !served() && !turn.try_lock_until(Clock::now() + between_looks)) {
        signals();
        continue;
      }
      if (turn && all_ended()) break;
      if (turn) {
        lead(count);
        return done_here;
      }
    }
    Lock lock(mutex_);
    if (all_ended()) break;
    due_ = std::max(due_, count);
    engine_.notify_one();
    ++waiting_;
    const Deadline look = Clock::now() + between_looks;
    waiters_.wait_until(lock, deadline ? std::min(look, *deadline) : look);
    --waiting_;
    lock.unlock();
    if (all_ended()) break;
    if (deadline && Clock::now() >= *deadline) return in_flight;
    signals();
  }
  return over;
}

// Does jobs until `count` have ended. The turn is ours.
void Queue::lead(uint64_t count) {
  Lock lock(mutex_);
  while (!jobs_.empty() && ended_.load(std::memory_order_relaxed) < count) {
    Job& job = *jobs_.front();
    lock.unlock();
    std::exception_ptr thrown;
    try {
      job.run();
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
    jobs_.pop_front();
    ended_.fetch_add(1, std::memory_order_release);
    if (waiting_ > 0) waiters_.notify_all();
    if (thrown) std::rethrow_exception(thrown);
  }
}

std::unique_lock<Turn> Queue::turn() {
  std::unique_lock<Turn> turn(turn_, std::try_to_lock);
  if (turn && busy()) lead(UINT64_MAX);
  return turn;
}

bool Queue::serve() {
  Lock lock(mutex_);
  served_ = !stopping_;
  const auto due = [&] { return stopping_ || ended_.load(std::memory_order_relaxed) < due_; };
  asleep_ = true;
  engine_.wait(lock, [&] { return due() || put_.load(std::memory_order_relaxed) != seen_; });
  asleep_ = false;
  bool refused = false;  // whether another thread had the turn a while ago
  while (!stopping_) {
    if (!due()) {
      refused = false;
    } else {
      lock.unlock();
      try {
        std::unique_lock<Turn> turn(turn_, std::try_to_lock);
        if (!turn && refused) turn.try_lock_until(Clock::now() + between_looks);
        refused = !turn;
        if (turn) lead(UINT64_MAX);
      } catch (...) {  // a job keeps its error; and nobody is here to be interrupted
      }
      lock.lock();
    }
    if (!due() && put_.load(std::memory_order_relaxed) == seen_) return true;
    // Who has the turn will most likely do what is due, and be done before long: to wait for the turn at once would
    // make a wake-up of each release of it.
    seen_ = put_.load(std::memory_order_relaxed);
    engine_.wait_for(lock, a_while, [&, before = due_] { return due() && (stopping_ || due_ != before); });
    due_ = std::max(due_, seen_);
  }
  return false;
}

void Queue::stop(const std::function<void()>& signals) {
  if (!turn_.mine()) wait_until(put_.load(std::memory_order_relaxed), {}, signals);
  const Lock lock(mutex_);
  stopping_ = true;
  served_ = false;
  engine_.notify_one();
}

}  // namespace hocket
