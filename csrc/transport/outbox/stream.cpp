#include "transport/outbox/stream.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/choice.h"
#include "engine/past_caches.h"
#include "engine/reading.h"
#include "kernels/copy.h"
#include "transport/shm/mapping.h"
#include "wait/failpoint.h"
#include "wait/wait.h"

namespace hocket::shm {

namespace {

using Copy = void(std::byte* to, const std::byte* from, size_t bytes);

constexpr int most_pauses = 1000;                                                // some tens of microseconds
static_assert(shown_least % stream_line == 0 && shown_most % stream_line == 0);  // or pieces had gaps between them

uint64_t padded(uint64_t n) { return (n + stream_line - 1) / stream_line * stream_line; }

// As it lies in the ring.
struct Header {
  static constexpr uint64_t magic = 0x6d65737361676521;
  uint64_t mark;  // magic plus the message's number: says that this is where a message begins
  int64_t tag;
  uint64_t bytes;
  uint32_t meta_bytes;
  enum Place : uint32_t { ring, ring_past_caches, baton } place;  // of the payload; how it was written there

  uint64_t area() const { return padded(sizeof(Header) + meta_bytes); }
};

// What both ends at this rank of the streams with one peer know of the baton.
struct Baton {
  static constexpr uint64_t least = 512;  // bytes of a payload that it is worth anything for
  std::byte* memory;                      // null: there is none
  bool is_here;
  uint64_t mapped = 0;

  std::byte* first(uint64_t bytes) {
    map_up_to(bytes, memory, short_bytes, mapped, true);
    return memory;
  }
};

class Writer final : public StreamWriter {
 public:
  Writer(const Region& own, int peer, const Consumed& consumed, std::shared_ptr<Baton> baton)
      : lane_(&own.lane(peer)), consumed_by_peer_(&consumed), ring_(own.ring(peer)), baton_(std::move(baton)) {}

  bool send(int64_t tag, std::string_view meta, const std::byte* payload, uint64_t bytes, bool shown) override {
    if (bytes > short_bytes) return false;
    const uint64_t all = area_of(meta) + padded(bytes);
    if (room(all) < all) return false;
    const bool passes = baton_->is_here && bytes >= Baton::least;
    put_header(tag, meta, bytes, passes ? Header::baton : Header::ring);
    std::byte* const apart = passes ? baton_->first(bytes) : nullptr;
    const uint64_t most = shown ? std::clamp(padded(bytes / 4), shown_least, shown_most) : padded(bytes);
    for (uint64_t at = 0; at < bytes; at += most) {
      const uint64_t piece = std::min(most, bytes - at);
      if (passes) {
        copy_bytes(apart + at, payload + at, piece);
      } else {
        copy_in(head_, payload + at, piece);
      }
      head_ += padded(piece);
      publish();
    }
    publish();  // of no bytes
    if (passes) baton_->is_here = false;
    return true;
  }

  bool begin(int64_t tag, std::string_view meta, uint64_t bytes) override {
    const uint64_t area = area_of(meta);
    if (room(area) < area) return false;
    const bool past_caches = bytes > short_bytes && consumed_by_peer_->past_caches.load(std::memory_order_relaxed) != 0;
    copy_ = past_caches ? copy_past_caches : copy_bytes;
    put_header(tag, meta, bytes, past_caches ? Header::ring_past_caches : Header::ring);
    return true;
  }

  uint64_t write(const std::byte* payload, uint64_t bytes) override {
    const uint64_t wanted = std::min(padded(bytes), piece_bytes), piece = std::min(wanted, room(wanted));
    copy_in(head_, payload, std::min(piece, bytes), copy_);
    head_ += piece;
    return std::min(piece, bytes);
  }

  bool publish() override {
    if (head_ == published_) return false;
    published_ = head_;
    FAILPOINT(before_mail);
    lane_->published.store(head_, std::memory_order_release);
    return true;
  }

  void give_up(uint32_t reason) override { lane_->broken.store(reason, std::memory_order_release); }

 private:
  static uint64_t area_of(std::string_view meta) {
    return Header{0, 0, 0, static_cast<uint32_t>(meta.size()), Header::ring}.area();
  }

  void put_header(int64_t tag, std::string_view meta, uint64_t bytes, Header::Place place) {
    const Header header{Header::magic + number_++, tag, bytes, static_cast<uint32_t>(meta.size()), place};
    copy_in(head_, &header, sizeof header);
    copy_in(head_ + sizeof header, meta.data(), meta.size());
    head_ += header.area();
  }

  uint64_t room(uint64_t wanted) {  // looks again if it seems to be less than wanted
    if (ring_bytes - (head_ - consumed_) < wanted) {
      consumed_ = consumed_by_peer_->position.load(std::memory_order_acquire);
    }
    return head_ - consumed_ <= ring_bytes ? ring_bytes - (head_ - consumed_) : 0;
  }

