// Copies, at all distances within a page and of lengths around those at which they go another way: every byte that is
// to be there, and none beside.
#include <algorithm>

#include "check.h"
#include "engine/reading.h"
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

void copies_long(const auto& copy, const char* name) {
  constexpr size_t block = woven_block;
  for (const size_t bytes : {block - 1, block, block + 1, 2 * block + 77, 3 * block, 5 * block - 64, 9 * block + 3}) {
    for (const size_t begin : {0, 8, 41}) {
      for (const size_t there : {0, 16, 63}) {
        Bytes from(begin + bytes), to(there + bytes + margin), wanted(to.size());
        for (size_t i = 0; i < from.size(); ++i) from[i] = pattern(3, i);
        for (size_t i = 0; i < to.size(); ++i) wanted[i] = to[i] = pattern(4, i);
        std::copy(from.begin() + begin, from.end(), wanted.begin() + there);
        copy(to.data() + there, from.data() + begin, bytes);
        check(to == wanted, name, " of ", bytes, " bytes from ", begin, " to ", there, " is wrong");
      }
    }
  }
}

// Every message comes whole while it is tried how, and after; which way is better is found once for each of two
// lengths, by medians.
void test_reading() {
  Readings any;
  const auto read = [&any](std::byte* to, const std::byte* from, size_t bytes) { any.copy(to, from, bytes); };
  for (int i = 0; i < 4; ++i) copies_long(read, "a message that is tried, or is not any more");
  const auto is_woven = [](int better, uint64_t pace) {
    Reading reading;
    int woven = 0;
    for (int i = 0; i < Reading::trials; ++i) {
      check(!reading.is_known() && !reading.is_woven(), "found after ", i, " trials");
      const bool good = reading.tries_woven() && woven < better;
      woven += reading.tries_woven();
      reading.tell(good ? pace : 1000);
    }
    check(woven == Reading::trials / 2, woven, " trials of one way");
    const bool found = reading.is_woven();
    for (int i = 0; i < 100; ++i) reading.tell(found ? 2000 : 500);
    check(reading.is_known() && reading.is_woven() == found, "not found, or twice");
    return found;
  };
  constexpr int all = Reading::trials / 2, half = all / 2;
  check(is_woven(all, 900), "what takes less is not chosen");
  check(!is_woven(all, 980), "what hardly takes less is chosen");
  check(!is_woven(all, 1100), "what takes longer is chosen");
  check(is_woven(half + 1, 500), "most trials do not decide");
  check(!is_woven(half, 10), "few trials decide");
}

}  // namespace

int main() {
  copies(copy_bytes, "a copy");
  copies(copy_short, "a short copy");
  copies(copy_past_caches, "a copy past the caches");
  copies(copy_woven, "a woven copy");
  copies_long(copy_woven, "a woven copy");
  test_reading();
  return report();
}
