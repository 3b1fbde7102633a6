// Texts in memory that ranks share: no longer than there is room for, and ended by a zero where they are believed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "wait/wait.h"

namespace hocket {

// As much of it as there is room for, in UTF-8: whole characters.
inline void put(char* to, uint64_t room, const std::string& text) {
  size_t n = std::min<size_t>(text.size(), room - 1);
  while (n != 0 && n != text.size() && (text[n] & 0xc0) == 0x80) --n;
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

inline std::string get(const char* from, uint64_t room) { return std::string(from, strnlen(from, room)); }

inline std::string in_seconds(Clock::duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace hocket
