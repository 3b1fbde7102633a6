#include "kernels/copy.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace hocket {

#ifdef __SSE2__

namespace {

constexpr size_t wide = sizeof(__m128i), line = 64;

__m128i* vector_at(std::byte* at) { return reinterpret_cast<__m128i*>(at); }
__m128i load(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
void keep(__m128i* to, __m128i value) { _mm_store_si128(to, value); }
void keep_anywhere(__m128i* to, __m128i value) { _mm_storeu_si128(to, value); }
void pass(__m128i* to, __m128i value) { _mm_stream_si128(to, value); }

// As many lines as there are from `at` on; where the rest begins.
template <void (*store)(__m128i*, __m128i)>
size_t copy_lines(std::byte* to, const std::byte* from, size_t at, size_t bytes) {
  for (; at + line <= bytes; at += line) {
    const __m128i a = load(from + at), b = load(from + at + wide), c = load(from + at + 2 * wide),
                  d = load(from + at + 3 * wide);
    store(vector_at(to + at), a);
    store(vector_at(to + at + wide), b);
    store(vector_at(to + at + 2 * wide), c);
    store(vector_at(to + at + 3 * wide), d);
  }
  return at;
}

// What is no whole line of `to`, at both ends, as the C library does.
template <void (*store)(__m128i*, __m128i)>
void by_lines(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t head = std::min<size_t>(-reinterpret_cast<uintptr_t>(to) % line, bytes);
  std::memcpy(to, from, head);
  const size_t at = copy_lines<store>(to, from, head, bytes);
  std::memcpy(to + at, from + at, bytes - at);
}

constexpr size_t page = 4096;

bool is_close_behind(const std::byte* to, const std::byte* from) {
  const uintptr_t distance = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % page;
  return distance != 0 && distance < line;
}

}  // namespace

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t brief = 2048;  // up to which the C library uses vectors itself
  if (bytes > brief && is_close_behind(to, from)) return by_lines<keep>(to, from, bytes);
  std::memcpy(to, from, bytes);
}

void copy_short(std::byte* to, const std::byte* from, size_t bytes) {
  const size_t at = copy_lines<keep_anywhere>(to, from, 0, bytes);
  std::memcpy(to + at, from + at, bytes - at);
}

void copy_woven(std::byte* to, const std::byte* from, size_t bytes) {
  size_t at = std::min<size_t>(-reinterpret_cast<uintptr_t>(to) % line, bytes);
  std::memcpy(to, from, at);
  for (; at + woven_block <= bytes; at += woven_block) {
    for (size_t row = at; row < at + page; row += line) {
      for (size_t i = row; i < row + woven_block; i += page) {
        if (i + woven_block < bytes) __builtin_prefetch(from + i + woven_block);
        copy_lines<keep>(to, from, i, i + line);
      }
    }
  }
  if (at < bytes) copy_bytes(to + at, from + at, bytes - at);
}

void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) {
  by_lines<pass>(to, from, bytes);
  _mm_sfence();
}

#else

void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }
void copy_short(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }
void copy_woven(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes) { std::memcpy(to, from, bytes); }

#endif

}  // namespace hocket
