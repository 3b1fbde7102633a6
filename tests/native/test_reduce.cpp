// The kernels against a naive scalar fold, and every instruction set against the baseline, bit for bit.
#include <bit>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/reduce.h"

namespace {

using namespace hocket;
using Bytes = std::vector<std::byte>;

constexpr unsigned kSeed = 20240607;
std::mt19937_64 random_bits(kSeed);
std::mt19937_64 shifts(kSeed);  // apart, so that the data are the same however many instruction sets there are
size_t passed = 0, failed = 0;

size_t below(size_t n) { return random_bits() % n; }

// -- The oracle: one element at a time, in the arithmetic that reduce.h promises --------------------------------------

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
struct Truth {
  uint8_t byte;
};

// The nearest number with `digits` binary digits and no exponent below `least`, ties to even.
double rounded(double v, int digits, int least) {
  const double quantum = std::ldexp(1.0, std::max(v == 0 ? least : std::ilogb(v), least) - digits + 1);
  return std::nearbyint(v / quantum) * quantum;
}

float widen(Half h) {
  const int exponent = h.bits >> 10 & 31, mantissa = h.bits & 1023;
  const float size = exponent == 31 ? (mantissa ? std::nanf("") : std::numeric_limits<float>::infinity())
                     : exponent     ? std::ldexp(1024.f + mantissa, exponent - 25)
                                    : std::ldexp(float(mantissa), -24);
  return h.bits & 0x8000 ? -size : size;
}

Half half_of(float v) {
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  if (std::isnan(v)) return {0x7e00};
  const double size = std::abs(v) < 1e6f ? rounded(std::abs(v), 11, -14) : 1e6;
  if (size > 65504) return {uint16_t(sign | 0x7c00)};
  const int exponent = size < 0x1p-14 ? -15 : std::ilogb(size);
  const double mantissa = exponent == -15 ? size * 0x1p24 : std::ldexp(size, 10 - exponent) - 1024;
  return {uint16_t(sign | (exponent + 15) << 10 | int(mantissa))};
}

float widen(Brain b) { return std::bit_cast<float>(uint32_t(b.bits) << 16); }

Brain brain_of(float v) {
  if (std::isnan(v)) return {0x7fc0};
  const double near = std::isinf(v) ? v : rounded(v, 8, -126);
  const bool over = std::abs(near) > double(std::numeric_limits<float>::max());
  const float kept = over ? std::copysign(std::numeric_limits<float>::infinity(), v) : std::copysign(float(near), v);
  return {uint16_t(std::bit_cast<uint32_t>(kept) >> 16)};
}

template <class V>
constexpr bool is_complex = !std::is_arithmetic_v<V>;

template <class V>
bool is_nan(V v) {
  return v != v;
}

template <class V>
bool is_true(V v) {
  return v != V(0);
}

template <class V>
V combined(Op op, V a, V b) {
  if (op == Op::land) return V(is_true(a) && is_true(b));
  if (op == Op::lor) return V(is_true(a) || is_true(b));
  if (op == Op::lxor) return V(is_true(a) != is_true(b));
  if constexpr (std::is_same_v<V, bool>) {
    if (op == Op::sum || op == Op::max || op == Op::bor) return a || b;
    return op == Op::bxor ? a != b : a && b;
  } else if constexpr (std::is_integral_v<V>) {
    if (op == Op::sum) return V(uint64_t(a) + uint64_t(b));
    if (op == Op::product) return V(uint64_t(a) * uint64_t(b));
    if (op == Op::band) return V(a & b);
    if (op == Op::bor) return V(a | b);
    if (op == Op::bxor) return V(a ^ b);
    return op == Op::min ? std::min(a, b) : std::max(a, b);
  } else if constexpr (is_complex<V>) {
    if (op == Op::sum) return {a.real() + b.real(), a.imag() + b.imag()};
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
  } else {
    if (op == Op::sum) return a + b;
    if (op == Op::product) return a * b;
    if (is_nan(a) || is_nan(b)) return std::numeric_limits<V>::quiet_NaN();
    return (op == Op::min ? a < b : a > b) ? a : b;
  }
}

template <class V>
V divided(V v, uint64_t divisor) {
  if constexpr (std::is_same_v<V, bool>) {
    return v;
  } else if constexpr (std::is_integral_v<V>) {
    if (v < 0) return V(-__int128(-__int128(v) / divisor));
    return V(uint64_t(v) / divisor);
  } else if constexpr (is_complex<V>) {
    const auto by = static_cast<typename V::value_type>(divisor);
    return {v.real() / by, v.imag() / by};
  } else {
    return v / static_cast<V>(divisor);
  }
}

template <class T>
auto operand(T stored) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, Brain>) {
    return widen(stored);
  } else if constexpr (std::is_same_v<T, Truth>) {
    return stored.byte != 0;
  } else {
    return stored;
  }
}

