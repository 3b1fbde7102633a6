// One rank's end of the memory that the ranks of a host share.
//
// Each rank owns an *outbox*, a memory file that all ranks of the group have mapped. Nobody but its owner writes it,
// but for the bell, which any rank may ring, and the arena, where in a call others may write what is to be there.
//
// clang-format off
//   outbox of rank r  ┌ bell, beat, reason ┬ call board ┬ call texts ┬ read counts ┬ descriptors r→0, … ┬ slots ┬ mailbox ┬ arena ┐
// clang-format on
//
// Four parts share it: channels.h moves messages, board.h finds wrong use, bell.h sleeps and wakes, and liveness.h
// knows who is gone. Here they are put together: what waits looks at all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calls/agreement.h"
#include "messages/mailbox.h"
#include "transport/shm/bell.h"
#include "transport/shm/board.h"
#include "transport/shm/channels.h"
#include "transport/shm/liveness.h"
#include "transport/shm/mapping.h"

namespace hocket {

// The parts that a rank's endpoint is put together from; a base, so that they are there before the channels.
struct Parts {
  Parts(int rank, const std::vector<int>& fds, std::vector<int> sockets, std::vector<int> pidfds, uint64_t slots,
        uint64_t arena);

  const int rank, size;
  const uint64_t slots, arena_bytes;
  std::vector<std::unique_ptr<Mapping>> mappings;
  std::vector<Outbox*> boxes;
  Bell bell;
  Board board;
  Liveness liveness;
};

class Endpoint : private Parts, public Channels, public Agreement {
 public:
  // fds[r] is rank r's outbox, which is mapped here and not needed any more then; sockets[r] stays connected to rank r
  // for as long as it lives, and pidfds[r] refers to its process (-1 at the own rank); neither is owned. `slots` is the
  // bytes of the ring of slots, `arena` those of the arena: memory that costs nothing until it is used. `signals` is
  // called now and then while a wait lasts; it may throw.
  Endpoint(int rank, const std::vector<int>& fds, std::vector<int> sockets, std::vector<int> pidfds, uint64_t slots,
           uint64_t arena, std::function<void()> signals);
  ~Endpoint() override;

  static uint64_t outbox_bytes(int size, uint64_t slots, uint64_t arena);

  int rank() const { return Parts::rank; }
  int size() const { return Parts::size; }
  Mailbox& mailbox() { return *mailbox_; }
  // Whole pages of the arena go back to the system, unless something was fenced.
  void give_back(uint64_t begin, uint64_t bytes);
  // No call comes any more, and nothing lies in the arena.
  void disown() { mappings[rank()]->disown(); }
  // The sockets and pidfds are about to be closed.
  void disconnect() { liveness.disconnect(); }

  void describe(uint64_t fingerprint, const std::string& text) override { board.describe(fingerprint, text); }
  uint64_t enter(uint64_t fingerprint, const std::byte* out = nullptr) override;
  uint64_t number() const override { return board.number(); }
  std::string title() const override { return board.title(); }
  void meet(Peers peers, Deadline deadline) override { board.meet(peers, *this, deadline); }
  uint64_t next(int peer, uint64_t expected, Deadline deadline) override;
  std::string learn(int peer, const std::string& expected, Deadline deadline) override;
  void fence(const std::byte* begin, uint64_t bytes) override;
  void poison(const Failure& failure) override;
  void leave() override;
  void close() override;

  void notify(int peer) override { bell.notify(peer); }
  bool shares_core(int peer) override { return bell.shares_core(peer); }
  uint32_t announce() override { return bell.announce(); }
  void sleep(uint32_t seen, std::chrono::microseconds slice) override { bell.sleep(seen, slice); }
  void withdraw() override { bell.withdraw(); }
  void check(int peer, Deadline deadline) override;

 private:
  const std::function<void()> signals_;
  std::atomic<bool> closing_{false}, fenced_{false};
  std::unique_ptr<Mailbox> mailbox_;
};

}  // namespace hocket
