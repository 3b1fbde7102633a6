// Links: what they carry, what they do with nonsense, and that they stop where they must.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "check.h"
#include "engine/port.h"
#include "transport/outbox/activity.h"
#include "transport/tcp/crc32c.h"
#include "transport/tcp/keeper.h"
#include "transport/tcp/link.h"
#include "transport/tcp/stripes.h"

using namespace hocket;
using namespace hocket::testing;
using tcp::Frame;

namespace {

constexpr uint64_t slots = 1 << 20;
constexpr int size = 2;

// One rank's outbox and its link to the other one.
struct Rank {
  Rank(int rank, int fd, bool checked = false) : Rank(rank, std::make_shared<tcp::Pipe>(fd), checked) {}
  Rank(int rank, std::shared_ptr<tcp::Pipe> pipe, bool checked)
      : number(rank),
        bytes(arena_offset(size, slots)),
        box(static_cast<Outbox*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        link(rank, size, 1 - rank, pipe, checked, box, reinterpret_cast<std::byte*>(box), slots) {
    fcntl(pipe->socket(), F_SETFL, O_NONBLOCK);
  }
  ~Rank() { munmap(box, bytes); }

  // A view of `data` is posted, as channels.cpp does it.
  void post(uint64_t number, int peer, const std::byte* data, uint64_t length, Label label) {
    Descriptor& d = box->descriptors(size, peer)[number % depth];
    d.call = label.call;
    d.place = label.place;
    d.bytes = length;
    d.kind = Descriptor::view;
    d.offset = static_cast<uint64_t>(data - reinterpret_cast<std::byte*>(box));
    d.turn.store(number + 1, std::memory_order_release);
    link.push();
  }

  // The descriptor of a message from the other one, once that is there.
  const Descriptor* received(uint64_t number) {
    const Descriptor& d = link.mirror()->descriptors(size, this->number)[number % depth];
    return d.turn.load(std::memory_order_acquire) == number + 1 ? &d : nullptr;
  }
  const std::byte* slot(const Descriptor& d) { return link.mirror()->slots(size) + d.offset; }

  const int number;
  const uint64_t bytes;
  Outbox* const box;
  tcp::Link link;
};

struct Pair {
  Pair() {
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0, "no sockets");
    for (int r = 0; r < size; ++r) ranks[r] = std::make_unique<Rank>(r, fds[r]);
  }
  ~Pair() {
    for (int fd : fds) close(fd);
  }
  int fds[2];
  std::unique_ptr<Rank> ranks[2];
};

// Two ranks, whose link goes over several sockets, each of which takes little at a time.
struct Striped {
  explicit Striped(size_t count, bool checked = false, bool over_tcp = false) : fds{Fds(count), Fds(count)} {
    std::vector<std::shared_ptr<tcp::Pipe>> pipes[size];
    for (size_t i = 0; i < count; ++i) {
      over_tcp ? connect(i) : couple(i);
      for (int r = 0; r < size; ++r) pipes[r].push_back(std::make_shared<tcp::Pipe>(fds[r][i]));
    }
    for (int r = 0; r < size; ++r)
      ranks[r] = std::make_unique<Rank>(r, std::make_shared<tcp::Stripes>(pipes[r]), checked);
  }
  ~Striped() {
    for (const Fds& each : fds) {
      for (int fd : each) close(fd);
    }
  }

  void couple(size_t i) {
    int both[size];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0, "no sockets");
    for (int r = 0; r < size; ++r) {
      const int few = 20'000;
      setsockopt(fds[r][i] = both[r], SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
    }
  }

  void connect(size_t i) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    check(bind(listener, address, length) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, address, &length) == 0,
          "no listener");
    fds[0][i] = socket(AF_INET, SOCK_STREAM, 0);
    const int some = 200'000;
    setsockopt(fds[0][i], SOL_SOCKET, SO_SNDBUF, &some, sizeof some);
    check(::connect(fds[0][i], address, length) == 0, "not connected");
    fds[1][i] = accept(listener, nullptr, nullptr);
    close(listener);
  }

  // As when something on the way breaks a connection of TCP.
  void reset(int rank, size_t i) {
    const linger none{1, 0};
    setsockopt(fds[rank][i], SOL_SOCKET, SO_LINGER, &none, sizeof none);
    close(fds[rank][i]);
    fds[rank][i] = -1;
  }

  using Fds = std::vector<int>;
  Fds fds[size];
  std::unique_ptr<Rank> ranks[size];
};

