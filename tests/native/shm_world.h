// The ranks of one host over real memory files and sockets: as threads of this process, or as children of it.
#pragma once

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "transport/endpoint.h"

// In one process, a memory file that several ranks map is mapped once. What they share are then the same addresses, and
// a sanitizer sees their races, which it does not where each has a mapping of its own. Hidden, these two are called by
// what is linked into the test, and by nobody else in the process.
namespace hocket::testing {

struct Shared {
  void* data;
  int users;
};
inline std::mutex mappings_mutex;
inline std::map<std::pair<ino_t, size_t>, Shared> mappings;

template <class Function>
Function next_in_line(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace hocket::testing

extern "C" [[gnu::visibility("hidden")]] void* mmap(void* hint, size_t bytes, int protection, int flags, int fd,
                                                    off_t offset) noexcept {
  using namespace hocket::testing;
  static const auto real = next_in_line<decltype(&mmap)>("mmap");
  struct stat status;
  if (fd < 0 || flags != MAP_SHARED || fstat(fd, &status) != 0) {
    return real(hint, bytes, protection, flags, fd, offset);
  }
  std::lock_guard lock(mappings_mutex);
  Shared& shared = mappings[{status.st_ino, bytes}];
  if (shared.users++ == 0) shared.data = real(hint, bytes, protection, flags, fd, offset);
  return shared.data;
}

extern "C" [[gnu::visibility("hidden")]] int munmap(void* data, size_t bytes) noexcept {
  using namespace hocket::testing;
  static const auto real = next_in_line<decltype(&munmap)>("munmap");
  std::lock_guard lock(mappings_mutex);
  for (auto at = mappings.begin(); at != mappings.end(); ++at) {
    if (at->second.data != data) continue;
    if (--at->second.users > 0) return 0;
    mappings.erase(at);
    break;
  }
  return real(data, bytes);
}

namespace hocket::testing {

inline constexpr uint64_t kSlots = 4096, kArena = 1 << 16;

// Shared memory that counts its sleeps. A deep sleeper is woken by its bell or never.
class Sleeper : public Endpoint {
 public:
  using Endpoint::Endpoint;
  std::atomic<uint64_t> sleeps{0};
  std::atomic<bool> asleep{false}, deep{false};
  std::atomic<uint64_t> offered{0};

  void sleep(uint32_t seen, std::chrono::microseconds slice) override {
    ++sleeps;
    asleep = true;
    Endpoint::sleep(seen, deep ? std::chrono::hours(1) : slice);
    asleep = false;
  }
  bool post_offer(Peers peers, const std::byte* data, uint64_t bytes, Label label, bool whole) override {
    const bool posted = Endpoint::post_offer(peers, data, bytes, label, whole);
    offered += posted;
    return posted;
  }
};

// What a launcher makes: a memory file per rank, and a pair of sockets for each two.
class Links {
 public:
  explicit Links(int size, uint64_t slots = kSlots) : slots_(slots), sockets_(size, std::vector<int>(size, -1)) {
    for (int rank = 0; rank < size; ++rank) {
      fds_.push_back(memfd_create("hocket-test", MFD_CLOEXEC));
      if (ftruncate(fds_[rank], static_cast<off_t>(Endpoint::outbox_bytes(size, slots, kArena))) != 0) std::abort();
      for (int peer = 0; peer < rank; ++peer) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
        sockets_[rank][peer] = pair[0];
        sockets_[peer][rank] = pair[1];
      }
    }
  }
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links() {
    for (int fd : fds_) close(fd);
    for (int rank = 0; rank < size(); ++rank) hang_up(rank);
  }

  int size() const { return static_cast<int>(fds_.size()); }

  std::unique_ptr<Sleeper> open(int rank, std::function<void()> signals = {}, int crowd = 0) const {
    return std::make_unique<Sleeper>(rank, fds_, sockets_[rank], std::vector<int>(fds_.size(), -1), std::vector<int>(),
                                     slots_, kArena, std::move(signals), crowd > 0 ? crowd : size());
  }

  // Closes this rank's ends, as its death would.
  void hang_up(int rank) {
    for (int& fd : sockets_[rank]) {
      if (fd >= 0) close(fd);
      fd = -1;
    }
  }

 private:
  const uint64_t slots_;
  std::vector<int> fds_;
  std::vector<std::vector<int>> sockets_;
};

// All ranks in one process.
class Host {
 public:
  explicit Host(int size, uint64_t slots = kSlots) : links(size, slots) {
    for (int rank = 0; rank < size; ++rank) ranks_.push_back(links.open(rank));
  }

  Links links;

  int size() const { return links.size(); }
  Sleeper& operator[](int rank) { return *ranks_[rank]; }

  std::vector<int32_t> peers_of(int rank) const {
    std::vector<int32_t> peers;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank) peers.push_back(peer);
    }
    return peers;
  }

  // Runs `part` as every rank, each in its own thread, and tells which of them failed.
  std::vector<std::optional<Failure>> play(const std::function<void(int rank, Sleeper&)>& part) {
    std::vector<std::optional<Failure>> failures(size());
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          part(rank, *ranks_[rank]);
        } catch (const Failure& failure) {
          failures[rank] = failure;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }

 private:
  std::vector<std::unique_ptr<Sleeper>> ranks_;
};

// ---- single messages ------------------------------------------------------------------------------------------------

using Span8 = std::span<const std::byte>;

inline Bytes content(uint64_t from, uint64_t number, uint64_t bytes) {
  Bytes data(bytes);
  for (uint64_t i = 0; i < bytes; ++i) data[i] = std::byte(mix(from, number, i));
  return data;
}

inline bool try_send(Port& port, Peers peers, const Bytes& data, Label label) {
  std::byte* slot = port.reserve(peers, data.size());
  if (slot == nullptr) return false;
  std::copy(data.begin(), data.end(), slot);
  port.post(peers, data.size(), label);
  return true;
}

inline void send(Port& port, Peers peers, const Bytes& data, Label label) {
  Wait wait(port, watchdog());
  while (!try_send(port, peers, data, label)) wait.idle(peers.front());
}

inline void receive(Port& port, int peer, const Bytes& expected, Label label) {
  Wait wait(port, watchdog());
  Message message;
  while (!port.peek(peer, message)) wait.idle(peer);
  check(message.label == label && std::ranges::equal(Span8(message.data, message.bytes), expected), "message ",
        label.place, " of ", expected.size(), " bytes from rank ", peer, " is another one");
  port.release(peer);
}

}  // namespace hocket::testing
