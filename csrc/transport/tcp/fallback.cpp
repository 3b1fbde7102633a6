#include "transport/tcp/fallback.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/port.h"
#include "transport/tcp/crc32c.h"

namespace hocket::tcp {

namespace {

constexpr uint64_t most_of_record = 256 << 10;
constexpr uint64_t untold = 1 << 20;  // bytes that have come, after which the other end is told without any cause
constexpr std::chrono::milliseconds between_looks{1};

std::byte* ring(uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw Failure{Failure::internal, -1, "there is no memory for what a link has sent"};
  return static_cast<std::byte*>(data);
}

bool is_full(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS; }

}  // namespace

Fallback::Head Fallback::Head::of(uint32_t bytes, uint64_t received) {
  const uint32_t sum = crc32c(0, reinterpret_cast<const std::byte*>(&bytes), sizeof bytes);
  return {bytes, crc32c(sum, reinterpret_cast<const std::byte*>(&received), sizeof received), received};
}

Fallback::Fallback(std::vector<std::shared_ptr<Pipe>> ways, std::chrono::milliseconds patience)
    : Pipe(ways.front()->socket()),
      ways_(std::move(ways)),
      patience_(patience),
      kept_(ring(most_kept)),
      inbound_(ways_.size()) {}

Fallback::~Fallback() { munmap(kept_, most_kept); }

// ---- what is sent ---------------------------------------------------------------------------------------------------

// Where they lie in the ring.
std::array<iovec, 2> Fallback::kept(uint64_t from, uint64_t bytes) const {
  const uint64_t at = from % most_kept, first = std::min(bytes, most_kept - at);
  return {{{kept_ + at, first}, {kept_, bytes - first}}};
}

// Takes of `parts`, but for the first `skip` bytes, what there is room for, a record's worth at most.
uint64_t Fallback::keep(std::span<iovec> parts, uint64_t skip) {
  const uint64_t room = std::min(most_kept - (taken_ - acknowledged_), most_of_record), before = taken_;
  for (const iovec& part : parts) {
    const uint64_t skipped = std::min<uint64_t>(skip, part.iov_len);
    skip -= skipped;
    const uint64_t bytes = std::min<uint64_t>(part.iov_len - skipped, room - (taken_ - before));
    const std::byte* from = static_cast<const std::byte*>(part.iov_base) + skipped;
    for (const iovec& to : kept(taken_, bytes)) {
      if (to.iov_len != 0) std::memcpy(to.iov_base, from, to.iov_len);
      from += to.iov_len;
    }
    taken_ += bytes;
  }
  return taken_ - before;
}

ssize_t Fallback::send(std::span<iovec> parts) {
  const std::lock_guard lock(lock_);
  uint64_t taken = 0;
  while (!over_) {
    const uint64_t bytes = keep(parts, taken);
    taken += bytes;
    if (!pump() || bytes == 0) break;
  }
  if (taken != 0) return static_cast<ssize_t>(taken);
  errno = over_ ? why_ : EAGAIN;
  return -1;
}

// Sends what may be sent. Whether that is all, and the way would take more.
bool Fallback::pump() {
  while (!over_ && unsent_ == 0 && (head_left_ != 0 || record_left_ != 0 || next_record())) {
    const auto rest = kept(sent_, record_left_);
    auto* const head = reinterpret_cast<std::byte*>(&head_) + sizeof head_ - head_left_;
    std::array<iovec, 3> parts{{{head, head_left_}, rest[0], rest[1]}};
    const ssize_t n = ways_[way()]->send(parts);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && is_full(errno)) {
      full_ = true;
      return false;
    }
    if (n < 0) {
      unsent_ = errno;
      return false;
    }
    const auto bytes = static_cast<uint64_t>(n), of_head = std::min<uint64_t>(bytes, head_left_);
    head_left_ -= of_head;
    record_left_ -= bytes - of_head;
    sent_ += bytes - of_head;
  }
  full_ = false;
  return sent_ == taken_;
}

// False where there is nothing to send, or not yet.
bool Fallback::next_record() {
  if (introduced_ && !heard_) return false;
  const uint64_t bytes = introduced_ ? std::min(taken_ - sent_, most_of_record) : 0;
  if (introduced_ && bytes == 0 && received_ - told_ < untold) return false;
  const uint32_t what = introduced_ ? static_cast<uint32_t>(bytes) : anew;
  head_ = Head::of(what, received_);
  head_left_ = sizeof head_;
  record_left_ = bytes;
  told_ = received_;
  introduced_ = true;
  return true;
}

bool Fallback::flush() {
  const std::lock_guard lock(lock_);
  const bool all = pump();
  return over_ || (ways_[way()]->flush() && all);
}

// ---- what is received -----------------------------------------------------------------------------------------------

ssize_t Fallback::receive(std::span<iovec> parts) {
  const std::lock_guard lock(lock_);
  size_t moved = 0;
  while (!over_) {
    const ssize_t n = read(parts);
    if (n > 0) {
      moved += static_cast<size_t>(n);
      parts = without(parts, static_cast<size_t>(n));
      if (parts.empty()) break;
    } else if (n < 0 && errno != EINTR) {
      if (!is_full(errno) || unsent_ != 0) {
        go_on(is_full(errno) ? unsent_ : errno);
      } else if (moved != 0 || !look_ahead()) {
        break;
      }
    }
  }
  if (moved != 0) return static_cast<ssize_t>(moved);
  errno = over_ ? why_ : EAGAIN;
  return errno == EPIPE ? 0 : -1;
}

