// The mailbox: who gets which message, in which order, and whether all of it arrives.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "engine/past_caches.h"
#include "p2p_world.h"

namespace {

// -- Matching ---------------------------------------------------------------------------------------------------------

void equal_tags_in_order() {
  World world(2);
  world.run([](int rank, Mailbox& me) {
    std::vector<Bytes> data(300);
    std::vector<Ticket> tickets;
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = rank == 0 ? content(i * i % 5000, i) : Bytes(i * i % 5000);
      tickets.push_back(rank == 0 ? send(me, 1, 5, data[i]) : receive(me, 0, 5, data[i]));
    }
    for (const Ticket& ticket : tickets) me.wait(ticket, kNever);
    for (size_t i = 0; i < data.size(); ++i) check(data[i] == content(data[i].size(), i));
  });
}

void tags_out_of_order(uint64_t bytes) {
  World world(2);
  world.run([bytes](int rank, Mailbox& me) {
    if (rank == 0) {
      std::vector<Bytes> data;
      std::vector<Ticket> tickets;
      for (int tag = 0; tag < 5; ++tag) data.push_back(content(bytes, tag));
      for (int tag = 0; tag < 5; ++tag) tickets.push_back(send(me, 1, tag, data[tag]));
      for (const Ticket& ticket : tickets) me.wait(ticket, kNever);
    } else {
      for (const int64_t tag : {3, 0, 4, 2, 1}) {
        Bytes data(bytes);
        const Ticket ticket = receive(me, 0, tag, data);
        me.wait(ticket, kNever);
        check(data == content(bytes, tag));
      }
    }
  });
}

void any_source() {
  World world(4);
  world.run([](int rank, Mailbox& me) {
    if (rank != 0) return me.wait(send(me, 0, 1, content(100, rank)), kNever);
    std::vector<int> seen(4);
    for (int i = 1; i < 4; ++i) {
      Bytes data(100);
      const Ticket ticket = receive(me, Mailbox::any_source, 1, data);
      me.wait(ticket, kNever);
      const int source = me.source(ticket).value();
      check(data == content(100, source));
      ++seen[source];
    }
    check(seen == std::vector<int>{0, 1, 1, 1});
  });
}

void any_source_takes_the_earliest() {
  World world(3);
  send(world[2], 0, 1, content(8, 2));
  world.progress();
  send(world[1], 0, 1, content(8, 1));
  world.progress();
  for (const int source : {2, 1}) {
    Bytes data(8);
    const Ticket ticket = receive(world[0], Mailbox::any_source, 1, data);
    check(world[0].done(ticket) && world[0].source(ticket) == source && data == content(8, source));
  }
}

void posted_receives_match_in_order() {
  World world(2);
  Bytes any(8), mine(8), other(8);
  const Ticket first = receive(world[0], Mailbox::any_source, 1, any), second = receive(world[0], 1, 1, mine);
  const Ticket third = receive(world[0], 1, 2, other);
  for (const int64_t tag : {2, 1, 1}) send(world[1], 0, tag, content(8, tag));
  world.progress();
  check(world[0].done(first) && world[0].done(second) && world[0].done(third));
  check(any == content(8, 1) && mine == any && other == content(8, 2));
}

void probing() {
  World world(2);
  check(!world[1].probe(0, 1) && !world[1].probe(Mailbox::any_source, 1));
  send(world[0], 1, 1, content(70, 1), "first");
  send(world[0], 1, 2, content(80, 2), "second");
  for (const int source : {0, Mailbox::any_source}) {
    const auto seen = world[1].probe(source, 2);
    check(seen && seen->source == 0 && seen->tag == 2 && seen->meta == "second" && seen->bytes == 80);
  }
  Bytes data(80);
  check(world[1].done(receive(world[1], 0, 2, data, "second")) && data == content(80, 2));
  check(!world[1].probe(0, 2) && world[1].probe(0, 1));
}

