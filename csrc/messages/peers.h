// What the mailbox has of each peer, under its lock. Its own files alone include this.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "messages/matching.h"

namespace hocket {

struct Mailbox::Outgoing {
  explicit Outgoing(std::unique_ptr<StreamWriter> end) : stream(std::move(end)) {}

  std::unique_ptr<StreamWriter> stream;  // none to oneself
  std::deque<Ticket> queue{};
  Moved moved{};
  std::optional<Failure> failure{};
};

struct Mailbox::Incoming {
  explicit Incoming(std::unique_ptr<StreamReader> end) : stream(std::move(end)) {}

  bool full(uint64_t more) const {
    return unclaimed >= most_unclaimed || unclaimed_bytes + more > most_unclaimed_bytes;
  }

  std::unique_ptr<StreamReader> stream;         // none from oneself: the front of that queue is the stream
  std::shared_ptr<Arrival> message{};           // the one in the middle of which we are
  Ticket receive{};                             // its receive, if it has one
  uint64_t unclaimed = 0, unclaimed_bytes = 0;  // on the heap
  Moved moved{};
  std::optional<Failure> failure{};
};

}  // namespace hocket