template <class T, class V>
T stored(V v) {
  if constexpr (std::is_same_v<T, Half>) {
    return half_of(v);
  } else if constexpr (std::is_same_v<T, Brain>) {
    return brain_of(v);
  } else if constexpr (std::is_same_v<T, Truth>) {
    return {uint8_t(v)};
  } else {
    return v;
  }
}

template <class T>
T element(const std::byte* at) {
  T t;
  std::memcpy(&t, at, sizeof t);
  return t;
}

template <class T>
Bytes naive(Op op, const std::vector<Bytes>& sources, size_t count, uint64_t divisor) {
  Bytes result(count * sizeof(T));
  for (size_t i = 0; i < result.size(); i += sizeof(T)) {
    if (sources.size() == 1 && divisor <= 1) {
      std::memcpy(&result[i], &sources[0][i], sizeof(T));
      continue;
    }
    auto total = operand(element<T>(&sources[0][i]));
    for (size_t j = 1; j < sources.size(); ++j) total = combined(op, total, operand(element<T>(&sources[j][i])));
    if (divisor > 1) total = divided(total, divisor);
    const T last = stored<T>(total);
    std::memcpy(&result[i], &last, sizeof last);
  }
  return result;
}

// Which of several NaNs a sum keeps is left to the compiler, and by clang also which a minimum does; all else is exact.
#ifdef __clang__
constexpr bool kClang = true;
#else
constexpr bool kClang = false;
#endif

template <class T>
bool same(const Bytes& a, const Bytes& b) {
  if (a == b) return true;
  for (size_t i = 0; i < a.size(); i += sizeof(T)) {
    const auto x = operand(element<T>(&a[i])), y = operand(element<T>(&b[i]));
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0 && !(is_nan(x) && is_nan(y))) return false;
  }
  return true;
}

template <class T>
bool same_parts(const Bytes& a, const Bytes& b) {
  if constexpr (requires { typename T::value_type; }) {
    return same<typename T::value_type>(a, b);
  } else {
    return same<T>(a, b);
  }
}

// Of all results in their order, so that processors and compilers can be compared. NaNs of which one is left to the
// compiler count as the same.
uint64_t digest = 0xcbf29ce484222325;

template <class T>
void count_in(const Bytes& result, bool loose) {
  if constexpr (requires { typename T::value_type; }) {
    count_in<typename T::value_type>(result, loose);
  } else {
    for (size_t i = 0; i < result.size(); i += sizeof(T)) {
      uint64_t bits = 0;
      std::memcpy(&bits, &result[i], sizeof(T));
      if (loose && is_nan(operand(element<T>(&result[i])))) bits = ~uint64_t{0};
      digest = (digest ^ bits) * 0x100000001b3;
    }
  }
}

// -- Running a case ---------------------------------------------------------------------------------------------------

struct Case {
  size_t count, k;
  uint64_t divisor = 1;
  int dst_is = -1;   // the source that dst is, or -1
  int also_is = -2;  // the source that also is, -1 for memory of its own, -2 for none
};

