// Long, because what either cursor may do next depends on where the other one is: one class, a few lines for each step.
#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/chores.h"
#include "engine/cursor.h"
#include "kernels/copy.h"
#include "wait/failpoint.h"

namespace hocket {

namespace {

constexpr uint64_t far_enough = 64;           // pairs of record and segment, to tell of before their turn
constexpr uint64_t copied_at_once = 2 << 20;  // bytes of what is offered

class Run {
 public:
  Run(Program& program, Port& port, uint64_t call, const std::byte* inp, std::byte* out, Deadline deadline,
      Clock::duration* waited, bool* touched)
      : program_(program),
        port_(port),
        call_(call ^ port.begin(program.passes)),
        bases_{const_cast<std::byte*>(inp), out, program.scratch.data()},
        sends_(program.sends, program.segment, program.signals),
        receives_(program.receives, program.segment, program.signals),
        deadline_(deadline),
        wait_(port, deadline, waited),
        touched_(touched),
        chores_(program, port.grains, port.reading) {
    if (port.listens) ahead_.emplace(receives_);
    for (Protocol& protocol : program.protocols) {
      protocol.kind = Protocol::unknown;
      protocol.posted.clear();
      protocol.slots.clear();
    }
    program.copied.clear();
    if (program.ways > 1) choose();
    // A sum that is made in place finds its lines there.
    const bool in_place = inp < out + program.out_bytes && out < inp + program.inp_bytes;
    runs_ahead_ = !port.listens && (!in_place || !program.reads_inp);
    const uint64_t unread = program.unread_bytes + (in_place ? 0 : program.unread_sums);
    program.past_caches.begin(unread, !program.sending.is_busy());
    if (is_timed()) begun_ = Clock::now();
  }

  void finish() {
    while (!sends_.done() || !receives_.done()) {
      bool moved = false;
      while (!sends_.done() && send()) {  // first, as far as it goes: others wait for it
        moved = true;
        if (!receives_.done() && is_copy_of_own(receives_.record())) break;  // fills the time in which they read
      }
      if (work()) moved = true;
      if (moved) {
        wait_.progressed();
      } else {
        wait_.idle(blocker_);
      }
    }
    for (size_t i = 0; i < program_.sends.size(); ++i) {  // what was viewed may change once we return
      if (!program_.protocols[i].is_read_there()) continue;
      const uint64_t last = program_.protocols[i].posted.size() / program_.sends[i].peers.size() - 1;
      while (!read(i, last)) wait_.idle(blocker_);
      wait_.progressed();
    }
    if (chooses_ && program_.sending.tries()) wait_for_readers();
    if (!is_timed()) return;
    const Clock::duration took = Clock::now() - begun_;
    Sending& sending = program_.sending;
    if (chooses_) sending.tell(took, sending.tries() && port_.shares_core(-1));
    if (program_.past_caches.is_measured()) program_.past_caches.tell(took);
  }

 private:
  // How this run sends what is long.
  void choose() {
    const unsigned choices = ways(program_, port_);
    const Sending::Way way = program_.sending.way();
    chooses_ = choices > 1;
    offers_ = port_.offering == Port::all_offered || (way == Sending::offered && choices > way);
    past_caches_ = way == Sending::past_caches && choices > way;
  }

  // Ways differ by what reading takes, too, and the last pieces are read when their sender is through.
  void wait_for_readers() {
    for (const Flow& flow : program_.flows) {
      while (flow.sent > 0 && !port_.consumed(flow.peer, port_.posted(flow.peer))) wait_.idle(flow.peer);
      wait_.progressed();
    }
  }

  bool is_timed() const { return chooses_ || program_.past_caches.is_measured(); }

  std::byte* at(const Place& place) const { return bases_[place.buffer] + place.offset; }

  Label label(uint32_t mark, uint64_t segment) const { return {call_, static_cast<uint32_t>(mark + segment)}; }

