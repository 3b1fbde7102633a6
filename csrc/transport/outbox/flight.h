// What others learn of a rank from its outbox: what it is in, and what it did last. They read a copy, in which anything
// may be garbage, and believe nothing that does not fit together.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/outbox/layout.h"

namespace hocket {

// Times are those of the clock of the host, in nanoseconds; 0: unknown, or not yet.
struct Flight {
  struct Call {
    uint64_t number, fingerprint;
    std::string title;
    int64_t entered, left;
    bool failed;
    int waited_for;
    std::string place;
  };
  struct Wait {
    std::string title;
    int64_t begun, ended;
    std::string place;
  };

  uint64_t key;  // of the group
  int rank, pid;
  std::string host;
  int64_t formed;
  std::vector<int> pids;  // of all ranks; 0: on another host
  bool left;
  std::string reason;  // why it goes no further; empty: it does
  int waits_for;
  std::string doing;        // what it waits in, if it has told,
  int64_t since;            // since when
  std::vector<Call> calls;  // the oldest first, as the waits
  std::vector<Wait> waits;
};

// Of an outbox that is mapped, and written at this very time.
std::optional<Flight> read_flight(const Outbox& box, int size);
// Of any file, which is read and not mapped, so that it may be cut meanwhile. Nothing where it is no outbox, or not
// yet. Throws Refusal where it is that of another version.
std::optional<Flight> read_flight(int fd);

}  // namespace hocket
