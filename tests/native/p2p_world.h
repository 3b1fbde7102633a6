// The mailbox, with threads as ranks over plain memory: who gets which message, in which order, and what goes wrong
// how.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "messages/mailbox.h"
#include "transport/outbox/stream.h"

namespace {

using namespace hocket;
using Bytes = std::vector<std::byte>;
using Ticket = Mailbox::Ticket;

constexpr unsigned kSeed = 20240607;
constexpr Deadline kNever = Deadline::max();
std::atomic<size_t> passed = 0, failed = 0;

void check(bool good, const char* where = __builtin_FUNCTION(), int line = __builtin_LINE()) {
  good ? ++passed : ++failed;
  if (!good) std::printf("%s, line %d: failed\n", where, line);
}

// Yields, and times out on command.
struct FakeWaiter : Waiter {
  std::atomic<bool> expired = false, shares = true;
  std::atomic<uint32_t> bell = 0;
  std::vector<std::atomic<uint32_t>*> bells{};
  void notify(int peer) override { bells[peer]->fetch_add(1); }
  bool shares_core(int) override { return shares; }
  uint32_t announce() override { return bell; }
  void sleep(uint32_t seen, std::chrono::microseconds) override {
    if (bell == seen) std::this_thread::yield();
  }
  void withdraw() override {}
  void check(int peer, Deadline) override {
    if (expired) throw Failure{Failure::timeout, peer, "too late"};
  }
};

struct World {
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  std::vector<std::unique_ptr<std::byte, Free>> memory;
  std::vector<std::byte*> regions;
  std::vector<FakeWaiter> waiters;
  std::vector<std::unique_ptr<Mailbox>> ranks;

  explicit World(int size) : waiters(size) {
    for (int r = 0; r < size; ++r) {
      const uint64_t bytes = shm::Region::bytes(size);
      memory.emplace_back(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
      std::memset(memory.back().get(), 0, bytes);
      regions.push_back(memory.back().get());
    }
    for (int r = 0; r < size; ++r) {
      for (FakeWaiter& other : waiters) waiters[r].bells.push_back(&other.bell);
      ranks.push_back(
          std::make_unique<Mailbox>(r, size, shm::streams(r, regions, std::vector<bool>(size, true)), waiters[r]));
    }
  }
  Mailbox& operator[](int rank) { return *ranks[rank]; }
  int size() const { return static_cast<int>(ranks.size()); }
  void progress(int turns = 4) {
    for (int i = 0; i < turns * size(); ++i) ranks[i % size()]->progress();
  }
  // Every rank in a thread of its own.
  void run(const std::function<void(int, Mailbox&)>& body) {
    std::vector<std::thread> threads;
    for (int r = 0; r < size(); ++r) {
      threads.emplace_back([&, r] {
        try {
          body(r, *ranks[r]);
        } catch (const Failure& f) {
          std::printf("rank %d: %s\n", r, f.text.c_str());
          check(false);
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
};

// Depends on the seed and on the position, with a period that divides no power of two.
Bytes content(uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes data(bytes), block(4099);
  for (std::byte& b : block) b = std::byte(random());
  for (uint64_t at = 0; at < bytes; at += block.size()) {
    std::memcpy(block.data(), &at, sizeof at);
    std::memcpy(data.data() + at, block.data(), std::min<uint64_t>(block.size(), bytes - at));
  }
  return data;
}

Ticket send(Mailbox& from, int to, int64_t tag, const Bytes& data, std::string meta = "m") {
  return from.send(to, tag, std::move(meta), data.data(), data.size(), kNever);
}

Ticket receive(Mailbox& at, int from, int64_t tag, Bytes& data, std::string meta = "m") {
  return at.receive(from, tag, std::move(meta), data.data(), data.size());
}

int report() {
  std::printf("seed %u\n%zu passed, %zu failed\n", kSeed, passed.load(), failed.load());
  return failed != 0;
}

}  // namespace