  bool send() {
    const Send& s = sends_.record();
    const uint64_t segment = sends_.segment();
    if (s.after != nothing && !receives_.passed(s.after, segment)) return false;
    const uint64_t bytes = sends_.bytes();
    Protocol& view = protocol(sends_.index());
    if (view.kind == Protocol::spared) {
      sends_.advance();
      return true;
    }
    if (view.kind == Protocol::put) {
      if (!put(s, bytes, nullptr)) return false;
      sends_.advance();
      return true;
    }
    if (view.is_read_there()) {
      const std::byte* const from = at(s.from) + sends_.offset();
      const Label as = label(s.mark, segment);
      if (view.kind == Protocol::viewed ? !port_.post_view(s.peers, from, bytes, as)
                                        : !port_.post_offer(s.peers, from, bytes, as, s.after == nothing)) {
        blocker_ = port_.laggard();
        return false;
      }
      FAILPOINT(viewed);
      for (int32_t peer : s.peers) view.posted.push_back(port_.posted(peer));
      sends_.advance();
      return true;
    }
    const bool lends = view.kind == Protocol::lent;
    std::byte* slot = lends ? port_.lend(s.peers, bytes) : port_.reserve(s.peers, bytes);
    if (slot == nullptr) {
      blocker_ = port_.laggard();
      return false;
    }
    const void* from = at(s.from) + sends_.offset();
    const bool past_caches = !lends && goes_past_caches(s);
    chores_.add({slot, nullptr, &from, 1, bytes, 1, past_caches});
    if (!past_caches && takes_turns(bytes)) {
      work(true);
    } else {
      chores_.finish();
    }
    FAILPOINT(staged);
    port_.post(s.peers, bytes, label(s.mark, segment));
    FAILPOINT(published);
    if (lends) {
      view.posted.push_back(port_.posted(s.peers.front()));
      view.slots.push_back(slot);
    }
    sends_.advance();
    return true;
  }

  // Whether its slots are written so, unless they are lent: these its reader writes, too.
  bool goes_past_caches(const Send& s) const { return past_caches_ && s.bytes >= least_tried; }

  // Whether a message of so many bytes is staged in turns with what else there is to do: not where who waits for it
  // could work meanwhile on the core that they share, or has nothing else to work on, since it is all that is sent. Nor
  // with a function of the caller's, which takes no turns, and may take long.
  bool takes_turns(uint64_t bytes) {
    if (bytes < Chores::worth || bytes == sends_.record().bytes || program_.custom) return false;
    if (receives_.done() || is_copy_of_own(receives_.record())) return false;
    if (!turns_) turns_ = !port_.shares_core(-1);
    return *turns_;
  }

  // Besides what is to be done already: the receive whose sources are there, and the slot that has come home. Not,
  // beside what is staged, a receive that is passed on: alone it goes to where it is sent from in the same pass.
  bool work(bool beside = false) {
    const bool skips = !receives_.done() && skip();
    const bool receives = !receives_.done() && receive(beside);
    const bool homes = lent_ != nothing && comes_home();
    chores_.finish();
    if (receives) received();
    if (homes) {
      port_.take_back();
      ++home_;
      FAILPOINT(fetched);
    }
    return skips || receives || homes;
  }

  // Whether what the peer made is in the next of the slots that were lent.
  bool comes_home() {
    const Protocol& view = program_.protocols[lent_];
    if (home_ == view.posted.size()) return false;
    const Send& s = program_.sends[lent_];
    if (!port_.consumed(s.peers.front(), view.posted[home_])) {
      blocker_ = s.peers.front();
      return false;
    }
    const Receive& r = program_.receives[s.home];
    const uint64_t offset = home_ * program_.segment;
    if (touched_ != nullptr && r.to.buffer == out) *touched_ = true;
    fetched_ = view.slots[home_];
    const uint64_t bytes = std::min(program_.segment, r.bytes - offset);
    chores_.add({at(r.to) + offset, nullptr, &fetched_, 1, bytes, 1, is_past(r)});
    return true;
  }

  // Whether what a send has posted can be overwritten: always if it was staged, and once it is read if it was a view.
  bool read(size_t index, uint64_t segment) {
    const int32_t reader = unfinished_reader(index, segment);
    if (reader != nothing) blocker_ = reader;
    return reader == nothing;
  }