  void copy_in(uint64_t at, const void* from, uint64_t n, Copy* copy = copy_bytes) {
    map_up_to(std::min(at + n, ring_bytes), ring_, ring_bytes, mapped_, true);
    const uint64_t begin = at % ring_bytes, first = std::min(n, ring_bytes - begin);
    const auto* const bytes = static_cast<const std::byte*>(from);
    if (first > 0) copy(ring_ + begin, bytes, first);
    if (n > first) copy(ring_, bytes + first, n - first);
  }

  Lane* lane_;
  const Consumed* consumed_by_peer_;
  std::byte* ring_;
  Copy* copy_ = copy_bytes;  // of the message that is written piece by piece
  uint64_t head_ = 0;
  uint64_t published_ = 0;
  uint64_t consumed_ = 0;  // as last seen
  uint64_t mapped_ = 0;    // of the ring, which it goes around
  uint64_t number_ = 0;    // of messages
  const std::shared_ptr<Baton> baton_;
};

class Reader final : public StreamReader {
 public:
  Reader(const Region& peers, int rank, Consumed& consumed, std::shared_ptr<Baton> baton)
      : lane_(&peers.lane(rank)), consumed_(&consumed), ring_(peers.ring(rank)), baton_(std::move(baton)) {}

  uint32_t broken() const override { return lane_->broken.load(std::memory_order_acquire); }

  bool empty() override {
    if (published_ == tail_) look();
    return published_ == tail_;
  }

  bool sound() const override { return published_ - tail_ <= ring_bytes && published_ % stream_line == 0; }

  std::optional<StreamHeader> begin(std::string& meta) override {
    Header header;
    if (!see_header(header)) return std::nullopt;
    meta.resize(header.meta_bytes);
    copy_out(meta.data(), tail_ + sizeof header, header.meta_bytes);
    tail_ += header.area();
    ++number_;
    tried_ = &past_caches_[std::clamp<int>(std::bit_width(header.bytes / PastCaches::least), 1, 3) - 1];
    tried_->begin(header.bytes, !writing_.tries());
    if (header.bytes > short_bytes) {
      consumed_->past_caches.store(writing_.begin(2, !std::ranges::any_of(past_caches_, &PastCaches::tries)),
                                   std::memory_order_relaxed);
    }
    bytes_ = header.bytes;
    spent_ = {};
    place_ = header.place;
    payload_ = tail_;
    return StreamHeader{header.tag, header.bytes};
  }

  uint64_t read(std::byte* to, uint64_t bytes) override {
    const uint64_t piece = std::min({padded(bytes), published_ - tail_, piece_bytes});
    if (to != nullptr) take_piece(to, std::min(piece, bytes), piece >= bytes);
    tail_ += piece;
    if (place_ == Header::baton && piece >= bytes) take_baton();
    return std::min(piece, bytes);
  }

  void release() override {
    FAILPOINT(mail_read);
    consumed_->position.store(tail_, std::memory_order_release);
  }

  bool glimpse(int64_t tag, Glimpse& seen) override {
    Header header;
    if (!see_short(tag, header)) return false;
    if (!is_whole(header)) look();
    seen.bytes = header.bytes;
    seen.meta_bytes = header.meta_bytes;
    seen.whole = is_whole(header);
    copy_out(seen.text.data(), tail_ + sizeof header, header.meta_bytes);
    return true;
  }

  bool take(int64_t tag, std::string_view meta, std::byte* to, uint64_t bytes) override {
    Header header;
    if (!see_short(tag, header) || header.bytes != bytes || !is_meta(header, meta)) return false;
    const uint64_t begin = tail_ + header.area();
    place_ = header.place;
    payload_ = begin;
    if (is_whole(header)) {
      copy_payload(to, begin, bytes);
    } else if (!follow(to, begin, bytes)) {
      return false;
    }
    tail_ = begin + padded(bytes);
    ++number_;
    if (place_ == Header::baton) take_baton();
    release();
    return true;
  }

 private:
  bool see_header(Header& header) const {
    if (published_ - tail_ < stream_line) return false;
    copy_out(&header, tail_, sizeof header);
    return header.mark == Header::magic + number_ && header.meta_bytes <= meta_limit && header.bytes <= bytes_limit &&
           header.area() <= published_ - tail_ && (header.place <= Header::ring_past_caches || is_apart(header));
  }

  // Else it was overwritten: nobody writes to the baton that this rank has.
  bool is_apart(const Header& header) const {
    return header.place == Header::baton && baton_->memory != nullptr && !baton_->is_here &&
           header.bytes >= Baton::least && header.bytes <= short_bytes;
  }

