// Shows Python's garbage collector what a T holds, and lets go of some of it where that breaks a circle.
//
// held() points to all of it, and spare() to what T can do without. The collector clears in any order: so what others
// reach through a T, such as the session of its group, is not spare. They may be alive still, and about to use it.
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
  for (nb::object* each : nb::inst_ptr<T>(self)->spare()) {
    const nb::object held = std::move(*each);  // gone from there before anything runs that may look
  }
  return 0;
}

template <class T>
inline PyType_Slot slots_of[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<T>)},
                                 {Py_tp_clear, reinterpret_cast<void*>(clear<T>)},
                                 {0, nullptr}};

}  // namespace hocket
