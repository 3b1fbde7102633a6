#include "transport/endpoint.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "transport/outbox/activity.h"
#include "transport/outbox/layout.h"
#include "transport/outbox/stream.h"
#include "transport/outbox/text.h"
#include "wait/failpoint.h"
#include "wait/fork.h"

namespace hocket {

namespace {

// Who waits shows it several times in each of these.
constexpr std::chrono::milliseconds silence{150}, silence_over_links{500}, between_pulses{50};
// Of ranks that find the same error at the same time each lets so many go before it, for so long each: so that it is
// told in the same words the next time, too.
constexpr int most_before = 16;
constexpr std::chrono::milliseconds between_ranks{2};
constexpr tcp::Farewell farewell{std::chrono::seconds(1), std::chrono::seconds(10)};
constexpr tcp::Farewell short_farewell{std::chrono::milliseconds(100), std::chrono::milliseconds(100)};

std::vector<int> duplicates(const std::vector<int>& fds, size_t size) {
  std::vector<int> all(size, -1);
  for (size_t i = 0; i < fds.size(); ++i) {
    if (fds[i] < 0) continue;
    all[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 3);
    if (all[i] >= 0) continue;
    const std::string why = std::strerror(errno);
    for (int fd : all) {
      if (fd >= 0) ::close(fd);
    }
    throw Failure{Failure::internal, -1, "an eventfd cannot be duplicated: " + why};
  }
  return all;
}

std::vector<Wire*> as_wires(const std::vector<std::unique_ptr<tcp::Link>>& links) {
  std::vector<Wire*> all;
  for (const auto& link : links) all.push_back(link.get());
  return all;
}

std::vector<int> without_links(std::vector<int> sockets, const std::vector<std::unique_ptr<tcp::Link>>& links) {
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (links[i]) sockets[i] = -1;
  }
  return sockets;
}

}  // namespace

Parts::Parts(int own_rank, const std::vector<int>& fds, const std::vector<int>& sockets, std::vector<int> pidfds,
             const std::vector<int>& given_events, uint64_t slot_bytes, uint64_t bytes, int crowd,
             const std::vector<std::shared_ptr<tcp::Pipe>>& pipes, bool checked, Clock::duration life,
             std::function<Ranks()> absent)
    : rank(own_rank),
      size(static_cast<int>(fds.size())),
      slots(round_up(slot_bytes, line)),
      arena_bytes(round_up(bytes, page)),
      mappings([&] {
        std::vector<std::unique_ptr<Mapping>> all;
        for (int fd : fds) {
          all.push_back(fd < 0 ? nullptr
                               : std::make_unique<Mapping>(fd, Endpoint::outbox_bytes(size, slots, arena_bytes)));
        }
        return all;
      }()),
      links([&] {
        std::vector<std::unique_ptr<tcp::Link>> all(fds.size());
        auto* const own = reinterpret_cast<Outbox*>(mappings[rank]->data());
        const std::byte* const arena = mappings[rank]->data() + arena_offset(size, slots);
        for (int peer = 0; peer < size; ++peer) {
          if (mappings[peer]) continue;
          std::shared_ptr<tcp::Pipe> pipe;
          if (!pipes.empty()) pipe = pipes[peer];
          if (!pipe) pipe = std::make_shared<tcp::Pipe>(sockets[peer]);
          all[peer] = std::make_unique<tcp::Link>(rank, size, peer, pipe, checked, own, arena, slots);
        }
        return all;
      }()),
      far([&] {
        std::vector<int> all;
        for (int peer = 0; peer < size; ++peer) {
          if (links[peer]) all.push_back(peer);
        }
        return all;
      }()),
      all_links([&] {
        std::vector<tcp::Link*> all;
        for (int peer : far) all.push_back(links[peer].get());
        return all;
      }()),
      boxes([&] {
        std::vector<Outbox*> all;
        for (int peer = 0; peer < size; ++peer) {
          all.push_back(links[peer] ? links[peer]->mirror() : reinterpret_cast<Outbox*>(mappings[peer]->data()));
        }
        return all;
      }()),
      slots_of([&] {
        std::vector<uint64_t> all;
        for (const auto& link : links) all.push_back(link ? tcp::window : slots);
        return all;
      }()),
      events(duplicates(given_events, fds.size())),
      bell(rank, boxes, as_wires(links), events, crowd),
      settlement(rank, boxes, far, std::move(absent), [this] { bell.notify_all(); }),
      board(rank, boxes, settlement),
      liveness(rank, boxes, without_links(sockets, links), std::move(pidfds),
               far.empty() ? silence : silence_over_links, life),
      recorder(rank, size, *boxes[rank]) {
  if (size > most_ranks)
    throw Failure{Failure::internal, -1, "a group has at most " + std::to_string(most_ranks) + " ranks"};
  mappings[rank]->own(fds[rank], arena_offset(size, slots), arena_bytes);
}

Parts::~Parts() {
  for (int fd : events) {
    if (fd >= 0) ::close(fd);
  }
}

