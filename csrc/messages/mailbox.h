// Tagged messages between ranks, over streams, beside the collectives and independent of them.
//
//   send ──▶ queue of its destination ──▶ stream ──▶ matching ──▶ receive           mailbox.cpp   what callers do
//                                            └──▶ heap, while nobody asks for it    moving.cpp    what moves bytes
//                                                                                   matching.h    who gets what
//
// Long payloads flow in pieces; the receiver copies them straight to their destination, or to the heap while nobody has
// asked for them. A message is matched by (source, tag); of equal ones the first sent is received first. A send is done
// when its memory may be used again: a short one at once, whether or not the receiver has asked for it.
//
// Nothing grows without bound. What has arrived from a source and is unclaimed lies on the heap up to `most_unclaimed`
// messages and `most_unclaimed_bytes`; then that source's stream is read no further, it fills, and the sender waits. Of
// sends that are not done there are up to `most_in_flight`, and as many receives.
//
// Shared between threads: all of the mailbox, its operations and its streams, under `mutex_`. It is never held while
// waiting, and no code of Python's runs under it: to let go of an operation's `Memory` there must not need Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "messages/stream.h"
#include "wait/wait.h"

namespace hocket {

// What is known of a message besides its payload. `meta` is the caller's: a dtype and a shape.
struct Envelope {
  int source;
  int64_t tag;
  std::string meta;
  uint64_t bytes;
};

// One rank's end of all its messages. Any thread may call anything; every call moves whatever of all operations can be
// moved.
class Mailbox {
 public:
  struct Operation;
  using Ticket = std::shared_ptr<Operation>;
  // What keeps an operation's memory alive. The mailbox lets go of it when the operation is done or cancelled: from
  // then on it does not touch that memory. Without one, the caller keeps it alive.
  using Memory = std::shared_ptr<void>;

  static constexpr int any_source = -1;

  // Two gigabytes of a node's memory for 32 ranks that all send to one that does not listen: a mistake shows as a wait
  // that says so, not as a machine that swaps. As many messages cost some 300 bytes each besides their payload.
  static constexpr uint64_t most_unclaimed_bytes = 64 << 20, most_unclaimed = 65536;  // of each source
  // Each costs some 300 bytes; who has more under way has lost count of them.
  static constexpr uint64_t most_in_flight = 65536;  // sends, and receives

  // streams[r] is the one to and from rank r.
  Mailbox(int rank, int size, std::vector<Stream> streams, Waiter& waiter);
  ~Mailbox();

  // `meta` is at most meta_limit bytes. Waits until there is room for one more send; throws what a wait throws.
  Ticket send(int destination, int64_t tag, std::string meta, const void* data, uint64_t bytes, Deadline deadline,
              Memory memory = {});

  // Fails with Failure::mismatch, both metas in its text, when the message has another meta or size; it is consumed
  // then. Throws Failure::internal where there is no room for one more receive.
  Ticket receive(int source, int64_t tag, std::string meta, void* data, uint64_t bytes, Memory memory = {});

  // Receives whatever comes: claims a message now, is told by arrival() what it is, and then given memory by accept().
  Ticket receive(int source, int64_t tag);
  Envelope arrival(const Ticket& ticket, Deadline deadline);
  void accept(const Ticket& ticket, void* data, Memory memory = {});
  // Nobody will ask again for what an open receive gets: it still takes its message, which is dropped.
  void forget(const Ticket& ticket);

  // The earliest message that no receive has claimed, if there is one; or wait for it.
  std::optional<Envelope> probe(int source, int64_t tag);
  Envelope probe(int source, int64_t tag, Deadline deadline);

  // A whole send at once, if the message is short and nothing stands in its way; false: nothing was done.
  bool send_now(int destination, int64_t tag, std::string_view meta, const void* data, uint64_t bytes);

  // What a receive of (source, tag) would find just now: nothing yet; a message that it may take, being there or just
  // being written; or what only an operation can sort out.
  enum Next { nothing, ready, other };
  Next next(int source, int64_t tag, Glimpse& seen);
  // Takes the message that next() has seen, if it still is the next one. False: it still has to be received, though a
  // part of it may be at `data`, if its sender has stopped in the middle.
  bool receive_now(int source, int64_t tag, std::string_view meta, void* data, uint64_t bytes);

  // Whether wait() would return, or throw, at once; of an open receive, whether arrival() would, and all of it is here.
  // Costs a look at each peer's stream, whatever the number of operations.
  bool done(const Ticket& ticket);

  // Throws the operation's Failure, or what the waiter throws (at the deadline, say); the operation is cancelled then.
  void wait(const Ticket& ticket, Deadline deadline);

  // The memory of a cancelled operation is never touched again. A receive that has begun drops its message; a send that
  // has begun breaks this pair: what else was or will be sent that way fails on both sides. False if it is done.
  bool cancel(const Ticket& ticket, const Failure& why);

  // Whether a receive that has failed may have written to its memory.
  static bool touched(const Ticket& ticket);

  // Where the message that a receive has claimed came from; nothing if it has claimed none.
  std::optional<int> source(const Ticket& ticket);

  // What was sent to a peer and is done, and what has come from it, as a whole.
  struct Moved {
    uint64_t messages = 0, bytes = 0;
    void add(uint64_t more) { messages += 1, bytes += more; }
  };
  std::pair<Moved, Moved> moved(int peer) const;

  // Waits until everything sent is on its way, for each send until its own deadline. Throws what signals throw.
  void flush();
  // Cancels all there is, and what comes: it fails for this reason. Peers are told nothing.
  void close(const Failure& why);

  // One attempt to move everything. For others who wait: a peer may need bytes of ours to get to where they wait for
  // it. Returns whether anything moved.
  bool progress();

 private:
  struct Arrival;
  struct Outgoing;
  struct Incoming;
  class Matching;
  using Lock = std::lock_guard<std::mutex>;

  // mailbox.cpp
  void require_peer(int peer, int least) const;
  Ticket post(Ticket receive);
  template <class Ready>
  void await(int peer, Deadline deadline, Ready ready);
  template <class Ready>
  void await(const Ticket& ticket, Deadline deadline, Ready ready);
  std::optional<Envelope> unclaimed(int source, int64_t tag) const;
  std::string unclaimed_before(const Operation& receive) const;

  // moving.cpp; the lock is held
  bool move_all();
  bool push(int destination);
  bool pull(int source);
  void pull_header(int source);
  bool pull_from_self();
  bool placed(Incoming& in);
  void end_message(Incoming& in);
  bool takes_at_once(const Incoming& in) const;
  bool is_at_work(int peer) const;
  void claim(const Ticket& receive, const std::shared_ptr<Arrival>& message);
  void finish(Operation& operation, std::optional<Failure> failure = std::nullopt);
  bool give_up(const Ticket& ticket, const Failure& why);
  void give_up_to_self(const Failure& why);
  void break_outgoing(int destination, const Failure& why);
  void break_incoming(int source, const Failure& why);
  void uncount(Arrival& message);

  const int rank_, size_;
  Waiter& waiter_;
  mutable std::mutex mutex_;  // of everything below
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::unique_ptr<Matching> matching_;
  uint64_t sends_ = 0, receives_ = 0;  // that are not finished
  std::optional<Failure> closed_;      // why nothing is done any more
};

}  // namespace hocket
