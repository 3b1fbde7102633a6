// What is sent: what the outbox holds beyond what the other end has been told, in frames, as the socket takes them.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/outbox/activity.h"
#include "transport/tcp/crc32c.h"
#include "transport/tcp/link.h"
#include "wait/failpoint.h"

namespace hocket::tcp {

namespace {

constexpr uint64_t few = 4;  // messages, after which the other rank is told that they were read

}  // namespace

void Link::push() {
  const std::lock_guard lock(sending_);
  while (sends()) {
    if (done_ == batched_) {
      done_ = batched_ = 0;
      for (; batched_ < most_frames && compose(batch_[batched_]); ++batched_) {
        if (checked_) seal(batch_[batched_]);
      }
      if (batched_ == 0) break;
    }
    if (!flush()) return;
  }
  stuck_ = sends() && !pipe_->flush();
}

// Hands the batch to the kernel; false where that takes no more.
bool Link::flush() {
  std::array<iovec, most_frames * 3> parts;
  size_t count = 0, skip = sent_bytes_;
  for (int i = done_; i < batched_; ++i) {
    for (int k = 0; k < batch_[i].count; ++k) {
      iovec part = batch_[i].parts[k];
      const size_t skipped = std::min(skip, part.iov_len);
      skip -= skipped;
      part = {static_cast<std::byte*>(part.iov_base) + skipped, part.iov_len - skipped};
      if (part.iov_len != 0) parts[count++] = part;
    }
  }
  BEFORE_FAILPOINT(frame_half_sent, count = 1, parts[0].iov_len = (parts[0].iov_len + 1) / 2);
  FAILPOINT(frame_composed);
  const ssize_t n = pipe_->send({parts.data(), count});
  if (n >= 0) {
    FAILPOINT(frame_half_sent);
    sent(static_cast<size_t>(n));
    return true;
  }
  if (errno == EINTR) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
    stuck_ = true;
  } else {
    stuck_ = false;
    unsent_ = errno;
  }
  return false;
}

void Link::sent(size_t bytes) {
  sent_bytes_ += bytes;
  for (; done_ < batched_; ++done_) {
    Outgoing& out = batch_[done_];
    size_t all = 0;
    for (int k = 0; k < out.count; ++k) all += out.parts[k].iov_len;
    if (sent_bytes_ < all) return;
    sent_bytes_ -= all;
    if (out.message != 0) mirror_->counts()[rank_].read.store(out.message, std::memory_order_release);
  }
}

void Link::begin(Outgoing& to, Frame::Kind kind, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  told_read_ = own_->counts()[peer_].read.load(std::memory_order_acquire);
  told_consumed_ = own_mail_.consumed(peer_).position.load(std::memory_order_acquire);
  to.frame = {kind, 0, 0, static_cast<uint32_t>(frames_++), 0, told_read_, told_consumed_, a, b, c, d};
  to.parts[0] = {&to.frame, sizeof to.frame};
  to.count = 1;
  to.message = 0;
  to.copy.clear();
}

void Link::attach(Outgoing& to, const void* data, uint64_t bytes) {
  if (bytes == 0) return;
  to.frame.bytes += static_cast<uint32_t>(bytes);
  to.parts[to.count++] = {const_cast<void*>(data), bytes};
}

void Link::seal(Outgoing& to) {
  uint32_t sum = crc32c(0, reinterpret_cast<const std::byte*>(&to.frame), sizeof to.frame);
  const auto half = static_cast<uint16_t>(sum);
  for (int k = 1; k < to.count; ++k)
    sum = crc32c(sum, static_cast<const std::byte*>(to.parts[k].iov_base), to.parts[k].iov_len);
  to.frame.half = half;
  to.frame.sum = sum;
}

bool Link::compose(Outgoing& to) {
  return call(to) || affairs(to) || message(to) || mail(to) || pulse(to) || doing(to) || left(to);
}

