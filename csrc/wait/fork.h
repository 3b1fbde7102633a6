// What was made before a fork belongs to the parent alone. So whoever makes something remembers when, and looks.
#pragma once

#include <atomic>

namespace hocket {

extern std::atomic<int> births;

// How many forks lie between this process and the ancestor that loaded this code.
inline int forks() { return births.load(std::memory_order_relaxed); }

}  // namespace hocket
