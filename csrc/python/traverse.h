// Shows Python's garbage collector what a T holds: all that its held() points to.
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
  for (nb::object* each : nb::inst_ptr<T>(self)->held()) {
    const nb::object held = std::move(*each);  // gone from there before anything runs that may look
  }
  return 0;
}

template <class T>
inline PyType_Slot slots_of[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)},
                                 {Py_tp_clear, reinterpret_cast<void*>(clear<T>)},
                                 {0, nullptr}};

}  // namespace hocket