// What is done at once is done as a whole, in its turn, or not at all.
void at_once() {
  World world(2);
  const Bytes data = content(1000, 1), large = content(2 << 20, 2);
  Bytes got(1000);
  const auto send_now = [&](int to, const Bytes& bytes) {
    return world[0].send_now(to, 5, "meta", bytes.data(), bytes.size());
  };
  Glimpse seen;
  const auto next = [&](int source) { return world[1].next(source, 5, seen); };
  const auto receive_now = [&](int64_t tag, std::string_view meta = "meta") {
    return world[1].receive_now(0, tag, meta, got.data(), got.size());
  };
  check(!send_now(0, data) && !send_now(2, data) && !send_now(1, large));
  check(next(0) == Mailbox::nothing && next(1) == Mailbox::other && !receive_now(5));

  check(send_now(1, data) && next(0) == Mailbox::ready && seen.meta() == "meta" && seen.bytes == 1000);
  check(world[1].next(0, 4, seen) == Mailbox::other);
  check(!receive_now(4) && !receive_now(5, "beta") && !receive_now(5, "met") && receive_now(5) && got == data);
  check(next(0) == Mailbox::nothing);

  check(send_now(1, data));
  world.progress();  // another receive may want it from here on
  check(next(0) == Mailbox::other && !receive_now(5));
  check(world[1].done(receive(world[1], 0, 5, got, "meta")));

  Bytes other(1000), all(2 << 20);
  const Ticket posted = receive(world[1], 0, 5, other, "meta");
  check(send_now(1, data) && !receive_now(5));
  check(world[1].done(posted) && other == data);

  const Ticket queued = send(world[0], 1, 5, large, "meta");
  check(!send_now(1, data));  // it would overtake
  const Ticket last = receive(world[1], 0, 5, all, "meta");
  world.progress(100);
  check(world[0].done(queued) && world[1].done(last) && all == large);

  for (uint64_t i = 0; i < 2000; ++i) {  // around the ring, until there is no room
    const Bytes each = content(1 + i * 37 % 30000, i);
    Bytes back(each.size());
    check(send_now(1, each));
    if (i % 3 == 0) check(send_now(1, data));
    check(!world[1].receive_now(0, 5, "meta", back.data(), back.size() - 1));
    check(next(0) == Mailbox::ready && seen.bytes == back.size());
    check(world[1].receive_now(0, 5, "meta", back.data(), back.size()) && back == each);
    if (i % 3 == 0) check(receive_now(5) && got == data);
  }
  int sent = 0;
  while (send_now(1, data)) ++sent;
  for (int i = 0; i < sent; ++i) check(receive_now(5));
  check(sent > 100 && !receive_now(5) && send_now(1, data));
}

// Who has read what lies beside the rings writes there next, and nobody else does.
void baton() {
  World world(2);
  const shm::Region region{world.regions[0], 2};
  int has = 0, passed = 0;
  std::mt19937_64 random(kSeed);
  for (uint64_t i = 0; i < 400; ++i) {
    const int from = static_cast<int>(i < 200 ? i % 2 : random() % 2), to = 1 - from;
    const uint64_t bytes = std::array<uint64_t, 6>{511, 512, 513, 70000, random() % 500000, shm::short_bytes}[i % 6];
    const Bytes data = content(bytes, i);
    check(world[from].send_now(to, 5, "meta", data.data(), bytes));
    const bool passes = from == has && bytes >= 512;
    check((std::memcmp(region.baton(1), data.data(), bytes) == 0) == passes);
    Bytes got(bytes), wrong(bytes + 1);
    if (i % 3 == 0) {
      check(world[to].receive_now(from, 5, "meta", got.data(), bytes) && got == data);
    } else if (i % 3 == 1) {
      check(world[to].done(receive(world[to], from, 5, got, "meta")) && got == data);
    } else {
      const Ticket refused = receive(world[to], from, 5, wrong, "meta");
      bool is_refused = false;
      try {
        world[to].wait(refused, kNever);
      } catch (const Failure& failure) {
        is_refused = failure.kind == Failure::mismatch;
      }
      check(is_refused);
      if (bytes == shm::short_bytes) world.progress();  // one pass does not drop all of it
    }
    if (passes) has = to;
    passed += passes;
  }
  check(passed > 100);
}

