// A world of ranks in one process whose messages are late, whose buffers are small and whose ranks die on command.
//
// Each rank has a thread, but only one runs at a time: at every operation of a port a seeded choice says who goes on.
// So whatever a seed brings out, it brings out again, and a deadlock is found by counting polls in vain, not by a
// clock.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "engine/port.h"

namespace hocket::testing {

struct Weather {
  uint64_t seed = 0;
  size_t depth = 64;         // messages per channel
  uint64_t staging = ~0ull;  // bytes that a rank may have posted and not yet read by all; one message always fits
  unsigned delay = 0;        // a message shows itself only after up to this many polls
  unsigned refusal = 0;      // of 100 operations that could succeed, so many do not
  unsigned views = 0;        // of 100 buffers, so many can be read by others where they lie
  unsigned offers = 0;       // of 100 messages that are only copied, so many are offered, if any are
  unsigned puts = 0;         // of 100 outputs, so many can be written by others
  unsigned loans = 0;        // of 100 slots that could be lent, so many are
  unsigned landings = 0;     // of 100 messages that are expected, so many are received there; 0: nobody is told of any
  bool crowded = true;
  int dying = -1;           // this rank
  size_t dies_at = 0;       // stops before its post() or release() of this index
  size_t patience = 20000;  // polls in vain, of all ranks, that are taken for a deadlock
};

struct Death {};

// How one rank's part ended.
struct End {
  bool died = false;
  std::optional<Failure> failure;
  std::string error;      // what it was that flew, if not a Failure
  size_t operations = 0;  // posts and releases
  size_t fused = 0;       // posts of what was reserved between a peek() and its release()
  size_t viewed = 0;      // posts of views
  size_t offered = 0;     // posts of what was offered
  size_t copied = 0;      // copies of what was
  size_t put = 0;         // posts of what was put
  size_t lent = 0;        // posts of what was lent
  size_t landed = 0;      // messages received where they were expected
  int announced = 0;      // announcements not withdrawn
  bool chose = false;     // it has found which turns are better
};

class FakePort;

class World {
 public:
  World(int size, const Weather& weather)
      : size_(size),
        weather_(weather),
        random_(weather.seed),
        staged_(size),
        channels_(size * size),
        outputs_(size),
        vain_(size),
        seats_(size) {}

  // Runs `part` as every rank, each in its own thread.
  std::vector<End> play(const std::function<void(int rank, FakePort&)>& part);

 private:
  friend class FakePort;

  struct Slot {                         // staged once, read by several
    std::unique_ptr<std::byte[]> data;  // of exactly this size, for the address sanitizer
    uint64_t bytes;
    uint64_t* staged;
    bool lent;
    ~Slot() { *staged -= bytes; }
  };
  struct Posted {
    std::shared_ptr<Slot> slot;  // null where nothing was staged
    const std::byte* data;
    uint64_t bytes;
    Label label;
    unsigned hidden;  // polls until it shows itself
    bool offered = false, whole = false;
  };
  struct Output {  // of the call that a rank has entered last
    uint64_t call = 0;
    std::byte* begin = nullptr;
  };
  struct Expected {
    Label label;
    std::byte* to;
    uint64_t bytes;
  };
  struct Channel {
    std::deque<Posted> queue;
    uint64_t posted = 0, released = 0;
    std::vector<Expected> expected;  // by number, since the beginning of time
  };

  Channel& channel(int from, int to) { return channels_[from * size_ + to]; }
  unsigned below(unsigned n) { return static_cast<unsigned>(random_() % n); }
  void live(int rank, const std::function<void(int, FakePort&)>& part, End& end);
  void hand_over(int rank);
  int choose();

  const int size_;
  const Weather weather_;
  std::mt19937_64 random_;
  std::vector<uint64_t> staged_;
  std::vector<Channel> channels_;
  std::vector<Output> outputs_;
  std::vector<int> running_, dead_;
  std::optional<Failure> poison_;  // the first mismatch or bug that a rank found: the others are told
  std::vector<int> vain_;          // polls of each rank since there was anything that could help it
  size_t all_in_vain_ = 0;

