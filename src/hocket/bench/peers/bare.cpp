// The least that two processes can do to sum their vectors of float32 over memory that they share: no plans, no
// deadlines, no Python. What hocket is compared with on one host; compiled by with_memory.py when it is timed.
//
// Each rank stages the half that the other one sums, the other folds its own half into it *where it lies*, and the
// first reads the sum there (write-back): what a rank writes it has read last, so that each line goes there and back
// once.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t ring = 256 << 10, piece = 32 << 10;  // bytes
constexpr size_t grain = 512;                         // bytes that are staged, folded and collected in turns
constexpr size_t ahead = 2;                           // pieces, of which each is behind the other

struct alignas(128) Word {
  std::atomic<uint64_t> count{0};
  void tell(uint64_t n) { count.store(n, std::memory_order_release); }
  bool has(uint64_t n) const { return count.load(std::memory_order_acquire) >= n; }
  void await(uint64_t n) const {
    while (!has(n)) {
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
    }
  }
};

struct Side {
  Word arrived, staged, folded;
  alignas(4096) float slots[ring / sizeof(float)];
};

// Pieces of `bytes`, and where the k-th lies in the ring.
size_t pieces(size_t bytes) { return (bytes + piece - 1) / piece; }
float* slot(Side& side, size_t k) { return side.slots + k * piece % ring / sizeof(float); }
size_t length(size_t bytes, size_t k) { return std::min(piece, bytes - k * piece); }

void fold(float* mine, float* theirs, size_t count) {
  for (size_t i = 0; i < count; ++i) mine[i] = theirs[i] = mine[i] + theirs[i];
}

}  // namespace

extern "C" {

size_t shared_bytes() { return 2 * sizeof(Side); }

void barrier(Side* sides, int rank, uint64_t number) {
  sides[rank].arrived.tell(number);
  sides[1 - rank].arrived.await(number);
}

// One piece after the other, as they come. `before` are the pieces of all calls before; it returns those of this, too.
uint64_t write_back(Side* sides, int rank, float* x, size_t count, uint64_t before) {
  Side &own = sides[rank], &other = sides[1 - rank];
  const size_t half = count / 2, to_fold = (rank == 0 ? half : count - half) * sizeof(float);
  const size_t to_stage = count * sizeof(float) - to_fold;
  char* const mine = reinterpret_cast<char*>(x + rank * half);
  char* const given = reinterpret_cast<char*>(x + (1 - rank) * half);
  const size_t all = std::max(pieces(to_fold), pieces(to_stage));
  size_t staged = 0, folded = 0, got = 0;
  while (folded < pieces(to_fold) || got < pieces(to_stage)) {
    if (staged < pieces(to_stage) && staged < got + ring / piece) {
      std::memcpy(slot(own, staged), given + staged * piece, length(to_stage, staged));
      own.staged.tell(before + ++staged);
    }
    if (folded < pieces(to_fold) && other.staged.has(before + folded + 1)) {
      fold(reinterpret_cast<float*>(mine + folded * piece), slot(other, folded),
           length(to_fold, folded) / sizeof(float));
      own.folded.tell(before + ++folded);
    }
    if (got < staged && other.folded.has(before + got + 1)) {
      std::memcpy(given + got * piece, slot(own, got), length(to_stage, got));
      ++got;
    }
  }
  own.staged.tell(before + all);
  own.folded.tell(before + all);
  return before + all;
}

// Staging, folding and collecting take turns every few lines, each two pieces behind the one before: what is near hides
// the time of what is far.
uint64_t interleaved(Side* sides, int rank, float* x, size_t count, uint64_t before) {
  const size_t half = count / 2, bytes = half * sizeof(float), all = pieces(bytes);
  if (count % 2 != 0 || bytes % piece != 0) return write_back(sides, rank, x, count, before);
  Side &own = sides[rank], &other = sides[1 - rank];
  char* const mine = reinterpret_cast<char*>(x + rank * half);
  char* const given = reinterpret_cast<char*>(x + (1 - rank) * half);
  for (size_t k = 0; k < all + 2 * ahead; ++k) {
    const bool stages = k < all, folds = k >= ahead && k < all + ahead, collects = k >= 2 * ahead;
    const size_t f = k - ahead, g = k - 2 * ahead;
    if (folds) other.staged.await(before + f + 1);
    if (collects) other.folded.await(before + g + 1);
    for (size_t at = 0; at < piece; at += grain) {
      const size_t i = at / sizeof(float);
      if (stages) std::memcpy(slot(own, k) + i, given + k * piece + at, grain);
      if (folds) fold(reinterpret_cast<float*>(mine + f * piece + at), slot(other, f) + i, grain / sizeof(float));
      if (collects) std::memcpy(given + g * piece + at, slot(own, g) + i, grain);
    }
    if (stages) own.staged.tell(before + k + 1);
    if (folds) own.folded.tell(before + f + 1);
  }
  return before + all;
}
}
