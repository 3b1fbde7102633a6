// What the mailbox moves: operations, which callers begin, and the messages that arrive for them.
//
// All of both is guarded by the mailbox's lock, but for what is const, and `finished`, which anyone may look at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "messages/mailbox.h"

namespace hocket {

// A message that has begun to arrive.
struct Mailbox::Arrival {
  explicit Arrival(Envelope described) : envelope(std::move(described)) {}

  const Envelope envelope;
  uint64_t number = 0;  // of arrival
  // Where its payload goes. One that is still in the stream keeps what comes behind it waiting; that to oneself lies in
  // the sender's memory then.
  enum { in_stream, on_heap, in_memory, nowhere } where = in_stream;
  std::byte* target = nullptr;
  uint64_t arrived = 0;  // bytes of it
  std::unique_ptr<std::byte[]> heap{};
  bool counted = false;  // among what its source may have on the heap unclaimed

  bool complete() const { return arrived == envelope.bytes; }

  // Goes to this memory from now on, and what has arrived already too.
  void redirect(std::byte* to) {
    if (arrived > 0) std::memmove(to, target, arrived);
    target = to;
    where = in_memory;
    heap.reset();
  }

  // False if there is no memory for it: it stays where it is.
  bool keep() {
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[envelope.bytes]);
    if (!memory) return false;
    if (arrived > 0) std::memcpy(memory.get(), target, arrived);
    heap = std::move(memory);
    target = heap.get();
    where = on_heap;
    return true;
  }

  void drop() {
    target = nullptr;
    where = nowhere;
    heap.reset();
  }
};

struct Mailbox::Operation {
  // An open receive has no memory yet; a forgotten one never will: its message is dropped.
  enum Kind { send, receive, open_receive, forgotten_receive };

  Operation(Kind k, int p, int64_t t, std::string m, std::byte* d, uint64_t n, Memory kept, Deadline until)
      : kind(k), peer(p), tag(t), meta(std::move(m)), data(d), bytes(n), memory(std::move(kept)), deadline(until) {}

  Kind kind;
  const int peer;
  const int64_t tag;
  const std::string meta;
  std::byte* const data;
  const uint64_t bytes;
  Memory memory;                       // keeps `data` alive until it is finished
  const Deadline deadline;             // of a send: how long the mailbox waits for it when it closes
  uint64_t number = 0;                 // of a receive, in the order of posting
  bool begun = false;                  // a send: whether its header is in the stream
  uint64_t moved = 0;                  // a send: payload that is in the stream
  std::shared_ptr<Arrival> message{};  // a receive: what it has claimed
  std::optional<Failure> failure{};
  bool fits = false;                  // a receive: what it has claimed goes to its memory
  bool touched = false;               // it failed when a part of that was there
  std::atomic<bool> finished{false};  // set last: who sees it may read all else
};

}  // namespace hocket
