// A connected stream socket to one rank, and the mirror of that rank's outbox.
//
//   our outbox ──push()──▶ frames ─────▶ socket ─────▶ frames ──turn()──▶ its mirror of us
//   our mirror of it ◀──turn()── frames ◀───── socket ◀───── frames ◀──push()── its outbox
//
// Nothing is queued but in the outbox itself: a link remembers how much of it the other end has been sent. The bytes of
// a message go from where they lie to the kernel, and from the kernel to the mirror's slots. A message that the kernel
// has taken counts as read here, so that its memory may change; how many the other rank has truly read comes back with
// every frame, and no more than a window of unread ones is ever sent: so what nobody reads yet never stands in the way
// of what somebody waits for.
//
// Each message has its place in the mirror's slots, which the sender gave it. But where the reader has said what it
// expects next, and to where that is to be copied, just that message is received there, and its place stays as it is.
//
// link.cpp is its life, sending.cpp and receiving.cpp are its halves.
//
// Threads: whoever waits, whoever has published something, and the keeper. What is sent is under one lock, what is
// received under another; to the mirror's readers this is the other rank, which publishes as that would.
#pragma once

#include <sys/uio.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/port.h"
#include "transport/outbox/layout.h"
#include "transport/outbox/wire.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/pipe.h"
#include "wait/wait.h"

namespace hocket::tcp {

class Link final : public Wire {
 public:
  // `arena` is where views in our outbox are counted from. `slots`: bytes of our slots. `checked`: every frame carries
  // a checksum, here and at the other end.
  Link(int rank, int size, int peer, std::shared_ptr<Pipe> pipe, bool checked, Outbox* own, const std::byte* arena,
       uint64_t slots);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  Outbox* mirror() const { return mirror_; }
  int socket() const { return socket_.load(std::memory_order_relaxed); }

  void push() override;
  bool turn() override;

  // Tells the other end that this rank lives, and what it waits for, unless it was told a `while` ago.
  void beat(Clock::time_point now, Clock::duration a_while);
  // The next message that nobody told of is to be this one. If it comes after this, it is received at `to`, which
  // belongs to the link until the message has been read; null, and where it is short: in the slots. For one thread.
  void expect(Label label, std::byte* to, uint64_t bytes);
  // How many messages have begun to be received there.
  uint64_t landings() const { return landed_.load(std::memory_order_relaxed); }
  // After a failure: nothing of the caller's memory is read or written any more. What of it is in the middle of being
  // sent is sent from a copy; what is in the middle of being received there goes to the slots.
  void fence();
  // Adds what shows that something came, where POLLIN is among the events, and that what is stuck may go on, where
  // POLLOUT is.
  void watch(std::vector<pollfd>& polls, short events) const {
    if (!stuck()) events = static_cast<short>(events & ~POLLOUT);
    if (events != 0 && !broken() && socket() >= 0) pipe_->watch(polls, events);
  }
  // Who is about to sleep until that shows something asks first, how long that may be.
  std::chrono::microseconds arm() const { return pipe_->arm(); }
  // Whether there is something that the socket did not take.
  bool stuck() const { return stuck_.load(std::memory_order_relaxed); }
  // Why nothing more can come, or null.
  const char* broken() const { return broken_.load(std::memory_order_acquire); }
  // When the other end was last heard of.
  Clock::time_point heard() const { return Clock::time_point(Clock::duration(heard_.load(std::memory_order_relaxed))); }
  // Where the other end was silent for half of `life`, the kernel may end the connection at its whole. Not before: it
  // counts on while both processes are stopped, and then neither is gone. For the keeper.
  void guard(Clock::time_point now, Clock::duration life);
  // This process did not run for a while: that says nothing of the other.
  void forgive(Clock::time_point now) { heard_.store(now.time_since_epoch().count(), std::memory_order_relaxed); }
  // Nothing more will be sent.
  void shut();
  // Bytes that were sent, and that the other end has not and may get.
  uint64_t in_flight() const { return broken() || socket() < 0 ? 0 : pipe_->in_flight(); }
  // The socket is about to be closed.
  void disconnect();

 private:
  struct Outgoing {
    Frame frame;
    std::array<iovec, 3> parts;
    int count;                    // of the parts
    uint64_t message;             // 1 + its number, where it is one
    std::vector<std::byte> copy;  // of what must not be read any more
  };

  // Whether something may be sent: also to who sent what cannot be true, so that it is told what came of that.
  bool sends() const {
    return (!broken() || refused_.load(std::memory_order_relaxed)) && unsent_ == 0 && socket() >= 0;
  }

