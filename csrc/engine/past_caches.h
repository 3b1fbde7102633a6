// Whether what is written and not read is written past the caches, found by doing the first ones in both ways.
#pragma once

#include <cstdint>

#include "engine/trial.h"
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
    tries_ = false;
    if (bytes < least || bytes >= beyond_caches) return past_ = bytes >= beyond_caches;
    tries_ = may_try && trial_.found() == Trial::unknown && trial_.goes_on();
    bytes_ = static_cast<int64_t>(bytes);
    return past_ = tries_ ? trial_.begin() : trial_.found() == Trial::other;
  }

  // Of the one that was begun last: whether it goes past them, whether that is being tried, and how long it has taken,
  // once it has come to its end.
  bool is_past() const { return past_; }
  bool tries() const { return tries_; }
  void tell(Clock::duration time) { trial_.tell(time * pace / bytes_, clearly); }

  Trial::Found found() const { return trial_.found(); }

 private:
  static constexpr int64_t pace = beyond_caches;  // bytes: what these would take, since one message may be longer

  Trial trial_;
  bool tries_ = false, past_ = false;
  int64_t bytes_ = 0;
};

}  // namespace hocket
