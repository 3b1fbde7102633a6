// A thread that keeps links alive while nobody waits for them: it tells the others now and then that this rank lives,
// takes what they say, and sends what a socket did not take at once. It never needs Python's lock, so a rank that only
// computes is not taken for dead; one that is stopped is.
#pragma once

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "transport/tcp/link.h"

namespace hocket::tcp {

class Keeper {
 public:
  // `news` is called when something came, and `look` now and then. The other ends are given up where nothing comes from
  // them for a `life`, and give up this one likewise: it beats several times in each.
  Keeper(std::vector<Link*> links, std::function<void()> news, std::function<void()> look, Clock::duration life);
  ~Keeper();
  // Ends the thread; in a forked child there is none. What else is asked of it may be asked for as long as it is there.
  void stop();
  // For how long this process did not run, the last time that this was long; it may have woken just now.
  Clock::duration absence() const;
  // Whether it has listened to all links just now.
  bool is_awake(Clock::time_point now) const;
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

 private:
  void keep();

  const std::vector<Link*> links_;
  const std::function<void()> news_, look_;
  const Clock::duration life_, between_beats_;
  const Clock::duration absence_;  // of this process, which was stopped, or had no core, that tells nothing of others
  const int born_, stop_;
  std::atomic<Clock::duration::rep> absent_{0};
  std::atomic<Clock::duration::rep> listened_;  // when it last had
  std::thread thread_;
};

// For how long a rank that leaves waits for what is on its way, and for the others: no longer than `patience` since
// something arrived, nor in all than `longest`.
struct Farewell {
  Clock::duration patience, longest;
};

// Sends what is left, tells that nothing more comes, and reads until the others have told it too: what is on its way is
// lost where a socket is closed over bytes that were not read. Who does not wait `for all` of them goes as soon as
// everything has arrived.
void part(const std::vector<Link*>& links, const Farewell& farewell, bool for_all = true);

}  // namespace hocket::tcp
