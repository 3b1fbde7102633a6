// What moves bytes, and what happens to operations by it. The lock is held in all of this.
#include <algorithm>
#include <utility>

#include "messages/peers.h"

namespace hocket {

namespace {

constexpr int pieces_per_pass = 16;  // then the next peer has its turn

std::string described(const std::string& meta, uint64_t bytes) {
  return meta + " of " + std::to_string(bytes) + " bytes";
}

Failure overwritten(int source) { return {Failure::internal, source, "its shared memory was overwritten"}; }

}  // namespace

bool Mailbox::move_all() {
  if (closed_) return false;
  bool moved = pull_from_self();
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    moved |= push(peer);
    moved |= pull(peer);
  }
  return moved;
}

// ---- out ------------------------------------------------------------------------------------------------------------

bool Mailbox::push(int destination) {
  Outgoing& out = outgoing_[destination];
  bool moved = false;
  for (int pieces = 0; pieces < pieces_per_pass && !out.queue.empty(); ++pieces) {
    Operation& send = *out.queue.front();
    if (!send.begun) send.begun = out.stream->begin(send.tag, send.meta, send.bytes);
    if (send.begun) send.moved += out.stream->write(send.data + send.moved, send.bytes - send.moved);
    if (!out.stream->publish()) break;
    waiter_.notify(destination);
    moved = true;
    if (send.moved < send.bytes) continue;
    out.moved.add(send.bytes);
    finish(send);
    out.queue.pop_front();
  }
  return moved;
}

// ---- in -------------------------------------------------------------------------------------------------------------

bool Mailbox::pull(int source) {
  Incoming& in = incoming_[source];
  bool moved = false;
  for (int pieces = 0; pieces < pieces_per_pass && !in.failure; ++pieces) {
    if (in.message && !placed(in)) break;
    if (in.message && in.message->complete()) {
      end_message(in);
      moved = true;
      continue;
    }
    const uint32_t broken = in.stream->broken();  // looked at first: what was published before can be read
    if (in.stream->empty()) {
      if (broken == 0) break;
      const auto kind = static_cast<Failure::Kind>(broken - 1);
      break_incoming(source, {kind, source, "it stopped sending in the middle of a message"});
      return true;
    }
    moved = true;
    if (!in.stream->sound()) {
      break_incoming(source, overwritten(source));
      return true;
    }
    if (in.message) {
      Arrival& m = *in.message;
      m.arrived += in.stream->read(m.target == nullptr ? nullptr : m.target + m.arrived, m.envelope.bytes - m.arrived);
    } else {
      pull_header(source);
    }
    in.stream->release();
    waiter_.notify(source);
    if (in.message && in.message->complete() && placed(in)) end_message(in);
  }
  return moved;
}

void Mailbox::pull_header(int source) {
  Incoming& in = incoming_[source];
  std::string meta;
  const auto header = in.stream->begin(meta);
  if (!header) return break_incoming(source, overwritten(source));
  in.message = std::make_shared<Arrival>(Envelope{source, header->tag, std::move(meta), header->bytes});
  if (const Ticket receive = matching_->receive_for(in.message->envelope)) {
    claim(receive, in.message);
  } else {
    matching_->keep(in.message);
  }
}

// To oneself the sender's memory is the stream, and the send is done when its message lies elsewhere.
bool Mailbox::pull_from_self() {
  Outgoing& out = outgoing_[rank_];
  Incoming& in = incoming_[rank_];
  bool moved = false;
  while (!out.queue.empty()) {
    Operation& send = *out.queue.front();
    if (!in.message) {
      in.message = std::make_shared<Arrival>(Envelope{rank_, send.tag, send.meta, send.bytes});
      in.message->target = send.data;
      in.message->arrived = send.bytes;
      if (const Ticket receive = matching_->receive_for(in.message->envelope)) {
        claim(receive, in.message);
      } else {
        matching_->keep(in.message);
      }
    }
    if (!placed(in)) break;
    out.moved.add(send.bytes);
    in.moved.add(send.bytes);
    finish(send);
    out.queue.pop_front();
    in.receive.reset();
    in.message.reset();
    moved = true;
  }
  return moved;
}