// What the calls of this fingerprint are called, if the other end does not know it yet.
bool Link::text(Outgoing& to, uint64_t fingerprint) {
  const Outbox::Text& t = own_->texts[fingerprint % text_count];
  if (texts_[fingerprint % text_count] == fingerprint || t.fingerprint.load(std::memory_order_acquire) != fingerprint)
    return false;
  texts_[fingerprint % text_count] = fingerprint;
  begin(to, Frame::text, fingerprint);
  const size_t length = strnlen(t.text, sizeof t.text);
  const auto* bytes = reinterpret_cast<const std::byte*>(t.text);
  to.copy.assign(bytes, bytes + length);
  attach(to, to.copy.data(), length);
  return true;
}

// The board has room for all that were not told: nobody completes a call before all have entered it, or wait to.
bool Link::call(Outgoing& to) {
  const Outbox::Entry& e = own_->board[(calls_ + 1) % board_size];
  if (e.call.load(std::memory_order_acquire) != calls_ + 1) return false;
  const uint64_t fingerprint = e.fingerprint.load(std::memory_order_relaxed);
  if (text(to, fingerprint)) return true;
  begin(to, Frame::call, ++calls_, fingerprint);
  return true;
}

// What is told of a group that is over. Of each round the reason goes before the stand, which it belongs to: who sees
// that all stand alike decides by the reasons that it has.
bool Link::affairs(Outgoing& to) {
  const uint64_t now = own_->affairs.load(std::memory_order_acquire);
  if (now == told_affairs_) return false;
  if (note(to)) return true;
  for (int round = 0; round < rounds; ++round) {
    if (stand(to, round) || reason(to, round)) return true;
  }
  told_affairs_ = now;
  return false;
}

bool Link::reason(Outgoing& to, int round) {
  const Outbox::Finding& finding = own_->findings[round];
  if (told_reasons_[round] || finding.there.load(std::memory_order_acquire) == 0) return false;
  told_reasons_[round] = true;
  begin(to, Frame::reason, finding.why.kind, static_cast<uint32_t>(finding.why.culprit), static_cast<uint64_t>(round));
  attach(to, finding.why.text, strnlen(finding.why.text, reason_bytes));
  return true;
}

