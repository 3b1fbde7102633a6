// Channels through shared memory, between the ranks of one host.
//
// Each rank owns an *outbox*, a memory file that all ranks of the group have mapped. Nobody but its owner writes it,
// but for the bell, which any rank may ring.
//
//   outbox of rank r   ┌ header ┬ call board ┬ call texts ┬ read counts ┬ descriptors r→0, … ┬ slots ┬ mailbox ┬ arena
//   ┐
//
//   A send stages its bytes once into the slots and posts one descriptor to each receiver; a receiver works straight
//   from the slot and then counts the message as read. Bytes that fit into a descriptor's cache line travel there. The
//   slots are one ring of bytes: a message's memory is free once all its receivers, and those of every message before
//   it, have read theirs. What lies in the arena is not staged at all: its descriptor says where it is.
//
// The call board is how wrong use is found: on entry of a call each rank publishes its fingerprint, and no call ends
// before this rank has seen that every other rank made the same one.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/port.h"
#include "messages/mailbox.h"

namespace hocket {

struct Outbox;      // the layout, in outbox.h
struct Descriptor;  // one message, one cache line

// One mapped memory file.
class Mapping {
 public:
  Mapping(int fd, uint64_t bytes);  // throws Failure when the file is shorter than `bytes`
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_;
  uint64_t bytes_;
};

class SharedMemory : public Port {
 public:
  // fds[r] is rank r's outbox; sockets[r] stays connected to rank r for as long as it lives (-1 at the own rank).
  // Neither is owned. `slots` is the bytes of the ring of slots, `arena` those of the arena: memory that costs nothing
  // until it is used. `signals` is called now and then while a wait lasts; it may throw.
  SharedMemory(int rank, const std::vector<int>& fds, std::vector<int> sockets, uint64_t slots, uint64_t arena,
               std::function<void()> signals);
  ~SharedMemory() override;

  static uint64_t outbox_bytes(int size, uint64_t slots, uint64_t arena);
  std::byte* arena() const { return arena_; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  Mailbox& mailbox() { return *mailbox_; }

  // The call board. Texts are kept by fingerprint; their first line is what an error prints of a call.
  void describe(uint64_t fingerprint, const std::string& text);
  // The next call, with the output here; returns its number.
  uint64_t enter(uint64_t fingerprint, const std::byte* out = nullptr);
  uint64_t number() const { return call_.load(std::memory_order_relaxed); }
  std::string title() const { return title(rank_, number()); }
  // Waits until each of `peers` has entered this call, and throws Failure::mismatch if one means something else by it.
  void meet(Peers peers, Deadline deadline);
  // Waits until `peer` has entered the next call, and returns its fingerprint. `expected` describes what this rank
  // takes that call for: if `peer` waits likewise, for this rank or another, they differ in who is to tell.
  uint64_t next(int peer, uint64_t expected, Deadline deadline);
  // The same, and returns its text: so a rank learns what only the root was told.
  std::string learn(int peer, const std::string& expected, Deadline deadline);

  // Tells all ranks why this group is over. The first reason stays.
  void poison(const Failure& failure);
  // Tells all ranks that this one goes in peace.
  void leave();

  std::byte* reserve(Peers peers, uint64_t bytes) override;
  void post(Peers peers, uint64_t bytes, Label label) override;
  bool reachable(const std::byte* data, uint64_t bytes) const override;
  bool post_view(Peers peers, const std::byte* data, uint64_t bytes, Label label) override;
  std::byte* target(int peer) override;
  void post_put(int peer, const std::byte* written, uint64_t bytes, Label label) override;
  uint64_t posted(int peer) const override;
  bool consumed(int peer, uint64_t count) override;
  bool peek(int peer, Message& message) override;
  void release(int peer) override;
  [[noreturn]] void mismatch(int peer, const Message& message, Label expected, uint64_t bytes) override;
  uint64_t capacity() const override { return slots_ / 2; }

  void ring(int peer) override;
  bool shares_core(int peer) override;
  uint32_t announce() override;
  void sleep(uint32_t seen, std::chrono::microseconds slice) override;
  void withdraw() override;
  void check(int peer, Deadline deadline) override;

 private:
  struct Channel;  // this rank's view of its two channels with one peer

  bool all_read();
  bool is_one_too_many(uint32_t here) const;
  bool room(Peers peers, uint64_t end);
  void publish(Peers peers, uint64_t bytes, Label label, uint32_t kind, uint64_t offset);
  void compare(int peer);
  [[noreturn]] void differ(int peer, const std::string& ours, const std::string& theirs);
  void check_peers(int waited_for);
  void check_sockets();
  void gone(int peer, const char* how);
  std::string text(int peer, uint64_t call) const;
  std::string text_of(int peer, uint64_t fingerprint) const;
  std::string title(int peer, uint64_t call) const;  // its first line

  const int rank_, size_;
  const uint64_t slots_, arena_bytes_;
  const uint64_t front_;  // bytes of the slots that short messages keep to
  const bool crowded_;
  const int share_;  // ranks that a core has to bear
  std::vector<std::unique_ptr<Mapping>> mappings_;
  std::vector<Outbox*> boxes_;
  std::vector<Channel> channels_;
  std::vector<int> sockets_;
  std::function<void()> signals_;
  std::unique_ptr<Mailbox> mailbox_;
  std::byte* ring_;  // the slots
  std::byte* arena_;
  uint64_t head_ = 0;      // end of what was posted, in bytes since the beginning of time
  uint64_t tail_ = 0;      // end of what is known to be read by all
  uint64_t reserved_ = 0;  // begin of what is reserved
  bool inlined_ = false;   // whether the reservation is `inline_`
  alignas(64) std::byte inline_[64];
  std::atomic<uint64_t> call_{0};                // the call this rank is in
  std::atomic<Clock::duration::rep> looked_{0};  // when the sockets were last looked at
  std::atomic<Clock::duration::rep> moved_{0};   // when this rank last stepped aside
  std::vector<std::atomic<bool>> gone_;          // peers that were seen to be gone once
};

}  // namespace hocket
