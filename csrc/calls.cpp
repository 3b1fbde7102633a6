#include "calls.h"

#include <nanobind/stl/string.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <climits>
#include <functional>

#include "convert.h"

namespace hocket {

using namespace nb::literals;

namespace {

PyArrayObject* array(nb::handle h) { return reinterpret_cast<PyArrayObject*>(h.ptr()); }
std::byte* data(nb::handle h) { return static_cast<std::byte*>(PyArray_DATA(array(h))); }

// The look of `h`; false if it has none. None looks like no array.
bool look_of(nb::handle h, bool written, Look& look) {
  if (h.is_none()) return true;
  if (!PyArray_CheckExact(h.ptr())) return false;
  PyArrayObject* a = array(h);
  const int flags = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED | (written ? NPY_ARRAY_WRITEABLE : 0);
  if (!PyArray_CHKFLAGS(a, flags) || PyArray_NDIM(a) > 4) return false;
  look.dtype = reinterpret_cast<PyObject*>(PyArray_DESCR(a));
  look.axes = PyArray_NDIM(a);
  for (int i = 0; i < look.axes; ++i) look.shape[i] = PyArray_DIM(a, i);
  return true;
}

// A small number that is none but itself; -1 where it is something else.
int number(nb::handle h) {
  if (!PyLong_CheckExact(h.ptr())) return -1;
  int overflow;
  const long value = PyLong_AsLongAndOverflow(h.ptr(), &overflow);
  return overflow != 0 || value < 0 || value > INT_MAX ? -1 : static_cast<int>(value);
}

constexpr unsigned patience = 128;  // turns of a wait, which does not sleep in so few

}  // namespace

nb::object Calls::miss() { return nb::borrow(Py_NotImplemented); }

bool Calls::key_of(int method, nb::handle x, nb::handle op, nb::handle out, int root, Key& key) {
  if (!look_of(x, false, key.x) || !look_of(out, true, key.out)) return false;
  key.method = method;
  key.root = root;
  key.op = op.ptr();
  if (key.x.dtype == nullptr || key.out.dtype == nullptr) return true;
  const std::byte *begin = data(x), *to = data(out);
  const std::byte *end = begin + PyArray_NBYTES(array(x)), *to_end = to + PyArray_NBYTES(array(out));
  key.shared = begin < to_end && to < end;
  key.distance = key.shared ? to - begin : 0;
  return true;
}

Calls::Entry& Calls::place(const Key& key) {
  uint64_t h = reinterpret_cast<uintptr_t>(key.x.dtype) ^ (reinterpret_cast<uintptr_t>(key.op) << 1);
  h += static_cast<uint64_t>(key.method) * 0x51 + static_cast<uint64_t>(key.root) * 0x1f3 + key.shared;
  for (intptr_t n : key.x.shape) h = (h ^ static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15u;
  for (intptr_t n : key.out.shape) h = (h ^ static_cast<uint64_t>(n)) * 0x9e3779b97f4a7c15u;
  // One of a few places in a row: the one that has it, or else the one whose turn it is to be replaced.
  Entry* const set = &entries_[(h >> 32) % (size / ways) * ways];
  for (Entry* e = set; e < set + ways; ++e) {
    if (e->key == key) return *e;
  }
  for (Entry* e = set; e < set + ways; ++e) {
    if (e->program == nullptr) return *e;
  }
  return set[replaced_++ % ways];
}

void Calls::run(Program& program, uint64_t fingerprint, const std::byte* inp, std::byte* out, Deadline deadline) {
  memory_.describe(fingerprint, program.text);
  const uint64_t number = memory_.enter(fingerprint, out);
  for (int32_t peer : program.untold) memory_.ring(peer);  // no message will wake it, and it waits to see us enter
  hocket::run(program, memory_, fingerprint ^ (number * 0x9e3779b97f4a7c15u), inp, out, deadline);
  memory_.meet(program.unheard, deadline);
}

// A new array.
nb::object Calls::fresh(const Look& look) {
  Py_INCREF(look.dtype);
  npy_intp shape[4];
  std::copy(look.shape.begin(), look.shape.end(), shape);
  PyObject* made = PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(look.dtype), look.axes, shape,
                                        nullptr, nullptr, 0, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object Calls::attempt(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle rank) {
  Key key;
  const int root = number(rank);
  if (root < 0 || !enabled || !key_of(method, x, op, out, root, key)) return miss();
  Entry& entry = place(key);
  if (entry.program == nullptr || entry.key != key || !turn_.try_lock()) return miss();
  const std::lock_guard<std::mutex> turn(turn_, std::adopt_lock);
  nb::object result = nb::none();
  if (entry.gives && key.out.dtype != nullptr) {
    result = nb::borrow(out);
  } else if (entry.gives) {
    result = fresh(entry.result);
  }
  const std::byte* from = key.x.dtype == nullptr ? nullptr : data(x);
  std::byte* to = entry.gives ? data(result) : nullptr;
  Program& program = *entry.program;
  const uint64_t fingerprint = entry.fingerprint;
  const int learns = entry.learns;
  {
    const nb::gil_scoped_release unlocked;
    const Deadline deadline = in(seconds);
    memory_.describe(fingerprint, program.text);
    if (learns < 0 || memory_.next(learns, fingerprint, deadline) == fingerprint) {
      run(program, fingerprint, from, to, deadline);
      return result;
    }
  }
  return miss();
}

void Calls::remember(int method, nb::handle x, nb::handle op, nb::handle out, int root, nb::handle result,
                     nb::object program, uint64_t fingerprint, int learns) {
  Key key;
  Look gives;
  if (!key_of(method, x, op, out, root, key) || !look_of(result, false, gives)) return;
  Entry& entry = place(key);
  std::vector<nb::object> alive{nb::borrow(x.is_none() ? x : nb::handle(key.x.dtype)), nb::borrow(op), program};
  if (key.out.dtype != nullptr) alive.push_back(nb::borrow(key.out.dtype));
  if (gives.dtype != nullptr) alive.push_back(nb::borrow(gives.dtype));
  alive.swap(entry.alive);
  entry.key = key;
  entry.program = nb::cast<Program*>(program);
  entry.fingerprint = fingerprint;
  entry.learns = learns;
  entry.gives = gives.dtype != nullptr;
  entry.result = gives;
}

nb::object Calls::repeat(const Prepared& prepared) {
  if (!enabled || !turn_.try_lock()) return miss();
  const std::lock_guard<std::mutex> turn(turn_, std::adopt_lock);
  nb::object result = prepared.result;
  const nb::gil_scoped_release unlocked;
  run(prepared.program, prepared.fingerprint, prepared.inp, prepared.out, in(seconds));
  return result;
}

nb::object Prepared::run() { return calls.repeat(*this); }

void Calls::know(nb::handle x, std::string meta) {
  Look look;
  if (!look_of(x, false, look) || look.dtype == nullptr) return;
  for (const Known& known : known_) {
    if (known.look == look) return;
  }
  if (known_.size() == most_known) known_.erase(known_.begin());
  known_.push_back({look, std::move(meta), nb::borrow(look.dtype)});
}

nb::object Calls::send(nb::handle x, nb::handle to, nb::handle tag) {
  Look look;
  const int destination = number(to), tagged = number(tag);
  if (!enabled || destination < 0 || tagged < 0 || !look_of(x, false, look)) return miss();
  const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.look == look; });
  if (known == known_.end()) return miss();
  const uint64_t bytes = PyArray_NBYTES(array(x));
  return memory_.mailbox().send_now(destination, tagged, known->meta, data(x), bytes) ? nb::none() : miss();
}

nb::object Calls::receive(nb::handle from, nb::handle out, nb::handle tag) {
  Look look;
  const int source = number(from), tagged = number(tag);
  if (!enabled || source < 0 || tagged < 0 || !look_of(out, true, look)) return miss();
  Mailbox& mailbox = memory_.mailbox();
  if (!mailbox.ready(source)) {
    const nb::gil_scoped_release unlocked;
    try {
      Wait wait(memory_, Deadline::max());
      for (unsigned turn = 0; turn < patience && !mailbox.ready(source); ++turn) wait.idle(source);
    } catch (const Failure&) {  // the long way will find it too
    }
  }
  nb::object result = nb::none();
  const auto place = [&](std::string_view meta, uint64_t bytes) -> std::byte* {
    const auto known = std::find_if(known_.begin(), known_.end(), [&](const Known& k) {
      return k.meta == meta && (look.dtype == nullptr || k.look == look);
    });
    if (known == known_.end()) return nullptr;
    result = look.dtype == nullptr ? fresh(known->look) : nb::borrow(out);
    return bytes == static_cast<uint64_t>(PyArray_NBYTES(array(result))) ? data(result) : nullptr;
  };
  return mailbox.receive_now(source, tagged, std::ref(place)) ? result : miss();
}

void Calls::forget() { entries_.assign(size, Entry{}); }

void bind_calls(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  nb::class_<Prepared>(m, "Prepared").def("run", &Prepared::run);
  nb::class_<Calls>(m, "Calls")
      .def(nb::init<SharedMemory&>(), "memory"_a, nb::keep_alive<1, 2>())
      .def(
          "run",
          [](Calls& self, Program& program, uint64_t fingerprint, uintptr_t inp, uintptr_t out, double seconds) {
            self.run(program, fingerprint, pointer<const std::byte>(inp), pointer<std::byte>(out), in(seconds));
          },
          "program"_a, "fingerprint"_a, "inp"_a, "out"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("know", &Calls::know, "x"_a, "meta"_a)
      .def("remember", &Calls::remember, "method"_a, "x"_a.none(), "op"_a.none(), "out"_a.none(), "root"_a,
           "result"_a.none(), "program"_a, "fingerprint"_a, "learns"_a)
      .def(
          "prepare",
          [](Calls& self, nb::object program, uint64_t fingerprint, uintptr_t inp, uintptr_t out, nb::object alive,
             nb::object result) {
            return Prepared{self,
                            nb::cast<Program&>(program),
                            fingerprint,
                            pointer<const std::byte>(inp),
                            pointer<std::byte>(out),
                            nb::make_tuple(program, alive),
                            result};
          },
          "program"_a, "fingerprint"_a, "inp"_a, "out"_a, "alive"_a, "result"_a, nb::keep_alive<0, 1>())
      .def("forget", &Calls::forget)
      .def_rw("enabled", &Calls::enabled)
      .def_rw("seconds", &Calls::seconds)
      .def("acquire", &Calls::acquire, nb::call_guard<nb::gil_scoped_release>())
      .def("release", &Calls::release);
}

}  // namespace hocket
