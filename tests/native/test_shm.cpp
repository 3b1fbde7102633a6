// Shared memory, with threads as ranks: every message whole and in order, programs of the engine, and nobody slept in.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>

#include "calls/call.h"
#include "engine_cases.h"
#include "shm_world.h"

namespace {

using namespace hocket;
using namespace hocket::testing;

void expect_no_failure(const std::vector<std::optional<Failure>>& failures, const char* what) {
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    const auto& f = failures[rank];
    check(!f, what, ": rank ", rank, " failed, kind ", f ? f->kind : -1, " peer ", f ? f->peer : -1, " ",
          f ? f->text : "");
  }
}

// ---- messages -------------------------------------------------------------------------------------------------------

// What rank `from` sends as its message `number`: to whom, how much, and whether as a view.
struct Draw {
  Draw(int size, int from, uint64_t number) {
    const uint64_t x = mix(kSeed, from, number);
    while (peers.empty()) {
      for (int peer = 0; peer < size; ++peer) {
        if (peer != from && (mix(x, peer, peers_drawn) % 2)) peers.push_back(peer);
      }
      ++peers_drawn;
    }
    const std::array<uint64_t, 4> sizes{mix(x, 1) % 33, 31 + mix(x, 2) % 4, mix(x, 3) % (kSlots / 2 + 1), kSlots / 2};
    bytes = sizes[mix(x, 4) % 10 % 4];
    view = bytes > 64 && mix(x, 5) % 4 == 0;
  }
  std::vector<int32_t> peers;
  uint64_t peers_drawn = 0, bytes;
  bool view;
};

// A rank that sends what it can and receives what there is, in whatever order.
class Talker {
 public:
  Talker(Endpoint& memory, int size, uint64_t messages)
      : memory_(memory), size_(size), messages_(messages), next_(size), arena_(kArena / (kSlots / 2)) {}

  void run() {
    Wait wait(memory_, watchdog());
    for (skip(); !finished();) {
      bool moved = sent_ < messages_ && send();
      int waited_for = -1;
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == memory_.rank() || next_[peer] == messages_) continue;
        receive(peer) ? moved = true : waited_for = peer;
      }
      moved ? wait.progressed() : wait.idle(waited_for);
    }
    for (auto& views : arena_) {
      while (!free(views)) wait.idle(-1);
    }
  }

 private:
  using Views = std::vector<std::pair<int, uint64_t>>;  // by whom, and as which message, a view must have been read

  bool finished() const { return sent_ == messages_ && std::ranges::count(next_, messages_) == size_ - 1; }

  bool free(const Views& views) {
    return std::ranges::all_of(views, [&](const auto& view) { return memory_.consumed(view.first, view.second); });
  }

  bool send() {
    const int rank = memory_.rank();
    const Draw draw(size_, rank, sent_);
    const Bytes data = content(rank, sent_, draw.bytes);
    const Label label{static_cast<uint64_t>(rank), static_cast<uint32_t>(sent_)};
    const bool done = draw.view ? send_view(draw, data, label) : try_send(memory_, draw.peers, data, label);
    sent_ += done;
    return done;
  }

  bool send_view(const Draw& draw, const Bytes& data, Label label) {
    const size_t place = sent_ % arena_.size();
    if (!free(arena_[place])) return false;
    std::byte* at = memory_.arena() + place * (kSlots / 2);
    std::ranges::copy(data, at);
    check(memory_.reachable(draw.peers, at, draw.bytes) && !memory_.reachable(draw.peers, data.data(), draw.bytes),
          "what is reachable?");
    if (!memory_.post_view(draw.peers, at, draw.bytes, label)) return false;
    arena_[place].clear();
    for (int peer : draw.peers) arena_[place].emplace_back(peer, memory_.posted(peer));
    return true;
  }

  bool receive(int peer) {
    Message m;
    if (!memory_.peek(peer, m)) return false;
    const uint64_t number = next_[peer];
    const Bytes expected = content(peer, number, Draw(size_, peer, number).bytes);
    check(m.label == Label{static_cast<uint64_t>(peer), static_cast<uint32_t>(number)} &&
              std::ranges::equal(Span8(m.data, m.bytes), expected),
          "message ", number, " of rank ", peer, " is another one; it has ", m.bytes, " bytes");
    memory_.release(peer);
    ++next_[peer];
    skip();
    return true;
  }

  // To the next message of each peer that is for this rank.
  void skip() {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == memory_.rank()) continue;
      const auto is_ours = [&] { return std::ranges::count(Draw(size_, peer, next_[peer]).peers, memory_.rank()) > 0; };
      while (next_[peer] < messages_ && !is_ours()) ++next_[peer];
    }
  }

  Endpoint& memory_;
  const int size_;
  const uint64_t messages_;
  uint64_t sent_ = 0;
  std::vector<uint64_t> next_;
  std::vector<Views> arena_;
};