// Those who are lost, a bit each, and of one that has settled the reason.
bool Link::stand(Outgoing& to, int round) {
  Outbox::Stand now;
  const uint64_t version = own_->stands[round].version();
  if (version == told_stands_[round] || !own_->stands[round].read(now)) return false;
  if (reason(to, round)) return true;  // looked for when the stand was seen: another thread may just have come to both
  told_stands_[round] = version;
  begin(to, Frame::stand, now.stage, now.completed, now.reached,
        static_cast<uint64_t>(round) << 48 | uint64_t{now.why.kind} << 32 | static_cast<uint32_t>(now.why.culprit));
  to.copy.assign((static_cast<size_t>(size_) + 7) / 8, std::byte{0});
  for (size_t rank = 0; rank < static_cast<size_t>(size_); ++rank) {
    if (now.lost[rank]) to.copy[rank / 8] |= std::byte{1} << rank % 8;
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(now.why.text);
  to.copy.insert(to.copy.end(), bytes, bytes + strnlen(now.why.text, reason_bytes));
  attach(to, to.copy.data(), to.copy.size());
  return true;
}

bool Link::note(Outgoing& to) {
  Outbox::Note now;
  const uint64_t version = own_->note.version();
  if (version == told_note_ || !own_->note.read(now)) return false;
  told_note_ = version;
  begin(to, Frame::note, now.attempt, now.formed);
  const auto* bytes = reinterpret_cast<const std::byte*>(now.card);
  to.copy.assign(bytes, bytes + std::min<uint64_t>(now.bytes, card_bytes));
  attach(to, to.copy.data(), to.copy.size());
  return true;
}

bool Link::message(Outgoing& to) {
  const Descriptor& d = own_->descriptors(size_, peer_)[messages_ % depth];
  if (fenced_ || d.turn.load(std::memory_order_acquire) != messages_ + 1) return false;
  const uint64_t read = std::min(read_by_peer_.load(std::memory_order_acquire), messages_);
  if (read == messages_) head_ = round_up(head_, window);  // memory that is warm there
  const uint64_t tail = read == messages_ ? head_ : begins_[read % depth];
  uint64_t place = head_, end = head_;
  if (d.bytes > Descriptor::room) {
    if (place % window + d.bytes > window) place = round_up(place, window);
    end = place + round_up(d.bytes, line);
  }
  starved_ = messages_ - read >= depth || end - tail > window;
  if (starved_) return false;
  begins_[messages_ % depth] = place;
  head_ = end;
  begin(to, Frame::message, d.call, d.place, place % window);
  attach(to,
         d.kind == Descriptor::here   ? d.payload
         : d.kind == Descriptor::slot ? own_slots_ + d.offset
                                      : own_arena_ + d.offset,
         d.bytes);
  to.message = ++messages_;
  return true;
}

bool Link::mail(Outgoing& to) {
  const shm::Lane& lane = own_mail_.lane(peer_);
  const uint32_t why = lane.broken.load(std::memory_order_acquire);  // before what was published, as its reader does
  const uint64_t there = lane.published.load(std::memory_order_acquire) - mailed_;
  if (there != 0) {
    const uint64_t bytes = std::min(there, mail_piece), at = mailed_ % shm::ring_bytes;
    const uint64_t first = std::min(bytes, shm::ring_bytes - at);
    begin(to, Frame::mail, mailed_);
    attach(to, own_mail_.ring(peer_) + at, first);
    attach(to, own_mail_.ring(peer_), bytes - first);
    mailed_ += bytes;
    return true;
  }
  if (why == told_stuck_) return false;
  told_stuck_ = why;
  begin(to, Frame::stuck, why);
  return true;
}

// Also where nothing else tells the other rank in time what of its messages was read.
bool Link::pulse(Outgoing& to) {
  const uint64_t read = own_->counts()[peer_].read.load(std::memory_order_relaxed) - told_read_;
  const uint64_t consumed = own_mail_.consumed(peer_).position.load(std::memory_order_relaxed) - told_consumed_;
  if (!pulse_ && read < few && consumed < shm::ring_bytes / 4) return false;
  const uint64_t waits = own_->waits.call.load(std::memory_order_acquire);
  const uint64_t fingerprint = own_->waits.fingerprint.load(std::memory_order_relaxed);
  if (pulse_ && waits > calls_ && text(to, fingerprint)) return true;
  pulse_ = false;
  begin(to, Frame::pulse, own_->beat.load(std::memory_order_relaxed),
        static_cast<uint32_t>(own_->waits_for.load(std::memory_order_relaxed)), waits, fingerprint);
  return true;
}

// Clocks differ: it says for how long.
bool Link::doing(Outgoing& to) {
  Activity now;
  if (own_->doing.version() == told_doing_ || !read(own_->doing, now)) return false;
  told_doing_ = now.version;
  begin(to, Frame::doing, static_cast<uint64_t>((Clock::now() - now.since).count()));
  const auto* bytes = reinterpret_cast<const std::byte*>(now.text.data());
  to.copy.assign(bytes, bytes + now.text.size());
  attach(to, to.copy.data(), to.copy.size());
  return true;
}

bool Link::left(Outgoing& to) {
  if (told_left_ || own_->left.load(std::memory_order_acquire) == 0) return false;
  told_left_ = true;
  begin(to, Frame::left);
  return true;
}

// Not over a link that hears nothing any more: where nothing comes of that, the other end is to notice.
void Link::beat(Clock::time_point now, Clock::duration a_while) {
  {
    const std::unique_lock lock(sending_, std::try_to_lock);
    if (!lock || broken() || now - beaten_ < a_while) return;
    beaten_ = now;
    pulse_ = true;
  }
  push();
}

void Link::fence() {
  withdraw();
  const std::lock_guard lock(sending_);
  fenced_ = true;
  for (int i = done_; i < batched_; ++i) {
    Outgoing& out = batch_[i];
    if (out.message == 0 || !out.copy.empty() || out.count < 2) continue;
    const auto* data = static_cast<const std::byte*>(out.parts[1].iov_base);
    out.copy.assign(data, data + out.parts[1].iov_len);
    out.parts[1].iov_base = out.copy.data();
  }
}

}  // namespace hocket::tcp
