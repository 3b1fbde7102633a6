// Calls in flight: what the executor's jobs are when Python has put them.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "calls/executor.h"
#include "python/prepared.h"

namespace hocket {

class Request;
class Session;

// What is done now and then in a wait: the handlers of signals run, and others may know where this thread waits. Throws
// what Python raises there.
void look_for_signals();
extern const Signals signals;

nb::object caught();  // Python's error for what a handler has caught
void set_error(const Failure& failure);
void set_error(const Refusal& refusal);
void restore_error() noexcept;  // raises what a handler has caught

// An executor whose jobs are requests. It outlives nothing that it does not hold: what a request needs, it keeps alive
// itself.
class Requests {
 public:
  // So many may be in flight; who puts another one waits until there is room for it.
  static constexpr uint64_t most = 1 << 16;

  // Puts a function of Python's, and gives back the work. `text` is what an error calls it; those of one text are
  // expected to be waited for alike.
  nb::object put(nb::object function, std::string text);
  // Puts `request`; NotImplemented after `stop`. `awaited`: whether the last one like it was waited for at once.
  nb::object put(nb::object request, std::shared_ptr<bool> awaited);
  // Runs a function of Python's in its turn, on this thread. NotImplemented where `seconds` pass before it has it.
  nb::object inside(nb::object function, double seconds);

  // What the engine thread does, until `stop`, which first does all that is queued.
  void serve();
  void stop();
  // What a request holds of Python's is let go of, once it is over, by the next thread that has Python's lock anyway:
  // the engine would have to wait for that between two calls.
  void retire(Request& request);
  void let_go();

  // Whether the last one of this text was waited for at once. Its requests may outlive this.
  std::shared_ptr<bool> awaited(const std::string& text);

  Executor executor;
  nb::object work;  // the class of what `put` gives back; it has a `_request`

 private:
  std::atomic<Request*> retired_{nullptr};                          // the last of a list
  std::unordered_map<std::string, std::shared_ptr<bool>> awaited_;  // guarded by Python's lock
};

// A call in flight: one that is prepared, and made by its session, or a function of Python's.
class Request final : public Job {
 public:
  Request(nb::object owner, Requests& requests, Session* session, Prepared prepared, nb::object function, double within,
          double spent, std::string text);

  static nb::object make(nb::object owner, Requests& requests, Session* session, Prepared prepared, nb::object function,
                         double within, double spent, std::string text);

  // What came of it; NotImplemented where it is still in flight after so many seconds.
  nb::object wait(std::optional<double> within);
  bool over() const { return over_.load(std::memory_order_acquire); }
  nb::object error() const { return error_.is_valid() ? error_ : nb::none(); }
  const std::string& text() const { return text_; }
  // Whether it may write to memory of the caller's while it is in flight. Of a function nobody knows.
  bool writes() const { return session_ == nullptr || (prepared_.given && !prepared_.protects); }

  void run(Deadline limit) override;  // without Python's lock
  // Ends it, because its deadline has passed before anyone made it. False where somebody is at it.
  bool expire();
  void let_go();  // of what it needs only until it is over
  std::vector<nb::object*> held();
  std::array<nb::object*, 5> spare() {
    return {&function_, &error_, &prepared_.alive, &prepared_.result, &prepared_.deliver};
  }

 private:
  friend class Requests;

  nb::object owner_;  // keeps `requests_` and `session_` alive, until it is over
  Requests& requests_;
  Session* const session_;
  Prepared prepared_;
  nb::object function_, error_;
  const std::string text_;
  const int born_;
  const Clock::time_point begun_;
  const Deadline deadline_;
  nb::object self_;                 // while it is in the queue
  Request* before_ = nullptr;       // in the list of those that have retired
  bool woken_ = false;              // whether the engine was woken for it
  std::shared_ptr<bool> awaited_;   // told whether this one was waited for at once
  std::atomic<bool> taken_{false};  // by who makes it, or lets it expire
  std::atomic<bool> over_{false};
};

void bind_requests(nb::module_& m);

}  // namespace hocket
