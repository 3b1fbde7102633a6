// Small plans, what they mean, and the engine programs they become: written anew here, so that the engine is tested by
// something else than what feeds it.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "engine/engine.h"

namespace hocket::testing {

using Words = std::vector<uint64_t>;

struct Span {
  Buffer buffer;
  int rank, chunk, chunks = 1;
  auto operator<=>(const Span&) const = default;

  bool overlaps(const Span& other) const {
    return buffer == other.buffer && rank == other.rank && chunk < other.chunk + other.chunks &&
           other.chunk < chunk + chunks;
  }
};

struct Move {
  bool reduce;
  Span to, from;
};

// Moves that happen together: they read what was there before, then apply in order.
using Front = std::vector<Move>;

struct Plan {
  std::string name;
  int size, chunks;
  std::vector<Front> fronts;
  std::vector<Span> finished = {};  // their first fold is the last: a mean is divided there
};

// Elements per chunk; chunk c of every buffer of every rank has sizes[c], and they lie one after the other.
using Sizes = std::vector<uint64_t>;

inline uint64_t total(const Sizes& sizes) { return std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}); }
inline uint64_t begin_of(const Sizes& sizes, const Span& span) {
  return std::accumulate(sizes.begin(), sizes.begin() + span.chunk, uint64_t{0});
}
inline uint64_t length_of(const Sizes& sizes, const Span& span) {
  const auto begin = sizes.begin() + span.chunk;
  return std::accumulate(begin, begin + span.chunks, uint64_t{0});
}

// The segment, in bytes, that cuts the longest chunk into `segments`. Uncut, a message may be of all chunks.
inline uint64_t segment_of(const Sizes& sizes, uint64_t segments) {
  const uint64_t whole = segments == 1 ? total(sizes) : *std::max_element(sizes.begin(), sizes.end());
  return 8 * std::max<uint64_t>(1, (whole + segments - 1) / segments);
}

// What one rank has. In place, `inp` is empty and `out` is both.
struct Memory {
  Words inp, out, tmp;
  bool operator==(const Memory&) const = default;
};

using Fold2 = uint64_t (*)(uint64_t, uint64_t);

inline uint64_t add(uint64_t a, uint64_t b) { return a + b; }
inline uint64_t chained(uint64_t a, uint64_t b) { return a * 31 + b; }  // shows the order of its operands

// ---- the meaning ----------------------------------------------------------------------------------------------------

// Runs `plan` on all ranks' memory, front by front and move by move.
inline void interpret(const Plan& plan, const Sizes& sizes, std::vector<Memory>& ranks, Fold2 fold, uint64_t divisor) {
  const auto words = [&](std::vector<Memory>& all, const Span& span) {
    Memory& m = all[span.rank];
    Words& buffer = span.buffer == tmp ? m.tmp : span.buffer == inp && !m.inp.empty() ? m.inp : m.out;
    return std::span(buffer).subspan(begin_of(sizes, span), length_of(sizes, span));
  };
  std::vector<Span> unfinished = plan.finished;
  for (const Front& front : plan.fronts) {
    std::vector<Memory> old = ranks;
    for (size_t i = 0; i < front.size(); ++i) {
      const auto& [reduce, to, from] = front[i];
      const auto source = words(old, from), target = words(ranks, to);
      if (!reduce) {
        std::ranges::copy(source, target.begin());
        continue;
      }
      std::ranges::transform(target, source, target.begin(), fold);
      const bool last =
          std::none_of(front.begin() + i + 1, front.end(), [&, &to = to](const Move& m) { return m.to == to; });
      if (last && std::erase(unfinished, to) > 0) {
        for (uint64_t& word : target) word /= divisor;
      }
    }
  }
}

// ---- the program ----------------------------------------------------------------------------------------------------

