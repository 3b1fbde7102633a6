// How a group ends, and what those that are left of it settle after that.
#include <cstring>
#include <thread>

#include "transport/endpoint.h"
#include "wait/failpoint.h"

namespace hocket {

namespace {

constexpr std::chrono::milliseconds moment{20};  // that it takes to write a note

}  // namespace

void Endpoint::end(const Failure& failure) {
  recorder.fail();
  // What others have settled counts, and was said before they left.
  for (bool over = listens; over && !settlement.begun();) {
    for (int peer : far) bell.hear(peer);
    over = settlement.turn();
  }
  Ranks lost = absent();
  if (const int peer = failure.peer; peer >= 0) {
    if (failure.kind == Failure::peer_lost || (failure.kind == Failure::timeout && liveness.is_stopped(peer))) {
      lost[peer] = true;
    }
  }
  lost[rank()] = false;
  FAILPOINT(ending);
  settlement.find(failure, lost);
  FAILPOINT(ended);
  await(settlement);
}

// It ends by itself: who says nothing more is taken for lost.
void Endpoint::await(Settlement& settlement) {
  while (!settlement.settled()) {
    for (int peer : far) bell.hear(peer);
    settlement.turn();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

void Endpoint::say_where(uint32_t attempt, bool formed, const std::string& card) {
  Outbox::Note note{attempt, formed, static_cast<uint32_t>(std::min<size_t>(card.size(), card_bytes)), {}};
  std::memcpy(note.card, card.data(), note.bytes);
  FAILPOINT(before_note);
  boxes[rank()]->note.write(note);
  FAILPOINT(noted);
  boxes[rank()]->affairs.fetch_add(1, std::memory_order_release);
  bell.notify_all();
}

std::vector<Outbox::Note> Endpoint::notes() {
  for (int peer : far) bell.hear(peer);
  std::vector<Outbox::Note> all(static_cast<size_t>(size()));
  const auto until = Clock::now() + moment;
  for (size_t peer = 0; peer < all.size(); ++peer) {
    while (!boxes[peer]->note.read(all[peer]) && Clock::now() < until) {
    }  // who was stopped or killed in the middle of writing it has said nothing
    all[peer].bytes = std::min<uint32_t>(all[peer].bytes, card_bytes);
  }
  return all;
}

// Whom nobody need wait for who settles what ended the group.
Ranks Endpoint::absent() {
  Ranks all = liveness.dead();
  const auto now = Clock::now();
  const bool listened = keeper_ && keeper_->is_awake(now);
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const tcp::Link* const link = links[peer].get();
    // Who is cut off hears of nobody; and finds that out of all at once, if it does not wait for the last word of each.
    const bool silent = link != nullptr && listened && now - link->heard() > life_ * 7 / 10;
    if (silent || (link != nullptr && link->broken()) || board.has_left(peer) || liveness.is_gone(peer)) all.set(peer);
  }
  return all;
}

Settlement::Outcome Endpoint::settle(int round, const Failure& found, const Ranks& lost, Clock::duration patience) {
  std::unique_ptr<Settlement>& settlement = rounds_[round];
  FAILPOINT(before_round);
  if (!settlement) {
    settlement = std::make_unique<Settlement>(
        rank(), boxes, far, [this] { return absent(); }, [this] { bell.notify_all(); }, round, patience);
    settlement->find(found, lost);
  }
  await(*settlement);
  FAILPOINT(after_round);
  return settlement->outcome();
}

}  // namespace hocket