uint64_t Endpoint::outbox_bytes(int size, uint64_t slots, uint64_t arena) {
  return arena_offset(size, round_up(slots, line)) + round_up(arena, page);
}

Endpoint::Endpoint(int rank, const std::vector<int>& fds, std::vector<int> sockets, std::vector<int> pidfds,
                   const std::vector<int>& events, uint64_t slots, uint64_t arena, std::function<void()> signals,
                   int crowd, const std::vector<std::shared_ptr<tcp::Pipe>>& pipes, bool checked, Clock::duration life)
    : Parts(rank, fds, sockets, std::move(pidfds), events, slots, arena, crowd, pipes, checked, life,
            [this] { return absent(); }),
      Channels(rank, boxes, slots_of, arena_bytes, bell, board),
      born_(forks()),
      signals_(std::move(signals)),
      life_(life),
      silent_("was silent for " + in_seconds(life) + ", being stopped or cut off,") {
  std::vector<std::byte*> regions;
  std::vector<bool> near;
  for (int peer = 0; peer < Parts::size; ++peer) {
    regions.push_back(boxes[peer]->slots(Parts::size) + slots_of[peer]);
    near.push_back(!links[peer]);
  }
  mailbox_ = std::make_unique<Mailbox>(rank, Parts::size, shm::streams(rank, regions, near), *this);
  listens = !far.empty();
  FAILPOINT(made);
  if (!listens) return;
  keeper_ = std::make_unique<tcp::Keeper>(
      all_links, [this] { bell.notify(Parts::rank); },
      [this] {
        if (whole_.load(std::memory_order_acquire)) settlement.turn();
      },
      life);
  whole_.store(true, std::memory_order_release);
}

Endpoint::~Endpoint() = default;

void Endpoint::disconnect(bool for_all) {
  liveness.disconnect();
  if (!keeper_) return;
  keeper_->stop();  // and stays: another thread may be asking it in a wait
  FAILPOINT(parting);
  tcp::part(all_links, settlement.settled() ? short_farewell : farewell, for_all);
  for (tcp::Link* link : all_links) link->disconnect();
}

// ---- agreement ------------------------------------------------------------------------------------------------------

uint64_t Endpoint::enter(uint64_t fingerprint, const std::byte* out, uint32_t said) {
  const uint64_t number =
      board.enter(fingerprint, in_arena(out, Descriptor::room + 1) ? 1 + (out - Channels::arena()) : 0, said);
  recorder.enter(number, fingerprint);
  return number;
}

void Endpoint::describe(uint64_t fingerprint, const std::string& text) {
  if (board.describe(fingerprint, text)) recorder.name(fingerprint, text.substr(0, text.find('\n')));
}

// What has come over a link is known: also that the call was given up behind its last message.
void Endpoint::meet(Peers peers, Deadline deadline) {
  for (int peer : far) bell.hear(peer);
  if (listens) settlement.turn();
  board.meet(peers, *this, deadline);
  recorder.leave();
}

uint64_t Endpoint::next(int peer, uint64_t expected, Deadline deadline) {
  return board.next(peer, expected, *this, deadline);
}

std::string Endpoint::learn(int peer, const std::string& expected, Deadline deadline) {
  return board.learn(peer, expected, *this, deadline);
}

bool Endpoint::fence(const std::byte* begin, uint64_t bytes) {
  recorder.fail();
  for (tcp::Link* link : all_links) link->fence();
  if (bytes == 0 || begin < Channels::arena() || begin >= Channels::arena() + arena_bytes) return false;
  fenced_ = true;
  mappings[rank()]->detach(begin, bytes);
  return true;
}

void Endpoint::give_back(uint64_t begin, uint64_t bytes) {
  if (!fenced_) mappings[rank()]->give_back(Channels::arena() + begin, bytes);
}

// Who has given up may have given its memory back.
bool Endpoint::copy_offered(int peer, const std::byte* from, std::byte* to, uint64_t bytes) {
  const int error = copy_from(peer, from, to, bytes);
  if (error == 0) return true;
  check(peer, Deadline::max());
  if (error == ESRCH) return false;
  throw Failure{Failure::internal, peer,
                "the memory of rank " + std::to_string(peer) + " cannot be copied: " + std::strerror(error) +
                    " (HOCKET_PROTOCOL=staged does without that)"};
}

void Endpoint::leave() {
  FAILPOINT(leaving);
  board.leave();
  FAILPOINT(left);
  bell.notify_all();
}

void Endpoint::close() {
  closing_ = true;
  bell.notify(rank());
}

// ---- who is where ---------------------------------------------------------------------------------------------------

void Endpoint::report(const void* by, uint64_t call, const std::string& text, const std::string& place,
                      Clock::time_point since) {
  const std::lock_guard lock(reports_);
  reporter_ = by;
  recorder.report(by, call, text, place, since);
  say(text + place, since);
}

void Endpoint::retract(const void* by) {
  const std::lock_guard lock(reports_);
  recorder.retract(by);
  if (reporter_ != by) return;
  reporter_ = nullptr;
  say("", {});
}

