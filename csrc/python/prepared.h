// A call that has been checked, planned, proved, lowered and bound, and needs only to be made: at once, in its turn,
// again when a call that looks the same comes, or as often as its owner likes.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <string>

#include "calls/call.h"

namespace hocket {

namespace nb = nanobind;

struct Prepared {
  Program& program() const { return *nb::inst_ptr<Program>(bound); }
  // With its output at `to`.
  Call call(std::byte* to) const { return {program(), fingerprint, inp, to}; }
  std::string title() const { return program().text.substr(0, program().text.find('\n')); }
  std::array<nb::object*, 4> held() { return {&bound, &alive, &result, &deliver}; }

  nb::object bound;  // the Program
  uint64_t fingerprint = 0;
  const std::byte* inp = nullptr;
  std::byte* out = nullptr;
  bool given = false;     // `out` is the caller's, who sees what a failed call leaves there,
  bool protects = false;  // and is not to: it is written when the call has been made
  nb::object alive;       // what the pointers point to
  nb::object result;      // what the caller gets,
  nb::object deliver;     // unless this is there, and makes it when the call has been made
};

}  // namespace hocket
