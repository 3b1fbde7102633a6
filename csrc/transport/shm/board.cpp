// The call board: what each rank is doing, and why it stopped. Here wrong use is found.
#include <algorithm>
#include <cstring>

#include "transport/shm/endpoint.h"
#include "transport/shm/layout.h"

namespace hocket {

namespace {

void put(char* to, uint64_t room, const std::string& text) {
  const size_t n = std::min<size_t>(text.size(), room - 1);
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

std::string get(const char* from, uint64_t room) { return std::string(from, strnlen(from, room)); }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void SharedMemory::describe(uint64_t fingerprint, const std::string& text) {
  Outbox::Text& t = boxes_[rank_]->texts[fingerprint % text_count];
  if (t.fingerprint.load(std::memory_order_relaxed) == fingerprint) return;
  t.fingerprint.store(0, std::memory_order_release);
  put(t.text, sizeof t.text, text);
  t.fingerprint.store(fingerprint, std::memory_order_release);
}

uint64_t SharedMemory::enter(uint64_t fingerprint, const std::byte* out) {
  const uint64_t call = number() + 1;
  Outbox::Entry& e = boxes_[rank_]->board[call % board_size];
  e.fingerprint.store(fingerprint, std::memory_order_relaxed);
  e.out.store(reachable(out, Descriptor::room + 1) ? 1 + (out - arena_) : 0, std::memory_order_relaxed);
  e.call.store(call, std::memory_order_release);
  call_.store(call, std::memory_order_release);
  return call;
}

void SharedMemory::meet(Peers peers, Deadline deadline) {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  for (int peer : peers) {
    const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
    Wait wait(*this, deadline);
    while (e.call.load(std::memory_order_acquire) < call) wait.idle(peer);
    compare(peer);
  }
}

uint64_t SharedMemory::next(int peer, uint64_t expected, Deadline deadline) {
  const uint64_t call = number() + 1;
  Outbox::Entry& own = boxes_[rank_]->waits;
  own.fingerprint.store(expected, std::memory_order_relaxed);
  own.call.store(call, std::memory_order_release);
  const Outbox::Entry &theirs = boxes_[peer]->board[call % board_size], &wait_of_theirs = boxes_[peer]->waits;
  Wait wait(*this, deadline);
  while (theirs.call.load(std::memory_order_acquire) < call) {
    if (wait_of_theirs.call.load(std::memory_order_acquire) == call) {
      const uint64_t other = wait_of_theirs.fingerprint.load(std::memory_order_relaxed);
      differ(peer, first_line(text_of(rank_, expected)), first_line(text_of(peer, other)));
    }
    wait.idle(peer);
  }
  return theirs.fingerprint.load(std::memory_order_relaxed);
}

std::string SharedMemory::learn(int peer, const std::string& expected, Deadline deadline) {
  const uint64_t fingerprint = std::hash<std::string>()(expected);
  describe(fingerprint, expected);
  next(peer, fingerprint, deadline);
  return text(peer, number() + 1);
}

// Throws when `peer` is in the same call as we are and means something else by it.
void SharedMemory::compare(int peer) {
  const uint64_t call = call_.load(std::memory_order_acquire);
  const Outbox::Entry& theirs = boxes_[peer]->board[call % board_size];
  const Outbox::Entry& ours = boxes_[rank_]->board[call % board_size];
  if (call == 0 || theirs.call.load(std::memory_order_acquire) != call) return;
  if (theirs.fingerprint.load(std::memory_order_relaxed) == ours.fingerprint.load(std::memory_order_relaxed)) return;
  differ(peer, title(rank_, call), title(peer, call));
}

// Both calls, ours first, one a line.
void SharedMemory::differ(int peer, const std::string& ours, const std::string& theirs) {
  throw Failure{Failure::mismatch, peer, ours + "\n" + theirs};
}

std::string SharedMemory::text(int peer, uint64_t call) const {
  const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
  if (e.call.load(std::memory_order_acquire) != call) return "(another call)";
  return text_of(peer, e.fingerprint.load(std::memory_order_relaxed));
}

std::string SharedMemory::text_of(int peer, uint64_t fingerprint) const {
  const Outbox::Text& t = boxes_[peer]->texts[fingerprint % text_count];
  if (t.fingerprint.load(std::memory_order_acquire) != fingerprint) return "(a call it no longer describes)";
  return get(t.text, sizeof t.text);
}

std::string SharedMemory::title(int peer, uint64_t call) const { return first_line(text(peer, call)); }

void SharedMemory::check_peers(int waited_for) {
  for (int peer = 0; peer < size_; ++peer) {
    const Outbox& box = *boxes_[peer];
    if (const uint32_t poisoned = box.poisoned.load(std::memory_order_acquire)) {
      throw Failure{static_cast<Failure::Kind>(poisoned - 1), box.culprit, get(box.reason, reason_bytes), true};
    }
    if (peer != rank_) compare(peer);
  }
  if (waited_for >= 0 && boxes_[waited_for]->left.load(std::memory_order_acquire)) gone(waited_for, "left");
}

void SharedMemory::poison(const Failure& failure) {
  Outbox& own = *boxes_[rank_];
  if (own.poisoned.load(std::memory_order_relaxed) != 0) return;
  own.culprit = failure.peer;
  put(own.reason, reason_bytes, failure.text);
  own.poisoned.store(1 + failure.kind, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) ring(peer);
}

void SharedMemory::leave() {
  boxes_[rank_]->left.store(1, std::memory_order_release);
  for (int peer = 0; peer < size_; ++peer) ring(peer);
}

}  // namespace hocket
