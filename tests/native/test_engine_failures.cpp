// The engine where something goes wrong: no rank may hang, and none may go on as if all was well.
#include <functional>
#include <stdexcept>

#include "engine_cases.h"

namespace {

using namespace hocket;
using namespace hocket::testing;

// Rank 0 is to send rank 1 three segments of a chunk; `spoil` makes its program another one.
std::vector<End> play_spoilt(uint64_t seed, const std::function<void(Program&)>& spoil, uint64_t call_of_sender = 1) {
  Case c{.plan = chain(3), .sizes = {6, 0}, .segments = 3, .weather = draw_weather(seed, 2, 16)};
  std::vector<Program> programs = programs_of(c);
  spoil(programs[0]);
  std::vector<Memory> ranks = draw(c);
  return World(3, c.weather).play([&](int rank, FakePort& port) {
    Memory& m = ranks[rank];
    run(programs[rank], port, rank == 0 ? call_of_sender : 1, reinterpret_cast<const std::byte*>(m.inp.data()),
        reinterpret_cast<std::byte*>(m.out.data()), watchdog());
  });
}

// One message per segment, with the label of the segment `k` times further: 1 is right.
void send_one_by_one(Program& p, uint32_t k) {
  const Send whole = p.sends[0];
  p.sends.clear();
  for (uint32_t i = 0; i < 3; ++i) {
    Send& part = p.sends.emplace_back(whole);
    part.mark += k * i;
    part.from.offset += 16 * i;
    part.bytes = 16;
  }
}

void test_mismatch() {
  const std::vector<std::pair<const char*, std::function<void(Program&)>>> spoils{
      {"mark", [](Program& p) { p.sends[0].mark += 7; }},
      {"too short", [](Program& p) { p.sends[0].bytes -= 8; }},
      {"too long", [](Program& p) { p.segment = 24; }},
      {"other segments", [](Program& p) { p.segment = 8; }},
      {"the same segment again", [](Program& p) { send_one_by_one(p, 0); }},
      {"empty", [](Program& p) { p.sends[0].bytes = 0, p.signals = true; }},
  };
  for (uint64_t seed = kSeed; seed < kSeed + 50; ++seed) {
    const auto verdict = [&](const std::vector<End>& ends, const char* what) {
      const auto& failure = ends[1].failure;
      check(failure && failure->kind == Failure::mismatch && failure->peer == 0 && !failure->relayed, "spoilt: ", what,
            ", seed ", seed, ": rank 1 did not see it");
      check(ends[2].failure && ends[2].failure->kind == Failure::mismatch && ends[2].failure->relayed, "spoilt: ", what,
            ", seed ", seed, ": rank 2 was not told");
    };
    for (const auto& [what, spoil] : spoils) verdict(play_spoilt(seed, spoil), what);
    verdict(play_spoilt(seed, [](Program&) {}, 2), "call");
    for (const End& end : play_spoilt(seed, [](Program& p) { send_one_by_one(p, 1); })) check(!end.failure, "spoilt?");
  }
}

// A rank that dies: the others either finish, with the right result, or throw that it is lost.
void test_death(const Case& c) {
  std::vector<Program> programs = programs_of(c);
  std::vector<Memory> ranks = draw(c);
  const std::vector<End> ends = play(c, programs, ranks);
  const std::vector<Memory> right = expected(c);
  for (int rank = 0; rank < c.plan.size; ++rank) {
    if (rank == c.weather.dying) {
      check(ends[rank].died, c, "does not die");
    } else if (ends[rank].failure) {
      const Failure& f = *ends[rank].failure;
      check(f.kind == Failure::peer_lost && f.peer == c.weather.dying && !f.relayed, c, "rank ", rank, " throws kind ",
            f.kind, " peer ", f.peer, " ", f.text);
    } else {
      check(ranks[rank] == right[rank], c, "rank ", rank, " returns without its result");
    }
  }
}

void test_deaths(unsigned loans) {
  uint64_t seed = kSeed;
  for (const auto make : kPlans) {
    for (int n = 2; n <= 4; ++n) {
      const Plan plan = make(n);
      for (const uint64_t segments : {1, 3}) {
        Case c{.plan = plan, .sizes = Sizes(plan.chunks, 3), .segments = segments, .weather = {.loans = loans}};
        std::vector<size_t> operations;
        for (const End& end : test(c)) operations.push_back(end.operations);
        for (int dying = 0; dying < n; ++dying) {
          for (size_t at = 0; at < operations[dying]; ++at) {
            ++seed;
            c.weather = draw_weather(seed, 1 + seed % 3, 8);
            c.weather.loans = loans;
            c.weather.dying = dying;
            c.weather.dies_at = at;
            test_death(c);
          }
        }
      }
    }
  }
}

// What a rank waits for does not come: not at the receiver, not at the sender whose buffer is full.
void test_timeouts() {
  for (uint64_t seed = kSeed; seed < kSeed + 6; ++seed) {
    for (int waiting = 0; waiting < 2; ++waiting) {
      Weather weather{.seed = seed, .depth = 2, .crowded = seed % 2 == 0, .patience = ~0ull};
      const Sizes sizes{6, 6};
      std::vector<Program> programs = lower(chain(2), sizes, false, 3);
      Words inp(12), out(12);
      const std::vector<End> ends = World(2, weather).play([&](int rank, FakePort& port) {
        if (rank != waiting) return;
        run(programs[rank], port, 1, reinterpret_cast<const std::byte*>(inp.data()),
            reinterpret_cast<std::byte*>(out.data()), Clock::now() + std::chrono::milliseconds(3));
      });
      const auto& failure = ends[waiting].failure;
      check(failure && failure->kind == Failure::timeout && failure->peer == 1 - waiting, "rank ", waiting,
            " did not time out, seed ", seed);
      check(ends[waiting].announced == 0, "an announcement was left behind");
    }
  }
}

// Whom rank 0 of four waits for, in vain, where one of the others reads nothing.
int waited_for(const Plan& plan, const Weather& weather, int idle) {
  std::vector<Program> programs = lower(plan, Sizes{20, 20, 20}, false, 20);
  Words inp(60);
  int found = -1;
  World(4, weather).play([&](int rank, FakePort& port) {
    if (rank == idle) return;
    Words out(60);
    const Deadline end = rank == 0 ? Clock::now() + std::chrono::milliseconds(50) : watchdog();
    try {
      run(programs[rank], port, 1, reinterpret_cast<const std::byte*>(inp.data()),
          reinterpret_cast<std::byte*>(out.data()), end);
    } catch (const Failure& failure) {
      if (rank == 0 && failure.kind == Failure::timeout) found = failure.peer;
      throw Death{};  // so that the others end as well
    }
  });
  return found;
}

// Rank 0 sends to all, either the same or to each a part. The messages of who does not read fill its channel or the
// slots; and the next message, for which there is no room, may be for others.
void test_room_is_waited_for_at_who_does_not_read() {
  Plan same{"to all", 4, 3, {{}}}, parts{"parts", 4, 3, {{}}};
  for (int to = 1; to < 4; ++to) {
    same.fronts[0].push_back({false, {out, to, 0, 3}, {inp, 0, 0, 3}});
    parts.fronts[0].push_back({false, {out, to, to - 1}, {inp, 0, to - 1}});
  }
  for (uint64_t seed = kSeed; seed < kSeed + 2; ++seed) {
    const Weather few_messages{.seed = seed, .depth = 4, .patience = ~0ull};
    const Weather few_slots{.seed = seed, .staging = 40, .patience = ~0ull};
    for (const Plan& plan : {same, parts}) {
      for (int idle = 1; idle < 4; ++idle) {
        for (const Weather& weather : {few_messages, few_slots}) {
          const int found = waited_for(plan, weather, idle);
          check(found == idle, plan.name, " depth ", weather.depth, " seed ", seed, ": rank 0 waits for rank ", found,
                ", not for ", idle);
        }
      }
    }
  }
}

// What a caller's fold throws goes to the caller; the others hear that the rank is gone.
void test_throwing_fold() {
  for (uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
    Case c{.plan = ring(3), .sizes = {4, 4, 4}, .weather = draw_weather(seed, 2, 32), .custom = true};
    std::vector<Program> programs = programs_of(c);
    programs[1].custom = [](void*, const void* const*, size_t, size_t) { throw std::runtime_error("no"); };
    std::vector<Memory> ranks = draw(c);
    const std::vector<End> ends = play(c, programs, ranks);
    check(ends[1].error == "no" && ends[0].failure && ends[2].failure, c, "a fold threw, and someone went on");
  }
}

}  // namespace

int main() {
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(kSeed));
  test_mismatch();
  for (const unsigned loans : {0, 100}) test_deaths(loans);
  test_timeouts();
  test_room_is_waited_for_at_who_does_not_read();
  test_throwing_fold();
  return report();
}