// Where each has a core, a message is read while it is written: here its writer has stopped in the middle.
void at_once_but_stopped() {
  World world(2);
  const Bytes first = content(400000, 1), second = content(500000, 2), third = content(300000, 3);
  Bytes got(first.size()), more(second.size()), last(third.size());
  Glimpse seen;
  const auto receive_now = [&](Bytes& to) { return world[1].receive_now(0, 5, "m", to.data(), to.size()); };
  check(world[0].send_now(1, 5, "m", first.data(), first.size()));
  check(world[0].send_now(1, 5, "m", second.data(), second.size()));
  const Ticket sent = send(world[0], 1, 5, third);  // for a part of which there is room
  check(!world[0].done(sent) && receive_now(got) && got == first && receive_now(more) && more == second);

  check(world[1].next(0, 5, seen) == Mailbox::other && !seen.whole);
  world.waiters[1].shares = false;
  check(world[1].next(0, 5, seen) == Mailbox::ready && seen.bytes == third.size() && !receive_now(last));
  check(!receive_now(last));
  const Ticket received = receive(world[1], 0, 5, last);
  check(!world[1].done(received));
  world.progress();
  check(world[0].done(sent) && world[1].done(received) && last == third);
}

// The same with both ends at it.
void at_once_while_written() {
  World world(2);
  for (FakeWaiter& waiter : world.waiters) waiter.shares = false;
  constexpr uint64_t messages = 400;
  const auto bytes = [](uint64_t i) { return i % 5 == 0 ? i : 1 + i * 7919 % (shm::short_bytes - 1); };
  world.run([&](int rank, Mailbox& mailbox) {
    for (uint64_t i = 0; i < messages; ++i) {
      const Bytes data = content(bytes(i), i);
      Bytes got(data.size());
      Glimpse seen;
      if (rank == 0) {
        while (!mailbox.send_now(1, 5, "m", data.data(), data.size())) std::this_thread::yield();
        continue;
      }
      while (mailbox.next(0, 5, seen) == Mailbox::nothing) std::this_thread::yield();
      while (!mailbox.receive_now(0, 5, "m", got.data(), got.size())) std::this_thread::yield();
      check(got == data);
    }
  });
}

// -- Sizes and flow ---------------------------------------------------------------------------------------------------

// They are copied out of the ring in two ways, and into it in the two that their reader asks for.
void long_ones_on_trial() {
  World world(2);
  const std::atomic<uint32_t>& asked = shm::Region{world.regions[1], 2}.consumed(0).past_caches;
  std::array<int, 2> seen{};
  world.run([&](int rank, Mailbox& me) {
    for (uint64_t i = 0; i < 3 * (Choice::unseen + Choice::trials + Choice::late); ++i) {
      if (rank == 1) ++seen.at(asked);
      const Bytes sent = content((PastCaches::least << i % 3) + i, i);
      if (rank == 0) {
        me.wait(send(me, 1, 0, sent), kNever);
      } else {
        Bytes data(sent.size());
        me.wait(receive(me, 0, 0, data), kNever);
        check(data == sent);
      }
    }
  });
  check(seen[0] > 0 && seen[1] > 0);
}

// What is long, and begins after its reader has asked for it, is written past the caches, and says so.
void written_as_asked() {
  for (const auto& [asked, bytes] : {std::pair{0, 2 * shm::short_bytes}, {1, 2 * shm::short_bytes}, {1, 1000ul}}) {
    World world(2);
    shm::Region{world.regions[1], 2}.consumed(0).past_caches = asked;
    const Bytes sent = content(bytes, asked);
    const Ticket ticket = send(world[0], 1, 0, sent);
    uint32_t place;
    std::memcpy(&place, shm::Region{world.regions[0], 2}.ring(1) + 28, sizeof place);  // of a header
    check((place == 1) == (asked == 1 && bytes > shm::short_bytes));
    Bytes data(sent.size());
    const Ticket received = receive(world[1], 0, 0, data);
    while (!world[1].done(received)) world.progress();
    check(world[0].done(ticket) && data == sent);
  }
}

