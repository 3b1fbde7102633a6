// The call board: what each rank is doing. Here wrong use is found.
//
// On entry of a call each rank writes the call's number and fingerprint on its board; no call ends before this rank has
// seen those of all others, nor once the group is over (settlement.h). Who must be told by a root what it enters writes
// what it expects, before: if that is what the others have entered, it counts as if it had entered it, too.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "engine/port.h"
#include "transport/outbox/layout.h"
#include "transport/outbox/settlement.h"
#include "wait/wait.h"

namespace hocket {

class Board {
 public:
  Board(int rank, std::vector<Outbox*> boxes, Settlement& settlement);

  // Whether that is new here.
  bool describe(uint64_t fingerprint, const std::string& text);
  // `place` is 1 + where the output lies in the arena; 0: not there.
  uint64_t enter(uint64_t fingerprint, uint64_t place, uint32_t said = 0);
  uint64_t number() const { return call_.load(std::memory_order_relaxed); }
  std::string title() const { return title(rank_, number()); }
  // What that call of a rank is, if it is one of its last.
  std::string title(int peer, uint64_t call) const;
  // The same for all that are left, if it is one of the last that any of them was in: some still describe it.
  std::string title_anywhere(uint64_t call) const;
  void meet(Peers peers, Waiter& waiter, Deadline deadline);
  uint64_t next(int peer, uint64_t expected, Waiter& waiter, Deadline deadline);
  std::string learn(int peer, const std::string& expected, Waiter& waiter, Deadline deadline);

  void leave() { boxes_[rank_]->left.store(1, std::memory_order_release); }
  bool has_left(int peer) const { return boxes_[peer]->left.load(std::memory_order_acquire) != 0; }

  // Throws when `peer` is in the same call as this rank and means something else by it.
  void compare(int peer) const;
  // Whether `peer` has entered the call this rank is in; also true where it is in none.
  bool is_here(int peer) const;
  // Whether `peer` is as far as this rank: in the call that this one is in, or waits to be told of. False between
  // calls.
  bool has_come(int peer) const;
  // The last call that `peer` has entered, as far as it is known here, and what it is; 0 for none.
  std::pair<uint64_t, std::string> last(int peer) const;
  // Where the output of `peer` lies in its arena, as above, in the call this rank is in; 0 if that is not known.
  uint64_t place_of_output(int peer) const;
  // What rank 0 wrote there besides, if it is on this host.
  uint32_t said_by_first() const;

 private:
  // Whether `peer` waits to be told of just the call that this rank is in: it enters that next, or never another one.
  bool is_about_to_enter(int peer) const;
  std::string text(int peer, uint64_t call) const;
  std::string text_of(int peer, uint64_t fingerprint) const;

  const int rank_;
  const std::vector<Outbox*> boxes_;
  Settlement& settlement_;
  std::atomic<uint64_t> call_{0};  // the last that this rank entered
};

}  // namespace hocket