template <typename Two>
void carries_messages_in_order(Two&& pair, int count) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> lengths;
  for (int i = 0; i < count; ++i) {
    const uint64_t most = uint64_t{1} << random() % 19;
    lengths.push_back(random() % most);
  }
  std::vector<Bytes> data;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Bytes bytes(lengths[i]);
    for (uint64_t k = 0; k < bytes.size(); ++k) bytes[k] = std::byte(mix(i, k, 3));
    data.push_back(std::move(bytes));
  }
  std::thread sender([&] {
    Rank& own = *pair.ranks[0];
    const auto& read = own.link.mirror()->counts()[0].read;
    for (size_t i = 0; i < data.size(); ++i) {
      while (i >= read.load(std::memory_order_acquire) + depth) own.link.turn();
      own.post(i, 1, data[i].data(), data[i].size(), {i, static_cast<uint32_t>(i * 3)});
    }
    while (read.load(std::memory_order_acquire) != data.size()) own.link.turn();
  });
  Rank& own = *pair.ranks[1];
  for (size_t i = 0; i < data.size(); ++i) {
    const Descriptor& d = own.link.mirror()->descriptors(size, 1)[i % depth];
    while (d.turn.load(std::memory_order_acquire) != i + 1) own.link.turn();
    const std::byte* found = d.kind == Descriptor::here ? d.payload : own.link.mirror()->slots(size) + d.offset;
    check(d.call == i && d.place == i * 3 && d.bytes == data[i].size() &&
              std::equal(data[i].begin(), data[i].end(), found),
          "message ", i, " is another one");
    own.box->counts()[0].read.store(i + 1, std::memory_order_release);
    own.link.push();
  }
  sender.join();
  check(!pair.ranks[0]->link.broken() && !pair.ranks[1]->link.broken(), "a link broke");
}

Bytes content(uint64_t number, uint64_t length) {
  Bytes data(length);
  for (uint64_t k = 0; k < length; ++k) data[k] = std::byte(mix(number, k, 5));
  return data;
}

bool holds(const std::byte* at, const Bytes& data) { return std::memcmp(at, data.data(), data.size()) == 0; }

// A stream of messages, each of which is expected a window ahead: all of it is received where it is to be.
template <typename Two>
void lands_what_is_expected(Two&& pair, uint64_t count) {
  constexpr uint64_t length = 256 << 10, ahead = 32;
  const Bytes data = content(1, count * length);
  Bytes out(count * length);
  const auto label = [](uint64_t i) { return Label{9, static_cast<uint32_t>(i)}; };
  const auto expect = [&](uint64_t i) {
    if (i < count) pair.ranks[1]->link.expect(label(i), out.data() + i * length, length);
  };
  for (uint64_t i = 0; i < ahead; ++i) expect(i);
  std::thread sender([&] {
    Rank& own = *pair.ranks[0];
    const auto& read = own.link.mirror()->counts()[0].read;
    for (uint64_t i = 0; i < count; ++i) {
      while (i >= read.load(std::memory_order_acquire) + depth) own.link.turn();
      own.post(i, 1, data.data() + i * length, length, label(i));
    }
    while (read.load(std::memory_order_acquire) != count) own.link.turn();
  });
  Rank& own = *pair.ranks[1];
  for (uint64_t i = 0; i < count; ++i) {
    const Descriptor* d;
    while ((d = own.received(i)) == nullptr) own.link.turn();
    check(d->kind == Descriptor::landed && d->offset == reinterpret_cast<uint64_t>(out.data() + i * length) &&
              d->bytes == length && d->call == 9 && d->place == i,
          "message ", i, " did not land");
    expect(i + ahead);
    own.box->counts()[0].read.store(i + 1, std::memory_order_release);
    own.link.push();
  }
  sender.join();
  check(out == data, "other bytes landed");
  check(!pair.ranks[0]->link.broken() && !pair.ranks[1]->link.broken(), "a link broke");
}

// What is not the very message that was expected next, and what came before it was, goes to the slots.
void lands_nothing_else() {
  constexpr uint64_t length = 20'000;
  const Label right{7, 3};
  const Bytes none(2 * length, std::byte{0xcc});
  const struct {
    const char* what;
    uint64_t bytes;
    Label label;
    int early, before;  // messages that come before it is expected, and that are expected before it
  } cases[] = {{"the message itself", length, right, 0, 0}, {"a longer one", length + 1, right, 0, 0},
               {"a shorter one", length - 1, right, 0, 0},  {"one of another call", length, {8, 3}, 0, 0},
               {"another place", length, {7, 4}, 0, 0},     {"one that came early", length, right, 1, 0},
               {"the next but one", length, right, 0, 1},   {"a short one", 4000, right, 0, 0}};
  for (const auto& c : cases) {
    Pair pair;
    Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
    Bytes out = none;
    const bool is_right = &c == cases;
    const Bytes data = content(2, c.bytes);
    for (int i = 0; i < c.before; ++i) to.link.expect({7, 2}, nullptr, length);
    if (c.early == 0) to.link.expect(right, out.data(), c.bytes == 4000 ? 4000 : length);
    from.post(0, 1, data.data(), c.bytes, c.label);
    to.link.turn();
    if (c.early != 0) to.link.expect(right, out.data(), length);
    to.link.turn();
    const Descriptor* d = to.received(0);
    if (!check(d != nullptr && d->call == c.label.call && d->place == c.label.place, c.what, ": is not there"))
      continue;
    check((d->kind == Descriptor::landed) == is_right, c.what, ": landed?");
    check(is_right ? holds(out.data(), data) : out == none && holds(to.slot(*d), data), c.what, ": other bytes");
    check(std::equal(out.begin() + length, out.end(), none.begin()), c.what, ": more than that was written");
  }
}

