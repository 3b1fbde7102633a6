#include "transport/shm/endpoint.h"

#include "transport/shm/layout.h"
#include "transport/shm/stream.h"

namespace hocket {

Parts::Parts(int own_rank, const std::vector<int>& fds, std::vector<int> sockets, std::vector<int> pidfds,
             uint64_t slot_bytes, uint64_t bytes)
    : rank(own_rank),
      size(static_cast<int>(fds.size())),
      slots(round_up(slot_bytes, line)),
      arena_bytes(round_up(bytes, page)),
      mappings([&] {
        std::vector<std::unique_ptr<Mapping>> all;
        for (int fd : fds)
          all.push_back(std::make_unique<Mapping>(fd, Endpoint::outbox_bytes(size, slots, arena_bytes)));
        return all;
      }()),
      boxes([&] {
        std::vector<Outbox*> all;
        for (const auto& mapping : mappings) all.push_back(reinterpret_cast<Outbox*>(mapping->data()));
        return all;
      }()),
      bell(rank, boxes),
      board(rank, boxes),
      liveness(rank, boxes, std::move(sockets), std::move(pidfds)) {
  mappings[rank]->own(fds[rank], arena_offset(size, slots), arena_bytes);
}

uint64_t Endpoint::outbox_bytes(int size, uint64_t slots, uint64_t arena) {
  return arena_offset(size, round_up(slots, line)) + round_up(arena, page);
}

Endpoint::Endpoint(int rank, const std::vector<int>& fds, std::vector<int> sockets, std::vector<int> pidfds,
                   uint64_t slots, uint64_t arena, std::function<void()> signals)
    : Parts(rank, fds, std::move(sockets), std::move(pidfds), slots, arena),
      Channels(rank, boxes, Parts::slots, arena_bytes, bell, board),
      signals_(std::move(signals)) {
  std::vector<std::byte*> regions;
  for (Outbox* box : boxes) regions.push_back(box->slots(Parts::size) + Parts::slots);
  mailbox_ = std::make_unique<Mailbox>(rank, Parts::size, shm::streams(rank, regions), *this);
}

Endpoint::~Endpoint() = default;

// ---- agreement ------------------------------------------------------------------------------------------------------

uint64_t Endpoint::enter(uint64_t fingerprint, const std::byte* out) {
  return board.enter(fingerprint, reachable(out, Descriptor::room + 1) ? 1 + (out - Channels::arena()) : 0);
}

uint64_t Endpoint::next(int peer, uint64_t expected, Deadline deadline) {
  return board.next(peer, expected, *this, deadline);
}

std::string Endpoint::learn(int peer, const std::string& expected, Deadline deadline) {
  return board.learn(peer, expected, *this, deadline);
}

void Endpoint::fence(const std::byte* begin, uint64_t bytes) {
  if (bytes == 0 || begin < Channels::arena() || begin >= Channels::arena() + arena_bytes) return;
  fenced_ = true;
  mappings[rank()]->detach(begin, bytes);
}

void Endpoint::give_back(uint64_t begin, uint64_t bytes) {
  if (!fenced_) mappings[rank()]->give_back(Channels::arena() + begin, bytes);
}

void Endpoint::poison(const Failure& failure) {
  if (board.poison(failure)) bell.notify_all();
}

void Endpoint::leave() {
  board.leave();
  bell.notify_all();
}

void Endpoint::close() {
  closing_ = true;
  bell.notify(rank());
}

// ---- waiting --------------------------------------------------------------------------------------------------------

void Endpoint::check(int peer, Deadline deadline) {
  if (closing_) throw Failure{Failure::closed, rank(), ""};
  board.check_reasons();
  for (int other = 0; other < size(); ++other) {
    if (other != rank()) board.compare(other);
  }
  if (peer >= 0 && board.has_left(peer)) liveness.gone(peer, "left");
  mailbox_->progress();  // a peer may need a message of ours to get to where we wait for it
  liveness.beat(peer);
  const auto now = Clock::now();
  if (now > deadline) {
    throw Failure{Failure::timeout, liveness.culprit(peer, [this](int other) { return board.is_here(other); }), ""};
  }
  if (liveness.look(now) && signals_) signals_();
}

}  // namespace hocket
