// What a program does to memory and between ranks, which is found once, before it runs.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace hocket {

namespace {

// Whether this sends all of a sum that the receive before it makes: one such message is made in the same pass.
bool is_sum(const Send& s, const Program& program) {
  if (s.after == nothing) return false;
  const Receive& r = program.receives[s.after];
  return r.sources.size() > 1 && s.bytes == r.bytes && s.from == r.to;
}

// Of the output, what is written there, once, and not read, but for a message that is made of it beside, of a sum. All
// that is read is taken for one piece, from the first byte to the last.
void find_unread(Program& program) {
  uint64_t begin = UINT64_MAX, end = 0;
  const auto reads = [&](const Place& place, uint64_t bytes) {
    if (place.buffer != out) return;
    begin = std::min(begin, place.offset);
    end = std::max(end, place.offset + bytes);
  };
  std::set<int32_t> made;  // the receives whose sum has gone to a message so
  for (const Send& s : program.sends) {
    if (!is_sum(s, program) || !made.insert(s.after).second) reads(s.from, s.bytes);
  }
  for (const Receive& r : program.receives) {
    for (const Source& source : r.sources) {
      if (source.peer == local) reads(source.place, r.bytes);
    }
  }
  program.unread_bytes = program.unread_sums = 0;
  for (Receive& r : program.receives) {
    const bool apart = r.to.offset >= end || r.to.offset + r.bytes <= begin;
    const bool is_made = r.sources.size() == 1 || (r.finished && !program.custom);
    r.unread = is_made && r.to.buffer == out && r.before.empty() && apart;
    if (r.unread) (r.sources.size() == 1 ? program.unread_bytes : program.unread_sums) += r.bytes * program.writers;
  }
}

// Which of the receives that are longer than a message only copy, to where no send is to be read before, and no other
// receive writes or finds what is this rank's own: these may run ahead of their turn. (What comes from afar is told
// where it may land pair by pair, as the cursors go: is_free_ahead in engine.cpp.)
void find_alone(Program& program) {
  struct Use {
    Place place;
    uint64_t end;
    Receive* by;
  };
  std::vector<Use> uses;
  program.reads_inp = false;
  for (Receive& r : program.receives) {
    r.alone = r.bytes > program.segment && r.before.empty() && r.sources.size() == 1 && r.sources[0].peer != local;
    if (r.bytes == 0) continue;
    uses.push_back({r.to, r.to.offset + r.bytes, &r});
    for (const Source& source : r.sources) {
      if (source.peer != local) continue;
      uses.push_back({source.place, source.place.offset + r.bytes, &r});
      program.reads_inp |= source.place.buffer == inp;
    }
  }
  std::ranges::sort(uses, {}, [](const Use& u) { return std::pair(u.place.buffer, u.place.offset); });
  const Use* longest =
      nullptr;  // of those before, the one that reaches farthest: if any of them meets the next, it does
  for (const Use& use : uses) {
    if (longest == nullptr || longest->place.buffer != use.place.buffer || longest->end <= use.place.offset) {
      longest = &use;
      continue;
    }
    use.by->alone = longest->by->alone = false;
    if (use.end > longest->end) longest = &use;
  }
}

// Between two ranks it is the same for both: what is sent is received, and what has a home is answered.
bool passes(const Program& program) {
  constexpr uint64_t least = 512;  // bytes of a message that it is worth anything for
  bool is_worth = false;
  for (const Send& s : program.sends) {
    if (s.home != nothing) return false;
    is_worth |= s.bytes > least;
  }
  for (const Receive& r : program.receives) {
    if (r.answer != nothing) return false;
    is_worth |= r.bytes > least && std::ranges::any_of(r.sources, [](const Source& s) { return s.peer != local; });
  }
  return is_worth;
}

}  // namespace

void measure(Program& program) {
  const auto reach = [](uint64_t& most, Buffer buffer, const Place& place, uint64_t bytes) {
    if (place.buffer == buffer) most = std::max(most, place.offset + bytes);
  };
  program.inp_bytes = program.out_bytes = 0;
  bool is_long = false, may_offer = false;  // something that is sent or received
  // Not what a function of the caller's folds: that may take long, or fail, and who has sent it need not wait for that.
  const bool sums = !program.custom;
  for (const Send& s : program.sends) {
    if (s.after != nothing) program.receives[s.after].passed_on = true;
    reach(program.inp_bytes, inp, s.from, s.bytes);
    reach(program.out_bytes, out, s.from, s.bytes);
    is_long |= (s.copied || sums) && s.bytes >= least_tried;
    may_offer |= s.copied && !s.staged && s.bytes >= least_tried;
  }
  for (const Receive& r : program.receives) {
    reach(program.out_bytes, out, r.to, r.bytes);
    for (const Source& source : r.sources) {
      is_long |= source.peer != local && (r.sources.size() == 1 || sums) && r.bytes >= least_tried;
      if (source.peer == local) reach(program.inp_bytes, inp, source.place, r.bytes);
    }
  }
  find_unread(program);
  find_alone(program);
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
  program.passes = passes(program);
  // Only where a rank's own time, until all that it has sent is read, is that of all who get something.
  const auto receives = [](const Flow& flow) { return flow.received != 0; };
  const bool mutual = std::ranges::all_of(program.flows, [&](const Flow& f) { return f.sent == 0 || receives(f); });
  const bool sends_to_all = program.untold.empty() && std::ranges::none_of(program.flows, receives);
  program.ways = may_offer && (mutual || sends_to_all) ? 1 + Sending::offered : is_long ? 1 + Sending::past_caches : 1;
}

}  // namespace hocket