void test_messages() {
  for (int n = 2; n <= 4; ++n) {
    Host host(n);
    expect_no_failure(host.play([&](int, Sleeper& memory) { Talker(memory, n, 20000).run(); }), "messages");
  }
}

// Wherever the ring of slots stands, the greatest message finds room once all others are read.
void test_wrapping() {
  for (const uint64_t slots : {uint64_t{64}, uint64_t{192}, kSlots}) {
    Host host(2, slots);
    const std::vector<int32_t> to_1{1};
    uint32_t place = 0;
    for (uint64_t bytes = 1; bytes <= slots / 2; bytes += 1 + slots / 100) {
      for (const uint64_t size : {bytes, host[0].capacity()}) {
        const Bytes data = content(0, ++place, size);
        if (!check(try_send(host[0], to_1, data, {1, place}), "no room for ", size, " bytes in ", slots)) return;
        receive(host[1], 0, data, {1, place});
      }
    }
  }
}

// Where nothing is in flight: brief messages begin at the front again, and others go on where the last of them ended.
void test_front() {
  Host host(2);
  const std::vector<int32_t> to_1{1};
  uint32_t place = 0;
  std::byte* const front = host[0].reserve(to_1, 64);
  const auto sent_at = [&](uint64_t bytes) {
    const std::byte* const at = host[0].reserve(to_1, bytes);
    const Bytes data = content(0, ++place, bytes);
    check(try_send(host[0], to_1, data, {1, place}), "no room for ", bytes, " bytes");
    receive(host[1], 0, data, {1, place});
    return static_cast<uint64_t>(at - front);
  };
  constexpr uint64_t lengthy = kSlots / 8, little = 64;
  check(sent_at(lengthy) == 0 && sent_at(lengthy) == lengthy, "long messages do not go around");
  for (uint64_t at = 0; at < 3 * kSlots / 4; at += little) {
    check(sent_at(little) == at % (kSlots / 4), "a brief message at ", at, " is not in the front");
  }
  for (uint64_t at = 2 * lengthy; at < 3 * kSlots; at += lengthy) {
    check(sent_at(lengthy) == at % kSlots, "a long message at ", at, " is not behind the one before");
    if (at % 3 == 0) sent_at(little);
  }
}

// What is lent gets the slots of what was lent before, however long it is, once that has been taken back.
void test_lent_again() {
  constexpr uint64_t slots = 1 << 20, long_one = slots / 8;
  Host host(2, slots);
  const std::vector<int32_t> to_1{1};
  Message message;
  const auto lent_at = [&](uint64_t bytes) {
    const std::byte* const at = host[0].lend(to_1, bytes);
    host[0].post(to_1, bytes, {1, 1});
    check(host[1].peek(0, message) && message.lent, "no loan");
    host[1].release(0);
    return at;
  };
  const std::byte* const at = lent_at(long_one);
  check(lent_at(long_one) == at + long_one, "what has not been taken back is in the way");
  host[0].take_back();
  host[0].take_back();
  for (const uint64_t bytes : {long_one, uint64_t{64}, long_one, long_one / 2, long_one}) {
    check(lent_at(bytes) == at, "a loan of ", bytes, " bytes lies elsewhere");
    host[0].take_back();
  }
}

