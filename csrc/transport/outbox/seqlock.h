// A sequence lock over a plain value: one thread writes, any thread of any rank reads, and nobody waits.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "wait/failpoint.h"

namespace hocket {

template <class T>
class Seqlock {
  static_assert(std::is_trivially_copyable_v<T>);
  static constexpr size_t words = (sizeof(T) + 7) / 8;

 public:
  void write(const T& value) {
    std::array<uint64_t, words> copy{};
    std::memcpy(copy.data(), &value, sizeof value);
    const uint64_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);  // odd while it is written
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < words; ++i) words_[i].store(copy[i], std::memory_order_relaxed);
    FAILPOINT(half_written);
    version_.store(version + 2, std::memory_order_release);
  }

  // False while it is being written.
  bool read(T& value) const {
    const uint64_t before = version();
    std::array<uint64_t, words> copy;
    for (size_t i = 0; i < words; ++i) copy[i] = words_[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 != 0 || version_.load(std::memory_order_relaxed) != before) return false;
    std::memcpy(static_cast<void*>(&value), copy.data(), sizeof value);
    return true;
  }

  uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> version_;
  std::array<std::atomic<uint64_t>, words> words_;
};

}  // namespace hocket
