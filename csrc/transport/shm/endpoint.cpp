#include "transport/shm/endpoint.h"

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "transport/shm/layout.h"
#include "transport/shm/stream.h"

namespace hocket {

namespace {

constexpr Clock::duration between_looks = std::chrono::milliseconds(50);
constexpr Clock::duration between_moves = std::chrono::milliseconds(4);

// Has the kernel map these pages now, so that the first messages need not wait for it. Where it cannot, they do.
void populate(void* begin, uint64_t bytes, bool write) {
#ifdef MADV_POPULATE_WRITE
  const auto from = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uint64_t length = reinterpret_cast<uintptr_t>(begin) + bytes - from;
  madvise(reinterpret_cast<void*>(from), length, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
#endif
}

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

struct SharedMemory::Channel {
  Descriptor* send;                     // r → peer, in our outbox
  Descriptor* receive;                  // peer → r, in the peer's
  std::atomic<uint64_t>* read_by_peer;  // how many of ours it has read
  std::atomic<uint64_t>* read_by_us;
  std::byte* slots;                     // the peer's
  std::byte* arena;                     // the peer's
  uint64_t sent = 0;                    // messages posted
  uint64_t seen_read = 0;               // of these, known to be read
  uint64_t received = 0;                // messages released
  std::array<uint64_t, depth> begin{};  // where in our slots each posted message begins
};

Mapping::Mapping(int fd, uint64_t bytes) : bytes_(bytes) {
  struct stat status;
  if (fstat(fd, &status) != 0 || static_cast<uint64_t>(status.st_size) < bytes) {
    throw Failure{Failure::internal, -1, "a peer's shared memory is smaller than this version of hocket expects"};
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    throw Failure{Failure::internal, -1, std::string("shared memory cannot be mapped: ") + std::strerror(errno)};
  }
  data_ = static_cast<std::byte*>(data);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

uint64_t SharedMemory::outbox_bytes(int size, uint64_t slots, uint64_t arena) {
  return arena_offset(size, round_up(slots, line)) + round_up(arena, page);
}

SharedMemory::SharedMemory(int rank, const std::vector<int>& fds, std::vector<int> sockets, uint64_t slots,
                           uint64_t arena, std::function<void()> signals)
    : rank_(rank),
      size_(static_cast<int>(fds.size())),
      slots_(round_up(slots, line)),
      arena_bytes_(round_up(arena, page)),
      front_(std::min<uint64_t>(64 << 10, slots_ / 4)),
      crowded_(size_ > cores()),
      share_((size_ + cores() - 1) / cores()),
      channels_(fds.size()),
      sockets_(std::move(sockets)),
      signals_(std::move(signals)),
      gone_(fds.size()) {
  for (int fd : fds) {
    mappings_.push_back(std::make_unique<Mapping>(fd, outbox_bytes(size_, slots_, arena_bytes_)));
    boxes_.push_back(reinterpret_cast<Outbox*>(mappings_.back()->data()));
  }
  Outbox& own = *boxes_[rank_];
  ring_ = own.slots(size_);
  for (int peer = 0; peer < size_; ++peer) {
    Outbox& box = *boxes_[peer];
    Channel& c = channels_[peer];
    c.send = own.descriptors(size_, peer);
    c.receive = box.descriptors(size_, rank_);
    c.read_by_peer = &box.counts()[rank_].read;
    c.read_by_us = &own.counts()[peer].read;
    c.slots = box.slots(size_);
    c.arena = mappings_[peer]->data() + arena_offset(size_, slots_);
  }
  arena_ = channels_[rank_].arena;
  const uint64_t first = std::min(2 * front_, slots_);  // what is in flight when the ring begins anew is spared
  for (int peer = 0; peer < size_; ++peer) {
    populate(channels_[peer].receive, depth * sizeof(Descriptor), peer == rank_);
    populate(channels_[peer].slots, first, peer == rank_);
  }
  populate(own.descriptors(size_, 0), size_ * depth * sizeof(Descriptor), true);
  std::vector<std::byte*> regions;
  for (Outbox* box : boxes_) regions.push_back(box->slots(size_) + slots_);
  mailbox_ = std::make_unique<Mailbox>(rank_, size_, shm::streams(rank_, regions), *this);
}

SharedMemory::~SharedMemory() = default;

// ---- messages -------------------------------------------------------------------------------------------------------

std::byte* SharedMemory::reserve(Peers peers, uint64_t bytes) {
  inlined_ = bytes <= Descriptor::room;
  // Where nothing is in flight the ring begins anew, so that short messages keep to memory that exists and is in
  // caches.
  if (!inlined_ && head_ % slots_ + bytes > front_ && all_read()) {
    head_ = tail_ = round_up(head_, slots_);
  }
  uint64_t begin = head_;
  if (!inlined_ && begin % slots_ + bytes > slots_) begin = round_up(begin, slots_);  // a message does not wrap
  reserved_ = begin;
  if (!room(peers, begin + (inlined_ ? 0 : round_up(bytes, line)))) return nullptr;
  return inlined_ ? inline_ : ring_ + begin % slots_;
}

// Whether nothing of what was posted is still to be read.
bool SharedMemory::all_read() {
  for (Channel& c : channels_) {
    if (c.seen_read == c.sent) continue;
    c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
    if (c.seen_read != c.sent) return false;
  }
  return true;
}

// Whether each channel has a descriptor left and the slots up to `end` are free.
bool SharedMemory::room(Peers peers, uint64_t end) {
  for (int peer : peers) {
    Channel& c = channels_[peer];
    if (c.sent - c.seen_read < depth) continue;
    c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
    if (c.sent - c.seen_read >= depth) return false;
  }
  if (end - tail_ <= slots_) return true;
  tail_ = head_;
  for (Channel& c : channels_) {
    if (c.seen_read == c.sent) continue;
    c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
    if (c.seen_read != c.sent) tail_ = std::min(tail_, c.begin[c.seen_read % depth]);
  }
  return end - tail_ <= slots_;
}

void SharedMemory::post(Peers peers, uint64_t bytes, Label label) {
  publish(peers, bytes, label, inlined_ ? Descriptor::here : Descriptor::slot, reserved_ % slots_);
  if (!inlined_) head_ = reserved_ + round_up(bytes, line);
}

bool SharedMemory::reachable(const std::byte* data, uint64_t bytes) const {
  return data >= arena_ && data != nullptr && data + bytes <= arena_ + arena_bytes_ && bytes > Descriptor::room;
}

bool SharedMemory::post_view(Peers peers, const std::byte* data, uint64_t bytes, Label label) {
  reserved_ = head_;
  if (!room(peers, head_)) return false;
  publish(peers, bytes, label, Descriptor::view, data - arena_);
  return true;
}

void SharedMemory::publish(Peers peers, uint64_t bytes, Label label, uint32_t kind, uint64_t offset) {
  for (int peer : peers) {
    Channel& c = channels_[peer];
    Descriptor& d = c.send[c.sent % depth];
    d.call = label.call;
    d.place = label.place;
    d.bytes = bytes;
    d.kind = kind;
    if (kind == Descriptor::here) {
      std::memcpy(d.payload, inline_, Descriptor::room);
    } else {
      d.offset = offset;
    }
    c.begin[c.sent % depth] = reserved_;
    d.turn.store(++c.sent, std::memory_order_release);
    ring(peer);
  }
}

std::byte* SharedMemory::target(int peer) {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
  if (e.call.load(std::memory_order_acquire) != call) return nullptr;
  const uint64_t out = e.out.load(std::memory_order_relaxed);
  return out == 0 || out > arena_bytes_ ? nullptr : channels_[peer].arena + (out - 1);
}

void SharedMemory::post_put(int peer, const std::byte* written, uint64_t bytes, Label label) {
  reserved_ = head_;
  const int32_t to[] = {peer};
  publish(to, bytes, label, Descriptor::put, written - channels_[peer].arena);
}

uint64_t SharedMemory::posted(int peer) const { return channels_[peer].sent; }

bool SharedMemory::consumed(int peer, uint64_t count) {
  Channel& c = channels_[peer];
  if (c.seen_read < count) c.seen_read = c.read_by_peer->load(std::memory_order_acquire);
  return c.seen_read >= count;
}

bool SharedMemory::peek(int peer, Message& message) {
  Channel& c = channels_[peer];
  const Descriptor& d = c.receive[c.received % depth];
  if (d.turn.load(std::memory_order_acquire) != c.received + 1) return false;
  message.label = {d.call, d.place};
  message.bytes = d.bytes;
  if (d.kind == Descriptor::here && d.bytes <= Descriptor::room) {
    message.data = d.payload;
    return true;
  }
  const bool in_arena = d.kind == Descriptor::view || d.kind == Descriptor::put;
  const uint64_t limit = d.kind == Descriptor::slot ? slots_ : in_arena ? arena_bytes_ : 0;
  if (d.bytes > limit || d.offset > limit - d.bytes) {
    throw Failure{Failure::internal, peer, "a message lies outside its sender's memory: that was overwritten"};
  }
  message.data = (d.kind == Descriptor::slot ? c.slots : d.kind == Descriptor::view ? c.arena : arena_) + d.offset;
  return true;
}

void SharedMemory::release(int peer) {
  Channel& c = channels_[peer];
  c.read_by_us->store(++c.received, std::memory_order_release);
  ring(peer);
}

void SharedMemory::mismatch(int peer, const Message& message, Label expected, uint64_t bytes) {
  compare(peer);
  throw Failure{Failure::internal, peer,
                "in " + title(rank_, call_.load()) + " a message of call " + std::to_string(message.label.call) +
                    " with " + std::to_string(message.bytes) + " bytes came where call " +
                    std::to_string(expected.call) + " has one of " + std::to_string(bytes)};
}

// ---- waiting --------------------------------------------------------------------------------------------------------

void SharedMemory::ring(int peer) {
  // What was published must be visible before we look whether anyone sleeps: a sleeper announces itself, then looks.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  Outbox& box = *boxes_[peer];
  if (box.sleepers.load(std::memory_order_relaxed) == 0) return;
  box.bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &box.bell, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

bool SharedMemory::shares_core(int peer) {
  const uint32_t here = 1 + static_cast<uint32_t>(sched_getcpu());
  std::atomic<uint32_t>& ours = boxes_[rank_]->cpu;
  if (ours.load(std::memory_order_relaxed) != here) ours.store(here, std::memory_order_relaxed);
  const bool shared =
      crowded_ || (peer >= 0 && peer != rank_ && boxes_[peer]->cpu.load(std::memory_order_relaxed) == here);
  if (shared && is_one_too_many(here)) {
    const auto now = Clock::now().time_since_epoch().count();
    if (now - moved_.load(std::memory_order_relaxed) > between_moves.count()) {
      moved_.store(now, std::memory_order_relaxed);
      step_aside(static_cast<int>(here) - 1);
    }
  }
  return shared;
}

// Whether more ranks were seen on this core than it has to bear, and this one is the last of them.
bool SharedMemory::is_one_too_many(uint32_t here) const {
  int before = 0;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_ || boxes_[peer]->cpu.load(std::memory_order_relaxed) != here) continue;
    if (peer > rank_) return false;
    ++before;
  }
  return before >= share_;
}

uint32_t SharedMemory::announce() {
  boxes_[rank_]->sleepers.fetch_add(1, std::memory_order_seq_cst);
  return boxes_[rank_]->bell.load(std::memory_order_seq_cst);
}

void SharedMemory::sleep(uint32_t seen, std::chrono::microseconds slice) {
  const timespec time{slice.count() / 1000000, slice.count() % 1000000 * 1000};
  syscall(SYS_futex, &boxes_[rank_]->bell, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void SharedMemory::withdraw() { boxes_[rank_]->sleepers.fetch_sub(1, std::memory_order_relaxed); }

void SharedMemory::check(int peer, Deadline deadline) {
  check_peers(peer);
  mailbox_->progress();  // a peer may need a message of ours to get to where we wait for it
  const auto now = Clock::now();
  if (now > deadline) throw Failure{Failure::timeout, peer, ""};
  if (now.time_since_epoch().count() - looked_.load(std::memory_order_relaxed) < between_looks.count()) return;
  looked_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  if (signals_) signals_();
  check_sockets();
}

// A socket at its end means that the peer is gone: in peace if it said so before, else it died.
void SharedMemory::check_sockets() {
  std::vector<pollfd> polls;
  for (int fd : sockets_) polls.push_back({fd, POLLIN | POLLRDHUP, 0});  // poll leaves out negative ones
  if (poll(polls.data(), polls.size(), 0) <= 0) return;
  for (int peer = 0; peer < size_; ++peer) {
    if (polls[peer].revents != 0 && !boxes_[peer]->left.load(std::memory_order_acquire)) gone(peer, "died");
  }
}

// What a peer sent before it went still counts: its absence is an error only at the second look, after another poll.
void SharedMemory::gone(int peer, const char* how) {
  if (gone_[peer].exchange(true)) throw Failure{Failure::peer_lost, peer, how};
}

}  // namespace hocket