// One rank's sends and receives, in the order of the engine, with what each has to wait for.
class Lowering {
 public:
  Lowering(const Plan& plan, const Sizes& sizes, int rank, bool in_place)
      : sizes_(sizes), rank_(rank), in_place_(in_place), finished_(plan.finished) {
    uint32_t step = 0;
    for (const Front& front : plan.fronts) {
      read_now_.clear();
      for (const Move& move : front) {
        for (const auto& use : uses(move.from)) read_now_.insert(use);
      }
      std::map<std::pair<int, int>, int> messages;
      for (const Move& move : front) ++messages[{move.from.rank, move.to.rank}];
      const auto once = [&](const Move& move) { return messages[{move.from.rank, move.to.rank}] == 1; };
      send(front, step, once);
      receive(front, step, once);
      for (const Move& move : front) {
        for (const Span& span : {move.from, move.to}) {
          for (const auto& use : uses(span)) users_[use].insert(move.to.rank);
        }
      }
      ++step;
    }
    program.itemsize = 8;
    program.divisor = 1;
    program.tmp_bytes = 8 * total(sizes);
    program.kernels = find_kernels(Dtype::u64, Op::sum);
    if (plan.size == 2 && (plan.name == "two_shot" || plan.name == "ring")) {
      program.sends[0].home = 1;  // a part goes out, and its sum comes home
      program.receives[0].answer = 1;
    }
    measure(program);
  }

  Program program{};

 private:
  template <class Once>
  void send(const Front& front, uint32_t step, const Once& once) {
    const bool copied = std::ranges::none_of(front, [](const Move& move) { return move.reduce; });
    std::map<Span, size_t> shared;
    for (const Move& move : front) {
      if (move.from.rank != rank_ || move.to.rank == rank_) continue;
      const bool put = can_put(move);
      if (once(move) && shared.contains(move.from)) {
        Send& s = program.sends[shared[move.from]];
        s.peers.push_back(move.to.rank);
        s.put &= put;
        s.after = std::max(s.after, heard(move));
        continue;
      }
      const int32_t index = static_cast<int32_t>(program.sends.size());
      if (once(move)) shared[move.from] = index;
      program.sends.push_back({.step = step,
                               .mark = mark(step, move.from),
                               .from = place(move.from),
                               .bytes = bytes(move.from),
                               .peers = {move.to.rank},
                               .after = put ? std::max(writer(move.from), heard(move)) : writer(move.from),
                               .staged = false,
                               .put = put,
                               .copied = copied});
      for (const Slot& slot : slots(move.from)) readers_[slot].push_back(index);
    }
  }

  template <class Once>
  void receive(const Front& front, uint32_t step, const Once& once) {
    std::map<Span, size_t> folds;
    for (const Move& move : front) {
      if (move.to.rank != rank_) continue;
      const bool local_source = move.from.rank == rank_;
      if (!folds.contains(move.to) || (!local_source && !once(move))) {
        Receive r{step, place(move.to), bytes(move.to), {}, false, readers(move.to, step)};
        if (move.reduce) r.sources.push_back({local, 0, place(move.to)});
        folds[move.to] = program.receives.size();
        program.receives.push_back(r);
      }
      Receive& r = program.receives[folds[move.to]];
      for (const auto& use : uses(move.from)) heard_[use] = static_cast<int32_t>(folds[move.to]);
      r.sources.push_back({local_source ? local : move.from.rank, mark(step, move.from), place(move.from)});
    }
    for (const auto& [span, index] : folds) {
      for (const Slot& slot : slots(span)) writer_[slot] = static_cast<int32_t>(index);
      const bool reduced = program.receives[index].sources.size() > 1;
      program.receives[index].finished = reduced && std::erase(finished_, span) > 0;
    }
  }

  using Slot = std::pair<Buffer, int>;

  // One name for slots that share memory.
  std::vector<Slot> slots(const Span& span) const {
    std::vector<Slot> all;
    const Buffer buffer = in_place_ && span.buffer == inp ? out : span.buffer;
    for (int c = span.chunk; c < span.chunk + span.chunks; ++c) all.push_back({buffer, c});
    return all;
  }

  // The receive that made what `span` holds.
  int32_t writer(const Span& span) const {
    int32_t index = nothing;
    for (const Slot& slot : slots(span)) {
      if (writer_.contains(slot)) index = std::max(index, writer_.at(slot));
    }
    return index;
  }

