// One room, long as it is: all of it moves the same operations under the same lock.
#include "messages/mailbox.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <new>
#include <stdexcept>
#include <utility>

#include "messages/ring.h"

namespace hocket {

namespace {

constexpr int pieces_per_pass = 16;  // then the next peer has its turn

std::string described(const std::string& meta, uint64_t bytes) {
  return meta + " of " + std::to_string(bytes) + " bytes";
}

Failure overwritten(int source) { return {Failure::internal, source, "its shared memory was overwritten"}; }

}  // namespace

struct Mailbox::Operation {
  enum Kind { send, receive, open_receive } kind;  // an open receive has no memory yet
  int peer;
  int64_t tag;
  std::string meta;
  std::byte* data;
  uint64_t bytes;
  bool begun = false;  // a send: whether its header is in the ring
  uint64_t moved = 0;  // a send: payload that is in the ring
  Arrival message{};   // a receive: what it has claimed
  bool finished = false;
  std::optional<Failure> failure{};

  bool arrived() const { return message || finished; }
  bool wants(const Envelope& e) const { return tag == e.tag && (peer == e.source || peer == any_source); }
};

struct Mailbox::Message {
  Envelope envelope;
  std::byte* target = nullptr;          // where its payload goes; null: nowhere, it was dropped
  uint64_t arrived = 0;                 // bytes of it
  std::unique_ptr<std::byte[]> heap{};  // the target while no receive has given memory

  bool complete() const { return arrived == envelope.bytes; }

  // Goes to this memory from now on, and what has arrived already too.
  void redirect(std::byte* to) {
    if (arrived > 0) std::memmove(to, target, arrived);
    target = to;
    heap.reset();
  }

  bool keep() {
    std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[envelope.bytes]);
    if (!memory) return false;
    if (arrived > 0) std::memcpy(memory.get(), target, arrived);
    heap = std::move(memory);
    target = heap.get();
    return true;
  }

  void drop() {
    target = nullptr;
    heap.reset();
  }
};

struct Mailbox::Outgoing {
  p2p::Writer ring;
  std::deque<Ticket> queue{};
  std::optional<Failure> failure{};
};

struct Mailbox::Incoming {
  p2p::Reader ring;
  Arrival message{};  // the one in the middle of which we are
  Ticket receive{};   // its receive, if it has one
  std::optional<Failure> failure{};
};

uint64_t Mailbox::region_bytes(int size) { return p2p::Region::bytes(size); }

Mailbox::Mailbox(int rank, int size, const std::vector<std::byte*>& regions, Waiter& waiter)
    : rank_(rank), size_(size), waiter_(waiter) {
  const p2p::Region own{regions[rank], size};
  for (int peer = 0; peer < size; ++peer) {
    const p2p::Region other{regions[peer], size};
    outgoing_.push_back({p2p::Writer(own, peer, other.count(rank))});
    incoming_.push_back({p2p::Reader(other, rank, own.count(peer))});
  }
}

Mailbox::~Mailbox() = default;

// ---- what a caller does ---------------------------------------------------------------------------------------------

Mailbox::Ticket Mailbox::send(int destination, int64_t tag, std::string meta, const void* data, uint64_t bytes) {
  if (destination < 0 || destination >= size_) throw std::invalid_argument("there is no such rank to send to");
  if (meta.size() > p2p::meta_limit || bytes > p2p::bytes_limit) throw std::invalid_argument("too long for a message");
  auto* from = static_cast<std::byte*>(const_cast<void*>(data));  // never written
  Ticket ticket(new Operation{Operation::send, destination, tag, std::move(meta), from, bytes});
  const Lock lock(mutex_);
  Outgoing& out = outgoing_[destination];
  if (out.failure) {
    finish(*ticket, out.failure);
  } else if (destination == rank_) {
    deliver_to_self(*ticket);
  } else {
    out.queue.push_back(ticket);
    push(destination);
  }
  return ticket;
}

Mailbox::Ticket Mailbox::receive(int source, int64_t tag, std::string meta, void* data, uint64_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  return post(Ticket(new Operation{Operation::receive, source, tag, std::move(meta), to, bytes}));
}

Mailbox::Ticket Mailbox::receive(int source, int64_t tag) {
  return post(Ticket(new Operation{Operation::open_receive, source, tag, "", nullptr, 0}));
}

Mailbox::Ticket Mailbox::post(Ticket receive) {
  if (receive->peer < any_source || receive->peer >= size_) throw std::invalid_argument("there is no such rank");
  const Lock lock(mutex_);
  const auto found = std::find_if(unexpected_.begin(), unexpected_.end(),
                                  [&](const Arrival& m) { return receive->wants(m->envelope); });
  if (found != unexpected_.end()) {
    const Arrival message = *found;
    unexpected_.erase(found);
    claim(receive, message);
  } else if (receive->peer != any_source && incoming_[receive->peer].failure) {
    finish(*receive, incoming_[receive->peer].failure);
  } else {
    posted_.push_back(receive);
  }
  return receive;
}

