// What every wait in hocket shares: a deadline that must be given, one exception that says why a wait ended, and one
// way of passing the time: spin, then yield, then sleep.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace hocket {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// The end of the kernel's tick of time that it is now: some milliseconds away at most, and found in a seventh of the
// time that a look at the clock takes.
Clock::time_point next_tick();

// What a thread that looks again and again does in between.
inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// Why a call could not finish. `peer` is the rank it was waiting for, or that did it; -1 where there is none. A relayed
// failure was found by another rank first, and its text is that rank's.
struct Failure {
  enum Kind { timeout, peer_lost, mismatch, custom_op, interrupted, internal, closed };
  Kind kind;
  int peer;
  std::string text;
  bool relayed = false;
};

// Thrown where something cannot be begun. Nothing has happened then, and the text says what to do.
struct Refusal {
  std::string text;
};

// What this thread has and others may want: it lets go of that before it waits for longer than a moment.
class Hold {
 public:
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  // For whoever is about to do what may take long.
  static void let_go() {
    if (Hold* const held = std::exchange(current, nullptr)) held->give_back();
  }

 protected:
  // What is not `kept` has been given back already. What was held before is left alone for as long as this lives.
  explicit Hold(bool kept) : outer_(std::exchange(current, kept ? this : nullptr)) {}
  ~Hold() { current = outer_; }

 private:
  virtual void give_back() = 0;

  // It lies where a thread finds it without asking the linker.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit Hold* current;

  Hold* const outer_;
};

// What a wait needs to know of the world. Shared memory is one, a test fakes it.
class Waiter {
 public:
  virtual ~Waiter() = default;
  // Whoever waits for `peer` (-1: for any) looks whether something came from it. Only where it `listens`: where memory
  // is shared, what came shows.
  virtual void hear(int /*peer*/) {}
  bool listens = false;
  // Wakes `peer` if it sleeps; costs a fence and a load if it does not. Call it after something was published for it.
  virtual void notify(int peer) = 0;
  // Whether ranks share cores: all of them do, or `peer` and this one seem to. Then spinning would only keep from its
  // core a rank that is waited for.
  virtual bool shares_core(int peer) = 0;
  // Whether those that share this one's core wait, too, as far as is known, and have little else to do, and `peer` is
  // on another one: then to give the core away brings nobody forward.
  virtual bool all_wait_here(int /*peer*/) { return false; }
  // Announces a sleeper and returns what the bell showed; whoever publishes from now on will ring it.
  virtual uint32_t announce() = 0;
  // Sleeps until the bell shows something else than `seen`, or `slice` is over.
  virtual void sleep(uint32_t seen, std::chrono::microseconds slice) = 0;
  // Takes the announcement back.
  virtual void withdraw() = 0;
  // The slow path's look around. Throws Failure at the deadline, when a peer is lost or when a peer reports an error.
  virtual void check(int peer, Deadline deadline) = 0;
};

// One wait for one condition: poll; if there was nothing, idle(); poll again. Call progressed() when there was
// something.
class Wait {
 public:
  // How long nothing could be done is added to `waited`, if that is there.
  Wait(Waiter& waiter, Deadline deadline, Clock::duration* waited = nullptr)
      : waiter_(waiter), deadline_(deadline), waited_(waited) {}
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;
  ~Wait() { wake(); }

  // Nothing could be done; `peer` is a rank that is waited for. Between an announcement and the sleep it announces the
  // caller polls once more, so that nothing published in between is slept through.
  void idle(int peer);

  void progressed() {
    if (turn_ != 0) wake();
  }

 private:
  void wake() {
    if (announced_) waiter_.withdraw();
    if (waited_ != nullptr && turn_ != 0) *waited_ += Clock::now() - begun_;
    announced_ = false;
    turn_ = 0;
    since_ = {};
    slice_ = first_slice;
  }

  static constexpr std::chrono::microseconds first_slice{1000}, last_slice{25000};

  Waiter& waiter_;
  Deadline deadline_;
  Clock::duration* const waited_;
  Clock::time_point begun_{};  // the wait, where that is to be known
  Clock::time_point since_{};
  std::chrono::microseconds slice_ = first_slice;
  unsigned turn_ = 0;
  uint32_t seen_ = 0;
  bool announced_ = false;
  bool spins_ = false;
};

}  // namespace hocket