// What came before it was expected is over: no later message is taken for it.
void lands_nothing_for_what_is_over() {
  Pair pair;
  Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
  const Bytes data = content(3, 20'000), none(20'000, std::byte{0xcc});
  Bytes out = none;
  for (uint64_t i = 0; i <= depth; ++i) {
    from.post(i, 1, data.data(), data.size(), {7, 3});
    to.link.turn();
    if (i == 0) to.link.expect({7, 3}, out.data(), data.size());
    const Descriptor* d = to.received(i);
    check(d != nullptr && d->kind == Descriptor::slot && holds(to.slot(*d), data) && out == none, "message ", i,
          " landed");
    to.box->counts()[0].read.store(i + 1, std::memory_order_release);
    to.link.push();
    from.link.turn();
  }
}

// From a fence on not a byte is written where messages were expected, neither of one that is in the middle of coming
// nor of a later one, whoever receives them; and what goes on coming is whole.
template <typename Two, typename... How>
void lands_nothing_after_a_fence(How... how) {
  constexpr uint64_t length = 1 << 20;
  const Bytes data = content(4, length), refilled(2 * length, std::byte{0x77});
  for (int trial = 0; trial < 12; ++trial) {
    Two pair(how...);
    Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
    Bytes out(2 * length);
    for (uint64_t i = 0; i < 2; ++i) {
      to.link.expect({1, 0}, out.data() + i * length, length);
      from.post(i, 1, data.data(), length, {1, 0});
    }
    check(from.link.stuck(), "all of it was taken at once");
    for (int i = 0; i < trial % 4; ++i) {
      to.link.turn();
      from.link.turn();
    }
    std::atomic<bool> over{false};
    std::thread keeper([&] {
      while (!over) {
        to.link.turn();
        from.link.turn();
        std::this_thread::yield();
      }
    });
    to.link.fence();
    out = refilled;
    while (to.received(1) == nullptr) std::this_thread::yield();
    to.link.expect({1, 0}, out.data(), length);
    from.post(2, 1, data.data(), length, {1, 0});
    while (to.received(2) == nullptr) std::this_thread::yield();
    over = true;
    keeper.join();
    check(out == refilled, "written after the fence");
    for (uint64_t i = 0; i < 3; ++i) {
      const Descriptor* d = to.received(i);
      check(d->kind == Descriptor::landed || holds(to.slot(*d), data), "message ", i, " is not whole");
    }
  }
}

// What nobody reads is not sent beyond the window, and what comes behind it is heard all the same.
void does_not_stand_in_its_own_way() {
  Pair pair;
  Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
  const Bytes data(1 << 18);
  for (uint64_t i = 0; i < depth; ++i) from.post(i, 1, data.data(), data.size(), {i, 0});
  from.box->board[1].fingerprint = 42;
  from.box->board[1].call = 1;
  from.box->left = 1;
  for (int i = 0; i < 1000; ++i) {
    from.link.push();
    from.link.turn();
    to.link.turn();
  }
  check(from.link.mirror()->counts()[0].read == tcp::window >> 18, "not a window was sent");
  check(to.link.mirror()->board[1].call == 1 && to.link.mirror()->board[1].fingerprint == 42, "the call was not heard");
  check(to.link.mirror()->left == 1, "the farewell was not heard");
}

// What is in the middle of being sent when a call fails is sent as it was, and nothing else.
template <typename Two>
void sends_nothing_of_the_callers_after_a_fence(Two&& pair) {
  Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
  const uint64_t length = 1 << 20;
  Bytes data(length);
  for (uint64_t k = 0; k < length; ++k) data[k] = std::byte(mix(1, k, 9));
  const Bytes before = data;
  for (uint64_t i = 0; i < 3; ++i) from.post(i, 1, data.data(), length, {i, 0});
  check(from.link.stuck(), "all of it was taken at once");
  from.link.fence();
  std::fill(data.begin(), data.end(), std::byte{0xee});
  from.post(3, 1, data.data(), length, {3, 0});
  from.box->findings[0].why.culprit = -1;
  std::strcpy(from.box->findings[0].why.text, "because");
  from.box->findings[0].there = 1;
  from.box->affairs = 1;
  for (int i = 0; i < 100'000 && to.link.mirror()->findings[0].there == 0; ++i) {
    from.link.push();
    from.link.turn();
    to.link.turn();
  }
  check(std::strcmp(to.link.mirror()->findings[0].why.text, "because") == 0, "no reason was heard");
  for (uint64_t i = 0; i < 4; ++i) {
    const Descriptor& d = to.link.mirror()->descriptors(size, 1)[i];
    if (d.turn != i + 1) continue;
    check(i < 3, "a message was sent after the fence");
    check(std::memcmp(to.link.mirror()->slots(size) + d.offset, before.data(), length) == 0, "message ", i,
          " holds what came after the fence");
  }
}

