// What the ranks of a group must know of one another for a call to be one call: that all have entered it, that all mean
// the same by it, and why it is over when it is. A transport implements it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/port.h"
#include "wait/wait.h"

namespace hocket {

class Agreement {
 public:
  virtual ~Agreement() = default;

  // Texts are kept by fingerprint; their first line is what an error prints of a call.
  virtual void describe(uint64_t fingerprint, const std::string& text) = 0;
  // The next call, with the output here; returns its number. `said` is how the next such call sends, if this rank is
  // the first; 0: it does not say.
  virtual uint64_t enter(uint64_t fingerprint, const std::byte* out = nullptr, uint32_t said = 0) = 0;
  virtual uint64_t number() const = 0;
  virtual std::string title() const = 0;
  // Waits until each of `peers` has entered this call, or waits to be told of just this one. Throws Failure::mismatch
  // if one means something else by it, and the reason why the group is over, once it is: what was not completed by then
  // nobody completes. If it returns, this rank has completed the call.
  virtual void meet(Peers peers, Deadline deadline) = 0;
  // What rank 0 said as it entered the call that this rank has completed last, as far as it is known here.
  virtual uint32_t said_by_first() const = 0;

  // Waits until `peer` has entered the next call, and returns its fingerprint. `expected` describes what this rank
  // takes that call for: if `peer` waits likewise, for this rank or another, they differ in who is to tell.
  virtual uint64_t next(int peer, uint64_t expected, Deadline deadline) = 0;
  // The same, and returns its text: so a rank learns what only the root was told.
  virtual std::string learn(int peer, const std::string& expected, Deadline deadline) = 0;

  // After a failure this memory is the caller's alone: whatever another rank believes it may do in the call that
  // failed, it reads and writes there no more. Whether others could reach it until now.
  virtual bool fence(const std::byte* begin, uint64_t bytes) = 0;
  // The group is over, for this reason, or for one that another rank has found already: nobody completes another call.
  // Returns once all ranks that are left agree on one.
  virtual void end(const Failure& failure) = 0;
  // Tells all ranks that this one goes in peace.
  virtual void leave() = 0;
  // Ends every wait of this rank, with Failure::closed: another thread wants to leave.
  virtual void close() = 0;
};

}  // namespace hocket
