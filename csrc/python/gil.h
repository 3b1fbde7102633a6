// Python's lock, taken and given back so that the end of the interpreter is survived.
//
// When Python ends, a thread that still asks for its lock never gets it: up to Python 3.13 it is ended there and then,
// by unwinding its stack, which through frames of C++ means std::terminate; since 3.14 it is hung for ever. Here it is
// hung for ever in all of them: the process is about to end, and takes its threads with it.
#pragma once

#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace hocket {

[[noreturn]] inline void hang() {
  for (;;) pause();
}

// For everything that may run Python code, or wait for the lock.
template <class Function>
decltype(auto) with_python(Function&& function) {
  try {
    return function();
  } catch (abi::__forced_unwind&) {
    hang();
  }
}

// Python's lock is given back for as long as this lives.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  ~Unlocked() {
    with_python([this] { PyEval_RestoreThread(state_); });
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* const state_;
};

// Python's lock is held for as long as this lives.
class Locked {
 public:
  Locked() {
    if (!Py_IsInitialized()) hang();
    with_python([this] { state_ = PyGILState_Ensure(); });
  }
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

}  // namespace hocket
