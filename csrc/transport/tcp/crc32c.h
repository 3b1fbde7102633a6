// CRC32C (Castagnoli), which finds every error of up to 5 bits in a frame, and all but one in four billion others.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hocket::tcp {

// Of what `sum` was counted over, followed by these bytes. It begins with 0.
uint32_t crc32c(uint32_t sum, const std::byte* data, size_t bytes);
// The same, one byte at a time: for machines without an instruction for it.
uint32_t crc32c_by_table(uint32_t sum, const std::byte* data, size_t bytes);

}  // namespace hocket::tcp
