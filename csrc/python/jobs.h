// A queue as Python has it: its jobs are functions, or calls that need only to be made (forms.h).
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>

#include "calls/executor.h"

namespace hocket {

namespace nb = nanobind;

class Queued;

class Jobs {
 public:
  // Puts one into the queue, and gives back the work; `blocks`: which the caller waits for next. `text` is what an
  // error calls it; those of one text are expected to be waited for alike.
  nb::object put(nb::object make, std::string text, bool blocks);

  // What the engine thread does, until `stop`, which first does all that is queued.
  void serve();
  void stop();
  // What a job holds of Python's is let go of, once it is over, by the next thread that has Python's lock anyway: the
  // engine would have to wait for that between two calls.
  void retire(Queued& job);
  void let_go();

  Queue queue;
  nb::object work;  // the class of what `put` gives back; it has a `_job`

 private:
  // Whether the last job of this text was waited for at once. Its jobs may outlive the queue.
  std::shared_ptr<bool> awaited(const std::string& text);

  std::atomic<Queued*> retired_{nullptr};  // the last of a list
  std::unordered_map<std::string, std::shared_ptr<bool>> awaited_;
};

void look_for_signals();  // throws what Python raises there

void bind_jobs(nb::module_& m);

}  // namespace hocket
