#include "transport/outbox/flight.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>

#include "transport/outbox/activity.h"
#include "transport/outbox/recorder.h"
#include "wait/wait.h"

namespace hocket {

namespace {

// Of an outbox, without its channels and what lies behind them, but with its counts.
class Copy {
 public:
  explicit Copy(int ranks) : bytes_(sizeof(Outbox) + static_cast<uint64_t>(ranks) * sizeof(Outbox::Count)) {
    static_assert(sizeof(Outbox) % alignof(Outbox) == 0 && sizeof(Outbox::Count) % sizeof(uint64_t) == 0);
    data_.reset(new (std::align_val_t(alignof(Outbox))) std::byte[bytes_]{});
  }
  uint64_t bytes() const { return bytes_; }
  std::byte* data() const { return data_.get(); }
  const Outbox& box() const { return *reinterpret_cast<const Outbox*>(data_.get()); }
  const Outbox::Count& count(int rank) const { return reinterpret_cast<const Outbox::Count*>(&box() + 1)[rank]; }

 private:
  struct Delete {
    void operator()(std::byte* data) const { ::operator delete[](data, std::align_val_t(alignof(Outbox))); }
  };
  const uint64_t bytes_;
  std::unique_ptr<std::byte[], Delete> data_;
};

bool read_all(int fd, std::byte* to, uint64_t bytes, uint64_t offset) {
  while (bytes != 0) {
    const ssize_t got = pread(fd, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

// The rank may write it meanwhile, which is what the seals are for: no sanitizer need tell.
__attribute__((no_sanitize("thread"))) void copy_words(uint64_t* to, const volatile uint64_t* from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes / sizeof(uint64_t); ++i) to[i] = from[i];
}

std::string text_of(const char* from, uint64_t room) { return std::string(from, strnlen(from, room)); }

// From the counter's time to that of the clock: it was read when the outbox was signed, and is now.
class Times {
 public:
  explicit Times(const Recording::Header& header)
      : then_(header.ticks),
        clock_(header.clock),
        now_(Clock::now().time_since_epoch().count()),
        scale_(static_cast<double>(now_ - clock_) / static_cast<double>(ticks() - then_)) {}

  int64_t operator()(uint64_t tick) const {
    if (tick == 0 || tick < then_ || clock_ <= 0 || clock_ > now_ || !(scale_ > 0)) return 0;
    const double since = static_cast<double>(tick - then_) * scale_;
    return since <= static_cast<double>(now_ - clock_) ? clock_ + static_cast<int64_t>(since) : now_;
  }
  // Also that of the clock need not be true.
  int64_t sane(int64_t time) const { return time > 0 && time <= now_ ? time : 0; }

 private:
  const uint64_t then_;
  const int64_t clock_, now_;
  const double scale_;
};

// What its titles no longer hold is described on the board, as long as it is entered again and again.
std::string title_of(const Outbox& box, uint64_t fingerprint) {
  for (uint64_t i = 0; i < Recording::titles_near; ++i) {
    const Recording::Title& t = box.recording.titles[(fingerprint + i) % Recording::titles_kept];
    if (t.fingerprint.load(std::memory_order_relaxed) == fingerprint) return t.text.get();
  }
  const Outbox::Text& t = box.texts[fingerprint % text_count];
  if (t.fingerprint.load(std::memory_order_relaxed) != fingerprint) return "";
  const std::string text = text_of(t.text, sizeof t.text);
  return text.substr(0, text.find('\n'));
}

std::string place_of(const Outbox& box, uint64_t number) {
  const Recording::Place& place = box.recording.places[number % Recording::places_kept];
  return number != 0 && place.number.load(std::memory_order_relaxed) == number ? place.text.get() : "";
}

std::vector<Flight::Call> calls_of(const Outbox& box, const Times& times) {
  std::vector<Flight::Call> found;
  for (uint64_t i = 0; i < Recording::calls_kept; ++i) {
    const Recording::Call& c = box.recording.calls[i];
    const uint64_t number = c.number.load(std::memory_order_relaxed),
                   entered = c.entered.load(std::memory_order_relaxed),
                   fingerprint = c.fingerprint.load(std::memory_order_relaxed);
    if (number == 0 || number % Recording::calls_kept != i ||
        c.seal.load(std::memory_order_relaxed) != Recording::Call::sealed(number, fingerprint, entered)) {
      continue;
    }
    const uint64_t left = c.left.load(std::memory_order_relaxed);
    found.push_back({number, fingerprint, title_of(box, fingerprint), times(entered), left < entered ? 0 : times(left),
                     c.failed.load(std::memory_order_relaxed) != 0, c.waited_for.load(std::memory_order_relaxed),
                     place_of(box, c.place.load(std::memory_order_relaxed))});
  }
  std::ranges::sort(found, {}, &Flight::Call::number);
  const auto too_old = [&](const Flight::Call& c) { return found.back().number - c.number >= Recording::calls_kept; };
  found.erase(found.begin(), std::ranges::find_if_not(found, too_old));
  return found;
}

std::vector<Flight::Wait> waits_of(const Outbox& box, const Times& times) {
  std::vector<std::pair<uint64_t, Flight::Wait>> found;
  for (const Recording::Wait& w : box.recording.waits) {
    const uint64_t number = w.number.load(std::memory_order_relaxed);
    const std::string title = w.text.get();
    if (number == 0 || title.empty()) continue;
    found.push_back({number,
                     {title, times.sane(w.begun.load(std::memory_order_relaxed)),
                      times.sane(w.ended.load(std::memory_order_relaxed)),
                      place_of(box, w.place.load(std::memory_order_relaxed))}});
  }
  std::ranges::sort(found, {}, [](const auto& each) { return each.first; });
  std::vector<Flight::Wait> waits;
  for (auto& [number, wait] : found) waits.push_back(std::move(wait));
  return waits;
}

std::optional<Flight> parsed(const Copy& copy) {
  const Outbox& box = copy.box();
  const Recording::Header& header = box.header;
  if (header.rank < 0 || header.rank >= header.size) return {};
  const Times times(header);
  Flight flight{};
  flight.key = header.key;
  flight.rank = header.rank;
  flight.pid = header.pid;
  flight.host = text_of(header.host, sizeof header.host);
  flight.formed = times.sane(header.clock);
  for (int r = 0; r < header.size; ++r) flight.pids.push_back(copy.count(r).pid.load(std::memory_order_relaxed));
  flight.left = box.left.load(std::memory_order_relaxed) != 0;
  const Outbox::Finding& finding = box.findings[0];
  if (finding.there.load(std::memory_order_acquire) != 0) flight.reason = text_of(finding.why.text, reason_bytes);
  flight.waits_for = box.waits_for.load(std::memory_order_relaxed);
  Activity doing;
  if (read(box.doing, doing)) {
    flight.doing = doing.text;
    flight.since = times.sane(doing.since.time_since_epoch().count());
  }
  flight.calls = calls_of(box, times);
  flight.waits = waits_of(box, times);
  return flight;
}

bool is_signed(const Recording::Header& header, int ranks) {
  return header.magic.load(std::memory_order_acquire) == Recording::magic && header.layout == Recording::layout &&
         header.bytes == sizeof(Outbox) && header.size == ranks;
}

}  // namespace

std::optional<Flight> read_flight(const Outbox& box, int size) {
  if (!is_signed(box.header, size)) return {};
  const Copy copy(size);
  copy_words(reinterpret_cast<uint64_t*>(copy.data()), reinterpret_cast<const uint64_t*>(&box), copy.bytes());
  return parsed(copy);
}

std::optional<Flight> read_flight(int fd) {
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const Copy head(0);
  if (!read_all(fd, head.data(), sizeof(Recording::Header), 0)) return {};
  const Recording::Header& header = head.box().header;
  if (header.magic.load(std::memory_order_acquire) != Recording::magic) return {};
  if (header.layout != Recording::layout || header.bytes != sizeof(Outbox)) {
    throw Refusal{"it runs another version of hocket"};
  }
  const int size = header.size;
  if (size < 1 || size > most_ranks) return {};
  const Copy copy(size);
  if (!read_all(fd, copy.data(), copy.bytes(), 0) || !is_signed(copy.box().header, size)) return {};
  return parsed(copy);
}

}  // namespace hocket