// How many bytes for `parts` have come; or -1, and errno: EINTR where there may be more, EPIPE at the way's end.
ssize_t Fallback::read(std::span<iovec> parts) {
  Inbound& from = inbound_[way()];
  if (missing_ == 0) {
    std::array<iovec, 1> head{{{reinterpret_cast<std::byte*>(&from.head) + from.read, sizeof(Head) - from.read}}};
    const ssize_t n = ways_[way()]->receive(head);
    if (n < 0) return n;
    if (n != 0) read_head(from, n);
    errno = n == 0 ? EPIPE : EINTR;
    return -1;
  }
  std::array<iovec, 4> wanted;  // a pipe may change what it is given
  size_t count = 0;
  uint64_t asked = 0;
  for (const iovec& part : parts.first(std::min(parts.size(), wanted.size()))) {
    wanted[count] = {part.iov_base, std::min<uint64_t>(part.iov_len, missing_ - asked)};
    asked += wanted[count++].iov_len;
  }
  const ssize_t n = ways_[way()]->receive({wanted.data(), count});
  if (n == 0) errno = EPIPE;
  if (n <= 0) return -1;
  missing_ -= static_cast<uint64_t>(n);
  received_ += static_cast<uint64_t>(n);
  return n;
}

// So many bytes of it have come.
void Fallback::read_head(Inbound& from, ssize_t n) {
  from.read += static_cast<size_t>(n);
  if (from.read != sizeof(Head)) return;
  from.read = 0;
  if (believe(from.head)) return;
  over_ = true;
  why_ = EBADMSG;
}

// False if it cannot be true.
bool Fallback::believe(const Head& head) {
  if (head.sum != Head::of(head.bytes, head.received).sum) return false;
  if (head.received < acknowledged_ || head.received > taken_) return false;
  if ((head.bytes == anew) == heard_) return false;
  acknowledged_ = head.received;
  if (head.bytes == anew) {
    heard_ = true;
    goes_on_.store(way(), std::memory_order_relaxed);
    sent_ = head.received;
  } else {
    if (head.bytes > most_of_record) return false;
    missing_ = head.bytes;
  }
  pump();
  return true;
}

// Nothing is there: whether the other end has gone on over another way, or this one should.
bool Fallback::look_ahead() {
  const auto now = Clock::now();
  if (now - looked_ < between_looks) return false;
  looked_ = now;
  for (size_t next = way() + 1; next != ways_.size(); ++next) {
    Inbound& from = inbound_[next];
    if (from.dead) continue;
    std::array<iovec, 1> head{{{reinterpret_cast<std::byte*>(&from.head) + from.read, sizeof(Head) - from.read}}};
    const ssize_t n = ways_[next]->receive(head);
    if (n < 0 && (is_full(errno) || errno == EINTR)) continue;
    if (n <= 0) {
      from.dead = true;
      continue;
    }
    while (way() < next) go_on(EPIPE);
    if (way() == next) read_head(from, n);  // else that has broken as well
    return true;
  }
  if (way() + 1 != ways_.size() && ways_[way()]->is_silent(patience_)) {
    go_on(ETIMEDOUT);
    return true;
  }
  return false;
}

// ---- from way to way ------------------------------------------------------------------------------------------------

// What was under way is not known to have arrived, and is sent once more where the other end says that it has not.
void Fallback::go_on(int why) {
  if (way() + 1 == ways_.size()) {
    over_ = true;
    why_ = why;
    return;
  }
  ways_[way()]->shut();
  way_.fetch_add(1, std::memory_order_relaxed);
  full_ = introduced_ = heard_ = false;
  head_left_ = 0;
  unsent_ = 0;
  record_left_ = missing_ = 0;
  sent_ = acknowledged_;
  pump();
}

void Fallback::read_ahead() {
  for (const auto& way : ways_) way->read_ahead();
}

// Also those that it may go on over: the other end may be the first to do that.
void Fallback::watch(std::vector<pollfd>& polls, short events) const {
  const size_t now = way();
  ways_[now]->watch(polls, static_cast<short>(full_ ? events : events & ~POLLOUT));
  if ((events & POLLIN) == 0) return;
  for (size_t next = now + 1; next != ways_.size(); ++next) {
    if (!inbound_[next].dead) ways_[next]->watch(polls, POLLIN);
  }
}

std::chrono::microseconds Fallback::arm() {
  auto least = Pipe::arm();
  for (size_t next = way(); next != ways_.size(); ++next) least = std::min(least, ways_[next]->arm());
  return least;
}

// The others are left before. The last has what remains of the time then.
void Fallback::limit(std::chrono::milliseconds time) { ways_.back()->limit(time / 2); }

void Fallback::shut() {
  for (const auto& way : ways_) way->shut();
}

void Fallback::close() {
  for (const auto& way : ways_) way->close();
}

}  // namespace hocket::tcp
