// What a rank has to do with memory at one time: a message to stage, a reduction to fold, a result to fetch. Each works
// on memory of its own, and long ones take turns of a few lines: what comes from another core's cache is on its way
// while the others work on what is near.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/engine.h"
#include "kernels/copy.h"

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
  bool past_caches = false;  // if it is a copy
};

class Chores {
 public:
  static constexpr uint64_t turn = 1024;   // bytes, of each
  static constexpr uint64_t worth = 8192;  // bytes of one; what is shorter is done at once

  explicit Chores(const Program& program) : program_(program) {}

  void add(const Chore& chore) { list_[count_++] = chore; }

  // Does all, and forgets them.
  void finish() {
    uint64_t longest = 0;
    bool whole = program_.custom || count_ == 1;
    for (size_t i = 0; i < count_; ++i) {
      longest = std::max(longest, list_[i].bytes);
      whole |= list_[i].past_caches;
    }
    if (longest >= worth && !whole) take_turns(longest);
    for (size_t i = 0; i < count_; ++i) {
      if (list_[i].bytes != 0) rest(list_[i]);
    }
    count_ = 0;
  }

 private:
  // Until what is left of each is no longer than a turn. A turn is some forty nanoseconds: five more would be seen.
  void take_turns(uint64_t longest) {
    const size_t count = turn / program_.itemsize;
    for (; longest > turn; longest -= turn) {
      for (size_t i = 0; i < count_; ++i) {
        Chore& c = list_[i];
        if (c.bytes <= turn) continue;
        if (c.k == 1) {
          copy<copy_short>(c, turn);
        } else {
          program_.fold(c.to, c.also, c.sources, c.k, count, c.divisor);
        }
        c.to += turn;
        if (c.also != nullptr) c.also += turn;
        for (size_t j = 0; j < c.k; ++j) c.sources[j] = static_cast<const std::byte*>(c.sources[j]) + turn;
        c.bytes -= turn;
      }
    }
  }

  void rest(const Chore& c) {
    const size_t count = c.bytes / program_.itemsize;
    if (c.k == 1) {
      c.past_caches ? copy<copy_past_caches>(c, c.bytes) : copy<copy_bytes>(c, c.bytes);
    } else if (program_.custom) {
      program_.custom(c.to, c.sources, c.k, count);
      if (c.also != nullptr) copy_bytes(c.also, c.to, c.bytes);
    } else {
      program_.fold(c.to, c.also, c.sources, c.k, count, c.divisor);
    }
  }

  template <void (*way)(std::byte*, const std::byte*, size_t)>
  static void copy(const Chore& c, uint64_t bytes) {
    const auto* const from = static_cast<const std::byte*>(c.sources[0]);
    if (c.to != from) way(c.to, from, bytes);
    if (c.also != nullptr) copy_bytes(c.also, c.to, bytes);
  }

  const Program& program_;
  std::array<Chore, 3> list_;
  size_t count_ = 0;
};

}  // namespace hocket
