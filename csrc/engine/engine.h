// The engine walks one rank's share of a plan, bound to bytes. It knows nothing of collectives.
//
// A program is two lists, sends and receives, each in the order (step, index). A record's bytes are cut into segments
// of equal size, and both lists are executed in the order
//
//     (step + segment, step, index)
//
// each by its own cursor. Every rank uses this one global order, so both ends of a channel list its messages alike, and
// nothing is matched. And nothing deadlocks where a rank's slots have room for what it sends in one (step + segment,
// step): the least of these that is unfinished anywhere can always proceed (docs/decisions/0018). The cursors meet in
// two places only: a send waits for the receive that made its bytes (`after`), and a receive waits for the sends that
// still have to read what it overwrites (`before`). Where messages come from afar, a third one goes ahead of the
// receives and tells the port where copies go, so that they land there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/meter.h"
#include "engine/past_caches.h"
#include "engine/port.h"
#include "engine/sending.h"
#include "engine/trace.h"
#include "kernels/reduce.h"

namespace hocket {

enum Buffer : uint8_t { inp, out, tmp };
constexpr int32_t local = -1;    // a source that is this rank's own memory
constexpr int32_t nothing = -1;  // no record to wait for

struct Place {
  Buffer buffer;
  uint64_t offset;  // bytes
  bool operator==(const Place&) const = default;
};

// One message, staged once for all of `peers`. Its mark is a hash of the step and of the slot that it carries: both
// ends compute it from the plan and the reader compares, so that a slip of the projection cannot pass.
struct Send {
  uint32_t step;
  uint32_t mark;
  Place from;
  uint64_t bytes;
  std::vector<int32_t> peers;
  int32_t after;     // the receive that last wrote `from`, or read what a put overwrites, or nothing
  bool staged;       // overwritten in its own step, so that a view could not be awaited
  bool put = false;  // goes to the same place in the peers' output, which nobody but this rank reads or writes before
  int32_t home = nothing;  // the receive of what its one peer makes of it: that can come back in its slot
  bool copied = false;     // all who get it copy it, and fold nothing
};

struct Source {
  int32_t peer;   // or local
  uint32_t mark;  // of the message, when it comes from a peer
  Place place;    // when local
};

// to = sources[0] op sources[1] op ...; one source is a copy. A finished reduction is divided where the op is a mean.
struct Receive {
  uint32_t step;
  Place to;
  uint64_t bytes;
  std::vector<Source> sources;
  bool finished;
  std::vector<int32_t> before;  // the sends that read what this overwrites
  int32_t answer = nothing;     // the send of what this makes, back to where its one message came from
  bool passed_on = false;       // some send waits for it: found by `measure`,
  bool unread = false;          // as is whether what it makes stays, and nobody reads it, or what it overwrites;
  bool alone = false;           // and whether it only copies, to where nothing else is read by this rank or written
};

// How one send goes in one run, which is found at its first segment. Staged: copied into the slots. Viewed: read where
// it lies, in the arena. Offered: so, too, in memory of this process's own, which the kernel copies for the peers. Of
// both `posted` is, for each segment and peer, up to which message that peer must have read before it may change. Put:
// written to where it is to be. Lent: staged, and once the peer has read it, what it made of it lies in `slots`, one
// for each segment. Spared: an answer, which has gone that way.
struct Protocol {
  enum Kind { unknown, staged, viewed, offered, put, lent, spared } kind = unknown;
  bool is_read_there() const { return kind == viewed || kind == offered; }
  std::vector<uint64_t> posted;
  std::vector<const std::byte*> slots;
};

// A reduction in the caller's hands: to = sources[0] op ... op sources[k-1], `count` elements.
using CustomFold = std::function<void(void* to, const void* const* sources, size_t k, size_t count)>;

struct Program {
  std::vector<Send> sends;
  std::vector<Receive> receives;
  uint64_t segment;              // bytes
  uint64_t tmp_bytes;            // memory that the plan owns on this rank
  uint64_t itemsize;             // bytes of one element
  uint64_t divisor;              // what a finished reduction is divided by; 1: nothing
  bool signals;                  // whether messages of no bytes are sent all the same, as a barrier's are
  std::vector<int32_t> unheard;  // peers that send this rank nothing
  std::vector<int32_t> untold;   // peers that this rank sends nothing
  Kernels kernels;               // null where nothing is reduced or `custom` is set
  CustomFold custom;
  bool slow;                       // `custom` is a function of Python's, which may take longer than the call
  bool exposed;                    // peers put something into the output, if they can reach it
  uint64_t inp_bytes, out_bytes;   // of the caller's memory, as far as this program touches it
  uint64_t writers = 1;            // ranks that share this one's caches and receive as much
  unsigned ways = 1;               // in which long messages may go, of those of `Sending`: found by `measure`,
  Sending sending{};               // and which of them by its calls
  bool passes = false;             // something is long, and nothing comes home: found by `measure`, too
  bool reads_inp = false;          // this rank's own receives do, as are those that are alone
  uint64_t unread_bytes = 0;       // as is how much of what is copied is unread, with that of all who share the caches,
  uint64_t unread_sums = 0;        // and of sums, where they do not lie in the input,
  PastCaches past_caches{};        // which may go past them
  std::string text;                // what an error calls it
  std::shared_ptr<Meter> meter{};  // of its kind of calls, if anybody wants to know
  uint64_t bytes = 0;              // of the vector, which it counts
  std::vector<Flow> flows{};       // the same for peers
  std::shared_ptr<Trace> trace{};  // which its calls are kept in, if they are, and what they are called there
  uint32_t traced = 0;
  // What lasts from run to run only to save its allocation.
  std::vector<std::byte> scratch;    // tmp
  std::vector<Protocol> protocols;   // one per send
  std::vector<const void*> sources;  // of the receive that is being made
  std::vector<uint64_t> copied;      // bytes of each receive that are, of what is offered; empty until something is

  static constexpr uint64_t little = 4096;  // bytes
  // Whether this rank has little to move and to fold.
  bool is_brief() const { return std::max(inp_bytes, out_bytes) <= little; }
};

// Finds `inp_bytes`, `out_bytes`, `flows`, and of each receive what becomes of it, when the lists are complete.
void measure(Program& program);

// In how many of the ways of `Sending` calls of `program` go through `port`: 1 where there is nothing to choose.
unsigned ways(const Program& program, const Port& port);

// Runs `program` as call `call`, whose label all its messages carry. Throws Failure; then the output holds anything,
// and others may still read and write the caller's memory. What it waits is added to `waited`, if that is there, and
// `touched` is set before this rank itself writes the first byte of the output.
void run(Program& program, Port& port, uint64_t call, const std::byte* inp, std::byte* out, Deadline deadline,
         Clock::duration* waited = nullptr, bool* touched = nullptr);

}  // namespace hocket
