#include "transport/outbox/bell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace hocket {

namespace {

int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Moves this thread to another core. Ranks that hand over to one another look idle enough to the kernel to be left on
// one core for good, while another one has fewer. The thread may run where it might before, once it has moved.
void step_aside(int core) {
  cpu_set_t all, others;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  others = all;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0)
    sched_setaffinity(0, sizeof all, &all);
}

}  // namespace

Bell::Bell(int rank, std::vector<Outbox*> boxes, std::vector<Wire*> wires, std::vector<int> events, int crowd)
    : rank_(rank),
      size_(static_cast<int>(boxes.size())),
      boxes_(std::move(boxes)),
      wires_(std::move(wires)),
      events_(std::move(events)),
      crowded_(crowd > cores()),
      share_((crowd + cores() - 1) / cores()),
      // Where ranks share cores, one more on a core costs less, and the other core may be a busy program's.
      stay_(crowded_ ? Stay::longest : Stay::shortest) {}

void Bell::wake(int peer) {
  if (wires_[peer] != nullptr) return wires_[peer]->push();
  Outbox& box = *boxes_[peer];
  box.bell.fetch_add(1, std::memory_order_release);
  if (events_[peer] >= 0) {
    eventfd_write(events_[peer], 1);
  } else {
    syscall(SYS_futex, &box.bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
}

void Bell::notify_all() {
  for (int peer = 0; peer < size_; ++peer) notify(peer);
}

uint32_t Bell::announce() {
  boxes_[rank_]->sleepers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // of which notify() has the other
  return boxes_[rank_]->bell.load(std::memory_order_acquire);
}

void Bell::sleep(uint32_t seen, std::chrono::microseconds slice) {
  const timespec time{slice.count() / 1000000, slice.count() % 1000000 * 1000};
  syscall(SYS_futex, &boxes_[rank_]->bell, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void Bell::withdraw() { boxes_[rank_]->sleepers.fetch_sub(1, std::memory_order_relaxed); }

bool Bell::shares_core(int peer) {
  const uint32_t here = 1 + static_cast<uint32_t>(sched_getcpu());
  std::atomic<uint32_t>& ours = boxes_[rank_]->cpu;
  if (ours.load(std::memory_order_relaxed) != here) ours.store(here, std::memory_order_relaxed);
  const bool shared =
      crowded_ || (peer >= 0 && peer != rank_ && boxes_[peer]->cpu.load(std::memory_order_relaxed) == here);
  if (shared && is_one_too_many(here) && stay_.ends(Clock::now().time_since_epoch()))
    step_aside(static_cast<int>(here) - 1);
  return shared;
}

// Whether more ranks were seen on this core than it has to bear, and this one is the last of them.
bool Bell::is_one_too_many(uint32_t here) const {
  int before = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || boxes_[peer]->cpu.load(std::memory_order_relaxed) != here) continue;
    if (peer > rank_) return false;
    ++before;
  }
  return before >= share_;
}

}  // namespace hocket
