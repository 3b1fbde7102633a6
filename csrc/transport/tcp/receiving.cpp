// What is received: frames, taken apart and put where the mirror's readers look for it.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kernels/copy.h"
#include "transport/outbox/activity.h"
#include "transport/outbox/text.h"
#include "transport/tcp/crc32c.h"
#include "transport/tcp/link.h"
#include "wait/failpoint.h"

namespace hocket::tcp {

namespace {

constexpr uint64_t nobody = static_cast<uint32_t>(-1);
constexpr uint64_t longest = uint64_t{1} << 60;  // that a rank has been in a call, in nanoseconds: some decades

// Whether it is 1 + a kind of failure.
bool is_why(uint64_t told) { return told != 0 && told <= 1 + Failure::closed; }

bool is_culprit(uint64_t told, int size) { return told < static_cast<uint64_t>(size) || told == nobody; }

}  // namespace

// False where no more is there.
bool Link::receive() {
  if (broken() || socket() < 0) return false;
  if (first_ == last_) first_ = last_ = 0;
  if (first_ != 0) {
    std::memmove(buffer_.get(), buffer_.get() + first_, last_ - first_);
    last_ -= first_;
    first_ = 0;
  }
  std::array<iovec, 3> parts;
  size_t count = 0;
  if (open_) {
    const uint64_t direct = std::min(room_, missing_);
    if (direct != 0) parts[count++] = {to_, direct};
    if (missing_ > direct) parts[count++] = {then_, missing_ - direct};
  }
  parts[count++] = {buffer_.get() + last_, buffered - last_};
  size_t asked = 0;
  for (size_t i = 0; i < count; ++i) asked += parts[i].iov_len;
  const ssize_t n = pipe_->receive({parts.data(), count});
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    if (const int error = unsent_) fail_by(error);
    return false;
  }
  if (n <= 0) {
    fail_by(n == 0 ? 0 : errno);
    return false;
  }
  heard_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  const uint64_t direct = std::min<uint64_t>(static_cast<uint64_t>(n), missing_);
  landed(direct);
  last_ += static_cast<size_t>(n) - direct;
  if (!parse()) {
    refused_ = true;
    fail(checked_ ? "sent bytes that were changed on their way (the integrity check failed)"
                  : "sent what no rank sends");
    return false;
  }
  return static_cast<size_t>(n) == asked;
}

bool Link::parse() {
  for (;;) {
    if (open_) {
      while (missing_ != 0 && first_ != last_) {
        const uint64_t bytes = std::min({missing_, room_, last_ - first_});
        copy_bytes(to_, buffer_.get() + first_, bytes);
        first_ += bytes;
        landed(bytes);
      }
      if (missing_ != 0) return true;
      if (checked_ && sum_ != frame_.sum) return false;
      FAILPOINT(frame_received);
      close();
      FAILPOINT(frame_heard);
      open_ = false;
      ++closed_;
    }
    if (last_ - first_ < sizeof frame_) return true;
    std::memcpy(&frame_, buffer_.get() + first_, sizeof frame_);
    first_ += sizeof frame_;
    if (checked_) {
      Frame head = frame_;
      head.half = 0;
      head.sum = 0;
      sum_ = crc32c(0, reinterpret_cast<const std::byte*>(&head), sizeof head);
      if (frame_.half != static_cast<uint16_t>(sum_)) return false;
    }
    if (frame_.number != static_cast<uint32_t>(closed_) || !open()) return false;
    open_ = true;
    missing_ = frame_.bytes;
  }
}