// What is lent goes around in half of the ring, if sixteen such would fill all of it: behind the front, and the first
// eight leave no room for a ninth. What is longer goes around in all of it.
void test_lent_around() {
  constexpr uint64_t slots = 1 << 20, piece = slots / 16, begin = 64 << 10;
  {
    Host host(2, slots);
    const std::vector<int32_t> to_1{1};
    const std::byte* const front = host[0].reserve(to_1, 64);
    for (uint64_t at = begin; at + 2 * piece <= slots; at += 2 * piece) {
      check(host[0].lend(to_1, 2 * piece) == front + at, "a long loan is not at ", at);
      host[0].post(to_1, 2 * piece, {1, 1});
    }
  }
  for (const uint64_t last : {piece, piece - 64}) {
    Host host(2, slots);
    const std::vector<int32_t> to_1{1};
    Message message;
    const std::byte* const front = host[0].reserve(to_1, 64);
    for (uint64_t i = 0; i < 40; ++i) {
      if (i >= 8) {
        check(host[0].lend(to_1, piece) == nullptr && host[0].laggard() == -1, "room for loan ", i);
        host[0].take_back();
      }
      const uint64_t bytes = i % 8 == 7 ? last : piece;
      const std::byte* const at = host[0].lend(to_1, bytes);
      const uint64_t wanted = begin + i % 8 * piece;
      if (!check(at == front + wanted, "loan ", i, " lies at ", at - front, ", not at ", wanted)) return;
      host[0].post(to_1, bytes, {1, 1});
      check(host[1].peek(0, message) && message.lent && message.bytes == bytes, "no loan");
      host[1].release(0);
    }
  }
}

// ---- slots that pass ------------------------------------------------------------------------------------------------

std::byte* put(Sleeper& from, const Bytes& data, Label label) {
  const int32_t to[] = {1 - from.rank()};
  std::byte* const slot = from.reserve(to, data.size());
  if (slot == nullptr) return nullptr;
  std::ranges::copy(data, slot);
  from.post(to, data.size(), label);
  return slot;
}

const std::byte* lies_at(Sleeper& reader) {
  Message message;
  return reader.peek(1 - reader.rank(), message) ? message.data : nullptr;
}

void begin(Host& host, bool pass) {
  const uint64_t number = host[0].begin(pass);
  check(number == host[1].begin(pass), "the ranks count differently");
}

// What a rank has read it writes next, whatever calls that do not pass come between, and of whatever length.
void test_passing() {
  for (const uint64_t bytes : {uint64_t{64}, kSlots / 4, kSlots / 2}) {
    Host host(2);
    const std::byte* were[2] = {};
    for (uint32_t call = 0; call < 9; ++call) {
      if (call % 3 == 2) {
        begin(host, false);
        const Bytes data = content(0, call, 100);
        const std::byte* const at = put(host[0], data, {0, call});
        check(at != nullptr && at != were[0] && at != were[1], "a slot that does not pass is one that does");
        receive(host[1], 0, data, {0, call});
      }
      begin(host, true);
      const std::byte* are[2];
      for (int rank : {0, 1}) are[rank] = put(host[rank], content(rank, call, bytes), {1, call});
      for (int rank : {0, 1}) {
        check(lies_at(host[rank]) == are[1 - rank], "a message lies elsewhere");
        receive(host[rank], 1 - rank, content(1 - rank, call, bytes), {1, call});
      }
      check(call == 0 || (are[0] == were[1] && are[1] == were[0]), "call ", call, " of ", bytes,
            " bytes writes to what it has not read");
      were[0] = are[0], were[1] = are[1];
    }
  }
}

// Who only sends has two rings in turn, and goes around each.
void test_passing_one_way() {
  constexpr uint64_t bytes = kSlots / 4;
  Host host(2);
  std::vector<const std::byte*> places;
  for (uint32_t call = 0; call < 8; ++call) {
    begin(host, true);
    const Bytes data = content(0, call, bytes);
    places.push_back(put(host[0], data, {0, call}));
    receive(host[1], 0, data, {0, call});
  }
  std::ranges::sort(places);
  check(std::ranges::adjacent_find(places) == places.end(), "a place was written again before all others were");
}

