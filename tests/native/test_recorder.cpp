// The flight recorder: what a reader learns of a rank, while that goes on, of the dead, and of garbage.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "shm_world.h"
#include "transport/outbox/flight.h"

using namespace hocket;
using namespace hocket::testing;

namespace {

constexpr uint64_t kKept = Recording::calls_kept;

std::string title(uint64_t kind) { return "all_reduce(float32[" + std::to_string(kind) + "], op='sum')"; }

void sign(Host& host) {
  for (int rank = 0; rank < host.size(); ++rank) {
    host[rank].sign(42, "here", std::vector<int32_t>(host.size(), static_cast<int32_t>(getpid())));
  }
}

// One whole call without data, as the engine makes it.
void call(Endpoint& rank, uint64_t kind, Peers peers) {
  rank.describe(kind, title(kind) + "\nand more");
  rank.enter(kind);
  rank.meet(peers, watchdog());
}

void the_last_calls_are_kept() {
  Host host(2);
  check(!host[0].flight(1), "a rank that has not signed is read");
  sign(host);
  const uint64_t calls = 2 * kKept + 100;
  host.play([&](int rank, Endpoint& endpoint) {
    const std::vector<int32_t> peers = host.peers_of(rank);
    for (uint64_t i = 1; i <= calls; ++i) call(endpoint, 1 + i % 7, peers);
  });
  for (int by = 0; by < 2; ++by) {
    const std::optional<Flight> flight = host[by].flight(1 - by);
    if (!check(flight.has_value(), "rank ", 1 - by, " cannot be read")) continue;
    check(flight->key == 42 && flight->rank == 1 - by && flight->host == "here" && flight->pids.size() == 2, "header");
    check(flight->calls.size() == kKept, flight->calls.size(), " calls are kept");
    int64_t before = flight->formed;
    for (uint64_t i = 0; i < flight->calls.size(); ++i) {
      const Flight::Call& c = flight->calls[i];
      check(c.number == calls - kKept + 1 + i && c.title == title(1 + c.number % 7), "call ", c.number, ": ", c.title);
      check(before <= c.entered && c.entered <= c.left && !c.failed, "the times of call ", c.number);
      before = c.entered;
    }
  }
}

// More kinds than there is room for: of what is still known none is called by another's name.
void titles_are_those_of_their_calls() {
  Host host(1);
  sign(host);
  std::mt19937_64 random(7);
  std::vector<uint64_t> kinds;
  for (int i = 0; i < 5000; ++i) {
    kinds.push_back(1 + random() % 700 * 977);
    call(host[0], kinds.back(), {});
  }
  uint64_t named = 0;
  const std::optional<Flight> flight = host[0].flight(0);
  for (const Flight::Call& c : flight->calls) {
    named += !c.title.empty();
    check(c.title.empty() || c.title == title(kinds[c.number - 1]), "call ", c.number, " is called ", c.title);
  }
  check(named > kKept / 2 && flight->calls.back().title == title(kinds.back()), named, " have names");
}

void a_call_that_failed_and_one_that_lasts() {
  Host host(2);
  sign(host);
  host.play([&](int rank, Endpoint& endpoint) { call(endpoint, 5, host.peers_of(rank)); });
  host[0].describe(6, title(6));
  host[0].enter(6);
  host[0].report(&host, 2, title(6) + " (call 2)", " at train.py:40", Clock::now());
  std::optional<Flight> flight = host[1].flight(0);
  check(flight->calls.back().number == 2 && flight->calls.back().left == 0, "a call lasts until it ends");
  check(flight->calls.back().place == " at train.py:40", "the place is ", flight->calls.back().place);
  check(flight->doing == title(6) + " (call 2) at train.py:40", "it is in ", flight->doing);
  try {
    host[0].meet(host.peers_of(0), Clock::now());
    check(false, "a call was met that nobody else entered");
  } catch (const Failure&) {
    host[0].fence(nullptr, 0);
  }
  host[0].retract(&host);
  flight = host[1].flight(0);
  const Flight::Call& last = flight->calls.back();
  check(last.failed && last.left >= last.entered && last.waited_for == 1, "failed: waited for ", last.waited_for);
  check(!flight->calls.front().failed && flight->waits.empty() && flight->doing.empty(), "the call before it");
}

// A wait outside of calls; more places and waits than are kept.
void waits_and_places() {
  Host host(2);
  sign(host);
  int which[200];
  const auto since = Clock::now();
  for (int i = 0; i < 200; ++i) {
    host[0].report(&which[i], 0, "recv(src=" + std::to_string(i) + ")", " at a.py:" + std::to_string(i % 90), since);
    if (i != 199) host[0].retract(&which[i]);
  }
  const std::optional<Flight> flight = host[1].flight(0);
  check(flight->waits.size() == Recording::waits_kept, flight->waits.size(), " waits are kept");
  for (size_t i = 0; i < flight->waits.size(); ++i) {
    const Flight::Wait& w = flight->waits[i];
    const size_t number = 200 - flight->waits.size() + i;
    check(w.title == "recv(src=" + std::to_string(number) + ")", "wait ", number, " is ", w.title);
    check(w.place == " at a.py:" + std::to_string(number % 90), "wait ", number, " is", w.place);
    check((w.ended == 0) == (number == 199), "wait ", number, " ended at ", w.ended);
  }
  const std::string letters = std::string(223, 'x') + "\xc3\xa4\xc3\xa4";
  host[0].report(&which[0], 0, letters + letters, "", since);
  check(host[1].flight(0)->waits.back().title.size() < 224, "a long text is not cut");
}

// What is read while it is written is true, or left out.
void a_reader_beside_a_writer() {
  Host host(1);
  sign(host);
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !ends; ++i) call(host[0], 1 + i % 31, {});
  });
  uint64_t read = 0;
  for (int turn = 0; turn < 200; ++turn) {
    const std::optional<Flight> flight = host[0].flight(0);
    for (const Flight::Call& c : flight->calls) {
      check(c.title == title(1 + c.number % 31), "call ", c.number, " is called ", c.title);
      check(c.left == 0 || c.left >= c.entered, "call ", c.number, " left before it was entered");
    }
    read += flight->calls.size();
  }
  ends = true;
  writer.join();
  check(read > 0, "nothing was read");
}

