// How a vector register holds each dtype; half of reduce_kernels.h, which says how all of it is compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
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
  using Real = std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, double, float>>;
  using Whole = std::conditional_t<std::is_same_v<T, uint32_t>, int64_t, int32_t>;

  struct Divisor {
    Real value;
    explicit Divisor(uint64_t divisor) : value(static_cast<Real>(divisor)) {}

    T quotient(T x) const {
      if constexpr (sizeof(T) == 8) {
        const uint64_t magnitude = x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
        return static_cast<T>(x < 0 ? 0 - magnitude / value : magnitude / value);
      } else {
        return static_cast<T>(static_cast<Whole>(static_cast<Real>(x) / value));
      }
    }

    [[gnu::noinline]] Lanes operator()(Lanes v) const {
      for (size_t i = 0; i < sizeof v / sizeof(T); ++i) v[i] = quotient(v[i]);
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

#if defined(__clang__)
  // Of each two lanes i and i + 1 of v the lanes i + even and i + odd.
  template <size_t even, size_t odd, size_t... i>
  static Lanes picked(Lanes v, std::index_sequence<i...>) {
    return __builtin_shufflevector(v, v, (i % 2 == 0 ? i + even : i - 1 + odd)...);
  }
  using Places = std::make_index_sequence<sizeof(Lanes) / sizeof(T)>;
  static Lanes swapped(Lanes v) { return picked<1, 0>(v, Places()); }
  static Lanes reals(Lanes v) { return picked<0, 0>(v, Places()); }
  static Lanes imaginaries(Lanes v) { return picked<1, 1>(v, Places()); }
#else
  static Lanes swapped(Lanes v) { return __builtin_shuffle(v, numbers() ^ 1); }
  static Lanes reals(Lanes v) { return __builtin_shuffle(v, numbers() & ~Index{1}); }
  static Lanes imaginaries(Lanes v) { return __builtin_shuffle(v, numbers() | 1); }
#endif
  static Mask truth(Lanes v) { return (v != Lanes{}) | (swapped(v) != Lanes{}); }
  static Lanes one() { return imaginary() ? Lanes{} : Lanes{} + T{1}; }
};

// 16-bit floats are operands in float32: half as many bytes in memory as in a register. What the compiler makes of
// __builtin_convertvector is slow where there is one instruction or two.
using Words = Vector<uint32_t>;
using Halves = Vector<uint16_t, kBytes / 4>;

inline Words widened(Halves h) {
#if defined(__AVX512F__)
  return as<Words>(_mm512_maskz_cvtepu16_epi32(0xffff, as<__m256i>(h)));
#elif defined(__AVX2__)
  return as<Words>(_mm256_cvtepu16_epi32(as<__m128i>(h)));
#elif defined(__SSE2__)
  return as<Words>(_mm_unpacklo_epi16(_mm_cvtsi64_si128(as<int64_t>(h)), _mm_setzero_si128()));
#else
  return __builtin_convertvector(h, Words);
#endif
}

inline Halves narrowed(Words w) {  // of words below 2^16
#if defined(__AVX512F__)
  return as<Halves>(_mm512_maskz_cvtepi32_epi16(0xffff, as<__m512i>(w)));
#elif defined(__AVX2__)
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(as<__m256i>(w), as<__m256i>(w)), 0x08);
  return as<Halves>(_mm256_castsi256_si128(packed));
#elif defined(__SSE2__)
  const __m128i pairs = _mm_shufflehi_epi16(_mm_shufflelo_epi16(as<__m128i>(w), 0x08), 0x08);
  return as<Halves>(_mm_cvtsi128_si64(_mm_shuffle_epi32(pairs, 0x08)));
#else
  return __builtin_convertvector(w, Halves);
#endif
}

template <class Rounding>
struct Short : Number<float> {
  static constexpr size_t kElement = 2;
  static constexpr size_t kStride = sizeof(Halves);
  static Lanes load(const std::byte* from) { return Rounding::widen(hocket::load<Halves>(from)); }
  static void store(std::byte* to, Lanes v) { hocket::store<Halves>(to, Rounding::narrow(v)); }
};

#if defined(__AVX512BF16__)
const bool kRounds = __builtin_cpu_supports("avx512bf16");
#endif

struct Bfloat16 : Short<Bfloat16> {
  static Lanes widen(Halves h) { return as<Lanes>(widened(h) << 16); }
  static Halves narrow(Lanes v) {
#if defined(__AVX512BF16__)  // the instruction takes subnormal numbers for zeros; all others it rounds as we do
    constexpr int subnormal = 0x20;
    if (kRounds && _mm512_fpclass_ps_mask(as<__m512>(v), subnormal) == 0) [[likely]] {
      return as<Halves>(_mm512_cvtneps_pbh(as<__m512>(v)));
    }
#endif
    const Words bits = as<Words>(v);
    const Words even = bits + 0x7fff + (bits >> 16 & 1);
    return narrowed((v != v ? bits | 0x400000 : even) >> 16);
  }
};

struct Float16 : Short<Float16> {
#if defined(__AVX512F__)  // in the instructions 0 says: round to nearest even
  static Lanes widen(Halves h) { return as<Lanes>(_mm512_maskz_cvtph_ps(0xffff, as<__m256i>(h))); }
  static Halves narrow(Lanes v) { return as<Halves>(_mm512_maskz_cvtps_ph(0xffff, as<__m512>(v), 0)); }
#elif defined(__AVX2__) && defined(__F16C__)
  static Lanes widen(Halves h) { return as<Lanes>(_mm256_cvtph_ps(as<__m128i>(h))); }
  static Halves narrow(Lanes v) { return as<Halves>(_mm256_cvtps_ph(as<__m256>(v), 0)); }
#elif defined(__aarch64__)
  static Lanes widen(Halves h) { return as<Lanes>(vcvt_f32_f16(as<float16x4_t>(h))); }
  static Halves narrow(Lanes v) { return as<Halves>(vcvt_f16_f32(as<float32x4_t>(v))); }
#else  // the same by hand, quiet NaNs included; 112 is the difference between the biases of the exponents
  using Signed = Vector<int32_t>;
  static Lanes widen(Halves half) {
    const Words h = widened(half);
    const Words mantissa = h & 0x3ff, exponent = h & 0x7c00;
    const Words subnormal = as<Words>(__builtin_convertvector(as<Signed>(mantissa), Lanes) * 0x1p-24f);
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
    const Words finite = as<Signed>(size) < (113 << 23) ? subnormal : normal;
    const Words infinite = as<Signed>(size) >= (143 << 23) ? Words{} + 0x7c00 : finite;
    return narrowed((v != v ? nan : infinite) | sign >> 16);
  }
#endif
};

}  // namespace
}  // namespace hocket
