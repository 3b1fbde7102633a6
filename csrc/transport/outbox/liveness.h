// Which ranks are gone, and which one holds up the others.
//
// That a process is dead is told by its pidfd, whoever has inherited its descriptors; that it lives on as another
// program, by its socket. A rank that waits shows it: it counts up its *beat* and says for whom. So when a deadline
// passes, the rank to blame is found by going from each rank to the one that it waits for, until there is one that does
// not beat, being stopped or busy with something else, or that is not in this call. All who look find the same one.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "transport/outbox/layout.h"
#include "wait/wait.h"

namespace hocket {

class Liveness {
 public:
  // Descriptors are not owned; -1 at the own rank, and where there is none to look at. Who waits shows it several times
  // in `silence`. Who is stopped for a `life` is given up.
  Liveness(int rank, std::vector<Outbox*> boxes, std::vector<int> sockets, std::vector<int> pidfds,
           Clock::duration silence, Clock::duration life);

  // This rank waits for `peer` (-1: for any).
  void beat(int peer);
  // It is about to say why it waits no longer.
  void beat();
  // Throws Failure::peer_lost when a rank is gone that did not say that it would. Cheap: looks only now and then.
  // Returns whether it looked.
  bool look(Clock::time_point now);
  // `peer` has been seen to be gone. What it sent before still counts: only the second time this throws.
  void gone(int peer, const char* how);
  // Whom a wait in vain for `peer` is to be blamed on; `is_here` tells of a rank whether it is in the call that waits.
  int culprit(int peer, const std::function<bool(int)>& is_here);
  // Those whose processes have ended, as their descriptors tell now.
  Ranks dead();
  // Whether the process of a rank of this host is stopped: by a signal, not by a debugger.
  bool is_stopped(int peer);
  bool is_gone(int peer) const { return gone_[peer].load(std::memory_order_relaxed); }
  // Whether `peer` has not shown for a while that it waits.
  bool is_silent(int peer, Clock::time_point now);
  // The descriptors are about to be closed: they are not looked at any more.
  void disconnect();

 private:
  void listen(Clock::time_point now);
  bool silent(int peer, Clock::time_point now) const;
  int stopped_for_long(Clock::time_point now);
  int follow(int peer, Clock::time_point now, const std::function<bool(int)>& is_here) const;

  struct Pulse {  // of a rank, as seen from here
    uint64_t beat = 0;
    Clock::time_point since{};
    Clock::time_point stopped{};  // since when; where it is not, none
  };

  const int rank_, size_;
  const std::vector<Outbox*> boxes_;
  const Clock::duration silence_, life_;
  const std::string stopped_;                    // what is said of who was
  std::atomic<Clock::duration::rep> looked_{0};  // when the descriptors were last looked at
  std::vector<std::atomic<bool>> gone_;          // ranks that were seen to be gone once
  std::mutex mutex_;                             // of what follows: several threads of this rank may wait at once
  std::vector<int> sockets_, pidfds_;
  std::vector<Pulse> pulses_;
  Clock::time_point looked_for_stopped_{};
  bool any_stopped_ = false;  // of those that were looked at then
};

}  // namespace hocket
