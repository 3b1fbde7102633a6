// The least that processes can do to sum their vectors of float32 over memory that they share: no plans, no deadlines,
// no Python. What hocket is compared with on one host; compiled by with_memory.py when it is timed.
//
// Of two, each stages the half that the other one sums, the other folds its own half into it *where it lies*, and the
// first reads the sum there (write-back): what a rank writes it has read last, so that each line goes there and back
// once. Of any number, all stage, and in one round each folds everything, or in two a block, and all collect the
// blocks.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

constexpr size_t ring = 256 << 10, piece = 32 << 10;  // bytes
constexpr size_t grain = 512;                         // bytes that are staged, folded and collected in turns
constexpr size_t ahead = 2;                           // pieces, of which each is behind the other
constexpr size_t chunk = 256 << 10;                   // bytes of one round, or two, of which the next goes beside

}  // namespace

extern "C" {
int crowded = 0;  // whether there are more ranks than cores: who waits gives its core away
}

namespace {

struct alignas(128) Word {
  std::atomic<uint64_t> count{0};
  void tell(uint64_t n) { count.store(n, std::memory_order_release); }
  bool has(uint64_t n) const { return count.load(std::memory_order_acquire) >= n; }
  void await(uint64_t n) const {
    while (!has(n)) {
      if (crowded) sched_yield();
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
    }
  }
};

struct Side {
  Word arrived, staged, folded;
  alignas(4096) float slots[4 * chunk / sizeof(float)];  // a ring; or two for what is staged, and two for sums
};
static_assert(ring <= sizeof(Side::slots));

// Pieces of `bytes`, and where the k-th lies in the ring.
size_t pieces(size_t bytes) { return (bytes + piece - 1) / piece; }
float* slot(Side& side, size_t k) { return side.slots + k * piece % ring / sizeof(float); }
size_t length(size_t bytes, size_t k) { return std::min(piece, bytes - k * piece); }

void fold(float* mine, float* theirs, size_t count) {
  for (size_t i = 0; i < count; ++i) mine[i] = theirs[i] = mine[i] + theirs[i];
}

// Chunk k lies where chunk k - 2 lay: who has seen all of k - 1 knows that nobody reads that any more.
float* staged(Side& side, size_t k) { return side.slots + k % 2 * chunk / sizeof(float); }
float* sums(Side& side, size_t k) { return staged(side, k) + 2 * chunk / sizeof(float); }

void await_all(const Side* sides, int ranks, Word Side::* word, uint64_t n) {
  for (int r = 0; r < ranks; ++r) (sides[r].*word).await(n);
}

// Elements that lie at from(0), from(1), ..., of which `to` may be the first.
template <class From>
void fold_all(float* to, const From& from, int ranks, size_t count) {
  constexpr size_t near = 1024;  // elements, which stay in the first cache
  for (size_t at = 0; at < count; at += near) {
    const size_t end = std::min(at + near, count);
    const float *const first = from(0), *const second = from(1);
#pragma GCC ivdep
    for (size_t i = at; i < end; ++i) to[i] = first[i] + second[i];
    for (int r = 2; r < ranks; ++r) {
      const float* const next = from(r);
#pragma GCC ivdep
      for (size_t i = at; i < end; ++i) to[i] += next[i];
    }
  }
}

}  // namespace

extern "C" {

size_t shared_bytes(int ranks) { return ranks * sizeof(Side); }

void barrier(Side* sides, int ranks, int rank, uint64_t number) {
  sides[rank].arrived.tell(number);
  await_all(sides, ranks, &Side::arrived, number);
}

// Of two ranks, one piece after the other, as they come. `before` are the pieces of all calls before; it returns those
// of this, too. So do the others.
uint64_t write_back(Side* sides, int, int rank, float* x, size_t count, uint64_t before) {
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
uint64_t interleaved(Side* sides, int, int rank, float* x, size_t count, uint64_t before) {
  const size_t half = count / 2, bytes = half * sizeof(float), all = pieces(bytes);
  if (count % 2 != 0 || bytes % piece != 0) return write_back(sides, 2, rank, x, count, before);
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

// All stage a chunk, and each folds all of them.
uint64_t one_round(Side* sides, int ranks, int rank, float* x, size_t count, uint64_t before) {
  for (size_t at = 0; at < count; at += chunk / sizeof(float), ++before) {
    const size_t n = std::min(chunk / sizeof(float), count - at);
    std::memcpy(staged(sides[rank], before), x + at, n * sizeof(float));
    sides[rank].staged.tell(before + 1);
    await_all(sides, ranks, &Side::staged, before + 1);
    fold_all(x + at, [&](int r) { return staged(sides[r], before); }, ranks, n);
  }
  return before;
}

// All stage a chunk but for their own block, each folds its own, and all collect the sums.
uint64_t two_rounds(Side* sides, int ranks, int rank, float* x, size_t count, uint64_t before) {
  for (size_t at = 0; at < count; at += chunk / sizeof(float), ++before) {
    const size_t n = std::min(chunk / sizeof(float), count - at), begin = n * rank / ranks,
                 end = n * (rank + 1) / ranks;
    float *const here = x + at, *const given = staged(sides[rank], before);
    std::memcpy(given, here, begin * sizeof(float));
    std::memcpy(given + end, here + end, (n - end) * sizeof(float));
    sides[rank].staged.tell(before + 1);
    await_all(sides, ranks, &Side::staged, before + 1);
    const auto own_first = [&](int i) -> const float* {
      return i == 0 ? here + begin : staged(sides[i == rank ? 0 : i], before) + begin;
    };
    fold_all(here + begin, own_first, ranks, end - begin);
    std::memcpy(sums(sides[rank], before), here + begin, (end - begin) * sizeof(float));
    sides[rank].folded.tell(before + 1);
    for (int r = 0; r < ranks; ++r) {
      if (r == rank) continue;
      const size_t first = n * r / ranks, last = n * (r + 1) / ranks;
      sides[r].folded.await(before + 1);
      std::memcpy(here + first, sums(sides[r], before), (last - first) * sizeof(float));
    }
  }
  return before;
}
}