  // Where a rank waits for its turn. Who has it touches all of the above without a lock.
  struct Seat {
    std::mutex mutex;
    std::condition_variable wake;
    bool called = false;
    void call();
    void wait();
  };
  std::vector<Seat> seats_;
};

class FakePort : public Port {
 public:
  FakePort(World& world, int rank, End& end) : world_(world), rank_(rank), end_(end) {
    listens = world.weather_.landings != 0;
  }
  ~FakePort() override { end_.chose = grains.loops.is_known(); }

  std::byte* reserve(Peers peers, uint64_t bytes) override {
    const uint64_t staged = world_.staged_[rank_];
    if (!room(peers)) return in_vain(), nullptr;
    if (staged != 0 && staged + bytes > world_.weather_.staging) {
      laggard_ = reader_of_slots();
      return in_vain(), nullptr;
    }
    if (reserved_ == nullptr && refuses()) return nullptr;
    reserved_.reset(new std::byte[bytes]);
    std::fill_n(reserved_.get(), bytes, std::byte{0xa5});
    released_since_ = lends_ = false;
    reserved_then_ = peeked_;
    return reserved_.get();
  }

  bool lends(int, uint64_t bytes) const override {
    const bool is_roomy = world_.weather_.staging / 8 >= bytes;
    return !listens && is_roomy && world_.below(100) < world_.weather_.loans;
  }

  std::byte* lend(Peers peer, uint64_t bytes) override {
    std::byte* const room = reserve(peer, bytes);
    lends_ = room != nullptr;
    return room;
  }

  void take_back() override { lent_.pop_front(); }

  void post(Peers peers, uint64_t bytes, Label label) override {
    count();
    end_.fused += released_since_ && reserved_then_;
    world_.staged_[rank_] += bytes;
    std::shared_ptr<World::Slot> slot(new World::Slot{std::move(reserved_), bytes, &world_.staged_[rank_], lends_});
    if (lends_) lent_.push_back(slot);
    end_.lent += lends_;
    send(peers, {slot, slot->data.get(), bytes, label, 0});
  }

  bool reachable(Peers, const std::byte*, uint64_t bytes) const override {
    return bytes != 0 && world_.below(100) < world_.weather_.views;
  }

  bool offers(Peers, const std::byte*, uint64_t bytes) const override {
    return bytes != 0 && world_.below(100) < world_.weather_.offers;
  }

  bool post_view(Peers peers, const std::byte* data, uint64_t bytes, Label label) override {
    return show(peers, {nullptr, data, bytes, label, 0}, end_.viewed);
  }

  bool post_offer(Peers peers, const std::byte* data, uint64_t bytes, Label label, bool whole) override {
    return show(peers, {nullptr, data, bytes, label, 0, true, whole}, end_.offered);
  }

  bool copy_offered(int peer, const std::byte*, std::byte* to, uint64_t bytes) override {
    if (refuses()) return false;
    std::memcpy(to, world_.channel(peer, rank_).queue.front().data, bytes);
    ++end_.copied;
    return true;
  }

  // To be called before each run of the engine.
  void enter(std::byte* out) {
    World::Output& own = world_.outputs_[rank_];
    own = {own.call + 1, out};
  }

  std::byte* target(int peer) override {
    const World::Output &own = world_.outputs_[rank_], &theirs = world_.outputs_[peer];
    return own.call == theirs.call && can_put(rank_, peer) ? theirs.begin : nullptr;
  }

  void post_put(int peer, const std::byte* written, uint64_t bytes, Label label) override {
    count();
    ++end_.put;
    reserved_.reset();
    const int32_t to[] = {peer};
    send(to, {nullptr, written, bytes, label, 0});
  }

  int laggard() const override { return laggard_; }

  uint64_t posted(int peer) const override { return world_.channel(rank_, peer).posted; }

