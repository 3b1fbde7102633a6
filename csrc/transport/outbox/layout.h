// How an outbox is laid out: endpoint.h has the picture.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/outbox/recording.h"
#include "transport/outbox/stream.h"

namespace hocket {

constexpr uint64_t line = 64, page = 4096;
constexpr uint64_t depth = 64;      // descriptors per channel
constexpr uint64_t board_size = 4;  // nobody is ever more than one call ahead: it waits for all to enter
constexpr uint64_t text_count = 64, text_bytes = 4096;
constexpr uint64_t reason_bytes = 2048;
constexpr uint64_t activity_bytes = 512;

constexpr uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

struct alignas(line) Descriptor {
  static constexpr uint64_t room = 32;  // bytes that fit in here
  std::atomic<uint64_t> turn;           // 1 + the message's number in its channel, once it is there
  uint64_t call;
  uint64_t bytes;
  uint32_t place;
  uint32_t kind;  // where the bytes are; landed in memory of this process: in a mirror alone
  enum : uint32_t { here, slot, view, put, landed };
  union {
    uint64_t offset;  // in the slots or the arena; of a put, in the reader's arena; landed: an address
    std::byte payload[room];
  };
};
static_assert(sizeof(Descriptor) == line);

struct Outbox {
  struct alignas(line) Entry {  // a call that this rank entered
    std::atomic<uint64_t> call;
    std::atomic<uint64_t> fingerprint;
    std::atomic<uint64_t> out;  // where its output lies in its arena; 0: not there
  };
  struct alignas(line) Count {
    std::atomic<uint64_t> read;  // messages from that peer, all in all
    std::atomic<int32_t> pid;    // of that peer, where it runs on this host
  };
  struct Text {
    std::atomic<uint64_t> fingerprint;
    char text[text_bytes - 8];
  };
  struct alignas(line) Doing {      // activity.h
    std::atomic<uint64_t> version;  // odd while it is written
    std::atomic<int64_t> since;     // by the clock of the host
    std::atomic<uint64_t> text[activity_bytes / 8];
  };

  Recording::Header header;
  alignas(line) std::atomic<uint32_t> bell;
  alignas(line) std::atomic<uint32_t> sleepers;
  alignas(line) std::atomic<uint32_t> cpu;   // 1 + the core on which this rank last waited
  alignas(line) std::atomic<uint64_t> beat;  // counted up while this rank waits,
  std::atomic<int32_t> waits_for;            // for this one
  alignas(line) std::atomic<uint32_t> left;
  std::atomic<uint32_t> poisoned;  // 1 + Failure::Kind, once the rest is there:
  uint64_t until;                  // the first call that this rank has not completed,
  int32_t culprit;                 // and why not
  char reason[reason_bytes];
  Entry board[board_size];
  Entry waits;  // the call that this rank has not entered yet, because another one must tell what it is
  Text texts[text_count];
  Doing doing;
  Recording recording;

  Count* counts() { return reinterpret_cast<Count*>(this + 1); }
  Descriptor* descriptors(int size, int peer) {
    return reinterpret_cast<Descriptor*>(counts() + size) + static_cast<uint64_t>(peer) * depth;
  }
  std::byte* slots(int size) { return reinterpret_cast<std::byte*>(descriptors(size, size)); }
};

// Where the arena begins in an outbox: behind all else, on a page.
inline uint64_t arena_offset(int size, uint64_t slots) {
  const uint64_t channels = static_cast<uint64_t>(size) * (sizeof(Outbox::Count) + depth * sizeof(Descriptor));
  return round_up(sizeof(Outbox) + channels + slots + shm::Region::bytes(size), page);
}

}  // namespace hocket