  // sending.cpp; the lock is held
  bool flush();
  void sent(size_t bytes);
  bool compose(Outgoing& to);  // the next frame; false: there is nothing to send
  bool text(Outgoing& to, uint64_t fingerprint);
  bool call(Outgoing& to);
  bool affairs(Outgoing& to);
  bool reason(Outgoing& to, int round);
  bool stand(Outgoing& to, int round);
  bool note(Outgoing& to);
  bool mail(Outgoing& to);
  bool message(Outgoing& to);
  bool pulse(Outgoing& to);
  bool left(Outgoing& to);
  bool doing(Outgoing& to);
  void begin(Outgoing& to, Frame::Kind kind, uint64_t a = 0, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0);
  static void attach(Outgoing& to, const void* data, uint64_t bytes);
  static void seal(Outgoing& to);

  // receiving.cpp; the lock is held
  bool receive();
  bool parse();  // what lies in the buffer; false: it cannot be true
  bool open();   // the frame whose head is there
  bool land(std::byte* to, uint64_t room, std::byte* then = nullptr);
  std::byte* landing() const;  // of the message whose head is there, where it is expected
  void withdraw();             // takes the lock
  void landed(uint64_t bytes);
  void close();  // the frame that is there as a whole
  void take_stand();

  void fail(const char* why);
  void fail_by(int error);  // of the pipe

  const int rank_, size_, peer_;
  const std::shared_ptr<Pipe> pipe_;
  std::atomic<int> socket_;  // that of the pipe, until it is about to be closed
  const bool checked_;
  Outbox* const own_;
  const std::byte *const own_arena_, *const own_slots_;
  const uint64_t mirror_bytes_;
  Outbox* const mirror_;
  const shm::Region own_mail_;
  const shm::Region mail_;  // the mirror's

  std::atomic<const char*> broken_{nullptr};
  std::atomic<bool> refused_{false};  // what came
  std::atomic<bool> stuck_{false};    // the socket takes no more
  std::atomic<bool> starved_{false};  // the other rank must read first
  std::atomic<int> unsent_{0};        // why the pipe takes nothing more; it may have more to give: that counts first
  std::atomic<Clock::duration::rep> heard_;
  bool guarded_ = false;  // by the kernel

  std::mutex sending_;  // of what follows
  static constexpr int most_frames = 16;
  std::array<Outgoing, most_frames> batch_;
  int batched_ = 0, done_ = 0;  // frames in the batch, and those of them that are sent
  size_t sent_bytes_ = 0;       // of the first that is not
  bool fenced_ = false;
  uint64_t frames_ = 0;  // composed
  uint64_t calls_ = 0;   // told
  uint64_t texts_[text_count] = {};
  bool told_left_ = false;
  uint64_t messages_ = 0;  // composed
  uint64_t mailed_ = 0;    // up to this position
  uint32_t told_stuck_ = 0;
  uint64_t told_read_ = 0, told_consumed_ = 0;
  uint64_t told_doing_ = 0, told_note_ = 0;  // those versions
  uint64_t told_stands_[rounds] = {};
  bool told_reasons_[rounds] = {};
  uint64_t told_affairs_ = 0;
  bool pulse_ = false;
  Clock::time_point beaten_{};
  uint64_t head_ = 0;                      // of what lies in the reader's window, since the beginning of time
  std::array<uint64_t, depth> begins_{};   // where each message begins there
  std::atomic<uint64_t> read_by_peer_{0};  // messages, as it says

  std::mutex receiving_;                    // of what follows
  static constexpr size_t buffered = 4096;  // bytes that are received before it is known where they go
  std::unique_ptr<std::byte[]> buffer_;
  size_t first_ = 0, last_ = 0;  // what of it is not parsed
  Frame frame_{};                // that is open
  uint32_t sum_ = 0;             // of it, as far as it is here
  bool open_ = false;
  std::byte* to_ = nullptr;  // where the rest of its bytes goes, in up to two pieces
  uint64_t room_ = 0;        // in the first of them
  std::byte* then_ = nullptr;
  uint64_t missing_ = 0;                // of them, all in all
  uint64_t closed_ = 0, received_ = 0;  // frames and messages
  struct Landing {
    uint64_t number;
    Label label;
    std::byte* to;
    uint64_t bytes;
  };
  std::array<Landing, depth> landings_{};  // by the message's number; what is over for one of them counts no more
  bool withdrawn_ = false;
  std::byte* landing_ = nullptr;  // of the open message, where it is not received in the slots
  std::atomic<uint64_t> landed_{0};
  std::array<std::byte, text_bytes> scratch_;

  uint64_t expected_ = 0;  // messages that this rank told of: of the thread that does
};

}  // namespace hocket::tcp