// What lies unread in one ring takes no room in another.
void test_passing_beside_what_is_unread() {
  Host host(2);
  std::vector<Bytes> sent;
  const auto fill = [&] {
    for (;;) {
      const auto number = static_cast<uint32_t>(sent.size());
      Bytes data = content(0, number, 1 + mix(kSeed, number) % (kSlots / 3));
      data.resize(std::max<size_t>(data.size(), 33));
      if (put(host[0], data, {0, number}) == nullptr) return;
      sent.push_back(data);
    }
  };
  fill();
  const size_t in_one = sent.size();
  begin(host, true);
  fill();
  check(in_one > 0 && sent.size() > in_one, "there are ", in_one, " messages in one ring, ", sent.size(), " in both");
  for (uint32_t number = 0; number < sent.size(); ++number) {
    receive(host[1], 0, sent[number], {0, number});
    const Bytes more = content(0, number, 33 + number);
    if (put(host[0], more, {0, static_cast<uint32_t>(sent.size())}) != nullptr) sent.push_back(more);
    if (sent.size() > 200) break;
  }
}

// Only two ranks pass slots, and only if they say so.
void test_passing_of_more() {
  Host three(3), two(2);
  for (int i = 0; i < 4; ++i) {
    for (int rank = 0; rank < 3; ++rank) check(three[rank].begin(true) == 0, "three ranks pass slots");
    check(two[0].begin(false) == 0 && two[1].begin(false) == 0, "what does not pass is counted");
  }
}

// A message's memory is free once all have read it and all before it; a channel holds 64 messages.
void test_room() {
  Host host(3);
  const std::vector<int32_t> both{1, 2}, one{1};
  const Bytes half = content(0, 1, kSlots / 2), little = content(0, 2, 8);
  check(try_send(host[0], both, half, {1, 1}) && try_send(host[0], one, half, {1, 2}), "no room for two halves");
  receive(host[1], 0, half, {1, 1});
  receive(host[1], 0, half, {1, 2});
  check(host[0].reserve(one, kSlots / 2) == nullptr, "took memory that rank 2 has not read");
  receive(host[2], 0, half, {1, 1});
  check(host[0].reserve(one, kSlots / 2) != nullptr, "did not see that all is read");

  for (uint32_t i = 0; i < 64; ++i) check(try_send(host[0], one, little, {1, i}), "no room for message ", i);
  check(!try_send(host[0], one, little, {1, 64}), "room for message 64");
  check(!try_send(host[0], both, little, {1, 64}), "room for message 64 to both");
  check(!host[0].post_view(both, host[0].arena(), 100, {1, 64}), "room for view 64 to both");
  receive(host[1], 0, little, {1, 0});
  check(try_send(host[0], both, little, {1, 64}), "no room after one was read");
}

// Who has not read the oldest message that is in the way, and nobody else: it may be none of those that are sent to.
void test_laggards() {
  Host host(4);
  const std::vector<int32_t> all{1, 2, 3}, one{1}, two{2}, three{3};
  const Bytes half = content(0, 1, kSlots / 2), little = content(0, 2, 8);
  const auto waits_for = [&](const std::vector<int32_t>& peers, int expected, const char* what) {
    check(host[0].reserve(peers, kSlots / 2) == nullptr && host[0].laggard() == expected, what, ": waits for rank ",
          host[0].laggard(), ", not for ", expected);
  };
  try_send(host[0], all, half, {1, 1});
  try_send(host[0], one, half, {1, 2});
  waits_for(one, 1, "nobody has read");
  receive(host[1], 0, half, {1, 1});
  waits_for(one, 2, "the first of them has");
  receive(host[1], 0, half, {1, 2});
  waits_for(one, 2, "the first of them has read all");
  receive(host[2], 0, half, {1, 1});
  waits_for(two, 3, "two of them have");
  receive(host[3], 0, half, {1, 1});
  check(host[0].reserve(one, kSlots / 2) != nullptr, "no room when all have read");

  try_send(host[0], three, half, {1, 3});
  try_send(host[0], one, half, {1, 4});
  waits_for(two, 3, "the older half is rank 3's");
  receive(host[3], 0, half, {1, 3});
  try_send(host[0], two, half, {1, 5});
  waits_for(three, 1, "the older half is rank 1's");

  for (uint32_t i = 0; i < 64; ++i) try_send(host[0], three, little, {2, i});
  check(!try_send(host[0], all, little, {2, 64}) && host[0].laggard() == 3, "the full channel is rank 3's, not rank ",
        host[0].laggard(), "'s");
  check(!host[0].post_view(all, host[0].arena(), 100, {2, 64}) && host[0].laggard() == 3, "so it is for a view");
}

