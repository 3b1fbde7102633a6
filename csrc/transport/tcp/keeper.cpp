#include "transport/tcp/keeper.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "wait/failpoint.h"
#include "wait/fork.h"
#include "wait/signals.h"

namespace hocket::tcp {

namespace {

constexpr std::chrono::milliseconds tick{50};
constexpr std::chrono::milliseconds most_between_beats{400};

int new_event() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0)
    throw Failure{Failure::internal, -1, std::string("there is no eventfd for links: ") + std::strerror(errno)};
  return fd;
}

// False where the kernel does not poll.
bool sleep(std::vector<pollfd>& polls, std::chrono::microseconds slice) {
  const timespec time{slice.count() / 1000000, slice.count() % 1000000 * 1000};
  return ppoll(polls.data(), polls.size(), &time, nullptr) >= 0 || errno == EINTR;
}

}  // namespace

Keeper::Keeper(std::vector<Link*> links, std::function<void()> news, std::function<void()> look, Clock::duration life)
    : links_(std::move(links)),
      news_(std::move(news)),
      look_(std::move(look)),
      life_(life),
      between_beats_(std::min<Clock::duration>(life / 5, most_between_beats)),
      absence_(life / 2),
      born_(forks()),
      stop_(new_event()),
      listened_(Clock::now().time_since_epoch().count()) {
  const NoSignals none;
  try {
    thread_ = std::thread([this] { keep(); });
  } catch (const std::system_error& error) {
    ::close(stop_);
    throw Failure{Failure::internal, -1, std::string("there is no thread for links: ") + error.what()};
  }
}

bool Keeper::is_awake(Clock::time_point now) const {
  return now.time_since_epoch().count() - listened_.load(std::memory_order_acquire) <
         std::chrono::duration_cast<Clock::duration>(4 * tick).count();
}

Clock::duration Keeper::absence() const {
  const Clock::duration listened(listened_.load(std::memory_order_acquire));
  const Clock::duration now = Clock::now().time_since_epoch() - listened;
  return now > absence_ ? now : Clock::duration(absent_.load(std::memory_order_relaxed));
}

Keeper::~Keeper() {
  stop();
  ::close(stop_);
}

void Keeper::stop() {
  if (!thread_.joinable()) return;
  if (forks() != born_) {
    thread_.detach();
    return;
  }
  eventfd_write(stop_, 1);
  thread_.join();
}

void Keeper::keep() {
  std::vector<pollfd> polls;
  Clock::time_point before = Clock::now();
  for (;;) {
    polls.assign({{stop_, POLLIN, 0}});
    std::chrono::microseconds slice = tick;
    for (const Link* link : links_) {
      if (!link->stuck()) continue;
      link->watch(polls, POLLOUT);
      slice = std::min(slice, link->arm());
    }
    sleep(polls, slice);
    if (polls[0].revents != 0) return;
    const auto now = Clock::now();
    bool news = false;
    if (now - before > absence_) absent_.store((now - before).count(), std::memory_order_relaxed);
    for (Link* link : links_) {
      if (now - before > absence_) link->forgive(now);
      news |= link->turn();
      link->beat(now, between_beats_);
      link->guard(now, life_);
    }
    if (news) news_();
    before = now;
    FAILPOINT(kept);
    look_();
    listened_.store(now.time_since_epoch().count(), std::memory_order_release);
  }
}

void part(const std::vector<Link*>& links, const Farewell& farewell, bool for_all) {
  const Deadline end = Clock::now() + farewell.longest;
  Deadline limit = Clock::now() + farewell.patience;
  std::vector<bool> shut(links.size());
  std::vector<uint64_t> in_flight(links.size());
  std::vector<pollfd> polls;
  std::chrono::microseconds slice;
  bool arrived;
  do {
    polls.clear();
    slice = for_all ? tick : tick / 50;
    arrived = !for_all;
    for (size_t i = 0; i < links.size(); ++i) {
      Link& link = *links[i];
      if (link.in_flight() != in_flight[i]) limit = Clock::now() + farewell.patience;  // before as much is added to it
      link.push();
      if (!shut[i] && !link.stuck()) {
        link.shut();
        shut[i] = true;
      }
      link.turn();
      if (!link.broken() && link.socket() >= 0) {
        link.watch(polls, POLLIN | POLLOUT);
        slice = std::min(slice, link.arm());
        in_flight[i] = link.in_flight();
        arrived = arrived && shut[i] && in_flight[i] == 0;
      }
    }
  } while (!polls.empty() && !arrived && Clock::now() < std::min(limit, end) && sleep(polls, slice));
}

}  // namespace hocket::tcp
