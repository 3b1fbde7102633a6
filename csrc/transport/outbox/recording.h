// What a rank did last. It lies in the outbox, so that any process can read it, also when the rank was killed.
//
//   header  whose outbox this is
//   calls   the last ones that it entered, a cache line each, by number
//   titles  what these are, once per kind, by fingerprint
//   waits   the last ones outside of calls that lasted: for a message, or for a root to tell
//   places  lines of the program, of those that lasted
//
// The rank writes it with plain stores and waits for nobody; whoever reads (flight.h) copies it first. What a reader
// got hold of while it was written does not fit its seal, and is left out.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

namespace hocket {

struct Recording {
  static constexpr uint64_t magic = 0x0074656b636f68;  // "hocket"
  static constexpr uint64_t layout = 1;                // another one for each change of what lies where in an outbox
  static constexpr uint64_t calls_kept = 1024, titles_kept = 512, waits_kept = 64, places_kept = 64;
  static constexpr uint64_t titles_near = 16;  // a title lies so near to where its fingerprint points

  struct alignas(64) Header {
    std::atomic<uint64_t> magic;  // once the rest is there
    uint64_t layout, bytes;       // of an outbox without its channels, so that other versions are known
    uint64_t key;                 // of the group: the same on all of its ranks
    uint64_t ticks;               // of the counter by which calls are timed, and
    int64_t clock;                // of the clock of the host, in nanoseconds, when this was written
    int32_t rank, size, pid;
    char host[64];
  };

  // Of a long one the first part.
  template <uint64_t bytes>
  struct Text {
    static constexpr uint64_t words = bytes / 8 - 1;
    std::atomic<uint64_t> seal;
    std::atomic<uint64_t> word[words];

    using Copy = std::array<uint64_t, words>;
    static uint64_t sealed(const Copy& copy) {
      uint64_t sum = magic;
      for (uint64_t w : copy) sum = (sum ^ w) * 0x100000001b3;
      return sum;
    }
    static Copy copied(const std::string& text) {
      Copy copy{};
      std::memcpy(copy.data(), text.data(), std::min<size_t>(text.size(), 8 * words - 1));
      return copy;
    }
    void put(const Copy& copy) {
      seal.store(0, std::memory_order_relaxed);
      for (uint64_t i = 0; i < words; ++i) word[i].store(copy[i], std::memory_order_relaxed);
      seal.store(sealed(copy), std::memory_order_release);
    }
    // Empty where there is none that is whole.
    std::string get() const {
      Copy copy;
      for (uint64_t i = 0; i < words; ++i) copy[i] = word[i].load(std::memory_order_relaxed);
      if (seal.load(std::memory_order_relaxed) != sealed(copy)) return "";
      const char* const text = reinterpret_cast<const char*>(copy.data());
      return std::string(text, strnlen(text, 8 * words));
    }
  };

  struct alignas(64) Call {
    std::atomic<uint64_t> number, fingerprint;
    std::atomic<uint64_t> entered, left;  // in ticks; 0: it has not left
    std::atomic<uint64_t> seal;
    std::atomic<int32_t> waited_for;  // last; -1: for nobody that is known
    std::atomic<uint32_t> failed;
    std::atomic<uint64_t> place;  // its number; 0: nobody looked

    static uint64_t sealed(uint64_t number, uint64_t fingerprint, uint64_t entered) {
      return magic ^ number ^ fingerprint ^ entered;
    }
  };
  struct Title {
    std::atomic<uint64_t> fingerprint;
    Text<248> text;
  };
  struct Wait {
    std::atomic<uint64_t> number;       // from 1 on, as those of places
    std::atomic<int64_t> begun, ended;  // by the clock of the host; 0: it lasts
    std::atomic<uint64_t> place;
    Text<224> text;
  };
  struct Place {
    std::atomic<uint64_t> number;
    Text<248> text;
  };

  Call calls[calls_kept];
  Title titles[titles_kept];
  Wait waits[waits_kept];
  Place places[places_kept];
};

}  // namespace hocket
