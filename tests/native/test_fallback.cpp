// A pipe that goes on over another way: nothing is lost, and nothing comes twice, wherever a way breaks.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "check.h"
#include "transport/tcp/crc32c.h"
#include "transport/tcp/fallback.h"

using namespace hocket;
using namespace hocket::testing;
using tcp::Fallback;

namespace {

constexpr std::chrono::milliseconds patience{50};

// One end of a way that can be cut: then nothing arrives, and nobody says so, but that the kernel hears no word.
class Way final : public tcp::Pipe {
 public:
  explicit Way(int fd) : Pipe(fd) {}
  ssize_t send(std::span<iovec> parts) override {
    ssize_t all = 0;
    for (const iovec& part : parts) all += static_cast<ssize_t>(part.iov_len);
    return cut ? all : used(parts, Pipe::send(parts));
  }
  ssize_t receive(std::span<iovec> parts) override {
    if (!deaf) return used(parts, Pipe::receive(parts));
    errno = EAGAIN;
    return -1;
  }
  void shut() override {
    if (!cut) Pipe::shut();
  }
  bool is_silent(std::chrono::milliseconds) const override { return cut; }
  // A pipe may change what it is given.
  static ssize_t used(std::span<iovec> parts, ssize_t n) {
    std::fill(parts.begin(), parts.end(), iovec{});
    return n;
  }

  std::atomic<bool> cut{false}, deaf{false};
};

// Two ends, with so many ways between them; each takes little at a time.
struct Pair {
  explicit Pair(size_t count = 2, int buffer = 20'000) {
    std::vector<std::shared_ptr<tcp::Pipe>> all[2];
    for (size_t i = 0; i < count; ++i) {
      int both[2];
      check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both) == 0, "no sockets");
      for (int e = 0; e < 2; ++e) {
        setsockopt(both[e], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        fds[e].push_back(both[e]);
        ways[e].push_back(std::make_shared<Way>(both[e]));
        all[e].push_back(ways[e].back());
      }
    }
    for (int e = 0; e < 2; ++e) ends[e] = std::make_unique<Fallback>(all[e], patience);
  }
  ~Pair() {
    for (const auto& each : fds) {
      for (const int fd : each) ::close(fd);
    }
  }
  // As where a process has died: all its sockets end.
  void die(int e) {
    for (int& fd : fds[e]) ::close(std::exchange(fd, -1));
  }
  std::vector<int> fds[2];
  std::vector<std::shared_ptr<Way>> ways[2];
  std::unique_ptr<Fallback> ends[2];
};

std::byte value(int from, uint64_t at) { return static_cast<std::byte>(mix(static_cast<uint64_t>(from), at)); }

// What goes from one end to the other, as far as that has come; every byte differs by end and place.
struct Flow {
  Flow(int from, uint64_t all) : from(from), all(all) {}

  bool send(Fallback& by, uint64_t most) {
    Bytes data(std::min(most, all - sent));
    for (uint64_t i = 0; i < data.size(); ++i) data[i] = value(from, sent + i);
    const size_t middle = data.size() / 3;
    std::array<iovec, 2> parts{{{data.data(), middle}, {data.data() + middle, data.size() - middle}}};
    const ssize_t n = data.empty() ? 0 : by.send(parts);
    std::fill(data.begin(), data.end(), std::byte{0xee});  // it is the caller's again
    if (n > 0) sent += static_cast<uint64_t>(n);
    return n >= 0 || errno == EAGAIN;
  }
  // False at the end, and after an error.
  bool receive(Fallback& by, uint64_t most) {
    Bytes data(most);
    std::array<iovec, 2> parts{{{data.data(), most / 2}, {data.data() + most / 2, most - most / 2}}};
    const ssize_t n = by.receive(parts);
    for (ssize_t i = 0; i < n; ++i) {
      if (!check(data[static_cast<size_t>(i)] == value(from, received), "another byte at ", received)) return false;
      ++received;
    }
    return n > 0 || (n < 0 && errno == EAGAIN);
  }
  bool is_done() const { return received == all; }

  const int from;
  const uint64_t all;
  uint64_t sent = 0, received = 0;
};

