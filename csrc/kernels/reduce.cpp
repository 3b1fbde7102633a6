// Chooses among the instruction sets; the only place that knows which there are.
#include "kernels/reduce.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace hocket {

namespace base {
Kernels find_kernels(Dtype, Op);
}
#ifdef __x86_64__
namespace avx2 {
Kernels find_kernels(Dtype, Op);
}
namespace avx512 {
Kernels find_kernels(Dtype, Op);
}

namespace {

// For which __builtin_cpu_supports has no name in clang 14.
bool has_f16c() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

}  // namespace
#endif

std::vector<Isa> isas() {
  std::vector<Isa> found{Isa::base};
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") && has_f16c();
  if (avx2) found.push_back(Isa::avx2);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(Isa::avx512);
  }
#endif
  return found;
}

const char* name_of(Isa isa) {
  if (isa == Isa::avx512) return "AVX-512";
  if (isa == Isa::avx2) return "AVX2";
#if defined(__x86_64__)
  return "SSE2";
#elif defined(__aarch64__)
  return "NEON";
#else
  return "any processor";
#endif
}

Kernels find_kernels(Dtype dtype, Op op, [[maybe_unused]] Isa isa) {
#ifdef __x86_64__
  if (isa == Isa::avx512) return avx512::find_kernels(dtype, op);
  if (isa == Isa::avx2) return avx2::find_kernels(dtype, op);
#endif
  return base::find_kernels(dtype, op);
}

Kernels find_kernels(Dtype dtype, Op op) {
  static const Isa best = isas().back();
  return find_kernels(dtype, op, best);
}

size_t size_of(Dtype dtype) {
  static constexpr uint8_t kSizes[kDtypes] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return kSizes[static_cast<size_t>(dtype)];
}

}  // namespace hocket
