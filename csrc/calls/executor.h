// Makes the calls of one rank, one at a time and in order.
//
// Who has the *turn* makes calls. A thread that makes one takes the turn and first does all that is queued. What is
// queued, asynchronous calls, is done by whoever is at hand: a thread that waits for one of them does all up to it, and
// what nobody waits for is done by the engine thread.
//
// To wake a thread takes longer than many a call. So a job is put to be done *soon*, which wakes the engine, or *later*
// where its caller is expected to wait for it next: that one the engine does only when it was left alone for a while.
//
//   the engine    asleep ──(soon, or a wait with a deadline: `due` moves)──▶ takes the turn, does what is due ──▶ dozes
//                   ▲                                                                                             │
//                   └──────────────── (a while without anything new: what was put by then is due) ◀───────────────┘
//
// Shared between threads: the turn, a lock of its own; the counts and flags of the executor itself, which are atomic;
// all else under the mutex. A job runs with the turn and without the mutex.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "wait/wait.h"

namespace hocket {

using Signals = std::function<void()>;  // looks for signals of the process, and may throw

// The right to make calls, which one thread has at a time. Fits std::unique_lock.
class Turn {
 public:
  bool mine() const { return holder() == std::this_thread::get_id(); }
  std::thread::id holder() const { return holder_.load(std::memory_order_relaxed); }
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
  // To end by its own deadline, or by `limit` where that is earlier: who runs it has no more time. What it throws is
  // for the thread that does it, not for those that wait for it. The executor does not touch the job afterwards.
  virtual void run(Deadline limit) = 0;

 private:
  friend class Executor;
  uint64_t number_ = 0;
};

class Executor {
 public:
  enum When { soon, later };
  enum Outcome { in_flight, over, done_here };  // done_here: by the thread that waited

  Executor();
  ~Executor();

  // False after stop(): then nothing was put.
  bool put(Job& job, When when);
  uint64_t in_flight_now() const {
    return put_.load(std::memory_order_relaxed) - ended_.load(std::memory_order_acquire);
  }
  bool busy() const { return in_flight_now() != 0; }

  // Whether this thread is inside of a call, or of a wait for one: in an operator, or in a signal handler that came in
  // between.
  bool inside() const { return state_->turn.mine() || interrupted == this; }

  // Waits for `job`. In flight it is where the deadline passes first; who gives none does what there is to do, and
  // waits for others that are at it no longer than `last`. `signals` is called now and then in a wait for another
  // thread. Throws Refusal inside of a call.
  Outcome wait(const Job& job, std::optional<Deadline> deadline, Deadline last, const Signals& signals);
  Outcome wait(const Job& job, std::optional<Deadline> deadline, const Signals& signals) {
    return wait(job, deadline, Deadline::max(), signals);
  }
  // Waits until no more than `count` jobs are in flight.
  void wait_for_room(uint64_t count, const Signals& signals);

  // The turn, behind all that is queued, which this thread does; not owned where the deadline passes first. Throws
  // Refusal inside of a call.
  std::unique_lock<Turn> acquire(Deadline deadline, const Signals& signals);

  // True once: for who is to start the engine thread.
  bool claim() { return !claimed_.exchange(true); }
  bool claimed() const { return claimed_.load(std::memory_order_relaxed); }
  // What the engine thread does. Returns true when it has been quiet for a while, to be entered again, and false after
  // stop().
  bool serve();
  bool served() const { return served_.load(std::memory_order_relaxed); }
  // Whether a thread has the turn that is neither this one nor the engine.
  bool is_elsewhere() const {
    const std::thread::id holder = state_->turn.holder();
    return holder != std::thread::id() && holder != std::this_thread::get_id() && holder != engine_.load();
  }

  // Does all that is queued, unless this is inside of it, and sends the engine thread away.
  void stop(const Signals& signals);
  // Sends the engine thread away; what is queued stays there.
  void dismiss();

 private:
  using Lock = std::unique_lock<std::mutex>;

  // In a forked child other threads seem to wait here for ever: it is left alone there, and never destroyed.
  struct State {
    Turn turn;
    std::mutex mutex;       // of everything below
    std::deque<Job*> jobs;  // the first of them may be running
    uint64_t due = 0;       // so many jobs are the engine's to do
    uint64_t seen = 0;      // so many had been put when the engine last looked
    bool asleep = false;    // whether the engine sleeps until it is woken
    bool stopping = false;
    int waiting = 0;  // threads that wait for another one to end a job
    std::condition_variable engine, waiters;
  };

  Outcome wait_until(uint64_t count, std::optional<Deadline> deadline, Deadline last, const Signals& signals);
  void look(const Signals& signals);
  void lead(uint64_t count, Deadline limit);

  // Whose wait this thread left to look for signals. It lies where a thread finds it without asking the linker.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit const Executor* interrupted;

  const int born_;
  std::unique_ptr<State> state_;
  std::atomic<uint64_t> put_{0}, ended_{0};  // jobs since the beginning of time
  std::atomic<bool> served_{false};          // whether there is an engine thread
  std::atomic<std::thread::id> engine_{};    // which it is
  std::atomic<bool> claimed_{false};         // whether somebody has undertaken to start it
};

}  // namespace hocket
