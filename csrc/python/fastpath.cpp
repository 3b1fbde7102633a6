// A method of Group that tries the fast path first. In all other respects it is the function that it was made from,
// which is the slow path:
//
//     @fast_path(ALL_REDUCE)
//     def all_reduce(self, x, op="sum", *, out=None, algorithm=None, ...): ...
//
// It is written against Python's C API, so that it reads the caller's arguments where they lie and packs nothing.
#include <Python.h>
#include <structmember.h>

#include <array>
#include <cstddef>

#include "python/convert.h"
#include "python/gil.h"
#include "python/messages.h"
#include "python/session.h"

namespace hocket {

namespace {

// Names that a call on the fast path may use. Those from `silent` on may only be None or False, and so say nothing.
struct Word {
  enum Name {
    x,
    op,
    dst,
    src,
    out,
    root,
    tag,
    timeout,
    async_op,
    protect,
    algorithm,
    order,
    silent,
    sizes = silent,
    end
  };
};
PyObject* names[Word::end];  // interned, as the names in compiled calls are
PyObject *sum, *zero, *same, *any, *session_of, *messages_of;

struct Grammar {
  std::array<Word::Name, 2> positions;
  unsigned required, allowed;  // bits
};

constexpr unsigned bits(auto... words) { return (0u | ... | (1u << words)); }

constexpr Grammar grammar_of(int method) {
  using W = Word;
  constexpr unsigned always = bits(W::timeout, W::async_op), often = always | bits(W::algorithm, W::out, W::protect),
                     reduces = often | bits(W::x, W::op, W::order);
  switch (method) {
    case Method::all_reduce:
    case Method::scan:
    case Method::exscan:
      return {{W::x, W::op}, bits(W::x), reduces};
    case Method::reduce:
      return {{W::x, W::op}, bits(W::x), reduces | bits(W::root)};
    case Method::reduce_scatter:
      return {{W::x, W::op}, bits(W::x), reduces | bits(W::sizes)};
    case Method::broadcast:
      return {{W::x, W::end}, 0, often | bits(W::x, W::root)};
    case Method::scatter:
      return {{W::x, W::end}, 0, often | bits(W::x, W::root, W::sizes)};
    case Method::gather:
      return {{W::x, W::end}, bits(W::x), often | bits(W::x, W::root, W::sizes)};
    case Method::all_gather:
    case Method::all_to_all:
      return {{W::x, W::end}, bits(W::x), often | bits(W::x, W::sizes)};
    case Method::send:
      return {{W::x, W::dst}, bits(W::x, W::dst), always | bits(W::x, W::dst, W::tag)};
    case Method::recv:
      return {{W::src, W::end}, bits(W::src), always | bits(W::src, W::out, W::tag)};
    default:  // barrier
      return {{W::end, W::end}, 0, always};
  }
}

struct FastPath {
  PyObject_HEAD vectorcallfunc enter;
  PyObject* function;
  PyObject* dict;  // what functools.update_wrapper puts there
  int method;
  Grammar grammar;
};

// The arguments behind `self`, by word; false if there is one that the fast path does not know.
bool understand(const Grammar& grammar, PyObject* const* args, Py_ssize_t count, PyObject* keywords, PyObject** found) {
  if (count > 2) return false;
  unsigned seen = 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Word::Name word = grammar.positions[i];
    if (word == Word::end) return false;
    found[word] = args[i];
    seen |= bits(word);
  }
  const Py_ssize_t named = keywords == nullptr ? 0 : PyTuple_GET_SIZE(keywords);
  for (Py_ssize_t i = 0; i < named; ++i) {
    int word = 0;
    while (word < Word::end && PyTuple_GET_ITEM(keywords, i) != names[word]) ++word;
    if (word == Word::end || (grammar.allowed & ~seen & bits(word)) == 0) return false;
    PyObject* const value = found[word] = args[count + i];
    if (word >= Word::silent && value != Py_None && value != Py_False) return false;
    seen |= bits(word);
  }
  return (grammar.required & ~seen) == 0;
}

nb::object attribute(PyObject* object, PyObject* name) {
  nb::object value = nb::steal(PyObject_GetAttr(object, name));
  if (!value.is_valid()) throw nb::python_error();
  return value;
}

// What a call may take; nothing above zero where only the slow path can tell.
double seconds(PyObject* timeout, const Session& session) {
  if (timeout == Py_None) return session.seconds;
  return PyFloat_CheckExact(timeout) ? PyFloat_AS_DOUBLE(timeout) : 0;
}

// What the call says of itself, or else the group; false where only the slow path can tell.
bool is_protected(PyObject* said, const Session& session, bool& protects) {
  protects = said == Py_None ? session.protects : said == Py_True;
  return said == Py_None || PyBool_Check(said);
}

// Of the operands; false where only the slow path can tell. Words of a program are interned, as these are.
bool is_any_order(PyObject* said, bool& any_order) {
  any_order = said == any;
  return any_order || said == same;
}

nb::object attempt(const FastPath& path, PyObject* group, PyObject* const* found, bool& touched) {
  using W = Word;
  const nb::object miss = nb::borrow(Py_NotImplemented);
  const bool later = found[W::async_op] == Py_True;
  if (!later && found[W::async_op] != Py_False && found[W::async_op] != Py_None) return miss;
  if (path.method == Method::send || path.method == Method::recv) {
    if (later || found[W::timeout] != Py_None) return miss;
    const nb::object held = attribute(group, messages_of);
    Messages& messages = *nb::inst_ptr<Messages>(held);
    return path.method == Method::send ? messages.send_now(found[W::x], found[W::dst], found[W::tag])
                                       : messages.receive_now(found[W::src], found[W::out], found[W::tag], touched);
  }
  const nb::object held = attribute(group, session_of);
  Session& session = *nb::inst_ptr<Session>(held);
  const double within = seconds(found[W::timeout], session);
  bool protects, any_order;
  if (!(within > 0) || !is_protected(found[W::protect], session, protects) ||
      !is_any_order(found[W::order], any_order)) {
    return miss;
  }
  const nb::object algorithm = Arguments::known(found[W::algorithm]);
  const Arguments arguments{path.method,    found[W::x], found[W::op], found[W::out],
                            found[W::root], algorithm,   any_order,    protects};
  return later ? session.begin(held, arguments, within) : session.attempt(arguments, within);
}

// Says it of the error that has been raised, whatever that is.
void tell_touched() {
  nb::python_error error;
  try {
    nb::module_::import_("hocket.errors").attr("touch")(error.value());
  } catch (nb::python_error&) {  // the error counts
  }
  error.restore();
}

PyObject* enter(PyObject* self, PyObject* const* args, size_t flags, PyObject* keywords) {
  const FastPath& path = *reinterpret_cast<FastPath*>(self);
  const Py_ssize_t count = PyVectorcall_NARGS(flags);
  const bool reduces = (path.grammar.allowed & bits(Word::op)) != 0;
  PyObject* found[Word::end] = {
      Py_None, reduces ? sum : Py_None, Py_None, Py_None, Py_None, zero, zero, Py_None, Py_False, Py_None, Py_None,
      same};  // else null
  bool touched = false;
  if (count > 0 && understand(path.grammar, args + 1, count - 1, keywords, found)) {
    try {
      nb::object result = attempt(path, args[0], found, touched);
      if (result.ptr() != Py_NotImplemented) return result.release().ptr();
    } catch (...) {
      restore_error();
      return nullptr;
    }
  }
  PyObject* const result = PyObject_Vectorcall(path.function, args, flags, keywords);
  if (result == nullptr && touched) tell_touched();
  return result;
}

PyObject* bind_to(PyObject* self, PyObject* group, PyObject*) {
  if (group == nullptr || group == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, group);
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  FastPath& path = *reinterpret_cast<FastPath*>(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(path.function);
  Py_VISIT(path.dict);
  return 0;
}

int clear(PyObject* self) {
  FastPath& path = *reinterpret_cast<FastPath*>(self);
  Py_CLEAR(path.function);
  Py_CLEAR(path.dict);
  return 0;
}

void deallocate(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

PyMemberDef members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(FastPath, enter), READONLY, nullptr},
                         {"__dictoffset__", T_PYSSIZET, offsetof(FastPath, dict), READONLY, nullptr},
                         {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                       {Py_tp_descr_get, reinterpret_cast<void*>(bind_to)},
                       {Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                       {Py_tp_dealloc, reinterpret_cast<void*>(deallocate)},
                       {Py_tp_members, members},
                       {Py_tp_getset, attributes},
                       {0, nullptr}};
PyType_Spec spec{"hocket._core.FastPath", sizeof(FastPath), 0,
                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR,
                 slots};

}  // namespace

void bind_fastpath(nb::module_& m) {
  const char* const spelled[Word::end] = {"x",       "op",       "dst",     "src",       "out",   "root", "tag",
                                          "timeout", "async_op", "protect", "algorithm", "order", "sizes"};
  for (int word = 0; word < Word::end; ++word) names[word] = PyUnicode_InternFromString(spelled[word]);
  sum = PyUnicode_InternFromString("sum");
  zero = PyLong_FromLong(0);
  same = PyUnicode_InternFromString("same");
  any = PyUnicode_InternFromString("any");
  session_of = PyUnicode_InternFromString("_session");
  messages_of = PyUnicode_InternFromString("_mail");
  const nb::object type = nb::steal(PyType_FromSpec(&spec));
  if (!type.is_valid()) throw nb::python_error();
  m.attr("FastPath") = type;
  m.def(
      "fast_path",
      [type](int method, nb::object function) {
        auto* made = reinterpret_cast<PyTypeObject*>(type.ptr());
        PyObject* self = made->tp_alloc(made, 0);
        if (self == nullptr) throw nb::python_error();
        FastPath& path = *reinterpret_cast<FastPath*>(self);
        path.enter = enter;
        path.function = function.release().ptr();
        path.method = method;
        path.grammar = grammar_of(method);
        return nb::steal(self);
      },
      nb::arg("method"), nb::arg("function"));
}

}  // namespace hocket