// What is lent is in the way until it is read, and then until it is taken back, which is nobody else's to do.
void test_laggard_of_what_is_lent() {
  Host host(3);
  const std::vector<int32_t> one{1}, two{2};
  const uint64_t piece = kSlots / 8;
  for (uint32_t i = 0; i < 8; ++i) {
    check(host[0].lend(two, piece) != nullptr, "no room for loan ", i);
    host[0].post(two, piece, {1, i});
  }
  const auto waits_for = [&](int expected) {
    check(host[0].reserve(one, piece) == nullptr && host[0].laggard() == expected, "beside loans waits for rank ",
          host[0].laggard(), ", not for ", expected);
  };
  waits_for(2);
  Message message;
  for (int i = 0; i < 8; ++i) {
    check(host[2].peek(0, message) && message.lent, "no loan");
    host[2].release(0);
  }
  waits_for(-1);
  host[0].take_back();
  check(host[0].reserve(one, piece) != nullptr, "no room when it has been taken back");
}

// ---- programs -------------------------------------------------------------------------------------------------------

constexpr unsigned nobody = 0, all = ~0u;

// Runs a case; the buffers of the ranks in `views` lie in the arena, those in `stages` lend and offer nothing, and
// those in `offers` offer all they can: so many messages they did. All believe that the others are in the process
// `pid`.
uint64_t test_case(const Case& c, uint64_t slots, unsigned views, unsigned stages = nobody, unsigned offers = nobody,
                   int32_t pid = 0, const std::function<void(std::vector<Program>&)>& prepare = {}) {
  std::vector<Program> programs = programs_of(c);
  if (prepare) prepare(programs);
  std::vector<Memory> ranks = draw(c);
  Host host(c.plan.size, slots);
  for (int rank = 0; rank < c.plan.size; ++rank) programs[rank].unheard = programs[rank].untold = host.peers_of(rank);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    Memory& m = ranks[rank];
    std::span<uint64_t> inp(m.inp), out(m.out);
    memory.sign(1, "here", std::vector<int32_t>(host.size(), pid));
    if (stages >> rank & 1) memory.stage_all();
    if (offers >> rank & 1) memory.offer_all();
    if (views >> rank & 1) {
      auto* arena = reinterpret_cast<uint64_t*>(memory.arena());
      out = {arena, m.out.size()};
      inp = {arena + m.out.size(), m.inp.size()};
      std::ranges::copy(m.inp, inp.begin());
      std::ranges::copy(m.out, out.begin());
    }
    auto* to = reinterpret_cast<std::byte*>(out.data());
    const auto* from = c.in_place ? to : reinterpret_cast<const std::byte*>(inp.data());
    for (int i = 0; i < c.calls; ++i) {
      make({programs[rank], 42, from, to}, memory, memory, watchdog());
      for (uint64_t& word : c.in_place ? out : inp) ++word;
    }
    std::ranges::copy(Words(inp.begin(), inp.end()), m.inp.begin());
    std::ranges::copy(Words(out.begin(), out.end()), m.out.begin());
    if (!programs[rank].scratch.empty()) std::memcpy(m.tmp.data(), programs[rank].scratch.data(), 8 * m.tmp.size());
  });
  expect_no_failure(failures, c.plan.name.c_str());
  const std::vector<Memory> right = expected(c);
  for (int rank = 0; rank < c.plan.size; ++rank) {
    check(ranks[rank] == right[rank], c, "views ", views, " stages ", stages, " slots ", slots, ": rank ", rank,
          " has the wrong result");
  }
  uint64_t offered = 0;
  for (int rank = 0; rank < c.plan.size; ++rank) offered += host[rank].offered;
  return offered;
}