Envelope Mailbox::arrival(const Ticket& ticket, Deadline deadline) {
  await(ticket, deadline, [](const Operation& o) { return o.arrived(); });
  const Lock lock(mutex_);
  if (ticket->failure) throw *ticket->failure;
  return ticket->message->envelope;
}

bool Mailbox::arrived(const Ticket& ticket) {
  const Lock lock(mutex_);
  if (!ticket->arrived()) move_all();
  return ticket->arrived();
}

void Mailbox::accept(const Ticket& ticket, void* data) {
  const Lock lock(mutex_);
  if (ticket->finished) return;  // failed in the meantime: wait() says why
  if (!ticket->message) throw std::logic_error("nothing has arrived yet");
  ticket->kind = Operation::receive;
  ticket->message->redirect(static_cast<std::byte*>(data));
  if (ticket->message->complete()) finish(*ticket);
}

std::optional<Envelope> Mailbox::probe(int source, int64_t tag) {
  if (source < any_source || source >= size_) throw std::invalid_argument("there is no such rank");
  const Lock lock(mutex_);
  move_all();
  const Operation looked_for{Operation::open_receive, source, tag, "", nullptr, 0};
  for (const Arrival& message : unexpected_) {
    if (looked_for.wants(message->envelope)) return message->envelope;
  }
  if (source != any_source && incoming_[source].failure) throw *incoming_[source].failure;
  return std::nullopt;
}

bool Mailbox::send_now(int destination, int64_t tag, const std::string& meta, const void* data, uint64_t bytes) {
  if (destination >= size_ || destination == rank_ || bytes > p2p::short_bytes) return false;
  const Lock lock(mutex_);
  Outgoing& out = outgoing_[destination];
  if (out.failure || !out.queue.empty() || !out.ring.fits(bytes, meta)) return false;
  out.ring.begin(tag, bytes, meta);
  const auto* from = static_cast<const std::byte*>(data);
  for (uint64_t written = 0; written < bytes;) written += out.ring.write(from + written, bytes - written);
  out.ring.publish();
  waiter_.notify(destination);
  return true;
}

bool Mailbox::ready(int source) {
  if (source >= size_ || source == rank_) return true;
  const Lock lock(mutex_);
  Incoming& in = incoming_[source];
  return !posted_.empty() || !unexpected_.empty() || in.message || in.failure || !in.ring.empty() ||
         in.ring.broken() != 0;
}

bool Mailbox::receive_now(int source, int64_t tag, const std::function<std::byte*(std::string_view, uint64_t)>& place) {
  if (source >= size_ || source == rank_) return false;
  const Lock lock(mutex_);
  Incoming& in = incoming_[source];
  if (!posted_.empty() || !unexpected_.empty() || in.message || in.failure || in.ring.empty()) return false;
  if (!in.ring.take(tag, place)) return false;
  waiter_.notify(source);
  return true;
}

bool Mailbox::done(const Ticket& ticket) {
  const Lock lock(mutex_);
  if (!ticket->finished) move_all();
  return ticket->finished;
}

void Mailbox::wait(const Ticket& ticket, Deadline deadline) {
  await(ticket, deadline, [](const Operation& o) { return o.finished; });
  const Lock lock(mutex_);
  if (ticket->failure) throw *ticket->failure;
}

template <class Ready>
void Mailbox::await(const Ticket& ticket, Deadline deadline, Ready ready) {
  Wait wait(waiter_, deadline);
  try {
    for (;;) {
      bool moved;
      {
        const Lock lock(mutex_);
        if (ready(*ticket)) return;
        moved = move_all();
        if (ready(*ticket)) return;
      }
      if (moved) {
        wait.progressed();
        if (Clock::now() > deadline) waiter_.check(ticket->peer, deadline);
      } else {
        wait.idle(ticket->peer);
      }
    }
  } catch (const Failure& failure) {
    cancel(ticket, failure);
    throw;
  } catch (...) {
    cancel(ticket, {Failure::interrupted, rank_, "interrupted"});
    throw;
  }
}

void Mailbox::cancel(const Ticket& ticket, const Failure& why) {
  const Lock lock(mutex_);
  Operation& operation = *ticket;
  if (operation.finished) return;
  if (operation.kind == Operation::send) {
    if (operation.begun) return break_outgoing(operation.peer, why);
    std::erase(outgoing_[operation.peer].queue, ticket);
  } else if (operation.message) {
    operation.message->drop();
    Incoming& in = incoming_[operation.message->envelope.source];
    if (in.receive == ticket) in.receive.reset();
  } else {
    posted_.remove(ticket);
  }
  finish(operation, why);
}

Envelope Mailbox::envelope(const Ticket& ticket) {
  const Lock lock(mutex_);
  if (!ticket->message) throw std::logic_error("this operation has received nothing");
  return ticket->message->envelope;
}

bool Mailbox::progress() {
  const Lock lock(mutex_);
  return move_all();
}

// ---- moving bytes; from here on the lock is held --------------------------------------------------------------------

bool Mailbox::move_all() {
  bool moved = false;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    moved |= push(peer);
    moved |= pull(peer);
  }
  return moved;
}

