// One collective call, all that is left of it when its program is bound to memory: these lines are what every call of
// hocket ends in, whichever way it came.
#pragma once

#include "calls/agreement.h"
#include "engine/engine.h"

namespace hocket {

struct Call {
  Program& program;
  uint64_t fingerprint;  // what all ranks must agree on
  const std::byte* inp;
  std::byte* out;
};

// Enters, moves, and leaves only when every rank is known to have entered the same call, or to wait to be told of just
// that one, and none has given it up. Throws what went wrong; from then on no other rank reads or writes the memory of
// the call, and `touched`, if that is there, is set where anyone may have written to its output.
void make(const Call& call, Port& port, Agreement& agreement, Deadline deadline, bool* touched = nullptr);

}  // namespace hocket
