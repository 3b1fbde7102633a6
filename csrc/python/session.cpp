#include "python/session.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "kernels/copy.h"
#include "python/convert.h"
#include "python/gil.h"
#include "python/in_call.h"
#include "wait/fork.h"

namespace hocket {

using namespace nb::literals;

const char* const Session::forked =
    "this process was forked from a rank, and its group belongs to that one alone: nothing was done. Make a group of "
    "its own here, or start the process in another way (spawn, forkserver)";

namespace {

struct Head {
  uint64_t longest = 0, length = 0;
};

// Where all that a call does, but wait, is done in a moment, it keeps Python's lock until it waits.
Unlocked::When unlocks(const Program& program, const Endpoint& rank) {
  const bool in_a_moment = program.is_brief() && !program.custom && !rank.listens;
  return in_a_moment ? Unlocked::in_a_wait : Unlocked::at_once;
}

}  // namespace

Session::Session(nb::object endpoint, nb::object requests, nb::object fail, nb::object place)
    : born_(forks()),
      endpoint_(std::move(endpoint)),
      requests_(std::move(requests)),
      fail_(std::move(fail)),
      place_(std::move(place)),
      rank_(*nb::inst_ptr<Endpoint>(endpoint_)),
      queue_(*nb::inst_ptr<Requests>(requests_)) {}

nb::object Session::attempt(const Arguments& arguments, double within) {
  Cache::Found found;
  if (!usable() || requests().executor.inside() || !cache.recall(arguments, false, found))
    return nb::borrow(Py_NotImplemented);
  nb::object result = call(found.prepared, within, 0, found.learns);
  fast += result.ptr() != Py_NotImplemented;
  return result;
}

nb::object Session::begin(nb::object self, const Arguments& arguments, double within) {
  Cache::Found found;
  if (!usable() || !requests().executor.claimed() || !cache.recall(arguments, true, found) || found.learns >= 0) {
    return nb::borrow(Py_NotImplemented);
  }
  ++fast;
  return begin(std::move(self), std::move(found.prepared), within, 0, std::move(found.awaited));
}

nb::object Session::call(Prepared& prepared, double within, double spent, int learns) {
  const Clock::time_point begun = before(beginning(within), spent);
  const Deadline deadline = after(begun, within);
  {
    const Unlocked unlocked(unlocks(prepared.program(), endpoint()));
    const std::unique_lock<Turn> turn = requests().executor.acquire(deadline, signals);
    if (!turn) miss_the_turn(prepared.title(), begun, deadline);
    if (!usable() || !make(prepared, begun, deadline, learns)) return nb::borrow(Py_NotImplemented);
  }
  return std::move(prepared.result);
}

nb::object Session::begin(nb::object self, Prepared prepared, double within, double spent,
                          std::shared_ptr<bool> awaited) {
  std::string text = prepared.title();
  return requests().put(
      Request::make(std::move(self), requests(), this, std::move(prepared), {}, within, spent, std::move(text)),
      std::move(awaited));
}

nb::object Session::exchange(Prepared& prepared, size_t each, const nb::list& given, size_t count, double within,
                             const nb::object& rest) {
  if (!usable() || requests().executor.inside()) return nb::borrow(Py_NotImplemented);
  const Clock::time_point begun = Clock::now();
  const Deadline deadline = after(begun, within);
  const size_t room = each - sizeof(Head);
  std::vector<std::string_view> strings;
  for (nb::handle one : given) strings.emplace_back(PyBytes_AS_STRING(one.ptr()), PyBytes_GET_SIZE(one.ptr()));
  Head head;
  const auto at = [&](size_t i) { return prepared.out + i * each; };
  bool fit = true;
  std::unique_lock<Turn> turn;
  {
    const Unlocked unlocked(unlocks(prepared.program(), endpoint()));
    turn = requests().executor.acquire(deadline, signals);
    if (!turn) miss_the_turn(prepared.title(), begun, deadline);
    for (std::string_view string : strings) head.longest = std::max(head.longest, string.size());
    std::byte* to = const_cast<std::byte*>(prepared.inp);  // a buffer of this call's own
    for (std::string_view string : strings) {
      head.length = string.size();
      std::memcpy(to, &head, sizeof(head));
      if (string.size() <= room) std::memcpy(to + sizeof(head), string.data(), string.size());
      to += each;
    }
    if (!usable() || !make(prepared, begun, deadline)) return nb::borrow(Py_NotImplemented);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(&head, at(i), sizeof(head));
      fit = fit && head.longest <= room;
    }
  }
  ++fast;
  if (!fit) return with_python([&] { return rest(seconds_between(begun, Clock::now())); });
  nb::list got;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&head, at(i), sizeof(head));
    got.append(nb::bytes(at(i) + sizeof(head), std::min<size_t>(head.length, room)));
  }
  return got;
}