// A process that dies in the middle of a call leaves its record to who has its outbox.
void the_dead_are_read() {
  Links links(2);
  const pid_t child = fork();
  if (child == 0) {
    const auto rank = links.open(1);
    rank->sign(42, "here", {0, static_cast<int32_t>(getpid())});
    rank->describe(9, title(9));
    rank->enter(9);
    kill(getpid(), SIGKILL);
  }
  int status;
  check(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "the child lives");
  const auto survivor = links.open(0);
  const std::optional<Flight> flight = survivor->flight(1);
  check(flight && flight->pid == child && flight->calls.size() == 1, "the dead one's record");
  check(flight && flight->calls[0].title == title(9) && flight->calls[0].left == 0, "the dead one's call");
}

// In a child of a rank's process nothing is written: the outbox is the parent's.
void a_child_does_not_write() {
  Host host(1);
  sign(host);
  call(host[0], 3, {});
  host[0].enter(3);
  const pid_t child = fork();
  if (child == 0) {
    host[0].fence(nullptr, 0);
    host[0].report(&host, 2, "of the child", " at child.py:1", Clock::now());
    _exit(0);
  }
  int status;
  check(waitpid(child, &status, 0) == child && status == 0, "the child failed");
  const std::optional<Flight> flight = host[0].flight(0);
  check(!flight->calls.back().failed && flight->calls.back().place.empty(), "a child wrote");
}

// Files of that kind of which nothing is true. Whatever is read must make sense as far as types go, and end.
void garbage_is_borne() {
  constexpr uint64_t bytes = sizeof(Outbox) + 4 * sizeof(Outbox::Count);
  std::mt19937_64 random(11);
  std::vector<uint64_t> words(bytes / 8);
  for (int turn = 0; turn < 60; ++turn) {
    const int fd = memfd_create("hocket-test", MFD_CLOEXEC);
    for (uint64_t& w : words) w = turn % 3 == 0 ? random() : turn % 3 == 1 ? ~uint64_t{0} : random() % 2048;
    auto& header = *reinterpret_cast<Recording::Header*>(words.data());
    if (turn > 2) header.magic = Recording::magic;
    if (turn > 5) {
      header.layout = Recording::layout;
      header.bytes = sizeof(Outbox);
    }
    if (turn > 9) {
      header.size = turn % 2 == 0 ? 4 : 1 << 30;
      header.rank = turn % 5;
    }
    check(write(fd, words.data(), bytes) == static_cast<ssize_t>(bytes), "the file is short");
    if (turn % 7 == 6) check(ftruncate(fd, static_cast<off_t>(random() % bytes)) == 0, "the file cannot be cut");
    try {
      const std::optional<Flight> flight = read_flight(fd);
      if (flight) check(flight->pids.size() == 4 && flight->calls.size() <= kKept, "turn ", turn, ": too much");
      check(!flight || (turn > 9 && turn % 7 != 6), "turn ", turn, ": no outbox is read");
    } catch (const Refusal& refusal) {
      check(turn > 2 && refusal.text.find("another version") != std::string::npos, "turn ", turn, ": ", refusal.text);
    }
    close(fd);
  }
  int pipes[2];
  check(pipe(pipes) == 0 && !read_flight(pipes[0]), "a pipe is read");
  close(pipes[0]);
  close(pipes[1]);
  check(!read_flight(-1), "nothing is read");
}

}  // namespace

int main() {
  the_last_calls_are_kept();
  titles_are_those_of_their_calls();
  a_call_that_failed_and_one_that_lasts();
  waits_and_places();
  a_reader_beside_a_writer();
  the_dead_are_read();
  a_child_does_not_write();
  garbage_is_borne();
  return report();
}
