// What a target is: a function of some bytes from the network that never crashes, and bytes to begin with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

namespace hocket::fuzzing {

using Bytes = std::vector<std::byte>;

// Inputs as they would come in good weather, which the fuzzer changes.
std::vector<Bytes> seeds();

// An invariant: where it does not hold, libFuzzer keeps the input, as of a crash.
inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "\nNOT SO: %s\n", what);
  std::abort();
}

}  // namespace hocket::fuzzing
