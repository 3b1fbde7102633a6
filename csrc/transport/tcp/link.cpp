#include "transport/tcp/link.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace hocket::tcp {

namespace {

constexpr std::chrono::seconds grace{2};  // before the other rank must be heard for the first time

void* anonymous(uint64_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw Failure{Failure::internal, -1, "there is no memory for a mirror"};
  return data;
}

}  // namespace

Link::Link(int rank, int size, int peer, std::shared_ptr<Pipe> pipe, bool checked, Outbox* own, const std::byte* arena,
           uint64_t slots)
    : rank_(rank),
      size_(size),
      peer_(peer),
      pipe_(std::move(pipe)),
      socket_(pipe_->socket()),
      checked_(checked),
      own_(own),
      own_arena_(arena),
      own_slots_(own->slots(size)),
      mirror_bytes_(arena_offset(size, window)),
      mirror_(static_cast<Outbox*>(anonymous(mirror_bytes_))),
      own_mail_{own->slots(size) + slots, size},
      mail_{mirror_->slots(size) + window, size},
      heard_((Clock::now() + grace).time_since_epoch().count()),
      buffer_(std::make_unique<std::byte[]>(buffered)) {
  pipe_->read_ahead();
  mirror_->sleepers = 1;  // to wake it is to send what is new
}

Link::~Link() { munmap(mirror_, mirror_bytes_); }

void Link::fail(const char* why) {
  const char* none = nullptr;
  broken_.compare_exchange_strong(none, why);
}

void Link::fail_by(int error) {
  fail(error == EPROTO    ? "sent what TLS does not accept"
       : error == EBADMSG ? "sent what no rank sends"
       : is_cut(error)    ? "acknowledged nothing, being stopped or cut off,"
                          : "died");
}

void Link::guard(Clock::time_point now, Clock::duration life) {
  const bool silent = now - heard() > life / 2;
  if (silent == guarded_ || broken()) return;
  guarded_ = silent;
  pipe_->limit(std::chrono::duration_cast<std::chrono::milliseconds>(silent ? life : Clock::duration::zero()));
}

void Link::shut() {
  const std::lock_guard lock(sending_);
  if (socket() >= 0) pipe_->shut();
}

void Link::disconnect() {
  const std::scoped_lock both(sending_, receiving_);
  socket_ = -1;
  pipe_->close();
}

bool Link::turn() {
  bool news = false;
  {
    const std::unique_lock lock(receiving_, std::try_to_lock);
    if (lock) {
      const uint64_t before = closed_;
      const int from = pipe_->reads();
      while (receive()) {
      }
      news = closed_ != before || pipe_->reads() != from;  // who sleeps until that has something sleeps in vain
    }
  }
  if (stuck_ || (news && starved_)) push();
  return news;
}

}  // namespace hocket::tcp