// Whatever comes, nothing is written outside of the mirror and of where it is expected; and what cannot be true breaks
// the link.
void survives_nonsense() {
  std::mt19937_64 random(11);
  constexpr int64_t most = 5000;  // bytes of a frame that are sent
  int refused = 0, taken = 0, landed = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    Pair pair;
    Rank& own = *pair.ranks[1];
    Bytes stream, out(3 * most, std::byte{0xcc});
    own.link.expect({5, 6}, out.data() + most, most);
    const int frames = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < frames; ++i) {
      Frame frame{};
      frame.kind = static_cast<uint16_t>(1 + random() % 10);
      frame.number = static_cast<uint32_t>(i);
      frame.bytes = random() % 3 == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(random() % 5000);
      for (uint64_t* field : {&frame.read, &frame.consumed, &frame.a, &frame.b, &frame.c, &frame.d})
        *field = random() % 2 == 0 ? random() : random() % 70000;
      if (frame.kind == Frame::message && random() % 2 == 0) frame.c = frame.c / line * line % tcp::window;
      if (frame.kind == Frame::mail && random() % 2 == 0) frame.a = 0;
      if (frame.kind == Frame::message && random() % 2 == 0) {  // it is expected, or nearly so
        frame.a = 5;
        frame.b = 6;
        if (random() % 2 == 0) frame.bytes = static_cast<uint32_t>(most + random() % 2);
      }
      const auto* head = reinterpret_cast<const std::byte*>(&frame);
      stream.insert(stream.end(), head, head + sizeof frame);
      for (uint32_t k = 0; k < std::min<uint32_t>(frame.bytes, most); ++k) stream.push_back(std::byte(random()));
    }
    if (random() % 4 == 0) stream[random() % stream.size()] ^= std::byte(1 << random() % 8);
    size_t at = 0;
    while (at < stream.size()) {
      const size_t piece = std::min<size_t>(stream.size() - at, 1 + random() % 7000);
      const ssize_t n = write(pair.fds[0], stream.data() + at, piece);
      if (n > 0) at += static_cast<size_t>(n);
      own.link.turn();
      if (own.link.broken()) break;
    }
    own.link.turn();
    own.link.push();
    (own.link.broken() ? refused : taken) += 1;
    const auto is_intact = [&](uint64_t at) { return std::count(&out[at], &out[at] + most, std::byte{0xcc}) == most; };
    check(is_intact(0) && is_intact(2 * most), "written beside what was expected");
    landed += !is_intact(most);
  }
  check(refused > 500 && taken > 20 && landed > 20, refused, " refused, ", taken, " taken, ", landed,
        " landed: too few of one of them");
}

// What a head alone cannot show to be wrong: a message too many for those that are not read, and a reason that is none.
void breaks_where_no_rank_would_say_that() {
  const auto say = [](Pair& pair, Frame::Kind kind, uint32_t number, uint64_t a) {
    Frame frame{};
    frame.kind = kind;
    frame.number = number;
    frame.a = a;
    check(write(pair.fds[0], &frame, sizeof frame) == sizeof frame, "it does not fit");
    pair.ranks[1]->link.turn();
  };
  Pair unread;
  Rank& own = *unread.ranks[1];
  for (uint32_t i = 0; i < depth; ++i) say(unread, Frame::message, i, 100 + i);
  check(!own.link.broken() && own.received(depth - 1), "as many as there may be were refused");
  say(unread, Frame::message, depth, 100 + depth);
  check(own.link.broken() && own.received(0) && own.received(0)->call == 100, "one that nobody has read is lost");
  for (const uint64_t why : {uint64_t{0}, uint64_t{1}, uint64_t{1} + Failure::closed, uint64_t{2} + Failure::closed,
                             uint64_t{1} << 32 | 1}) {
    Pair pair;
    say(pair, Frame::stuck, 0, why);
    const bool is_one = why >= 1 && why <= 1 + Failure::closed;
    check((pair.ranks[1]->link.broken() == nullptr) == is_one, "a stream that stopped because of ", why);
  }
}

// Since when is told as how long: the clocks of hosts differ, and how much is lost on the way is all that this may be
// wrong by.
void tells_what_a_rank_is_in() {
  Pair pair;
  const auto& [from, to] = pair.ranks;
  Activity there;
  const auto since = Clock::now() - std::chrono::seconds(100);
  check(read(to->link.mirror()->doing, there) && there.text.empty(), "nothing was told");
  for (const std::string& text :
       {std::string("recv(src=0, tag=9) at train.py:40"), std::string(2000, 'x'), std::string()}) {
    write(from->box->doing, text, since);
    from->link.push();
    to->link.turn();
    check(read(to->link.mirror()->doing, there) && there.text == text.substr(0, activity_bytes - 1), there.text);
    check(there.since >= since && there.since <= since + std::chrono::seconds(50), "since another time");
  }
  const uint64_t version = there.version;
  from->link.push();
  to->link.turn();
  check(read(to->link.mirror()->doing, there) && there.version == version, "the same is told again");
}

