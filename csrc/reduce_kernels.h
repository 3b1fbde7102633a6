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

#include "reduce.h"
#ifdef __F16C__
#include <immintrin.h>
#endif

namespace hocket {
namespace {

#if defined(__AVX512F__)
constexpr size_t kBytes = 64;
#elif defined(__AVX2__)
constexpr size_t kBytes = 32;
#else
constexpr size_t kBytes = 16;
#endif

template <class T, size_t N>
struct VectorOf {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <class T, size_t N = kBytes / sizeof(T)>
using Vector = typename VectorOf<T, N>::type;

template <class To, class From>
inline To as(From from) {
  return __builtin_bit_cast(To, from);
}

template <class V>
inline V load(const std::byte* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
inline void store(std::byte* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// -- Formats ----------------------------------------------------------------------------------------------------------
// Lanes: a register of operands.   Wrapping: the same register in a type whose sums may overflow.   kStride: bytes in
// memory that fill it.   truth: all ones in the lanes of a true element.   one: the number 1 in every element.

template <class T>
struct Number {
  using Lanes = Vector<T>;
  using Wrapping = Lanes;
  static constexpr size_t kElement = sizeof(T);
  static constexpr size_t kStride = sizeof(Lanes);

  static Lanes load(const std::byte* from) { return hocket::load<Lanes>(from); }
  static void store(std::byte* to, Lanes v) { hocket::store(to, v); }
  static auto truth(Lanes v) { return v != Lanes{}; }
  static Lanes one() { return Lanes{} + T{1}; }

  struct Divisor {
    T value;
    explicit Divisor(uint64_t divisor) : value(static_cast<T>(divisor)) {}
    Lanes operator()(Lanes v) const { return v / value; }
  };
};

template <class T>
struct Integer : Number<T> {
  using typename Number<T>::Lanes;
  using Wrapping = Vector<std::make_unsigned_t<T>>;

  // Up to 32 bits the quotient is found in floating point, which is exact: a true quotient that is no integer is at
  // least 1 / divisor away from one, more than rounding can move it.
  struct Divisor {
    uint64_t value;
    explicit Divisor(uint64_t divisor) : value(divisor) {}

    T quotient(T x) const {
      if constexpr (sizeof(T) == 8) {
        const auto magnitude = x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
        return static_cast<T>(x < 0 ? 0 - magnitude / value : magnitude / value);
      } else {
        using Real = std::conditional_t<sizeof(T) == 4, double, float>;
        using Whole = std::conditional_t<std::is_same_v<T, uint32_t>, int64_t, int32_t>;
        return static_cast<T>(static_cast<Whole>(static_cast<Real>(x) / static_cast<Real>(value)));
      }
    }

    [[gnu::noinline]] Lanes operator()(Lanes v) const {
      T lanes[sizeof v / sizeof(T)];
      std::memcpy(lanes, &v, sizeof v);
      for (T& x : lanes) x = quotient(x);
      std::memcpy(&v, lanes, sizeof v);
      return v;
    }
  };
};

// A byte; whatever is not 0 counts as 1.
struct Bool : Number<uint8_t> {
  static Lanes load(const std::byte* from) { return as<Lanes>(truth(Number::load(from))) & one(); }

  struct Divisor {
    explicit Divisor(uint64_t) {}
    Lanes operator()(Lanes v) const { return v; }
  };
};

// Real and imaginary parts alternate in a register.
template <class T>
struct Complex : Number<T> {
  using typename Number<T>::Lanes;
  static constexpr size_t kElement = 2 * sizeof(T);
  using Mask = decltype(Lanes{} != Lanes{});
  using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

  static Mask numbers() {  // 0 1 2 3 ...
    Mask m;
    for (size_t i = 0; i < sizeof m / sizeof(Index); ++i) m[i] = static_cast<Index>(i);
    return m;
  }
  static Mask imaginary() { return (numbers() & 1) != 0; }
  static Lanes swapped(Lanes v) { return __builtin_shuffle(v, numbers() ^ 1); }
  static Lanes reals(Lanes v) { return __builtin_shuffle(v, numbers() & ~Index{1}); }
  static Lanes imaginaries(Lanes v) { return __builtin_shuffle(v, numbers() | 1); }
  static Mask truth(Lanes v) { return (v != Lanes{}) | (swapped(v) != Lanes{}); }
  static Lanes one() { return imaginary() ? Lanes{} : Lanes{} + T{1}; }
};

// 16-bit floats are operands in float32.
template <class Rounding>
struct Short : Number<float> {
  static constexpr size_t kElement = 2;
  static constexpr size_t kStride = sizeof(Lanes) / 2;
  using Words = Vector<uint32_t>;
  using Halves = Vector<uint16_t, sizeof(Lanes) / 4>;

  static Lanes load(const std::byte* from) { return Rounding::widen(hocket::load<Halves>(from)); }
  static void store(std::byte* to, Lanes v) { hocket::store<Halves>(to, Rounding::narrow(v)); }
};

struct Bfloat16 : Short<Bfloat16> {
  static Lanes widen(Halves h) { return as<Lanes>(__builtin_convertvector(h, Words) << 16); }
  static Halves narrow(Lanes v) {
    const Words bits = as<Words>(v);
    const Words even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return __builtin_convertvector(v != v ? bits >> 16 | 0x40 : even, Halves);
  }
};

struct Float16 : Short<Float16> {
  // With F16C an instruction does it; 0 says round to nearest even.
#ifdef __AVX512F__
  static Lanes widen(Halves h) { return as<Lanes>(_mm512_maskz_cvtph_ps(0xffff, as<__m256i>(h))); }
  static Halves narrow(Lanes v) { return as<Halves>(_mm512_maskz_cvtps_ph(0xffff, as<__m512>(v), 0)); }
#elif defined(__F16C__) && defined(__AVX2__)
  static Lanes widen(Halves h) { return as<Lanes>(_mm256_cvtph_ps(as<__m128i>(h))); }
  static Halves narrow(Lanes v) { return as<Halves>(_mm256_cvtps_ph(as<__m256>(v), 0)); }
#else
  // The same by hand, quiet NaNs included. 112 is the difference of the exponents' biases.
  static Lanes widen(Halves half) {
    const Words h = __builtin_convertvector(half, Words);
    const Words mantissa = h & 0x3ff, exponent = h & 0x7c00;
    const Words subnormal = as<Words>(__builtin_convertvector(mantissa, Lanes) * 0x1p-24f);
    const Words normal = ((h & 0x7fff) << 13) + (112u << 23);
    const Words special = 0x7f800000 | mantissa << 13 | (mantissa != 0 ? Words{} + 0x400000 : Words{});
    return as<Lanes>((exponent == 0 ? subnormal : exponent == 0x7c00 ? special : normal) | (h & 0x8000) << 16);
  }
  static Halves narrow(Lanes v) {
    const Words bits = as<Words>(v), sign = bits & 0x80000000, size = bits ^ sign;
    const Lanes half = Lanes{} + 0.5f;  // of a sum with a half, the last bit weighs as much as that of a subnormal
    const Words subnormal = as<Words>(as<Lanes>(size) + half) - as<Words>(half);
    const Words normal = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    const Words nan = 0x7e00 | (size >> 13 & 0x3ff);
    const Words finite = size < (113u << 23) ? subnormal : normal;
    return __builtin_convertvector((v != v ? nan : size >= (143u << 23) ? Words{} + 0x7c00 : finite) | sign >> 16,
                                   Halves);
  }
#endif
};

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
    return (a < b) | (a != a) ? a : b;
  }
};

struct Max {
  template <class F, class V>
  static V of(V a, V b) {
    return (a > b) | (a != a) ? a : b;
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

// -- Folding ----------------------------------------------------------------------------------------------------------

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
  if (dst != source) std::memcpy(dst, source, bytes);
  if (also != nullptr && also != source) std::memcpy(also, source, bytes);
}

template <class F, class O>
void fold(void* dst, void* also, const void* const* sources, size_t k, size_t count, uint64_t divisor) {
  const size_t bytes = count * F::kElement;
  if (bytes == 0) return;
  if (k == 1 && divisor <= 1) return copy(dst, also, sources[0], bytes);

  const typename F::Divisor by(divisor);
  const auto* division = divisor > 1 ? &by : nullptr;
  auto* out = static_cast<std::byte*>(dst);
  auto* too = static_cast<std::byte*>(also);
  size_t at = 0;
  const auto fetch = [&](size_t j, size_t n) { return F::load(bytes_of(sources[j]) + at + n * F::kStride); };
  const auto put = [&](size_t n, Lanes<F> v) {
    F::store(out + at + n * F::kStride, v);
    if (too != nullptr) F::store(too + at + n * F::kStride, v);
  };
  for (; bytes - at >= 4 * F::kStride; at += 4 * F::kStride) step<F, O, 4>(k, division, fetch, put);
  for (; bytes - at >= F::kStride; at += F::kStride) step<F, O, 1>(k, division, fetch, put);

  const size_t rest = bytes - at;
  if (rest == 0) return;
  std::byte padded[F::kStride] = {};
  const auto fetch_rest = [&](size_t j, size_t) {
    std::memcpy(padded, bytes_of(sources[j]) + at, rest);
    return F::load(padded);
  };
  const auto put_rest = [&](size_t, Lanes<F> v) {
    F::store(padded, v);
    std::memcpy(out + at, padded, rest);
    if (too != nullptr) std::memcpy(too + at, padded, rest);
  };
  step<F, O, 1>(k, division, fetch_rest, put_rest);
}

// -- The table --------------------------------------------------------------------------------------------------------

struct None;

template <class F, class O>
constexpr Fold entry() {
  if constexpr (std::is_same_v<O, None>) {
    return nullptr;
  } else {
    return fold<F, O>;
  }
}

template <class F, class... Os>
struct Row {
  static_assert(sizeof...(Os) == kOps);
  static constexpr Fold kFolds[kOps] = {entry<F, Os>()...};
};

// clang-format off
//                             sum  product         min   max   band  bor   bxor  land          lor          lxor
using Truths =          Row<Bool, Or, And,          And,  Or,   And,  Or,   Xor,  And,          Or,          Xor>;
template <class T>
using Integers = Row<Integer<T>, Sum, Product,      Min,  Max,  And,  Or,   Xor,  Logical<And>, Logical<Or>, Logical<Xor>>;
template <class F>
using Floats =            Row<F, Sum, Product,      Min,  Max,  None, None, None, Logical<And>, Logical<Or>, Logical<Xor>>;
template <class T>
using Complexes = Row<Complex<T>, Sum, ComplexProduct, None, None, None, None, None, Logical<And>, Logical<Or>, Logical<Xor>>;
// clang-format on

template <class... Rows>
inline Fold find_in(Dtype dtype, Op op) {
  static_assert(sizeof...(Rows) == kDtypes);
  static constexpr const Fold* kRows[kDtypes] = {Rows::kFolds...};
  return kRows[static_cast<size_t>(dtype)][static_cast<size_t>(op)];
}

inline Fold find(Dtype dtype, Op op) {
  return find_in<Truths, Integers<int8_t>, Integers<int16_t>, Integers<int32_t>, Integers<int64_t>, Integers<uint8_t>,
                 Integers<uint16_t>, Integers<uint32_t>, Integers<uint64_t>, Floats<Float16>, Floats<Bfloat16>,
                 Floats<Number<float>>, Floats<Number<double>>, Complexes<float>, Complexes<double>>(dtype, op);
}

}  // namespace
}  // namespace hocket
