// The kernels, written once and compiled once per instruction set by the reduce_*.cpp that include this file.
//
// One vector register is the unit of thought: `Format` says how a register is loaded, stored and divided, an operation
// combines two registers, and `fold` takes four registers through all sources before it writes them. So memory is
// passed over once, the accumulator never leaves the registers, and dst may be any of the sources.
// The rest of a register at the end is padded with zeros and takes the same path: there is no scalar code to disagree.
//
// Everything here has internal linkage and calls nothing that the linker could merge between instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "kernels/reduce_formats.h"

namespace hocket {
namespace {

// -- Operations -------------------------------------------------------------------------------------------------------

// `of<F>(a, b)` of two registers of the format F.

struct Sum {
  template <class F, class V>
  static V of(V a, V b) {
    using W = typename F::Wrapping;
    return as<V>(as<W>(a) + as<W>(b));
  }
};

struct Product {
  template <class F, class V>
  static V of(V a, V b) {
    using W = typename F::Wrapping;
    return as<V>(as<W>(a) * as<W>(b));
  }
};

struct ComplexProduct {
  template <class F, class V>
  static V of(V a, V b) {
    const V left = F::reals(a) * b, right = F::imaginaries(a) * F::swapped(b);
    return F::imaginary() ? left + right : left - right;
  }
};

// A NaN on the left is kept by the second test; one on the right wins because every comparison with it is false.
struct Min {
  template <class F, class V>
  static V of(V a, V b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};

struct Max {
  template <class F, class V>
  static V of(V a, V b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

struct And {
  template <class F, class V>
  static V of(V a, V b) {
    return a & b;
  }
};

struct Or {
  template <class F, class V>
  static V of(V a, V b) {
    return a | b;
  }
};

struct Xor {
  template <class F, class V>
  static V of(V a, V b) {
    return a ^ b;
  }
};

template <class Bitwise>
struct Logical {
  template <class F, class V>
  static V of(V a, V b) {
    return Bitwise::template of<F>(F::truth(a), F::truth(b)) ? F::one() : V{};
  }
};

using Land = Logical<And>;
using Lor = Logical<Or>;
using Lxor = Logical<Xor>;

// -- Folding ----------------------------------------------------------------------------------------------------------

// Of more than two streams from memory the hardware's own prefetching loses track.
constexpr size_t kLine = 64;
constexpr size_t kAhead = 1024;

// What goes to a second place is copied there while it is in the first-level cache. That is faster than a second store
// of each register: a long copy writes whole lines, and need not fetch those that another core has read first. But if
// that place is one of the sources, its lines have just been read, and a second store is less than a second pass.
constexpr size_t kBlock = 16384;

template <class F>
using Lanes = typename F::Lanes;

inline const std::byte* bytes_of(const void* p) { return static_cast<const std::byte*>(p); }

// Takes N registers through all sources. `fetch(j, n)` is register n of source j, `put(n, v)` writes a result.
template <class F, class O, size_t N, class Fetch, class Put>
inline void step(size_t k, const typename F::Divisor* divisor, Fetch fetch, Put put) {
  Lanes<F> total[N];
  for (size_t n = 0; n < N; ++n) total[n] = fetch(0, n);
  for (size_t j = 1; j < k; ++j) {
    for (size_t n = 0; n < N; ++n) total[n] = O::template of<F>(total[n], fetch(j, n));
  }
  if (divisor != nullptr) {
    for (size_t n = 0; n < N; ++n) total[n] = (*divisor)(total[n]);
  }
  for (size_t n = 0; n < N; ++n) put(n, total[n]);
}

inline void copy(void* dst, void* also, const void* source, size_t bytes) {
  const std::byte* const from = bytes_of(source);
  if (dst != source) copy_bytes(static_cast<std::byte*>(dst), from, bytes);
  if (also != nullptr && also != source) copy_bytes(static_cast<std::byte*>(also), from, bytes);
}

inline bool is_among(const void* place, const void* const* sources, size_t k) {
  for (size_t j = 0; j < k; ++j) {
    if (sources[j] == place) return true;
  }
  return false;
}

template <class F, class O>
void fold(void* dst, void* also, const void* const* sources, size_t k, size_t count, uint64_t divisor) {
  const size_t bytes = count * F::kElement;
  if (bytes == 0) return;
  if (k == 1 && divisor <= 1) return copy(dst, also, sources[0], bytes);

  const typename F::Divisor by(divisor);
  const auto* division = divisor > 1 ? &by : nullptr;
  auto* out = static_cast<std::byte*>(dst);
  const bool is_read = is_among(also, sources, k);
  auto* const too = static_cast<std::byte*>(is_read ? nullptr : also);
  auto* const twin = static_cast<std::byte*>(is_read ? also : nullptr);
  size_t at = 0;
  const auto fetch = [&](size_t j, size_t n) {
    const std::byte* from = bytes_of(sources[j]) + at + n * F::kStride;
    if (n * F::kStride % kLine == 0) __builtin_prefetch(from + kAhead);
    return F::load(from);
  };
  const auto put = [&](size_t n, Lanes<F> v) {
    F::store(out + at + n * F::kStride, v);
    if (twin != nullptr) F::store(twin + at + n * F::kStride, v);
  };
  size_t told = 0;
  const auto tell = [&](size_t until) {
    if (too != nullptr) copy_bytes(too + told, out + told, until - told);
    told = until;
  };
  for (; bytes - at >= kBlock; tell(at)) {
    for (const size_t end = at + kBlock; at < end; at += 4 * F::kStride) step<F, O, 4>(k, division, fetch, put);
  }
  for (; bytes - at >= 4 * F::kStride; at += 4 * F::kStride) step<F, O, 4>(k, division, fetch, put);
  for (; bytes - at >= F::kStride; at += F::kStride) step<F, O, 1>(k, division, fetch, put);

  const size_t rest = bytes - at;
  if (rest == 0) return tell(bytes);
  std::byte padded[F::kStride] = {};
  const auto fetch_rest = [&](size_t j, size_t) {
    std::memcpy(padded, bytes_of(sources[j]) + at, rest);
    return F::load(padded);
  };
  const auto put_rest = [&](size_t, Lanes<F> v) {
    F::store(padded, v);
    std::memcpy(out + at, padded, rest);
    if (twin != nullptr) std::memcpy(twin + at, padded, rest);
  };
  step<F, O, 1>(k, division, fetch_rest, put_rest);
  tell(bytes);
}

template <size_t bytes>
inline void copy_turn(std::byte* to, const std::byte* from) {
#pragma GCC unroll 8
  for (size_t i = 0; i < bytes; i += kBytes) store(to + i, load<Vector<uint8_t>>(from + i));
}

template <class F, class O>
void interleave(const Strands& strands) {
  static_assert(interleaved_turn % (4 * F::kStride) == 0 && interleaved_turn % kBytes == 0);
  const Strands s = strands;  // what is written might be memory of theirs, for all that the compiler knows
  const typename F::Divisor by(s.divisor);
  const auto* division = s.divisor > 1 ? &by : nullptr;
  for (size_t at = 0; at < s.bytes; at += interleaved_turn) {
    if (s.before.to != nullptr) copy_turn<interleaved_turn>(s.before.to + at, s.before.from + at);
    for (size_t i = at; i < at + interleaved_turn; i += 4 * F::kStride) {
      const auto fetch = [&](size_t j, size_t n) { return F::load((j == 0 ? s.left : s.right) + i + n * F::kStride); };
      const auto put = [&](size_t n, Lanes<F> v) {
        F::store(s.to + i + n * F::kStride, v);
        F::store(s.also + i + n * F::kStride, v);
      };
      step<F, O, 4>(2, division, fetch, put);
    }
    if (s.after.to != nullptr) copy_turn<interleaved_turn>(s.after.to + at, s.after.from + at);
  }
}

// -- The table --------------------------------------------------------------------------------------------------------

struct None;

template <class F, class O>
constexpr Kernels entry() {
  if constexpr (std::is_same_v<O, None>) {
    return {};
  } else {
    return {fold<F, O>, interleave<F, O>};
  }
}

template <class F, class... Os>
struct Row {
  static_assert(sizeof...(Os) == kOps);
  static constexpr Kernels kAll[kOps] = {entry<F, Os>()...};
};

// clang-format off
//                                        sum  product         min   max   band  bor   bxor  land  lor  lxor
using Truths = Row<Bool,                  Or,  And,            And,  Or,   And,  Or,   Xor,  And, Or, Xor>;
template <class T>
using Integers = Row<Integer<T>,          Sum, Product,        Min,  Max,  And,  Or,   Xor,  Land, Lor, Lxor>;
template <class F>
using Floats = Row<F,                     Sum, Product,        Min,  Max,  None, None, None, Land, Lor, Lxor>;
template <class T>
using Complexes = Row<Complex<T>,         Sum, ComplexProduct, None, None, None, None, None, Land, Lor, Lxor>;
// clang-format on

template <class... Rows>
inline Kernels find_in(Dtype dtype, Op op) {
  static_assert(sizeof...(Rows) == kDtypes);
  static constexpr const Kernels* kRows[kDtypes] = {Rows::kAll...};
  return kRows[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
}

inline Kernels find(Dtype dtype, Op op) {
  return find_in<Truths, Integers<int8_t>, Integers<int16_t>, Integers<int32_t>, Integers<int64_t>, Integers<uint8_t>,
                 Integers<uint16_t>, Integers<uint32_t>, Integers<uint64_t>, Floats<Float16>, Floats<Bfloat16>,
                 Floats<Number<float>>, Floats<Number<double>>, Complexes<float>, Complexes<double>>(dtype, op);
}

}  // namespace
}  // namespace hocket