void test_programs() {
  uint64_t seed = kSeed;
  for (const auto make : kPlans) {
    for (int n = 2; n <= 4; ++n) {
      for (const uint64_t segments : {1, 3, 17}) {
        for (int variant = 0; variant < 16; ++variant) {
          Case c{make(n), draw_sizes(make(n).chunks, ++seed), variant % 2 == 1, segments, {.seed = seed}};
          c.calls = 10;
          test_case(c, kSlots, variant / 2 % 2 == 1 ? all : nobody);
        }
      }
    }
  }
}

void test_anything() {
  for (uint64_t seed = kSeed; seed < kSeed + 300; ++seed) {
    const uint64_t segments = std::array<uint64_t, 3>{1, 3, 17}[mix(seed, 1) % 3];
    Case c{anything(2 + mix(seed, 2) % 3, seed, segments == 1), {}, false, segments, {.seed = seed}};
    c.sizes = draw_sizes(c.plan.chunks, seed);
    c.calls = 4;
    test_case(c, 2 * (most_messages(c.plan).to_all + 1) * (segment_of(c.sizes, segments) + 64),
              mix(seed, 3) % 2 ? all : nobody);
  }
}

// A ring that holds no more than eight messages, which is what it takes to lend, and one of which half does: whatever
// each of the two does, and wherever the ring ends.
void test_loans() {
  uint64_t seed = kSeed;
  for (const auto make : {two_shot, ring}) {
    for (unsigned stages = 0; stages < 4; ++stages) {
      for (unsigned views = 0; views < 4; ++views) {
        for (int variant = 0; variant < 6; ++variant) {
          ++seed;
          const uint64_t longest = 1 + mix(seed, 1) % 300, segments = 1 + mix(seed, 2) % 40;
          Case c{make(2), {longest, mix(seed, 3) % (longest + 1)}, variant % 2 == 1, segments, {.seed = seed}};
          if (variant % 3 == 0) std::swap(c.sizes[0], c.sizes[1]);
          c.calls = 10;
          for (const uint64_t messages : {8, 16}) {
            test_case(c, messages * segment_of(c.sizes, segments), views, stages);
          }
        }
      }
    }
  }
}

// What is long and only copied the kernel copies, from the second call on, since in the first one it was found that it
// does: not out of a process that has its rank's number, but is another one.
void test_offers() {
  const auto self = static_cast<int32_t>(getpid()), parent = static_cast<int32_t>(getppid());
  for (const int32_t pid : {self, parent}) {
    for (const bool in_place : {false, true}) {
      for (const unsigned offers : {all, 2u}) {
        for (const auto make : {ring, tree, two_shot}) {
          Case c{make(3), {}, in_place, 3, {.seed = kSeed}};
          for (int chunk = 0; chunk < c.plan.chunks; ++chunk) c.sizes.push_back(3 * (least_tried + 8 * chunk) / 8);
          c.calls = 4;
          const uint64_t offered = test_case(c, 1 << 20, nobody, nobody, offers, pid);
          if (offers != all && c.plan.name == "tree") continue;  // of which not all send
          check((offered > 0) == (pid == self), c, offered, " offered, in ", pid == self ? "this" : "another process");
        }
      }
    }
  }
}

