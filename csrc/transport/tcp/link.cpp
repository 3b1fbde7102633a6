#include "transport/tcp/link.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hocket::tcp {

namespace {

constexpr size_t buffered = 4096;  // bytes that are received before it is known where they go
constexpr uint64_t nobody = static_cast<uint32_t>(-1);
constexpr std::chrono::seconds grace{2};  // before the other rank must be heard for the first time
constexpr uint64_t few = 4;               // messages, after which the other rank is told that they were read

void* anonymous(uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw Failure{Failure::internal, -1, "there is no memory for a mirror"};
  return data;
}

}  // namespace

Link::Link(int rank, int size, int peer, int socket, Outbox* own, const std::byte* arena, uint64_t slots)
    : rank_(rank),
      size_(size),
      peer_(peer),
      socket_(socket),
      own_(own),
      own_arena_(arena),
      own_slots_(own->slots(size)),
      mirror_bytes_(arena_offset(size, window)),
      mirror_(static_cast<Outbox*>(anonymous(mirror_bytes_))),
      own_mail_{own->slots(size) + slots, size},
      mail_{mirror_->slots(size) + window, size},
      heard_((Clock::now() + grace).time_since_epoch().count()),
      buffer_(std::make_unique<std::byte[]>(buffered)) {
  mirror_->sleepers = 1;  // to wake it is to send what is new
}

Link::~Link() { munmap(mirror_, mirror_bytes_); }

void Link::fail(const char* why) {
  const char* none = nullptr;
  broken_.compare_exchange_strong(none, why);
}

// ---- sending --------------------------------------------------------------------------------------------------------

