// Tagged messages between the ranks of one host, through shared memory, beside the collectives and independent of them.
//
// Each rank owns a region that all ranks of the group have mapped; nobody but its owner writes it.
//
//   region of rank r   ┌ lanes: published r→0, r→1, … ┬ counts: consumed 0→r, 1→r, … ┬ rings r→0, r→1, … ┐
//
// A ring is a stream of bytes: header, meta, payload, each message padded to cache lines. Long payloads flow through it
// in pieces; the receiver copies them straight to their destination, or to the heap while nobody has asked for them.
//
// A message is matched by (source, tag); of equal ones the first sent is received first. A send is done when its memory
// may be used again: a short one at once, whether or not the receiver has asked for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
// moved, and no lock is held while waiting. Memory given to an operation must live until it is done, was cancelled, or
// the mailbox is gone.
class Mailbox {
 public:
  struct Operation;
  using Ticket = std::shared_ptr<Operation>;

  static constexpr int any_source = -1;

  static uint64_t region_bytes(int size);

  // regions[r] is rank r's as mapped here: region_bytes(size) bytes, aligned to 64, zero before anyone uses them.
  Mailbox(int rank, int size, const std::vector<std::byte*>& regions, Waiter& waiter);
  ~Mailbox();

  // `meta` is at most 512 bytes.
  Ticket send(int destination, int64_t tag, std::string meta, const void* data, uint64_t bytes);

  // Fails with Failure::mismatch, both metas in its text, when the message has another meta or size; it is consumed
  // then.
  Ticket receive(int source, int64_t tag, std::string meta, void* data, uint64_t bytes);

  // Receives whatever comes: claims a message now, is told by arrival() what it is, and then given memory by accept().
  Ticket receive(int source, int64_t tag);
  Envelope arrival(const Ticket& ticket, Deadline deadline);
  bool arrived(const Ticket& ticket);  // whether arrival() would return, or throw, at once
  void accept(const Ticket& ticket, void* data);

  // The earliest message that no receive has claimed, if there is one.
  std::optional<Envelope> probe(int source, int64_t tag);

  // A whole send at once, if the message is short and nothing stands in its way; false: nothing was done.
  bool send_now(int destination, int64_t tag, const std::string& meta, const void* data, uint64_t bytes);

  // Whether receive_now() need not be waited for.
  bool ready(int source);

  // A whole receive at once, if the next message of `source` is there, short, not claimed by another receive and of
  // this tag; false: nothing was done. `place` is told its meta and bytes, and says where it goes; null: not at once.
  bool receive_now(int source, int64_t tag, const std::function<std::byte*(std::string_view, uint64_t)>& place);

  // Whether wait() would return, or throw, at once.
  bool done(const Ticket& ticket);

  // Throws the operation's Failure, or what the waiter throws (at the deadline, say); the operation is cancelled then.
  void wait(const Ticket& ticket, Deadline deadline);

  // The memory of a cancelled operation is never touched again. A receive that has begun drops its message; a send that
  // has begun breaks this pair: what else was or will be sent that way fails on both sides.
  void cancel(const Ticket& ticket, const Failure& why);

  // Of the message that a receive has got, once it is done.
  Envelope envelope(const Ticket& ticket);

  // One attempt to move everything. For others who wait: a peer may need bytes of ours to get to where they wait for
  // it. Returns whether anything moved.
  bool progress();

 private:
  struct Message;
  struct Outgoing;
  struct Incoming;
  using Arrival = std::shared_ptr<Message>;
  using Lock = std::lock_guard<std::mutex>;

  Ticket post(Ticket receive);
  template <class Ready>
  void await(const Ticket& ticket, Deadline deadline, Ready ready);

  bool move_all();
  bool push(int destination);
  bool pull(int source);
  void pull_header(int source);
  void pull_payload(Incoming& in);

  void deliver_to_self(Operation& send);
  bool match(const Arrival& message);
  void claim(const Ticket& receive, const Arrival& message);
  void finish(Operation& operation, std::optional<Failure> failure = std::nullopt);
  void break_outgoing(int destination, const Failure& why);
  void break_incoming(int source, const Failure& why);

  const int rank_, size_;
  Waiter& waiter_;
  std::mutex mutex_;  // of everything below
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::list<Ticket> posted_;       // receives that wait for a message, in order
  std::list<Arrival> unexpected_;  // messages that wait for a receive, in order
};

}  // namespace hocket
