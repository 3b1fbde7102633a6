// The arithmetic of reductions: one function per dtype and op that folds many sources into one result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hocket {

enum class Dtype : uint8_t { b1, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, c64, c128 };
enum class Op : uint8_t { sum, product, min, max, band, bor, bxor, land, lor, lxor };
inline constexpr size_t kDtypes = 15;
inline constexpr size_t kOps = 10;

// dst[i] = s[0][i] op s[1][i] op ... op s[k-1][i], from the left; then divided by `divisor` if it is greater than one
// (integers truncate toward zero; a bool ignores it). One pass over memory whatever k is; k == 1 copies or divides.
// dst and also may each be exactly one of the sources; nothing else may overlap. `also`, when not null, receives the
// same bits (a second destination, e.g. a slot to send from). No pointer needs any alignment.
// float16 and bfloat16 accumulate in float32 and round once, to nearest even. A NaN in any operand of min or max is a
// NaN in the result. Integers wrap around. land, lor and lxor take nonzero (NaN too) as true and give 0 or 1.
using Fold = void (*)(void* dst, void* also, const void* const* sources, size_t k, size_t count, uint64_t divisor);

// A fold of two into two places, and copies beside it, all of so many bytes, a multiple of a turn. `also` is one of the
// sources, `to` may be the other one; nothing else may overlap. No copy: its `to` is null.
struct Strands {
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
  };
  std::byte *to, *also;
  const std::byte *left, *right;
  uint64_t divisor;
  Copy before, after;
  size_t bytes;
};

// Does that in turns of a few lines: what comes from another core's cache is on its way while what is near is worked
// on. In one loop, since how many lines are on their way at a time is a matter of how few instructions there are for
// each. The bits are those of the fold; of two NaNs either may be left.
using Interleave = void (*)(const Strands&);
inline constexpr size_t interleaved_turn = 512;  // bytes

struct Kernels {
  Fold fold;
  Interleave interleave;
};

// Those for this machine; null where the pair makes no sense: bitwise of floats and complex, min and max of complex.
Kernels find_kernels(Dtype, Op);

// Bytes per element.
size_t size_of(Dtype);

// For tests: the same bits must come from every instruction set. `base` is what every processor of its kind can run:
// SSE2, NEON.
enum class Isa : uint8_t { base, avx2, avx512 };
std::vector<Isa> isas();  // those that this machine can run, the best one last
const char* name_of(Isa);
Kernels find_kernels(Dtype, Op, Isa);

}  // namespace hocket
