#include "calls/call.h"

namespace hocket {

void make(const Call& call, Port& port, Agreement& agreement, Deadline deadline) {
  Program& program = call.program;
  try {
    agreement.describe(call.fingerprint, program.text);
    const uint64_t number = agreement.enter(call.fingerprint, call.out);
    for (int32_t peer : program.untold) port.notify(peer);  // no message will wake it, and it waits to see us enter
    run(program, port, call.fingerprint ^ (number * 0x9e3779b97f4a7c15u), call.inp, call.out, deadline);
    agreement.meet(program.unheard, deadline);
  } catch (...) {
    agreement.fence(call.inp, program.inp_bytes);
    agreement.fence(call.out, program.out_bytes);
    throw;
  }
}

}  // namespace hocket