nb::object Session::run(Prepared& prepared, double within, double spent) {
  const Clock::time_point begun = before(beginning(within), spent);
  {
    const Unlocked unlocked(unlocks(prepared.program(), endpoint()));
    make(prepared, begun, after(begun, within));
  }
  return prepared.result;
}

std::string Session::learn(int peer, const std::string& text, double within) {
  const std::string title = text.substr(0, text.find('\n'));
  const InCall in_call(endpoint(), place_, title, Clock::now());
  try {
    const Unlocked unlocked;
    return endpoint().learn(peer, text, in(within));
  } catch (...) {
    fail(caught(), title, within, false);
  }
}

bool Session::make(Prepared& prepared, Clock::time_point begun, Deadline deadline, int learns) {
  Endpoint& rank = endpoint();
  const uint64_t before = rank.number();
  const InCall in_call(rank, place_, prepared, begun);
  bool touched = false;
  try {
    if (!usable()) {
      const Locked locked;
      fail(nb::none(), prepared.title(), 0, false);
    }
    rank.brief.store(prepared.program().is_brief(), std::memory_order_relaxed);
    if (learns >= 0) {
      rank.describe(prepared.fingerprint, prepared.program().text);
      if (rank.next(learns, prepared.fingerprint, deadline) != prepared.fingerprint) return false;
    }
    const uint64_t bytes = prepared.program().out_bytes;
    std::byte* const to = prepared.protects ? shelter(bytes) : prepared.out;
    hocket::make(prepared.call(to), rank, rank, deadline, &touched);
    if (prepared.protects && bytes != 0) copy_bytes(prepared.out, to, bytes);
  } catch (...) {
    const Locked locked;
    touched = touched && prepared.given && !prepared.protects;
    fail(caught(), prepared.title(), seconds_between(begun, deadline), rank.number() != before, touched);
  }
  if (prepared.deliver.is_valid()) {
    const Locked locked;
    prepared.result = with_python([&] { return prepared.deliver(); });
  }
  return true;
}

std::byte* Session::shelter(uint64_t bytes) {
  if (bytes > sheltered_) {
    sheltered_ = 0;
    shelter_.reset();
    shelter_.reset(new std::byte[bytes]);
    sheltered_ = bytes;
  }
  return shelter_.get();
}

void Session::miss_the_turn(const std::string& text, Clock::time_point begun, Deadline deadline) {
  const Locked locked;
  set_error(Failure{Failure::timeout, -1, "another thread of this rank was still in " + endpoint().title()});
  fail(nb::borrow(nb::python_error().value()), text, seconds_between(begun, deadline), false);
}

void Session::fail(nb::object error, const std::string& text, double within, bool entered, bool touched) {
  const std::string what = entered ? text + " (call " + std::to_string(endpoint().number()) + ")" : text;
  const nb::object raises = fail_;  // which may let go of itself
  if (!raises.is_valid()) throw Refusal{"this group is closed"};
  try {
    InCall::tell();  // another rank may be about to make an error too
  } catch (nb::python_error& interruption) {
    error = nb::borrow(interruption.value());
  }
  with_python([&] { return raises(error, within, what, touched); });
  throw std::logic_error("fail() must raise");
}

int Session::traverse(visitproc visit, void* arg) {
  Py_VISIT(endpoint_.ptr());
  Py_VISIT(requests_.ptr());
  Py_VISIT(fail_.ptr());
  Py_VISIT(place_.ptr());
  return cache.traverse([&](PyObject* object) { return object == nullptr ? 0 : visit(object, arg); });
}

