// Python's lock, taken and given back so that the end of the interpreter is survived.
//
// When Python ends, a thread that still asks for its lock never gets it: up to Python 3.13 it is ended there and then,
// by unwinding its stack, which through frames of C++ means std::terminate; since 3.14 it is hung for ever. Here it is
// hung for ever in all of them: the process is about to end, and takes its threads with it.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <exception>
#include <type_traits>

#include "wait/wait.h"

namespace hocket {

[[noreturn]] inline void hang() {
  for (;;) pause();
}

// Hangs a thread that is unwound because it is ended, and lets errors pass. A destructor does so, not a handler: the
// end of a thread may come inside of a handler, where C++ allows no other for what is not its own.
class Survivor {
 public:
  ~Survivor() {
    if (!back_ && std::uncaught_exceptions() == errors_) hang();
  }
  void came_back() { back_ = true; }

 private:
  const int errors_ = std::uncaught_exceptions();
  bool back_ = false;
};

// For everything that may run Python code, or wait for the lock.
template <class Function>
auto with_python(Function&& function) {
  Survivor survivor;
  if constexpr (std::is_void_v<decltype(function())>) {
    function();
    survivor.came_back();
  } else {
    auto result = function();
    survivor.came_back();
    return result;
  }
}

// Python's lock is given back for as long as this lives. What most likely is over in a moment gives it back only where
// that proves wrong: to give it back, and to take it again, is a tenth of the shortest calls.
class Unlocked : Hold {
 public:
  enum When { at_once, in_a_wait };

  explicit Unlocked(When when = at_once) : Hold(when == in_a_wait) {
    if (when == at_once) give_back();
  }
  ~Unlocked() {
    if (state_ != nullptr) with_python([this] { PyEval_RestoreThread(state_); });
  }

 private:
  void give_back() final { state_ = PyEval_SaveThread(); }

  PyThreadState* state_ = nullptr;
};

// Python's lock is held for as long as this lives.
class Locked : Hold {
 public:
  Locked() : Hold(false) {
    if (!Py_IsInitialized()) hang();
    with_python([this] { state_ = PyGILState_Ensure(); });
  }
  ~Locked() { PyGILState_Release(state_); }

 private:
  void give_back() final {}

  PyGILState_STATE state_;
};

}  // namespace hocket
