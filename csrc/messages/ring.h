// One direction between two ranks: a ring of bytes that carries messages, each a header, a meta and a payload.
//
// Positions count bytes since the beginning of time and move by whole cache lines. The reader trusts nothing it reads:
// a ring that was overwritten is found out before a length is used.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace hocket::p2p {

inline constexpr uint64_t line = 64;
inline constexpr uint64_t ring_bytes = 512 << 10;
inline constexpr uint64_t piece_bytes = 64 << 10;        // published at once, so that both ends copy at the same time
inline constexpr uint64_t short_bytes = ring_bytes / 2;  // of a message that is sent, and received, in one go
inline constexpr uint64_t meta_limit = 512;
inline constexpr uint64_t bytes_limit = uint64_t{1} << 48;

inline uint64_t padded(uint64_t n) { return (n + line - 1) / line * line; }

// In the writer's region.
struct alignas(line) Lane {
  std::atomic<uint64_t> published;  // position up to which the ring is written
  std::atomic<uint32_t> broken;     // not 0: the writer has stopped in the middle of a message, and this says why
};

// In the reader's region.
struct alignas(line) Count {
  std::atomic<uint64_t> consumed;  // position up to which the ring is read
};

// One rank's region; indices are the peers.
struct Region {
  std::byte* begin;
  int size;
  static uint64_t bytes(int size) { return static_cast<uint64_t>(size) * (sizeof(Lane) + sizeof(Count) + ring_bytes); }
  Lane& lane(int peer) const { return reinterpret_cast<Lane*>(begin)[peer]; }
  Count& count(int peer) const { return reinterpret_cast<Count*>(&lane(size))[peer]; }
  std::byte* ring(int peer) const { return reinterpret_cast<std::byte*>(&count(size)) + peer * ring_bytes; }
};

struct Header {
  static constexpr uint64_t magic = 0x6d65737361676521;
  uint64_t mark;  // magic plus the message's number: says that this is where a message begins
  int64_t tag;
  uint64_t bytes;
  uint64_t meta_bytes;

  uint64_t area() const { return padded(sizeof(Header) + meta_bytes); }
};

class Writer {
 public:
  Writer(const Region& own, int peer, const Count& count)
      : lane_(&own.lane(peer)), count_(&count), ring_(own.ring(peer)) {}

  // False if there is no room yet.
  bool begin(int64_t tag, uint64_t bytes, const std::string& meta) {
    const Header header{Header::magic + number_, tag, bytes, meta.size()};
    if (room(header.area()) < header.area()) return false;
    copy_in(head_, &header, sizeof header);
    copy_in(head_ + sizeof header, meta.data(), meta.size());
    head_ += header.area();
    ++number_;
    return true;
  }

  // Whether a message of at most a piece can be written as a whole.
  bool fits(uint64_t bytes, const std::string& meta) {
    const uint64_t all = Header{0, 0, bytes, meta.size()}.area() + padded(bytes);
    return room(all) >= all;
  }

  // Writes at most a piece of a payload and returns how many bytes of it.
  uint64_t write(const std::byte* payload, uint64_t bytes) {
    const uint64_t wanted = std::min(padded(bytes), piece_bytes), piece = std::min(wanted, room(wanted));
    copy_in(head_, payload, std::min(piece, bytes));
    head_ += piece;
    return std::min(piece, bytes);
  }

  // False if there is nothing new.
  bool publish() {
    if (head_ == published_) return false;
    published_ = head_;
    lane_->published.store(head_, std::memory_order_release);
    return true;
  }

  void give_up(uint32_t reason) { lane_->broken.store(reason, std::memory_order_release); }

 private:
  uint64_t room(uint64_t wanted) {  // looks again if it seems to be less than wanted
    if (ring_bytes - (head_ - consumed_) < wanted) consumed_ = count_->consumed.load(std::memory_order_acquire);
    return head_ - consumed_ <= ring_bytes ? ring_bytes - (head_ - consumed_) : 0;
  }

  void copy_in(uint64_t at, const void* from, uint64_t n) {
    const uint64_t begin = at % ring_bytes, first = std::min(n, ring_bytes - begin);
    if (first > 0) std::memcpy(ring_ + begin, from, first);
    if (n > first) std::memcpy(ring_, static_cast<const std::byte*>(from) + first, n - first);
  }

  Lane* lane_;
  const Count* count_;
  std::byte* ring_;
  uint64_t head_ = 0;
  uint64_t published_ = 0;
  uint64_t consumed_ = 0;  // as last seen
  uint64_t number_ = 0;    // of messages
};

class Reader {
 public:
  Reader(const Region& peers, int rank, Count& count)
      : lane_(&peers.lane(rank)), count_(&count), ring_(peers.ring(rank)) {}

  uint32_t broken() const { return lane_->broken.load(std::memory_order_acquire); }

  bool empty() {
    if (published_ == tail_) published_ = lane_->published.load(std::memory_order_acquire);
    return published_ == tail_;
  }

  // False if what is published cannot be true.
  bool sound() const { return published_ - tail_ <= ring_bytes && published_ % line == 0; }

  // The header and the meta of the next message; nothing if there is none to be found where it should begin.
  std::optional<Header> begin(std::string& meta) {
    Header header;
    copy_out(&header, tail_, sizeof header);
    if (header.mark != Header::magic + number_ || header.meta_bytes > meta_limit) return std::nullopt;
    if (header.bytes > bytes_limit || header.area() > published_ - tail_) return std::nullopt;
    meta.resize(header.meta_bytes);
    copy_out(meta.data(), tail_ + sizeof header, header.meta_bytes);
    tail_ += header.area();
    ++number_;
    return header;
  }

  // Reads the next message as a whole, if it is of `tag`, at most a piece long and all there, to where `place` says.
  template <class Place>
  bool take(int64_t tag, const Place& place) {
    Header header;
    char meta[meta_limit];
    if (!sound() || published_ - tail_ < line) return false;
    copy_out(&header, tail_, sizeof header);
    if (header.mark != Header::magic + number_ || header.tag != tag || header.meta_bytes > meta_limit) return false;
    if (header.bytes > short_bytes || header.area() + padded(header.bytes) > published_ - tail_) return false;
    copy_out(meta, tail_ + sizeof header, header.meta_bytes);
    std::byte* to = place(std::string_view(meta, header.meta_bytes), header.bytes);
    if (to == nullptr) return false;
    copy_out(to, tail_ + header.area(), header.bytes);
    tail_ += header.area() + padded(header.bytes);
    ++number_;
    release();
    return true;
  }

  // Reads at most a piece of the `bytes` that are left of a payload, to nowhere if `to` is null; returns how many.
  uint64_t read(std::byte* to, uint64_t bytes) {
    const uint64_t piece = std::min({padded(bytes), published_ - tail_, piece_bytes});
    if (to != nullptr) copy_out(to, tail_, std::min(piece, bytes));
    tail_ += piece;
    return std::min(piece, bytes);
  }

  void release() { count_->consumed.store(tail_, std::memory_order_release); }

 private:
  void copy_out(void* to, uint64_t at, uint64_t n) const {
    const uint64_t begin = at % ring_bytes, first = std::min(n, ring_bytes - begin);
    if (first > 0) std::memcpy(to, ring_ + begin, first);
    if (n > first) std::memcpy(static_cast<std::byte*>(to) + first, ring_, n - first);
  }

  const Lane* lane_;
  Count* count_;
  const std::byte* ring_;
  uint64_t tail_ = 0;
  uint64_t published_ = 0;  // as last seen
  uint64_t number_ = 0;     // of messages
};

}  // namespace hocket::p2p
