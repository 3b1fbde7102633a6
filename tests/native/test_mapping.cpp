// Memory files: what is detached is this process's alone, nothing is lost on the way, and a child has its own.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "transport/shm/mapping.h"
#include "wait/fork.h"

using namespace hocket;
using namespace hocket::testing;

namespace {

const auto kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
constexpr uint64_t kPages = 64;

// One file, mapped by its owner and by a peer.
struct File {
  const int fd = [] {
    const int made = memfd_create("hocket-test", MFD_CLOEXEC);
    if (ftruncate(made, kPages * kPage) != 0) std::abort();
    return made;
  }();
  Mapping owner{fd, kPages * kPage}, peer{fd, kPages * kPage};
  File() {
    owner.own(fd, 0, kPages * kPage);
    close(fd);  // what it needs, it has taken
  }
};

std::byte pattern(uint64_t seed, uint64_t i) { return std::byte(mix(seed, i)); }

// A range that begins and ends within pages, of which all around stays as it was and what it was.
void what_is_detached_is_the_owners_alone() {
  File file;
  for (uint64_t i = 0; i < kPages * kPage; ++i) file.owner.data()[i] = pattern(1, i);
  const uint64_t begin = 3 * kPage + 100, bytes = 20 * kPage + 17;
  file.owner.detach(file.owner.data() + begin, bytes);
  for (uint64_t i = 0; i < kPages * kPage; ++i) {
    check(file.owner.data()[i] == pattern(1, i) && file.peer.data()[i] == pattern(1, i), "byte ", i, " was lost");
  }
  for (uint64_t i = 0; i < kPages * kPage; ++i) file.peer.data()[i] = pattern(2, i);
  for (uint64_t i = 0; i < kPages * kPage; ++i) {
    const bool detached = i >= 3 * kPage && i < 24 * kPage;
    check(file.owner.data()[i] == pattern(detached ? 1 : 2, i), "byte ", i,
          detached ? " is the peer's" : " is not shared");
  }
  for (uint64_t i = begin; i < begin + bytes; ++i) file.owner.data()[i] = pattern(3, i);
  for (uint64_t i = begin; i < begin + bytes; ++i)
    check(file.peer.data()[i] == pattern(2, i), "the peer sees byte ", i);
}

// A page is replaced under those who write there, which is the point: no sanitizer need tell.
__attribute__((no_sanitize("thread"))) void count(volatile uint64_t* place, uint64_t& counted) { *place = ++counted; }

// Threads of the owner count in every page while it is detached: no count is lost.
void writes_of_other_threads_are_not_lost() {
  for (int turn = 0; turn < 50; ++turn) {
    File file;
    constexpr int threads = 2;
    std::atomic<bool> ends{false};
    std::atomic<int> begun{0};
    std::vector<std::vector<uint64_t>> counts(threads, std::vector<uint64_t>(kPages));
    const auto place = [&](int thread, uint64_t at) {
      return reinterpret_cast<volatile uint64_t*>(file.owner.data() + at * kPage + 64 * (thread + 1));
    };
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; ++thread) {
      all.emplace_back([&, thread] {
        ++begun;
        while (!ends) {
          for (uint64_t at = 0; at < kPages; ++at) count(place(thread, at), counts[thread][at]);
        }
      });
    }
    while (begun < threads) std::this_thread::yield();
    file.owner.detach(file.owner.data(), kPages * kPage);
    ends = true;
    for (std::thread& thread : all) thread.join();
    for (int thread = 0; thread < threads; ++thread) {
      for (uint64_t at = 0; at < kPages; ++at) {
        check(*place(thread, at) == counts[thread][at], "page ", at, " lost writes of thread ", thread);
      }
    }
  }
}

void a_child_has_memory_of_its_own() {
  File file;
  for (uint64_t i = 0; i < kPages * kPage; ++i) file.owner.data()[i] = pattern(1, i);
  const int before = forks();
  const pid_t child = fork();
  if (child == 0) {
    bool right = forks() == before + 1;
    for (uint64_t i = 0; i < kPages * kPage; ++i) right &= file.owner.data()[i] == pattern(1, i);
    for (uint64_t i = 0; i < kPages * kPage; ++i) file.owner.data()[i] = pattern(4, i);
    _exit(right ? 0 : 1);
  }
  int status;
  check(waitpid(child, &status, 0) == child && status == 0, "the child sees something else");
  check(forks() == before, "a fork is counted in the parent");
  for (uint64_t i = 0; i < kPages * kPage; ++i)
    check(file.owner.data()[i] == pattern(1, i), "the child wrote byte ", i);
  file.peer.data()[0] = pattern(5, 0);
  check(file.owner.data()[0] == pattern(5, 0), "the parent is cut off from its peer");
}

void what_is_given_back_is_gone() {
  File file;
  for (uint64_t i = 0; i < kPages * kPage; ++i) file.owner.data()[i] = pattern(1, i);
  file.owner.give_back(file.owner.data() + 2 * kPage, 10 * kPage);
  for (uint64_t i = 0; i < kPages * kPage; ++i) {
    const bool given = i >= 2 * kPage && i < 12 * kPage;
    check(file.owner.data()[i] == (given ? std::byte{0} : pattern(1, i)), "byte ", i, " after some were given back");
  }
}

// As much again each time: nobody who uses little has much, and who uses much seldom asks.
void what_is_used_is_mapped_ahead() {
#ifdef MADV_POPULATE_WRITE
  File file;
  std::byte* const memory = file.owner.data();
  if (madvise(memory + 63 * kPage, kPage, MADV_POPULATE_WRITE) != 0) return;  // an old kernel maps none ahead
  file.owner.give_back(memory, kPages * kPage);
  uint64_t mapped = 0;
  const auto ahead = [](uint64_t pages) { return pages + std::min(pages, mapped_at_once / kPage); };
  const auto there = [&](uint64_t end, uint64_t pages) {
    map_up_to(end, memory, kPages * kPage, mapped, true);
    std::vector<unsigned char> found(kPages);
    mincore(memory, kPages * kPage, found.data());
    for (uint64_t i = 0; i < kPages; ++i) check((found[i] & 1) == (i < pages), "page ", i, " up to byte ", end);
    check(mapped == pages * kPage, mapped, " bytes up to byte ", end);
  };
  there(1, 1);
  there(kPage, 1);
  there(kPage + 1, 2);
  there(2 * kPage + 1, 4);
  there(11 * kPage - 5, 11);
  there(11 * kPage + 1, ahead(11));
  there(40 * kPage, std::max<uint64_t>(40, ahead(ahead(11))));
  there(kPages * kPage, kPages);
  mapped = (kPages - 1) * kPage;
  there(kPages * kPage, kPages);
#endif
}

}  // namespace

int main() {
  what_is_detached_is_the_owners_alone();
  writes_of_other_threads_are_not_lost();
  a_child_has_memory_of_its_own();
  what_is_given_back_is_gone();
  what_is_used_is_mapped_ahead();
  return report();
}
