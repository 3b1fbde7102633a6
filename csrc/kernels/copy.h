// Copies of memory that does not overlap: the C library's, but where that is not good enough. Compiled once, for every
// processor of its kind: kernels for others include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hocket {

// As memcpy, which lets some processors copy what is long by one instruction, `rep movsb`: that writes whole lines
// without fetching them first. But AMD's Zen 3 does it a byte at a time, twelve times as slowly, where `to` is less
// than half a line further into its page than `from`; and NumPy's arrays begin 16 bytes into a page, slots at a line.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes);

// For a few lines that are one of many parts: what memcpy does first, to find its way, would take as long as the copy.
void copy_short(std::byte* to, const std::byte* from, size_t bytes);

// From another core's caches: a line of each of several pages in turn, and of the next ones ahead, since the processor
// fetches ahead in each page by itself, and not from one to the next. What is less than a block of so many bytes, or
// left of them, as `copy_bytes`.
inline constexpr uint64_t woven_block = 16 << 10;
void copy_woven(std::byte* to, const std::byte* from, size_t bytes);

// Past the caches: no line is fetched to be overwritten. For what is a part of so many bytes that are written in a row,
// by all who share the caches, and not read meanwhile: the first of them would be in no cache any more when somebody
// reads them. Of less it is for who copies to find out (engine/past_caches.h). Other threads see it all once it has
// returned.
inline constexpr uint64_t beyond_caches = 16 << 20;
void copy_past_caches(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace hocket
