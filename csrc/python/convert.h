// What the door to Python does to arguments: addresses cross it as integers, times as seconds, ranks as small numbers.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <climits>
#include <cstdint>

#include "wait/wait.h"

namespace hocket {

template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

inline Deadline in(double seconds) {
  constexpr double longest = 3e8;  // ten years: later than that the clock would overflow
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(
                            std::chrono::duration<double>(std::min(std::max(0.0, seconds), longest)));
}

// A small number that is none but itself; -1 where it is something else.
inline int number(nanobind::handle h) {
  if (!PyLong_CheckExact(h.ptr())) return -1;
  int overflow;
  const long value = PyLong_AsLongAndOverflow(h.ptr(), &overflow);
  return overflow != 0 || value < 0 || value > INT_MAX ? -1 : static_cast<int>(value);
}

}  // namespace hocket
