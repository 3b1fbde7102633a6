// How Python's garbage collector sees what a native object holds: a T has `held()`, pointers to all its nb::objects
// that may be part of a circle.
#pragma once

#include <nanobind/nanobind.h>

namespace hocket {

namespace nb = nanobind;

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

template <class T>
inline PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)},
                              {Py_tp_clear, reinterpret_cast<void*>(clear<T>)},
                              {0, nullptr}};

}  // namespace hocket
