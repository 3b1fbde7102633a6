// What libFuzzer needs of a compiler that it does not know, such as g++: -fsanitize-coverage=trace-pc tells of every
// branch, and this counts them where libFuzzer looks for counters of others (FuzzerExtraCounters). It comes before the
// library, whose own function of that name only says that it is not supported any more.
//
// With --seeds FOLDER the program writes the seeds of its target there, and ends.
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "target.h"

extern "C" int LLVMFuzzerRunDriver(int* argc, char*** argv, int (*target)(const uint8_t*, size_t));

constexpr size_t counter_count = 1 << 16;
[[gnu::section("__libfuzzer_extra_counters")]] static uint8_t counters[counter_count];

extern "C" void __sanitizer_cov_trace_pc() {
  const auto from = reinterpret_cast<uintptr_t>(__builtin_return_address(0));
  ++counters[(from ^ from >> 16) % counter_count];
}

// g++ tells of comparisons of these as well, of which libFuzzer knows nothing.
extern "C" void __sanitizer_cov_trace_cmpd(double, double) {}
extern "C" void __sanitizer_cov_trace_cmpf(float, float) {}

// A message that is too long to be is refused, as it is where memory is short.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

int main(int argc, char** argv) {
  using namespace hocket::fuzzing;
  if (argc == 3 && std::strcmp(argv[1], "--seeds") == 0) {
    int number = 0;
    for (const Bytes& seed : seeds()) {
      std::FILE* const file = std::fopen((std::string(argv[2]) + "/seed-" + std::to_string(number++)).c_str(), "wb");
      demand(file != nullptr && std::fwrite(seed.data(), 1, seed.size(), file) == seed.size() && std::fclose(file) == 0,
             "a seed cannot be written");
    }
    return 0;
  }
  return LLVMFuzzerRunDriver(&argc, &argv, LLVMFuzzerTestOneInput);
}