  bool consumed(int peer, uint64_t count) override {
    const World::Channel& channel = world_.channel(rank_, peer);
    const bool read = channel.posted - channel.queue.size() >= count;
    if (read && world_.below(100) >= world_.weather_.refusal) return true;
    return in_vain(), false;
  }

  // What is expected may come at once, and what was there is lost. Who can put does not send as well.
  void expect(int peer, Label label, std::byte* to, uint64_t bytes) override {
    if (can_put(peer, rank_)) to = nullptr;
    if (to != nullptr) std::fill_n(to, bytes, std::byte{0x5a});
    world_.channel(peer, rank_).expected.push_back({label, to, bytes});
  }

  bool peek(int peer, Message& message) override {
    World::Channel& channel = world_.channel(peer, rank_);
    if (listens && channel.expected.size() <= channel.released)
      throw Failure{Failure::internal, rank_, "peeks at what it did not expect"};
    std::deque<World::Posted>& queue = channel.queue;
    if (queue.empty()) return in_vain(), false;
    World::Posted& oldest = queue.front();
    if (oldest.hidden > 0) return --oldest.hidden, elsewhere(), false;
    peeked_ = true;
    message = {oldest.label, oldest.bytes, oldest.data, oldest.slot && oldest.slot->lent, oldest.offered, oldest.whole};
    if (oldest.offered) message.data = nullptr;  // it is nowhere where others could read it
    return true;
  }

  void release(int peer) override {
    count();
    world_.channel(peer, rank_).queue.pop_front();
    ++world_.channel(peer, rank_).released;
    world_.vain_[peer] = 0;
    released_since_ = true;
    peeked_ = false;
    if (world_.below(4) == 0) elsewhere();
  }

  void mismatch(int peer, const Message& message, Label expected, uint64_t bytes) override {
    throw Failure{Failure::mismatch, peer,
                  std::to_string(message.label.call) + "/" + std::to_string(message.bytes) + " bytes, not " +
                      std::to_string(expected.call) + "/" + std::to_string(bytes)};
  }

  void notify(int) override {}
  bool shares_core(int) override { return world_.weather_.crowded; }
  uint32_t announce() override { return ++end_.announced; }
  void withdraw() override { --end_.announced; }

  // Nobody sleeps here: polls count, not time.
  void sleep(uint32_t, std::chrono::microseconds) override {
    if (end_.announced == 0) throw Failure{Failure::internal, rank_, "sleeps without an announcement"};
  }

  void check(int peer, Deadline deadline) override {
    if (world_.poison_) throw *world_.poison_;
    if (!world_.dead_.empty()) throw Failure{Failure::peer_lost, world_.dead_.front(), ""};
    if (Clock::now() > deadline) throw Failure{Failure::timeout, peer, ""};
  }

 private:
  bool room(Peers peers) {
    const auto has_room = [&](int peer) { return world_.channel(rank_, peer).queue.size() < world_.weather_.depth; };
    const auto full = std::ranges::find_if_not(peers, has_room);
    if (full != peers.end()) laggard_ = *full;
    return full == peers.end();
  }

  // The lowest rank that has not read something that is staged; -1 where all of that is to be taken back.
  int reader_of_slots() const {
    const auto is_staged = [](const World::Posted& message) { return message.slot && message.slot->bytes != 0; };
    for (int peer = 0; peer < world_.size_; ++peer) {
      if (std::ranges::any_of(world_.channel(rank_, peer).queue, is_staged)) return peer;
    }
    return -1;
  }

  // In the call that this rank is in.
  bool can_put(int from, int to) const {
    const uint64_t call = world_.outputs_[rank_].call;
    return mix(world_.weather_.seed, call, from * world_.size_ + to) % 100 < world_.weather_.puts;
  }

  bool show(Peers peers, const World::Posted& message, size_t& counted) {
    if (!room(peers)) return in_vain(), false;
    if (refuses()) return false;
    count();
    ++counted;
    send(peers, message);
    return true;
  }

  bool refuses() {
    if (world_.below(100) >= world_.weather_.refusal) return false;
    elsewhere();
    return true;
  }