// Both ends send and receive, in odd pieces, until all has come; `at(step)` is called before each step.
template <class At>
void exchange(Pair& pair, uint64_t all, uint64_t seed, At at) {
  std::mt19937_64 random(seed);
  Flow flows[2] = {{0, all}, {1, all / 3 + 1}};
  const Deadline limit = watchdog();
  for (uint64_t step = 0; !(flows[0].is_done() && flows[1].is_done()); ++step) {
    if (!check(Clock::now() < limit, "it hangs, seed ", seed, ": ", flows[0].received, " and ", flows[1].received))
      return;
    at(step);
    const int e = static_cast<int>(random() % 2);
    const uint64_t most = 1 + random() % 50'000;
    const bool goes =
        random() % 2 == 0 ? flows[e].send(*pair.ends[e], most) : flows[1 - e].receive(*pair.ends[e], most);
    pair.ends[e]->flush();
    if (!check(goes, "it ended, seed ", seed, ": ", std::strerror(errno))) return;
  }
}

void carries_all_over_one_way() {
  Pair pair;
  exchange(pair, 30 << 20, 1, [](uint64_t) {});
  check(pair.ends[0]->way() == 0 && pair.ends[1]->way() == 0, "it went on for no reason");
}

// However a way breaks, and whoever finds it.
void goes_on_wherever_a_way_breaks() {
  enum { ended, cut_for_both, cut_one_way, kinds };
  const uint64_t base = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(base));
  for (uint64_t trial = 0; trial < 300; ++trial) {
    const uint64_t seed = base + trial, when = mix(seed, 1) % 150;
    Pair pair(3);
    exchange(pair, 2 << 20, seed, [&](uint64_t step) {
      for (size_t way = 0; way < 2; ++way) {
        if (step != when * (way + 1)) continue;
        const size_t e = mix(seed, way, 2) % 2;
        switch (mix(seed, way, 3) % kinds) {
          case ended:
            shutdown(pair.fds[e][way], SHUT_RDWR);
            break;
          case cut_for_both:
            for (const auto& ways : pair.ways) ways[way]->cut = ways[way]->deaf = true;
            break;
          default:  // what one end sends is lost, and what it hears is not
            pair.ways[e][way]->cut = pair.ways[1 - e][way]->deaf = true;
        }
      }
    });
    for (const auto& end : pair.ends) check(when == 0 || end->way() <= 2, "it is on way ", end->way());
  }
}

