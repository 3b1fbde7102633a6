#include "transport/outbox/settlement.h"

#include <sched.h>

#include <algorithm>

#include "transport/outbox/text.h"
#include "wait/failpoint.h"

namespace hocket {

namespace {

// For what others may still complete.
constexpr std::chrono::milliseconds moment{20};

Outbox::Reason reason_of(const Failure& failure) {
  Outbox::Reason why{static_cast<uint32_t>(failure.kind), failure.peer, {}};
  put(why.text, reason_bytes, failure.text);
  return why;
}

Failure failure_of(const Outbox::Reason& why) {
  return {static_cast<Failure::Kind>(why.kind), why.culprit, get(why.text, reason_bytes), true};
}

}  // namespace

Settlement::Settlement(int rank, std::vector<Outbox*> boxes, const std::vector<int>& far, std::function<Ranks()> absent,
                       std::function<void()> tell, int round, Clock::duration patience)
    : rank_(rank),
      size_(static_cast<int>(boxes.size())),
      boxes_(std::move(boxes)),
      behind_links_([&] {
        Ranks all;
        for (int peer : far) all.set(static_cast<size_t>(peer));
        return all;
      }()),
      far_(behind_links_.any()),
      round_(round),
      patience_(patience),
      absent_(std::move(absent)),
      tell_(std::move(tell)),
      stands_(far_ ? boxes_.size() : 0),
      versions_(stands_.size()) {}

void Settlement::find(const Failure& failure, const Ranks& lost) {
  {
    const std::lock_guard lock(mutex_);
    Outbox::Finding& finding = boxes_[rank_]->findings[round_];
    if (!found_ && stage_ == Outbox::Stand::none) {
      found_ = true;
      finding.why = reason_of(failure);
      finding.lost = lost;
      FAILPOINT(half_found);
      finding.there.store(1, std::memory_order_release);
      FAILPOINT(found);
      boxes_[rank_]->affairs.fetch_add(1, std::memory_order_release);
    }
    if (far_) {
      if (stage_ == Outbox::Stand::none) begin();
    } else {
      if (round_ == 0 && !settled()) await_others(lost);
      FAILPOINT(before_verdict);
      uint32_t none = 0;
      boxes_[0]->verdicts[round_].compare_exchange_strong(none, 1 + static_cast<uint32_t>(rank_),
                                                          std::memory_order_acq_rel);
      FAILPOINT(after_verdict);
      shut_all();
    }
  }
  tell_();
  if (far_) turn();
}

void Settlement::await_others(const Ranks& lost) const {
  const auto is_behind = [&] {
    for (int rank = 0; rank < size_; ++rank) {
      if (!lost[rank] && (boxes_[rank]->gate.load(std::memory_order_acquire) & ~Outbox::shut) < completed())
        return true;
    }
    return false;
  };
  for (const auto until = Clock::now() + moment; is_behind() && Clock::now() < until;) sched_yield();
}

bool Settlement::settled() {
  if (far_) return stage_.load(std::memory_order_acquire) == Outbox::Stand::settled;
  if (boxes_[0]->verdicts[round_].load(std::memory_order_acquire) == 0) return false;
  shut_all();  // who settled it may have died before that
  return true;
}

void Settlement::shut_all() {
  if (round_ != 0 || shut_.load(std::memory_order_acquire)) return;
  for (Outbox* box : boxes_) {
    box->gate.fetch_or(Outbox::shut, std::memory_order_acq_rel);
    FAILPOINT(half_shut);
  }
  shut_.store(true, std::memory_order_release);
}

Settlement::Outcome Settlement::outcome() {
  if (far_) {
    const std::lock_guard lock(mutex_);
    return {failure_of(outcome_.why), outcome_.lost, outcome_.completed, outcome_.reached};
  }
  const auto winner = std::min<uint32_t>(boxes_[0]->verdicts[round_].load(std::memory_order_acquire), size_) - 1;
  const Outbox::Finding& finding = boxes_[winner]->findings[round_];
  Outcome result{failure_of(finding.why), finding.lost, UINT64_MAX, 0};
  for (int rank = 0; rank < size_; ++rank) {
    if (finding.lost[rank]) continue;
    const uint64_t completed = boxes_[rank]->gate.load(std::memory_order_acquire) & ~Outbox::shut;
    result.completed = std::min(result.completed, completed);
    result.reached = std::max(result.reached, completed);
  }
  return result;
}

// ---- between hosts --------------------------------------------------------------------------------------------------

void Settlement::begin() {
  if (round_ == 0)
    stand_.completed = boxes_[rank_]->gate.fetch_or(Outbox::shut, std::memory_order_acq_rel) & ~Outbox::shut;
  FAILPOINT(begun);
  if (found_) stand_.lost = boxes_[rank_]->findings[round_].lost;
  stand_.lost[rank_] = false;
  stand_.stage = Outbox::Stand::settling;
  begun_ = Clock::now();
  if (put_out(stand_.lost))
    show();
  else
    bow_out();
}

// These, as far as they share memory with this rank: it has won against each of them, unless this is false.
bool Settlement::put_out(const Ranks& lost) {
  for (size_t rank = 0; rank < boxes_.size(); ++rank) {
    if (rank == me() || !lost[rank] || behind_links_[rank]) continue;
    int32_t winner = 0;
    if (!duel_with(rank).compare_exchange_strong(winner, 1 + rank_, std::memory_order_acq_rel) && winner != 1 + rank_)
      return false;
  }
  return true;
}

bool Settlement::is_out() const {
  for (size_t rank = 0; rank < boxes_.size(); ++rank) {
    if (rank == me() || behind_links_[rank]) continue;
    if (duel_with(rank).load(std::memory_order_acquire) == 1 + static_cast<int32_t>(rank)) return true;
  }
  return false;
}

// What the others come to this rank does not wait for.
bool Settlement::bow_out() {
  Outbox::Stand outcome = stand_;
  outcome.stage = Outbox::Stand::settled;
  outcome.reached = outcome.completed;
  outcome.lost.set(me());
  outcome.why = reason_of({Failure::peer_lost, rank_, ""});
  settle(outcome);
  return true;
}

std::atomic<int32_t>& Settlement::duel_with(size_t rank) const {
  return boxes_[std::min(rank, me())]->counts()[std::max(rank, me())].duel;
}

// What others have completed; for a moment.
bool Settlement::may_complete_more() {
  const auto now = Clock::now();
  if (heard_ == Clock::time_point{}) heard_ = now;
  if (now - heard_ > moment) return false;
  const auto is_ahead = [&](const Outbox::Stand& s) {
    return s.stage != Outbox::Stand::none && s.completed > completed();
  };
  return std::any_of(stands_.begin(), stands_.end(), is_ahead);
}

void Settlement::show() {
  boxes_[rank_]->stands[round_].write(stand_);
  FAILPOINT(shown);
  boxes_[rank_]->affairs.fetch_add(1, std::memory_order_release);
  stage_.store(stand_.stage, std::memory_order_release);
}

// Who is taken for lost itself does not pass on what the others came to: that it shows is that it is out.
void Settlement::settle(const Outbox::Stand& outcome) {
  outcome_ = outcome;
  if (outcome.lost[me()]) {
    stand_.stage = Outbox::Stand::evicted;
  } else {
    stand_ = outcome;
  }
  show();
  FAILPOINT(settled);
  stage_.store(Outbox::Stand::settled, std::memory_order_release);
}

bool Settlement::anybody_has_begun() const {
  return std::any_of(boxes_.begin(), boxes_.end(),
                     [&](const Outbox* box) { return box->stands[round_].version() != 0; });
}

void Settlement::look() {
  for (size_t rank = 0; rank < stands_.size(); ++rank) {
    const uint64_t version = boxes_[rank]->stands[round_].version();
    if (rank != me() && version != versions_[rank] && boxes_[rank]->stands[round_].read(stands_[rank]))
      versions_[rank] = version;
  }
}

bool Settlement::turn() {
  if (!far_) return settled();
  if (!anybody_has_begun()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (stage_ == Outbox::Stand::settled) return true;
    const Ranks out = absent_();  // who says no more; asked before what they have said is looked at
    look();
    const bool begins = !begun();
    if (begins && (round_ != 0 || may_complete_more())) return true;
    if (begins) begin();
    if (stage_ != Outbox::Stand::settled && !adopt(out) && !decide() && !begins) return true;
  }
  tell_();
  return true;
}

// What others hold. Whether this rank's stand changed.
bool Settlement::adopt(const Ranks& out) {
  if (is_out()) return bow_out();
  Ranks lost = stand_.lost;
  const auto waited = Clock::now() - begun_;
  for (size_t rank = 0; rank < stands_.size(); ++rank) {
    if (rank == me() || stand_.lost[rank]) continue;
    const Outbox::Stand& theirs = stands_[rank];
    const bool out_of_sight = theirs.lost[me()];  // this rank, to that one
    if (theirs.stage == Outbox::Stand::settled && (!out_of_sight || counts(rank, theirs))) {
      if (!theirs.lost[me()] && !put_out(theirs.lost)) return bow_out();
      settle(theirs);
      return true;
    }
    const bool cut_off = out_of_sight && !counts(rank, theirs);
    const bool begun = theirs.stage != Outbox::Stand::none;
    const bool late = waited > (begun ? 3 * patience_ : patience_) && !(begun && theirs.lost == stand_.lost);
    if (out[rank] || late || cut_off || theirs.stage == Outbox::Stand::evicted) lost.set(rank);
    if (begun && !out_of_sight) lost |= theirs.lost;
  }
  if (lost == stand_.lost) return false;
  if (!put_out(lost)) return bow_out();
  stand_.lost = lost;
  FAILPOINT(adopted);
  show();
  return true;
}

// Whether this rank believes that one, which takes it for lost. Who is too few to go on is itself cut off, and takes
// nobody along; but from who shares memory with it nobody is cut off: this rank was stopped.
bool Settlement::counts(size_t rank, const Outbox::Stand& theirs) const {
  return !behind_links_[rank] || can_go_on(theirs.lost);
}

// More than half, or half of them with the lowest rank.
bool Settlement::can_go_on(const Ranks& lost) const {
  const size_t size = boxes_.size(), members = size - lost.count();
  return 2 * members > size || (2 * members == size && !lost[0]);
}

const Outbox::Finding* Settlement::finding_of(int rank) const {
  const Outbox::Finding& finding = boxes_[rank]->findings[round_];
  return finding.there.load(std::memory_order_acquire) != 0 ? &finding : nullptr;
}

bool Settlement::decide() {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_ || stand_.lost[rank]) continue;
    if (stands_[rank].stage != Outbox::Stand::settling || stands_[rank].lost != stand_.lost) return false;
  }
  Outbox::Stand result = stand_;
  result.stage = Outbox::Stand::settled;
  result.reached = stand_.completed;
  int culprit = 0;
  while (culprit + 1 < size_ && !stand_.lost[culprit]) ++culprit;
  result.why = reason_of({Failure::peer_lost, culprit, ""});
  const Outbox::Finding* counts = nullptr;  // the lowest rank's; after the first round, one that failed
  bool differ = false;
  for (int rank = 0; rank < size_; ++rank) {
    if (stand_.lost[rank]) continue;
    const Outbox::Finding* const finding = finding_of(rank);
    if (finding != nullptr && (counts == nullptr || (round_ != 0 && finding->why.kind > counts->why.kind)))
      counts = finding;
    if (finding != nullptr && round_ != 0 &&
        get(finding->why.text, reason_bytes) != get(counts->why.text, reason_bytes))
      differ = true;
    const uint64_t completed = rank == rank_ ? stand_.completed : stands_[rank].completed;
    result.completed = std::min(result.completed, completed);
    result.reached = std::max(result.reached, completed);
  }
  // Who is left alone differs from nobody, and may know why another one took it for lost.
  for (int rank = 0; stand_.lost.count() + 1 == boxes_.size() && counts == nullptr && rank < size_; ++rank) {
    if (stands_[rank].lost[me()]) counts = finding_of(rank);
  }
  if (counts != nullptr) result.why = counts->why;
  if (differ) result.why.kind = Failure::peer_lost;
  FAILPOINT(decided);
  settle(result);
  return true;
}

}  // namespace hocket