  int32_t unfinished_reader(size_t index, uint64_t segment) {
    const Protocol& view = program_.protocols[index];
    if (!view.is_read_there()) return nothing;
    const auto& peers = program_.sends[index].peers;
    for (size_t k = 0; k < peers.size(); ++k) {
      if (!port_.consumed(peers[k], view.posted[segment * peers.size() + k])) return peers[k];
    }
    return nothing;
  }

  // Whether nothing will be sent for the current receive, and it is here already.
  bool skip() {
    const bool is_home = lent_ != nothing && program_.sends[lent_].home == receives_.index();
    if (!is_home || home_ <= receives_.segment()) return false;
    if (ahead_) look_ahead();
    advance_receives();
    return true;
  }

  void advance_receives() {
    receives_.advance();
    if (ahead_) --ahead_by_;
  }

  // Whether what it makes goes past the caches.
  bool is_past(const Receive& r) const { return r.unread && program_.past_caches.is_past(); }

  // Prepares the current receive, if it can be made now; `beside` a send only where it is not passed on.
  bool receive(bool beside) {
    const Receive& r = receives_.record();
    const uint64_t segment = receives_.segment(), bytes = receives_.bytes();
    if (lent_ != nothing && program_.sends[lent_].home == receives_.index()) return false;
    for (int32_t send : r.before) {
      if (!sends_.passed(send, segment) || !read(send, segment)) return false;
    }
    if (ahead_) look_ahead();
    if (!gather(r, segment, bytes)) return false;
    if (beside && r.passed_on && borrowed_ == nullptr) return false;
    if (is_offered_ && !copy_offered(r, bytes)) return false;
    FAILPOINT(collected);
    fold(r, segment, bytes);
    return true;
  }

  // Tells the port of what comes next, and, where that is only copied, to where. The current receive is among it: what
  // it overwrites has been read.
  void look_ahead() {
    for (; ahead_by_ < far_enough && !ahead_->done(); ++ahead_by_, ahead_->advance()) {
      const Receive& r = ahead_->record();
      const bool lands = r.sources.size() == 1 && r.sources[0].peer != local;
      if (lands && ahead_by_ != 0 && !is_free_ahead()) return;
      std::byte* const to = lands ? at(r.to) + ahead_->offset() : nullptr;
      for (const Source& source : r.sources) {
        if (source.peer == local) continue;
        port_.expect(source.peer, label(source.mark, ahead_->segment()), to, ahead_->bytes());
      }
    }
  }

  // Whether nothing reads or writes any more what is overwritten ahead: no send, and none of the receives before it.
  bool is_free_ahead() {
    for (int32_t send : ahead_->record().before) {
      const uint64_t segment = ahead_->segment();
      if (!sends_.passed(send, segment) || unfinished_reader(send, segment) != nothing) return false;
    }
    for (Cursor<Receive> c = receives_; !c.is_at(*ahead_); c.advance()) {
      const Receive& r = c.record();
      if (overlap_ahead(c, r.to)) return false;
      for (const Source& source : r.sources) {
        if (source.peer == local && overlap_ahead(c, source.place)) return false;
      }
    }
    return true;
  }

  bool overlap_ahead(const Cursor<Receive>& c, const Place& place) const {
    const std::byte* const here = at(place) + c.offset();
    const std::byte* const there = at(ahead_->record().to) + ahead_->offset();
    return here < there + ahead_->bytes() && there < here + c.bytes();
  }

  // Finds all sources of the current receive; false if one is not there yet.
  bool gather(const Receive& r, uint64_t segment, uint64_t bytes) {
    const size_t k = r.sources.size();
    program_.sources.resize(k);
    borrowed_ = nullptr;
    is_offered_ = is_whole_ = false;
    for (size_t i = 0; i < k; ++i) {
      const Source& source = r.sources[i];
      if (source.peer == local) {
        program_.sources[i] = at(source.place) + receives_.offset();
        continue;
      }
      Message message;
      if (!port_.peek(source.peer, message)) {
        blocker_ = source.peer;
        return false;
      }
      const Label expected = label(source.mark, segment);
      if (message.label != expected || message.bytes != bytes) {
        port_.mismatch(source.peer, message, expected, bytes);
      }
      program_.sources[i] = message.data;
      if (message.lent) borrow(r, message);
      is_offered_ |= message.offered;
      is_whole_ |= message.whole;
    }
    return true;
  }

