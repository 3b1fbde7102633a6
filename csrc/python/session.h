// One rank's calls, seen from Python: the fast path, the cache behind it, and the way to the transport.
//
// A call comes as arguments that look like earlier ones (the fast path: `attempt`, `begin`), or prepared (`call`,
// `begin`), or as part of a function that makes several in one turn (`run`). All of them end in `make`.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>

#include "python/cache.h"
#include "python/requests.h"
#include "transport/endpoint.h"
#include "wait/fork.h"

namespace hocket {

class Session {
 public:
  static const char* const forked;  // why nothing can be done with a session in a child of its process

  // `endpoint` and `requests` are those objects; `fail(error, seconds, text, touched)` raises what a user gets for an
  // error in the call `text`, which might have taken so many seconds, and ends the session; the error is None for a
  // call that cannot be made because it has ended, and `touched` tells whether the caller's output may hold a part of
  // the result. `place()` is where in the program the thread is.
  Session(nb::object endpoint, nb::object requests, nb::object fail, nb::object place);

  // The result of a call that looks like an earlier one; NotImplemented if it must be prepared first.
  nb::object attempt(const Arguments& arguments, double within);
  // The same for an asynchronous call: what it gives back is the work.
  nb::object begin(nb::object self, const Arguments& arguments, double within);

  // Makes a prepared call, in its turn. It may take `within` seconds, of which so many are `spent`. NotImplemented
  // where the session had ended by then.
  nb::object call(Prepared& prepared, double within, double spent, int learns = -1);
  // Puts it to be made.
  nb::object begin(nb::object self, Prepared prepared, double within, double spent, std::shared_ptr<bool> awaited);
  // Makes it at once, on a thread that has the turn.
  nb::object run(Prepared& prepared, double within, double spent);
  // Makes it in its turn, of short byte strings in heads: each is preceded by the length of the longest that its giver
  // gives, and by its own, and fills `each` bytes. `given` is what this rank gives; what it gets, `count` of them,
  // comes back as a list. Where a string is too long for a head that is `rest(spent)`, which is called in the same
  // turn. NotImplemented where the session has ended, or inside of a call.
  nb::object exchange(Prepared& prepared, size_t each, const nb::list& given, size_t count, double within,
                      const nb::object& rest);
  // What `peer` says of the next call, on a thread that has the turn. `text` is what this rank takes that for.
  std::string learn(int peer, const std::string& text, double within);

  // Makes it on a thread that has the turn, and may be without Python's lock. Throws Python's errors only. False where
  // `learns` is a rank and that one makes another call.
  bool make(Prepared& prepared, Clock::time_point begun, Deadline deadline, int learns = -1);

  // Raises that the deadline of the call `text` has passed before its turn came, and ends the session.
  [[noreturn]] void miss_the_turn(const std::string& text, Clock::time_point begun, Deadline deadline);

  // False after an error, once the session was left, and in a child of its process.
  bool usable() const { return enabled.load(std::memory_order_relaxed) && forks() == born_; }
  bool is_forked() const { return forks() != born_; }

  Requests& requests() const { return queue_; }
  Endpoint& endpoint() const { return rank_; }
  const nb::object& place() const { return place_; }
  // Lets go of all that is needed for calls: no more come.
  void release();
  int traverse(visitproc visit, void* arg);

  Cache cache;
  uint64_t fast = 0, slow = 0;  // calls that looked like earlier ones, and calls that were prepared; by Python's lock
  std::atomic<bool> enabled{true};
  double seconds = 30;    // how long a call may take that does not say
  bool protects = false;  // whether it keeps its output as it was until it has succeeded, likewise

 private:
  [[noreturn]] void fail(nb::object error, const std::string& text, double within, bool entered, bool touched = false);
  std::byte* shelter(uint64_t bytes);

  const int born_;
  nb::object endpoint_, requests_, fail_, place_;
  Endpoint& rank_;  // what these two are
  Requests& queue_;
  std::unique_ptr<std::byte[]> shelter_;  // where a protected call makes its result; of who has the turn
  uint64_t sheltered_ = 0;                // bytes
};

void bind_session(nb::module_& m);
void bind_persistent(nb::module_& m);
void bind_fastpath(nb::module_& m);

}  // namespace hocket