// All do as rank 0 has found best, from the end of the call on that it entered with that; whatever they found.
void test_all_do_as_the_first() {
  const auto find = [](Sending& sending, bool offers) {
    for (unsigned i = 0; i < 1000 || sending.is_busy(); ++i) {
      const uint32_t said = sending.say(1 + Sending::offered, true);
      sending.tell(std::chrono::nanoseconds((sending.way() == Sending::offered) == offers ? 1000 : 2000), false);
      sending.follow(said);
    }
    sending.follow(1 + Sending::staged);
  };
  for (const bool offers : {false, true}) {
    Case c{.plan = two_shot(3), .sizes = Sizes(3, least_tried / 8), .weather = {.seed = kSeed}, .calls = 6};
    const uint64_t offered =
        test_case(c, 1 << 20, nobody, nobody, nobody, static_cast<int32_t>(getpid()), [&](auto& programs) {
          for (int rank = 0; rank < 3; ++rank) find(programs[rank].sending, (rank == 0) == offers);
        });
    const uint64_t messages = 3 * 5;  // one of each rank to both others, once the first call is over
    check(offered == (offers ? messages : 0), c, offered, " offered, where the first one found that ", offers);
  }
}

// ---- sleep ----------------------------------------------------------------------------------------------------------

// Both ranks sleep until they are rung, for an hour if need be. Rank 1 rings when rank 0 sleeps, or about when it
// begins to.
void test_wakes() {
  Host host(2);
  constexpr uint32_t rounds = 3000;
  expect_no_failure(host.play([&](int rank, Sleeper& memory) {
    memory.deep = true;
    const std::vector<int32_t> other{1 - rank};
    const Bytes little = content(1, 1, 8);
    for (uint32_t i = 0; i < rounds; ++i) {
      if (rank == 0) {
        receive(memory, 1, little, {1, i});
        send(memory, other, little, {2, i});
        continue;
      }
      const auto enough = Clock::now() + std::chrono::microseconds(mix(kSeed, i) % 400);
      while (i % 2 == 0 ? !host[0].asleep : Clock::now() < enough) std::this_thread::yield();
      send(memory, other, little, {1, i});
      receive(memory, 0, little, {2, i});
    }
  }),
                    "wakes");
  check(host[0].sleeps >= rounds / 2, "only ", host[0].sleeps.load(), " sleeps");
}

// A sender that waits for room is woken by the reader.
void test_wakes_for_room() {
  Host host(2);
  expect_no_failure(host.play([&](int rank, Sleeper& memory) {
    memory.deep = true;
    const std::vector<int32_t> other{1};
    for (uint32_t i = 0; i < 1000; ++i) {
      const Bytes half = content(0, i, kSlots / 2);
      if (rank == 0) {
        send(memory, other, half, {1, i});
        continue;
      }
      while (i % 10 == 0 && i < 990 && !host[0].asleep) std::this_thread::yield();
      receive(memory, 0, half, {1, i});
    }
  }),
                    "wakes for room");
}

// Who waits for a rank to enter a call is woken when it does, if that rings.
void test_wakes_for_calls() {
  Host host(2);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.deep = true;
    for (uint64_t i = 1; i <= 200; ++i) {
      while (rank == 1 && i % 5 == 0 && !host[0].asleep) std::this_thread::yield();
      if (rank == 0 && i % 2 == 0) check(memory.next(1, i, watchdog()) == i, "another call is next");
      memory.enter(i);
      memory.notify(1 - rank);
      memory.meet(host.peers_of(rank), watchdog());
    }
  });
  expect_no_failure(failures, "wakes for calls");
}

// The core that this thread is on, for it to be bound to for a while.
struct Core {
  Core() {
    CPU_ZERO(&one);
    CPU_SET(number, &one);
    sched_getaffinity(0, sizeof all, &all);
  }
  void bind() const { sched_setaffinity(0, sizeof one, &one); }
  void let_go() const { sched_setaffinity(0, sizeof all, &all); }
  bool here() const { return sched_getcpu() == number; }

  const int number = sched_getcpu();
  cpu_set_t one{}, all{};
};

