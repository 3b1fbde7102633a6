#include "engine/engine.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>

#include "wait/failpoint.h"

namespace hocket {

namespace {

constexpr uint64_t far_enough = 64;  // pairs of record and segment, to tell of before their turn

// Walks the (record, segment) pairs of one list in the order (step + segment, step, index).
template <class Record>
class Cursor {
 public:
  Cursor(const std::vector<Record>& records, uint64_t segment, bool signals)
      : records_(records), segment_(segment), signals_(signals) {
    settle();
  }

  bool done() const { return first_ == records_.size(); }
  const Record& record() const { return records_[at_]; }
  int32_t index() const { return static_cast<int32_t>(at_); }
  uint64_t segment() const { return diagonal_ - record().step; }
  uint64_t offset() const { return segment() * segment_; }
  uint64_t bytes() const { return std::min(segment_, record().bytes - offset()); }
  bool is_at(const Cursor& other) const { return diagonal_ == other.diagonal_ && at_ == other.at_; }

  // Whether this cursor has left (index, segment) behind.
  bool passed(int32_t index, uint64_t segment) const {
    const uint64_t diagonal = records_[index].step + segment;
    return done() || diagonal < diagonal_ || (diagonal == diagonal_ && static_cast<size_t>(index) < at_);
  }

  void advance() {
    ++at_;
    settle();
  }

 private:
  uint64_t segments(const Record& r) const {
    return r.bytes == 0 ? (signals_ ? 1 : 0) : (r.bytes + segment_ - 1) / segment_;
  }

  // From (diagonal, at) on, stands on the next pair that exists.
  void settle() {
    for (;;) {
      for (; at_ < records_.size() && records_[at_].step <= diagonal_; ++at_) {
        if (diagonal_ - records_[at_].step < segments(records_[at_])) return;
      }
      ++diagonal_;
      while (first_ < records_.size() && records_[first_].step + segments(records_[first_]) <= diagonal_) ++first_;
      if (done()) return;
      diagonal_ = std::max<uint64_t>(diagonal_, records_[first_].step);
      at_ = first_;
    }
  }

  const std::vector<Record>& records_;
  const uint64_t segment_;
  const bool signals_;
  uint64_t diagonal_ = 0;
  size_t at_ = 0;
  size_t first_ = 0;  // all before it are finished
};

class Run {
 public:
  Run(Program& program, Port& port, uint64_t call, const std::byte* inp, std::byte* out, Deadline deadline,
      Clock::duration* waited, bool* touched)
      : program_(program),
        port_(port),
        call_(call),
        bases_{const_cast<std::byte*>(inp), out, program.scratch.data()},
        sends_(program.sends, program.segment, program.signals),
        receives_(program.receives, program.segment, program.signals),
        deadline_(deadline),
        wait_(port, deadline, waited),
        touched_(touched) {
    if (port.listens) ahead_.emplace(receives_);
    for (Protocol& protocol : program.protocols) {
      protocol.kind = Protocol::unknown;
      protocol.posted.clear();
    }
  }

  void finish() {
    while (!sends_.done() || !receives_.done()) {
      bool moved = false;
      while (!sends_.done() && send()) {  // first, as far as it goes: others wait for it
        moved = true;
        if (!receives_.done() && is_copy_of_own(receives_.record())) break;  // fills the time in which they read
      }
      if (!receives_.done() && receive()) moved = true;
      if (moved) {
        wait_.progressed();
      } else {
        wait_.idle(blocker_);
      }
    }
    for (size_t i = 0; i < program_.sends.size(); ++i) {  // what was viewed may change once we return
      if (program_.protocols[i].kind != Protocol::viewed) continue;
      const uint64_t last = program_.protocols[i].posted.size() / program_.sends[i].peers.size() - 1;
      while (!read(i, last)) wait_.idle(blocker_);
      wait_.progressed();
    }
  }

 private:
  std::byte* at(const Place& place) const { return bases_[place.buffer] + place.offset; }

  Label label(uint32_t mark, uint64_t segment) const { return {call_, static_cast<uint32_t>(mark + segment)}; }

  bool send() {
    const Send& s = sends_.record();
    const uint64_t segment = sends_.segment();
    if (s.after != nothing && !receives_.passed(s.after, segment)) return false;
    const uint64_t bytes = sends_.bytes();
    Protocol& view = protocol(sends_.index());
    if (view.kind == Protocol::put) {
      if (!put(s, bytes, nullptr)) return false;
      sends_.advance();
      return true;
    }
    if (view.kind == Protocol::viewed) {
      if (!port_.post_view(s.peers, at(s.from) + sends_.offset(), bytes, label(s.mark, segment))) {
        blocker_ = s.peers.front();
        return false;
      }
      FAILPOINT(viewed);
      for (int32_t peer : s.peers) view.posted.push_back(port_.posted(peer));
      sends_.advance();
      return true;
    }
    std::byte* slot = port_.reserve(s.peers, bytes);
    if (slot == nullptr) {
      blocker_ = s.peers.front();
      return false;
    }
    if (bytes != 0) std::memcpy(slot, at(s.from) + sends_.offset(), bytes);
    FAILPOINT(staged);
    port_.post(s.peers, bytes, label(s.mark, segment));
    FAILPOINT(published);
    sends_.advance();
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
    if (view.kind != Protocol::viewed) return nothing;
    const auto& peers = program_.sends[index].peers;
    for (size_t k = 0; k < peers.size(); ++k) {
      if (!port_.consumed(peers[k], view.posted[segment * peers.size() + k])) return peers[k];
    }
    return nothing;
  }