void counts_the_checksum_that_others_count() {
  const auto* digits = reinterpret_cast<const std::byte*>("123456789");
  check(tcp::crc32c(0, digits, 9) == 0xe3069283, "it is another sum than in RFC 3720");
  check(tcp::crc32c_by_table(0, digits, 9) == 0xe3069283, "by the table it is another one");
  std::mt19937_64 random(5);
  Bytes data(20'000);
  for (std::byte& byte : data) byte = std::byte(random());
  for (int trial = 0; trial < 500; ++trial) {
    const size_t begin = random() % 100, bytes = random() % (data.size() - begin), cut = random() % (bytes + 1);
    const uint32_t expected = tcp::crc32c_by_table(0, data.data() + begin, bytes);
    check(tcp::crc32c(0, data.data() + begin, bytes) == expected, bytes, " bytes have another sum");
    const uint32_t first = tcp::crc32c(0, data.data() + begin, cut);
    check(tcp::crc32c(first, data.data() + begin + cut, bytes - cut) == expected, "in two parts it is another one");
  }
}

// One bit is changed on its way, any bit: the link breaks, and nothing that was delivered is wrong.
void notices_what_was_changed_on_its_way() {
  std::mt19937_64 random(13);
  Bytes data(30'000);
  for (uint64_t k = 0; k < data.size(); ++k) data[k] = std::byte(mix(2, k, 7));
  const std::array<uint64_t, 3> lengths{40, 30'000, 9'000};
  size_t all = 0;  // bytes that are sent, as the first trial shows, which changes none
  for (int trial = 0; trial < 400; ++trial) {
    int near[2], away[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, near) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, away) == 0, "sockets");
    {
      Rank from(0, near[0], true), to(1, away[1], true);
      fcntl(near[1], F_SETFL, O_NONBLOCK);
      for (uint64_t i = 0; i < lengths.size(); ++i) from.post(i, 1, data.data(), lengths[i], {i, 5});
      from.box->board[1].fingerprint = 42;
      from.box->board[1].call = 1;
      const size_t changed = trial == 0 ? SIZE_MAX : trial < 300 ? random() % all : trial - 300;
      size_t passed_on = 0;
      for (int turn = 0; turn < 40 && !to.link.broken(); ++turn) {
        from.link.beat(Clock::now(), std::chrono::seconds(0));
        std::byte buffer[8192];
        for (ssize_t n; (n = read(near[1], buffer, sizeof buffer)) > 0; passed_on += static_cast<size_t>(n)) {
          if (changed >= passed_on && changed < passed_on + static_cast<size_t>(n))
            buffer[changed - passed_on] ^= std::byte(1 << random() % 8);
          check(write(away[0], buffer, static_cast<size_t>(n)) == n, "it does not fit");
        }
        to.link.turn();
      }
      if (trial == 0) all = passed_on;
      check((to.link.broken() != nullptr) == (trial != 0), "byte ", changed, " was changed, and the link ",
            to.link.broken() ? to.link.broken() : "holds");
      const Outbox* mirror = to.link.mirror();
      for (uint64_t i = 0; i < lengths.size(); ++i) {
        const Descriptor& d = to.link.mirror()->descriptors(size, 1)[i];
        check(trial != 0 || d.turn == i + 1, "message ", i, " is missing");
        if (d.turn != i + 1) continue;
        const std::byte* found = d.kind == Descriptor::here ? d.payload : to.link.mirror()->slots(size) + d.offset;
        check(d.call == i && d.place == 5 && d.bytes == lengths[i] && std::memcmp(found, data.data(), d.bytes) == 0,
              "message ", i, " was delivered, and is another one");
      }
      check(mirror->board[1].call == 0 || mirror->board[1].fingerprint == 42, "another call was heard");
    }
    for (int fd : {near[0], near[1], away[0], away[1]}) close(fd);
  }
}

// What a pipe has taken, and its socket has not, is not waited for where there is nobody any more: a keeper that waited
// would be told at once, again and again.
void waits_for_no_socket_of_a_broken_link() {
  struct Full : tcp::Pipe {  // as one that encrypts
    using Pipe::Pipe;
    bool flush() override { return false; }
  };
  int fds[2];
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "no sockets");
  {
    Rank own(0, std::make_shared<Full>(fds[0]), false);
    own.link.push();
    check(own.link.stuck(), "it has what its pipe has not");
    close(fds[1]);
    own.link.turn();
    check(own.link.broken() && !own.link.stuck(), "it waits for a socket that nobody reads");
    own.link.push();
    check(!own.link.stuck(), "it waits again");
  }
  close(fds[0]);
}

