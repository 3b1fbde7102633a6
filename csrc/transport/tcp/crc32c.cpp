// The instruction, of SSE4.2 and of an extension of ARMv8, takes eight bytes a cycle, and its result three cycles
// later: three sums are counted side by side, and put together as if there had been one.
//
//   A B C    sum(ABC) = moved(moved(sum(A)) ^ sum(B)) ^ sum(C)    `moved`: as if as many zeros had followed
#include "transport/tcp/crc32c.h"

#ifdef __AARCH64EL__
#include <sys/auxv.h>
#endif

#include <array>
#include <cstring>

namespace hocket::tcp {

namespace {

constexpr uint32_t polynomial = 0x82f63b78;  // reflected
constexpr size_t stride = 1024;              // bytes of each of the three

constexpr std::array<uint32_t, 256> bytewise = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t sum = i;
    for (int bit = 0; bit < 8; ++bit) sum = sum & 1 ? sum >> 1 ^ polynomial : sum >> 1;
    table[i] = sum;
  }
  return table;
}();

// What `stride` zeros make of each of the four bytes of a sum: the sum is linear in its bits.
const std::array<std::array<uint32_t, 256>, 4>& moves() {
  static const auto table = [] {
    std::array<std::array<uint32_t, 256>, 4> all{};
    for (size_t byte = 0; byte < 4; ++byte) {
      for (uint32_t value = 0; value < 256; ++value) {
        uint32_t sum = value << 8 * byte;
        for (size_t i = 0; i < stride; ++i) sum = sum >> 8 ^ bytewise[sum & 0xff];
        all[byte][value] = sum;
      }
    }
    return all;
  }();
  return table;
}

uint32_t table_sum(uint32_t sum, const std::byte* data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) sum = sum >> 8 ^ bytewise[(sum ^ std::to_integer<uint32_t>(data[i])) & 0xff];
  return sum;
}

#if defined(__x86_64__)

#define WITH_INSTRUCTION [[gnu::target("sse4.2")]]
bool has_instruction() { return __builtin_cpu_supports("sse4.2"); }
WITH_INSTRUCTION inline uint64_t plus_word(uint64_t sum, uint64_t word) { return __builtin_ia32_crc32di(sum, word); }
WITH_INSTRUCTION inline uint64_t plus_byte(uint64_t sum, std::byte byte) {
  return __builtin_ia32_crc32qi(static_cast<uint32_t>(sum), std::to_integer<unsigned char>(byte));
}

#elif defined(__AARCH64EL__)

// In assembler: compilers disagree on how to ask for one function with the extension.
#define WITH_INSTRUCTION
bool has_instruction() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
inline uint64_t plus_word(uint64_t sum, uint64_t word) {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(sum) : "r"(word));
  return sum;
}
inline uint64_t plus_byte(uint64_t sum, std::byte byte) {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(sum) : "r"(std::to_integer<uint32_t>(byte)));
  return sum;
}

#endif

#ifdef WITH_INSTRUCTION

uint64_t word(const std::byte* data) {
  uint64_t value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

WITH_INSTRUCTION uint32_t fast_sum(uint32_t begin, const std::byte* data, size_t bytes) {
  uint64_t sum = begin;
  if (bytes >= 3 * stride) {
    const auto& table = moves();
    const auto moved = [&](uint64_t s) {
      return table[0][s & 0xff] ^ table[1][s >> 8 & 0xff] ^ table[2][s >> 16 & 0xff] ^ table[3][s >> 24 & 0xff];
    };
    for (; bytes >= 3 * stride; data += 3 * stride, bytes -= 3 * stride) {
      uint64_t second = 0, third = 0;
      for (size_t i = 0; i < stride; i += 8) {
        sum = plus_word(sum, word(data + i));
        second = plus_word(second, word(data + stride + i));
        third = plus_word(third, word(data + 2 * stride + i));
      }
      sum = moved(moved(sum) ^ second) ^ third;
    }
  }
  for (; bytes >= 8; data += 8, bytes -= 8) sum = plus_word(sum, word(data));
  for (; bytes != 0; ++data, --bytes) sum = plus_byte(sum, *data);
  return static_cast<uint32_t>(sum);
}

#endif

}  // namespace

uint32_t crc32c_by_table(uint32_t sum, const std::byte* data, size_t bytes) { return ~table_sum(~sum, data, bytes); }

uint32_t crc32c(uint32_t sum, const std::byte* data, size_t bytes) {
#ifdef WITH_INSTRUCTION
  static const bool fast = has_instruction();
  if (fast) return ~fast_sum(~sum, data, bytes);
#endif
  return crc32c_by_table(sum, data, bytes);
}

}  // namespace hocket::tcp