// Memory of exactly this size, so that a sanitizer sees any step beyond, at any alignment.
struct Buffer {
  size_t shift = shifts() % 17;
  Bytes memory;
  explicit Buffer(const Bytes& content) : memory(shift + content.size()) {
    if (!content.empty()) std::memcpy(data(), content.data(), content.size());
  }
  std::byte* data() { return memory.data() + shift; }
  Bytes content() { return Bytes(memory.begin() + shift, memory.end()); }
};

template <class T>
Bytes draw(size_t count) {
  Bytes bytes(count * sizeof(T));
  for (std::byte& b : bytes) b = std::byte(random_bits());
  if constexpr (requires { typename T::value_type; }) {  // small whole numbers and zeros among random bits
    for (size_t i = 0; i < bytes.size(); i += sizeof(typename T::value_type)) {
      const auto v = static_cast<typename T::value_type>(below(5)) - 2;
      if (below(4) != 0) std::memcpy(&bytes[i], &v, sizeof v);
    }
  } else {
    using V = decltype(operand(T{}));
    for (size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      const T v = stored<T>(static_cast<V>(below(5)));
      if (below(2) != 0) std::memcpy(&bytes[i], &v, sizeof v);
    }
  }
  return bytes;
}

void check(bool good, Dtype dtype, Op op, Isa isa, const Case& c, const char* what) {
  good ? ++passed : ++failed;
  if (good || failed > 20) return;
  std::printf("dtype %d op %d isa %d count %zu k %zu divisor %llu dst %d also %d: %s\n", int(dtype), int(op), int(isa),
              c.count, c.k, static_cast<unsigned long long>(c.divisor), c.dst_is, c.also_is, what);
}

// Where of two NaNs either may be left.
bool is_loose(Dtype dtype, Op op) {
  const bool order = op == Op::min || op == Op::max;
  return dtype >= Dtype::f16 && (op == Op::sum || op == Op::product || (kClang && order));
}

template <class T>
void run(Dtype dtype, Op op, const Case& c, const std::vector<Bytes>& data) {
  const Bytes expected = naive<T>(op, data, c.count, c.divisor);
  Bytes baseline;
  for (const Isa isa : isas()) {
    std::vector<Buffer> buffers(data.begin(), data.end());
    Buffer own(Bytes(expected.size())), too(Bytes(expected.size()));
    Buffer& dst = c.dst_is >= 0 ? buffers[c.dst_is] : own;
    Buffer& also = c.also_is >= 0 ? buffers[c.also_is] : too;
    std::vector<const void*> sources;
    for (Buffer& b : buffers) sources.push_back(b.data());
    find_kernels(dtype, op, isa)
        .fold(dst.data(), c.also_is == -2 ? nullptr : also.data(), sources.data(), c.k, c.count, c.divisor);
    const Bytes got = dst.content();
    const bool loose = is_loose(dtype, op);
    if (isa == Isa::base) count_in<T>(baseline = got, dtype >= Dtype::f16);
    check(same_parts<T>(got, expected), dtype, op, isa, c, "differs from the naive fold");
    check(loose ? same_parts<T>(got, baseline) : got == baseline, dtype, op, isa, c, "differs from the baseline");
    if (c.also_is != -2) check(also.content() == got, dtype, op, isa, c, "also differs from dst");
    for (int j = 0; j < int(c.k); ++j) {
      const bool written = j == c.dst_is || j == c.also_is;
      if (!written) check(buffers[j].content() == data[j], dtype, op, isa, c, "wrote a source");
    }
  }
}

template <class T>
void run(Dtype dtype, Op op, const Case& c) {
  std::vector<Bytes> data;
  for (size_t j = 0; j < c.k; ++j) data.push_back(draw<T>(c.count));
  run<T>(dtype, op, c, data);
}

