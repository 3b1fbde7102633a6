// What a rank has to do with memory at one time: a message to stage, a reduction to fold, a result to fetch. Each works
// on memory of its own, and long ones take turns.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/engine.h"
#include "engine/grain.h"
#include "engine/reading.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"

namespace hocket {

// to = sources[0] op ... op sources[k-1], and the same to `also`, if that is there; one source is a copy. What is still
// to be done: all of it moves on when a part is.
struct Chore {
  std::byte* to;
  std::byte* also;
  const void** sources;
  size_t k;
  uint64_t bytes;
  uint64_t divisor;
  bool past_caches = false;  // goes past the caches to `to`
  bool received = false;     // from where another rank has written it
  bool also_past = false;    // goes past the caches to `also`
};

class Chores {
 public:
  static constexpr uint64_t worth = 8192;  // bytes of one; what is shorter is done at once

  Chores(const Program& program, Grains& grains, Readings& reading)
      : program_(program), grains_(grains), reading_(reading) {}

  void add(const Chore& chore) { list_[count_++] = chore; }

  // Does all, and forgets them.
  void finish() {
    uint64_t longest = 0, shortest = UINT64_MAX;
    bool whole = program_.custom || count_ == 1;
    for (size_t i = 0; i < count_; ++i) {
      longest = std::max(longest, list_[i].bytes);
      shortest = std::min(shortest, list_[i].bytes);
      whole |= list_[i].past_caches || list_[i].also_past;
    }
    if (longest >= worth && !whole) {
      GrainChoice& choice = find_strands() ? grains_.loops : grains_.turns;
      if (shortest >= 2 * coarse.bytes && !choice.is_known()) longest = try_both(choice, longest);
      take_turns(choice.best(), longest, 0);
    }
    for (size_t i = 0; i < count_; ++i) {
      if (list_[i].bytes != 0) rest(list_[i]);
    }
    count_ = 0;
  }

 private:
  // As much in either way: a long turn. What is left of the longest.
  uint64_t try_both(GrainChoice& choice, uint64_t longest) {
    const auto timed = [&](const Grain& grain) {
      const auto begin = Clock::now();
      longest = take_turns(grain, longest, longest - coarse.bytes);
      return Clock::now() - begin;
    };
    const bool coarse_first = choice.coarse_first();
    const auto first = timed(coarse_first ? coarse : fine), second = timed(coarse_first ? fine : coarse);
    coarse_first ? choice.tell(second, first) : choice.tell(first, second);
    return longest;
  }

  // Until `least`, or less than one turn more, is left of the longest: how much. A fine turn is some forty
  // nanoseconds: five more would be seen.
  uint64_t take_turns(const Grain grain, uint64_t longest, uint64_t least) {
    if (grain.interleaves) longest = interleave(longest, least);
    const size_t count = grain.bytes / program_.itemsize;
    for (; longest >= least + grain.bytes; longest -= grain.bytes) {
      for (size_t i = 0; i < count_; ++i) {
        Chore& c = list_[i];
        if (c.bytes < grain.bytes) continue;
        if (c.k == 1) {
          copy(c, grain.bytes, grain.copy);
        } else {
          program_.kernels.fold(c.to, c.also, c.sources, c.k, count, c.divisor);
        }
        advance(c, grain.bytes);
      }
    }
    return longest;
  }

  // The same of what one loop can do.
  uint64_t interleave(uint64_t longest, uint64_t least) {
    while (longest >= least + interleaved_turn) {
      std::optional<Strands> strands = find_strands();
      if (!strands) break;
      strands->bytes = std::min(strands->bytes, longest - least) / interleaved_turn * interleaved_turn;
      program_.kernels.interleave(*strands);
      for (size_t i = 0; i < count_; ++i) {
        if (list_[i].bytes >= interleaved_turn) advance(list_[i], strands->bytes);
      }
      longest -= strands->bytes;
    }
    return longest;
  }

  // A sum that goes home, and what is copied before and after it, where that is all but for what is less than a turn:
  // as much as all of them have.
  std::optional<Strands> find_strands() const {
    Strands found{};
    found.bytes = SIZE_MAX;
    for (size_t i = 0; i < count_; ++i) {
      const Chore& c = list_[i];
      if (c.bytes < interleaved_turn) continue;
      found.bytes = std::min(found.bytes, c.bytes);
      Strands::Copy& copy = found.to == nullptr ? found.before : found.after;
      if (c.k == 1 && c.also == nullptr && c.to != source(c, 0) && copy.to == nullptr) {
        copy = {c.to, source(c, 0)};
      } else if (c.k == 2 && (c.also == c.sources[0] || c.also == c.sources[1]) && found.to == nullptr) {
        found.to = c.to, found.also = c.also, found.divisor = c.divisor;
        found.left = source(c, 0), found.right = source(c, 1);
      } else {
        return std::nullopt;
      }
    }
    return found.to != nullptr ? std::optional(found) : std::nullopt;
  }

  // What is folded goes past the caches by blocks that are still in one: where it goes beside, if that is not past
  // them, too, or here.
  void fold_past_caches(Chore& c) {
    alignas(64) std::array<std::byte, 16 << 10> block;
    while (c.bytes != 0) {
      const uint64_t n = std::min<uint64_t>(c.bytes, block.size());
      std::byte* const beside = c.also != nullptr && !c.also_past ? c.also : block.data();
      std::byte* const made = c.past_caches ? beside : c.to;
      program_.kernels.fold(made, nullptr, c.sources, c.k, n / program_.itemsize, c.divisor);
      if (c.past_caches) copy_past_caches(c.to, made, n);
      if (c.also_past) copy_past_caches(c.also, made, n);
      advance(c, n);
    }
  }

  void rest(Chore& c) {
    if (c.k > 1 && (c.past_caches || c.also_past) && !program_.custom) return fold_past_caches(c);
    const size_t count = c.bytes / program_.itemsize;
    if (c.k == 1) {
      const auto read = [this](std::byte* to, const std::byte* from, size_t bytes) { reading_.copy(to, from, bytes); };
      if (c.received && !c.past_caches) return copy(c, c.bytes, read);
      copy(c, c.bytes, c.past_caches ? copy_past_caches : copy_bytes);
    } else if (program_.custom) {
      program_.custom(c.to, c.sources, c.k, count);
      copy_beside(c, c.bytes);
    } else {
      program_.kernels.fold(c.to, c.also, c.sources, c.k, count, c.divisor);
    }
  }

  static const std::byte* source(const Chore& c, size_t j) { return static_cast<const std::byte*>(c.sources[j]); }

  static void advance(Chore& c, uint64_t bytes) {
    c.to += bytes;
    if (c.also != nullptr) c.also += bytes;
    for (size_t j = 0; j < c.k; ++j) c.sources[j] = source(c, j) + bytes;
    c.bytes -= bytes;
  }

  template <class Way>
  static void copy(const Chore& c, uint64_t bytes, Way way) {
    const std::byte* const from = source(c, 0);
    if (c.to != from) way(c.to, from, bytes);
    copy_beside(c, bytes);
  }

  static void copy_beside(const Chore& c, uint64_t bytes) {
    if (c.also != nullptr) (c.also_past ? copy_past_caches : copy_bytes)(c.also, c.to, bytes);
  }

  const Program& program_;
  Grains& grains_;
  Readings& reading_;
  std::array<Chore, 3> list_;
  size_t count_ = 0;
};

}  // namespace hocket
