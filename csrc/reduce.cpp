// Chooses among the instruction sets; the only place that knows which there are.
#include "reduce.h"

#include <stdexcept>
#include <string>

namespace hocket {

namespace base {
Fold find_fold(Dtype, Op);
}
#ifdef __x86_64__
namespace avx2 {
Fold find_fold(Dtype, Op);
}
namespace avx512 {
Fold find_fold(Dtype, Op);
}
#endif

std::vector<Isa> isas() {
  std::vector<Isa> found{Isa::base};
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  if (avx2) found.push_back(Isa::avx2);
  if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.push_back(Isa::avx512);
  }
#endif
  return found;
}

Fold find_fold(Dtype dtype, Op op, [[maybe_unused]] Isa isa) {
#ifdef __x86_64__
  if (isa == Isa::avx512) return avx512::find_fold(dtype, op);
  if (isa == Isa::avx2) return avx2::find_fold(dtype, op);
#endif
  return base::find_fold(dtype, op);
}

Fold find_fold(Dtype dtype, Op op) {
  static const Isa best = isas().back();
  return find_fold(dtype, op, best);
}

size_t size_of(Dtype dtype) {
  static constexpr uint8_t kSizes[kDtypes] = {1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8, 8, 16};
  return kSizes[static_cast<size_t>(dtype)];
}

namespace raw {

namespace {

template <class Enum>
Enum checked(int value, size_t end, const char* what) {
  if (value < 0 || static_cast<size_t>(value) >= end) throw std::invalid_argument(std::string("no such ") + what);
  return static_cast<Enum>(value);
}

}  // namespace

bool supported(int dtype, int op) {
  return hocket::find_fold(checked<Dtype>(dtype, kDtypes, "dtype"), checked<Op>(op, kOps, "op")) != nullptr;
}

std::vector<int> isas() {
  std::vector<int> numbers;
  for (const Isa isa : hocket::isas()) numbers.push_back(static_cast<int>(isa));
  return numbers;
}

void fold(int dtype, int op, int isa, uintptr_t dst, uintptr_t also, const std::vector<uintptr_t>& sources,
          size_t count, uint64_t divisor) {
  if (!supported(dtype, op)) throw std::invalid_argument("no such pair of dtype and op");
  const auto set = checked<Isa>(isa, hocket::isas().size(), "instruction set");
  if (sources.empty()) throw std::invalid_argument("nothing to fold");
  std::vector<const void*> addresses;
  for (const uintptr_t source : sources) addresses.push_back(reinterpret_cast<const void*>(source));
  hocket::find_fold(static_cast<Dtype>(dtype), static_cast<Op>(op), set)(
      reinterpret_cast<void*>(dst), reinterpret_cast<void*>(also), addresses.data(), addresses.size(), count, divisor);
}

}  // namespace raw

}  // namespace hocket