// Who sends nothing and waits for nothing hears of it over the other way, and is woken by that.
void hears_that_the_other_end_has_gone_on() {
  Pair pair;
  Flow flow(0, 1000);
  flow.send(*pair.ends[0], 1000);
  while (!flow.is_done()) flow.receive(*pair.ends[1], 100);
  pair.ways[0][0]->cut = pair.ways[1][0]->deaf = true;
  const Deadline limit = watchdog();
  Flow back(1, 1);
  while (pair.ends[0]->way() == 0 && Clock::now() < limit) back.receive(*pair.ends[0], 1);
  std::vector<pollfd> polls;
  pair.ends[1]->watch(polls, POLLIN);
  check(polls.size() == 2 && poll(polls.data(), polls.size(), 5000) == 1 && polls[1].revents == POLLIN,
        "who sleeps is not woken");
  while (pair.ends[1]->way() == 0 && Clock::now() < limit) flow.receive(*pair.ends[1], 1);
  check(pair.ends[0]->way() == 1 && pair.ends[1]->way() == 1, "one of them stays behind");
  Flow after(1, 100'000);
  for (; !after.is_done() && Clock::now() < limit; after.receive(*pair.ends[0], 5000)) after.send(*pair.ends[1], 5000);
  check(after.is_done(), "nothing comes any more");
}

// What had been sent before comes first; then it is the end, at once.
void ends_with_the_other_process() {
  for (const auto& [count, is_first] : {std::pair<size_t, bool>{2, false}, {3, false}, {2, true}}) {
    Pair pair(count, 1 << 20);
    Flow flow(0, 60'000);
    while (flow.sent != flow.all) flow.send(*pair.ends[0], 7000);
    check(pair.ends[0]->flush(), "it is not all sent");
    pair.die(0);
    const Deadline limit = watchdog();
    Flow vain(1, 100'000);
    while (is_first && vain.sent != vain.all) vain.send(*pair.ends[1], 7000);
    while (flow.receive(*pair.ends[1], 999) && Clock::now() < limit) {
    }
    check(flow.is_done(), "lost: ", flow.all - flow.received);
    Bytes one(1);
    std::array<iovec, 1> part{{{one.data(), 1}}};
    if (is_first) check(pair.ends[1]->send(part) != 0, "it takes nothing, and says nothing");
    check(pair.ends[1]->receive(part) == 0, "it does not end");
    check(pair.ends[1]->goes_on() == 0, "nobody is left to go on with");
    check(pair.ends[1]->send(part) == -1 && errno != EAGAIN, "it takes more");
    check(pair.ends[1]->flush(), "it is stuck");
  }
}

// One that broke before it was needed wakes nobody for ever; and then it is no help.
void does_not_wait_for_a_dead_way() {
  Pair pair;
  shutdown(pair.fds[0][1], SHUT_RDWR);
  Flow flow(0, 10), none(1, 1);
  flow.send(*pair.ends[0], 10);
  std::vector<pollfd> polls;
  const Deadline limit = watchdog();
  do {
    none.receive(*pair.ends[0], 1);
    polls.clear();
    pair.ends[0]->watch(polls, POLLIN);
  } while (polls.size() == 2 && Clock::now() < limit);
  check(polls.size() == 1 && poll(polls.data(), 1, 0) == 0, "it wakes who sleeps");
  while (!flow.is_done() && flow.receive(*pair.ends[1], 3)) {
  }
  check(flow.is_done() && pair.ends[1]->way() == 0, "it does not go on over the good one");
  shutdown(pair.fds[0][0], SHUT_RDWR);
  check(!none.receive(*pair.ends[0], 1) && errno == EPIPE, "it is not over: ", std::strerror(errno));
}

// It takes what it can keep, and more when the other end has told what has come.
void keeps_so_much_at_most() {
  Pair pair;
  Flow flow(0, 3 * Fallback::most_kept);
  const Deadline limit = watchdog();
  for (uint64_t before = 1; before != flow.sent && Clock::now() < limit;) {
    before = flow.sent;
    flow.send(*pair.ends[0], 100'000);
  }
  check(flow.sent == Fallback::most_kept, "it took ", flow.sent);
  for (; !flow.is_done() && Clock::now() < limit; flow.receive(*pair.ends[1], 100'000)) {
    check(flow.sent - flow.received <= Fallback::most_kept, "it keeps more");
    Flow none(1, 1);
    none.receive(*pair.ends[0], 1);  // what has come there
    flow.send(*pair.ends[0], 100'000);
    pair.ends[0]->flush();
  }
  check(flow.is_done(), "it stops after ", flow.received);
}

// The other end may say anything.
void believes_nothing_that_cannot_be() {
  using Head = Fallback::Head;
  constexpr uint32_t anew = Fallback::anew;
  Head changed = Head::of(1, 0);
  changed.received = 1;
  const struct {
    Head said;
    size_t by;
    const char* what;
  } lies[] = {
      {changed, 0, "another sum"},
      {Head::of(1, 1), 0, "more than was sent"},
      {Head::of((256 << 10) + 1, 0), 0, "a record that is too long"},
      {Head::of(anew, 0), 0, "anew on the first way"},
      {Head::of(1, 0), 1, "no word how far it has come on the second"},
      {Head::of(anew, 1), 1, "on the second, more than was sent"},
  };
  for (const auto& lie : lies) {
    Pair pair;
    check(write(pair.fds[0][lie.by], &lie.said, sizeof lie.said) == sizeof lie.said, "it does not fit");
    Bytes one(1);
    std::array<iovec, 1> part{{{one.data(), 1}}};
    const Deadline limit = watchdog();
    ssize_t n;
    do n = pair.ends[1]->receive(part);
    while (n < 0 && errno == EAGAIN && Clock::now() < limit);
    check(n == -1 && errno == EBADMSG, lie.what, " is believed");
  }
}

}  // namespace

int main() {
  carries_all_over_one_way();
  goes_on_wherever_a_way_breaks();
  hears_that_the_other_end_has_gone_on();
  ends_with_the_other_process();
  does_not_wait_for_a_dead_way();
  keeps_so_much_at_most();
  believes_nothing_that_cannot_be();
  return report();
}
