// Messages through shared memory.
//
//   A send stages its bytes once into the slots and posts one descriptor to each receiver; a receiver works straight
//   from the slot and then counts the message as read. Bytes that fit into a descriptor's cache line travel there. The
//   slots are one ring of bytes: a message's memory is free once all its receivers, and those of every message before
//   it, have read theirs. What lies in the arena is not staged at all: its descriptor says where it is. Slots that are
//   lent are written by their reader, too, before it counts them as read, and are free when they have been taken back.
//
//   Two ranks have a second ring each, which pass from one to the other: docs/decisions/0036.
//
// Used by the thread that makes the rank's calls, and by no other.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "engine/port.h"
#include "transport/outbox/bell.h"
#include "transport/outbox/board.h"
#include "transport/outbox/layout.h"

namespace hocket {

class Channels : public Port {
 public:
  // slots[r] are the bytes of rank r's.
  Channels(int rank, std::vector<Outbox*> boxes, const std::vector<uint64_t>& slots, uint64_t arena, Bell& bell,
           Board& board);

  std::byte* arena() const { return arena_; }
  uint64_t capacity() const { return slots_ / 2; }  // the most bytes that one message may have

  uint64_t begin(bool pass) override;
  std::byte* reserve(Peers peers, uint64_t bytes) override;
  void post(Peers peers, uint64_t bytes, Label label) override;
  int laggard() const override { return laggard_; }
  bool lends(int peer, uint64_t bytes) const override;
  std::byte* lend(Peers peer, uint64_t bytes) override;
  void take_back() override { ++taken_back_; }
  void stage_all() {
    lending_ = false;
    offering = nothing_offered;
  }
  void offer_all() { offering = all_offered; }
  bool offers(Peers peers, const std::byte* data, uint64_t bytes) const override;
  bool reachable(Peers peers, const std::byte* data, uint64_t bytes) const override;
  bool in_arena(const std::byte* data, uint64_t bytes) const;
  int copy_from(int peer, const std::byte* from, std::byte* to, uint64_t bytes) const;
  bool post_view(Peers peers, const std::byte* data, uint64_t bytes, Label label) override;
  bool post_offer(Peers peers, const std::byte* data, uint64_t bytes, Label label, bool whole) override;
  std::byte* target(int peer) override;
  void post_put(int peer, const std::byte* written, uint64_t bytes, Label label) override;
  uint64_t posted(int peer) const override;
  bool consumed(int peer, uint64_t count) override;
  bool peek(int peer, Message& message) override;
  void release(int peer) override;
  [[noreturn]] void mismatch(int peer, const Message& message, Label expected, uint64_t bytes) override;

 private:
  struct Ring {  // of slots, so many bytes
    std::byte* slots = nullptr;
    uint64_t bytes = 0;
    uint64_t mapped = 0;  // of their pages, known to be mapped here
    uint64_t resume = 0;  // where the last message of ours that was not brief ended
  };
  struct Channel {                        // this rank's view of its two channels with one peer
    Descriptor* send;                     // r → peer, in our outbox
    Descriptor* receive;                  // peer → r, in the peer's
    std::atomic<uint64_t>* read_by_peer;  // how many of ours it has read
    std::atomic<uint64_t>* read_by_us;
    Ring ring;  // the peer's
    bool behind_wire;
    bool tried = false;                   // to copy its memory
    std::byte* arena;                     // the peer's
    uint64_t sent = 0;                    // messages posted,
    uint64_t elsewhere = 0;               // of which so many are in another ring than the last ones,
    uint64_t seen_read = 0;               // and so many known to be read
    uint64_t received = 0;                // messages released
    std::array<uint64_t, depth> begin{};  // where in our slots each posted message begins
    // The first message in this call's ring that is not known to be read; as many as were sent: none.
    uint64_t oldest() const { return std::max(seen_read, elsewhere); }
  };

  std::byte* reserve_slots(Peers peers, uint64_t bytes);
  void turn(uint64_t bytes);
  bool all_read();
  bool room(Peers peers, uint64_t end);
  int reader_of_tail() const;
  void try_to_read(int peer);
  bool show(Peers peers, uint64_t bytes, Label label, uint32_t kind, uint64_t offset);
  void publish(Peers peers, uint64_t bytes, Label label, uint32_t kind, uint64_t offset);

  const std::vector<Outbox*> boxes_;
  const int rank_;
  const uint64_t number_;  // of the beacon
  bool is_one_host_ = true;
  Bell& bell_;
  Board& board_;
  const uint64_t slots_, arena_bytes_;
  const uint64_t brief_;  // bytes of a message that keeps to the front of the slots,
  const uint64_t front_;  // which is so many bytes
  std::vector<Channel> channels_;
  // Our slots; and, of two ranks of one host, those that pass: in the outbox of the first, and of the second.
  std::array<Ring, 3> rings_;
  Ring* ring_ = &rings_[0];          // what this call sends from
  uint64_t passes_ = 0;              // calls whose slots passed
  std::optional<uint64_t> read_at_;  // where the first message began that was read in the last of them
  uint64_t to_fetch_ = 0;            // bytes behind the last message, if it was short, until they are on their way here
  std::byte* arena_;
  uint64_t head_ = 0;                 // end of what was posted, in bytes since the beginning of time
  uint64_t tail_ = 0;                 // end of what is known to be read by all
  uint64_t reserved_ = 0;             // begin of what is reserved
  uint32_t kind_ = Descriptor::slot;  // of what is reserved
  bool lending_ = true;
  uint64_t lent_ = 0, taken_back_ = 0;     // messages since the beginning of time,
  std::array<uint64_t, depth> lent_at_{};  // and where each begins
  int laggard_ = -1;                       // when last there was no room
  alignas(64) std::byte inline_[64];
};

}  // namespace hocket
