// What the native tests share: counting, and saying what failed.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <vector>

#include "wait/wait.h"

namespace hocket::testing {

using Bytes = std::vector<std::byte>;

inline std::atomic<size_t> passed{0}, failed{0};

// Counts one assertion; the first few that fail are printed, with `what` streamed one after the other.
template <class... What>
bool check(bool good, const What&... what) {
  if (good) {
    ++passed;
  } else if (++failed <= 20) {
    std::ostringstream line;
    (line << ... << what) << '\n';
    std::fputs(line.str().c_str(), stdout);
  }
  return good;
}

// The last line of every native test, and its exit code.
inline int report() {
  std::printf("%zu passed, %zu failed\n", passed.load(), failed.load());
  return failed != 0;
}

// Long beyond every test: where it passes, a test has failed.
inline Deadline watchdog() { return Clock::now() + std::chrono::seconds(60); }

// A well-mixed function of its arguments: data that differ by rank, place and seed, and choices that can be repeated.
inline uint64_t mix(uint64_t a, uint64_t b = 0, uint64_t c = 0) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xbf58476d1ce4e5b9 + c * 0x94d049bb133111eb + 1;
  for (int i = 0; i < 2; ++i) x = (x ^ (x >> 31)) * 0xd6e8feb86659fd93;
  return x ^ (x >> 32);
}

}  // namespace hocket::testing
