#include "transport/outbox/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace hocket {

void Recorder::sign(uint64_t key, const std::string& host, const std::vector<int32_t>& pids) {
  Recording::Header& header = own_.header;
  header.layout = Recording::layout;
  header.bytes = sizeof(Outbox);
  header.key = key;
  header.ticks = ticks();
  header.clock = Clock::now().time_since_epoch().count();
  header.rank = rank_;
  header.size = size_;
  header.pid = static_cast<int32_t>(getpid());
  std::memset(header.host, 0, sizeof header.host);
  std::memcpy(header.host, host.data(), std::min(host.size(), sizeof header.host - 1));
  for (int peer = 0; peer < size_ && peer < static_cast<int>(pids.size()); ++peer) {
    own_.counts()[peer].pid.store(pids[peer], std::memory_order_relaxed);
  }
  header.magic.store(Recording::magic, std::memory_order_release);
}

// Near to where its fingerprint points: where it lies already, else in an empty place, else in that of another one.
void Recorder::name(uint64_t fingerprint, const std::string& title) {
  Recording::Title* to = nullptr;
  for (uint64_t i = 0; i < Recording::titles_near; ++i) {
    Recording::Title& t = own_.recording.titles[(fingerprint + i) % Recording::titles_kept];
    const uint64_t found = t.fingerprint.load(std::memory_order_relaxed);
    if (found == fingerprint) return;
    if (to == nullptr && found == 0) to = &t;
  }
  if (to == nullptr) {
    to = &own_.recording.titles[(fingerprint + titles_++ % Recording::titles_near) % Recording::titles_kept];
  }
  to->fingerprint.store(0, std::memory_order_release);
  to->text.put(to->text.copied(title));
  to->fingerprint.store(fingerprint, std::memory_order_release);
}

void Recorder::fail() {
  if (forks() != born_) return;
  Recording::Call* const call = open_.exchange(nullptr, std::memory_order_relaxed);
  if (call == nullptr) return;
  call->failed.store(1, std::memory_order_relaxed);
  call->left.store(ticks(), std::memory_order_relaxed);
}

void Recorder::report(const void* by, uint64_t call, const std::string& text, const std::string& place,
                      Clock::time_point since) {
  if (forks() != born_) return;
  const uint64_t at = keep(place);
  if (call != 0) {
    Recording::Call& its = own_.recording.calls[call % Recording::calls_kept];
    if (its.number.load(std::memory_order_relaxed) == call) its.place.store(at, std::memory_order_relaxed);
    return;
  }
  const uint64_t number = ++waits_;
  Recording::Wait& wait = own_.recording.waits[number % Recording::waits_kept];
  waiting_[number % Recording::waits_kept] = by;
  wait.number.store(0, std::memory_order_release);
  wait.begun.store(since.time_since_epoch().count(), std::memory_order_relaxed);
  wait.ended.store(0, std::memory_order_relaxed);
  wait.place.store(at, std::memory_order_relaxed);
  wait.text.put(wait.text.copied(text));
  wait.number.store(number, std::memory_order_release);
}

void Recorder::retract(const void* by) {
  if (forks() != born_) return;
  for (uint64_t i = 0; i < Recording::waits_kept; ++i) {
    if (waiting_[i] != by) continue;
    waiting_[i] = nullptr;
    own_.recording.waits[i].ended.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
}

// The number of a place: that of an equal one, where it is still there.
uint64_t Recorder::keep(const std::string& place) {
  for (const Recording::Place& known : own_.recording.places) {
    const uint64_t number = known.number.load(std::memory_order_relaxed);
    if (number != 0 && known.text.get() == place) return number;
  }
  const uint64_t number = ++places_;
  Recording::Place& to = own_.recording.places[number % Recording::places_kept];
  to.number.store(0, std::memory_order_release);
  to.text.put(to.text.copied(place));
  to.number.store(number, std::memory_order_release);
  return number;
}

}  // namespace hocket