// A sum and what is copied beside it, in one loop: the same as the fold, wherever it goes, and whatever goes with it.
template <class T>
void run_interleaved(Dtype dtype, Op op, const Case& c, bool copies_before, bool copies_after) {
  const std::vector<Bytes> data{draw<T>(c.count), draw<T>(c.count)}, copied{draw<T>(c.count), draw<T>(c.count)};
  const Bytes expected = naive<T>(op, data, c.count, c.divisor);
  for (const Isa isa : isas()) {
    std::vector<Buffer> buffers(data.begin(), data.end()), given(copied.begin(), copied.end()),
        taken(2, Buffer(Bytes(expected.size())));
    Buffer own(Bytes(expected.size())), folded(Bytes(expected.size()));
    const Kernels kernels = find_kernels(dtype, op, isa);
    const void* sources[] = {buffers[0].data(), buffers[1].data()};
    kernels.fold(folded.data(), nullptr, sources, 2, c.count, c.divisor);
    Buffer& dst = c.dst_is >= 0 ? buffers[c.dst_is] : own;
    Strands strands{dst.data(),     buffers[c.also_is].data(), buffers[0].data(), buffers[1].data(), c.divisor, {}, {},
                    expected.size()};
    if (copies_before) strands.before = {taken[0].data(), given[0].data()};
    if (copies_after) strands.after = {taken[1].data(), given[1].data()};
    kernels.interleave(strands);
    check(same_parts<T>(dst.content(), expected), dtype, op, isa, c, "interleaved differs from the naive fold");
    check(is_loose(dtype, op) ? same_parts<T>(dst.content(), folded.content()) : dst.content() == folded.content(),
          dtype, op, isa, c, "interleaved differs from the fold");
    check(buffers[c.also_is].content() == dst.content(), dtype, op, isa, c, "also differs from dst");
    const int left = 1 - c.also_is;
    if (left != c.dst_is) check(buffers[left].content() == data[left], dtype, op, isa, c, "wrote a source");
    for (int i = 0; i < 2; ++i) {
      const bool copies = i == 0 ? copies_before : copies_after;
      check(taken[i].content() == (copies ? copied[i] : Bytes(expected.size())), dtype, op, isa, c, "copied wrongly");
      check(given[i].content() == copied[i], dtype, op, isa, c, "wrote what is copied");
    }
  }
}

template <class T>
void test_interleaved(Dtype dtype, Op op) {
  for (const size_t turns : {0, 1, 2, 5}) {
    for (const uint64_t divisor : {1, 3}) {
      for (int i = 0; i < 16; ++i) {
        const int also = i % 2, dst = i / 2 % 2 == 0 ? -1 : 1 - also;
        const Case c{turns * interleaved_turn / sizeof(T), 2, divisor, dst, also};
        run_interleaved<T>(dtype, op, c, i / 4 % 2, i / 8 % 2);
      }
    }
  }
}

template <class T>
void test_pair(Dtype dtype, Op op) {
  static constexpr uint64_t kDivisors[] = {0, 1, 2, 3, 7, 200, 70000, (1ull << 40) + 1, ~0ull};
  const auto any_divisor = [] { return kDivisors[below(std::size(kDivisors))]; };
  for (size_t count = 0; count <= 200; ++count) run<T>(dtype, op, {count, 1 + below(9), any_divisor(), -1, -1});
  for (const size_t count : {1000, 4099}) run<T>(dtype, op, {count, 2 + below(8)});
  const size_t blocks = 40'000 / sizeof(T) + 3;  // two that go to `also` as they are, and a rest
  for (const int also : {-1, 0, 1}) run<T>(dtype, op, {blocks, 2, any_divisor(), also == 0 ? 1 : 0, also});
  run<T>(dtype, op, {blocks, 3, any_divisor(), -1, -1});
  for (size_t k = 1; k <= 9; ++k) {
    run<T>(dtype, op, {131, k, any_divisor(), -1, -2});
    for (int j = 0; j < int(k); ++j) {
      const int other = below(k);
      run<T>(dtype, op, {1 + below(90), k, any_divisor(), j, -1});
      run<T>(dtype, op, {1 + below(90), k, any_divisor(), j, other == j ? -2 : other});
      run<T>(dtype, op, {1 + below(90), k, any_divisor(), -1, j});
    }
  }
}

