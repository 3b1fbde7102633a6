#include "python/messages.h"

#include <nanobind/stl/string.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <functional>

#include "python/convert.h"
#include "python/gil.h"

namespace hocket {

using namespace nb::literals;

namespace {

constexpr unsigned patience = 128;  // turns of a wait, which does not sleep in so few

PyArrayObject* array(nb::handle h) { return reinterpret_cast<PyArrayObject*>(h.ptr()); }
std::byte* data(nb::handle h) { return static_cast<std::byte*>(PyArray_DATA(array(h))); }

struct Ticket {
  Mailbox::Ticket operation;
};

}  // namespace

void Messages::know(nb::handle x, std::string meta) {
  Look look;
  if (!Look::of(x, false, look) || look.dtype == nullptr) return;
  for (const Known& known : known_) {
    if (known.look == look) return;
  }
  if (known_.size() == most_known) known_.erase(known_.begin());
  known_.push_back({look, std::move(meta), nb::borrow(look.dtype)});
}

nb::object Messages::send(nb::handle x, nb::handle to, nb::handle tag) {
  Look look;
  const nb::object miss = nb::borrow(Py_NotImplemented);
  const int destination = number(to), tagged = number(tag);
  if (!session().usable() || destination < 0 || tagged < 0 || !Look::of(x, false, look)) return miss;
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.look == look; });
  if (known == known_.end()) return miss;
  const uint64_t bytes = PyArray_NBYTES(array(x));
  return session().endpoint().mailbox().send_now(destination, tagged, known->meta, data(x), bytes) ? nb::none() : miss;
}

nb::object Messages::receive(nb::handle from, nb::handle out, nb::handle tag) {
  Look look;
  const nb::object miss = nb::borrow(Py_NotImplemented);
  const int source = number(from), tagged = number(tag);
  if (!session().usable() || source < 0 || tagged < 0 || !Look::of(out, true, look)) return miss;
  Mailbox& mailbox = session().endpoint().mailbox();
  if (!mailbox.ready(source)) {
    const Unlocked unlocked;
    try {
      Wait wait(session().endpoint(), Deadline::max());
      for (unsigned turn = 0; turn < patience && !mailbox.ready(source); ++turn) wait.idle(source);
    } catch (const Failure&) {  // the slow path will find it too
    }
  }
  nb::object result = nb::none();
  const auto place = [&](std::string_view meta, uint64_t bytes) -> std::byte* {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) {
      return k.meta == meta && (look.dtype == nullptr || k.look == look);
    });
    if (known == known_.end()) return nullptr;
    result = look.dtype == nullptr ? known->look.fresh() : nb::borrow(out);
    return bytes == static_cast<uint64_t>(PyArray_NBYTES(array(result))) ? data(result) : nullptr;
  };
  return mailbox.receive_now(source, tagged, std::ref(place)) ? result : miss;
}

void bind_messages(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  nb::class_<Messages>(m, "Messages")
      .def(nb::init<nb::object>(), "session"_a)
      .def("know", &Messages::know, "x"_a, "meta"_a);
  nb::class_<Ticket>(m, "Ticket");
  nb::class_<Mailbox>(m, "Mailbox")
      .def(
          "send",
          [](Mailbox& self, int to, int64_t tag, std::string meta, uintptr_t data, uint64_t bytes) {
            return Ticket{self.send(to, tag, std::move(meta), pointer<const void>(data), bytes)};
          },
          "to"_a, "tag"_a, "meta"_a, "data"_a, "bytes"_a)
      .def(
          "receive",
          [](Mailbox& self, int source, int64_t tag, std::string meta, uintptr_t data, uint64_t bytes) {
            return Ticket{self.receive(source, tag, std::move(meta), pointer<void>(data), bytes)};
          },
          "source"_a, "tag"_a, "meta"_a, "data"_a, "bytes"_a)
      .def(
          "receive_any", [](Mailbox& self, int source, int64_t tag) { return Ticket{self.receive(source, tag)}; },
          "source"_a, "tag"_a)
      .def(
          "arrival",
          [](Mailbox& self, Ticket t, double seconds) { return self.arrival(t.operation, in(seconds)).meta; },
          "ticket"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("accept", [](Mailbox& self, Ticket t, uintptr_t data) { self.accept(t.operation, pointer<void>(data)); })
      .def("done", [](Mailbox& self, Ticket t) { return self.done(t.operation); })
      .def("arrived", [](Mailbox& self, Ticket t) { return self.arrived(t.operation); })
      .def(
          "wait", [](Mailbox& self, Ticket t, double seconds) { self.wait(t.operation, in(seconds)); }, "ticket"_a,
          "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("source", [](Mailbox& self, Ticket t) { return self.envelope(t.operation).source; });
}

}  // namespace hocket
