#include "calls.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

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

nb::object Calls::attempt(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle rank, double seconds) {
  Key key;
  if (!PyLong_CheckExact(rank.ptr())) return miss();
  const int root = static_cast<int>(PyLong_AsLong(rank.ptr()));  // -1 if it is none: remembered calls have ranks
  PyErr_Clear();
  if (!enabled || !key_of(method, x, op, out, root, key)) return miss();
  Entry& entry = place(key);
  if (entry.program == nullptr || entry.key != key || !turn_.try_lock()) return miss();
  const std::lock_guard<std::mutex> turn(turn_, std::adopt_lock);
  nb::object result = nb::none();
  if (entry.gives && key.out.dtype != nullptr) {
    result = nb::borrow(out);
  } else if (entry.gives) {
    Py_INCREF(entry.result.dtype);
    auto* descr = reinterpret_cast<PyArray_Descr*>(entry.result.dtype);
    npy_intp shape[4];
    std::copy(entry.result.shape.begin(), entry.result.shape.end(), shape);
    PyObject* fresh =
        PyArray_NewFromDescr(&PyArray_Type, descr, entry.result.axes, shape, nullptr, nullptr, 0, nullptr);
    if (fresh == nullptr) throw nb::python_error();
    result = nb::steal(fresh);
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

nb::object Calls::repeat(const Prepared& prepared, double seconds) {
  if (!enabled || !turn_.try_lock()) return miss();
  const std::lock_guard<std::mutex> turn(turn_, std::adopt_lock);
  nb::object result = prepared.result;
  const nb::gil_scoped_release unlocked;
  run(prepared.program, prepared.fingerprint, prepared.inp, prepared.out, in(seconds));
  return result;
}

nb::object Prepared::run(double seconds) { return calls.repeat(*this, seconds); }

void Calls::forget() { entries_.assign(size, Entry{}); }

void bind_calls(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  nb::class_<Prepared>(m, "Prepared").def("run", &Prepared::run, "seconds"_a);
  nb::class_<Calls>(m, "Calls")
      .def(nb::init<SharedMemory&>(), "memory"_a, nb::keep_alive<1, 2>())
      .def(
          "run",
          [](Calls& self, Program& program, uint64_t fingerprint, uintptr_t inp, uintptr_t out, double seconds) {
            self.run(program, fingerprint, pointer<const std::byte>(inp), pointer<std::byte>(out), in(seconds));
          },
          "program"_a, "fingerprint"_a, "inp"_a, "out"_a, "seconds"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("attempt", &Calls::attempt, "method"_a, "x"_a.none(), "op"_a.none(), "out"_a.none(), "root"_a, "seconds"_a)
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
      .def("acquire", &Calls::acquire, nb::call_guard<nb::gil_scoped_release>())
      .def("release", &Calls::release);
}

}  // namespace hocket