// Where numbers are few, all of them: 16-bit floats with random partners, small integers with every divisor.
template <class T>
void test_all_shorts(Dtype dtype) {
  std::vector<Bytes> data{Bytes(1 << 17), draw<T>(1 << 16)};
  for (uint32_t i = 0; i < 1 << 16; ++i) std::memcpy(&data[0][2 * i], &i, 2);
  for (const Op op : {Op::sum, Op::product, Op::min, Op::max, Op::land}) {
    if (find_kernels(dtype, op).fold) run<T>(dtype, op, {1 << 16, 2}, data);
  }
  for (const uint64_t divisor : {2, 3, 5, 10, 127, 128, 255, 32767, 32768, 65535}) {
    run<T>(dtype, Op::sum, {1 << 16, 1, divisor}, {data[0]});
  }
}

template <class T>
void test_quotients(Dtype dtype) {
  using Limits = std::numeric_limits<T>;
  Bytes values(64 * sizeof(T));
  for (int i = 0; i < 64; ++i) {
    const T v = i < 20 ? T(Limits::max() - T(i)) : i < 40 ? T(Limits::min() + T(i - 20)) : T(random_bits());
    std::memcpy(&values[i * sizeof v], &v, sizeof v);
  }
  for (uint64_t divisor = 2; divisor < 300; ++divisor) run<T>(dtype, Op::sum, {64, 1, divisor}, {values});
  for (uint64_t bit = 2; bit < 64; ++bit) {
    for (int off = -2; off <= 2; ++off) run<T>(dtype, Op::sum, {64, 1, (1ull << bit) + off}, {values});
  }
}

template <class T>
void test_dtype(Dtype dtype) {
  check(size_of(dtype) == sizeof(T), dtype, Op::sum, Isa::base, {}, "size_of");
  for (size_t i = 0; i < kOps; ++i) {
    const Op op = static_cast<Op>(i);
    const bool bitwise = op == Op::band || op == Op::bor || op == Op::bxor, order = op == Op::min || op == Op::max;
    const bool sensible = !(bitwise && dtype >= Dtype::f16) && !(order && dtype >= Dtype::c64);
    const Kernels kernels = find_kernels(dtype, op);
    check((kernels.fold != nullptr) == sensible && (kernels.interleave != nullptr) == sensible, dtype, op, Isa::base,
          {}, "should or should not exist");
    if (sensible) test_pair<T>(dtype, op), test_interleaved<T>(dtype, op);
  }
  if constexpr (sizeof(T) == 2) test_all_shorts<T>(dtype);
  if constexpr (std::is_integral_v<T>) test_quotients<T>(dtype);
}

}  // namespace

int main() {
  test_dtype<Truth>(Dtype::b1);
  test_dtype<int8_t>(Dtype::i8);
  test_dtype<int16_t>(Dtype::i16);
  test_dtype<int32_t>(Dtype::i32);
  test_dtype<int64_t>(Dtype::i64);
  test_dtype<uint8_t>(Dtype::u8);
  test_dtype<uint16_t>(Dtype::u16);
  test_dtype<uint32_t>(Dtype::u32);
  test_dtype<uint64_t>(Dtype::u64);
  test_dtype<Half>(Dtype::f16);
  test_dtype<Brain>(Dtype::bf16);
  test_dtype<float>(Dtype::f32);
  test_dtype<double>(Dtype::f64);
  test_dtype<std::complex<float>>(Dtype::c64);
  test_dtype<std::complex<double>>(Dtype::c128);
  for (const Isa isa : isas()) std::printf("%s ", name_of(isa));
  std::printf("digest %016llx, seed %u\n", static_cast<unsigned long long>(digest), kSeed);
  std::printf("%zu passed, %zu failed\n", passed, failed);
  return failed != 0;
}
