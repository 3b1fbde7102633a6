// How an outbox is laid out: endpoint.h has the picture.
#pragma once

#include <unistd.h>

#include <atomic>
#include <bitset>
#include <cstddef>
#include <cstdint>

#include "transport/outbox/recording.h"
#include "transport/outbox/seqlock.h"
#include "transport/outbox/stream.h"

namespace hocket {

constexpr uint64_t line = 64;
inline const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));  // of 64 KiB on some aarch64
constexpr uint64_t depth = 64;                                          // descriptors per channel
constexpr uint64_t board_size = 4;  // nobody is ever more than one call ahead of what another one waits for, or is in
constexpr uint64_t text_count = 64, text_bytes = 4096;
constexpr uint64_t reason_bytes = 2048;
constexpr uint64_t activity_bytes = 512;
constexpr int most_ranks = 4096;  // of a group
constexpr int attempts = 8;       // of those that are left to form a new group, in which they settle on two things each
constexpr int rounds = 1 + 2 * attempts;
constexpr uint64_t card_bytes = 1024;

using Ranks = std::bitset<most_ranks>;

constexpr uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

// What is written next time, and others have read, or nobody for long: its lines are this core's by then.
inline void fetch_to_write(const void* at, uint64_t bytes = 1) {
  for (uint64_t i = 0; i < bytes; i += line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(static_cast<const char*>(at)[i]));
#else
    __builtin_prefetch(static_cast<const char*>(at) + i, 1);
#endif
  }
}

struct alignas(line) Descriptor {
  static constexpr uint64_t room = 32;  // bytes that fit in here
  std::atomic<uint64_t> turn;           // 1 + the message's number in its channel, once it is there
  uint64_t call;
  uint64_t bytes;
  uint32_t place;
  uint32_t kind;  // where the bytes are: lent, in slots that the reader writes to; landed, in a mirror alone, in memory
                  // of this process; offered, in memory of the sender's, or with all that is to come of the transfer;
                  // passed, in slots that pass from rank to rank, of the sender's outbox, or of the reader's
  enum : uint32_t { here, slot, view, put, landed, lent, offered, offered_whole, passed, passed_back };
  union {
    uint64_t offset;  // in the slots or the arena; of a put, in the reader's arena; landed and offered: an address
    std::byte payload[room];
  };
};
static_assert(sizeof(Descriptor) == line);

struct Outbox {
  struct alignas(line) Entry {  // a call that this rank entered
    std::atomic<uint64_t> call;
    std::atomic<uint64_t> fingerprint;
    std::atomic<uint64_t> out;   // where its output lies in its arena; 0: not there
    std::atomic<uint32_t> said;  // how the next such call sends
  };
  struct alignas(line) Count {
    std::atomic<uint64_t> read;      // messages from that peer, all in all
    std::atomic<int32_t> pid;        // of that peer, where it runs on this host
    std::atomic<int32_t> duel;       // where it does, and has a higher rank: 1 + which of the two has put out the other
    std::atomic<uint32_t> may_read;  // where it does: whether the kernel was seen to let this rank copy its memory
  };
  struct Beacon {  // what foreign.h takes for one: who can copy it, can copy what is offered
    std::atomic<uint64_t> number, address;
  };
  struct Text {
    std::atomic<uint64_t> fingerprint;
    char text[text_bytes - 8];
  };
  struct Doing {    // activity.h
    int64_t since;  // by the clock of the host
    char text[activity_bytes];
  };
  struct Reason {  // why a group can go no further
    uint32_t kind;
    int32_t culprit;
    char text[reason_bytes];
  };
  struct Finding {                // a rank's own reason
    std::atomic<uint32_t> there;  // once the rest is
    Reason why;
    Ranks lost;
  };
  struct Stand {  // what a rank holds of a failure, in a group of several hosts: settlement.h
    enum Stage : uint32_t { none, settling, settled, evicted };
    Stage stage;
    uint64_t completed;  // settling: by this rank; settled: by all that are left,
    uint64_t reached;    // and by any of them
    Ranks lost;
    Reason why;  // settled
  };
  struct Note {  // of a rank that is about to form a new group
    uint32_t attempt;
    uint32_t formed;  // whether its own links are there
    uint32_t bytes;
    char card[card_bytes];  // where the others find it
  };

  Recording::Header header;
  alignas(line) std::atomic<uint32_t> bell;
  alignas(line) std::atomic<uint32_t> sleepers;
  alignas(line) std::atomic<uint32_t> cpu;   // 1 + the core on which this rank last waited
  alignas(line) std::atomic<uint64_t> beat;  // counted up while this rank waits,
  std::atomic<int32_t> waits_for;            // for this one
  alignas(line) Beacon beacon;
  alignas(line) std::atomic<uint32_t> left;
  alignas(line) std::atomic<uint64_t> gate;  // the last call that this rank completed; and `shut`: it completes no more
  static constexpr uint64_t shut = uint64_t{1} << 63;
  // settlement.h: what ended the group, and what is settled after that
  std::atomic<uint32_t>
      verdicts[rounds];  // in that of rank 0: 1 + the rank whose finding counts, where all share memory
  Finding findings[rounds];
  Seqlock<Stand> stands[rounds];
  Seqlock<Note> note;
  std::atomic<uint64_t> affairs;  // counted up when one of these three has something new
  Entry board[board_size];
  Entry waits;  // the call that this rank has not entered yet, because another one must tell what it is
  Text texts[text_count];
  Seqlock<Doing> doing;
  Recording recording;

  Count* counts() { return reinterpret_cast<Count*>(this + 1); }
  Descriptor* descriptors(int size, int peer) {
    return reinterpret_cast<Descriptor*>(counts() + size) + static_cast<uint64_t>(peer) * depth;
  }
  std::byte* slots(int size) { return reinterpret_cast<std::byte*>(descriptors(size, size)); }
};

// Where the slots of two ranks lie that pass from one to the other: behind the mailbox, and as many as those that do
// not.
inline uint64_t passing_offset(int size, uint64_t slots) {
  const uint64_t channels = static_cast<uint64_t>(size) * (sizeof(Outbox::Count) + depth * sizeof(Descriptor));
  return round_up(sizeof(Outbox) + channels + slots + shm::Region::bytes(size), page);
}

// Where the arena begins in an outbox: behind all else, on a page.
inline uint64_t arena_offset(int size, uint64_t slots) {
  return passing_offset(size, slots) + (size == 2 ? round_up(slots, page) : 0);
}

}  // namespace hocket