// Ranks 0 and 1 share a core, rank 2 was seen on none. To give the core away brings nobody forward once both are in the
// call, or wait to be told of it.
void test_who_waits_here() {
  const Core core;
  const int cores = CPU_COUNT(&core.all);
  for (const int crowd : {cores, cores + 1}) {
    const Links links(3);
    std::vector<std::unique_ptr<Sleeper>> ranks;
    for (int rank = 0; rank < 3; ++rank) ranks.push_back(links.open(rank, {}, crowd));
    Sleeper &own = *ranks[0], &beside = *ranks[1];
    core.bind();
    own.shares_core(-1);
    beside.shares_core(-1);
    core.let_go();
    const bool crowded = crowd > cores;
    own.brief = beside.brief = true;
    check(!own.all_wait_here(2), "between calls");
    own.enter(1);
    check(!own.all_wait_here(2), "the other one has not entered");
    beside.enter(1);
    check(own.all_wait_here(2) == crowded && beside.all_wait_here(2) == crowded, "both have entered: crowd ", crowd);
    check(!own.all_wait_here(1) && !own.all_wait_here(-1), "for one on this core, or for any");
    own.brief = false;
    check(!own.all_wait_here(2), "where there is much to do");
    own.brief = true;
    ranks[2]->enter(1);
    own.meet(std::array{1, 2}, watchdog());
    check(!own.all_wait_here(2) && beside.all_wait_here(2) == crowded, "what has ended is waited in no more");
    beside.meet(std::array{0, 2}, watchdog());
    own.enter(2);
    std::thread told([&] { check(beside.next(2, 2, watchdog()) == 2, "another call is next"); });
    while (crowded && !own.all_wait_here(2)) std::this_thread::yield();
    ranks[2]->enter(2);
    told.join();
  }
}

// Of two ranks on one core, though each might have its own, the last one goes to another; however often it is put back.
void test_steps_aside() {
  const Core core;
  if (CPU_COUNT(&core.all) < 2) return;
  const Links links(2);
  const auto own = links.open(0, {}, 2), beside = links.open(1, {}, 2);
  for (int time = 0; time < 3; ++time) {
    core.bind();
    own->shares_core(1);
    core.let_go();
    while (core.here()) beside->shares_core(0);
    cpu_set_t after;
    sched_getaffinity(0, sizeof after, &after);
    check(CPU_EQUAL(&after, &core.all), "it may not run where it might before");
  }
}

// It may move again soon, but not often.
void test_stay() {
  using std::chrono::microseconds;
  Stay stay(Stay::shortest), crowded(Stay::longest);
  Clock::duration now{};
  check(stay.ends(now) && crowded.ends(now), "the first time");
  const auto next = [&now](Stay& one) {
    const Clock::duration begin = now;
    while (!one.ends(now)) now += microseconds(50);
    return now - begin;
  };
  for (const int length : {100, 200, 400, 800, 1600, 3200, 4000, 4000})
    check(next(stay) == microseconds(length), "after ", length, " us");
  now += Stay::lasting;
  check(stay.ends(now) && next(stay) == Stay::shortest, "it had stayed");
  check(crowded.ends(now) && next(crowded) == Stay::longest && next(crowded) == Stay::longest, "in a crowd");
}

// Whatever a rank waits for, an error of another wakes it.
void test_wakes_for_the_end() {
  Host host(3);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.deep = true;
    if (rank > 0) return receive(memory, 3 - rank, {}, {});
    while (!host[1].asleep || !host[2].asleep) std::this_thread::yield();
    memory.end({Failure::custom_op, 0, "why"});
  });
  for (int rank = 1; rank < 3; ++rank) check(failures[rank] && failures[rank]->text == "why", "slept through the end");
}

}  // namespace

int main() {
  alarm(300);  // who sleeps for ever ends here
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(kSeed));
  test_messages();
  test_wrapping();
  test_front();
  test_lent_again();
  test_lent_around();
  test_passing();
  test_passing_one_way();
  test_passing_beside_what_is_unread();
  test_passing_of_more();
  test_room();
  test_laggards();
  test_laggard_of_what_is_lent();
  test_programs();
  test_anything();
  test_loans();
  test_offers();
  test_all_do_as_the_first();
  test_wakes();
  test_wakes_for_room();
  test_wakes_for_calls();
  test_who_waits_here();
  test_steps_aside();
  test_stay();
  test_wakes_for_the_end();
  return report();
}
