// Calls that wait for their turn. They are done one at a time, in the order in which they were put, by whoever is at
// hand: a thread that waits for one of them does all up to it, and what nobody waits for is done by the engine thread.
//
// To wake a thread takes longer than many a call. So a job is put to be done *soon*, which wakes the engine, or *later*
// where its caller is expected to wait for it next: that one the engine does only when it was left alone for a while.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "wait/wait.h"

namespace hocket {

// The right to make calls, which one thread has at a time. Fits std::unique_lock.
class Turn {
 public:
  bool mine() const { return holder_.load(std::memory_order_relaxed) == std::this_thread::get_id(); }
  bool try_lock() {
    std::thread::id nobody;
    return holder_.compare_exchange_strong(nobody, std::this_thread::get_id());
  }
  // Announces the waiter, then looks; unlock() releases, then looks for one: so one of the two sees the other.
  bool try_lock_until(Deadline deadline) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++waiting_;
    const bool locked = released_.wait_until(lock, deadline, [this] { return try_lock(); });
    --waiting_;
    return locked;
  }
  void unlock() {
    holder_.store({});
    if (waiting_.load() == 0) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
    }
    released_.notify_one();
  }

 private:
  std::atomic<std::thread::id> holder_{};
  std::atomic<int> waiting_{0};
  std::mutex mutex_;
  std::condition_variable released_;
};

class Job {
 public:
  virtual ~Job() = default;
  // What it throws is for the thread that does it, not for those that wait for it. The queue does not touch the job
  // afterwards.
  virtual void run() = 0;

 private:
  friend class Queue;
  uint64_t number_ = 0;
};

class Queue {
 public:
  enum When { soon, later, by_caller };         // by_caller: by the thread that puts it, which waits for it next
  enum Outcome { in_flight, over, done_here };  // done_here: by the thread that waited

  void put(Job& job, When when);
  bool busy() const { return put_.load(std::memory_order_relaxed) != ended_.load(std::memory_order_acquire); }

  // Waits for `job`. In flight it is where the deadline passes first; who gives none does what there is to do.
  // `signals` is called now and then in a wait for another thread, and may throw. Throws Failure inside of a call.
  Outcome wait(const Job& job, std::optional<Deadline> deadline, const std::function<void()>& signals);

  // The turn, behind all that is queued, which this thread does; unless another one is at it.
  std::unique_lock<Turn> turn();

  // What the engine thread does. Returns true when it has been quiet for a while, to be entered again, and false after
  // stop().
  bool serve();
  bool served() const { return served_.load(std::memory_order_relaxed); }

  // Does all that is queued, unless this is inside of it, and sends the engine thread away.
  void stop(const std::function<void()>& signals);

 private:
  using Lock = std::unique_lock<std::mutex>;

  Outcome wait_until(uint64_t count, std::optional<Deadline> deadline, const std::function<void()>& signals);
  void lead(uint64_t count);

  Turn turn_;
  std::atomic<uint64_t> put_{0}, ended_{0};  // jobs since the beginning of time
  std::atomic<bool> served_{false};          // whether there is an engine thread
  std::mutex mutex_;                         // of everything below
  std::deque<Job*> jobs_;                    // the first of them may be running
  uint64_t due_ = 0;                         // so many jobs are the engine's to do
  uint64_t seen_ = 0;                        // so many had been put when the engine last looked
  bool asleep_ = false;                      // whether the engine sleeps until it is woken
  bool stopping_ = false;
  int waiting_ = 0;  // threads that wait for another one to end a job
  std::condition_variable engine_, waiters_;
};

}  // namespace hocket
