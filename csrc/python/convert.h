// How arguments cross between Python and the core: addresses as integers, times as seconds.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <climits>
#include <cstdint>

#include "wait/wait.h"

namespace hocket {

namespace nb = nanobind;

template <class T>
T* pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

inline Deadline after(Clock::time_point begin, double seconds) {
  constexpr double longest = 3e8;  // ten years: later than that the clock would overflow
  return begin + std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(std::min(std::max(0.0, seconds), longest)));
}

inline Clock::time_point before(Clock::time_point end, double seconds) {
  return seconds > 0 ? end - (after(end, seconds) - end) : end;
}

// Of a call that may take so many seconds. To those of a second or more the milliseconds of a tick are nothing.
inline Clock::time_point beginning(double within) { return within < 1 ? Clock::now() : next_tick(); }

inline Deadline in(double seconds) { return after(Clock::now(), seconds); }

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A small number that is none but itself; -1 where it is something else.
inline int number(nb::handle h) {
  if (!PyLong_CheckExact(h.ptr())) return -1;
  int overflow;
  const long value = PyLong_AsLongAndOverflow(h.ptr(), &overflow);
  return overflow != 0 || value < 0 || value > INT_MAX ? -1 : static_cast<int>(value);
}

}  // namespace hocket