// Both ends part at once or one after the other, and what was sent before is there.
template <typename Two, typename... How>
void parts_without_loss(How... how) {
  for (int turn = 0; turn < 20; ++turn) {
    Two pair(how...);
    const Bytes data(200'000, std::byte(turn));
    std::thread other([&] {
      Rank& own = *pair.ranks[1];
      for (int i = 0; i < turn * 50; ++i) own.link.turn();
      own.box->left = 1;
      tcp::part({&own.link}, {std::chrono::seconds(5), std::chrono::seconds(5)});
    });
    Rank& own = *pair.ranks[0];
    own.post(0, 1, data.data(), data.size(), {1, 1});
    own.box->left = 1;
    tcp::part({&own.link}, {std::chrono::seconds(5), std::chrono::seconds(5)});
    other.join();
    const Outbox* mirror = pair.ranks[1]->link.mirror();
    const Descriptor& d = pair.ranks[1]->link.mirror()->descriptors(size, 1)[0];
    check(d.turn == 1 && mirror->left == 1, "what was sent before the farewell is lost");
    check(std::memcmp(pair.ranks[1]->link.mirror()->slots(size) + d.offset, data.data(), data.size()) == 0,
          "other bytes");
  }
}

// Who does not wait for the other end goes when all has arrived there, and closes over what it has not read.
void parts_before_the_other_end() {
  for (int turn = 0; turn < 20; ++turn) {
    Striped pair(3, false, true);
    Rank &own = *pair.ranks[0], &other = *pair.ranks[1];
    const Bytes data = content(15, 200'000);
    own.post(0, 1, data.data(), data.size(), {1, 1});
    own.box->left = 1;
    std::thread late([&] {
      while (other.received(0) == nullptr) other.link.turn();
      for (uint64_t number = 0; number < 8; ++number) other.post(number, 0, data.data(), data.size(), {1, 1});
    });
    const auto begin = Clock::now();
    tcp::part({&own.link}, {std::chrono::seconds(20), std::chrono::seconds(20)}, false);
    check(Clock::now() - begin < std::chrono::seconds(10), "it waits for the other end");
    own.link.disconnect();
    for (int& fd : pair.fds[0]) close(std::exchange(fd, -1));
    late.join();
    for (const Deadline limit = Clock::now() + std::chrono::seconds(5); !other.link.broken() && Clock::now() < limit;)
      other.link.turn();
    const Descriptor& d = other.link.mirror()->descriptors(size, 1)[0];
    check(d.turn == 1 && other.link.mirror()->left == 1, "what was sent before it went is lost");
    check(std::memcmp(other.slot(d), data.data(), data.size()) == 0, "other bytes");
    check(other.link.broken() != nullptr, "it does not end");
  }
}

// Bytes arrive until then, one by one.
struct Trickling : tcp::Pipe {
  Trickling(int fd, Deadline last) : tcp::Pipe(fd), until(last) {}
  uint64_t in_flight() const override { return Clock::now() < until ? --left : left; }
  const Deadline until;
  mutable uint64_t left = 1 << 30;
};

// The other end never answers: who leaves stays while something arrives, whatever signals come, but not for ever.
void parts_when_nothing_arrives(Clock::duration flowing, const tcp::Farewell& farewell) {
  int fds[2];
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "no sockets");
  {
    const auto begin = Clock::now();
    Rank own(0, std::make_shared<Trickling>(fds[0], begin + flowing), false);
    std::signal(SIGUSR1, [](int) {});
    std::atomic<bool> over{false};
    std::thread nuisance([&, who = pthread_self()] {
      for (; !over; std::this_thread::sleep_for(std::chrono::milliseconds(5))) pthread_kill(who, SIGUSR1);
    });
    tcp::part({&own.link}, farewell);
    const auto took = Clock::now() - begin;
    over = true;
    nuisance.join();
    check(took >= std::min(flowing, farewell.longest), "it leaves while something arrives");
    check(took < std::chrono::seconds(15), "it stays though nothing arrives, or for too long");
  }
  for (int fd : fds) close(fd);
}

// ---- over several sockets ----

// A piece goes over each in turn, however long the parts are that make it up.
void deals_pieces_in_turn() {
  constexpr size_t piece = tcp::Stripes::piece;
  int near[3], away[3];
  std::vector<std::shared_ptr<tcp::Pipe>> pipes;
  for (int i = 0; i < 3; ++i) {
    int both[2];
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, both) == 0, "no sockets");
    near[i] = both[0];
    away[i] = both[1];
    pipes.push_back(std::make_shared<tcp::Pipe>(near[i]));
  }
  tcp::Stripes stripes(pipes);
  Bytes data = content(8, 5 * piece);
  size_t sent = 0;
  for (const size_t end : {piece + 10, 2 * piece, 3 * piece - 1, 4 * piece + 1, 5 * piece}) {
    const size_t middle = sent + (end - sent) / 3;
    std::array<iovec, 2> parts{{{data.data() + sent, middle - sent}, {data.data() + middle, end - middle}}};
    check(stripes.send(parts) == static_cast<ssize_t>(end - sent), "not all was taken");
    while (sent < end) {
      const size_t i = sent / piece % 3, bytes = std::min(end, (sent / piece + 1) * piece) - sent;
      Bytes found(bytes + 1);
      check(recv(away[i], found.data(), found.size(), MSG_DONTWAIT | MSG_WAITALL) == static_cast<ssize_t>(bytes),
            "socket ", i, " has more or less than ", bytes, " bytes from ", sent, " on");
      found.pop_back();
      check(holds(data.data() + sent, found), "other bytes from ", sent, " on");
      sent += bytes;
    }
  }
  for (int i = 0; i < 3; ++i) {
    close(near[i]);
    close(away[i]);
  }
}