bool Mailbox::push(int destination) {
  Outgoing& out = outgoing_[destination];
  bool moved = false;
  for (int pieces = 0; pieces < pieces_per_pass && !out.queue.empty(); ++pieces) {
    Operation& send = *out.queue.front();
    if (!send.begun) send.begun = out.ring.begin(send.tag, send.bytes, send.meta);
    if (send.begun) send.moved += out.ring.write(send.data + send.moved, send.bytes - send.moved);
    if (!out.ring.publish()) break;
    waiter_.notify(destination);
    moved = true;
    if (send.moved < send.bytes) continue;
    finish(send);
    out.queue.pop_front();
  }
  return moved;
}

bool Mailbox::pull(int source) {
  Incoming& in = incoming_[source];
  bool moved = false;
  for (int pieces = 0; pieces < pieces_per_pass && !in.failure; ++pieces) {
    const uint32_t broken = in.ring.broken();  // looked at first: what was published before can be read
    if (in.ring.empty()) {
      if (broken == 0) break;
      const auto kind = static_cast<Failure::Kind>(broken - 1);
      break_incoming(source, {kind, source, "it stopped sending in the middle of a message"});
      return true;
    }
    moved = true;
    if (!in.ring.sound()) {
      break_incoming(source, overwritten(source));
      return true;
    }
    in.message ? pull_payload(in) : pull_header(source);
    in.ring.release();
    waiter_.notify(source);
    if (!in.message || !in.message->complete()) continue;
    if (in.receive && in.receive->kind == Operation::receive) finish(*in.receive);
    in.receive.reset();
    in.message.reset();
  }
  return moved;
}

void Mailbox::pull_header(int source) {
  Incoming& in = incoming_[source];
  std::string meta;
  const auto header = in.ring.begin(meta);
  if (!header) return break_incoming(source, overwritten(source));
  in.message = Arrival(new Message{{source, header->tag, std::move(meta), header->bytes}});
  if (!match(in.message)) {
    break_incoming(source, {Failure::internal, source, "there is no memory for a message that it sent"});
  }
}

void Mailbox::pull_payload(Incoming& in) {
  Message& m = *in.message;
  m.arrived += in.ring.read(m.target == nullptr ? nullptr : m.target + m.arrived, m.envelope.bytes - m.arrived);
}

void Mailbox::deliver_to_self(Operation& send) {
  if (match(Arrival(new Message{{rank_, send.tag, send.meta, send.bytes}, send.data, send.bytes}))) return finish(send);
  finish(send, Failure{Failure::internal, rank_, "there is no memory for a message to oneself"});
}

// ---- matching -------------------------------------------------------------------------------------------------------

// Hands a new message to the first receive that wants it, or keeps it. False if there is no memory to keep it in.
bool Mailbox::match(const Arrival& message) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](const Ticket& receive) { return receive->wants(message->envelope); });
  const bool wanted = found != posted_.end();
  if (!(wanted && (*found)->kind == Operation::receive) && !message->keep()) return false;
  if (wanted) {
    const Ticket receive = *found;
    posted_.erase(found);
    claim(receive, message);
  } else {
    unexpected_.push_back(message);
  }
  return true;
}

void Mailbox::claim(const Ticket& ticket, const Arrival& message) {
  Operation& receive = *ticket;
  const Envelope& sent = message->envelope;
  receive.message = message;
  waiter_.notify(rank_);  // another thread may wait for just this
  if (receive.kind == Operation::receive) {
    if (sent.meta != receive.meta || sent.bytes != receive.bytes) {
      message->drop();
      const std::string text = "it sent " + described(sent.meta, sent.bytes) + ", but the receive is of " +
                               described(receive.meta, receive.bytes);
      return finish(receive, Failure{Failure::mismatch, sent.source, text});
    }
    message->redirect(receive.data);
    if (message->complete()) return finish(receive);
  }
  if (!message->complete()) incoming_[sent.source].receive = ticket;
}

void Mailbox::finish(Operation& operation, std::optional<Failure> failure) {
  operation.finished = true;
  operation.failure = std::move(failure);
  waiter_.notify(rank_);  // the thread that waits for it may be another one
}

// ---- what cannot go on ----------------------------------------------------------------------------------------------

void Mailbox::break_outgoing(int destination, const Failure& why) {
  Outgoing& out = outgoing_[destination];
  out.ring.give_up(1 + static_cast<uint32_t>(why.kind));
  waiter_.notify(destination);
  for (const Ticket& send : std::exchange(out.queue, {})) finish(*send, why);
  out.failure = {why.kind, destination, "a send to it was given up in the middle: " + why.text};
}

void Mailbox::break_incoming(int source, const Failure& why) {
  Incoming& in = incoming_[source];
  in.failure = why;
  if (in.message) {
    unexpected_.remove(in.message);
    in.message->drop();
  }
  if (in.receive) finish(*in.receive, why);
  in.receive.reset();
  in.message.reset();
  posted_.remove_if([&](const Ticket& receive) {
    if (receive->peer == source) finish(*receive, why);
    return receive->peer == source;
  });
}

}  // namespace hocket
