// What the door to Python does to arguments: addresses cross it as integers, times as seconds.
#pragma once

#include <algorithm>
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

}  // namespace hocket
