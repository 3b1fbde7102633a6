#include "python/persistent.h"

#include "python/gil.h"
#include "python/traverse.h"

namespace hocket {

using namespace nb::literals;

nb::object Persistent::call() {
  if (!again.is_valid()) throw Refusal{"this group is closed"};
  if (prepared.bound.is_valid() && session.usable() && !session.requests().executor.inside()) {
    Prepared once = prepared;  // `call` gives its result away
    nb::object result = session.call(once, session.seconds, 0);
    if (result.ptr() != Py_NotImplemented) return result;
  }
  return with_python([this] { return again(); });
}

std::vector<nb::object*> Persistent::held() {
  std::vector<nb::object*> all{&owner, &again};
  for (nb::object* each : prepared.held()) all.push_back(each);
  return all;
}

namespace {

PyObject* call_again(PyObject* self, PyObject* args, PyObject* keywords) {
  if (PyTuple_GET_SIZE(args) != 0 || (keywords != nullptr && PyDict_GET_SIZE(keywords) != 0)) {
    PyErr_SetString(PyExc_TypeError, "a persistent call takes no arguments: its arrays were given when it was made");
    return nullptr;
  }
  try {
    return nb::inst_ptr<Persistent>(self)->call().release().ptr();
  } catch (...) {
    restore_error();
    return nullptr;
  }
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse<Persistent>)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear<Persistent>)},
                       {Py_tp_call, reinterpret_cast<void*>(call_again)},
                       {0, nullptr}};

}  // namespace

void bind_persistent(nb::module_& m) {
  nb::class_<Persistent>(m, "Persistent", nb::type_slots(slots),
                         "A call that was prepared, and is made by calling this. See Group.all_reduce_init.")
      .def(
          "__init__",
          [](Persistent* self, nb::object session, nb::object prepared, nb::object again) {
            new (self) Persistent{nb::cast<Session&>(session), session,
                                  prepared.is_none() ? Prepared{} : nb::cast<Prepared&>(prepared), again};
          },
          "session"_a, "prepared"_a.none(), "again"_a);
}

}  // namespace hocket
