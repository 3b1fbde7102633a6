#include "calls/call.h"

#include "wait/failpoint.h"

namespace hocket {

void make(const Call& call, Port& port, Agreement& agreement, Deadline deadline, bool* touched) {
  Program& program = call.program;
  Meter* const meter = program.meter.get();
  const uint64_t weight = program.trace ? 1 : meter == nullptr ? 0 : meter->weight(program.bytes);
  Clock::duration waited{};
  const auto now = [&] { return weight == 0 ? Clock::time_point() : Clock::now(); };
  const Clock::time_point begun = now();
  Clock::time_point moved;
  const uint64_t landings = port.listens ? port.landings() : 0;
  try {
    const unsigned choices = ways(program, port);
    const uint32_t said = choices > 1 ? program.sending.say(choices, !program.past_caches.tries()) : 0;
    agreement.describe(call.fingerprint, program.text);
    const uint64_t number = agreement.enter(call.fingerprint, call.out, said);
    FAILPOINT(entered);
    for (int32_t peer : program.untold) port.notify(peer);  // no message will wake it, and it waits to see us enter
    run(program, port, call.fingerprint ^ (number * 0x9e3779b97f4a7c15u), call.inp, call.out, deadline,
        weight == 0 ? nullptr : &waited, touched);
    moved = now();
    FAILPOINT(moved);
    agreement.meet(program.unheard, deadline);
    if (program.ways > 1) program.sending.follow(agreement.said_by_first());
  } catch (...) {
    Hold::let_go();
    if (program.trace) program.trace->add({program.traced, begun, Clock::now(), waited, true});
    agreement.fence(call.inp, program.inp_bytes);
    FAILPOINT(half_fenced);
    const bool reached = agreement.fence(call.out, program.out_bytes) && program.exposed;
    if (touched != nullptr && (reached || (port.listens && port.landings() != landings))) *touched = true;
    throw;
  }
  if (meter != nullptr) meter->add(program.bytes, program.flows);
  if (weight == 0) return;
  const Clock::time_point met = Clock::now();
  waited += met - moved;
  if (meter != nullptr) meter->time(weight, met - begun, waited);
  if (program.trace) program.trace->add({program.traced, begun, met, waited, false});
}

}  // namespace hocket
