// Copies, at all distances within a page and of lengths around those at which they go another way: every byte that is
// to be there, and none beside.
#include "check.h"
#include "kernels/copy.h"

namespace {

using namespace hocket;
using namespace hocket::testing;

constexpr size_t page = 4096, margin = 128;

std::byte pattern(uint64_t seed, uint64_t i) { return std::byte(mix(seed, i)); }

void copies(void (*copy)(std::byte*, const std::byte*, size_t), const char* name) {
  const size_t lengths[] = {0, 1, 15, 16, 63, 64, 65, 127, 128, 2047, 2048, 2049, 2112, 3000, 4096, 10000};
  Bytes from(4 * page), to(4 * page), wanted(4 * page);
  for (size_t i = 0; i < from.size(); ++i) from[i] = pattern(1, i);
  for (size_t distance = 0; distance < page; distance += distance < 2 * margin || distance > page - margin ? 1 : 61) {
    for (const size_t begin : {size_t{0}, size_t{16}, size_t{41}}) {
      for (const size_t bytes : lengths) {
        for (size_t i = 0; i < to.size(); ++i) wanted[i] = to[i] = pattern(2, i);
        const size_t ahead = -reinterpret_cast<uintptr_t>(from.data()) % page;  // the page's begin in `from`
        const size_t after = (begin + distance - reinterpret_cast<uintptr_t>(to.data())) % page;
        const size_t first = ahead + begin + bytes <= from.size() ? ahead + begin : begin;
        const size_t there = after + bytes <= to.size() ? after : 0;
        for (size_t i = 0; i < bytes; ++i) wanted[there + i] = from[first + i];
        copy(to.data() + there, from.data() + first, bytes);
        check(to == wanted, name, " of ", bytes, " bytes over a distance of ", distance, " is wrong");
      }
    }
  }
}

}  // namespace

int main() {
  copies(copy_bytes, "a copy");
  copies(copy_short, "a short copy");
  copies(copy_past_caches, "a copy past the caches");
  return report();
}