// Who sleeps is woken by the socket whose turn it is, and not by what has come early on another one.
void waits_for_the_socket_whose_turn_it_is() {
  Striped pair(3, false, true);
  Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
  const auto ready = [](const Rank& rank) {
    std::vector<pollfd> polls;
    rank.link.watch(polls, POLLIN | POLLOUT);
    check(polls.size() == 3, "not all of them would show a failure");
    return poll(polls.data(), polls.size(), 0);
  };
  const Bytes early(10, std::byte{1});
  check(write(pair.fds[0][1], early.data(), early.size()) == 10, "it does not fit");
  pollfd there{pair.fds[1][1], POLLIN, 0};
  check(poll(&there, 1, 5000) == 1 && ready(to) == 0, "what came early wakes it");
  check(ready(from) == 0, "it waits to send, and has nothing");
  const Bytes data = content(9, 4 << 20);
  from.post(0, 1, data.data(), data.size(), {1, 1});
  check(from.link.stuck(), "the buffers of three sockets hold 4 MiB");
  pollfd due{pair.fds[1][0], POLLIN, 0};
  check(poll(&due, 1, 5000) == 1 && ready(to) == 1, "what is due does not wake it");
}

// Who sleeps until one socket has something is told when another thread has read so far that it is another one's turn.
void tells_whose_turn_it_is() {
  Striped pair(2);
  Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
  const Bytes data = content(12, 3 * tcp::Stripes::piece);
  from.post(0, 1, data.data(), data.size(), {1, 1});
  const auto due = [&] {
    std::vector<pollfd> polls;
    to.link.watch(polls, POLLIN);
    return polls[0].events == POLLIN ? 0 : 1;
  };
  int changes = 0;
  while (to.received(0) == nullptr) {
    const int before = due();
    const bool news = to.link.turn();
    check(before == due() || news, "nobody is told");
    changes += before != due();
    from.link.turn();
  }
  check(changes == 3, changes, " changes");
}