// Its reader asks for that in which it is there the sooner, even if that is only a matter of how long writing takes.
void asked_for_what_is_sooner() {
  for (const bool slow : {false, true}) {
    World world(2);
    const std::atomic<uint32_t>& asked = shm::Region{world.regions[1], 2}.consumed(0).past_caches;
    Bytes data(4 * shm::short_bytes);
    std::array<int, 2> seen{};
    for (unsigned i = 0; i < 2 * (Choice::unseen + Choice::trials + Choice::late); ++i) {
      const bool past_caches = asked != 0;
      if (i >= Choice::unseen + Choice::trials + Choice::late) ++seen.at(past_caches);
      const Bytes sent = content(data.size(), i);
      const Ticket ticket = send(world[0], 1, 0, sent), received = receive(world[1], 0, 0, data);
      while (!world[1].done(received)) {
        const auto begun = Clock::now();
        world[0].progress();
        const auto written = Clock::now(), until = written + 8 * (written - begun);
        while (past_caches == slow && Clock::now() < until) hocket::pause();
        world[1].progress();
      }
      check(world[0].done(ticket) && data == sent);
    }
    check(seen.at(slow) < seen.at(!slow));
  }
}

void both_send_first(uint64_t bytes) {
  World world(2);
  world.run([bytes](int rank, Mailbox& me) {
    const Bytes mine = content(bytes, rank);
    me.wait(send(me, 1 - rank, 0, mine), kNever);
    Bytes data(bytes);
    me.wait(receive(me, 1 - rank, 0, data), kNever);
    check(data == content(bytes, 1 - rank));
  });
}

void zero_bytes() {
  World world(2);
  for (int i = 0; i < 3000; ++i) {  // headers alone go around the ring
    check(world[0].done(world[0].send(1, i, "", nullptr, 0, kNever)));
    const Ticket ticket = world[1].receive(0, i, "", nullptr, 0);
    check(world[1].done(ticket));
  }
}

void short_sends_need_no_receiver() {
  World world(2);
  for (int i = 0; i < 10; ++i) check(world[0].done(send(world[0], 1, i, content(1000, i))));
  Bytes large = content(2 << 20, 0);
  const Ticket ticket = send(world[0], 1, 10, large);
  check(!world[0].done(ticket));
  world.progress(100);  // nobody asked for it, but it does not stay in the way
  check(world[0].done(ticket));
}

void to_oneself() {
  World world(2);
  for (const uint64_t bytes : {0, 1, 1000, 3000000}) {
    Bytes before(bytes), after(bytes);
    const Ticket early = receive(world[1], 1, 7, before);
    check(!world[1].done(early));
    check(world[1].done(send(world[1], 1, 7, content(bytes, 1))));
    check(world[1].done(early) && before == content(bytes, 1));
    check(world[1].done(send(world[1], 1, 7, content(bytes, 2))));
    const Ticket late = receive(world[1], Mailbox::any_source, 7, after);
    check(world[1].done(late) && after == content(bytes, 2) && world[1].source(late) == 1);
  }
  Bytes same = content(100, 3);
  receive(world[0], 0, 0, same);
  send(world[0], 0, 0, same);
  check(same == content(100, 3));
}

void whatever_comes() {
  World silent(2);
  check(!silent[0].done(silent[0].receive(1, 0)));
  for (const uint64_t bytes : {0, 10, 200000, 5000000}) {
    World world(2);
    world.run([bytes](int rank, Mailbox& me) {
      const Bytes mine = content(bytes, rank);
      const Ticket sent = send(me, 1 - rank, 1, mine, "shape"), self = send(me, rank, 2, mine, "own");
      for (const int source : {1 - rank, rank}) {
        const Ticket ticket = me.receive(source, source == rank ? 2 : 1);
        if (source == rank) check(me.done(ticket));
        const Envelope envelope = me.arrival(ticket, kNever);
        check(envelope.bytes == bytes && envelope.source == source &&
              envelope.meta == (source == rank ? "own" : "shape"));
        Bytes data(envelope.bytes);
        me.accept(ticket, data.data());
        me.wait(ticket, kNever);
        check(data == content(bytes, source));
      }
      me.wait(sent, kNever);
      me.wait(self, kNever);
    });
  }
}

