#include "python/cache.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <algorithm>
#include <climits>

#include "python/convert.h"

namespace hocket {

namespace {

PyArrayObject* array(nb::handle h) { return reinterpret_cast<PyArrayObject*>(h.ptr()); }
std::byte* data(nb::handle h) { return static_cast<std::byte*>(PyArray_DATA(array(h))); }

}  // namespace

void import_numpy() {
  if (_import_array() < 0) throw nb::python_error();
}

bool Look::of(nb::handle h, bool written, Look& look) {
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

nb::object Look::fresh() const {
  Py_INCREF(dtype);
  npy_intp dims[4];
  std::copy(shape.begin(), shape.end(), dims);
  PyObject* made = PyArray_NewFromDescr(&PyArray_Type, reinterpret_cast<PyArray_Descr*>(dtype), axes, dims, nullptr,
                                        nullptr, 0, nullptr);
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object Arguments::known(nb::handle algorithm) {
  PyObject* name = nb::borrow(algorithm).release().ptr();
  if (PyUnicode_CheckExact(name)) PyUnicode_InternInPlace(&name);
  return nb::steal(name);
}

bool Meaning::holds() const {
  const Meaning alive = *this;
  const nb::object now = nb::borrow(PyDict_GetItemWithError(alive.table.ptr(), alive.key.ptr()));
  if (!now.is_valid() && PyErr_Occurred() != nullptr) throw nb::python_error();
  return now.is_valid() && now.is(alive.function);
}

bool Cache::Key::of(const Arguments& a, Key& key) {
  const int root = number(a.root);
  if (root < 0 || !Look::of(a.x, false, key.x) || !Look::of(a.out, true, key.out)) return false;
  key.method = a.method;
  key.root = root;
  key.op = a.op.ptr();
  key.algorithm = a.algorithm.ptr();
  key.any_order = a.any_order;
  key.protects = a.protects && key.out.dtype != nullptr;
  if (key.x.dtype == nullptr || key.out.dtype == nullptr) return true;
  const std::byte *begin = data(a.x), *to = data(a.out);
  const std::byte *end = begin + PyArray_NBYTES(array(a.x)), *to_end = to + PyArray_NBYTES(array(a.out));
  key.shared = begin < to_end && to < end;
  key.distance = key.shared ? to - begin : 0;
  return true;
}

Cache::Entry& Cache::place(const Key& key) {
  uint64_t h = reinterpret_cast<uintptr_t>(key.x.dtype) ^ (reinterpret_cast<uintptr_t>(key.op) << 1) ^
               (reinterpret_cast<uintptr_t>(key.algorithm) << 2);
  h += static_cast<uint64_t>(key.method) * 0x51 + static_cast<uint64_t>(key.root) * 0x1f3 + key.shared +
       2 * key.protects + 4 * key.any_order;
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

const Cache::Entry* Cache::find(const Key& key) {
  const auto is_it = [&](const Entry& entry) { return entry.program.is_valid() && entry.key == key; };
  size_t& last = last_[static_cast<size_t>(key.method)];
  if (is_it(entries_[last])) return &entries_[last];
  const Entry& entry = place(key);
  if (!is_it(entry)) return nullptr;
  last = static_cast<size_t>(&entry - entries_.data());
  return &entry;
}

// To make an array may run anything, even what forgets the entry: so all that is wanted of it is taken before. To look
// a name up may, too: so the entry is found again after that.
bool Cache::recall(const Arguments& arguments, bool later, Found& found) {
  Key key;
  if (!Key::of(arguments, key)) return false;
  const Entry* there = find(key);
  if (there != nullptr && there->means.table.is_valid()) there = there->means.holds() ? find(key) : nullptr;
  if (there == nullptr) return false;
  const Entry& entry = *there;
  Prepared& prepared = found.prepared;
  prepared.bound = entry.program;
  prepared.fingerprint = entry.fingerprint;
  prepared.alive = nb::borrow(arguments.x);
  if (key.x.dtype != nullptr) prepared.inp = data(arguments.x);
  found.learns = entry.learns;
  if (later) found.awaited = entry.awaited;
  if (entry.gives) {
    prepared.result = key.out.dtype != nullptr ? nb::borrow(arguments.out) : Look(entry.result).fresh();
    prepared.out = data(prepared.result);
    prepared.given = key.out.dtype != nullptr;
    prepared.protects = key.protects;
  } else {
    prepared.result = nb::none();
  }
  return true;
}

void Cache::remember(const Arguments& arguments, Meaning means, const Prepared& prepared, int learns) {
  Key key;
  Look gives;
  if (!Key::of(arguments, key) || !Look::of(prepared.result, false, gives)) return;
  Entry& entry = place(key);
  std::vector<nb::object> alive{nb::borrow(arguments.op), arguments.algorithm};
  for (PyObject* dtype : {key.x.dtype, key.out.dtype, gives.dtype}) {
    if (dtype != nullptr) alive.push_back(nb::borrow(dtype));
  }
  Entry made{key,
             prepared.bound,
             std::move(means),
             prepared.fingerprint,
             learns,
             gives.dtype != nullptr,
             gives,
             std::make_shared<bool>(false),
             std::move(alive)};
  std::swap(entry, made);  // what was there goes when all is in place
}

}  // namespace hocket
