// When calls were made: what a timeline shows. Kept in memory, up to a bound, by whoever makes calls on any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
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
    auto operator<=>(const Name&) const = default;
  };

  explicit Trace(uint64_t most) : most_(most) {}

  uint32_t name(std::string title, int group) {
    const Lock lock(mutex_);
    const auto [known, is_new] = numbers_.try_emplace({std::move(title), group}, static_cast<uint32_t>(names_.size()));
    if (is_new) names_.push_back(&known->first);
    return known->second;
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
    for (const Event& event : events_) visit(*names_[event.what], event);
  }
  uint64_t dropped() const {
    const Lock lock(mutex_);
    return dropped_;
  }

 private:
  using Lock = std::lock_guard<std::mutex>;
  const uint64_t most_;
  mutable std::mutex mutex_;
  std::map<Name, uint32_t> numbers_;  // of names
  std::vector<const Name*> names_;    // by number; they lie in the map
  std::vector<Event> events_;
  uint64_t dropped_ = 0;
};

}  // namespace hocket
