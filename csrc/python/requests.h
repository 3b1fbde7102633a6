// Two other forms of a call: one that waits in the queue, and one that was prepared to be made again and again.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "python/cache.h"

namespace hocket {

// A call in the queue. On the long way `make` makes it. On the short way it is bound, and `make` raises what went
// wrong: it is told the error, or None where no calls can be made any more, and the seconds that this one might have
// taken.
class Queued final : public Job {
 public:
  Queued(Jobs& jobs, Calls* calls, nb::object make, Bound bound, double within, std::string text)
      : jobs_(jobs),
        calls_(calls),
        make_(std::move(make)),
        bound_(std::move(bound)),
        within_(within),
        text_(std::move(text)) {}

  // As Jobs::put. `calls` are those that it is bound to, if it is; `awaited` is as below.
  static nb::object put(Jobs& jobs, Calls* calls, nb::object make, Bound bound, double within, std::string text,
                        std::shared_ptr<bool> awaited);

  // What came of it, or Calls::miss() where it is still in flight after so many seconds.
  nb::object wait(std::optional<double> within);
  bool over() const { return over_.load(std::memory_order_acquire); }
  nb::object error() const { return error_.is_valid() ? error_ : nb::none(); }
  std::string text() const;

  void run() override;       // without Python's lock
  void let_go();             // of what it needs only until it is over
  Queued* before = nullptr;  // in the list of those that have retired
  std::array<nb::object*, 5> held() { return {&make_, &error_, &bound_.program, &bound_.alive, &bound_.result}; }

 private:
  void make();

  Jobs& jobs_;  // both are alive as long as `make`
  Calls* calls_;
  nb::object make_, error_;
  Bound bound_;
  double within_;
  std::string text_;
  nb::object self_;                // while it is in the queue
  Clock::time_point put_{};        // where the engine was woken for it
  std::shared_ptr<bool> awaited_;  // whether the last one like this was waited for at once; null where it is not to say
  std::atomic<bool> over_{false};
};

// A call that is made again and again. `again` makes it the long way, as always where it is not bound; `fail` is as
// `make` above.
struct Persistent {
  Calls& calls;  // alive as long as `fail`
  Bound bound;
  nb::object again, fail;

  bool made();  // whether it could be made at once
  nb::object call();
  std::array<nb::object*, 5> held() { return {&again, &fail, &bound.program, &bound.alive, &bound.result}; }
};

}  // namespace hocket
