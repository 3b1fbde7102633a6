// Streams of messages through shared memory, between the ranks of one host.
//
// Each rank owns a region that all ranks of the group have mapped; nobody but its owner writes it, but for the batons.
//
//   region of rank r   ┌ lanes: published r→0, r→1, … ┬ counts: consumed 0→r, 1→r, … ┬ rings r→0, r→1, … ┬ batons r–0,
//   r–1, … ┐
//
// A ring is a stream of bytes: header, meta, payload, each message padded to cache lines. Positions count bytes since
// the beginning of time and move by whole cache lines. The reader trusts nothing it reads: a ring that was overwritten
// is found out before a length is used.
//
// A baton is memory that lies beside two rings, in the region of the lower of two ranks. A message of whoever has it is
// written there in place of the ring, whose room it takes all the same, and who has read it has the baton: its lines
// are in that core's caches, where the next message to the other rank is written at once. Who does not get it back
// sends as if there were none. docs/decisions/0036 has the figures.
//
// Between processes only the lanes and counts are shared, and these are atomic; what lies in a ring belongs to the
// writer from `consumed` on and to the reader up to `published`. Within a rank the mailbox's lock is the guard.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/stream.h"

namespace hocket::shm {

inline constexpr uint64_t stream_line = 64;
inline constexpr uint64_t short_bytes = 1024 << 10;  // of a message that is sent, and received, in one go: of a baton
inline constexpr uint64_t piece_bytes = 64 << 10;    // published at once, so that both ends copy at the same time
inline constexpr uint64_t ring_bytes = short_bytes + piece_bytes;  // room for such a message and its header

// In the writer's region.
struct alignas(stream_line) Lane {
  std::atomic<uint64_t> published;  // position up to which the ring is written
  std::atomic<uint32_t> broken;     // not 0: the writer has stopped in the middle of a message, and this says why
};

// In the reader's region.
struct alignas(stream_line) Consumed {
  std::atomic<uint64_t> position;     // up to which the ring is read
  std::atomic<uint32_t> past_caches;  // whether the reader would have the ring written past the caches
};

// One rank's region; indices are the peers.
struct Region {
  std::byte* begin;
  int size;
  static uint64_t bytes(int size) {
    return static_cast<uint64_t>(size) * (sizeof(Lane) + sizeof(Consumed) + ring_bytes + short_bytes);
  }
  Lane& lane(int peer) const { return reinterpret_cast<Lane*>(begin)[peer]; }
  Consumed& consumed(int peer) const { return reinterpret_cast<Consumed*>(&lane(size))[peer]; }
  std::byte* ring(int peer) const { return reinterpret_cast<std::byte*>(&consumed(size)) + peer * ring_bytes; }
  std::byte* baton(int peer) const { return ring(size) + peer * short_bytes; }
};

// The streams of `rank` to and from each peer, by rank. regions[r] is rank r's as mapped here: Region::bytes(size)
// bytes, aligned to 64, zero before anyone uses them. near[r]: that is the same memory as there.
std::vector<Stream> streams(int rank, const std::vector<std::byte*>& regions, const std::vector<bool>& near);

}  // namespace hocket::shm
