// Copies of memory that does not overlap: the C library's, but where that is not good enough.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace hocket {

// With vectors, a line of `to` at a time.
void copy_by_lines(std::byte* to, const std::byte* from, size_t bytes);

// As memcpy, which lets some processors copy what is long by one instruction, `rep movsb`: that writes whole lines
// without fetching them first. But AMD's Zen 3 does it a byte at a time, twelve times as slowly, where `to` is less
// than half a line further into its page than `from`; and NumPy's arrays begin 16 bytes into a page, slots at a line.
inline void copy_bytes(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr uintptr_t page = 4096, line = 64;
  constexpr size_t brief = 2048;  // up to which the C library uses vectors itself
  const uintptr_t behind = (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from)) % page;
  if (bytes > brief && behind != 0 && behind < line) return copy_by_lines(to, from, bytes);
  std::memcpy(to, from, bytes);
}

// Past the caches: no line is fetched to be overwritten. For what is a part of so many bytes that are written in a row,
// and not read meanwhile: the first of them would be in no cache any more when somebody reads them. Other threads see
// it all once it has returned.
inline constexpr uint64_t beyond_caches = 16 << 20;
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace hocket