  // The sends that read what is now overwritten in `span`.
  std::vector<int32_t> readers(const Span& span, uint32_t step) {
    std::set<int32_t> all;
    for (const Slot& slot : slots(span)) {
      all.insert(readers_[slot].begin(), readers_[slot].end());
      readers_[slot].clear();
    }
    for (int32_t send : all) program.sends[send].staged |= program.sends[send].step == step;
    return {all.begin(), all.end()};
  }

  // A rank and a chunk of it, as inp or as out.
  using Use = std::pair<int, int>;

  static std::vector<Use> uses(const Span& span) {
    std::vector<Use> all;
    for (int c = span.chunk; c < span.chunk + span.chunks && span.buffer != tmp; ++c) all.push_back({span.rank, c});
    return all;
  }

  // Whether this rank may write what it sends to where it will be: nobody else used that before, nobody reads it now.
  bool can_put(const Move& move) {
    if (move.reduce || move.from.buffer != out || move.to.buffer != out) return false;
    return std::ranges::all_of(uses(move.to), [&](const Use& use) {
      const std::set<int>& users = users_[use];
      return !read_now_.contains(use) && std::ranges::all_of(users, [&](int user) { return user == rank_; });
    });
  }

  // The last receive that read what a put overwrites.
  int32_t heard(const Move& move) const {
    int32_t index = nothing;
    for (const Use& use : uses(move.to)) {
      if (heard_.contains(use)) index = std::max(index, heard_.at(use));
    }
    return index;
  }

  Place place(const Span& span) const { return {span.buffer, 8 * begin_of(sizes_, span)}; }
  uint64_t bytes(const Span& span) const { return 8 * length_of(sizes_, span); }

  static uint32_t mark(uint32_t step, const Span& span) {
    return static_cast<uint32_t>(mix(step, span.buffer, span.chunk));
  }

  const Sizes& sizes_;
  const int rank_;
  const bool in_place_;
  std::vector<Span> finished_;
  std::map<Slot, int32_t> writer_;
  std::map<Slot, std::vector<int32_t>> readers_;
  std::map<Use, std::set<int>> users_;  // before this front
  std::set<Use> read_now_;
  std::map<Use, int32_t> heard_;
};

// Every rank's program, its chunks cut into `segments` at most.
inline std::vector<Program> lower(const Plan& plan, const Sizes& sizes, bool in_place, uint64_t segments = 1) {
  std::vector<Program> programs;
  for (int rank = 0; rank < plan.size; ++rank) {
    programs.push_back(Lowering(plan, sizes, rank, in_place).program);
    programs.back().segment = segment_of(sizes, segments);
  }
  return programs;
}

// ---- the plans ------------------------------------------------------------------------------------------------------

// Chunk c goes twice round, less two hops: once to be summed, once to be spread.
inline Plan ring(int n) {
  Plan plan{"ring", n, n, {}};
  if (n == 1) plan.fronts.push_back({{false, {out, 0, 0}, {inp, 0, 0}}});
  for (int hop = 0; hop < 2 * n - 2; ++hop) {
    Front& front = plan.fronts.emplace_back();
    for (int c = 0; c < n; ++c) {
      const int here = (c + hop) % n, there = (c + hop + 1) % n;
      if (hop < n - 1) front.push_back({false, {out, there, c}, {inp, there, c}});
      front.push_back({hop < n - 1, {out, there, c}, {hop == 0 ? inp : out, here, c}});
      if (hop == n - 2) plan.finished.push_back({out, there, c});
    }
  }
  return plan;
}

// What rank `to` does to have chunk c of all ranks folded in their order.
inline void fold_all(Plan& plan, Front& front, int to, int c) {
  for (int from = 0; from < plan.size; ++from) front.push_back({from > 0, {out, to, c}, {inp, from, c}});
  plan.finished.push_back({out, to, c});
}

inline Plan one_shot(int n) {
  Plan plan{"one_shot", n, 1, {{}}};
  for (int to = 0; to < n; ++to) fold_all(plan, plan.fronts[0], to, 0);
  return plan;
}

inline Plan two_shot(int n) {
  Plan plan{"two_shot", n, n, {{}, {}}};
  for (int c = 0; c < n; ++c) {
    fold_all(plan, plan.fronts[0], c, c);
    for (int to = 0; to < n; ++to) {
      if (to != c) plan.fronts[1].push_back({false, {out, to, c}, {out, c, c}});
    }
  }
  return plan;
}