  // To where it goes, and it is its own source from there on. Where all of it may be copied already, that is done in
  // long pieces: each is a call of the kernel's, which takes hold of the pages anew.
  bool copy_offered(const Receive& r, uint64_t bytes) {
    if (r.sources.size() != 1) throw Failure{Failure::internal, -1, "memory was offered to who does not only copy it"};
    const uint64_t offset = receives_.offset();
    std::byte* const to = at(r.to) + offset;
    if (touched_ != nullptr && r.to.buffer == out) *touched_ = true;
    const auto* const from = static_cast<const std::byte*>(std::exchange(program_.sources[0], to));
    if (program_.copied.empty()) program_.copied.resize(program_.receives.size());
    uint64_t& copied = program_.copied[receives_.index()];
    if (offset + bytes <= copied) return true;
    const uint64_t most =
        is_whole_ && r.alone && runs_ahead_ ? copied_at_once / program_.segment * program_.segment : 0;
    const uint64_t count = std::max(bytes, std::min(most, r.bytes - offset));
    if (port_.copy_offered(r.sources[0].peer, from, to, count)) {
      copied = offset + count;
      return true;
    }
    blocker_ = r.sources[0].peer;
    return false;
  }

  // What is made of this message goes into its slot as well, and the answer need not be sent.
  void borrow(const Receive& r, const Message& message) {
    if (r.answer == nothing) throw Failure{Failure::internal, -1, "a slot was lent to who does not answer"};
    program_.protocols[r.answer].kind = Protocol::spared;
    borrowed_ = const_cast<std::byte*>(message.data);
  }

  // The sources are to be folded to where they go, and in the same pass to where the next send would take them.
  void fold(const Receive& r, uint64_t segment, uint64_t bytes) {
    const uint64_t offset = receives_.offset();
    next_ = borrowed_ == nullptr && fusible(segment) ? &sends_.record() : nullptr;
    direct_ = next_ != nullptr && protocol(sends_.index()).kind == Protocol::put;
    also_ = next_ == nullptr ? borrowed_ : port_.reserve(next_->peers, direct_ ? 0 : bytes);
    if (direct_ && also_ != nullptr) also_ = port_.target(next_->peers[0]) + next_->from.offset + offset;
    if (touched_ != nullptr && r.to.buffer == out) *touched_ = true;
    const uint64_t divisor = r.finished ? program_.divisor : 1;
    const bool received = r.sources[0].peer != local && !is_offered_;
    const bool is_read = r.passed_on && (also_ == nullptr || direct_);  // by a send, later, or made as it is here
    const bool also_past = next_ != nullptr && also_ != nullptr && !direct_ && goes_past_caches(*next_);
    chores_.add({at(r.to) + offset, also_, program_.sources.data(), program_.sources.size(), bytes, divisor,
                 is_past(r) && !is_read, received, also_past});
  }

  // The current receive has been made.
  void received() {
    const Receive& r = receives_.record();
    if (program_.slow && r.sources.size() > 1 && Clock::now() > deadline_) overrun();
    FAILPOINT(folded);
    for (const Source& source : r.sources) {
      if (source.peer != local) port_.release(source.peer);
    }
    FAILPOINT(released);
    if (next_ != nullptr && also_ != nullptr) {
      const uint64_t bytes = receives_.bytes();
      if (direct_) {
        put(*next_, bytes, also_);
      } else {
        port_.post(next_->peers, bytes, label(next_->mark, receives_.segment()));
      }
      sends_.advance();
    }
    advance_receives();
  }

  // Who has given up in the meantime said why; else this rank is the first to.
  [[noreturn]] void overrun() {
    port_.check(-1, Deadline::max());
    throw Failure{Failure::timeout, -1, "its operator took longer than the call may"};
  }

