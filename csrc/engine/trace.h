// When calls were made: what a timeline shows. Kept in memory, up to a bound, by whoever makes calls on any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "wait/wait.h"

namespace hocket {

class Trace {
 public:
  struct Event {
    uint32_t what;  // as name() called it
    Clock::time_point begun, ended;
    Clock::duration waited;
    bool failed;
  };
  // A call as an error prints it, of one of this process's groups.
  struct Name {
    std::string title;
    int group;
  };

  explicit Trace(uint64_t most) : most_(most) {}

  uint32_t name(std::string title, int group) {
    const Lock lock(mutex_);
    if (names_.size() < most_) names_.push_back({std::move(title), group});
    return static_cast<uint32_t>(names_.size() - 1);
  }
  void add(const Event& event) {
    const Lock lock(mutex_);
    if (events_.size() < most_) {
      events_.push_back(event);
    } else {
      ++dropped_;
    }
  }
  template <class Visit>
  void each(const Visit& visit) const {
    const Lock lock(mutex_);
    for (const Event& event : events_) visit(names_[event.what], event);
  }
  uint64_t dropped() const {
    const Lock lock(mutex_);
    return dropped_;
  }

 private:
  using Lock = std::lock_guard<std::mutex>;
  const uint64_t most_;
  mutable std::mutex mutex_;
  std::vector<Name> names_;
  std::vector<Event> events_;
  uint64_t dropped_ = 0;
};

}  // namespace hocket
