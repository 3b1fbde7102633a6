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

// The fold for this machine; nullptr where the pair makes no sense: bitwise of floats and complex, min and max of
// complex.
Fold find_fold(Dtype, Op);

// Bytes per element.
size_t size_of(Dtype);

// For tests: the same bits must come from every instruction set. `base` is what every processor of its kind can run:
// SSE2, NEON.
enum class Isa : uint8_t { base, avx2, avx512 };
std::vector<Isa> isas();  // those that this machine can run, the best one last
const char* name_of(Isa);
Fold find_fold(Dtype, Op, Isa);

}  // namespace hocket