  Protocol& protocol(size_t index) {
    Protocol& found = program_.protocols[index];
    if (found.kind != Protocol::unknown) return found;
    const Send& s = program_.sends[index];
    const auto known = [&](int32_t peer) { return port_.target(peer) != nullptr; };
    if (s.put && std::all_of(s.peers.begin(), s.peers.end(), known)) {
      found.kind = Protocol::put;
    } else if (!s.staged && port_.reachable(s.peers, at(s.from), s.bytes)) {
      found.kind = Protocol::viewed;
    } else if (offers_ && s.copied && !s.staged && port_.offers(s.peers, at(s.from), s.bytes)) {
      found.kind = Protocol::offered;
    } else if (can_lend(s)) {
      found.kind = Protocol::lent;
      lent_ = static_cast<int32_t>(index);
    } else {
      found.kind = Protocol::staged;
    }
    return found;
  }

  // Whether what the peer makes of it is to come home in its slot: unless the peer can write it to where it belongs.
  bool can_lend(const Send& s) const {
    if (s.home == nothing || !port_.lends(s.peers.front(), program_.segment)) return false;
    const Receive& r = program_.receives[s.home];
    return r.bytes == s.bytes && !port_.reachable(s.peers, at(r.to), r.bytes);
  }

  // Writes the current segment of `s` into the output of each peer, but for the one at `done`, where it is already.
  bool put(const Send& s, uint64_t bytes, const std::byte* done) {
    if (port_.reserve(s.peers, 0) == nullptr) {
      blocker_ = port_.laggard();
      return false;
    }
    const uint64_t offset = sends_.offset();
    for (int32_t peer : s.peers) {
      std::byte* to = port_.target(peer) + s.from.offset + offset;
      if (to != done) copy_bytes(to, at(s.from) + offset, bytes);
      FAILPOINT(put);
      port_.post_put(peer, to, bytes, label(s.mark, sends_.segment()));
    }
    return true;
  }

  static bool is_copy_of_own(const Receive& r) { return r.sources.size() == 1 && r.sources[0].peer == local; }

  // Receive-reduce-send in one pass: when the very next send is of what is just being made, where it goes is a second
  // destination. Found here and not authored.
  bool fusible(uint64_t segment) {
    if (sends_.done() || sends_.record().after != receives_.index() || sends_.segment() != segment) return false;
    const Send& s = sends_.record();
    const Receive& r = receives_.record();
    return s.bytes == r.bytes && s.from == r.to && !protocol(sends_.index()).is_read_there();
  }

  Program& program_;
  Port& port_;
  const uint64_t call_;
  const std::array<std::byte*, 3> bases_;
  Cursor<Send> sends_;
  Cursor<Receive> receives_;
  std::optional<Cursor<Receive>> ahead_;  // where the port listens: what comes next that it was not told of
  uint64_t ahead_by_ = 0;                 // pairs, of the receives
  const Deadline deadline_;
  Wait wait_;
  bool* const touched_;
  Chores chores_;
  std::optional<bool> turns_;
  bool chooses_ = false;                       // how what is long goes:
  bool offers_ = false, past_caches_ = false;  // where it lies, if it is copied; or by slots that are written so
  Clock::time_point begun_;                    // if it is timed
  bool runs_ahead_ = false;                    // receives that are alone do, if what they copy is offered as a whole
  // Of the receive that is being made: whether its source is offered, and as a whole; the next send, of the same,
  // whether that is put, and a second place for the result; and the slot of its message, if that was lent.
  bool is_offered_ = false, is_whole_ = false;
  const Send* next_ = nullptr;
  bool direct_ = false;
  std::byte *also_ = nullptr, *borrowed_ = nullptr;
  int32_t lent_ = nothing;         // the send whose slots are lent: there is one at most
  uint64_t home_ = 0;              // segments of it that have come home
  const void* fetched_ = nullptr;  // the next one
  int blocker_ = -1;
};

}  // namespace

unsigned ways(const Program& program, const Port& port) {
  if (port.listens || port.offering == Port::all_offered) return 1;
  return port.offering == Port::nothing_offered ? std::min(program.ways, 1u + Sending::past_caches) : program.ways;
}

void run(Program& program, Port& port, uint64_t call, const std::byte* inp, std::byte* out, Deadline deadline,
         Clock::duration* waited, bool* touched) {
  program.scratch.resize(program.tmp_bytes);
  program.protocols.resize(program.sends.size());
  Run(program, port, call, inp, out, deadline, waited, touched).finish();
}

}  // namespace hocket
