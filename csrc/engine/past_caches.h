// Whether what is written and not read is written past the caches, found by doing it in both ways.
#pragma once

#include <cstdint>

#include "engine/choice.h"
#include "kernels/copy.h"

namespace hocket {

// Of calls of one kind, or messages of about one length, one after the other. What is longer than the caches always is.
// Of what would fit into them it is a matter of what else is there: what is overwritten, if the caller has left it, or
// what others work on, and it would drive out. Each rank finds it for itself: no bit of a result depends on it.
class PastCaches {
 public:
  static constexpr uint64_t least = beyond_caches / 8;  // bytes that are tried
  static constexpr double clearly = 0.85;  // of the time that it takes through them, since who reads it takes longer

  // Whether the next one, in which so many bytes are written, goes past them. `may_try`: unless something else is being
  // found out by it.
  bool begin(uint64_t bytes, bool may_try = true) {
    measured_ = bytes >= least && bytes < beyond_caches;
    bytes_ = bytes;
    return past_ = measured_ ? choice_.begin(2, may_try) != 0 : bytes >= beyond_caches;
  }

  // Of the one that was begun last: whether it goes past them, whether its time is wanted and that is being tried, and
  // how long it has taken, once it has come to its end.
  bool is_past() const { return past_; }
  bool is_measured() const { return measured_; }
  bool tries() const { return measured_ && choice_.tries(); }
  void tell(Clock::duration time) { choice_.tell(past_, pace(time, bytes_, beyond_caches), clearly); }

 private:
  bool measured_ = false, past_ = false;
  uint64_t bytes_ = 0;
  Choice choice_;
};

}  // namespace hocket
