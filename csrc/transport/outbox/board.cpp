#include "transport/outbox/board.h"

#include <algorithm>
#include <functional>

#include "transport/outbox/text.h"
#include "wait/failpoint.h"

namespace hocket {

namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Both calls, ours first, one a line.
[[noreturn]] void differ(int peer, const std::string& ours, const std::string& theirs) {
  throw Failure{Failure::mismatch, peer, ours + "\n" + theirs};
}

}  // namespace

Board::Board(int rank, std::vector<Outbox*> boxes, Settlement& settlement)
    : rank_(rank), boxes_(std::move(boxes)), settlement_(settlement) {}

bool Board::describe(uint64_t fingerprint, const std::string& text) {
  Outbox::Text& t = boxes_[rank_]->texts[fingerprint % text_count];
  if (t.fingerprint.load(std::memory_order_relaxed) == fingerprint) return false;
  t.fingerprint.store(0, std::memory_order_release);
  put(t.text, sizeof t.text, text);
  t.fingerprint.store(fingerprint, std::memory_order_release);
  return true;
}

uint64_t Board::enter(uint64_t fingerprint, uint64_t place, uint32_t said) {
  const uint64_t call = number() + 1;
  Outbox::Entry& e = boxes_[rank_]->board[call % board_size];
  e.fingerprint.store(fingerprint, std::memory_order_relaxed);
  e.out.store(place, std::memory_order_relaxed);
  e.said.store(said, std::memory_order_relaxed);
  e.call.store(call, std::memory_order_release);
  call_.store(call, std::memory_order_release);
  return call;
}

void Board::meet(Peers peers, Waiter& waiter, Deadline deadline) {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  for (int peer : peers) {
    const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
    Wait wait(waiter, deadline);
    while (e.call.load(std::memory_order_acquire) < call && !is_about_to_enter(peer)) wait.idle(peer);
    compare(peer);
  }
  // All that was read of others is read: an end of the group that comes from now on comes too late for this call.
  FAILPOINT(met);
  const bool completed = settlement_.complete(call);
  FAILPOINT(completed);
  if (completed) return;
  for (Wait wait(waiter, Deadline::max());;) wait.idle(-1);  // until it is known why not
}

// What it waits for after that it writes when it has entered this one: where both are mixed up here, `compare` sees
// that.
bool Board::is_about_to_enter(int peer) const {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  const Outbox::Entry &theirs = boxes_[peer]->waits, &ours = boxes_[rank_]->board[call % board_size];
  return theirs.call.load(std::memory_order_acquire) == call &&
         theirs.fingerprint.load(std::memory_order_acquire) == ours.fingerprint.load(std::memory_order_relaxed);
}

uint64_t Board::next(int peer, uint64_t expected, Waiter& waiter, Deadline deadline) {
  const uint64_t call = number() + 1;
  Outbox::Entry& own = boxes_[rank_]->waits;
  own.fingerprint.store(expected, std::memory_order_release);
  own.call.store(call, std::memory_order_release);
  const Outbox::Entry &theirs = boxes_[peer]->board[call % board_size], &wait_of_theirs = boxes_[peer]->waits;
  Wait wait(waiter, deadline);
  while (theirs.call.load(std::memory_order_acquire) < call) {
    if (wait_of_theirs.call.load(std::memory_order_acquire) == call) {
      const uint64_t other = wait_of_theirs.fingerprint.load(std::memory_order_relaxed);
      differ(peer, first_line(text_of(rank_, expected)), first_line(text_of(peer, other)));
    }
    wait.idle(peer);
  }
  return theirs.fingerprint.load(std::memory_order_relaxed);
}

std::string Board::learn(int peer, const std::string& expected, Waiter& waiter, Deadline deadline) {
  const uint64_t fingerprint = std::hash<std::string>()(expected);
  describe(fingerprint, expected);
  next(peer, fingerprint, waiter, deadline);
  return text(peer, number() + 1);
}

void Board::compare(int peer) const {
  const uint64_t call = call_.load(std::memory_order_acquire);
  const Outbox::Entry& theirs = boxes_[peer]->board[call % board_size];
  const Outbox::Entry& ours = boxes_[rank_]->board[call % board_size];
  if (call == 0 || theirs.call.load(std::memory_order_acquire) != call) return;
  if (theirs.fingerprint.load(std::memory_order_relaxed) == ours.fingerprint.load(std::memory_order_relaxed)) return;
  settlement_.check();  // one that gave this call up before it said so
  differ(peer, title(rank_, call), title(peer, call));
}

bool Board::is_here(int peer) const {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  if (settlement_.completed() == call) return true;
  return boxes_[peer]->board[call % board_size].call.load(std::memory_order_acquire) >= call;
}

bool Board::has_come(int peer) const {
  const auto waits = [&](int rank) { return boxes_[rank]->waits.call.load(std::memory_order_relaxed); };
  const uint64_t call = std::max(call_.load(std::memory_order_relaxed), waits(rank_));
  const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
  return call > settlement_.completed() && (e.call.load(std::memory_order_relaxed) >= call || waits(peer) >= call);
}

uint64_t Board::place_of_output(int peer) const {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
  return e.call.load(std::memory_order_acquire) == call ? e.out.load(std::memory_order_relaxed) : 0;
}

uint32_t Board::said_by_first() const {
  const uint64_t call = call_.load(std::memory_order_relaxed);
  const Outbox::Entry& e = boxes_[0]->board[call % board_size];
  return e.call.load(std::memory_order_acquire) == call ? e.said.load(std::memory_order_relaxed) : 0;
}

std::pair<uint64_t, std::string> Board::last(int peer) const {
  uint64_t call = 0;
  for (const Outbox::Entry& e : boxes_[peer]->board) call = std::max(call, e.call.load(std::memory_order_acquire));
  return {call, call == 0 ? "" : title(peer, call)};
}

std::string Board::text(int peer, uint64_t call) const {
  const Outbox::Entry& e = boxes_[peer]->board[call % board_size];
  if (e.call.load(std::memory_order_acquire) != call) return "(another call)";
  return text_of(peer, e.fingerprint.load(std::memory_order_relaxed));
}

std::string Board::text_of(int peer, uint64_t fingerprint) const {
  const Outbox::Text& t = boxes_[peer]->texts[fingerprint % text_count];
  if (t.fingerprint.load(std::memory_order_acquire) != fingerprint) return "(a call it no longer describes)";
  return get(t.text, sizeof t.text);
}

std::string Board::title_anywhere(uint64_t call) const {
  int who = rank_;
  for (int rank = static_cast<int>(boxes_.size()) - 1; rank >= 0; --rank) {
    const Outbox::Entry& e = boxes_[rank]->board[call % board_size];
    if (e.call.load(std::memory_order_acquire) != call) continue;
    const uint64_t fingerprint = e.fingerprint.load(std::memory_order_relaxed);
    const Outbox::Text& t = boxes_[rank]->texts[fingerprint % text_count];
    if (t.fingerprint.load(std::memory_order_acquire) == fingerprint) who = rank;
  }
  return title(who, call);
}

std::string Board::title(int peer, uint64_t call) const { return first_line(text(peer, call)); }

}  // namespace hocket
