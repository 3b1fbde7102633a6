#include "transport/outbox/channels.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "engine/sending.h"
#include "transport/shm/foreign.h"
#include "transport/shm/mapping.h"

namespace hocket {

namespace {

constexpr uint64_t soon_fetched = 16 << 10;  // bytes of a message: for longer ones it gained nothing

uint64_t any_number() {
  std::random_device source;
  return uint64_t{source()} << 32 | source();
}

}  // namespace

Channels::Channels(int rank, std::vector<Outbox*> boxes, const std::vector<uint64_t>& slots, uint64_t arena, Bell& bell,
                   Board& board)
    : boxes_(boxes),
      rank_(rank),
      number_(any_number()),
      bell_(bell),
      board_(board),
      slots_(slots[rank]),
      arena_bytes_(arena),
      brief_(std::min<uint64_t>(4 << 10, slots_ / 16)),
      front_(std::min<uint64_t>(64 << 10, slots_ / 4)),
      channels_(boxes.size()) {
  const int size = static_cast<int>(boxes.size());
  Outbox& own = *boxes[rank];
  for (int peer = 0; peer < size; ++peer) {
    Outbox& box = *boxes[peer];
    Channel& c = channels_[peer];
    c.send = own.descriptors(size, peer);
    c.receive = box.descriptors(size, rank);
    c.read_by_peer = &box.counts()[rank].read;
    c.read_by_us = &own.counts()[peer].read;
    c.ring = {box.slots(size), slots[peer]};
    c.behind_wire = bell.is_behind_wire(peer);
    is_one_host_ &= !c.behind_wire;
    c.arena = reinterpret_cast<std::byte*>(&box) + arena_offset(size, slots[peer]);
  }
  own.beacon.number.store(number_, std::memory_order_relaxed);
  own.beacon.address.store(reinterpret_cast<uintptr_t>(&number_), std::memory_order_relaxed);
  arena_ = channels_[rank].arena;
  for (int peer = 0; peer < size; ++peer) {
    Channel& c = channels_[peer];
    // Twice the front: what is in flight when it begins anew is spared.
    c.ring.mapped = std::min(mapped_at_once, c.ring.bytes);
    populate(c.receive, depth * sizeof(Descriptor), peer == rank || c.behind_wire);
    populate(c.ring.slots, c.ring.mapped, peer == rank || c.behind_wire);
  }
  rings_[0] = channels_[rank].ring;
  for (int owner = 0; owner < size && size == 2 && is_one_host_; ++owner) {
    rings_[1 + owner] = {reinterpret_cast<std::byte*>(boxes[owner]) + passing_offset(size, slots_), slots_};
  }
  populate(own.descriptors(size, 0), size * depth * sizeof(Descriptor), true);
}

// Nobody reads or writes the ring of this call any more: docs/decisions/0036. What it begins with this rank has read
// last.
uint64_t Channels::begin(bool pass) {
  if (rings_[1].bytes == 0) return 0;
  Ring* const next = &rings_[pass ? 1 + (rank_ + ++passes_) % 2 : 0];
  if (next == ring_) return passes_;
  ring_ = next;
  if (pass && read_at_) ring_->resume = *std::exchange(read_at_, std::nullopt);
  head_ = tail_ = round_up(head_, slots_) + ring_->resume;
  to_fetch_ = 0;  // it was behind a message of another ring
  for (Channel& c : channels_) c.elsewhere = c.sent;
  return passes_;
}

std::byte* Channels::reserve(Peers peers, uint64_t bytes) {
  kind_ = bytes <= Descriptor::room     ? Descriptor::here
          : ring_ == &rings_[0]         ? Descriptor::slot
          : ring_ == &rings_[1 + rank_] ? Descriptor::passed
                                        : Descriptor::passed_back;
  if (kind_ != Descriptor::here) return reserve_slots(peers, bytes);
  reserved_ = head_;
  return room(peers, head_) ? inline_ : nullptr;
}

std::byte* Channels::reserve_slots(Peers peers, uint64_t bytes) {
  turn(bytes);
  uint64_t begin = head_;
  // A message does not wrap. What is lent and short goes around in half of the ring: more of the caches is left then.
  const bool halves = kind_ == Descriptor::lent && 16 * bytes <= slots_;
  const uint64_t first = halves ? front_ : 0, end = halves ? front_ + slots_ / 2 : slots_;
  if (begin % slots_ + bytes > end) begin = round_up(begin - first, slots_) + first;
  reserved_ = begin;
  if (!room(peers, begin + round_up(bytes, line))) return nullptr;
  map_up_to(begin % slots_ + bytes, ring_->slots, slots_, ring_->mapped, true);
  return ring_->slots + begin % slots_;
}

// Where the ring is so much longer, what is lent never leaves too little of it for what is sent meanwhile:
// docs/decisions/0026.
bool Channels::lends(int peer, uint64_t bytes) const {
  return lending_ && !channels_[peer].behind_wire && 8 * bytes <= slots_;
}

std::byte* Channels::lend(Peers peer, uint64_t bytes) {
  if (lent_ - taken_back_ == depth) {
    laggard_ = peer.front();
    return nullptr;
  }
  kind_ = Descriptor::lent;
  return reserve_slots(peer, bytes);
}

// Where nothing is in flight a message may lie anywhere: a short one in the front, which is in this core's caches; a
// long one where the last long one ended, since the lines before that are still in its readers' caches, and to write
// those again costs several times as much. But what was lent its owner has read last, so what is lent gets the slots of
// what was lent before.
void Channels::turn(uint64_t bytes) {
  const uint64_t at = head_ % slots_;
  const bool is_lent = kind_ == Descriptor::lent, is_brief = !is_lent && bytes <= brief_;
  const uint64_t to = is_lent ? front_ : is_brief ? 0 : ring_->resume;
  if ((is_brief ? at + bytes > front_ : at != to) && all_read()) {
    head_ = tail_ = round_up(head_ - to, slots_) + to;
  }
}

// Whether nothing of what was posted is still to be read, or to be taken back.
bool Channels::all_read() {
  if (lent_ != taken_back_) return false;
  for (Channel& c : channels_) {
    if (c.oldest() == c.sent) continue;
    c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
    if (c.oldest() != c.sent) return false;
  }
  return true;
}

// Whether each channel has a descriptor left and the slots up to `end` are free.
bool Channels::room(Peers peers, uint64_t end) {
  for (int peer : peers) {
    Channel& c = channels_[peer];
    if (c.sent - c.seen_read < depth) continue;
    c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
    if (c.sent - c.seen_read < depth) continue;
    laggard_ = peer;
    return false;
  }
  if (end - tail_ <= slots_) return true;
  tail_ = head_;
  for (Channel& c : channels_) {
    if (c.oldest() == c.sent) continue;
    c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
    if (c.oldest() != c.sent) tail_ = std::min(tail_, c.begin[c.oldest() % depth]);
  }
  if (lent_ != taken_back_) tail_ = std::min(tail_, lent_at_[taken_back_ % depth]);
  if (end - tail_ <= slots_) return true;
  laggard_ = reader_of_tail();
  return false;
}

// The lowest rank that has not read the oldest message that is in the way. -1: that was lent, all have read it, and it
// is to be taken back.
int Channels::reader_of_tail() const {
  const auto keeps = [this](const Channel& c) { return c.oldest() != c.sent && c.begin[c.oldest() % depth] == tail_; };
  const auto found = std::ranges::find_if(channels_, keeps);
  return found == channels_.end() ? -1 : static_cast<int>(found - channels_.begin());
}

void Channels::post(Peers peers, uint64_t bytes, Label label) {
  if (kind_ == Descriptor::lent) lent_at_[lent_++ % depth] = reserved_;
  publish(peers, bytes, label, kind_, reserved_ % slots_);
  if (kind_ == Descriptor::here) return;
  head_ = reserved_ + round_up(bytes, line);
  if (kind_ == Descriptor::lent) return;
  if (bytes > brief_) ring_->resume = head_ % slots_;
  to_fetch_ = bytes <= soon_fetched && kind_ == Descriptor::slot ? std::min(bytes, slots_ - head_ % slots_) : 0;
}

// A wire sends from wherever it lies.
bool Channels::reachable(Peers peers, const std::byte* data, uint64_t bytes) const {
  if (bytes <= Descriptor::room) return false;
  return in_arena(data, bytes) || std::ranges::all_of(peers, [this](int peer) { return channels_[peer].behind_wire; });
}

bool Channels::in_arena(const std::byte* data, uint64_t bytes) const {
  return data >= arena_ && data != nullptr && data + bytes <= arena_ + arena_bytes_;
}

// Not in a group of several hosts: there a rank that was given up may complete a call for a while, if another one has
// (settlement.h), and what was offered to it may be filled anew by then.
bool Channels::offers(Peers peers, const std::byte* data, uint64_t bytes) const {
  const auto may_read = [this](int peer) {
    return boxes_[peer]->counts()[rank_].may_read.load(std::memory_order_acquire) != 0;
  };
  return bytes >= least_tried && is_one_host_ && std::ranges::all_of(peers, may_read) && is_copyable(data, bytes);
}

// What has come from there is long, and the next one could be offered.
void Channels::try_to_read(int peer) {
  channels_[peer].tried = true;
  if (copy_from(peer, nullptr, nullptr, 0) == 0) {
    boxes_[rank_]->counts()[peer].may_read.store(1, std::memory_order_release);
  }
}

// As `copy_from_process` does.
int Channels::copy_from(int peer, const std::byte* from, std::byte* to, uint64_t bytes) const {
  const Outbox::Beacon& shown = boxes_[peer]->beacon;
  const Beacon beacon{shown.number.load(std::memory_order_relaxed),
                      reinterpret_cast<const void*>(shown.address.load(std::memory_order_relaxed))};
  const pid_t pid = boxes_[rank_]->counts()[peer].pid.load(std::memory_order_relaxed);
  return pid > 0 ? copy_from_process(pid, beacon, from, to, bytes) : ESRCH;
}

bool Channels::post_view(Peers peers, const std::byte* data, uint64_t bytes, Label label) {
  return show(peers, bytes, label, Descriptor::view, data - arena_);
}

bool Channels::post_offer(Peers peers, const std::byte* data, uint64_t bytes, Label label, bool whole) {
  const uint32_t kind = whole ? Descriptor::offered_whole : Descriptor::offered;
  return show(peers, bytes, label, kind, reinterpret_cast<uintptr_t>(data));
}

// What takes no slots.
bool Channels::show(Peers peers, uint64_t bytes, Label label, uint32_t kind, uint64_t offset) {
  reserved_ = head_;
  if (!room(peers, head_)) return false;
  publish(peers, bytes, label, kind, offset);
  return true;
}

void Channels::publish(Peers peers, uint64_t bytes, Label label, uint32_t kind, uint64_t offset) {
  for (int peer : peers) {
    Channel& c = channels_[peer];
    Descriptor& d = c.send[c.sent % depth];
    d.call = label.call;
    d.place = label.place;
    d.bytes = bytes;
    d.kind = kind;
    if (kind == Descriptor::here) {
      std::memcpy(d.payload, inline_, Descriptor::room);
    } else {
      d.offset = offset;
    }
    c.begin[c.sent % depth] = reserved_;
    d.turn.store(++c.sent, std::memory_order_release);
    bell_.notify(peer);
    fetch_to_write(&c.send[c.sent % depth]);
  }
}

std::byte* Channels::target(int peer) {
  const uint64_t out = board_.place_of_output(peer);
  return out == 0 || out > arena_bytes_ ? nullptr : channels_[peer].arena + (out - 1);
}

void Channels::post_put(int peer, const std::byte* written, uint64_t bytes, Label label) {
  reserved_ = head_;
  const int32_t to[] = {peer};
  publish(to, bytes, label, Descriptor::put, written - channels_[peer].arena);
}

uint64_t Channels::posted(int peer) const { return channels_[peer].sent; }

bool Channels::consumed(int peer, uint64_t count) {
  Channel& c = channels_[peer];
  if (c.seen_read < count) c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
  return c.seen_read >= count;
}

bool Channels::peek(int peer, Message& message) {
  Channel& c = channels_[peer];
  const Descriptor& d = c.receive[c.received % depth];
  const auto is_there = [&] { return d.turn.load(std::memory_order_acquire) == c.received + 1; };
  if (!is_there() && !(c.behind_wire && bell_.hear(peer) && is_there())) return false;
  message.label = {d.call, d.place};
  message.bytes = d.bytes;
  message.lent = d.kind == Descriptor::lent && !c.behind_wire;
  if (d.kind == Descriptor::here && d.bytes <= Descriptor::room) {
    message.data = d.payload;
    return true;
  }
  message.whole = d.kind == Descriptor::offered_whole && !c.behind_wire;
  message.offered = message.whole || (d.kind == Descriptor::offered && !c.behind_wire);
  if (message.offered) {
    message.data = reinterpret_cast<const std::byte*>(d.offset);
    return true;
  }
  if (d.kind == Descriptor::landed && c.behind_wire) {
    message.data = reinterpret_cast<const std::byte*>(d.offset);
    return true;
  }
  const bool passed = rings_[1].bytes != 0 && (d.kind == Descriptor::passed || d.kind == Descriptor::passed_back);
  const bool in_arena = d.kind == Descriptor::view || d.kind == Descriptor::put;
  Ring* const ring = passed ? &rings_[1 + (d.kind == Descriptor::passed ? peer : rank_)]
                     : d.kind == Descriptor::slot || message.lent ? &c.ring
                                                                  : nullptr;
  const uint64_t limit = ring != nullptr ? ring->bytes : in_arena ? arena_bytes_ : 0;
  if (d.bytes > limit || d.offset > limit - d.bytes) {
    throw Failure{Failure::internal, peer, "a message lies outside its sender's memory: that was overwritten"};
  }
  if (!c.tried && d.bytes >= least_tried && is_one_host_) try_to_read(peer);
  if (ring != nullptr) map_up_to(d.offset + d.bytes, ring->slots, ring->bytes, ring->mapped, passed || c.behind_wire);
  if (passed && !read_at_) read_at_ = d.offset;
  message.data = (ring != nullptr ? ring->slots : d.kind == Descriptor::view ? c.arena : arena_) + d.offset;
  return true;
}

// The slots of the next message, if it is as long as the last one, are fetched as soon as something has been read:
// before that they would keep what is read waiting, on their way here.
void Channels::release(int peer) {
  Channel& c = channels_[peer];
  c.read_by_us->store(++c.received, std::memory_order_release);
  bell_.notify(peer);
  if (to_fetch_ != 0) fetch_to_write(ring_->slots + head_ % slots_, std::exchange(to_fetch_, 0));
}

void Channels::mismatch(int peer, const Message& message, Label expected, uint64_t bytes) {
  board_.compare(peer);
  throw Failure{Failure::internal, peer,
                "in " + board_.title() + " a message of call " + std::to_string(message.label.call) + " with " +
                    std::to_string(message.bytes) + " bytes came where call " + std::to_string(expected.call) +
                    " has one of " + std::to_string(bytes)};
}

}  // namespace hocket