// At once, also over links: who makes an error asks now.
void Endpoint::say(const std::string& text, Clock::time_point since) {
  if (forks() != born_) return;  // the parent's
  write(boxes[rank()]->doing, text, since);
  liveness.beat();
  for (tcp::Link* link : all_links) link->beat(Clock::now(), Clock::duration::zero());
}

std::vector<Endpoint::Whereabouts> Endpoint::survey(std::chrono::milliseconds patience, bool asks) {
  const auto precedence = asks ? std::min(rank(), most_before) * between_ranks : between_ranks * 0;
  const auto until = Clock::now() + patience;
  auto complete = Clock::time_point::max() - precedence;
  std::vector<Activity> seen(size());
  for (;;) {
    bool all = true;
    liveness.beat();
    for (tcp::Link* link : all_links) link->beat(Clock::now(), between_pulses);
    for (int peer : far) bell.hear(peer);
    for (int peer = 0; peer < size(); ++peer) {
      Activity now;
      if (read(boxes[peer]->doing, now) && !now.text.empty()) seen[peer] = now;
      all = all && (peer == rank() || !seen[peer].text.empty() || board.has_left(peer) || liveness.is_gone(peer));
    }
    if (asks) settlement.turn(), settlement.check();
    const auto now = Clock::now();
    if (all || now >= until) complete = std::min(complete, now);
    if (now >= complete + precedence) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto now = Clock::now();
  std::vector<Whereabouts> result;
  for (int peer = 0; peer < size(); ++peer) {
    const std::chrono::duration<double> lasted = now - seen[peer].since;
    const auto [call, title] = board.last(peer);
    result.push_back({seen[peer].text, seen[peer].text.empty() ? 0 : lasted.count(), call, title, board.has_left(peer),
                      liveness.is_gone(peer), liveness.is_silent(peer, now)});
  }
  return result;
}

// What comes from ranks of this host lies in their outboxes, and stays there.
void Endpoint::expect(int peer, Label label, std::byte* to, uint64_t bytes) {
  if (links[peer]) links[peer]->expect(label, to, bytes);
}

uint64_t Endpoint::landings() const {
  uint64_t all = 0;
  for (const tcp::Link* link : all_links) all += link->landings();
  return all;
}

// ---- waiting --------------------------------------------------------------------------------------------------------

// Called in every turn of a wait: of many links it looks at two, the one that is waited for and another one.
void Endpoint::hear(int peer) {
  if (peer >= 0) bell.hear(peer);
  const int other = far[next_heard_.fetch_add(1, std::memory_order_relaxed) % far.size()];
  if (other != peer) bell.hear(other);
}

void Endpoint::sleep(uint32_t seen, std::chrono::microseconds slice) {
  if (!listens) return bell.sleep(seen, slice);
  if (bell.rung(seen)) return;
  std::vector<pollfd> polls{{events[rank()], POLLIN, 0}};
  for (const tcp::Link* link : all_links) {
    if (link->broken()) continue;
    link->watch(polls, POLLIN | POLLOUT);
    slice = std::min(slice, link->arm());
  }
  const timespec time{slice.count() / 1000000, slice.count() % 1000000 * 1000};
  ppoll(polls.data(), polls.size(), &time, nullptr);
  uint64_t rings;
  if (polls[0].revents != 0)
    eventfd_read(events[rank()], &rings);  // another thread that was about to sleep sleeps a slice
}

// What has come over links, and which of them are dead.
void Endpoint::tend(Clock::time_point now) {
  // Where this process itself was stopped, the keeper forgives the others before anybody may accuse them.
  const bool listened = keeper_ && keeper_->is_awake(now);
  for (int peer : far) {
    tcp::Link* const link = links[peer].get();
    bell.hear(peer);
    link->beat(now, between_pulses);
    // First this: who breaks off has said before that it leaves, and the keeper may hear both of them meanwhile.
    const char* const why = link->broken();
    if (board.has_left(peer)) continue;
    if (why != nullptr) {
      liveness.gone(peer, why);
    } else if (listened && now - link->heard() > life_ * 19 / 20) {  // that all know it within a `life`
      liveness.gone(peer, silent_.c_str());
    }
  }
}

void Endpoint::check(int peer, Deadline deadline) {
  if (closing_) throw Failure{Failure::closed, rank(), ""};
  if (listens) settlement.turn();
  settlement.check();
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    board.compare(other);
    // Who left before this call is missing in it, whomever else this rank waits for now: a root, for instance, for
    // another one to read, while it is that one's messages that fill the slots.
    if (board.has_left(other) && (other == peer || !board.is_here(other))) liveness.gone(other, "left");
  }
  mailbox_->progress();  // a peer may need a message of ours to get to where we wait for it
  liveness.beat(peer);
  recorder.wait(peer);
  const auto now = Clock::now();
  tend(now);
  if (now > deadline) {
    throw Failure{Failure::timeout, liveness.culprit(peer, [this](int other) { return board.is_here(other); }), ""};
  }
  if (liveness.look(now) && signals_) signals_();
}

}  // namespace hocket
