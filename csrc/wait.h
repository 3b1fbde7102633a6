// What every wait in hocket shares: a deadline that must be given, and one exception that says why a wait ended.
#pragma once

#include <chrono>
#include <string>

namespace hocket {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Why a call could not finish. `peer` is the rank it was waiting for, or that did it; -1 where there is none.
struct Failure {
  enum Kind { timeout, peer_lost, mismatch, poisoned, interrupted, custom_op, internal };
  Kind kind;
  int peer;
  std::string text;
};

// The ways of passing the time. Shared memory has one, TCP another, a test fakes it.
class Waiter {
 public:
  virtual ~Waiter() = default;
  // Wakes `peer` if it sleeps; costs a fence and a load if it does not. Call it after something was published for it.
  virtual void ring(int peer) = 0;
  // Called each time nothing could be done, with the number of times in a row (from 0) and a rank that is waited for.
  // Spins, yields or sleeps a little. Throws Failure at the deadline, when a peer is lost or when the group is poisoned.
  virtual void idle(unsigned turn, int peer, Deadline deadline) = 0;
};

}  // namespace hocket