// Chunk c of rank c goes to all others.
inline Plan direct(int n) {
  Plan plan{"direct", n, n, {{}}};
  for (int c = 0; c < n; ++c) {
    for (int to = 0; to < n; ++to) {
      if (to != c) plan.fronts[0].push_back({false, {out, to, c}, {inp, c, c}});
    }
  }
  return plan;
}

// Broadcasts of two chunks from rank 0: from each rank to the next, and down a binomial tree.
inline Plan chain(int n) {
  Plan plan{"chain", n, 2, {{}}};
  for (int c = 0; c < 2; ++c) plan.fronts[0].push_back({false, {out, 0, c}, {inp, 0, c}});
  for (int here = 0; here + 1 < n; ++here) {
    Front& front = plan.fronts.emplace_back();
    for (int c = 0; c < 2; ++c) front.push_back({false, {out, here + 1, c}, {out, here, c}});
  }
  return plan;
}

inline Plan tree(int n) {
  Plan plan{"tree", n, 2, {{}}};
  for (int c = 0; c < 2; ++c) plan.fronts[0].push_back({false, {out, 0, c}, {inp, 0, c}});
  for (int distance = 1; distance < n; distance *= 2) {
    Front& front = plan.fronts.emplace_back();
    for (int here = 0; here < distance && here + distance < n; ++here) {
      for (int c = 0; c < 2; ++c) front.push_back({false, {out, here + distance, c}, {out, here, c}});
    }
  }
  return plan;
}

// Everyone hears of everyone, by tokens of no bytes.
inline Plan barrier(int n) {
  Plan plan{"barrier", n, 1, {}};
  for (int distance = 1; distance < n; distance *= 2) {
    Front& front = plan.fronts.emplace_back();
    for (int here = 0; here < n; ++here) front.push_back({true, {out, (here + distance) % n, 0}, {out, here, 0}});
  }
  return plan;
}

// Anything that moves: copies and folds of many sources, between any slots, also both ways at once, and of many chunks
// if there are `spans`. Nobody would write such a plan; the engine must do it all the same, if only the buffers hold
// what is sent in a front (`most_messages`).
inline Plan anything(int n, uint64_t seed, bool spans) {
  std::mt19937_64 random(seed);
  const auto below = [&](int k) { return static_cast<int>(random() % k); };
  Plan plan{"anything", n, 1 + below(4), {}};
  for (int fronts = 1 + below(8); fronts > 0; --fronts) {
    Front front;
    const auto is_written = [&](const Span& span) {
      return std::ranges::any_of(front, [&](const Move& m) { return m.to.overlaps(span); });
    };
    for (int folds = 1 + below(2 * n); folds > 0; --folds) {
      Span to{below(2) ? out : tmp, below(n), below(plan.chunks)};
      if (spans) to.chunks += below(plan.chunks - to.chunk);
      if (is_written(to)) continue;
      bool reduce = below(2);
      for (int k = 1 + below(4); k > 0; --k, reduce = true) {
        front.push_back({reduce, to, {static_cast<Buffer>(below(3)), below(n), to.chunk, to.chunks}});
      }
    }
    for (Move& move : front) {  // what a rank reads of its own, it may not write
      if (move.to.rank == move.from.rank && is_written(move.from)) move.from.buffer = inp;
    }
    plan.fronts.push_back(front);
  }
  return plan;
}

// The most messages that are sent in a front, from one rank to another (`to_one`) and from one rank to all.
struct Messages {
  size_t to_one = 0, to_all = 0;
};

inline Messages most_messages(const Plan& plan) {
  Messages most;
  for (const Front& front : plan.fronts) {
    std::map<std::pair<int, int>, size_t> pairs;
    std::map<int, size_t> ranks;
    for (const Move& move : front) {
      most.to_one = std::max(most.to_one, ++pairs[{move.from.rank, move.to.rank}]);
      most.to_all = std::max(most.to_all, ++ranks[move.from.rank]);
    }
  }
  return most;
}

}  // namespace hocket::testing
