#include "python/custom.h"

#include "python/gil.h"
#include "python/session.h"
#include "wait/fork.h"

#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace hocket {

using namespace nb::literals;

Custom::Custom(nb::object function, nb::object dtype, bool elementwise, bool raises)
    : function_(std::move(function)), dtype_(std::move(dtype)), elementwise_(elementwise), raises_(raises) {
  auto* const descr = reinterpret_cast<PyArray_Descr*>(dtype_.ptr());
  itemsize_ = PyDataType_ELSIZE(descr);
  alignment_ = PyDataType_ALIGNMENT(descr);
  if (elementwise_) find_loop();
}

void Custom::find_loop() {
  const auto& ufunc = *reinterpret_cast<PyUFuncObject*>(function_.ptr());
  const int wanted = reinterpret_cast<PyArray_Descr*>(dtype_.ptr())->type_num;
  for (int i = 0; i < ufunc.ntypes && loop_ == nullptr; ++i) {
    const char* const types = ufunc.types + i * ufunc.nargs;
    if (!std::all_of(types, types + ufunc.nargs, [&](char type) { return type == wanted; })) continue;
    loop_ = ufunc.functions[i];
    data_ = ufunc.data == nullptr ? nullptr : ufunc.data[i];
  }
}

void Custom::fold(void* to, const void* const* sources, size_t k, size_t count) {
  const auto aligned = [this](const void* data) { return reinterpret_cast<uintptr_t>(data) % alignment_ == 0; };
  const bool loops = loop_ != nullptr && aligned(to) && std::all_of(sources, sources + k, aligned);
  std::optional<Locked> locked;
  if (!loops || raises_) locked.emplace();
  const size_t bytes = count * itemsize_, room = (bytes + 63) / 64 * 64;
  const void* value = sources[0];
  for (size_t i = 1; i < k; ++i) {
    void* out = to;
    if (i + 1 < k || (!elementwise_ && (to == value || to == sources[i]))) {
      scratch_.resize(std::max(scratch_.size(), 2 * room));
      out = scratch_.data() + i % 2 * room;  // the half that the value is not in
    }
    loops ? loop(value, sources[i], out, count) : call(value, sources[i], out, count);
    if (locked && PyErr_Occurred() != nullptr) throw nb::python_error();
    value = out;
  }
  if (value != to && bytes != 0) std::memcpy(to, value, bytes);
}

void Custom::loop(const void* a, const void* b, void* out, size_t count) {
  const auto pointer = [](const void* data) { return static_cast<char*>(const_cast<void*>(data)); };
  char* operands[] = {pointer(a), pointer(b), pointer(out)};
  const auto counted = static_cast<intptr_t>(count), step = static_cast<intptr_t>(itemsize_);
  const intptr_t steps[] = {step, step, step};
  loop_(operands, &counted, steps, data_);
}

// Whatever the function does with its arrays, it touches no memory but theirs.
void Custom::call(const void* a, const void* b, void* out, size_t count) {
  const auto data = [](const nb::object& of) { return PyArray_DATA(reinterpret_cast<PyArrayObject*>(of.ptr())); };
  const size_t bytes = count * itemsize_;
  const nb::object first = array(0, count), second = array(1, count), result = array(2, count);
  std::memcpy(data(first), a, bytes);
  std::memcpy(data(second), b, bytes);
  const int born = forks();
  with_python([&] { return function_(first, second, result); });
  if (forks() != born) throw Refusal{Session::forked};  // the call is its parent's to finish
  std::memcpy(out, data(result), bytes);
}

// One of the last call, if nobody has kept it or a part of it and it is as long; else a new one.
nb::object& Custom::array(int which, size_t count) {
  nb::object& held = arrays_[which];
#ifndef Py_GIL_DISABLED  // where a count may be in several parts, none is believed
  if (held.is_valid() && Py_REFCNT(held.ptr()) == 1 &&
      PyArray_DIM(reinterpret_cast<PyArrayObject*>(held.ptr()), 0) == static_cast<npy_intp>(count)) {
    return held;
  }
#endif
  const auto counted = static_cast<npy_intp>(count);
  auto* const descr = reinterpret_cast<PyArray_Descr*>(Py_NewRef(dtype_.ptr()));
  PyObject* made = PyArray_NewFromDescr(&PyArray_Type, descr, 1, &counted, nullptr, nullptr, 0, nullptr);
  if (made == nullptr) throw nb::python_error();
  if (which != 2) PyArray_CLEARFLAGS(reinterpret_cast<PyArrayObject*>(made), NPY_ARRAY_WRITEABLE);
  held = nb::steal(made);
  return held;
}

void bind_custom(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  nb::class_<Custom>(m, "Custom")
      .def(nb::init<nb::object, nb::object, bool, bool>(), "function"_a, "dtype"_a, "elementwise"_a, "raises"_a);
}

}  // namespace hocket
