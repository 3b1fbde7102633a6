#include "python/cache.h"

#include <nanobind/stl/string.h>

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>

#include "python/convert.h"
#include "python/requests.h"

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
    if (!e->program.is_valid()) return *e;
  }
  return set[replaced_++ % ways];
}

void Calls::run(const Bound& bound, Deadline deadline) {
  Program& program = bound.call();
  memory_.describe(bound.fingerprint, program.text);
  const uint64_t number = memory_.enter(bound.fingerprint, bound.out);
  for (int32_t peer : program.untold) memory_.ring(peer);  // no message will wake it, and it waits to see us enter
  hocket::run(program, memory_, bound.fingerprint ^ (number * 0x9e3779b97f4a7c15u), bound.inp, bound.out, deadline);
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

// What was remembered of a call that looks like these arguments, bound to them; null if nothing was.
const Calls::Entry* Calls::recall(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle rank,
                                  Bound& bound) {
  Key key;
  const int root = number(rank);
  if (root < 0 || !enabled || !key_of(method, x, op, out, root, key)) return nullptr;
  const Entry& entry = place(key);
  if (!entry.program.is_valid() || entry.key != key) return nullptr;
  bound.program = entry.program;
  bound.fingerprint = entry.fingerprint;
  bound.alive = nb::borrow(x);
  if (key.x.dtype != nullptr) bound.inp = data(x);
  if (entry.gives) {
    bound.result = key.out.dtype != nullptr ? nb::borrow(out) : fresh(entry.result);
    bound.out = data(bound.result);
  } else {
    bound.result = nb::none();
  }
  return &entry;
}

nb::object Calls::attempt(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle root, double within) {
  Bound bound;
  const Entry* entry = recall(method, x, op, out, root, bound);
  if (entry == nullptr) return miss();
  const int learns = entry->learns;
  {
    const nb::gil_scoped_release unlocked;
    const std::unique_lock<Turn> turn = jobs.queue.turn();
    if (turn && enabled) {
      const Deadline deadline = in(within);
      if (learns >= 0) memory_.describe(bound.fingerprint, bound.call().text);
      if (learns < 0 || memory_.next(learns, bound.fingerprint, deadline) == bound.fingerprint) {
        run(bound, deadline);
        return std::move(bound.result);
      }
    }
  }
  return miss();
}

nb::object Calls::begin(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle root, double within,
                        nb::object fail) {
  Bound bound;
  const Entry* entry = jobs.queue.served() ? recall(method, x, op, out, root, bound) : nullptr;
  if (entry == nullptr || entry->learns >= 0) return miss();
  return Queued::put(jobs, this, std::move(fail), std::move(bound), within, {}, entry->awaited);
}

void Calls::remember(int method, nb::handle x, nb::handle op, nb::handle out, int root, nb::handle result,
                     nb::object program, uint64_t fingerprint, int learns) {
  Key key;
  Look gives;
  if (!key_of(method, x, op, out, root, key) || !look_of(result, false, gives)) return;
  Entry& entry = place(key);
  std::vector<nb::object> alive{nb::borrow(x.is_none() ? x : nb::handle(key.x.dtype)), nb::borrow(op)};
  if (key.out.dtype != nullptr) alive.push_back(nb::borrow(key.out.dtype));
  if (gives.dtype != nullptr) alive.push_back(nb::borrow(gives.dtype));
  alive.swap(entry.alive);
  entry.key = key;
  entry.program = program;
  entry.fingerprint = fingerprint;
  entry.learns = learns;
  entry.awaited = std::make_shared<bool>(false);
  entry.gives = gives.dtype != nullptr;
  entry.result = gives;
}

void Calls::forget() { entries_.assign(size, Entry{}); }

void bind_calls(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  nb::class_<Calls>(m, "Calls")
      .def(nb::init<SharedMemory&>(), "memory"_a, nb::keep_alive<1, 2>())
      .def(
          "run",
          [](Calls& self, nb::object program, uint64_t fingerprint, uintptr_t inp, uintptr_t out, double within) {
            const Bound bound{program, fingerprint, pointer<const std::byte>(inp), pointer<std::byte>(out), {}, {}};
            const nb::gil_scoped_release unlocked;
            self.run(bound, in(within));
          },
          "program"_a, "fingerprint"_a, "inp"_a, "out"_a, "within"_a)
      .def("remember", &Calls::remember, "method"_a, "x"_a.none(), "op"_a.none(), "out"_a.none(), "root"_a,
           "result"_a.none(), "program"_a, "fingerprint"_a, "learns"_a)
      .def(
          "prepare",
          [](Calls& self, nb::object program, uint64_t fingerprint, uintptr_t inp, uintptr_t out, nb::object alive,
             nb::object result, nb::object again, nb::object fail) {
            if (program.is_none()) return Persistent{self, {}, again, fail};
            const Bound bound{program, fingerprint, pointer<const std::byte>(inp), pointer<std::byte>(out),
                              alive,   result};
            return Persistent{self, bound, again, fail};
          },
          "program"_a.none(), "fingerprint"_a, "inp"_a, "out"_a, "alive"_a, "result"_a, "again"_a, "fail"_a)
      .def("forget", &Calls::forget)
      .def_prop_ro(
          "jobs", [](Calls& self) -> Jobs& { return self.jobs; }, nb::rv_policy::reference_internal)
      .def_prop_rw(
          "enabled", [](const Calls& self) { return self.enabled.load(); },
          [](Calls& self, bool enabled) { self.enabled = enabled; })
      .def_rw("seconds", &Calls::seconds);
}

}  // namespace hocket