// Where its bytes go. False if the head cannot be true.
bool Link::open() {
  const Frame& f = frame_;
  switch (f.kind) {
    case Frame::text:
      return f.bytes < sizeof(Outbox::Text::text) && land(scratch_.data(), f.bytes);
    case Frame::reason:
      if (f.a > Failure::closed || !is_culprit(f.b, size_) || f.c >= rounds) return false;
      return f.bytes < reason_bytes && land(scratch_.data(), f.bytes);
    case Frame::stand: {
      const uint64_t bits = (static_cast<uint64_t>(size_) + 7) / 8;
      if (f.a == Outbox::Stand::none || f.a > Outbox::Stand::evicted) return false;
      if ((f.d >> 32 & 0xffff) > Failure::closed || f.d >> 48 >= rounds) return false;
      if (!is_culprit(static_cast<uint32_t>(f.d), size_)) return false;
      return f.bytes >= bits && f.bytes < bits + reason_bytes && land(scratch_.data(), f.bytes);
    }
    case Frame::message: {
      if (received_ - own_->counts()[peer_].read.load(std::memory_order_acquire) >= depth) return false;
      if (f.bytes <= Descriptor::room) return land(scratch_.data(), f.bytes);
      if (f.c > window || f.bytes > window - f.c || f.c % line != 0) return false;
      landing_ = landing();
      if (landing_ != nullptr) landed_.fetch_add(1, std::memory_order_relaxed);
      return land(landing_ != nullptr ? landing_ : mirror_->slots(size_) + f.c, f.bytes);
    }
    case Frame::note:
      return f.a <= UINT32_MAX && f.b <= 1 && f.bytes <= card_bytes && land(scratch_.data(), f.bytes);
    case Frame::mail: {
      const uint64_t consumed = own_mail_.consumed(peer_).position.load(std::memory_order_acquire);
      if (f.a != mail_.lane(rank_).published.load(std::memory_order_relaxed)) return false;
      if (f.bytes > mail_piece || f.a + f.bytes - consumed > shm::ring_bytes) return false;
      const uint64_t at = f.a % shm::ring_bytes;
      return land(mail_.ring(rank_) + at, shm::ring_bytes - at, mail_.ring(rank_));
    }
    case Frame::stuck:
      return f.bytes == 0 && is_why(f.a);
    case Frame::doing:
      return f.a <= longest && f.bytes < activity_bytes && land(scratch_.data(), f.bytes);
    case Frame::call:
    case Frame::left:
    case Frame::pulse:
      return f.bytes == 0;
    default:
      return false;
  }
}

// So many bytes of the frame are where they belong.
void Link::landed(uint64_t bytes) {
  const uint64_t here = std::min(bytes, room_);
  if (checked_) {
    sum_ = crc32c(sum_, to_, here);
    if (bytes != here) sum_ = crc32c(sum_, then_, bytes - here);
  }
  missing_ -= bytes;
  to_ += here;
  room_ -= here;
  if (room_ != 0 || then_ == nullptr) return;
  to_ = then_ + (bytes - here);
  room_ = missing_;
  then_ = nullptr;
}

bool Link::land(std::byte* to, uint64_t room, std::byte* then) {
  to_ = to;
  room_ = room;
  then_ = then;
  return true;
}

void Link::expect(Label label, std::byte* to, uint64_t bytes) {
  const uint64_t number = expected_++;
  if (to == nullptr || bytes <= buffered) return;
  const std::lock_guard lock(receiving_);
  if (!withdrawn_) landings_[number % depth] = {number, label, to, bytes};
}

std::byte* Link::landing() const {
  const Frame& f = frame_;
  const Landing& l = landings_[received_ % depth];
  const bool is_it = l.number == received_ && l.label.call == f.a && l.label.place == f.b && l.bytes == f.bytes;
  return is_it ? l.to : nullptr;
}

// The open message begins anew in the slots, with what of it is there already.
void Link::withdraw() {
  const std::lock_guard lock(receiving_);
  withdrawn_ = true;
  landings_.fill({});
  if (landing_ == nullptr) return;
  std::byte* const place = mirror_->slots(size_) + frame_.c;
  const uint64_t here = frame_.bytes - missing_;
  std::memcpy(place, landing_, here);
  land(place + here, missing_);
  landing_ = nullptr;
}

