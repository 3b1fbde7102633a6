#include "python/requests.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <exception>

#include "python/convert.h"
#include "python/gil.h"
#include "python/in_call.h"
#include "python/session.h"
#include "python/traverse.h"
#include "wait/fork.h"

namespace hocket {

using namespace nb::literals;

namespace {

nb::handle request_type;
PyObject* request_of;

// Who waits so soon would gain nothing from an engine that is woken for it.
constexpr std::chrono::microseconds at_once{50};

nb::python_error raised(const nb::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  return {};
}

}  // namespace

const Signals signals = look_for_signals;

void look_for_signals() {
  const Locked locked;
  const int born = forks();
  if (with_python(PyErr_CheckSignals) != 0) throw nb::python_error();
  if (forks() != born) throw Refusal{Session::forked};  // a handler's child: the call is its parent's to finish
  InCall::tell();
}

nb::object Requests::put(nb::object function, std::string text) {
  std::shared_ptr<bool> known = awaited(text);
  nb::object request = Request::make(nb::find(*this), *this, nullptr, {}, std::move(function), -1, 0, std::move(text));
  return put(std::move(request), std::move(known));
}

nb::object Requests::put(nb::object object, std::shared_ptr<bool> awaited) {
  let_go();
  if (executor.in_flight_now() >= most) {
    const Unlocked unlocked;
    executor.wait_for_room(most - 1, signals);
  }
  Request& request = *nb::inst_ptr<Request>(object);
  // As the class itself would make one: but a function of Python's would take as long as a short call.
  auto* const type = reinterpret_cast<PyTypeObject*>(work.ptr());
  nb::object made = nb::steal(type->tp_alloc(type, 0));
  if (!made.is_valid() || PyObject_SetAttr(made.ptr(), request_of, object.ptr()) != 0) throw nb::python_error();
  const Executor::When when = *awaited ? Executor::later : Executor::soon;
  request.awaited_ = std::move(awaited);
  request.woken_ = when == Executor::soon;
  request.self_ = object;
  if (executor.put(request, when)) return made;
  request.let_go();
  return nb::borrow(Py_NotImplemented);
}

nb::object Requests::inside(nb::object function, double seconds) {
  std::unique_lock<Turn> turn;
  {
    const Unlocked unlocked;
    turn = executor.acquire(in(seconds), signals);
  }
  return turn ? with_python([&] { return function(); }) : nb::borrow(Py_NotImplemented);
}

std::shared_ptr<bool> Requests::awaited(const std::string& text) {
  constexpr size_t most_texts = 1024;
  if (const auto known = awaited_.find(text); known != awaited_.end()) return known->second;
  if (awaited_.size() >= most_texts) awaited_.clear();  // it is soon learnt again
  return awaited_[text] = std::make_shared<bool>(false);
}

void Requests::retire(Request& request) {
  request.before_ = retired_.load(std::memory_order_relaxed);
  while (!retired_.compare_exchange_weak(request.before_, &request, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
}

void Requests::let_go() {
  if (retired_.load(std::memory_order_relaxed) == nullptr) return;
  for (Request* request = retired_.exchange(nullptr, std::memory_order_acquire); request != nullptr;) {
    Request* const before = request->before_;
    request->let_go();
    request = before;
  }
}

void Requests::serve() {
  const Unlocked unlocked;
  while (executor.serve()) {
    if (retired_.load(std::memory_order_relaxed) == nullptr) continue;
    const Locked locked;
    let_go();
  }
}

void Requests::stop() {
  {
    const Unlocked unlocked;
    executor.stop(signals);
  }
  let_go();
}

Request::Request(nb::object owner, Requests& requests, Session* session, Prepared prepared, nb::object function,
                 double within, double spent, std::string text)
    : owner_(std::move(owner)),
      requests_(requests),
      session_(session),
      prepared_(std::move(prepared)),
      function_(std::move(function)),
      text_(std::move(text)),
      born_(forks()),
      begun_(before(Clock::now(), spent)),
      deadline_(within >= 0 ? after(begun_, within) : Deadline::max()) {}

nb::object Request::make(nb::object owner, Requests& requests, Session* session, Prepared prepared, nb::object function,
                         double within, double spent, std::string text) {
  nb::object self = nb::inst_alloc(request_type);
  new (nb::inst_ptr<Request>(self)) Request(std::move(owner), requests, session, std::move(prepared),
                                            std::move(function), within, spent, std::move(text));
  nb::inst_mark_ready(self);
  return self;
}

bool Request::expire() {
  if (taken_.exchange(true)) return false;
  try {
    session_->miss_the_turn(text_, begun_, deadline_);
  } catch (...) {
    error_ = caught();
  }
  over_.store(true, std::memory_order_release);
  return true;
}

// What has expired stays in the queue until its turn comes, so that the executor never touches what is gone.
void Request::run(Deadline limit) {
  if (taken_.exchange(true)) return requests_.retire(*this);
  std::exception_ptr interruption;
  try {
    if (session_ != nullptr) {
      session_->make(prepared_, begun_, std::min(deadline_, limit));
    } else {
      const Locked locked;
      prepared_.result = with_python([&] { return function_(); });
    }
  } catch (...) {
    const Locked locked;
    error_ = caught();
    if (!PyErr_GivenExceptionMatches(error_.ptr(), PyExc_Exception)) {
      interruption = std::make_exception_ptr(raised(error_));  // what was caught is empty now
    }
  }
  over_.store(true, std::memory_order_release);
  requests_.retire(*this);
  if (interruption) std::rethrow_exception(interruption);
}

nb::object Request::wait(std::optional<double> within) {
  if (forks() != born_) throw Refusal{Session::forked};
  const bool soon = woken_ && Clock::now() - begun_ < at_once;
  Executor::Outcome outcome = Executor::over;
  const std::optional<Deadline> end = within ? std::optional(in(*within)) : std::nullopt;
  if (!over()) {
    const nb::object alive = owner_;
    const Unlocked unlocked;
    const std::optional<Deadline> first = end ? std::optional(std::min(*end, deadline_)) : std::nullopt;
    outcome = requests_.executor.wait(*this, first, deadline_, signals);
  }
  if (outcome == Executor::in_flight) {
    const bool late = session_ != nullptr && Clock::now() >= deadline_;
    if (late && !expire()) {  // who is at it keeps its deadline too, and is about to say so
      const nb::object alive = owner_;
      const Unlocked unlocked;
      outcome = requests_.executor.wait(*this, end, signals);
    }
    if (outcome == Executor::in_flight && !over()) return nb::borrow(Py_NotImplemented);
  }
  if (awaited_ != nullptr) *awaited_ = soon || outcome == Executor::done_here;
  awaited_.reset();
  if (const nb::object owner = owner_; self_.is_valid()) requests_.let_go();
  if (error_.is_valid()) throw raised(error_);
  return prepared_.result;
}

void Request::let_go() {
  function_ = prepared_.alive = prepared_.deliver = nb::object();
  const nb::object owner = std::move(owner_), self = std::move(self_);
}

std::vector<nb::object*> Request::held() {
  std::vector<nb::object*> all{&owner_, &function_, &error_};
  for (nb::object* each : prepared_.held()) all.push_back(each);
  return all;
}

void bind_requests(nb::module_& m) {
  request_of = PyUnicode_InternFromString("_request");
  request_type = nb::class_<Request>(m, "Request", nb::type_slots(slots_of<Request>))
                     .def("wait", &Request::wait, "timeout"_a.none() = nb::none())
                     .def_prop_ro("over", &Request::over)
                     .def_prop_ro("error", &Request::error)
                     .def_prop_ro("text", &Request::text)
                     .def_prop_ro("writes", &Request::writes);
  nb::class_<Requests>(m, "Requests")
      .def(nb::init<>())
      .def("put", nb::overload_cast<nb::object, std::string>(&Requests::put), "function"_a, "text"_a)
      .def("inside", &Requests::inside, "function"_a, "seconds"_a)
      .def("claim", [](Requests& self) { return self.executor.claim(); })
      .def("serve", &Requests::serve)
      .def("stop", &Requests::stop)
      .def("dismiss",
           [](Requests& self) {
             self.executor.dismiss();
             self.let_go();
           })
      .def_prop_ro("elsewhere", [](const Requests& self) { return self.executor.is_elsewhere(); })
      .def_prop_ro("busy", [](const Requests& self) { return self.executor.busy(); })
      .def_rw("work", &Requests::work);
}

}  // namespace hocket
