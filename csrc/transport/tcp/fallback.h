// Several ways to one rank as one pipe, which goes over the first, and over the next where that breaks while the other
// end lives. Nothing is lost by it, and who uses the pipe does not notice:
//
//   parts ──send()──▶ kept until the other end has them ──▶ records ──▶ way 0 ✗   way 1   ──▶ receive()
//
//   record   how many bytes follow · how many have come from the other end    and these bytes
//
// Whoever finds that a way has broken goes on over the next one, and says there first how far it has come; the other
// end does the same when it hears that, or has found it, too. From there on both send once more what they have kept.
// They number the ways alike, and never go back to one.
//
// A way is broken where the kernel says so, or where for a `patience` it has had no word from the other kernel, which
// it waits for. That says nothing of the other process: one that is stopped has a kernel that answers.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/tcp/pipe.h"
#include "wait/wait.h"

namespace hocket::tcp {

class Fallback final : public Pipe {
 public:
  static constexpr uint64_t most_kept = 16 << 20;  // bytes: more than a link has under way at any time

  struct Head {
    static Head of(uint32_t bytes, uint64_t received);

    uint32_t bytes;  // that follow; or `anew`
    uint32_t sum;    // CRC32C of the others
    uint64_t received;
  };
  static_assert(sizeof(Head) == 16);
  static constexpr uint32_t anew = ~uint32_t{0};  // the first on a way that is not the first: nothing follows

  // Two or more, in the order that they have at the other end, too.
  Fallback(std::vector<std::shared_ptr<Pipe>> ways, std::chrono::milliseconds patience);
  ~Fallback() override;

  // Over which of them it goes,
  size_t way() const { return way_.load(std::memory_order_relaxed); }
  // and has heard the other end there: as that ends, all its ways do.
  size_t goes_on() const { return goes_on_.load(std::memory_order_relaxed); }

  ssize_t send(std::span<iovec> parts) override;
  ssize_t receive(std::span<iovec> parts) override;
  bool flush() override;
  void read_ahead() override;
  int reads() const override { return ways_[way()]->reads(); }
  void watch(std::vector<pollfd>& polls, short events) const override;
  std::chrono::microseconds arm() override;
  void limit(std::chrono::milliseconds time) override;
  uint64_t in_flight() const override { return ways_[way()]->in_flight(); }
  void shut() override;
  void close() override;

 private:
  // What comes by one of the ways.
  struct Inbound {
    Head head{};
    size_t read = 0;                // of it
    std::atomic<bool> dead{false};  // it broke before it was needed
  };

  // The lock is held.
  bool pump();
  bool next_record();
  std::array<iovec, 2> kept(uint64_t from, uint64_t bytes) const;
  uint64_t keep(std::span<iovec> parts, uint64_t skip);
  ssize_t read(std::span<iovec> parts);
  void read_head(Inbound& from, ssize_t n);
  bool believe(const Head& head);
  bool look_ahead();
  void go_on(int why);

  const std::vector<std::shared_ptr<Pipe>> ways_;
  const std::chrono::milliseconds patience_;
  std::mutex lock_;  // of all that follows
  std::atomic<size_t> way_{0}, goes_on_{0};
  std::atomic<bool> full_{false};  // the way takes no more
  bool over_ = false;              // no way is left,
  int why_ = 0;                    // for this reason; EPIPE: the other end has ended

  std::byte* const kept_;                             // a ring
  uint64_t acknowledged_ = 0, sent_ = 0, taken_ = 0;  // bytes, since the beginning
  int unsent_ = 0;                                    // why the way takes no more: what it has to give is read before
  Head head_{};                                       // of the record that is being sent
  size_t head_left_ = 0;                              // of it, and
  uint64_t record_left_ = 0;                          // of what follows
  bool introduced_ = true, heard_ = true;             // on this way each has said how far it has come
  uint64_t told_ = 0;                                 // how far, the last time

  std::vector<Inbound> inbound_;  // by way
  uint64_t missing_ = 0;          // of the record that is being received
  uint64_t received_ = 0;
  Clock::time_point looked_{};
};

}  // namespace hocket::tcp