void asked_for_in_the_middle() {
  World world(2);
  const Bytes large = content(2000000, 1);
  const Ticket sent = send(world[0], 1, 1, large);
  world[1].progress();
  Bytes data(large.size());
  const Ticket ticket = receive(world[1], 0, 1, data);
  check(!world[1].done(ticket));
  world.progress(20);
  check(world[1].done(ticket) && world[0].done(sent) && data == large);
}

void threads_of_one_rank() {
  World world(2);
  world.run([](int rank, Mailbox& me) {
    std::vector<std::thread> threads;
    for (int tag = 0; tag < 4; ++tag) {
      threads.emplace_back([&me, rank, tag] {
        for (int i = 0; i < 20; ++i) {
          const uint64_t bytes = (tag * 37 + i * 4001) % 50000, seed = tag * 100 + i;
          const Bytes mine = content(bytes, seed + rank);
          Bytes data(bytes);
          const Ticket ticket = receive(me, 1 - rank, tag, data);
          me.wait(send(me, 1 - rank, tag, mine), kNever);
          me.wait(ticket, kNever);
          check(data == content(bytes, seed + 1 - rank));
        }
      });
    }
    for (std::thread& t : threads) t.join();
  });
}

void random_traffic(int size, unsigned seed) {
  struct Letter {
    int from, to;
    int64_t tag;
    uint64_t bytes;
    bool any;
  };
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % n); };
  std::vector<Letter> letters;
  for (int i = 0; i < 200; ++i) {
    const bool any = below(4) == 0;  // then the tag is its own, that nobody else's letter is taken for it
    const uint64_t bytes = below(8) ? below(3000) : below(600000);
    letters.push_back({below(size), below(size), any ? 100 + i : below(3), bytes, any});
  }
  World world(size);
  world.run([&](int rank, Mailbox& me) {
    std::mt19937 mine(seed + rank);
    std::vector<Bytes> out(letters.size()), in(letters.size());
    std::vector<Ticket> tickets;
    auto send_next = [&, i = size_t{0}]() mutable {
      for (; i < letters.size() && letters[i].from != rank; ++i) continue;
      if (i == letters.size()) return false;
      out[i] = content(letters[i].bytes, i);
      tickets.push_back(send(me, letters[i].to, letters[i].tag, out[i]));
      return ++i, true;
    };
    auto receive_next = [&, i = size_t{0}]() mutable {
      for (; i < letters.size() && letters[i].to != rank; ++i) continue;
      if (i == letters.size()) return false;
      in[i].resize(letters[i].bytes);
      tickets.push_back(receive(me, letters[i].any ? Mailbox::any_source : letters[i].from, letters[i].tag, in[i]));
      return ++i, true;
    };
    while (mine() % 2 ? send_next() || receive_next() : receive_next() || send_next()) {
      if (mine() % 16 == 0) me.progress();
    }
    std::shuffle(tickets.begin(), tickets.end(), mine);
    for (const Ticket& ticket : tickets) me.wait(ticket, kNever);
    for (size_t i = 0; i < letters.size(); ++i) {
      if (letters[i].to == rank) check(in[i] == content(letters[i].bytes, i));
    }
  });
}

}  // namespace

int main() {
  equal_tags_in_order();
  for (const uint64_t bytes : {10, 400000}) tags_out_of_order(bytes);
  any_source();
  any_source_takes_the_earliest();
  posted_receives_match_in_order();
  probing();
  at_once();
  baton();
  at_once_but_stopped();
  at_once_while_written();
  for (const uint64_t bytes : {0, 1, 100, 64 << 20}) both_send_first(bytes);
  long_ones_on_trial();
  written_as_asked();
  asked_for_what_is_sooner();
  zero_bytes();
  short_sends_need_no_receiver();
  to_oneself();
  whatever_comes();
  asked_for_in_the_middle();
  threads_of_one_rank();
  for (unsigned i = 0; i < 5; ++i) random_traffic(3 + i % 3, kSeed + i);
  return report();
}
