#include "wait/failpoint.h"

#ifdef HOCKET_FAILPOINTS

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>

namespace hocket {

namespace {

struct Order {
  const std::string step;
  const int signal;  // 0: none
  const double seconds;
  std::atomic<int> visits;  // that are left until it happens
};

std::atomic<Order*> order{nullptr};

void carry_out(const Order& due) {
  if (due.signal == SIGINT) {
    kill(getpid(), SIGINT);  // for the thread that takes it
  } else if (due.signal != 0) {
    raise(due.signal);  // before this thread goes one step further
  } else if (due.seconds < 0) {
    _exit(0);
  } else {
    std::this_thread::sleep_for(std::chrono::duration<double>(due.seconds));
  }
}

// Visits that are left before this one.
int countdown(const char* step) {
  Order* const now = order.load(std::memory_order_acquire);
  return now != nullptr && now->step == step ? now->visits.fetch_sub(1) - 1 : 1;
}

// The same numbers in each process.
uint32_t draw() {
  static std::atomic<uint32_t> drawn{0};
  return (drawn.fetch_add(1) + 1) * 2654435761u >> 8;
}

}  // namespace

bool is_armed(const char* step) {
  const Order* const now = order.load(std::memory_order_acquire);
  return now != nullptr && now->visits.load(std::memory_order_relaxed) > 0 && now->step == step;
}

void pass(const char* step) {
  Order* const now = order.load(std::memory_order_acquire);
  if (now != nullptr && now->step == step && now->visits.fetch_sub(1) == 1) carry_out(*now);
}

bool is_due(const char* step) { return countdown(step) == 0; }

bool is_past(const char* step) { return countdown(step) <= 0; }

std::span<iovec> a_few(std::span<iovec> parts) {
  size_t left = 1 + draw() % 3000, count = 0;
  for (; count < parts.size() && left != 0; ++count) {
    parts[count].iov_len = std::min(parts[count].iov_len, left);
    left -= parts[count].iov_len;
  }
  return parts.first(count);
}

void flip(std::span<const iovec> parts, ssize_t bytes) {
  size_t at = draw() % static_cast<size_t>(bytes);
  for (const iovec& part : parts) {
    if (at < part.iov_len) {
      static_cast<std::byte*>(part.iov_base)[at] ^= std::byte{1} << draw() % 8;
      return;
    }
    at -= part.iov_len;
  }
}

}  // namespace hocket

extern "C" {

// At the visit of that number, counted from now on: the signal is sent to this process; 0: it exits where `seconds` are
// negative, or else sleeps for so long. It is the only order from now on; visit 0: there is none.
__attribute__((visibility("default"))) void hocket_arm(const char* step, int visit, int signal, double seconds) {
  // None is freed: another thread may be at that step.
  hocket::order.store(visit > 0 ? new hocket::Order{step, signal, seconds, visit} : nullptr, std::memory_order_release);
}

}  // extern "C"

#endif
