// Named steps of the protocol, at which tests have a rank die, stop, be late or be interrupted: tests/torture. Only the
// target `failpoints` is compiled with them. Everywhere else nothing is here, not an instruction; so they stand in
// source files and templates of such, never in what other files inline.
#pragma once

#ifdef HOCKET_FAILPOINTS

#include <sys/types.h>
#include <sys/uio.h>

#include <span>

namespace hocket {

// This rank is at that step.
void pass(const char* step);
// Whether something is to happen there, now or at a later visit.
bool is_armed(const char* step);
// For steps at which the machine fails, and no signal comes: whether this is the visit that was ordered, or one that
// was or comes later.
bool is_due(const char* step);
bool is_past(const char* step);
// The first few bytes of them, each time as many as chance has it.
std::span<iovec> a_few(std::span<iovec> parts);
// Changes one bit of the first `bytes` of them.
void flip(std::span<const iovec> parts, ssize_t bytes);

}  // namespace hocket

#define FAILPOINT(step) ::hocket::pass(#step)
// What brings about a state that is else a matter of luck, before FAILPOINT(step).
#define BEFORE_FAILPOINT(step, ...) \
  if (::hocket::is_armed(#step)) __VA_ARGS__
// What the machine does there, once or from then on.
#define FAILPOINT_AT(step, ...) \
  if (::hocket::is_due(#step)) __VA_ARGS__
#define FAILPOINT_FROM(step, ...) \
  if (::hocket::is_past(#step)) __VA_ARGS__

#else

#define FAILPOINT(step) static_cast<void>(0)
#define BEFORE_FAILPOINT(step, ...) static_cast<void>(0)
#define FAILPOINT_AT(step, ...) static_cast<void>(0)
#define FAILPOINT_FROM(step, ...) static_cast<void>(0)

#endif