// Whether the payload of a message has a place to go to. One that nobody has given a place gets one on the heap: if it
// was claimed, or if what is unclaimed of its source leaves room for it; and if there is memory.
bool Mailbox::placed(Incoming& in) {
  Arrival& message = *in.message;
  if (message.where != Arrival::in_stream) return true;
  const bool claimed = in.receive != nullptr;
  if (!claimed && in.full(message.envelope.bytes)) return false;
  if (!message.keep()) return false;
  if (!claimed) {
    message.counted = true;
    in.unclaimed += 1;
    in.unclaimed_bytes += message.envelope.bytes;
  }
  return true;
}

void Mailbox::uncount(Arrival& message) {
  if (!std::exchange(message.counted, false)) return;
  Incoming& in = incoming_[message.envelope.source];
  in.unclaimed -= 1;
  in.unclaimed_bytes -= message.envelope.bytes;
}

void Mailbox::end_message(Incoming& in) {
  in.moved.add(in.message->envelope.bytes);
  if (in.receive && in.receive->kind == Operation::receive) finish(*in.receive);
  in.receive.reset();
  in.message.reset();
}

// ---- what becomes of operations -------------------------------------------------------------------------------------

void Mailbox::claim(const Ticket& ticket, const std::shared_ptr<Arrival>& message) {
  Operation& receive = *ticket;
  const Envelope& sent = message->envelope;
  receive.message = message;
  uncount(*message);
  waiter_.notify(rank_);  // another thread may wait for just this
  if (receive.kind == Operation::forgotten_receive) {
    message->drop();
    return finish(receive);
  }
  if (receive.kind == Operation::receive) {
    if (sent.meta != receive.meta || sent.bytes != receive.bytes) {
      message->drop();
      const std::string text = "it sent " + described(sent.meta, sent.bytes) + ", but the receive is of " +
                               described(receive.meta, receive.bytes);
      return finish(receive, Failure{Failure::mismatch, sent.source, text});
    }
    receive.fits = true;
    message->redirect(receive.data);
    if (message->complete()) return finish(receive);
  }
  if (incoming_[sent.source].message == message) incoming_[sent.source].receive = ticket;
}

void Mailbox::finish(Operation& operation, std::optional<Failure> failure) {
  if (operation.finished) return;
  operation.failure = std::move(failure);
  operation.touched = operation.failure && operation.fits && operation.message->arrived != 0;
  operation.memory.reset();
  operation.finished = true;
  --(operation.kind == Operation::send ? sends_ : receives_);
  waiter_.notify(rank_);  // the thread that waits for it, or for room, may be another one
}

bool Mailbox::give_up(const Ticket& ticket, const Failure& why) {
  Operation& operation = *ticket;
  if (operation.finished) return false;
  if (operation.kind == Operation::send) {
    std::deque<Ticket>& queue = outgoing_[operation.peer].queue;
    if (operation.begun) {
      break_outgoing(operation.peer, why);
      return true;
    }
    if (operation.peer == rank_ && queue.front() == ticket) give_up_to_self(why);
    std::erase(queue, ticket);
  } else if (operation.message) {
    operation.message->drop();
    Incoming& in = incoming_[operation.message->envelope.source];
    if (in.receive == ticket) in.receive.reset();
  } else {
    matching_->remove(operation);
  }
  finish(operation, why);
  return true;
}

// The message that still lies in the memory of the first send to oneself.
void Mailbox::give_up_to_self(const Failure& why) {
  Incoming& in = incoming_[rank_];
  if (!in.message) return;
  if (in.receive) finish(*in.receive, Failure{why.kind, rank_, "it gave up sending that message"});
  matching_->remove(*in.message);  // where it is unclaimed
  in.message->drop();
  in.receive.reset();
  in.message.reset();
}

void Mailbox::break_outgoing(int destination, const Failure& why) {
  Outgoing& out = outgoing_[destination];
  out.stream->give_up(1 + static_cast<uint32_t>(why.kind));
  waiter_.notify(destination);
  for (const Ticket& send : std::exchange(out.queue, {})) finish(*send, why);
  out.failure = {why.kind, destination, "a send to it was given up in the middle: " + why.text};
}

void Mailbox::break_incoming(int source, const Failure& why) {
  Incoming& in = incoming_[source];
  in.failure = why;
  if (in.message) {
    matching_->remove(*in.message);  // where it is unclaimed
    uncount(*in.message);
    in.message->drop();
  }
  if (in.receive) finish(*in.receive, why);
  in.receive.reset();
  in.message.reset();
  for (const Ticket& receive : matching_->remove_receives(source)) finish(*receive, why);
}

}  // namespace hocket
