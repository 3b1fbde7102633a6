#include "python/requests.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <exception>

#include "python/convert.h"

namespace hocket {

using namespace nb::literals;

namespace {

nb::handle queued_type;
PyObject* job_of;

// Who waits so soon would gain nothing from an engine that is woken for it.
constexpr std::chrono::microseconds at_once{50};

// Shows Python's garbage collector what a T holds.
template <class T>
int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  for (nb::object* each : nb::inst_ptr<T>(self)->held()) Py_VISIT(each->ptr());
  return 0;
}

template <class T>
int clear(PyObject* self) {
  for (nb::object* each : nb::inst_ptr<T>(self)->held()) *each = nb::object();
  return 0;
}

PyObject* call_again(PyObject* self, PyObject* args, PyObject* keywords) {
  if (PyTuple_GET_SIZE(args) != 0 || (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a persistent call takes no arguments: its arrays were given when it was made");
    return nullptr;
  }
  try {
    return nb::inst_ptr<Persistent>(self)->call().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
    return nullptr;
  }
}

PyType_Slot queued_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<Queued>)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear<Queued>)},
                              {0, nullptr}};
PyType_Slot persistent_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<Persistent>)},
                                  {Py_tp_clear, reinterpret_cast<void*>(clear<Persistent>)},
                                  {Py_tp_call, reinterpret_cast<void*>(call_again)},
                                  {0, nullptr}};

}  // namespace

nb::object Queued::put(Jobs& jobs, Calls* calls, nb::object make, Bound bound, double within, std::string text,
                       std::shared_ptr<bool> awaited) {
  jobs.let_go();
  nb::object self = nb::inst_alloc(queued_type);
  Queued* job =
      new (nb::inst_ptr<Queued>(self)) Queued(jobs, calls, std::move(make), std::move(bound), within, std::move(text));
  nb::inst_mark_ready(self);
  // As the class itself would make one: but a function of Python's would take as long as a short call.
  auto* const type = reinterpret_cast<PyTypeObject*>(jobs.work.ptr());
  nb::object work = nb::steal(type->tp_alloc(type, 0));
  if (!work.is_valid() || PyObject_SetAttr(work.ptr(), job_of, self.ptr()) != 0) throw nb::python_error();
  job->self_ = std::move(self);
  const Queue::When when = awaited == nullptr ? Queue::by_caller : *awaited ? Queue::later : Queue::soon;
  job->awaited_ = std::move(awaited);
  jobs.queue.put(*job, when);
  if (when == Queue::soon) job->put_ = Clock::now();
  return work;
}

void Queued::make() {
  if (calls_ != nullptr && calls_->enabled) {
    try {
      calls_->run(bound_, in(within_));
    } catch (...) {
      const nb::gil_scoped_acquire locked;
      make_(caught(), within_);
    }
    return;
  }
  const nb::gil_scoped_acquire locked;
  if (calls_ != nullptr) {
    make_(nb::none(), within_);
  } else {
    bound_.result = make_();
  }
}

void Queued::run() {
  std::exception_ptr interruption;
  try {
    make();
  } catch (...) {
    const nb::gil_scoped_acquire locked;
    error_ = caught();
    if (!PyErr_GivenExceptionMatches(error_.ptr(), PyExc_Exception)) interruption = std::current_exception();
  }
  over_.store(true, std::memory_order_release);
  jobs_.retire(*this);
  if (interruption) std::rethrow_exception(interruption);
}

nb::object Queued::wait(std::optional<double> within) {
  const bool soon = put_ != Clock::time_point{} && Clock::now() - put_ < at_once;
  Queue::Outcome outcome = Queue::over;
  if (!over()) {
    const nb::object alive = make_;
    const nb::gil_scoped_release unlocked;
    std::optional<Deadline> deadline;
    if (within) deadline = in(*within);
    outcome = jobs_.queue.wait(*this, deadline, look_for_signals);
  }
  if (outcome == Queue::in_flight) return Calls::miss();
  if (awaited_ != nullptr) *awaited_ = soon || outcome == Queue::done_here;
  awaited_.reset();
  if (self_.is_valid()) jobs_.let_go();
  if (error_.is_valid()) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error_.ptr())), error_.ptr());
    throw nb::python_error();
  }
  return bound_.result;
}

std::string Queued::text() const {
  if (calls_ == nullptr) return text_;
  const std::string& text = bound_.call().text;
  return text.substr(0, text.find('\n'));
}

void Queued::let_go() {
  make_ = bound_.alive = nb::object();
  const nb::object self = std::move(self_);
}

bool Persistent::made() {
  try {
    const nb::gil_scoped_release unlocked;
    const std::unique_lock<Turn> turn = calls.jobs.queue.turn();
    if (!turn || !calls.enabled) return false;
    calls.run(bound, in(calls.seconds));
    return true;
  } catch (...) {
    fail(caught(), calls.seconds);
    return false;
  }
}

nb::object Persistent::call() {
  if (!bound.program.is_valid() || !made()) return again();
  return bound.result;
}

void bind_forms(nb::module_& m) {
  job_of = PyUnicode_InternFromString("_job");
  queued_type = nb::class_<Queued>(m, "Job", nb::type_slots(queued_slots))
                    .def("wait", &Queued::wait, "timeout"_a.none() = nb::none())
                    .def_prop_ro("over", &Queued::over)
                    .def_prop_ro("error", &Queued::error)
                    .def_prop_ro("text", &Queued::text);
  nb::class_<Persistent>(m, "Persistent", nb::type_slots(persistent_slots),
                         "A call that was prepared, and is made by calling this. See Group.all_reduce_init.");
}

}  // namespace hocket
