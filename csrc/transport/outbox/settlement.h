// How the ranks of a group agree on what ended it: on one reason, on who is lost, and on the last call that all others
// completed. Nobody waits for one that is dead or stopped, and there is no coordinator.
//
// Each rank has a *gate*: to complete a call is to move its gate from the call before to this one. Once a group is
// over, gates are shut and stay as they are, so what was completed is a fact, and no call is completed later.
//
// Where all ranks share memory, the first one to write its name into one word, `verdict`, has found the reason that
// counts. Everyone who sees that shuts all gates, those of ranks that compute or are stopped, too, and reads them. (The
// word lies in the outbox of rank 0, which outlives its process.) Before that, who has completed more than others gives
// them a moment to do so, too: what only needs a core need not fail.
//
// Between hosts each rank takes a *stand*, and shows it to all:
//
//   none ──(a finding of its own, or a stand of another)──▶ settling: its gate is shut, and it takes these for lost
//   settling: takes for lost whoever one that it does not take for lost takes for lost, and so on
//   settling ──(all that it does not take for lost show the same)──▶ settled
//   settling ──(one that it does not take for lost has settled)────▶ settled, as that one
//
// So two ranks that do not take each other for lost settle alike, however late, or never, they hear of others: if both
// had seen all equal, each showed the set of the other before its own, and sets only grow. A rank is suspected when it
// is dead, has left, or is silent; one that finds that the others have settled without it says that it is out. Beside
// those who wait, the keeper takes part: a rank that computes holds up nobody.
//
// To settle is not to go on: that takes another round, in which all that go on say the same, and a majority of them or
// of the hosts. On one host there is none: one of two may go on when the other has died. So two that share memory there
// have a word, their *duel*, in which each may write its name, and it stays: nobody takes the other for lost, on
// whatever grounds, without having won it, and who has lost it is out. (Both may have been stopped, one after the
// other.)
//
// tests/model has all of it as models, and walks through what may happen.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <vector>

#include "transport/outbox/layout.h"
#include "wait/wait.h"

namespace hocket {

class Settlement {
 public:
  // What a group came to: the same on all ranks that are left.
  struct Outcome {
    Failure failure;  // relayed; the text is empty where nobody is left who knows one
    Ranks lost;
    uint64_t completed;  // the last call that all which are left completed,
    uint64_t reached;    // and that any of them did
  };

  // `far` are the ranks behind links. Where there are any, `absent()` tells whom to take for lost, from any thread, and
  // so is who has not begun to settle after a `patience`. `tell` shows all ranks what is new. In the first round it is
  // settled what ended the group. Those that are left settle other things in later ones, in the same way, but that each
  // begins by what it has found itself; of these the highest kind counts, and peer_lost where their texts differ.
  Settlement(int rank, std::vector<Outbox*> boxes, const std::vector<int>& far, std::function<Ranks()> absent,
             std::function<void()> tell, int round = 0, Clock::duration patience = std::chrono::seconds(1));

  // Whether this rank may say that it has completed the call; false once the group is over.
  bool complete(uint64_t call) {
    uint64_t before = call - 1;
    return boxes_[rank_]->gate.compare_exchange_strong(before, call, std::memory_order_acq_rel);
  }
  uint64_t completed() const { return boxes_[rank_]->gate.load(std::memory_order_acquire) & ~Outbox::shut; }

  // This rank has found why the group is over, and takes these for lost. It counts unless something else does already.
  void find(const Failure& failure, const Ranks& lost);
  // Looks at the stands of others and takes its own. False where there is nothing to settle, which costs a look at a
  // word of each.
  bool turn();
  // Throws the reason that counts, once it is settled.
  void check() {
    if (settled()) throw outcome().failure;
  }
  bool settled();
  // Between hosts: whether this rank has taken a stand.
  bool begun() const { return stage_.load(std::memory_order_acquire) != Outbox::Stand::none; }
  // Of a group that has settled.
  Outcome outcome();

 private:
  void await_others(const Ranks& lost) const;
  void shut_all();
  bool anybody_has_begun() const;
  void look();
  bool may_complete_more();
  void begin();  // the lock is held, as by those that follow
  bool adopt(const Ranks& out);
  bool put_out(const Ranks& lost);
  bool is_out() const;
  bool bow_out();
  std::atomic<int32_t>& duel_with(size_t rank) const;
  bool counts(size_t rank, const Outbox::Stand& theirs) const;
  bool can_go_on(const Ranks& lost) const;
  const Outbox::Finding* finding_of(int rank) const;  // null where it has none
  bool decide();
  void show();
  void settle(const Outbox::Stand& outcome);

  size_t me() const { return static_cast<size_t>(rank_); }

  const int rank_, size_;
  const std::vector<Outbox*> boxes_;
  const Ranks behind_links_;
  const bool far_;  // whether there are any
  const int round_;
  const Clock::duration patience_;
  const std::function<Ranks()> absent_;
  const std::function<void()> tell_;
  std::atomic<bool> found_{false}, shut_{false};
  std::mutex mutex_;                   // of a rank's own stand
  std::atomic<uint32_t> stage_{0};     // of it
  Outbox::Stand stand_{};              // as it was last shown,
  Outbox::Stand outcome_{};            // and what the group has come to
  Clock::time_point begun_{};          // to settle
  Clock::time_point heard_{};          // that others have
  std::vector<Outbox::Stand> stands_;  // of others, as they were last seen,
  std::vector<uint64_t> versions_;     // and which these are
};

}  // namespace hocket