  bool see_short(int64_t tag, Header& header) const {
    return sound() && see_header(header) && header.tag == tag && header.bytes <= short_bytes;
  }

  bool is_whole(const Header& header) const { return header.area() + padded(header.bytes) <= published_ - tail_; }

  void look() {
    published_ = lane_->published.load(std::memory_order_acquire);
    map_up_to(std::min(published_, ring_bytes), ring_, ring_bytes, mapped_, false);
  }

  // Copies what is being written, piece by piece.
  [[gnu::noinline]] bool follow(std::byte* to, uint64_t begin, uint64_t bytes) {
    for (uint64_t taken = 0; taken < bytes;) {
      const uint64_t there = std::min(published_ - begin, bytes);
      if (there == taken && !wait_for_more()) return false;
      copy_payload(to + taken, begin + taken, there - taken);
      taken = there;
    }
    return true;
  }

  // For as long as a writer takes that is at it, and not much longer: it may have been stopped.
  bool wait_for_more() {
    const uint64_t before = published_;
    for (int turn = 0; turn < most_pauses && published_ == before; ++turn) {
      pause();
      look();
    }
    return published_ > before && sound();
  }

  bool is_meta(const Header& header, std::string_view meta) const {
    if (header.meta_bytes != meta.size()) return false;
    std::array<char, meta_limit> text;
    copy_out(text.data(), tail_ + sizeof header, header.meta_bytes);
    return std::memcmp(text.data(), meta.data(), meta.size()) == 0;
  }

  void take_baton() {
    place_ = Header::ring;
    baton_->is_here = true;
  }

  void take_piece(std::byte* to, uint64_t n, bool is_last) {
    if (bytes_ <= short_bytes) return copy_payload(to, tail_, n);
    const auto begun = Clock::now();
    if (tail_ == payload_) begun_ = begun;
    copy_payload(to, tail_, n, tried_->is_past());
    const auto now = Clock::now();
    spent_ += now - begun;
    if (!is_last) return;
    if (tried_->is_measured()) tried_->tell(spent_);
    writing_.tell(place_ == Header::ring_past_caches, pace(now - begun_, bytes_, short_bytes), PastCaches::clearly);
  }

  void copy_payload(std::byte* to, uint64_t at, uint64_t n, bool past_caches = false) {
    if (place_ == Header::baton) return reading_.copy(to, baton_->first(at - payload_ + n) + (at - payload_), n);
    if (past_caches) return copy_out(to, at, n, copy_past_caches);
    copy_out(to, at, n,
             [this](std::byte* there, const std::byte* from, size_t bytes) { reading_.copy(there, from, bytes); });
  }

  void copy_out(void* to, uint64_t at, uint64_t n) const { copy_out(to, at, n, copy_bytes); }

  template <class Way>
  void copy_out(void* to, uint64_t at, uint64_t n, Way copy) const {
    const uint64_t begin = at % ring_bytes, first = std::min(n, ring_bytes - begin);
    auto* const bytes = static_cast<std::byte*>(to);
    if (first > 0) copy(bytes, ring_ + begin, first);
    if (n > first) copy(bytes + first, ring_, n - first);
  }

  const Lane* lane_;
  Consumed* consumed_;
  const std::byte* ring_;
  uint64_t tail_ = 0;
  uint64_t published_ = 0;              // as last seen
  uint64_t mapped_ = 0;                 // of the ring
  uint64_t number_ = 0;                 // of messages
  uint64_t bytes_ = 0;                  // of that of the one that is being read,
  uint64_t payload_ = 0;                // where that begins,
  Header::Place place_ = Header::ring;  // and in what
  Readings reading_;
  std::array<PastCaches, 3> past_caches_;  // for messages of 2, 4 and 8 MiB, and less than twice that
  PastCaches* tried_ = &past_caches_[0];   // that of the message which is being read,
  Choice writing_;                         // whether long ones are written past the caches to the ring,
  Clock::time_point begun_;                // when the first piece was there,
  Clock::duration spent_{};                // and how long copying has taken so far
  const std::shared_ptr<Baton> baton_;
};

}  // namespace

std::vector<Stream> streams(int rank, const std::vector<std::byte*>& regions, const std::vector<bool>& near) {
  const int size = static_cast<int>(regions.size());
  const Region own{regions[rank], size};
  std::vector<Stream> made(regions.size());
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    const Region other{regions[peer], size};
    std::byte* const memory = !near[peer] ? nullptr : rank < peer ? own.baton(peer) : other.baton(rank);
    const auto baton = std::make_shared<Baton>(Baton{memory, near[peer] && rank < peer});
    made[peer].writer = std::make_unique<Writer>(own, peer, other.consumed(rank), baton);
    made[peer].reader = std::make_unique<Reader>(other, rank, own.consumed(peer), baton);
  }
  return made;
}

}  // namespace hocket::shm
