// One rank's end of a group.
//
// Each rank owns an *outbox*, a memory file that the ranks of its host have mapped. Nobody but its owner writes it, but
// for the bell, which any rank may ring, and for what is to be there: in a call slots that were lent, or that pass, and
// the arena; and a baton. Of the outbox of a rank that shares no memory with this one there is a mirror, which a link
// keeps up to date.
//
// clang-format off
//   outbox of rank r  ┌ bell, beat, reason ┬ call board ┬ call texts ┬ recording ┬ read counts ┬ descriptors r→0, … ┬ slots ┬ mailbox ┬ slots that pass ┬ arena ┐
// clang-format on
//
// Six parts share it: channels.h moves messages, board.h finds wrong use, bell.h sleeps and wakes, liveness.h knows
// who is gone, settlement.h what ended the group, and recorder.h keeps what happened last. Here they are put together:
// what waits looks at all of them. ending.cpp has what they do when a group is over.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "calls/agreement.h"
#include "messages/mailbox.h"
#include "transport/outbox/bell.h"
#include "transport/outbox/board.h"
#include "transport/outbox/channels.h"
#include "transport/outbox/flight.h"
#include "transport/outbox/liveness.h"
#include "transport/outbox/recorder.h"
#include "transport/outbox/settlement.h"
#include "transport/shm/mapping.h"
#include "transport/tcp/keeper.h"
#include "transport/tcp/link.h"
#include "transport/tcp/pipe.h"

namespace hocket {

// The parts that a rank's endpoint is put together from; a base, so that they are there before the channels.
struct Parts {
  Parts(int rank, const std::vector<int>& fds, const std::vector<int>& sockets, std::vector<int> pidfds,
        const std::vector<int>& events, uint64_t slots, uint64_t arena, int crowd,
        const std::vector<std::shared_ptr<tcp::Pipe>>& pipes, bool checked, Clock::duration life,
        std::function<Ranks()> absent);
  ~Parts();

  const int rank, size;
  const uint64_t slots, arena_bytes;
  std::vector<std::unique_ptr<Mapping>> mappings;  // none of those behind links
  std::vector<std::unique_ptr<tcp::Link>> links;   // none of those that are mapped
  const std::vector<int> far;                      // the ranks that they lead to
  const std::vector<tcp::Link*> all_links;
  const std::vector<Outbox*> boxes;
  const std::vector<uint64_t> slots_of;  // bytes, by rank
  const std::vector<int> events;         // wake ranks that wait for links, too; -1 for others
  Bell bell;
  Settlement settlement;
  Board board;
  Liveness liveness;
  Recorder recorder;
};

class Endpoint : private Parts, public Channels, public Agreement {
 public:
  // fds[r] is rank r's outbox, which is mapped here and not needed any more then, -1 where it cannot be; sockets[r]
  // stays connected to rank r for as long as it lives, and where there is no outbox all there is goes over it;
  // pidfds[r] refers to its process (-1 at the own rank, and on another host); neither is owned. Where there are ranks
  // without an outbox, events[r] is an eventfd that wakes rank r, if it has one; they are duplicated. `slots` is the
  // bytes of the ring of slots, `arena` those of the arena: memory that costs nothing until it is used. `signals` is
  // called now and then while a wait lasts; it may throw. `crowd` ranks share the cores of this machine. pipes[r],
  // where there is one, is how bytes go to and from rank r; else as they are over sockets[r]. `checked`: what goes over
  // sockets carries checksums, at both ends. A rank behind a link from which nothing comes for a `life` is given up; at
  // both ends it is the same.
  Endpoint(int rank, const std::vector<int>& fds, std::vector<int> sockets, std::vector<int> pidfds,
           const std::vector<int>& events, uint64_t slots, uint64_t arena, std::function<void()> signals, int crowd,
           const std::vector<std::shared_ptr<tcp::Pipe>>& pipes = {}, bool checked = false,
           Clock::duration life = std::chrono::seconds(2));
  ~Endpoint() override;

  static uint64_t outbox_bytes(int size, uint64_t slots, uint64_t arena);

  int rank() const { return Parts::rank; }
  int size() const { return Parts::size; }
  Mailbox& mailbox() { return *mailbox_; }
  // Whole pages of the arena go back to the system, unless something was fenced.
  void give_back(uint64_t begin, uint64_t bytes);
  // No call comes any more, and nothing lies in the arena.
  void disown() { mappings[rank()]->disown(); }
  // The sockets and pidfds are about to be closed. Sends what is left over links first, and may wait `for all` to part.
  void disconnect(bool for_all);

