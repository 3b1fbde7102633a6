// A channel is an ordered stream of messages from one rank to another. A Port is one rank's end of all its channels:
// all that the engine knows of the world. A transport implements it; a test fakes it, with delays and deaths.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/grain.h"
#include "engine/reading.h"
#include "wait/wait.h"

namespace hocket {

using Peers = std::span<const int32_t>;

// What a message must be for the reader to take it: the call it belongs to, and the place within that call.
struct Label {
  uint64_t call;
  uint32_t place;
  bool operator==(const Label&) const = default;
};

// The oldest message of a channel, valid until it is released. Where its room was `lent`, it is not const, and its
// sender gets what it holds then. What is `offered` lies in the sender's process, at that address; if it is `whole`, so
// does all that is to come of the same transfer, one piece behind the other.
struct Message {
  Label label;
  uint64_t bytes;
  const std::byte* data;
  bool lent = false;
  bool offered = false;
  bool whole = false;
};

class Port : public Waiter {
 public:
  // How what is done with its messages takes turns, and how what has come is copied.
  Grains grains;
  Readings reading;
  // What may be offered.
  enum Offers { nothing_offered, what_is_faster, all_offered } offering = what_is_faster;
  // Whether this rank has little to move and to fold in the call that it is in, or waits to be told of. A hint: waits
  // of other threads read it, too.
  std::atomic<bool> brief{false};

  // A call begins, to be told before anything else of it. Whether its slots `pass` on to who has read them, to be
  // written by that rank in the next such call: no room is lent in it. All ranks say the same of a call. Returns what
  // is the same on all of them, too, if they have said the same of all calls before.
  virtual uint64_t begin(bool /*pass*/) { return 0; }
  // Room for one message of `bytes` to each of `peers`, to be filled and then posted; null: not now.
  virtual std::byte* reserve(Peers peers, uint64_t bytes) = 0;
  // Sends what was reserved last. Staged once, seen by all of `peers`.
  virtual void post(Peers peers, uint64_t bytes, Label label) = 0;
  // Whom this rank waits for when there was no room, here or below: one that has not read what is in the way. -1: none,
  // since it was lent and is to be taken back.
  virtual int laggard() const = 0;
  // Whether room can be lent to `peer`, in pieces of so many bytes: it writes to what it has read, before it releases
  // it. That holds what it has until it is taken back; the oldest comes first.
  virtual bool lends(int /*peer*/, uint64_t /*bytes*/) const { return false; }
  virtual std::byte* lend(Peers /*peer*/, uint64_t /*bytes*/) { return nullptr; }  // as reserve
  virtual void take_back() {}
  // Whether `peers` can read this memory where it lies: then it is posted as a view, and not a byte is staged.
  virtual bool reachable(Peers /*peers*/, const std::byte* /*data*/, uint64_t /*bytes*/) const { return false; }
  // Whether `peers` can have the kernel copy this memory out of this process. Not all of it is worth that.
  virtual bool offers(Peers /*peers*/, const std::byte* /*data*/, uint64_t /*bytes*/) const { return false; }
  // Sends a view of memory that is reachable, or offered. It must not change until all of `peers` have read it; nor
  // must what is to come of the same transfer, if it is offered as a `whole`. False: not now.
  virtual bool post_view(Peers /*peers*/, const std::byte* /*data*/, uint64_t /*bytes*/, Label /*label*/) {
    return false;
  }
  virtual bool post_offer(Peers /*peers*/, const std::byte* /*data*/, uint64_t /*bytes*/, Label /*label*/,
                          bool /*whole*/) {
    return false;
  }
  // Where the output of `peer` in this call can be written from here; null where it cannot, or is not known yet.
  virtual std::byte* target(int /*peer*/) { return nullptr; }
  // Tells `peer` that `bytes` lie in its output, at its own address of `written`.
  virtual void post_put(int /*peer*/, const std::byte* /*written*/, uint64_t /*bytes*/, Label /*label*/) {}
  // How many messages have been posted to `peer`, and whether it has read the first `count` of them.
  virtual uint64_t posted(int /*peer*/) const { return 0; }
  virtual bool consumed(int /*peer*/, uint64_t /*count*/) { return true; }
  // Copies what `peer` has offered. False: its process is gone.
  virtual bool copy_offered(int /*peer*/, const std::byte* /*from*/, std::byte* /*to*/, uint64_t /*bytes*/) {
    return false;
  }
  // Told, where it `listens`, of each message before it is peeked at, in the order of its channel. What comes after
  // that may be received at `to`: memory of so many bytes, which nobody reads or writes until the message is released
  // or the call has failed. Null: anywhere.
  virtual void expect(int /*peer*/, Label /*label*/, std::byte* /*to*/, uint64_t /*bytes*/) {}
  // How many messages have begun to be received there, since the beginning of time.
  virtual uint64_t landings() const { return 0; }
  // Whether a message from `peer` is there, and which.
  virtual bool peek(int peer, Message& message) = 0;
  // The oldest message from `peer` has been read; its memory may be used again.
  virtual void release(int peer) = 0;
  // Throws Failure when `peer` sent something else than this rank waits for.
  [[noreturn]] virtual void mismatch(int peer, const Message& message, Label expected, uint64_t bytes) = 0;
};

}  // namespace hocket
