// The engine in a fake world: programs under every weather, against the meaning of their plans.
#include "engine_cases.h"

namespace {

using namespace hocket;
using namespace hocket::testing;

// Every program at every size, segmentation, depth and place, each with some weathers of its own.
void test_plans() {
  uint64_t seed = kSeed;
  for (const auto make : kPlans) {
    for (int n = 1; n <= 5; ++n) {
      for (const uint64_t segments : {1, 3, 17}) {
        for (const size_t depth : {1, 2, 64}) {
          for (int variant = 0; variant < 8; ++variant) {
            ++seed;
            Case c{make(n), draw_sizes(make(n).chunks, seed), variant % 2 == 1, segments};
            c.weather = draw_weather(seed, depth, segment_of(c.sizes, segments));
            c.custom = variant / 2 == 1;
            c.divisor = variant / 2 == 2 ? n : 1;
            c.calls = 1 + mix(seed, 17) % 2;
            test(c);
          }
        }
      }
    }
  }
}

// The interpreter shares the plans with the engine; that these are what they are called, a plain loop says.
void test_meaning() {
  for (const auto make : kPlans) {
    for (int n = 1; n <= 5; ++n) {
      const Case c{.plan = make(n), .sizes = draw_sizes(make(n).chunks, n), .weather = {.seed = kSeed}};
      const std::vector<Memory> before = draw(c), after = expected(c);
      for (int rank = 0; rank < n; ++rank) {
        for (uint64_t i = 0; i < total(c.sizes); ++i) {
          uint64_t sum = 0;
          for (int from = 0; from < n; ++from) sum += before[from].inp[i];
          const bool broadcast = c.plan.name == "chain" || c.plan.name == "tree";
          check(after[rank].out[i] == (broadcast ? before[0].inp[i] : sum), c, "wrong plan, at ", i);
        }
      }
    }
  }
}

// A send waits for room while a fold waits for all of its sources: in general the buffers must hold one front. `length`
// times as long as others.
void test_anything(uint64_t cases, uint64_t length) {
  for (uint64_t seed = kSeed; seed < kSeed + cases; ++seed) {
    const uint64_t segments = std::array<uint64_t, 3>{1, 3, 17}[mix(seed, 11) % 3];
    Case c{anything(1 + mix(seed, 12) % 5, seed, segments == 1), {}, false, segments};
    c.sizes = draw_sizes(c.plan.chunks, seed);
    for (uint64_t& size : c.sizes) size *= length;
    const uint64_t segment = segment_of(c.sizes, segments);
    const Messages most = most_messages(c.plan);
    c.weather = draw_weather(seed, std::array<size_t, 3>{1, 2, 64}[mix(seed, 13) % 3], segment);
    c.weather.depth = std::max(c.weather.depth, most.to_one);
    c.weather.staging = std::max(c.weather.staging, most.to_all * segment);
    c.custom = mix(seed, 14) % 2;
    c.coarse = mix(seed, 23) % 2;
    c.calls = 1 + mix(seed, 15) % 2;
    test(c);
  }
}

// What is staged takes turns with what is folded and with what comes home, if it is long: none of them sees memory that
// another one writes.
void test_turns() {
  constexpr uint64_t length = 100;
  uint64_t seed = kSeed;
  for (const auto make : kPlans) {
    for (int n = 2; n <= 3; ++n) {
      for (const uint64_t segments : {1, 3}) {
        for (int variant = 0; variant < 12; ++variant) {
          Case c{make(n), draw_sizes(make(n).chunks, ++seed), variant % 2 == 1, segments};
          for (uint64_t& size : c.sizes) size *= length;
          c.weather = draw_weather(seed, 64, segment_of(c.sizes, segments));
          if (variant / 2 % 2 == 1) c.weather.loans = 100, c.weather.staging = ~0ull, c.weather.landings = 0;
          c.custom = variant / 4 == 1;
          c.calls = 2;
          c.coarse = variant / 4 == 2;
          test(c);
        }
      }
    }
  }
  test_anything(60, length);
}

// Which turns are better is found while calls are made, whose results are right before, then, and after.
void test_grain() {
  for (const bool in_place : {false, true}) {
    Case c{.plan = two_shot(2), .sizes = {40000, 39999}, .in_place = in_place, .segments = 4, .calls = 40};
    c.weather = {.seed = kSeed, .loans = 100, .crowded = false};
    for (const End& end : test(c)) check(end.chose, c, "a rank has not found which turns are better");
  }
}

// By the median, so that no rank that was stopped in the middle misleads it; and once for all.
void test_grain_choice() {
  using std::chrono::nanoseconds;
  const auto best_of = [](int faster, int64_t of_fine, int64_t of_coarse) {
    GrainChoice choice;
    for (int i = 0; i < GrainChoice::trials; ++i) {
      check(!choice.is_known() && &choice.best() == &fine, "chosen after ", i, " trials");
      const nanoseconds for_fine(i < faster ? of_fine : 1000), for_coarse(i < faster ? of_coarse : 1000);
      for (const bool second : {false, true}) {  // of which only both together tell which is faster
        check(choice.coarse_first() == (second == (i % 2 == 0)), "the same is first");
        choice.tell(for_fine * (second ? 2 : 0), for_coarse * (second ? 0 : 2));
      }
    }
    check(choice.is_known(), "not chosen");
    const Grain* const best = &choice.best();
    for (int i = 0; i < 100; ++i) choice.tell(nanoseconds(best == &fine ? 1000 : 1), nanoseconds(500));
    check(&choice.best() == best, "chosen twice");
    return best;
  };
  constexpr int half = GrainChoice::trials / 2;
  check(best_of(GrainChoice::trials, 1000, 800) == &coarse, "what takes less is not chosen");
  check(best_of(GrainChoice::trials, 1000, 1200) == &fine, "what takes longer is chosen");
  check(best_of(GrainChoice::trials, 1000, 990) == &fine, "what hardly takes less is chosen");
  check(best_of(half + 1, 1000, 1) == &coarse, "most trials do not decide");
  check(best_of(half, 1000000, 1) == &fine, "few trials decide");
  check(best_of(GrainChoice::trials, 0, 0) == &coarse, "a clock that stands still is divided by");
}

// A function of the caller's may take its time: what others wait for goes out before it is called. That is all but the
// parts behind the first answer, which waits for it.
void test_functions() {
  for (const unsigned loans : {0, 100}) {
    for (uint64_t seed = kSeed; seed < kSeed + 5; ++seed) {
      Case c{.plan = two_shot(2), .sizes = {8000, 8000}, .segments = 4, .custom = true};
      c.weather = {.seed = seed, .loans = loans};
      std::vector<Program> programs = programs_of(c);
      std::vector<Memory> ranks = draw(c);
      std::array<uint64_t, 2> calls{};
      World(2, c.weather).play([&](int rank, FakePort& port) {
        programs[rank].custom = [&, rank](void* to, const void* const* sources, size_t k, size_t count) {
          const uint64_t parts = std::min(c.segments, 2 + calls[rank]++);
          check(port.posted(1 - rank) >= parts, c, "rank ", rank, ": call ", calls[rank], " comes before part ", parts);
          chained_fold(to, sources, k, count);
        };
        Memory& m = ranks[rank];
        run(programs[rank], port, 1, reinterpret_cast<const std::byte*>(m.inp.data()),
            reinterpret_cast<std::byte*>(m.out.data()), watchdog());
      });
      check(calls[0] == c.segments && calls[1] == c.segments, c, "not called for every part");
    }
  }
}

// What is written past the caches: copies of 16 MiB or more, of all ranks that share the caches, which nobody reads. Of
// an eighth of that and more it is tried.
void test_past_caches() {
  constexpr uint64_t most = 16 << 20;
  const auto copy = [](Buffer to, uint64_t at, uint64_t bytes, int32_t from) {
    return Receive{.step = 0,
                   .to = {to, at},
                   .bytes = bytes,
                   .sources = {{.peer = from, .mark = 0, .place = {inp, at}}},
                   .finished = true,
                   .before = {}};
  };
  const auto found = [](std::vector<Receive> receives, uint64_t writers, std::vector<Send> sends = {}) {
    Program program{};
    program.receives = std::move(receives);
    program.sends = std::move(sends);
    program.writers = writers;
    measure(program);
    std::string all;
    const bool past = program.past_caches.begin(program.unread_bytes + program.unread_sums);
    const char kind = past ? 'p' : program.past_caches.is_measured() ? 't' : 'c';
    for (const Receive& r : program.receives) all += r.unread ? kind : '-';
    return all;
  };
  const auto two = [&](uint64_t first, uint64_t second) {
    return std::vector{copy(out, 0, first, local), copy(out, first, second, 1)};
  };
  check(found(two(64, most - 64), 1) == "pp", "what is long goes through the caches");
  check(found(two(64, most - 72), 1) == "tt", "what is less is not tried");
  check(found(two(64, most / 8 - 64), 1) == "tt", "what is much less is not tried");
  check(found(two(64, most / 8 - 72), 1) == "cc", "what is short is tried");
  check(found(two(64, most / 4 - 64), 4) == "pp", "of four ranks each counts its own only");
  check(found(two(64, most / 4 - 72), 4) == "tt", "four ranks write less than is counted");
  check(found({copy(tmp, 0, most, 1)}, 4) == "-", "what lies in between goes past them");
  std::vector<Receive> overwrites = two(64, most), folds = two(64, most);
  overwrites[1].before = {0};
  folds[1].sources.push_back(folds[1].sources[0]);
  check(found(overwrites, 1) == "c-", "what is read goes past them, or is counted");
  folds[1].finished = true;
  check(found(folds, 1) == "pp", "a sum is not counted, or goes through them");
  folds[1].finished = false;
  check(found(folds, 1) == "c-", "what is a part of a sum, and will be overwritten, goes past them, or is counted");
  check(found(overwrites, most / 64) == "p-", "what is read beside it is counted or not told apart");
  Send passed_on{.step = 1, .mark = 0, .from = {out, 64}, .bytes = 8, .peers = {1}, .after = 1};
  check(found(two(64, most), 1, {passed_on}) == "c-", "what is sent on goes past them, or is counted");
}

// Of what is tried, what took clearly less of the same length is done. What is as long as caches or short is not tried,
// nor is anything beside another trial.
void test_past_caches_on_trial() {
  using std::chrono::nanoseconds;
  constexpr uint64_t least = PastCaches::least;
  const auto goes_past = [&](int hundredths) {  // where it takes so many of the time that it takes through the caches
    PastCaches kind;
    bool past = false;
    for (unsigned i = 0; i < Choice::unseen + Choice::trials + Choice::late; ++i) {
      check(kind.begin(8 * least) && !kind.is_measured() && !kind.tries(), "what is long is tried");
      check(!kind.begin(least - 1) && !kind.is_measured() && !kind.tries(), "what is short is tried");
      const uint64_t longer = 1 + i % 3;
      past = kind.begin(longer * least);
      check(kind.is_measured(), "is not measured");
      kind.tell(nanoseconds(longer * (past ? 10 * hundredths : 1000)));
    }
    check(!kind.tries(), "still tries");
    check(!kind.begin(least - 1) && kind.begin(8 * least), "what is short or long does as was found");
    check(kind.begin(least, false) == past, "does not do what was found");
    return past;
  };
  check(goes_past(10) && goes_past(70) && goes_past(84), "what takes less is not chosen");
  check(!goes_past(86) && !goes_past(100) && !goes_past(200), "what takes longer is chosen");
  const nanoseconds hour = std::chrono::hours(1);
  check(pace(hour, least, 8 * least) == 8 * hour && pace(hour, 8 * least, least) == hour / 8, "another pace");
  PastCaches beside;
  for (unsigned i = 0; i < Choice::unseen + Choice::least_rest; ++i) {
    check(!beside.begin(least, false) && !beside.tries(), "is tried beside another trial");
  }
  for (unsigned i = 0; i <= Choice::turn; ++i) beside.begin(least);
  check(beside.tries() && beside.is_past(), "is not tried after another trial");
}

// Results are right in either way, and while it is tried: what is copied, and sums, in one block or several, that go to
// a message or home beside, or nowhere else.
void test_results_on_trial() {
  const auto results = [](const Plan& plan, uint64_t words, uint64_t divisor, bool custom, bool in_place, bool tried) {
    Case c{.plan = plan, .sizes = Sizes(plan.chunks, words), .weather = {.seed = kSeed, .loans = 100}};
    c.in_place = in_place;
    c.segments = 3;
    c.divisor = divisor;
    c.custom = custom;
    c.calls = tried ? Choice::unseen + Choice::trials + Choice::late : 2;
    const uint64_t bytes = tried ? PastCaches::least : beyond_caches;
    std::vector<Program> programs = programs_of(c);
    std::vector<bool> may(plan.size);
    for (int rank = 0; rank < plan.size; ++rank) {
      Program& program = programs[rank];
      may[rank] = program.unread_bytes + (in_place ? 0 : program.unread_sums) != 0;
      if (program.unread_bytes != 0) program.unread_bytes = bytes;
      if (program.unread_sums != 0) program.unread_sums = bytes;
    }
    std::vector<Memory> ranks = draw(c);
    std::vector<unsigned> past(plan.size);
    play(c, programs, ranks, Port::nothing_offered,
         [&](int rank, int) { past[rank] += programs[rank].past_caches.is_past(); });
    const std::vector<Memory> right = expected(c);
    for (int rank = 0; rank < plan.size; ++rank) {
      check((past[rank] > 0) == may[rank], c, "rank ", rank, " went past them ", past[rank]);
      check(ranks[rank] == right[rank], c, "rank ", rank, " has the wrong result");
    }
  };
  for (const auto make : kPlans) {
    for (int n = 2; n <= 3; ++n) {
      for (const bool in_place : {false, true}) {
        for (const bool tried : {false, true}) {
          results(make(n), 51, 1, false, in_place, tried);
          results(make(n), 51, 1, true, in_place, tried);
        }
      }
      if (make(n).finished.empty()) continue;
      for (const uint64_t words : {uint64_t{3 * 2048}, uint64_t{3 * 2048 + 1}, uint64_t{3 * 6000}}) {
        results(make(n), words, n, false, false, false);
      }
    }
  }
}

// Where each fold of `rank` has written, and how much: to its output, or elsewhere; and how much of that in loops with
// copies.
struct Made {
  const Words* output;
  uint64_t there = 0, elsewhere = 0, in_loops = 0;
};
Made* made = nullptr;
Kernels made_by{};

void note(const void* dst, size_t count) {
  const auto* const begin = reinterpret_cast<const std::byte*>(made->output->data());
  const bool is_there = dst >= begin && dst < begin + 8 * made->output->size();
  (is_there ? made->there : made->elsewhere) += count;
  check(is_there || count <= 2048, "more than a block is made elsewhere: ", count);
}

void note_fold(void* dst, void* also, const void* const* sources, size_t k, size_t count, uint64_t divisor) {
  note(dst, count);
  made_by.fold(dst, also, sources, k, count, divisor);
}

void note_interleave(const Strands& strands) {
  note(strands.to, strands.bytes / 8);
  made->in_loops += strands.bytes / 8;
  made_by.interleave(strands);
}

// A sum that goes past the caches is made elsewhere, and copied from there; any other one is made where it goes: one in
// place, or which a send reads later, or of less than is worth it.
void test_where_sums_are_made() {
  const auto sums = [](Plan plan, uint64_t bytes, bool in_place, uint64_t loans, uint64_t words = 3 * 2048) {
    Case c{.plan = plan, .sizes = Sizes(plan.chunks, words), .in_place = in_place, .weather = {.seed = kSeed}};
    c.weather.loans = loans;
    std::vector<Program> programs = programs_of(c);
    std::vector<Memory> ranks = draw(c);
    Made found{&ranks[0].out};
    made = &found;
    made_by = std::exchange(programs[0].kernels, {note_fold, note_interleave});
    for (Program& program : programs) {
      if (program.unread_sums != 0) program.unread_sums = bytes;
    }
    play(c, programs, ranks, Port::nothing_offered);
    check(ranks[0] == expected(c)[0], c, "has the wrong result");
    check(found.there + found.elsewhere == words, c, found.there, " and ", found.elsewhere, " made");
    return found.elsewhere == words ? "elsewhere" : found.there == words ? "there" : "both";
  };
  using std::string;
  for (const uint64_t loans : {0, 100}) {
    check(sums(two_shot(2), beyond_caches, false, loans) == string("elsewhere"), "what is sent goes through them");
    check(sums(two_shot(2), beyond_caches, true, loans) == string("there"), "what is made in place goes past them");
    check(sums(two_shot(2), 64, false, loans) == string("there"), "what is short goes past them");
  }
  check(sums(one_shot(3), beyond_caches, false, 0) == string("elsewhere"), "what stays goes through them");
  check(sums(one_shot(3), beyond_caches, true, 0) == string("there"), "what is made in place goes past them");
}

// A sum that goes home is made in one loop with what is copied beside it, in long parts at least.
void test_sums_in_loops() {
  for (const bool in_place : {false, true}) {
    Case c{.plan = two_shot(2), .sizes = {40000, 39999}, .in_place = in_place, .segments = 4};
    c.weather = {.seed = kSeed, .loans = 100, .crowded = false};
    std::vector<Program> programs = programs_of(c);
    std::vector<Memory> ranks = draw(c);
    Made found{&ranks[0].out};
    made = &found;
    made_by = std::exchange(programs[0].kernels, {note_fold, note_interleave});
    play(c, programs, ranks, Port::nothing_offered);
    check(ranks[0] == expected(c)[0], c, "has the wrong result");
    check(found.there == c.sizes[0] && found.in_loops > 0, c, found.in_loops, " of ", found.there, " made in loops");
  }
}

// What goes past the caches: what is made of the output and stays, unless it is read there by more than the message
// that is made beside.
void test_what_is_unread() {
  const auto unread = [](const Plan& plan, bool in_place, bool custom = false) {
    std::vector<Program> programs = lower(plan, Sizes(plan.chunks, 8), in_place);
    if (custom) programs[0].custom = chained_fold;
    measure(programs[0]);
    return std::pair(programs[0].unread_bytes / 64, programs[0].unread_sums / 64);  // chunks
  };
  using Pair = std::pair<uint64_t, uint64_t>;
  check(unread(two_shot(2), false) == Pair(1, 1), "a sum, or what comes home, is read");
  check(unread(two_shot(2), false, true) == Pair(1, 0), "a sum by a function of the caller's is made in blocks");
  check(unread(two_shot(2), true).first == 0, "what comes home in place overwrites nothing");
  check(unread(one_shot(3), false) == Pair(0, 1), "what is folded and stays is read");
  Plan twice = two_shot(2);
  twice.fronts.push_back({{false, {tmp, 1, 0}, {out, 0, 0}}});
  check(unread(twice, false) == Pair(1, 0), "a sum that is sent again later is not read");
  check(unread(chain(2), false) == Pair(0, 0), "what is passed on is not read");
}

// Of nothing, nothing is sent.
void test_empty() {
  for (const auto make : kPlans) {
    const Case c{.plan = make(4), .sizes = Sizes(make(4).chunks), .weather = {.seed = kSeed}};
    for (const End& end : test(c)) check(end.operations == 0, c, end.operations, " operations");
  }
}

// Nobody may leave before everybody came, though not a byte is sent.
void test_barrier() {
  for (uint64_t seed = kSeed; seed < kSeed + 200; ++seed) {
    const int n = 1 + mix(seed, 18) % 5;
    const Case c{.plan = barrier(n), .sizes = {0}, .weather = draw_weather(seed, 1 + mix(seed, 19) % 2, 8)};
    std::vector<Program> programs = lower(c.plan, c.sizes, false);
    std::vector<int> entered(n);
    const std::vector<End> ends = World(n, c.weather).play([&](int rank, FakePort& port) {
      programs[rank].signals = true;
      for (int call = 1; call <= 3; ++call) {
        entered[rank] = call;
        run(programs[rank], port, call, nullptr, nullptr, watchdog());
        for (int other : entered) check(other >= call, c, "rank ", rank, " left too early");
      }
    });
    for (const End& end : ends) check(!end.failure, c, "failed");
  }
}

// With room for everything and no segments, each rank of a ring passes on what it receives as it receives it.
void test_fusion() {
  for (int n = 2; n <= 5; ++n) {
    for (const bool custom : {false, true}) {
      Case c{.plan = ring(n), .sizes = Sizes(n, 7), .weather = {.seed = kSeed + n}, .custom = custom};
      for (const End& end : test(c)) check(end.fused == size_t(2 * n - 3), c, end.fused, " fused");
      c.segments = 3;
      for (const End& end : test(c)) check(end.fused > 0, c, "nothing fused");
      c.segments = 1;
      c.sizes = Sizes(n, 3000);  // long enough for turns, which it takes with none of them
      c.weather.crowded = false;
      for (const End& end : test(c)) check(end.fused == size_t(2 * n - 3), c, end.fused, " fused, of what is long");
    }
  }
}

// What others can read where it lies is not staged, but for what is overwritten in the very step that sends it.
void test_views() {
  for (int n = 2; n <= 5; ++n) {
    for (const bool in_place : {false, true}) {
      Case c{.plan = ring(n), .sizes = Sizes(n, 7), .in_place = in_place, .weather = {.seed = kSeed + n, .views = 100}};
      for (const End& end : test(c)) check(end.viewed == size_t(2 * n - 2), c, end.viewed, " viewed");
      c.plan = one_shot(n);
      c.sizes = {7};
      for (const End& end : test(c)) check(end.viewed == !in_place, c, end.viewed, " viewed");
    }
  }
}

// What is only copied others have the kernel copy: of a ring the second half of the rounds, of a tree all there is. But
// what they can read, or is overwritten in the very step that sends it, is not offered, and what is folded never is.
void test_offers() {
  for (int n = 2; n <= 5; ++n) {
    for (const bool in_place : {false, true}) {
      for (const uint64_t segments : {1, 3}) {
        Case c{.plan = ring(n), .sizes = Sizes(n, 51), .in_place = in_place, .segments = segments};
        c.weather = {.seed = kSeed + n, .refusal = 10, .offers = 100};
        for (const End& end : test(c)) check(end.offered == segments * (n - 1), c, end.offered, " offered");
        c.weather.views = 100;
        for (const End& end : test(c)) check(end.offered == 0, c, end.offered, " offered, though reachable");
        c.weather.views = 0;
        c.plan = one_shot(n);
        c.sizes = {51};
        for (const End& end : test(c)) check(end.offered == 0, c, end.offered, " offered, though folded");
        c.plan = tree(n);
        c.sizes = Sizes(2, 51);
        size_t offered = 0;
        for (const End& end : test(c)) offered += end.offered;
        check(offered > 0, c, "nothing was offered");
      }
    }
  }
}

// What lies there as a whole is copied at once, before it has all been posted; what is made on the way piece by piece.
void test_offers_ahead() {
  constexpr uint64_t segments = 3;
  for (size_t n = 2; n <= 5; ++n) {
    for (const bool in_place : {false, true}) {
      Case c{.plan = direct(int(n)), .sizes = Sizes(n, 51), .in_place = in_place, .segments = segments};
      c.weather = {.seed = kSeed + n, .depth = 1, .offers = 100};
      for (const End& end : test(c)) check(end.copied == n - 1, c, end.copied, " copies of whole chunks");
      c.plan = ring(int(n));
      for (const End& end : test(c)) check(end.copied == segments * (n - 1), c, end.copied, " copies of what is made");
      // What is written later, or read, is not written ahead.
      c.plan = direct(int(n));
      c.plan.fronts.push_back(c.plan.fronts[0]);
      for (const End& end : test(c))
        check(end.copied == 2 * segments * (n - 1), c, end.copied, " copies, twice the same");
    }
  }
  // Nor is anything where receives are told of ahead, which may land meanwhile: more of them than are told of at once.
  Case lands{.plan = direct(5), .sizes = Sizes(5, 51), .segments = 17};
  lands.weather = {.seed = kSeed, .offers = 100, .landings = 100};
  for (const End& end : test(lands)) check(end.copied == 17 * 4, lands, end.copied, " copies of what could land");
  // Rank 0 offers what is to go to where rank 1 sends something from first, or folds something of its own.
  const Move sent{true, {out, 2, 0}, {inp, 1, 0}}, folded{true, {out, 1, 1}, {inp, 1, 0}};
  const Move offered{false, {out, 1, 0}, {inp, 0, 0}};
  for (const Move& first : {sent, folded}) {
    for (uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
      Case c{.plan = {"overwrites", 3, 2, {{first}, {offered}}}, .sizes = {51, 51}, .in_place = true};
      c.segments = segments;
      c.weather = {.seed = seed, .depth = 1, .delay = 9, .offers = 100};
      check(test(c)[1].copied == segments, c, "copies ahead of its turn");
    }
  }
}

// What a choice does where calls take as long as `time` says of the way and of the number of the call, from 0 on, and
// are told of so many calls late: the way of each, a digit.
std::string ways_of(unsigned ways, unsigned calls, auto&& time, unsigned late = 0, double worth = 0.95) {
  Choice choice;
  std::string all;
  for (unsigned i = 0; i < calls; ++i) {
    all += static_cast<char>('0' + choice.begin(ways));
    if (i < late) continue;
    const unsigned told = i - late, way = all[told] - '0';
    choice.tell(way, std::chrono::nanoseconds(time(way, told)), worth);
  }
  return all;
}

// How many of these calls went another way.
size_t others(const std::string& ways, char way) { return ways.size() - std::ranges::count(ways, way); }

// The way that most of these calls went.
char most_of(const std::string& ways) {
  return *std::ranges::max_element(ways, {}, [&](char way) { return std::ranges::count(ways, way); });
}

// Two ways take turns, and the medians of both decide, if by more than chance.
void test_choice_of_two() {
  constexpr unsigned first = Choice::unseen + Choice::trials, four_turns = 4 * Choice::turn;
  unsigned trials = 0;  // in the first round, of either way
  const auto found = [&](int hundredths, double worth = 0.95) {
    const auto time = [&](unsigned way, unsigned) { return way == 1 ? 10 * hundredths : 1000; };
    const std::string ways = ways_of(2, first + Choice::late, time, 0, worth);
    const bool longer = hundredths >= 100;  // than the other one's median, in each of its calls
    check(ways.starts_with(longer ? "0000000011110" : "0000000011111111"), "another way at first: ", ways);
    trials = ways.find_last_of(ways.back() == '1' ? '0' : '1') + 1 - Choice::unseen;
    check(others(ways.substr(first), ways.back()) == 0, "goes on after the last trial: ", ways);
    return ways.back() == '1';
  };
  check(found(90) && trials > 3 * four_turns, "what takes less is not chosen at the end");
  check(found(50) && trials <= four_turns, "is unsure of a half");
  for (const int longer : {100, 110, 200}) {
    check(!found(longer) && trials == 2 * Choice::turn, "tries what takes longer ", trials, " calls");
  }
  check(found(80) && trials > 2 * four_turns && trials <= 3 * four_turns, "is unsure of a fifth");
  check(found(84) && trials > 3 * four_turns, "is sure of a sixth too early");
  check(found(92) && !found(92, 0.9) && found(50, 0.9), "goes by another share of the time than is told");
  check(!found(99) && trials > 3 * four_turns, "what takes as long is chosen, or has lost too early");
  check(!found(0, 0), "a clock that stands still chooses");
  const auto noisy = [](unsigned way, unsigned i) { return i % 3 == 0 ? 1000000 : way == 1 ? 900 : 1000; };
  check(ways_of(2, first + Choice::late, noisy).back() == '1', "noise counts");
  // Of each eight in a row, the first, which finds what the other way has left, would turn the scale.
  auto first_is_slow = [last = 0u, at = 0u](unsigned way, unsigned) mutable {
    at = std::exchange(last, way) != way ? 0 : at + 1;
    return way == 0 ? 1000 : at == 0 || (at < 6 && at % 2 == 1) ? 1100 : 900;
  };
  check(ways_of(2, first + Choice::late, first_is_slow).back() == '1', "the first call of a turn counts");
  Choice unheard;  // of calls that all failed
  for (unsigned i = 0; i < first + Choice::late; ++i) unheard.begin(2);
  check(unheard.begin(2) == 0 && !unheard.tries(), "found without a trial, or not given up");
}

// Whichever is best is found, of two or three, and from each other one, when what was best is so no more; even if calls
// are told of late. So it is soon if they take another time, and in the end if they do not.
void test_choice_goes_on() {
  for (const unsigned ways : {2u, 3u}) {
    for (unsigned was = 0; was < ways; ++was) {
      for (unsigned is = 0; is < ways; ++is) {
        for (const unsigned late : {0u, 1u, Choice::late}) {
          for (const bool seen : {false, true}) {
            constexpr unsigned calls = 2 * Choice::most_rest;
            const auto time = [&](unsigned way, unsigned i) {
              if (i < calls) return way == was ? 1000 : 2000 + 500 * static_cast<int>(way);
              return way == is ? (seen ? 500 : 1000) : way == was && !seen ? 1000 * 3 / 2 : 3000;
            };
            const auto stays = [&](unsigned way, unsigned i) { return time(way, i < calls ? i : calls); };
            const std::string all = ways_of(ways, 4 * calls, stays, late);
            const size_t in_rounds = others(all.substr(calls / 2, calls / 2), static_cast<char>('0' + was));
            const auto end = [&](unsigned at) {
              return most_of(all.substr(at - Choice::least_rest, Choice::least_rest));
            };
            check(end(calls) == static_cast<char>('0' + was), "of ", ways, " ways ", was, " is not found");
            check(in_rounds * 10 < calls / 2, "of ", calls / 2, " calls ", in_rounds, " go another way");
            check(end(4 * calls) == static_cast<char>('0' + is), "of ", ways, " ways ", is, " is not found after ",
                  was);
            const std::string after = all.substr(calls);
            const size_t until = after.find(std::string(Choice::turn, static_cast<char>('0' + is)));
            if (seen && was != is) check(until < Choice::most_rest / 4, "notices after ", until, " calls");
          }
        }
      }
    }
  }
}

// What must gain to be chosen must gain to stay, too.
void test_choice_is_left() {
  const auto stays = [](int hundredths, double worth) {
    const auto time = [&](unsigned way, unsigned i) {
      const int noise = static_cast<int>(mix(kSeed, way, i) % 40);
      return noise + (way == 0 ? 10000 : i < 1000 ? 5000 : 100 * hundredths);
    };
    const std::string all = ways_of(2, 1000 + 2 * Choice::most_rest, time, 1, worth);
    check(most_of(all.substr(500, 500)) == '1', "a half is not chosen");
    return most_of(all.substr(1000 + Choice::most_rest)) == '1';
  };
  for (const int hundredths : {88, 92, 97}) check(!stays(hundredths, 0.85), hundredths, " of 100 stay for 85");
  check(!stays(97, 0.95) && stays(80, 0.85) && stays(92, 0.95), "what gains as much as it must is left");
}

// Rounds are further and further apart where they find the same, and begin as soon as that is when calls take another
// time than the first eight, but for an eighth of it.
void test_rests_of_a_choice() {
  Choice choice;
  bool tried = false;
  std::vector<unsigned> rests;
  unsigned rest = 0, pace = 1000;
  const auto call = [&] {
    const unsigned way = choice.begin(2);
    choice.tell(way, std::chrono::nanoseconds(way == 0 ? pace : 3 * pace), 0.95);
    if (choice.tries() && !std::exchange(tried, true)) rests.push_back(std::exchange(rest, 0));
    if (choice.tries()) return;
    // The call of which the round's end is told is counted, too, but for the first time.
    if (!std::exchange(tried, false) && rest > 0 && !rests.empty()) {
      check((way == 1) == (rest % Choice::glance == 0), way == 1 ? "glances" : "does not glance", " after ", rest);
    }
    ++rest;
  };
  while (rests.size() < 4) call();
  const auto near = [](unsigned a, unsigned b) { return a >= b && a <= b + Choice::looked_at; };
  check(rests[0] == Choice::unseen && near(rests[1], 512) && near(rests[2], 1024) && near(rests[3], 2048),
        "rests for another time: ", rests[1], ", ", rests[2], ", ", rests[3]);
  while (rests.size() < 5) {
    if (rest == Choice::looked_at) pace = 3000;  // of these first ones it knows what calls take
    call();
  }
  check(near(rests[4], 4096 / Choice::patience), "after another time rests for ", rests[4]);
  while (rests.size() < 16) call();
  check(near(rests.back(), Choice::most_rest), "rests for ", rests.back(), " in the end");
  for (unsigned i = 0; i < 2 * Choice::most_rest; ++i) {
    if (choice.begin(2, false); choice.tries()) continue;
    check(choice.begin(2, false) == 0 && !choice.tries(), "begins where it may not");
  }
}

// Where calls take another time in every eight, since ranks come late, rounds are not much more often.
void test_choice_in_a_crowd() {
  for (uint64_t seed = kSeed; seed < kSeed + 20; ++seed) {
    Choice choice;
    unsigned calls = 0, rest = 1;
    const auto tries = [&] {
      const unsigned way = choice.begin(2);
      choice.tell(way, std::chrono::nanoseconds((way == 0 ? 1000 : 1300) << mix(seed, calls++ / 8) % 4), 0.95);
      return choice.tries();
    };
    while (!tries()) continue;
    while (tries()) continue;
    while (!tries()) ++rest;
    check(rest >= 256, "seed ", seed, ": a round begins after ", rest, " calls");
  }
}

// What has become better is found by glances, from the longest rest too, though the best takes the same as ever; and
// what takes less than a call that others have come late to is not taken for it.
void test_glances_of_a_choice() {
  constexpr unsigned ways = 3, most = Choice::most_rest;
  for (unsigned is = 1; is < ways; ++is) {
    for (unsigned calls = 4 * most; calls < 5 * most; calls += most / 4) {  // no more than one of these by a round
      const auto time = [&](unsigned way, unsigned i) { return way == 0 ? 1000 : i < calls || way != is ? 1300 : 500; };
      const std::string after = ways_of(ways, 2 * calls, time, 1).substr(calls);
      const char better = static_cast<char>('0' + is);
      const size_t until = after.find(std::string(Choice::turn, better));
      check(until < most / Choice::patience + ways * Choice::glance, "finds way ", is, " after ", until);
      check(others(after.substr(most), better) * 10 < calls - most, "way ", is, " is not kept");
    }
  }
  const auto rounds_of = [&](auto&& time) {
    const std::string all = ways_of(2, 4 * most, time).substr(2 * most);
    unsigned rounds = 0;
    for (size_t at = 0; (at = all.find(std::string(Choice::turn, '1'), at)) != std::string::npos;
         at += Choice::trials) {
      ++rounds;
    }
    return rounds;
  };
  const unsigned rounds = rounds_of([](unsigned way, unsigned) { return way == 0 ? 1000 : 1100; });
  check(rounds > 0, "no round in ", 2 * most, " calls");
  const auto late = [](unsigned way, unsigned i) { return (way == 0 ? 1000 : 1100) + (i % 7 == 0 ? 0 : 5000); };
  check(rounds_of(late) <= rounds, "a glance at a call without waiting begins rounds");
}

// All send as rank 0 has said, until it says something else; and staged, if it has said nothing.
void test_sending() {
  Sending first, other;
  std::array<bool, 3> seen{};
  bool tried = false;
  for (unsigned i = 0; i < 1000 || first.is_busy(); ++i) {
    const Sending::Way way = first.way();
    check(other.way() == way && other.tries() == first.tries(), "goes another way in call ", i);
    seen[way] = true;
    tried |= first.tries();
    const uint32_t said = first.say(3, true);
    first.tell(std::chrono::nanoseconds(way == Sending::past_caches ? 500 : 1000), false);
    first.follow(said);
    other.follow(said);
  }
  check(tried && seen[0] && seen[1] && seen[2], "does not try all");
  check(other.way() == Sending::past_caches && !other.tries(), "does not do what was found");
  other.follow(0);
  check(other.way() == Sending::past_caches, "forgets what it has heard");
  for (const uint32_t nonsense : {~0u, ~0u >> 1}) other.follow(nonsense);
  check(other.way() == Sending::offered, "goes no way at all");
  for (unsigned i = 0; i < 1000; ++i) check((first.say(3, false) & 1u << 31) == 0, "tries where it may not");
  const auto found = [](int hundredths, bool in_crowd) {  // where what is offered takes so many of the time
    Sending sending;
    std::array<unsigned, 3> went{};  // in the end, but for glances
    for (unsigned i = 0; i < 1000 || sending.is_busy(); ++i) {
      if (i >= 900) ++went[sending.way()];
      const uint32_t said = sending.say(3, true);
      sending.tell(std::chrono::nanoseconds(sending.way() == Sending::offered ? 10 * hundredths : 1000), in_crowd);
      sending.follow(said);
    }
    return static_cast<Sending::Way>(std::ranges::max_element(went) - went.begin());
  };
  check(found(92, false) == Sending::offered, "a little is not enough");
  check(found(92, true) == Sending::staged, "a little is enough in a crowd");
  check(found(50, true) == Sending::offered, "a half is not enough in a crowd");
}

// The call before a round, which nobody has waited for, is no part of it: counted as one of the best, it would let the
// challenger lose.
void test_a_round_begins_with_its_calls() {
  Sending sending;
  unsigned tried = 0;
  std::array<unsigned, 2> calls{};
  for (unsigned i = 0; i < 40; ++i) {
    const bool tries = sending.tries();
    const unsigned way = sending.way() != Sending::staged;
    const uint64_t said = sending.say(2, true);
    const unsigned number = tries ? calls[way]++ : 0;
    sending.tell(std::chrono::nanoseconds(!tries ? 1 : way == 1 ? 1150 : 1000 + 100 * (number % 4)), false);
    sending.follow(static_cast<uint32_t>(said));
    tried += tries && way == 1;
  }
  check(tried > 2 * Choice::turn, "loses after ", tried, " calls");
}

// Where results may go past the caches as well, as rank 0 sends, that is tried while how they are sent is not, and each
// is found: the one gains, and the other one loses.
void test_one_choice_at_a_time() {
  for (const bool past_is_better : {false, true}) {
    for (const bool offers_are_better : {false, true}) {
      Sending sending;
      PastCaches results;
      bool past = false;
      unsigned sends = 0, writes = 0;
      for (unsigned i = 0; i < 20 * Choice::least_rest || sending.is_busy() || results.tries(); ++i) {
        const uint32_t said = sending.say(3, !results.tries());
        past = results.begin(PastCaches::least, !sending.is_busy());
        check(!results.tries() || !sending.tries(), "two choices at once in call ", i);
        sends += sending.tries();
        writes += results.tries();
        const bool offered = sending.way() == Sending::offered;
        const int time = 4000 * (past ? (past_is_better ? 1 : 4) : 2) * (offered ? (offers_are_better ? 1 : 4) : 2);
        sending.tell(std::chrono::nanoseconds(time), false);
        results.tell(std::chrono::nanoseconds(time));
        sending.follow(said);
      }
      check(sends > 0 && writes > 0, "one of both is not tried: ", sends, ", ", writes);
      check(past == past_is_better && (sending.way() == Sending::offered) == offers_are_better, "finds the wrong one");
    }
  }
}

// In any of the ways, from one call to the next, and with ranks that have not heard of it, results are right; and all
// go as they are told, but that who only gets offers nothing, and nothing is chosen between hosts.
void test_ways_to_send() {
  for (const auto make : {ring, tree, two_shot}) {
    const Sizes sizes(make(2).chunks, least_tried / 8 + 3);
    Case c{.plan = make(2), .sizes = sizes, .weather = {.seed = kSeed}};
    c.calls = 32;
    std::vector<Program> programs = programs_of(c);
    c.weather.offers = 100;
    for (const auto may : {Port::what_is_faster, Port::nothing_offered}) {
      std::vector<Memory> ranks = draw(c);
      std::array<unsigned, 2> offers{};
      const std::vector<End> ends = play(c, programs, ranks, may, [&](int rank, int call) {
        Sending& sending = programs[rank].sending;
        offers[rank] += sending.way() == Sending::offered;
        if (mix(kSeed + rank, call) % 4 != 0) sending.follow(1 + mix(kSeed, call) % 3);
      });
      for (int rank = 0; rank < 2; ++rank) {
        const Program& program = programs[rank];
        const size_t copied = std::ranges::count_if(program.sends, &Send::copied);
        const bool only_gets = c.plan.name == "tree" && rank != 0;
        const bool offered = may == Port::what_is_faster && !only_gets;
        check(program.ways == (only_gets ? 2 : 3), c, "rank ", rank, " has ", program.ways, " ways");
        check(ranks[rank] == expected(c)[rank], c, "rank ", rank, " has the wrong result");
        check(offers[rank] > 0 && ends[rank].offered == (offered ? copied * offers[rank] : 0), c, "rank ", rank,
              " offered ", ends[rank].offered, " in ", offers[rank], " calls");
      }
    }
  }
  const Sizes sizes(2, least_tried / 8);
  std::vector<Program> of_tree = programs_of({.plan = tree(2), .sizes = sizes});
  of_tree[0].untold = {2};  // whose time would be no part of rank 0's
  measure(of_tree[0]);
  check(of_tree[0].ways == 2, "offers what it does not send to all");
  World(1, {}).play([](int, FakePort& port) {
    Program program{};
    program.ways = 3;
    port.listens = false;
    port.offering = Port::what_is_faster;
    check(ways(program, port) == 3, "does not choose");
    port.offering = Port::nothing_offered;
    check(ways(program, port) == 2, "chooses what is never done");
    port.offering = Port::all_offered;
    check(ways(program, port) == 1, "chooses where all is offered");
    port.offering = Port::what_is_faster;
    port.listens = true;
    check(ways(program, port) == 1, "chooses between hosts");
  });
}

// Who has long messages to send or gets some chooses, but for what a function of the caller's folds.
void test_what_has_ways() {
  for (const uint64_t words : {least_tried / 8 - 1, least_tried / 8}) {
    const bool is_long = words * 8 >= least_tried;
    for (Program& program : lower(one_shot(3), Sizes(1, words), false)) {
      check(program.ways == (is_long ? 2 : 1), words, " words that are folded have ", program.ways, " ways");
      program.custom = chained_fold;  // which may take long, or fail: who has sent what it folds goes on
      measure(program);
      check(program.ways == 1, words, " words that a function of the caller's folds have ", program.ways, " ways");
    }
    for (const Program& program : lower(two_shot(3), Sizes(3, words), false)) {
      check(program.ways == (is_long ? 3 : 1), words, " words in three parts have ", program.ways, " ways");
    }
  }
}

// The sums of rank 0 that were written to a message in the pass that made them, and all that were made: in its memory,
// or in a block on its stack, or elsewhere.
uint64_t made_beside = 0, made_at_all = 0, made_in_slots = 0;
std::vector<std::pair<const void*, uint64_t>> memory_of_first;

void note_beside(void* dst, void* also, const void* const* sources, size_t k, size_t count, uint64_t divisor) {
  made_at_all += count;
  const auto lies_in = [&](const void* begin, uint64_t bytes) {
    const auto* const first = static_cast<const std::byte*>(begin);
    return dst >= first && dst < first + bytes;
  };
  const bool is_its = std::ranges::any_of(memory_of_first, [&](const auto& m) { return lies_in(m.first, m.second); });
  if (!is_its && !lies_in(__builtin_frame_address(0), 64 << 10)) made_in_slots += count;
  if (also != nullptr) made_beside += count;
  made_by.fold(dst, also, sources, k, count, divisor);
}

// Where messages go past the caches a sum goes to its message by blocks, which are copied there when they are made, but
// for what goes home; results are right whatever is folded, and wherever they go.
void test_sums_that_go_past_caches() {
  const auto beside = [](const Case& c, Sending::Way way, bool result_goes_past = false) {
    std::vector<Program> programs = programs_of(c);
    for (Program& program : programs) {
      program.sending.follow(1 + way);
      program.ways = 1 + Sending::past_caches;
      if (result_goes_past && program.unread_sums != 0) program.unread_sums = beyond_caches;
    }
    made_beside = made_at_all = made_in_slots = 0;
    if (!c.custom) made_by = std::exchange(programs[0].kernels, {note_beside, programs[0].kernels.interleave});
    std::vector<Memory> ranks = draw(c);
    programs[0].scratch.resize(programs[0].tmp_bytes);
    memory_of_first = {{ranks[0].out.data(), 8 * ranks[0].out.size()},
                       {programs[0].scratch.data(), programs[0].scratch.size()}};
    play(c, programs, ranks, Port::nothing_offered);
    const std::vector<Memory> right = expected(c);
    for (int rank = 0; rank < c.plan.size; ++rank) {
      check(ranks[rank] == right[rank], c, "way ", way, ": rank ", rank, " has the wrong result");
    }
    const bool is_lent = c.weather.loans != 0 && c.plan.size == 2;
    check(is_lent || made_in_slots == 0, c, "way ", way, ": is made in a slot");
    check(c.custom || (made_at_all > 0) == !c.plan.finished.empty(), c, made_at_all, " words were summed");
    return made_beside;
  };
  for (const auto make : kPlans) {
    for (int n = 2; n <= 4; ++n) {
      for (const uint64_t segments : {1, 3}) {
        for (const unsigned loans : {0u, 100u}) {
          Case c{.plan = make(n), .sizes = Sizes(make(n).chunks, least_tried / 8 + 5), .segments = segments};
          c.weather = {.seed = kSeed + n, .loans = loans};
          const bool goes_home = loans != 0 && n == 2 && (c.plan.name == "two_shot" || c.plan.name == "ring");
          const bool sums = !c.plan.finished.empty();
          for (const bool in_place : {false, true}) {
            c.in_place = in_place;
            check(goes_home || beside(c, Sending::past_caches) == 0, c, "is written to a message through the caches");
            for (const bool custom : {false, true}) {
              c.custom = custom;
              c.divisor = custom || !sums ? 1 : n;
              beside(c, Sending::past_caches);
              beside(c, Sending::past_caches, true);
            }
            c.custom = false;
            c.divisor = 1;
          }
          if (goes_home) check(beside(c, Sending::past_caches) > 0, c, "does not go home");
          if (c.plan.name == "two_shot") check(beside(c, Sending::staged) > 0, c, "is written to no message");
        }
      }
    }
  }
  Case c{.plan = two_shot(3), .sizes = Sizes(3, least_tried / 8 - 1), .weather = {.seed = kSeed}};
  check(beside(c, Sending::past_caches) > 0, c, "what is short goes past the caches");
  c.sizes = Sizes(3, least_tried / 8);
  c.weather.puts = 100;
  c.calls = 3;  // from the second one on it is known where the others' outputs are
  check(beside(c, Sending::past_caches) > 0, c, "what is put goes past the caches");
}

// Who only sends leaves a call once all is sent; one that is tried, only when all is read.
void test_tried_calls_end_when_read() {
  const Sizes sizes(2, least_tried / 8);
  const Case c{.plan = tree(2), .sizes = sizes, .weather = {.seed = kSeed, .delay = 9, .offers = 100}};
  std::vector<Program> programs = programs_of(c);
  std::vector<Memory> ranks = draw(c);
  std::array<std::array<unsigned, 2>, 3> unread{};  // calls, of each way, tried or not
  World(2, c.weather).play([&](int rank, FakePort& port) {
    port.offering = Port::what_is_faster;
    Program& program = programs[rank];
    for (unsigned call = 1; call <= 60; ++call) {
      const unsigned way = call % 3, tried = call % 2;
      program.sending.follow((1 + way) | tried << 31);
      auto* const out = reinterpret_cast<std::byte*>(ranks[rank].out.data());
      port.enter(out);
      run(program, port, call, reinterpret_cast<const std::byte*>(ranks[rank].inp.data()), out, watchdog());
      if (rank == 0) unread[way][tried] += !port.consumed(1, port.posted(1));
    }
  });
  for (unsigned way = 0; way < 3; ++way) {
    check(unread[way][true] == 0, "leaves ", unread[way][true], " tried calls of way ", way, " unread");
    check((unread[way][false] > 0) == (way != Sending::offered), "is in way ", way, " read ", unread[way][false]);
  }
}

// Where two ranks exchange parts, the sums come home in the slots: half of the messages are enough. What can be read
// where it lies, or written, is not lent, whatever the other rank does.
void test_loans() {
  for (const auto make : {two_shot, ring}) {
    for (const bool in_place : {false, true}) {
      for (const uint64_t segments : {1, 3, 17}) {
        Case c{.plan = make(2), .sizes = {51, 34}, .in_place = in_place, .segments = segments};
        c.weather = {.seed = kSeed + segments, .loans = 100};
        const uint64_t segment = segment_of(c.sizes, segments);
        const std::vector<Program> programs = programs_of(c);
        const std::vector<End> ends = test(c);
        for (int rank = 0; rank < 2; ++rank) {
          const auto pieces = [&](const Send& s) { return (s.bytes + segment - 1) / segment; };
          const size_t out = pieces(programs[rank].sends[0]), in = pieces(programs[1 - rank].sends[0]);
          check(ends[rank].lent == out, c, "rank ", rank, " lent ", ends[rank].lent);
          check(ends[rank].operations == out + in, c, "rank ", rank, ": ", ends[rank].operations, " operations");
        }
        c.weather.views = 100;
        for (const End& end : test(c)) check(end.lent == 0, c, end.lent, " lent");
      }
    }
  }
}

// Who alone has used a peer's slot writes the result there: the owners of two_shot do, once a peer is known to have
// come.
void test_puts() {
  size_t put = 0;
  for (int n = 2; n <= 5; ++n) {
    for (const bool in_place : {false, true}) {
      for (uint64_t seed = kSeed; seed < kSeed + 10; ++seed) {
        Case c{.plan = two_shot(n), .sizes = Sizes(n, 7), .in_place = in_place, .weather = {.seed = seed, .puts = 100}};
        c.custom = seed % 2;
        for (const End& end : test(c)) put += end.put;
      }
    }
  }
  check(put > 0, "nothing was put");
}

// What is only copied is received where it is to be, whatever else the rank does meanwhile: in a broadcast all that
// comes once it is expected. What is folded never is.
void test_landings() {
  size_t landed = 0;
  for (int n = 2; n <= 5; ++n) {
    for (const uint64_t segments : {1, 17}) {
      Case c{.plan = tree(n), .sizes = Sizes(2, 34), .segments = segments, .weather = {.seed = kSeed, .landings = 100}};
      for (const bool in_place : {false, true}) {
        c.in_place = in_place;
        for (const End& end : test(c)) landed += end.landed;
        c.plan = one_shot(n);
        c.sizes = {34};
        for (const End& end : test(c)) check(end.landed == 0, c, end.landed, " landed");
        c.plan = ring(n);
        c.sizes = Sizes(n, 34);
        for (const End& end : test(c)) landed += end.landed;
      }
    }
  }
  check(landed > 0, "nothing landed");
}

// What is timed stands for all calls, long and short, but for the few since the last one.
void test_meter() {
  for (const uint64_t calls : {1, 63, 64, 65, 500, 5000}) {
    for (const bool is_long : {false, true}) {
      Meter meter(std::make_shared<Traffic>(2));
      uint64_t timed = 0, weights = 0;
      for (uint64_t i = 0; i < calls; ++i) {
        const uint64_t weight = meter.weight(is_long ? 64 << 10 : (64 << 10) - 1);
        timed += weight != 0;
        weights += weight;
        meter.add(3, {{1, 5, 7}});
        if (weight != 0) meter.time(weight, std::chrono::microseconds(2), std::chrono::microseconds(1));
      }
      check(meter.calls.get() == calls && meter.bytes.get() == 3 * calls, "miscounted");
      check(is_long ? timed == calls : timed <= 64 + calls / 64, timed, " timed of ", calls);
      check(weights >= calls && weights < calls + 64, weights, " for ", calls);
      check(meter.nanoseconds.get() == 2000 * weights && meter.waited.get() == 1000 * weights, "mistimed");
    }
  }
}

}  // namespace

int main() {
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(kSeed));
  test_meaning();
  test_plans();
  test_anything(2000, 1);
  test_turns();
  test_grain();
  test_grain_choice();
  test_functions();
  test_past_caches();
  test_past_caches_on_trial();
  test_results_on_trial();
  test_where_sums_are_made();
  test_sums_in_loops();
  test_what_is_unread();
  test_empty();
  test_barrier();
  test_fusion();
  test_views();
  test_offers();
  test_offers_ahead();
  test_choice_of_two();
  test_choice_goes_on();
  test_choice_is_left();
  test_rests_of_a_choice();
  test_choice_in_a_crowd();
  test_glances_of_a_choice();
  test_sending();
  test_a_round_begins_with_its_calls();
  test_one_choice_at_a_time();
  test_ways_to_send();
  test_what_has_ways();
  test_sums_that_go_past_caches();
  test_tried_calls_end_when_read();
  test_loans();
  test_puts();
  test_landings();
  test_meter();
  return report();
}
