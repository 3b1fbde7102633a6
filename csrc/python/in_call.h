// What a thread is in, for as long as this lives. Others are told of it once the thread has waited there for a while:
// then it looks for signals, and for nothing else would it find out where in the program it is.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "python/prepared.h"
#include "transport/endpoint.h"

namespace hocket {

class InCall {
 public:
  // A collective, which may not have been entered yet.
  InCall(Endpoint& endpoint, const nb::object& place, const Prepared& prepared, Clock::time_point begun)
      : InCall(endpoint, place, begun) {
    prepared_ = &prepared;
  }
  // A message.
  InCall(Endpoint& endpoint, const nb::object& place, const std::string& text, Clock::time_point begun)
      : InCall(endpoint, place, begun) {
    text_ = &text;
  }
  ~InCall() {
    if (told_) endpoint_.retract(this);
    current = outer_;
  }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

  // Of this thread, which has Python's lock. Throws what Python raises.
  static void tell() {
    if (current != nullptr && !current->told_) current->report();
  }

 private:
  InCall(Endpoint& endpoint, const nb::object& place, Clock::time_point begun)
      : endpoint_(endpoint), place_(place), begun_(begun), before_(endpoint.number()), outer_(current) {
    current = this;
  }
  void report();

  // It lies where a thread finds it without asking the linker.
  [[gnu::tls_model("initial-exec")]] static thread_local constinit InCall* current;

  Endpoint& endpoint_;
  const nb::object& place_;        // what tells where in the program a thread is
  const Clock::time_point begun_;  // it may be the next tick
  const uint64_t before_;          // the last call before it
  InCall* const outer_;            // an operator may make calls in other groups
  const Prepared* prepared_ = nullptr;
  const std::string* text_ = nullptr;
  bool told_ = false;
};

}  // namespace hocket
