#include "python/jobs.h"

#include <nanobind/stl/string.h>

#include "python/requests.h"

namespace hocket {

using namespace nb::literals;

nb::object Jobs::put(nb::object make, std::string text, bool blocks) {
  std::shared_ptr<bool> known = blocks ? nullptr : awaited(text);
  return Queued::put(*this, nullptr, std::move(make), {}, 0, std::move(text), std::move(known));
}

std::shared_ptr<bool> Jobs::awaited(const std::string& text) {
  constexpr size_t most = 1024;
  if (const auto known = awaited_.find(text); known != awaited_.end()) return known->second;
  if (awaited_.size() >= most) awaited_.clear();  // it is soon learnt again
  return awaited_[text] = std::make_shared<bool>(false);
}

void Jobs::retire(Queued& job) {
  job.before = retired_.load(std::memory_order_relaxed);
  while (!retired_.compare_exchange_weak(job.before, &job, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

void Jobs::let_go() {
  if (retired_.load(std::memory_order_relaxed) == nullptr) return;
  for (Queued* job = retired_.exchange(nullptr, std::memory_order_acquire); job != nullptr;) {
    Queued* const before = job->before;
    job->let_go();
    job = before;
  }
}

void Jobs::serve() {
  const nb::gil_scoped_release unlocked;
  while (queue.serve()) {
    if (retired_.load(std::memory_order_relaxed) == nullptr) continue;
    const nb::gil_scoped_acquire locked;
    let_go();
  }
}

void Jobs::stop() {
  {
    const nb::gil_scoped_release unlocked;
    queue.stop(look_for_signals);
  }
  let_go();
}

void bind_jobs(nb::module_& m) {
  nb::class_<Jobs>(m, "Jobs")
      .def(nb::init<>())
      .def("put", &Jobs::put, "make"_a, "text"_a, "blocks"_a)
      .def("serve", &Jobs::serve)
      .def("stop", &Jobs::stop)
      .def_prop_ro("busy", [](const Jobs& self) { return self.queue.busy(); })
      .def_rw("work", &Jobs::work);
}

}  // namespace hocket