void Link::close() {
  const Frame& f = frame_;
  read_by_peer_.store(f.read, std::memory_order_release);
  mail_.consumed(rank_).position.store(f.consumed, std::memory_order_release);
  switch (f.kind) {
    case Frame::call: {
      Outbox::Entry& e = mirror_->board[f.a % board_size];
      e.fingerprint.store(f.b, std::memory_order_relaxed);
      e.out.store(0, std::memory_order_relaxed);
      e.call.store(f.a, std::memory_order_release);
      break;
    }
    case Frame::text: {
      Outbox::Text& t = mirror_->texts[f.a % text_count];
      t.fingerprint.store(0, std::memory_order_release);
      std::memcpy(t.text, scratch_.data(), f.bytes);
      t.text[f.bytes] = 0;
      t.fingerprint.store(f.a, std::memory_order_release);
      break;
    }
    case Frame::message: {
      Descriptor& d = mirror_->descriptors(size_, rank_)[received_ % depth];
      d.call = f.a;
      d.place = static_cast<uint32_t>(f.b);
      d.bytes = f.bytes;
      d.kind = f.bytes <= Descriptor::room ? Descriptor::here : landing_ ? Descriptor::landed : Descriptor::slot;
      if (d.kind == Descriptor::here) {
        std::memcpy(d.payload, scratch_.data(), f.bytes);
      } else {
        d.offset = landing_ ? reinterpret_cast<uint64_t>(landing_) : f.c;
      }
      landing_ = nullptr;
      d.turn.store(++received_, std::memory_order_release);
      break;
    }
    case Frame::mail:
      mail_.lane(rank_).published.store(f.a + f.bytes, std::memory_order_release);
      break;
    case Frame::stuck:
      mail_.lane(rank_).broken.store(static_cast<uint32_t>(f.a), std::memory_order_release);
      break;
    case Frame::reason: {
      Outbox::Finding& finding = mirror_->findings[f.c];
      if (finding.there.load(std::memory_order_relaxed) != 0) break;
      finding.why = {static_cast<uint32_t>(f.a), static_cast<int32_t>(static_cast<uint32_t>(f.b)), {}};
      std::memcpy(finding.why.text, scratch_.data(), f.bytes);
      finding.there.store(1, std::memory_order_release);
      break;
    }
    case Frame::note: {
      Outbox::Note note{static_cast<uint32_t>(f.a), static_cast<uint32_t>(f.b), f.bytes, {}};
      std::memcpy(note.card, scratch_.data(), f.bytes);
      mirror_->note.write(note);
      break;
    }
    case Frame::stand:
      take_stand();
      break;
    case Frame::doing:
      write(mirror_->doing, std::string(reinterpret_cast<const char*>(scratch_.data()), f.bytes),
            Clock::now() - Clock::duration(f.a));
      break;
    case Frame::left:
      mirror_->left.store(1, std::memory_order_release);
      break;
    case Frame::pulse:
      mirror_->waits_for.store(static_cast<int32_t>(static_cast<uint32_t>(f.b)), std::memory_order_relaxed);
      mirror_->beat.store(f.a, std::memory_order_relaxed);
      mirror_->waits.fingerprint.store(f.d, std::memory_order_release);
      mirror_->waits.call.store(f.c, std::memory_order_release);
      break;
  }
}

// One that has settled takes no other; and those that it takes for lost only become more.
void Link::take_stand() {
  const Frame& f = frame_;
  Seqlock<Outbox::Stand>& stand = mirror_->stands[f.d >> 48];
  Outbox::Stand before, now{};
  if (!stand.read(before) || before.stage >= Outbox::Stand::settled) return;
  const size_t bits = (static_cast<size_t>(size_) + 7) / 8;
  now.stage = static_cast<Outbox::Stand::Stage>(f.a);
  now.completed = f.b;
  now.reached = f.c;
  for (int rank = 0; rank < size_; ++rank) {
    const auto octet = std::to_integer<unsigned>(scratch_[static_cast<size_t>(rank) / 8]);
    now.lost[rank] = (octet >> rank % 8 & 1) != 0;
  }
  now.why.kind = static_cast<uint32_t>(f.d >> 32 & 0xffff);
  now.why.culprit = static_cast<int32_t>(static_cast<uint32_t>(f.d));
  std::memcpy(now.why.text, scratch_.data() + bits, f.bytes - bits);
  stand.write(now);
}

}  // namespace hocket::tcp
