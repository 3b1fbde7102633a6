// How long messages go from rank to rank of a host: found by making calls in each way, now and then.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/choice.h"

namespace hocket {

constexpr uint64_t least_tried = 32 << 10;  // bytes of a message: for less a call of the kernel's is too much

// Of one program. All ranks send the same way in the same call, since half of them one way and half the other may be
// worse than either: rank 0 says, as it enters a call, how the next one goes. No bit of a result depends on it, nor
// need all keep to it, or have heard of it.
class Sending {
 public:
  // Staged: through slots, whose lines pass from the one core's caches to the other's. Past the caches: through slots,
  // and to memory in between, which is faster where cores lie far apart. Offered: what is only copied, where it lies,
  // in memory of this process's own, from which the kernel copies it, once; what is folded goes by slots as ever.
  enum Way : uint32_t { staged, past_caches, offered };

  static constexpr double clearly = 0.95;  // of the time that the way before it takes; where ranks share cores, and
  static constexpr double crowded = 0.9;   // what one of them takes is not half of what there is to know, of that

  // The way of this call, and whether that is being found out.
  Way way() const { return way_; }
  bool tries() const { return tries_; }
  // Whether that is so, or of the next one.
  bool is_busy() const { return tries_ || choice_.tries(); }

  // What this rank would say as it enters a call, of two ways or more. All ranks choose, though only what the first one
  // says counts: so each knows that a round begins with the next call, and begins no other one in this.
  uint32_t say(unsigned ways, bool may_try) {
    const bool tried_before = choice_.tries();
    const uint32_t next = 1 + choice_.begin(ways, may_try);
    begins_ = !tried_before && choice_.tries();
    return choice_.tries() ? next | tried : next;
  }

  // How long the call has taken. With the next one a round may begin, of which this is none: it has not been waited
  // for.
  void tell(Clock::duration time, bool in_crowd) {
    if (!begins_) choice_.tell(way_, time, in_crowd ? crowded : clearly);
  }

  // The call is over, in which rank 0 has said this. 0: nothing, or it is not known here.
  void follow(uint32_t said) {
    tries_ = (said & tried) != 0;
    if (const uint32_t next = said & ~tried; next != 0) way_ = static_cast<Way>(std::min<uint32_t>(next - 1, offered));
  }

 private:
  static constexpr uint32_t tried = 1u << 31;

  Way way_ = staged;
  bool tries_ = false;
  bool begins_ = false;
  Choice choice_;
};

}  // namespace hocket