  void send(Peers peers, World::Posted message) {
    for (int peer : peers) {
      message.hidden = world_.below(world_.weather_.delay + 1);
      World::Channel& channel = world_.channel(rank_, peer);
      channel.queue.push_back(message);
      land(channel, channel.queue.back());
      ++channel.posted;
      world_.vain_[peer] = 0;
    }
    if (world_.below(4) == 0) elsewhere();
  }

  // As early as can be: before it shows itself.
  void land(World::Channel& channel, World::Posted& message) {
    if (channel.posted >= channel.expected.size()) return;
    const World::Expected& e = channel.expected[channel.posted];
    if (message.offered || e.to == nullptr || e.bytes == 0 || e.label != message.label || e.bytes != message.bytes)
      return;
    if (world_.below(100) >= world_.weather_.landings) return;
    std::memcpy(e.to, message.data, e.bytes);
    message.data = e.to;
    ++end_.landed;
  }

  // Nothing could be done, and nothing but another rank can change that.
  void in_vain() {
    ++world_.vain_[rank_];
    if (++world_.all_in_vain_ > world_.weather_.patience) throw Failure{Failure::internal, -1, "deadlock"};
    world_.hand_over(rank_);
  }

  void elsewhere() {
    world_.vain_[rank_] = 0;
    world_.all_in_vain_ = 0;
    world_.hand_over(rank_);
  }

  void count() {
    if (rank_ == world_.weather_.dying && end_.operations == world_.weather_.dies_at) throw Death{};
    ++end_.operations;
    world_.vain_[rank_] = 0;
    world_.all_in_vain_ = 0;
  }

  World& world_;
  const int rank_;
  End& end_;
  std::unique_ptr<std::byte[]> reserved_;
  bool released_since_ = false, peeked_ = false, reserved_then_ = false;
  int laggard_ = -1;
  bool lends_ = false;                             // what is reserved,
  std::deque<std::shared_ptr<World::Slot>> lent_;  // and what has not been taken back
};

inline std::vector<End> World::play(const std::function<void(int, FakePort&)>& part) {
  std::vector<End> ends(size_);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size_; ++rank) running_.push_back(rank);
  for (int rank = 0; rank < size_; ++rank) threads.emplace_back([&, rank] { live(rank, part, ends[rank]); });
  seats_[choose()].call();
  for (std::thread& thread : threads) thread.join();
  return ends;
}

inline void World::live(int rank, const std::function<void(int, FakePort&)>& part, End& end) {
  seats_[rank].wait();
  try {
    FakePort port(*this, rank, end);
    part(rank, port);
  } catch (const Death&) {
    end.died = true;
    dead_.push_back(rank);
  } catch (const Failure& failure) {
    end.failure = failure;
    if (!poison_ && (failure.kind == Failure::mismatch || failure.kind == Failure::internal)) {
      poison_ = failure;
      poison_->relayed = true;
    }
  } catch (const std::exception& error) {
    end.error = error.what();
    dead_.push_back(rank);
  }
  all_in_vain_ = 0;
  std::erase(running_, rank);
  if (!running_.empty()) seats_[choose()].call();
}

// Any rank that may be able to do something; when there is none, any: they have to look around.
inline int World::choose() {
  std::vector<int> able;
  for (int rank : running_) {
    if (vain_[rank] < 2) able.push_back(rank);  // neither a send nor a receive
  }
  const std::vector<int>& from = able.empty() ? running_ : able;
  return from[below(static_cast<unsigned>(from.size()))];
}

inline void World::hand_over(int rank) {
  const int next = choose();
  if (next == rank) return;
  seats_[next].call();
  seats_[rank].wait();
}

inline void World::Seat::call() {
  std::lock_guard lock(mutex);
  called = true;
  wake.notify_one();
}

inline void World::Seat::wait() {
  std::unique_lock lock(mutex);
  wake.wait(lock, [&] { return called; });
  called = false;
}

}  // namespace hocket::testing
