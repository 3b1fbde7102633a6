// One run of the engine in the fake world, and all that it follows from.
#pragma once

#include <array>
#include <ostream>

#include "engine/engine.h"
#include "fake_port.h"
#include "programs.h"

namespace hocket::testing {

inline constexpr uint64_t kSeed = 20250117;

// Everything about one case follows from these.
struct Case {
  Plan plan;
  Sizes sizes;
  bool in_place = false;
  uint64_t segments = 1;
  Weather weather = {};
  bool custom = false;
  uint64_t divisor = 1;
  int calls = 1;
  bool coarse = false;  // turns are, from the first call on
};

inline void settle_on_coarse(GrainChoice& grain) {
  while (!grain.is_known()) grain.tell(std::chrono::microseconds(2), std::chrono::microseconds(1));
}

inline std::ostream& operator<<(std::ostream& to, const Case& c) {
  to << c.plan.name << " size " << c.plan.size << " sizes";
  for (uint64_t size : c.sizes) to << ' ' << size;
  return to << (c.in_place ? " in place" : "") << (c.custom ? " custom" : "") << (c.coarse ? " coarse" : "")
            << " segments " << c.segments << " divisor " << c.divisor << " depth " << c.weather.depth << " staging "
            << c.weather.staging << " dying " << c.weather.dying << " at " << c.weather.dies_at << " seed "
            << c.weather.seed << ": ";
}

inline std::vector<Memory> draw(const Case& c) {
  std::vector<Memory> ranks(c.plan.size);
  const uint64_t words = total(c.sizes);
  for (int rank = 0; rank < c.plan.size; ++rank) {
    Memory& m = ranks[rank];
    m.tmp.resize(words);
    if (!c.in_place) m.inp.resize(words);
    m.out.resize(words);
    for (uint64_t i = 0; i < words; ++i) {
      if (!c.in_place) m.inp[i] = mix(rank, i, c.weather.seed);
      m.out[i] = mix(rank, c.in_place ? i : ~i, c.weather.seed);
    }
  }
  return ranks;
}

inline void chained_fold(void* to, const void* const* sources, size_t k, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint64_t sum = static_cast<const uint64_t*>(sources[0])[i];
    for (size_t j = 1; j < k; ++j) sum = chained(sum, static_cast<const uint64_t*>(sources[j])[i]);
    static_cast<uint64_t*>(to)[i] = sum;
  }
}

inline std::vector<Program> programs_of(const Case& c) {
  std::vector<Program> programs = lower(c.plan, c.sizes, c.in_place, c.segments);
  for (Program& p : programs) {
    p.divisor = c.divisor;
    if (c.weather.offers != 0) p.ways = 1 + Sending::offered;  // however short they are
    if (!c.custom) continue;
    p.kernels = {};
    p.custom = chained_fold;
  }
  return programs;
}

// Runs the programs on `ranks`, call after call, and tells how each rank ended. A rank that ended well has the memory
// to show for it; of one that did not, it is undefined.
inline std::vector<End> play(
    const Case& c, std::vector<Program>& programs, std::vector<Memory>& ranks, Port::Offers offers = Port::all_offered,
    const std::function<void(int rank, int call)>& after = [](int, int) {}) {
  const std::vector<End> ends = World(c.plan.size, c.weather).play([&](int rank, FakePort& port) {
    Memory& m = ranks[rank];
    auto* out = reinterpret_cast<std::byte*>(m.out.data());
    const auto* inp = c.in_place ? out : reinterpret_cast<const std::byte*>(m.inp.data());
    if (c.coarse) settle_on_coarse(port.grains.loops), settle_on_coarse(port.grains.turns);
    port.offering = offers;
    for (int call = 1; call <= c.calls; ++call) {
      port.enter(out);
      run(programs[rank], port, call, inp, out, watchdog());
      after(rank, call);
      for (uint64_t& word : c.in_place ? m.out : m.inp) ++word;  // the memory is the caller's again
    }
  });
  for (int rank = 0; rank < c.plan.size; ++rank) {
    const auto& scratch = programs[rank].scratch;
    if (!scratch.empty()) std::memcpy(ranks[rank].tmp.data(), scratch.data(), scratch.size());
    check(ends[rank].announced == 0, c, "rank ", rank, " left an announcement behind");
  }
  return ends;
}

inline std::vector<Memory> expected(const Case& c) {
  std::vector<Memory> ranks = draw(c);
  for (Memory& m : ranks) std::fill(m.tmp.begin(), m.tmp.end(), 0);
  for (int call = 1; call <= c.calls; ++call) {
    interpret(c.plan, c.sizes, ranks, c.custom ? chained : add, c.divisor);
    for (Memory& m : ranks) {
      for (uint64_t& word : c.in_place ? m.out : m.inp) ++word;
    }
  }
  return ranks;
}

inline std::vector<End> test(const Case& c) {
  std::vector<Program> programs = programs_of(c);
  std::vector<Memory> ranks = draw(c);
  const std::vector<End> ends = play(c, programs, ranks);
  const std::vector<Memory> right = expected(c);
  for (int rank = 0; rank < c.plan.size; ++rank) {
    const End& end = ends[rank];
    if (check(!end.failure && end.error.empty(), c, "rank ", rank, " failed, ", end.error,
              end.failure ? end.failure->text : "")) {
      check(ranks[rank] == right[rank], c, "rank ", rank, " has the wrong result");
    }
  }
  return ends;
}

inline Sizes draw_sizes(int chunks, uint64_t seed) {
  Sizes sizes(chunks);
  const uint64_t most = std::array<uint64_t, 4>{4, 17, 40, 100}[mix(seed, 1) % 4];
  for (int c = 0; c < chunks; ++c) {
    const uint64_t kind = mix(seed, 2) % 5;
    if (kind == 0) {  // all alike
      sizes[c] = most;
    } else if (kind == 1) {  // one has it all
      sizes[c] = c == int(mix(seed, 3) % chunks) ? most : 0;
    } else {
      sizes[c] = mix(seed, 4, c) % 3 ? mix(seed, 5, c) % (most + 1) : 0;
    }
  }
  return sizes;
}

inline Weather draw_weather(uint64_t seed, size_t depth, uint64_t segment) {
  Weather weather{.seed = seed, .depth = depth};
  weather.staging = std::array<uint64_t, 4>{segment, 3 * segment, 8 * segment, ~0ull}[mix(seed, 6) % 4];
  weather.delay = std::array<unsigned, 3>{0, 2, 9}[mix(seed, 7) % 3];
  weather.refusal = std::array<unsigned, 3>{0, 10, 60}[mix(seed, 8) % 3];
  weather.crowded = mix(seed, 9) % 2;
  weather.views = std::array<unsigned, 3>{0, 50, 100}[mix(seed, 10) % 3];
  weather.offers = std::array<unsigned, 3>{0, 50, 100}[mix(seed, 23) % 3];
  weather.puts = std::array<unsigned, 3>{0, 50, 100}[mix(seed, 20) % 3];
  weather.loans = std::array<unsigned, 3>{0, 50, 100}[mix(seed, 22) % 3];
  weather.landings = std::array<unsigned, 3>{0, 50, 100}[mix(seed, 21) % 3];
  return weather;
}

inline const auto kPlans = {ring, one_shot, two_shot, chain, tree};

}  // namespace hocket::testing