  bool receive() {
    const Receive& r = receives_.record();
    const uint64_t segment = receives_.segment(), bytes = receives_.bytes();
    for (int32_t send : r.before) {
      if (!sends_.passed(send, segment) || !read(send, segment)) return false;
    }
    if (ahead_) look_ahead();
    if (!gather(r, segment, bytes)) return false;
    FAILPOINT(collected);
    forward(r, segment, bytes);
    receives_.advance();
    if (ahead_) --ahead_by_;
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
    }
    return true;
  }

  // Folds the sources to where they go, and in the same pass to where the next send would take them.
  void forward(const Receive& r, uint64_t segment, uint64_t bytes) {
    const uint64_t offset = receives_.offset();
    const Send* next = fusible(segment) ? &sends_.record() : nullptr;
    const bool direct = next != nullptr && protocol(sends_.index()).kind == Protocol::put;
    std::byte* also = next == nullptr ? nullptr : port_.reserve(next->peers, direct ? 0 : bytes);
    if (direct && also != nullptr) also = port_.target(next->peers[0]) + next->from.offset + offset;
    apply(r, at(r.to) + offset, also, bytes);
    FAILPOINT(folded);
    for (const Source& source : r.sources) {
      if (source.peer != local) port_.release(source.peer);
    }
    FAILPOINT(released);
    if (also == nullptr) return;
    if (direct) {
      put(*next, bytes, also);
    } else {
      port_.post(next->peers, bytes, label(next->mark, segment));
    }
    sends_.advance();
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
    } else {
      found.kind = !s.staged && port_.reachable(s.peers, at(s.from), s.bytes) ? Protocol::viewed : Protocol::staged;
    }
    return found;
  }

  // Writes the current segment of `s` into the output of each peer, but for the one at `done`, where it is already.
  bool put(const Send& s, uint64_t bytes, const std::byte* done) {
    if (port_.reserve(s.peers, 0) == nullptr) {
      blocker_ = s.peers.front();
      return false;
    }
    const uint64_t offset = sends_.offset();
    for (int32_t peer : s.peers) {
      std::byte* to = port_.target(peer) + s.from.offset + offset;
      if (to != done) std::memcpy(to, at(s.from) + offset, bytes);
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
    return s.bytes == r.bytes && s.from.buffer == r.to.buffer && s.from.offset == r.to.offset &&
           protocol(sends_.index()).kind != Protocol::viewed;
  }

  void apply(const Receive& r, std::byte* to, std::byte* also, uint64_t bytes) {
    const size_t k = program_.sources.size();
    if (touched_ != nullptr && r.to.buffer == out) *touched_ = true;
    if (k == 1) {
      if (bytes != 0 && to != program_.sources[0]) std::memcpy(to, program_.sources[0], bytes);
    } else if (program_.custom) {
      program_.custom(to, program_.sources.data(), k, bytes / program_.itemsize);
      if (program_.slow && Clock::now() > deadline_) overrun();
    } else {
      program_.fold(to, also, program_.sources.data(), k, bytes / program_.itemsize, r.finished ? program_.divisor : 1);
      return;
    }
    if (also != nullptr && bytes != 0) std::memcpy(also, to, bytes);
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
  int blocker_ = -1;
};

}  // namespace

void measure(Program& program) {
  const auto reach = [](uint64_t& most, Buffer buffer, const Place& place, uint64_t bytes) {
    if (place.buffer == buffer) most = std::max(most, place.offset + bytes);
  };
  program.inp_bytes = program.out_bytes = 0;
  for (const Send& s : program.sends) {
    reach(program.inp_bytes, inp, s.from, s.bytes);
    reach(program.out_bytes, out, s.from, s.bytes);
  }
  for (const Receive& r : program.receives) {
    reach(program.out_bytes, out, r.to, r.bytes);
    for (const Source& source : r.sources) {
      if (source.peer == local) reach(program.inp_bytes, inp, source.place, r.bytes);
    }
  }
  std::map<int32_t, Flow> flows;
  const auto with = [&](int32_t peer) -> Flow& { return flows.try_emplace(peer, Flow{peer, 0, 0}).first->second; };
  for (const Send& s : program.sends) {
    for (int32_t peer : s.peers) with(peer).sent += s.bytes;
  }
  for (const Receive& r : program.receives) {
    for (const Source& source : r.sources) {
      if (source.peer != local) with(source.peer).received += r.bytes;
    }
  }
  program.flows.clear();
  for (const auto& [peer, flow] : flows) program.flows.push_back(flow);
}

void run(Program& program, Port& port, uint64_t call, const std::byte* inp, std::byte* out, Deadline deadline,
         Clock::duration* waited, bool* touched) {
  program.scratch.resize(program.tmp_bytes);
  program.protocols.resize(program.sends.size());
  Run(program, port, call, inp, out, deadline, waited, touched).finish();
}

}  // namespace hocket