// Also where nobody is about to read or to write it; and first it is told what had come before.
void notices_the_death_of_any_socket() {
  for (int at = 0; at < 3; ++at) {
    Striped pair(3, false, true);
    Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
    const Bytes data = content(10, 20'000);
    from.post(0, 1, data.data(), data.size(), {1, 1});
    pollfd due{pair.fds[1][0], POLLIN, 0};
    check(poll(&due, 1, 5000) == 1, "nothing came");
    if (at != 0) pair.reset(0, at);
    while (at != 0 && to.received(0) == nullptr && !to.link.broken()) to.link.turn();
    check(at == 0 || to.received(0) != nullptr, "what had come is lost");
    if (at == 0) pair.reset(0, at);
    std::vector<pollfd> polls;
    to.link.watch(polls, POLLIN);
    check(to.link.broken() || poll(polls.data(), polls.size(), 5000) > 0, "who sleeps is not woken");
    const auto limit = Clock::now() + std::chrono::seconds(5);
    while (!to.link.broken() && Clock::now() < limit) to.link.turn();
    check(to.link.broken() && std::strcmp(to.link.broken(), "died") == 0, "socket ", at, " died, and the link holds");
    polls.clear();
    to.link.watch(polls, POLLIN | POLLOUT);
    check(polls.empty(), "it goes on waiting");
  }
}

// Who said something and then ended has said it, also to one that finds out as it sends.
void hears_the_last_of_who_takes_no_more() {
  const Bytes data = content(14, 20'000);
  for (const bool is_tcp : {false, true}) {
    Striped pair(1, false, is_tcp);
    Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
    from.post(0, 1, data.data(), data.size(), {1, 1});
    while (from.link.stuck()) from.link.push();
    shutdown(pair.fds[0][0], SHUT_RDWR);
    for (uint64_t number = 0; number < 4; ++number) to.post(number, 0, data.data(), data.size(), {1, 1});
    check(!to.link.broken(), "what has come is not looked at");
    while (to.link.turn()) {
    }
    check(to.received(0) != nullptr, "what was said last is lost");
    for (int turn = 0; turn < 3; ++turn) to.link.turn();
    check(to.link.broken() && !to.link.stuck(), "it does not end");
  }
}

// Whose other end has shut one of them in peace may have sent by another one before.
void hears_what_comes_after_an_end() {
  for (const bool is_shut : {false, true}) {
    Striped pair(3, false, true);
    Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
    if (is_shut) to.link.shut();
    shutdown(pair.fds[0][1], SHUT_WR);
    pollfd ended{pair.fds[1][1], POLLRDHUP, 0};
    check(poll(&ended, 1, 5000) == 1, "it has not ended");
    const auto limit = Clock::now() + std::chrono::milliseconds(5);  // some looks for failures
    while (Clock::now() < limit) to.link.turn();
    const Bytes data = content(13, 20'000);
    from.post(0, 1, data.data(), data.size(), {1, 1});
    while (to.received(0) == nullptr && !to.link.broken()) to.link.turn();
    check(!to.link.broken(), "it is taken for dead");
  }
}

// What one pipe has taken goes out also where the turn is another one's, whose socket is full: as with TLS.
void flushes_what_a_pipe_has_taken() {
  struct Late : tcp::Pipe {
    using Pipe::Pipe;
    ssize_t send(std::span<iovec> parts) override {
      ssize_t all = 0;
      for (const iovec& part : parts) {
        const auto* data = static_cast<const std::byte*>(part.iov_base);
        taken.insert(taken.end(), data, data + part.iov_len);
        all += static_cast<ssize_t>(part.iov_len);
      }
      return all;
    }
    bool flush() override {
      if (is_full) return false;
      check(write(socket(), taken.data(), taken.size()) == static_cast<ssize_t>(taken.size()), "it does not fit");
      taken.clear();
      return true;
    }
    bool is_full = true;
    Bytes taken;
  };
  struct Full : tcp::Pipe {
    using Pipe::Pipe;
    ssize_t send(std::span<iovec>) override {
      errno = EAGAIN;
      return -1;
    }
  };
  int one[2], other[2];
  check(socketpair(AF_UNIX, SOCK_STREAM, 0, one) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, other) == 0, "sockets");
  const int much = 1 << 20;
  setsockopt(one[0], SOL_SOCKET, SO_SNDBUF, &much, sizeof much);
  const auto late = std::make_shared<Late>(one[0]);
  tcp::Stripes stripes({late, std::make_shared<Full>(other[0])});
  Bytes data = content(11, tcp::Stripes::piece + 1);
  const auto send = [&](size_t from) {
    iovec part{data.data() + from, data.size() - from};
    return stripes.send({&part, 1});
  };
  const auto waits_for = [&] {
    std::vector<pollfd> polls;
    stripes.watch(polls, POLLOUT);
    return std::pair{(polls[0].events & POLLOUT) != 0, (polls[1].events & POLLOUT) != 0};
  };
  check(send(0) == tcp::Stripes::piece && send(tcp::Stripes::piece) == -1, "more was taken");
  check(waits_for() == std::pair{true, true}, "it does not wait for both");
  late->is_full = false;
  check(send(tcp::Stripes::piece) == -1 && late->taken.empty(), "the other end waits for ever");
  check(waits_for() == std::pair{false, true}, "it waits for one that can be written");
  for (int fd : {one[0], one[1], other[0], other[1]}) close(fd);
}

// Who hears what cannot be true hears nothing more, and still tells what came of that; of who died nobody is told.
void tells_who_sent_nonsense_what_came_of_it() {
  Pair pair;
  Rank &from = *pair.ranks[0], &to = *pair.ranks[1];
  const Frame nonsense{};
  check(write(pair.fds[1], &nonsense, sizeof nonsense) == sizeof nonsense, "it does not fit");
  from.link.turn();
  check(from.link.broken(), "nonsense was taken");
  std::strcpy(from.box->findings[0].why.text, "because");
  from.box->findings[0].there = 1;
  Outbox::Stand stand{};
  stand.stage = Outbox::Stand::settling;
  stand.lost[1] = true;
  from.box->stands[0].write(stand);
  from.box->affairs = 1;
  from.link.push();
  to.link.turn();
  Outbox::Stand heard{};
  check(to.link.mirror()->stands[0].read(heard) && heard.lost[1], "it was not told that it is taken for lost");
  check(std::strcmp(to.link.mirror()->findings[0].why.text, "because") == 0, "it was not told why");
  check(!to.link.broken(), "the other end broke, too");
  const auto heard_then = to.link.heard();
  from.link.beat(Clock::now(), Clock::duration::zero());
  to.link.turn();
  check(to.link.heard() == heard_then, "it says that it lives, and hears nothing");
  close(std::exchange(pair.fds[1], -1));
  from.box->affairs = 2;
  from.box->left = 1;
  for (int i = 0; i < 2; ++i) from.link.push();
  check(!from.link.stuck(), "it waits to send to nobody");
}

}  // namespace

int main() {
  carries_messages_in_order(Pair(), 2000);
  for (const size_t count : {2, 3, 5}) carries_messages_in_order(Striped(count, count == 3), 600);
  deals_pieces_in_turn();
  waits_for_the_socket_whose_turn_it_is();
  tells_whose_turn_it_is();
  notices_the_death_of_any_socket();
  hears_the_last_of_who_takes_no_more();
  hears_what_comes_after_an_end();
  flushes_what_a_pipe_has_taken();
  lands_what_is_expected(Pair(), 256);
  lands_what_is_expected(Striped(3, true), 64);
  lands_nothing_else();
  lands_nothing_for_what_is_over();
  lands_nothing_after_a_fence<Pair>();
  lands_nothing_after_a_fence<Striped>(3);
  does_not_stand_in_its_own_way();
  sends_nothing_of_the_callers_after_a_fence(Pair());
  sends_nothing_of_the_callers_after_a_fence(Striped(2));
  survives_nonsense();
  breaks_where_no_rank_would_say_that();
  tells_who_sent_nonsense_what_came_of_it();
  tells_what_a_rank_is_in();
  counts_the_checksum_that_others_count();
  notices_what_was_changed_on_its_way();
  waits_for_no_socket_of_a_broken_link();
  parts_without_loss<Pair>();
  parts_without_loss<Striped>(3, false, true);
  parts_before_the_other_end();
  using std::chrono::milliseconds, std::chrono::seconds;
  parts_when_nothing_arrives(milliseconds(700), {milliseconds(300), seconds(30)});
  parts_when_nothing_arrives(seconds(30), {milliseconds(300), milliseconds(700)});
  return report();
}
