#include "transport/outbox/activity.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace hocket {

namespace {

constexpr uint64_t words = activity_bytes / sizeof(uint64_t);

}  // namespace

// A sequence lock: whoever reads while this writes sees the version change.
void write(Outbox::Doing& to, const std::string& text, Clock::time_point since) {
  std::array<uint64_t, words> bytes{};
  std::memcpy(bytes.data(), text.data(), std::min<size_t>(text.size(), activity_bytes - 1));
  const uint64_t version = to.version.load(std::memory_order_relaxed);
  to.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  to.since.store(since.time_since_epoch().count(), std::memory_order_relaxed);
  for (uint64_t i = 0; i < words; ++i) to.text[i].store(bytes[i], std::memory_order_relaxed);
  to.version.store(version + 2, std::memory_order_release);
}

bool read(const Outbox::Doing& from, Activity& to) {
  const uint64_t version = from.version.load(std::memory_order_acquire);
  std::array<uint64_t, words> bytes;
  for (uint64_t i = 0; i < words; ++i) bytes[i] = from.text[i].load(std::memory_order_relaxed);
  to.since = Clock::time_point(Clock::duration(from.since.load(std::memory_order_relaxed)));
  std::atomic_thread_fence(std::memory_order_acquire);
  if (version % 2 != 0 || from.version.load(std::memory_order_relaxed) != version) return false;
  const char* const text = reinterpret_cast<const char*>(bytes.data());
  to.text.assign(text, strnlen(text, activity_bytes));
  to.version = version;
  return true;
}

}  // namespace hocket
