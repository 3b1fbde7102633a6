// What callers do with their operations. Each takes the lock, and none holds it while it waits.
#include "messages/mailbox.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "messages/peers.h"

namespace hocket {

namespace {

std::string listed(const std::set<int64_t>& tags) {
  constexpr int most = 8;
  std::string text;
  int number = 0;
  for (const int64_t tag : tags) {
    if (number++ == most) return text + ", ...";
    text += (text.empty() ? "" : ", ") + std::to_string(tag);
  }
  return text;
}

}  // namespace

Mailbox::Mailbox(int rank, int size, std::vector<Stream> streams, Waiter& waiter)
    : rank_(rank), size_(size), waiter_(waiter), matching_(std::make_unique<Matching>()) {
  for (Stream& stream : streams) {
    outgoing_.emplace_back(std::move(stream.writer));
    incoming_.emplace_back(std::move(stream.reader));
  }
}

Mailbox::~Mailbox() = default;

void Mailbox::require_peer(int peer, int least) const {
  if (peer < least || peer >= size_) throw std::invalid_argument("there is no such rank");
}

// ---- beginning ------------------------------------------------------------------------------------------------------

Mailbox::Ticket Mailbox::send(int destination, int64_t tag, std::string meta, const void* data, uint64_t bytes,
                              Deadline deadline, Memory memory) {
  require_peer(destination, 0);
  if (meta.size() > meta_limit || bytes > bytes_limit) throw std::invalid_argument("too long for a message");
  auto* from = static_cast<std::byte*>(const_cast<void*>(data));  // never written
  const auto ticket = std::make_shared<Operation>(Operation::send, destination, tag, std::move(meta), from, bytes,
                                                  std::move(memory), deadline);
  // Begun as soon as there is room, under the same lock under which there is.
  const auto begin = [&] {
    Outgoing& out = outgoing_[destination];
    if (!closed_ && !out.failure && sends_ >= most_in_flight) return false;
    ++sends_;
    if (closed_ || out.failure) {
      finish(*ticket, closed_ ? closed_ : out.failure);
    } else {
      out.queue.push_back(ticket);
      destination == rank_ ? pull_from_self() : push(destination);
    }
    return true;
  };
  try {
    await(destination, deadline, begin);
  } catch (Failure& failure) {
    if (failure.kind == Failure::timeout && !failure.relayed) {
      failure.text = std::to_string(most_in_flight) + " sends are in flight, as many as a group may have";
    }
    throw;
  }
  return ticket;
}

Mailbox::Ticket Mailbox::receive(int source, int64_t tag, std::string meta, void* data, uint64_t bytes, Memory memory) {
  return post(std::make_shared<Operation>(Operation::receive, source, tag, std::move(meta),
                                          static_cast<std::byte*>(data), bytes, std::move(memory), Deadline::max()));
}

Mailbox::Ticket Mailbox::receive(int source, int64_t tag) {
  return post(
      std::make_shared<Operation>(Operation::open_receive, source, tag, "", nullptr, 0, Memory(), Deadline::max()));
}

Mailbox::Ticket Mailbox::post(Ticket receive) {
  require_peer(receive->peer, any_source);
  const Lock lock(mutex_);
  if (receives_ >= most_in_flight && !closed_) {
    throw Failure{Failure::internal, -1,
                  std::to_string(most_in_flight) + " receives are in flight already, as many as a group may have"};
  }
  ++receives_;
  if (closed_) {
    finish(*receive, closed_);
  } else if (const auto message = matching_->message_for(receive->peer, receive->tag)) {
    claim(receive, message);
    if (message->envelope.source == rank_) pull_from_self();
  } else if (receive->peer != any_source && incoming_[receive->peer].failure) {
    finish(*receive, incoming_[receive->peer].failure);
  } else {
    matching_->post(receive);
  }
  return receive;
}

void Mailbox::accept(const Ticket& ticket, void* data, Memory memory) {
  const Lock lock(mutex_);
  if (ticket->finished) return;  // failed in the meantime: wait() says why
  if (ticket->kind != Operation::open_receive || !ticket->message) throw std::logic_error("there is nothing to accept");
  ticket->kind = Operation::receive;
  ticket->memory = std::move(memory);
  ticket->message->redirect(static_cast<std::byte*>(data));
  if (!ticket->message->complete()) return;
  finish(*ticket);
  if (ticket->message->envelope.source == rank_) pull_from_self();
}

// ---- at once --------------------------------------------------------------------------------------------------------

bool Mailbox::send_now(int destination, int64_t tag, std::string_view meta, const void* data, uint64_t bytes) {
  if (destination >= size_ || destination == rank_ || meta.size() > meta_limit) return false;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return false;  // another thread moves a lot: to wait for it is for those who let others run meanwhile
  Outgoing& out = outgoing_[destination];
  if (closed_ || out.failure || !out.queue.empty()) return false;
  const bool shown = bytes > shown_least && is_at_work(destination);
  if (!out.stream->send(tag, meta, static_cast<const std::byte*>(data), bytes, shown)) return false;
  waiter_.notify(destination);
  out.moved.add(bytes);
  return true;
}

// Whether no operation can want the next message of this stream, nor has begun with it.
bool Mailbox::takes_at_once(const Incoming& in) const {
  return !closed_ && matching_->empty() && !in.message && !in.failure;
}

// Whether `peer` may copy at the same time as this rank: it has a core of its own, and what it writes shows at once.
bool Mailbox::is_at_work(int peer) const { return !waiter_.listens && !waiter_.shares_core(peer); }

Mailbox::Next Mailbox::next(int source, int64_t tag, Glimpse& seen) {
  if (source >= size_ || source == rank_) return other;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return nothing;
  Incoming& in = incoming_[source];
  if (!takes_at_once(in)) return other;
  if (in.stream->empty()) return in.stream->broken() == 0 ? nothing : other;
  if (!in.stream->glimpse(tag, seen)) return other;
  return seen.whole || is_at_work(source) ? ready : other;
}

bool Mailbox::receive_now(int source, int64_t tag, std::string_view meta, void* data, uint64_t bytes) {
  if (source >= size_ || source == rank_) return false;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  Incoming& in = incoming_[source];
  if (!takes_at_once(in) || in.stream->empty()) return false;
  if (!in.stream->take(tag, meta, static_cast<std::byte*>(data), bytes)) return false;
  waiter_.notify(source);
  in.moved.add(bytes);
  return true;
}

// ---- asking and waiting ---------------------------------------------------------------------------------------------

bool Mailbox::done(const Ticket& ticket) {
  if (ticket->finished) return true;
  const Lock lock(mutex_);
  if (!ticket->finished) move_all();
  if (ticket->finished) return true;
  // One for which there is no memory in between is as much here as it will be.
  const auto& message = ticket->message;
  return ticket->kind == Operation::open_receive && message &&
         (message->complete() || message->where == Arrival::in_stream);
}

Envelope Mailbox::arrival(const Ticket& ticket, Deadline deadline) {
  await(ticket, deadline, [](const Operation& o) { return o.message || o.finished; });
  const Lock lock(mutex_);
  if (ticket->failure) throw *ticket->failure;
  return ticket->message->envelope;
}

void Mailbox::wait(const Ticket& ticket, Deadline deadline) {
  if (!ticket->finished) await(ticket, deadline, [](const Operation& o) { return o.finished.load(); });
  if (ticket->failure) throw *ticket->failure;
}

// Until `ready`, which is asked under the lock, and again whenever something has moved.
template <class Ready>
void Mailbox::await(int peer, Deadline deadline, Ready ready) {
  Wait wait(waiter_, deadline);
  for (;;) {
    bool moved;
    {
      const Lock lock(mutex_);
      if (ready()) return;
      moved = move_all();
      if (ready()) return;
    }
    if (moved) {
      wait.progressed();
      if (Clock::now() > deadline) waiter_.check(peer, deadline);
    } else {
      wait.idle(peer);
    }
  }
}

// The same for an operation, which is given up if the wait for it fails. A signal's handler may run in the wait, and do
// here whatever it likes: nothing is held, and what this wait is for may be done when it goes on.
template <class Ready>
void Mailbox::await(const Ticket& ticket, Deadline deadline, Ready ready) {
  try {
    await(ticket->peer, deadline, [&] { return ready(*ticket); });
  } catch (Failure& failure) {
    const Lock lock(mutex_);
    if (ready(*ticket)) return;  // just now
    if (failure.kind == Failure::timeout && !failure.relayed) failure.text += unclaimed_before(*ticket);
    give_up(ticket, failure);
    throw;
  } catch (...) {
    cancel(ticket, {Failure::interrupted, rank_, "a wait for it was interrupted"});
    throw;
  }
}

// What of its source a receive, in vain, has not asked for; empty if there is none, or this is no such receive.
std::string Mailbox::unclaimed_before(const Operation& receive) const {
  std::set<int64_t> tags;
  if (receive.kind == Operation::send || receive.message) return "";
  const uint64_t number = matching_->unclaimed(receive.peer, tags);
  if (number == 0) return "";
  const bool one = number == 1;
  std::string text = std::to_string(number) + (one ? " message" : " messages");
  if (receive.peer != any_source) text += " from rank " + std::to_string(receive.peer);
  text += std::string(one ? " is" : " are") + " here that nobody has received, of tag" + (tags.size() > 1 ? "s " : " ");
  text += listed(tags);
  const auto waits = [&](const Incoming& in) { return in.message && in.message->where == Arrival::in_stream; };
  const bool full = receive.peer == any_source ? std::any_of(incoming_.begin(), incoming_.end(), waits)
                                               : waits(incoming_[receive.peer]);
  if (full) text += "; that is as much as is kept, and what was sent after them waits until they are received";
  return text;
}

bool Mailbox::cancel(const Ticket& ticket, const Failure& why) {
  const Lock lock(mutex_);
  return give_up(ticket, why);
}

void Mailbox::forget(const Ticket& ticket) {
  const Lock lock(mutex_);
  if (ticket->finished || ticket->kind != Operation::open_receive) return;
  ticket->kind = Operation::forgotten_receive;
  if (!ticket->message) return;
  Incoming& in = incoming_[ticket->message->envelope.source];
  if (in.receive == ticket) in.receive.reset();
  ticket->message->drop();
  finish(*ticket);
}

bool Mailbox::touched(const Ticket& ticket) { return ticket->finished && ticket->touched; }

std::optional<int> Mailbox::source(const Ticket& ticket) {
  const Lock lock(mutex_);
  if (!ticket->message) return std::nullopt;
  return ticket->message->envelope.source;
}

std::optional<Envelope> Mailbox::probe(int source, int64_t tag) {
  require_peer(source, any_source);
  const Lock lock(mutex_);
  move_all();
  return unclaimed(source, tag);
}

Envelope Mailbox::probe(int source, int64_t tag, Deadline deadline) {
  require_peer(source, any_source);
  std::optional<Envelope> found;
  await(source, deadline, [&] { return (found = unclaimed(source, tag)).has_value(); });
  return *found;
}

std::optional<Envelope> Mailbox::unclaimed(int source, int64_t tag) const {
  if (closed_) throw *closed_;
  if (const Arrival* message = matching_->first_for(source, tag)) return message->envelope;
  if (source != any_source && incoming_[source].failure) throw *incoming_[source].failure;
  return std::nullopt;
}

std::pair<Mailbox::Moved, Mailbox::Moved> Mailbox::moved(int peer) const {
  require_peer(peer, 0);
  const Lock lock(mutex_);
  return {outgoing_[peer].moved, incoming_[peer].moved};
}

bool Mailbox::progress() {
  const Lock lock(mutex_);
  return move_all();
}

// ---- ending ---------------------------------------------------------------------------------------------------------

void Mailbox::flush() {
  for (;;) {
    Ticket next;
    {
      const Lock lock(mutex_);
      for (const Outgoing& out : outgoing_) {
        if (!out.queue.empty()) next = out.queue.front();
      }
    }
    if (!next) return;
    try {
      waiter_.check(next->peer, next->deadline);  // at once: where nothing can be sent any more there may be many
      wait(next, next->deadline);
    } catch (const Failure& failure) {  // who waits for it is told
      cancel(next, failure);
    }
  }
}

void Mailbox::close(const Failure& why) {
  const Lock lock(mutex_);
  closed_ = why;
  for (Outgoing& out : outgoing_) {
    for (const Ticket& send : std::exchange(out.queue, {})) finish(*send, why);
  }
  for (Incoming& in : incoming_) {
    if (in.message) in.message->drop();
    if (in.receive) finish(*in.receive, why);
    in.receive.reset();
    in.message.reset();
  }
  for (const Ticket& receive : matching_->remove_receives()) finish(*receive, why);
  matching_ = std::make_unique<Matching>();
}

}  // namespace hocket
