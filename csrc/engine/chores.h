// What a rank has to do with memory at one time: a message to stage, a reduction to fold, a result to fetch. Each works
// on memory of its own, and long ones take turns of a few lines: what comes from another core's cache is on its way
// while the others work on what is near.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/engine.h"
#include "kernels/copy.h"

namespace hocket {

// to = sources[0] op ... op sources[k-1], and the same to `also`, if that is there; one source is a copy.
struct Chore {
  std::byte* to;
  std::byte* also;
  const void* const* sources;
  size_t k;
  uint64_t bytes;
  uint64_t divisor;
  bool past_caches = false;  // if it is a copy
};

class Chores {
 public:
  static constexpr uint64_t turn = 512;    // bytes, of each
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
    const uint64_t piece = longest >= worth && !whole ? turn : longest;
    for (uint64_t at = 0; at < longest; at += piece) {
      for (size_t i = 0; i < count_; ++i) {
        if (at < list_[i].bytes) part(list_[i], at, std::min(piece, list_[i].bytes - at));
      }
    }
    count_ = 0;
  }

 private:
  void part(const Chore& c, uint64_t at, uint64_t bytes) {
    std::byte* const also = c.also == nullptr ? nullptr : c.also + at;
    if (c.k == 1) {
      copy(c.to + at, static_cast<const std::byte*>(c.sources[0]) + at, bytes, c.past_caches);
    } else if (program_.custom) {
      program_.custom(c.to, c.sources, c.k, bytes / program_.itemsize);
    } else {
      const void* const* sources = c.sources;
      if (at != 0) {
        shifted_.resize(c.k);
        for (size_t i = 0; i < c.k; ++i) shifted_[i] = static_cast<const std::byte*>(c.sources[i]) + at;
        sources = shifted_.data();
      }
      return program_.fold(c.to + at, also, sources, c.k, bytes / program_.itemsize, c.divisor);
    }
    if (also != nullptr) copy(also, c.to + at, bytes);
  }

  static void copy(std::byte* to, const std::byte* from, uint64_t bytes, bool past_caches = false) {
    if (to != from) (past_caches ? copy_past_caches : copy_bytes)(to, from, bytes);
  }

  const Program& program_;
  std::array<Chore, 3> list_;
  size_t count_ = 0;
  std::vector<const void*> shifted_;
};

}  // namespace hocket
