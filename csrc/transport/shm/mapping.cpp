#include "transport/shm/mapping.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "transport/outbox/layout.h"
#include "wait/failpoint.h"
#include "wait/wait.h"

namespace hocket {

// All mappings that own something, for the moment of a fork. The lock is held across it, so that the child finds the
// list whole and the lock in its own hands.
struct Family {
  std::mutex mutex;
  Mapping* first = nullptr;

  static Family& get() {
    static Family* const family = [] {
      auto* made = new Family;  // never destroyed: a thread may fork at the very end
      pthread_atfork([] { get().mutex.lock(); }, [] { get().mutex.unlock(); }, [] { get().born(); });
      return made;
    }();
    return *family;
  }

  void born() {
    for (Mapping* m = first; m != nullptr; m = m->after_) m->privatise(m->own_begin_, m->own_bytes_);
    mutex.unlock();
  }

  void add(Mapping* mapping) {
    const std::lock_guard lock(mutex);
    mapping->after_ = first;
    if (first != nullptr) first->before_ = mapping;
    first = mapping;
  }

  void remove(Mapping* mapping) {
    const std::lock_guard lock(mutex);
    if (mapping->before_ != nullptr) mapping->before_->after_ = mapping->after_;
    if (mapping->after_ != nullptr) mapping->after_->before_ = mapping->before_;
    if (first == mapping) first = mapping->after_;
  }
};

Mapping::Mapping(int fd, uint64_t bytes) : bytes_(bytes) {
  struct stat status;
  if (fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) < bytes) {
    throw Failure{Failure::internal, -1, "a peer's shared memory is smaller than this version of hocket expects"};
  }
  FAILPOINT_AT(unmapped, bytes = SIZE_MAX / 2);  // of which the kernel has none
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    throw Failure{Failure::internal, -1, std::string("shared memory cannot be mapped: ") + std::strerror(errno)};
  }
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() {
  disown();
  munmap(data_, bytes_);
}

void Mapping::disown() {
  if (fd_ < 0) return;
  Family::get().remove(this);
  close(std::exchange(fd_, -1));
}

void Mapping::own(int fd, uint64_t begin, uint64_t bytes) {
  fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (fd_ < 0) {
    throw Failure{Failure::internal, -1,
                  std::string("no descriptor is left for shared memory: ") + std::strerror(errno)};
  }
  own_begin_ = begin;
  own_bytes_ = bytes;
  Family::get().add(this);
}

// The mapping is replaced in one step by a private one of the same file, which shows the same bytes.
void Mapping::privatise(uint64_t begin, uint64_t bytes) {
  if (bytes == 0) return;
  mmap(data_ + begin, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd_, static_cast<off_t>(begin));
}

// A private page is still the file's until it is written: so each is written, with what it holds. The kernel copies a
// page under the feet of all threads at once, so that a write of another one is in the copy or comes after it.
void Mapping::detach(const std::byte* begin, uint64_t bytes) {
  const uint64_t from = static_cast<uint64_t>(begin - data_) / page * page;
  const uint64_t to = round_up(static_cast<uint64_t>(begin - data_) + bytes, page);
  FAILPOINT(fencing);
  privatise(from, to - from);
  unsigned char none = 0;
  asm volatile("" : "+r"(none));  // else clang takes it for a load, which detaches nothing
  for (uint64_t at = from; at < to; at += page) {
    auto& byte = reinterpret_cast<unsigned char&>(data_[at]);
    std::atomic_ref<unsigned char>(byte).fetch_or(none, std::memory_order_relaxed);
    FAILPOINT(page_fenced);
  }
}

void Mapping::give_back(std::byte* begin, uint64_t bytes) {
  FAILPOINT(giving_back);
  madvise(begin, bytes, MADV_REMOVE);
}

void populate(const void* begin, uint64_t bytes, bool write) {
#ifdef MADV_POPULATE_WRITE
  const auto from = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uint64_t length = reinterpret_cast<uintptr_t>(begin) + bytes - from;
  madvise(reinterpret_cast<void*>(from), length, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

void map_up_to(uint64_t end, const std::byte* memory, uint64_t bytes, uint64_t& mapped, bool write) {
  if (end <= mapped) return;
  const uint64_t until = std::min(round_up(std::max(end, mapped + std::min(mapped, mapped_at_once)), page), bytes);
  populate(memory + mapped, until - mapped, write);
  mapped = until;
}

// The policy of a shared mapping is the file's: it outlives the mapping, and holds for all processes.
bool prefer_node(int fd, uint64_t bytes, int node) {
  constexpr int preferred = 1, most = 1024, bits = 8 * sizeof(unsigned long);  // linux/mempolicy.h
  if (node < 0 || node >= most) return false;
  unsigned long nodes[most / bits] = {};
  nodes[node / bits] = 1UL << (node % bits);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return false;
  const bool done = syscall(SYS_mbind, data, bytes, preferred, nodes, most + 1, 0) == 0;
  munmap(data, bytes);
  return done;
}

}  // namespace hocket
