// Several connections to one rank as one pipe: one of them may be held to what one core, one queue or a limit for each
// flow lets through. Both ends go over them in turn, a piece at a time, so none has to say where its bytes belong:
//
//   piece   0 ─▶ pipe 0    1 ─▶ pipe 1    2 ─▶ pipe 2    3 ─▶ pipe 0    ...      of three
//
// Who receives reads the one whose turn it is, however much has come by the others. Where that has nothing more to give
// it looks whether another one has failed: the next piece there would never come.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "transport/tcp/pipe.h"
#include "wait/wait.h"

namespace hocket::tcp {

class Stripes final : public Pipe {
 public:
  static constexpr size_t piece = 64 << 10;  // the same at both ends

  // Two or more, in the order that they have at the other end, too.
  explicit Stripes(std::vector<std::shared_ptr<Pipe>> pipes);

  ssize_t send(std::span<iovec> parts) override;
  ssize_t receive(std::span<iovec> parts) override;
  bool flush() override;
  void read_ahead() override;
  int reads() const override { return pipes_[reading_.pipe]->socket(); }
  void watch(std::vector<pollfd>& polls, short events) const override;
  std::chrono::microseconds arm() override;
  void limit(std::chrono::milliseconds time) override;
  bool is_silent(std::chrono::milliseconds time) const override;
  uint64_t in_flight() const override;
  void shut() override;
  void close() override;

 private:
  // How far one of the two streams has come. Who watches reads whose turn it is, without a lock.
  struct Place {
    std::atomic<size_t> pipe{0};
    size_t left = piece;
  };
  ssize_t deal(Place& at, std::span<iovec> parts, ssize_t (Pipe::*move)(std::span<iovec>));
  int failure();

  const std::vector<std::shared_ptr<Pipe>> pipes_;
  Place writing_, reading_;
  std::vector<std::atomic<bool>> full_;  // by pipe: there is something that its socket did not take
  std::atomic<bool> is_shut_{false};
  Clock::time_point looked_{};  // for failed ones
};

}  // namespace hocket::tcp