  void describe(uint64_t fingerprint, const std::string& text) override;
  uint64_t enter(uint64_t fingerprint, const std::byte* out = nullptr, uint32_t said = 0) override;
  uint32_t said_by_first() const override { return board.said_by_first(); }
  uint64_t number() const override { return board.number(); }
  std::string title() const override { return board.title(); }
  void meet(Peers peers, Deadline deadline) override;
  uint64_t next(int peer, uint64_t expected, Deadline deadline) override;
  std::string learn(int peer, const std::string& expected, Deadline deadline) override;
  bool fence(const std::byte* begin, uint64_t bytes) override;
  void end(const Failure& failure) override;
  void leave() override;
  void close() override;

  // This rank is in `text`, at that line of the program, as whoever asks is told, until the same one takes that back;
  // it is the call of that number, unless that is 0. From any thread; of several the last one counts.
  void report(const void* by, uint64_t call, const std::string& text, const std::string& place,
              Clock::time_point since);
  void retract(const void* by);
  struct Whereabouts {
    std::string doing;  // what the rank waits in; empty where it has not said so
    double seconds;     // for so long
    uint64_t call;      // the last one that it entered,
    std::string title;  // which is that
    bool left, gone;    // in peace, or not
    bool silent;        // it does not wait now
  };
  // Says in this rank's outbox whose it is: of which group, on which host, and beside which processes of that host (0:
  // that rank is elsewhere).
  void sign(uint64_t group, const std::string& host, const std::vector<int32_t>& pids) {
    recorder.sign(group, host, pids);
  }
  // What a rank of this host was in last, alive or dead; nothing of others, and of one that has not signed.
  std::optional<Flight> flight(int peer) const {
    return mappings.at(peer) ? read_flight(*boxes[peer], size()) : std::optional<Flight>();
  }
  // Of every rank, this one included. What those are in that have just begun to wait is waited for. Who `asks` since a
  // call failed lets lower ranks go first, who may have found the same: throws what ended the group meanwhile.
  std::vector<Whereabouts> survey(std::chrono::milliseconds patience, bool asks);
  // For how long this process did not run, the last time that links might have been given up for it.
  Clock::duration absence() const { return keeper_ ? keeper_->absence() : Clock::duration::zero(); }
  // The last call that this rank has completed.
  uint64_t completed() const { return settlement.completed(); }
  bool is_over() { return settlement.settled(); }
  // What the group came to, once it is over.
  Settlement::Outcome outcome() { return settlement.outcome(); }
  std::string title_of(uint64_t call) const { return board.title_anywhere(call); }

  // For those that form a new group when this one is over: where this rank is to be found, and what each of the others
  // has said of that; who is gone; and what they settle in one of the rounds, each of which is settled once, and who
  // asks again is told the same. `found` and `lost` are what this rank says of it; who does not begin within a
  // `patience` is taken for lost.
  void say_where(uint32_t attempt, bool formed, const std::string& card);
  std::vector<Outbox::Note> notes();
  Ranks absent();
  Settlement::Outcome settle(int round, const Failure& found, const Ranks& lost, Clock::duration patience);

  bool copy_offered(int peer, const std::byte* from, std::byte* to, uint64_t bytes) override;
  void expect(int peer, Label label, std::byte* to, uint64_t bytes) override;
  uint64_t landings() const override;
  void hear(int peer) override;
  void notify(int peer) override { bell.notify(peer); }
  bool shares_core(int peer) override { return bell.shares_core(peer); }
  bool all_wait_here(int peer) override {
    return brief.load(std::memory_order_relaxed) &&
           bell.is_elsewhere_and(peer, [this](int other) { return board.has_come(other); });
  }
  uint32_t announce() override { return bell.announce(); }
  void sleep(uint32_t seen, std::chrono::microseconds slice) override;
  void withdraw() override { bell.withdraw(); }
  void check(int peer, Deadline deadline) override;

 private:
  void tend(Clock::time_point now);
  void await(Settlement& settlement);
  void say(const std::string& text, Clock::time_point since);

  const int born_;
  const std::function<void()> signals_;
  const Clock::duration life_;
  const std::string silent_;  // what is said of who is given up
  std::atomic<bool> closing_{false}, fenced_{false};
  std::atomic<bool> whole_{false};  // for the keeper, which is there before it
  std::unique_ptr<Mailbox> mailbox_;
  std::array<std::unique_ptr<Settlement>, rounds> rounds_;
  std::atomic<uint32_t> next_heard_{0};  // in turn, of all links
  std::unique_ptr<tcp::Keeper> keeper_;  // where there are links
  std::mutex reports_;                   // of what this rank is in, and:
  const void* reporter_ = nullptr;       // who said so
};

}  // namespace hocket