void Session::release() {
  const nb::object fail = std::move(fail_), place = std::move(place_);
  shelter_.reset();
  sheltered_ = 0;
  cache.forget();
}

namespace {

int traverse_session(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Session>(self)->traverse(visit, arg) : 0;
}

int clear_session(PyObject* self) {
  nb::inst_ptr<Session>(self)->release();
  return 0;
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_session)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear_session)},
                       {0, nullptr}};

}  // namespace

void bind_session(nb::module_& m) {
  import_numpy();
  nb::class_<Prepared>(m, "Prepared")
      .def(
          "__init__",
          [](Prepared* self, nb::object program, uint64_t fingerprint, uintptr_t inp, uintptr_t out, bool given,
             bool protects, nb::object alive, nb::object result, nb::object deliver) {
            new (self) Prepared{program,
                                fingerprint,
                                pointer<const std::byte>(inp),
                                pointer<std::byte>(out),
                                given,
                                protects,
                                alive,
                                result,
                                deliver.is_none() ? nb::object() : deliver};
          },
          "program"_a, "fingerprint"_a, "inp"_a, "out"_a, "given"_a, "protects"_a, "alive"_a, "result"_a.none(),
          "deliver"_a.none());
  nb::class_<Session>(m, "Session", nb::type_slots(slots))
      .def(nb::init<nb::object, nb::object, nb::object, nb::object>(), "endpoint"_a, "requests"_a, "fail"_a, "place"_a)
      .def(
          "call",
          [](Session& self, Prepared& prepared, double within, double spent) {
            ++self.slow;
            return self.call(prepared, within, spent);
          },
          "prepared"_a, "within"_a, "spent"_a)
      .def(
          "begin",
          [](nb::object self, const Prepared& prepared, double within, double spent) {
            auto& session = nb::cast<Session&>(self);
            ++session.slow;
            return session.begin(self, prepared, within, spent, session.requests().awaited(prepared.title()));
          },
          "prepared"_a, "within"_a, "spent"_a)
      .def(
          "run",
          [](Session& self, Prepared& prepared, double within, double spent) {
            ++self.slow;
            return self.run(prepared, within, spent);
          },
          "prepared"_a, "within"_a, "spent"_a)
      .def(
          "exchange",
          [](Session& self, Prepared& prepared, size_t each, nb::list given, size_t count, double within,
             nb::object rest) { return self.exchange(prepared, each, given, count, within, rest); },
          "prepared"_a, "each"_a, "given"_a, "count"_a, "within"_a, "rest"_a)
      .def("learn", &Session::learn, "peer"_a, "text"_a, "within"_a)
      .def(
          "remember",
          [](Session& self, int method, nb::handle x, nb::handle op, nb::handle out, nb::handle root,
             nb::handle algorithm, std::optional<std::tuple<nb::dict, nb::tuple, nb::object>> meaning, bool any_order,
             bool protects, const Prepared& prepared, int learns) {
            Meaning means;
            if (meaning) means = std::apply([](auto&... part) { return Meaning{part...}; }, *meaning);
            self.cache.remember({method, x, op, out, root, Arguments::known(algorithm), any_order, protects},
                                std::move(means), prepared, learns);
          },
          "method"_a, "x"_a.none(), "op"_a.none(), "out"_a.none(), "root"_a, "algorithm"_a.none(), "meaning"_a.none(),
          "any_order"_a, "protects"_a, "prepared"_a, "learns"_a)
      .def("release", &Session::release)
      .def_prop_ro("forked", &Session::is_forked)
      .def_prop_ro("inside", [](const Session& self) { return self.requests().executor.inside(); })
      .def_prop_rw(
          "enabled", [](const Session& self) { return self.enabled.load(); },
          [](Session& self, bool enabled) { self.enabled = enabled; })
      .def_ro("fast", &Session::fast)
      .def_ro("slow", &Session::slow)
      .def_rw("seconds", &Session::seconds)
      .def_rw("protects", &Session::protects);
  m.attr("FORKED") = Session::forked;
}

}  // namespace hocket