void Link::push() {
  const std::lock_guard lock(sending_);
  while (!broken() && socket() >= 0) {
    if (done_ == batched_) {
      done_ = batched_ = 0;
      while (batched_ < most_frames && compose(batch_[batched_])) ++batched_;
      if (batched_ == 0) break;
    }
    if (!flush()) return;
  }
  stuck_ = false;
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
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t n = sendmsg(socket(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n >= 0) {
    sent(static_cast<size_t>(n));
    return true;
  }
  if (errno == EINTR) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
    stuck_ = true;
  } else {
    fail("died");
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
  to.frame = {kind, 0, frames_++, told_read_, told_consumed_, a, b, c, d};
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

bool Link::compose(Outgoing& to) { return call(to) || reason(to) || message(to) || mail(to) || pulse(to) || left(to); }

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

// The board has room for all that were not told: nobody completes a call before all have entered it.
bool Link::call(Outgoing& to) {
  const Outbox::Entry& e = own_->board[(calls_ + 1) % board_size];
  if (e.call.load(std::memory_order_acquire) != calls_ + 1) return false;
  const uint64_t fingerprint = e.fingerprint.load(std::memory_order_relaxed);
  if (text(to, fingerprint)) return true;
  begin(to, Frame::call, ++calls_, fingerprint);
  return true;
}

bool Link::reason(Outgoing& to) {
  const uint32_t poisoned = own_->poisoned.load(std::memory_order_acquire);
  if (poisoned == 0 || told_reason_) return false;
  told_reason_ = true;
  begin(to, Frame::reason, poisoned, own_->until, static_cast<uint32_t>(own_->culprit));
  attach(to, own_->reason, strnlen(own_->reason, reason_bytes));
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

bool Link::left(Outgoing& to) {
  if (told_left_ || own_->left.load(std::memory_order_acquire) == 0) return false;
  told_left_ = true;
  begin(to, Frame::left);
  return true;
}

void Link::beat(Clock::time_point now, Clock::duration a_while) {
  {
    const std::unique_lock lock(sending_, std::try_to_lock);
    if (!lock || now - beaten_ < a_while) return;
    beaten_ = now;
    pulse_ = true;
  }
  push();
}

void Link::fence() {
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

void Link::shut() {
  const std::lock_guard lock(sending_);
  if (socket() >= 0) shutdown(socket(), SHUT_WR);
}

void Link::disconnect() {
  const std::scoped_lock both(sending_, receiving_);
  socket_ = -1;
}

// ---- receiving ------------------------------------------------------------------------------------------------------

bool Link::turn() {
  bool news = false;
  {
    const std::unique_lock lock(receiving_, std::try_to_lock);
    if (lock) {
      const uint64_t before = opened_;
      while (receive()) {
      }
      news = opened_ != before || missing_ != 0;
    }
  }
  if (stuck_ || (news && starved_)) push();
  return news;
}

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
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  const ssize_t n = recvmsg(socket(), &message, MSG_DONTWAIT);
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
  if (n <= 0) {
    fail("died");
    return false;
  }
  heard_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  const uint64_t direct = std::min<uint64_t>(static_cast<uint64_t>(n), missing_);
  if (direct > 0) {
    const uint64_t here = std::min(direct, room_);
    to_ += here;
    room_ -= here;
    if (room_ == 0) {
      to_ = then_ + (direct - here);
      room_ = missing_ - direct;
      then_ = nullptr;
    }
    missing_ -= direct;
  }
  last_ += static_cast<size_t>(n) - direct;
  if (!parse()) {
    fail("sent what no rank sends");
    return false;
  }
  return static_cast<size_t>(n) == asked;
}

bool Link::parse() {
  for (;;) {
    if (open_) {
      while (missing_ != 0 && first_ != last_) {
        if (room_ == 0) {
          to_ = then_;
          room_ = missing_;
        }
        const uint64_t bytes = std::min({missing_, room_, last_ - first_});
        std::memcpy(to_, buffer_.get() + first_, bytes);
        to_ += bytes;
        room_ -= bytes;
        first_ += bytes;
        missing_ -= bytes;
      }
      if (missing_ != 0) return true;
      close();
      open_ = false;
    }
    if (last_ - first_ < sizeof frame_) return true;
    std::memcpy(&frame_, buffer_.get() + first_, sizeof frame_);
    first_ += sizeof frame_;
    if (frame_.number != opened_++ || !open()) return false;
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
      if (f.a == 0 || f.a > 1 + Failure::closed || (f.c >= static_cast<uint64_t>(size_) && f.c != nobody)) return false;
      return f.bytes < reason_bytes && land(scratch_.data(), f.bytes);
    case Frame::message: {
      if (f.bytes <= Descriptor::room) return land(scratch_.data(), f.bytes);
      if (f.c > window || f.bytes > window - f.c || f.c % line != 0) return false;
      return land(mirror_->slots(size_) + f.c, f.bytes);
    }
    case Frame::mail: {
      const uint64_t consumed = own_mail_.consumed(peer_).position.load(std::memory_order_acquire);
      if (f.a != mail_.lane(rank_).published.load(std::memory_order_relaxed)) return false;
      if (f.bytes > mail_piece || f.a + f.bytes - consumed > shm::ring_bytes) return false;
      const uint64_t at = f.a % shm::ring_bytes;
      return land(mail_.ring(rank_) + at, shm::ring_bytes - at, mail_.ring(rank_));
    }
    case Frame::call:
    case Frame::stuck:
    case Frame::left:
    case Frame::pulse:
      return f.bytes == 0;
    default:
      return false;
  }
}

bool Link::land(std::byte* to, uint64_t room, std::byte* then) {
  to_ = to;
  room_ = room;
  then_ = then;
  return true;
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
      d.kind = f.bytes <= Descriptor::room ? Descriptor::here : Descriptor::slot;
      if (d.kind == Descriptor::here) {
        std::memcpy(d.payload, scratch_.data(), f.bytes);
      } else {
        d.offset = f.c;
      }
      d.turn.store(++received_, std::memory_order_release);
      break;
    }
    case Frame::mail:
      mail_.lane(rank_).published.store(f.a + f.bytes, std::memory_order_release);
      break;
    case Frame::stuck:
      mail_.lane(rank_).broken.store(static_cast<uint32_t>(f.a), std::memory_order_release);
      break;
    case Frame::reason:
      if (mirror_->poisoned.load(std::memory_order_relaxed) != 0) break;
      mirror_->until = f.b;
      mirror_->culprit = static_cast<int32_t>(static_cast<uint32_t>(f.c));
      std::memcpy(mirror_->reason, scratch_.data(), f.bytes);
      mirror_->reason[f.bytes] = 0;
      mirror_->poisoned.store(static_cast<uint32_t>(f.a), std::memory_order_release);
      break;
    case Frame::left:
      mirror_->left.store(1, std::memory_order_release);
      break;
    case Frame::pulse:
      mirror_->waits_for.store(static_cast<int32_t>(static_cast<uint32_t>(f.b)), std::memory_order_relaxed);
      mirror_->beat.store(f.a, std::memory_order_relaxed);
      mirror_->waits.fingerprint.store(f.d, std::memory_order_relaxed);
      mirror_->waits.call.store(f.c, std::memory_order_release);
      break;
  }
}

}  // namespace hocket::tcp
