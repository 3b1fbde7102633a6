// Named steps of the protocol, at which tests have a rank die, stop, be late or be interrupted: tests/torture. Only the
// target `failpoints` is compiled with them. Everywhere else nothing is here, not an instruction; so they stand in
// source files and templates of such, never in what other files inline.
#pragma once

#ifdef HOCKET_FAILPOINTS

namespace hocket {

// This rank is at that step.
void pass(const char* step);
// Whether something is to happen there, now or at a later visit.
bool is_armed(const char* step);

}  // namespace hocket

#define FAILPOINT(step) ::hocket::pass(#step)
// What brings about a state that is else a matter of luck, before FAILPOINT(step).
#define BEFORE_FAILPOINT(step, ...) \
  if (::hocket::is_armed(#step)) __VA_ARGS__

#else

#define FAILPOINT(step) static_cast<void>(0)
#define BEFORE_FAILPOINT(step, ...) static_cast<void>(0)

#endif
