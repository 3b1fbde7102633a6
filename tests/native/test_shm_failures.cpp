// Shared memory where something goes wrong: wrong use, errors, and ranks that leave, hang or die. Threads are ranks,
// and in the end processes, of which one is killed.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "engine_cases.h"
#include "shm_world.h"

namespace {

using namespace hocket;
using namespace hocket::testing;

const Bytes kLittle = content(0, 0, 8);

void expect(const std::optional<Failure>& failure, const Failure& expected, const char* what, int rank) {
  const Failure none{Failure::internal, -2, "none"}, &f = failure ? *failure : none;
  check(f.kind == expected.kind && f.peer == expected.peer && f.text == expected.text && f.relayed == expected.relayed,
        what, ": rank ", rank, " fails with kind ", f.kind, " peer ", f.peer, f.relayed ? " relayed" : "", " \"",
        f.text, "\"");
}

// A mismatch with `peer` tells both calls, and nothing but their titles.
void expect_mismatch(const std::optional<Failure>& failure, int peer, const std::vector<std::string>& titles,
                     const char* what, int rank) {
  const Failure none{Failure::internal, -2, "none"}, &f = failure ? *failure : none;
  check(f.kind == Failure::mismatch && f.peer == peer && !f.relayed, what, ": rank ", rank, " fails with kind ", f.kind,
        " peer ", f.peer, " \"", f.text, "\"");
  for (const std::string& title : titles)
    check(f.text.find(title) != f.text.npos, what, ": no ", title, " in ", f.text);
  check(f.text.find("notes") == f.text.npos, what, ": notes in ", f.text);
}

// Waits for a message that never comes.
void wait_for(Port& port, int peer, Deadline deadline = watchdog()) {
  Wait wait(port, deadline);
  Message message;
  while (!port.peek(peer, message)) wait.idle(peer);
}

// ---- wrong use ------------------------------------------------------------------------------------------------------

constexpr uint64_t kSum = 7, kBarrier = 8;
const std::string kSumTitle = "all_reduce(sum)", kBarrierTitle = "barrier()";

void enter(Endpoint& memory, uint64_t fingerprint) {
  memory.describe(kSum, kSumTitle + "\nnotes that no error prints");
  memory.describe(kBarrier, kBarrierTitle);
  memory.enter(fingerprint);
}

// All ranks make another call than rank 1 does; whoever looks sees it.
void test_mismatch_of_calls() {
  for (const bool meets : {true, false}) {
    Host host(3);
    const auto failures = host.play([&](int rank, Sleeper& memory) {
      enter(memory, rank == 1 ? kBarrier : kSum);
      if (meets) return memory.meet(host.peers_of(rank), watchdog());
      wait_for(memory, (rank + 2) % 3);  // not the one that is wrong, for rank 0
    });
    for (int rank = 0; rank < 3; ++rank) {
      const bool wrong = rank == 1 && failures[1] && failures[1]->peer == 2;
      expect_mismatch(failures[rank], rank != 1 ? 1 : wrong ? 2 : 0, {kSumTitle, kBarrierTitle}, "calls", rank);
    }
  }
}

// Calls of one kind follow each other; only those of one number are compared.
void test_calls_apart() {
  Host host(2);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    for (uint64_t i = 1; i <= 2000; ++i) {
      memory.describe(i, "call " + std::to_string(i));
      check(memory.enter(i) == i && memory.number() == i, "wrong number");
      memory.meet(host.peers_of(rank), watchdog());
      check(memory.title() == "call " + std::to_string(i), "title ", memory.title());
    }
  });
  for (int rank = 0; rank < 2; ++rank) check(!failures[rank], "rank ", rank, " failed");
}

// A message of another call, and one that nobody can explain.
void test_mismatch_of_messages() {
  const std::vector<int32_t> to_1{1};
  for (const bool same : {true, false}) {
    Host host(2);
    enter(host[0], same ? kSum : kBarrier);
    enter(host[1], kSum);
    Case c{.plan = chain(2), .sizes = {2, 0}};
    std::vector<Program> programs = programs_of(c);
    std::vector<Memory> ranks = draw(c);
    const auto failures = host.play([&](int rank, Sleeper& memory) {
      if (rank == 0) return send(memory, to_1, kLittle, {5, 0});
      auto* words = reinterpret_cast<std::byte*>(ranks[1].out.data());
      run(programs[1], memory, 6, words, words, watchdog());
    });
    check(!failures[0], "the sender failed");
    if (same) {
      expect(failures[1],
             {Failure::internal, 0,
              "in all_reduce(sum) a message of call 5 with 8 bytes came where call 6 "
              "has one of 16"},
             "message", 1);
    } else {
      expect_mismatch(failures[1], 0, {kSumTitle, kBarrierTitle}, "message", 1);
    }
  }
}

// Of 64 texts each rank keeps the last; the rest of an error is told all the same.
void test_texts() {
  Host host(2);
  host[0].describe(1, "one");
  host[0].describe(1 + 64, "another");
  host[0].enter(1);
  host[1].enter(2);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    if (rank == 1) memory.meet(host.peers_of(1), watchdog());
  });
  expect_mismatch(failures[1], 0, {"(a call it no longer describes)"}, "texts", 1);
}

// Who was told less waits for the next call of one who was told more.
void test_learn() {
  Host host(3);
  const std::string text = "broadcast(root=0)\n3x4 float32\n" + std::string(3000, 'x');
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    for (uint64_t i = 1; i <= 100; ++i) {
      const std::string told = text + std::to_string(i);
      if (rank > 0) {
        check(memory.learn(0, "broadcast(root=0)", watchdog()) == told && memory.next(0, 5, watchdog()) == i,
              "learnt something else");
      }
      memory.describe(i, told);
      memory.enter(i);
      memory.meet(host.peers_of(rank), watchdog());
    }
  });
  for (int rank = 0; rank < 3; ++rank) check(!failures[rank], "learn: rank ", rank, " failed");
}

// Who waits to be told what it expects anyway is waited for no longer. Who expects something else is, until it enters.
void test_expects() {
  for (const uint64_t expected : {1, 7}) {
    Host host(2);
    std::atomic<bool> over{false};
    const auto failures = host.play([&](int rank, Sleeper& memory) {
      if (rank == 1) {
        memory.deep = true;
        check(memory.next(0, expected, watchdog()) == 1, "another call is next");
        while (!over) std::this_thread::yield();
        return static_cast<void>(memory.enter(1));
      }
      while (!host[1].asleep) std::this_thread::yield();
      memory.enter(1);
      memory.notify(1);
      bool met = true;
      try {
        memory.meet(std::array{1}, expected == 1 ? watchdog() : Clock::now() + std::chrono::milliseconds(50));
      } catch (const Failure& failure) {
        met = failure.kind != Failure::timeout;
      }
      over = true;
      check(met == (expected == 1), "what the other one expects is ", expected);
      if (!met) memory.meet(std::array{1}, watchdog());
    });
    for (int rank = 0; rank < 2; ++rank) check(!failures[rank], "expects: rank ", rank, " failed");
  }
}

// Two ranks that both wait to be told what they call would wait for ever.
void test_learn_of_each_other() {
  Host host(2);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.learn(1 - rank, "broadcast(root=" + std::to_string(1 - rank) + ")\nnotes", watchdog());
  });
  for (int rank = 0; rank < 2; ++rank) {
    expect_mismatch(failures[rank], 1 - rank, {"broadcast(root=0)", "broadcast(root=1)"}, "learn", rank);
  }
}

// ---- errors and ends ------------------------------------------------------------------------------------------------

void test_end() {
  Host host(4);
  const std::vector<int32_t> all{1, 2, 3};
  const std::string why(5000, 'y');
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.enter(1);
    if (rank == 1) return wait_for(memory, 0);
    if (rank == 2) {
      for (;;) send(memory, std::array{0}, kLittle, {1, 1});  // until nothing has room
    }
    if (rank == 3) return memory.meet(std::array{0, 1, 2}, watchdog()), wait_for(memory, 1);
    memory.end({Failure::custom_op, 3, why});
    memory.end({Failure::timeout, 1, "the first reason stays"});
    wait_for(memory, 3);  // its own error is an error to it too
  });
  for (int rank = 0; rank < 4; ++rank) {
    expect(failures[rank], {Failure::custom_op, 3, why.substr(0, 2047), true}, "end", rank);
  }
}

// What was sent before a rank went still counts.
void test_leave(bool in_peace) {
  Host host(3);
  std::atomic<bool> is_gone = false;
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    if (rank == 2) return;
    if (rank == 0) {
      for (uint32_t i = 0; i < 50; ++i) send(memory, std::array{1}, kLittle, {1, i});
      if (in_peace) memory.leave();
      host.links.hang_up(0);
      is_gone = true;
      return;
    }
    while (!is_gone) std::this_thread::yield();
    for (uint32_t i = 0; i < 50; ++i) receive(memory, 0, kLittle, {1, i});
    wait_for(memory, 0);
  });
  expect(failures[1], {Failure::peer_lost, 0, in_peace ? "left" : "died"}, "leave", 1);
}

// A death is everybody's business; a departure only theirs who still wait for the one that went.
void test_bystander() {
  Host host(3);
  const std::vector<int32_t> to_1{1};
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    if (rank == 2) return memory.leave(), host.links.hang_up(2);
    if (rank == 1) return receive(memory, 0, kLittle, {1, 1});
    while (host[1].sleeps < 8) std::this_thread::yield();  // through several looks around
    send(memory, to_1, kLittle, {1, 1});
  });
  check(!failures[1], "a departure disturbed who did not wait for it");

  Host other(3);
  const auto lost = other.play([&](int rank, Sleeper& memory) {
    if (rank == 2) return other.links.hang_up(2);
    wait_for(memory, 1 - rank);
  });
  for (int rank = 0; rank < 2; ++rank) expect(lost[rank], {Failure::peer_lost, 2, "died"}, "bystander", rank);
}

void test_timeouts() {
  Host host(2);
  const std::vector<int32_t> to_1{1};
  const Bytes half = content(0, 1, kSlots / 2);
  const auto soon = [] { return Clock::now() + std::chrono::milliseconds(3); };
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.enter(1);
    if (rank == 1) return wait_for(memory, 0, soon());
    Wait wait(memory, soon());
    while (true) try_send(memory, to_1, half, {1, 1}) ? wait.progressed() : wait.idle(1);
  });
  check(failures[0] && failures[0]->kind == Failure::timeout && failures[0]->peer == 1, "the sender waits for ever");
}

// Three ranks wait, each for the next one, and in the end for a fourth that does nothing: all blame that one.
void test_blame() {
  Host host(4);
  const Deadline end = Clock::now() + std::chrono::milliseconds(700);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    if (rank == 2) return;
    memory.enter(1);
    wait_for(memory, (rank + 3) % 4, end);
  });
  for (const int rank : {0, 1, 3}) expect(failures[rank], {Failure::timeout, 2, ""}, "blame", rank);
}

// A rank that waits for something else, and beats, is to blame as well: it is not in this call.
void test_blame_of_one_that_is_elsewhere() {
  Host host(3);
  const Deadline end = Clock::now() + std::chrono::milliseconds(500);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    if (rank != 1) memory.enter(1);
    wait_for(memory, rank == 0 ? 1 : 0, rank == 1 ? end + std::chrono::seconds(1) : end);  // 2 waits for 0, 0 for 1
  });
  for (const int rank : {0, 2}) expect(failures[rank], {Failure::timeout, 1, ""}, "blame elsewhere", rank);
}

// Once a group is over nothing is completed any more; and all know that what one rank has completed is not all's.
void test_completed_by_one() {
  Host host(3);
  std::atomic<bool> over = false;
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    for (const uint64_t call : {1, 2}) {
      memory.enter(1);
      if (call == 2 && rank == 1) {
        while (!over) std::this_thread::yield();
      }
      if (call == 1 || rank != 2) memory.meet(host.peers_of(rank), watchdog());
      if (call == 2 && rank == 0) {
        memory.end({Failure::custom_op, 0, "why"});
        over = true;
        return;
      }
    }
    wait_for(memory, 0);
  });
  check(!failures[0], "rank 0 failed");
  for (int rank = 0; rank < 3; ++rank) {
    if (rank != 0) expect(failures[rank], {Failure::custom_op, 0, "why", true}, "after a completed call", rank);
    const Settlement::Outcome outcome = host[rank].outcome();
    check(outcome.completed == 1 && outcome.reached == 2 && outcome.lost.none() && outcome.failure.text == "why",
          "rank ", rank, " takes ", outcome.completed, " and ", outcome.reached, " for completed");
  }
}

// Ranks that find several reasons at the same time settle on one, who is not in a call, too.
void test_one_reason() {
  for (int turn = 0; turn < 200; ++turn) {
    Host host(4);
    host.play([&](int rank, Sleeper& memory) {
      if (rank == 3) return;
      for (uint64_t i = 0; i < mix(kSeed, turn, rank) % 64; ++i) std::this_thread::yield();
      memory.end({Failure::custom_op, rank, "found by " + std::to_string(rank)});
    });
    const std::string text = host[3].outcome().failure.text;
    check(text.starts_with("found by "), "no reason: ", text);
    for (int rank = 0; rank < 3; ++rank) check(host[rank].outcome().failure.text == text, "not one reason: ", text);
  }
}

// A call that a rank has given up ends well for nobody, even if all its messages have come.
void test_given_up() {
  Host host(2);
  std::atomic<bool> given_up = false;
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.enter(1);
    if (rank == 0) {
      send(memory, std::array{1}, kLittle, {1, 1});
      memory.end({Failure::timeout, 1, "too late"});
      given_up = true;
      return;
    }
    while (!given_up) std::this_thread::yield();
    receive(memory, 0, kLittle, {1, 1});
    memory.meet(host.peers_of(1), watchdog());
  });
  expect(failures[1], {Failure::timeout, 1, "too late", true}, "given up", 1);
}

// A rank that is closed by another of its threads ends its waits; its peers hear nothing of that yet.
void test_close() {
  Host host(2);
  const auto failures = host.play([&](int rank, Sleeper& memory) {
    memory.deep = true;
    if (rank == 0) return wait_for(memory, 1);
    while (!host[0].asleep) std::this_thread::yield();
    host[0].close();
  });
  expect(failures[0], {Failure::closed, 0, ""}, "close", 0);
  check(!failures[1], "the peer of one that closes failed");
}

// Signals are looked for while a wait lasts, and may end it.
void test_signals() {
  struct Interrupt {};
  Links links(2);
  int looks = 0;
  const auto memory = links.open(0, [&] {
    if (++looks == 3) throw Interrupt();
  });
  bool interrupted = false;
  try {
    wait_for(*memory, 1);
  } catch (const Interrupt&) {
    interrupted = true;
  }
  check(interrupted && memory->announce() == 0, "no interrupt");
}

void test_small_file() {
  const int fd = memfd_create("hocket-test", MFD_CLOEXEC);
  if (ftruncate(fd, 4096) != 0) std::abort();
  std::string text;
  try {
    Endpoint memory(0, {fd}, {-1}, {-1}, {}, kSlots, kArena, {}, 1);
  } catch (const Failure& failure) {
    text = failure.text;
  }
  check(text.find("smaller") != std::string::npos, "a file too small was mapped");
  close(fd);
}

// Whatever a descriptor is overwritten with, its reader gets a message out of memory that is there, or an internal
// failure.
void test_overwritten() {
  int refused = 0;
  [[maybe_unused]] volatile std::byte read;  // where memory is not there, that is what ends this test
  for (const int size : {2, 5}) {
    for (uint32_t kind = 0; kind < 20; ++kind) {
      for (const uint64_t offset : {uint64_t{0}, kArena * size, uint64_t{1} << 28, ~uint64_t{0} / 3}) {
        for (int from = 0; from < size - 1; ++from) {
          if (kind == Descriptor::offered || kind == Descriptor::offered_whole) continue;  // the kernel looks there
          Host host(size);
          const int32_t to[] = {size - 1};
          send(host[from], to, content(from, 1, 100), {1, 1});
          for (auto& [key, mapped] : mappings) {
            Descriptor& d = static_cast<Outbox*>(mapped.data)->descriptors(size, size - 1)[0];
            if (d.turn.load() == 0) continue;
            d.kind = kind;
            d.offset = offset;
          }
          Message message;
          try {
            check(host[size - 1].peek(from, message), "nothing is there");
            for (uint64_t i = 0; i < message.bytes; ++i) read = message.data[i];
          } catch (const Failure& failure) {
            check(failure.kind == Failure::internal, "it is told otherwise");
            ++refused;
          }
        }
      }
    }
  }
  check(refused > 100, "only ", refused, " were refused");
}

// ---- processes ------------------------------------------------------------------------------------------------------

// One child per rank. What it tells comes through a pipe; it stays until its standard input is closed.
class Children {
 public:
  Children(int size, const std::function<std::string(int rank, Endpoint&)>& part) : links_(size) {
    if (pipe(stay_) != 0) std::abort();
    for (int rank = 0; rank < size; ++rank) {
      int tell[2];
      if (pipe(tell) != 0) std::abort();
      pids_.push_back(fork());
      if (pids_.back() == 0) live(rank, tell[1], part);
      close(tell[1]);
      tells_.push_back(tell[0]);
    }
    for (int rank = 0; rank < size; ++rank) links_.hang_up(rank);
    close(stay_[0]);
  }

  pid_t pid(int rank) const { return pids_[rank]; }

  // All that the child says, up to the first NUL: nothing if it died.
  std::string hear(int rank) const {
    std::string all;
    for (char c; read(tells_[rank], &c, 1) == 1 && c != 0;) all += c;
    return all;
  }

  ~Children() {
    close(stay_[1]);
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      waitpid(pids_[rank], nullptr, 0);
      close(tells_[rank]);
    }
  }

 private:
  [[noreturn]] void live(int rank, int tell, const std::function<std::string(int, Endpoint&)>& part) {
    close(stay_[1]);
    for (int peer = 0; peer < links_.size(); ++peer) {
      if (peer != rank) links_.hang_up(peer);
    }
    const auto memory = links_.open(rank);
    std::string told;
    try {
      told = part(rank, *memory);
    } catch (const Failure& f) {
      memory->end(f);
      told = std::to_string(f.kind) + " " + std::to_string(f.peer) + " " + f.text;
    }
    char c;
    const bool done = write(tell, told.c_str(), told.size() + 1) > 0 && read(stay_[0], &c, 1) == 0;
    _exit(done ? 0 : 1);
  }

  Links links_;
  int stay_[2];
  std::vector<pid_t> pids_;
  std::vector<int> tells_;
};

// As in test_shm.cpp, but each rank in a process of its own, which tells its result.
std::string all_reduce(const Case& c, int rank, Endpoint& memory, int calls) {
  Program program = std::move(programs_of(c)[rank]);
  Memory m = draw(c)[rank];
  for (int i = 0; i != calls; ++i) {
    const uint64_t number = memory.enter(kSum);
    run(program, memory, number, reinterpret_cast<const std::byte*>(m.inp.data()),
        reinterpret_cast<std::byte*>(m.out.data()), watchdog());
  }
  std::string told;
  for (uint64_t word : m.out) told += std::to_string(word) + " ";
  return told;
}

void test_processes() {
  for (const auto make : {ring, two_shot, one_shot}) {
    Case c{.plan = make(4), .sizes = Sizes(make(4).chunks, 61), .segments = 3, .weather = {.seed = kSeed}};
    const Children children(4, [&](int rank, Endpoint& memory) { return all_reduce(c, rank, memory, 200); });
    const std::vector<Memory> right = expected(c);
    for (int rank = 0; rank < 4; ++rank) {
      std::string told;
      for (uint64_t word : right[rank].out) told += std::to_string(word) + " ";
      check(children.hear(rank) == told, c, "process ", rank, " has the wrong result");
    }
  }
}

// Killed in the middle of something, at another time in each turn.
void test_killed() {
  for (int turn = 0; turn < 6; ++turn) {
    Case c{.plan = ring(4), .sizes = Sizes(4, 100), .segments = 3, .weather = {.seed = kSeed}};
    const int victim = turn % 4;
    const Children children(4, [&](int rank, Endpoint& memory) { return all_reduce(c, rank, memory, -1); });
    for (uint64_t i = 0; i < mix(kSeed, turn) % 2000; ++i) std::this_thread::yield();
    kill(children.pid(victim), SIGKILL);
    const std::string lost = std::to_string(Failure::peer_lost) + " " + std::to_string(victim) + " died";
    for (int rank = 0; rank < 4; ++rank) {
      const std::string told = children.hear(rank);
      check(told == (rank == victim ? "" : lost), "after a kill of ", victim, " rank ", rank, " tells \"", told, "\"");
    }
  }
}

}  // namespace

int main() {
  alarm(300);  // who sleeps for ever ends here
  std::printf("seeds from %llu\n", static_cast<unsigned long long>(kSeed));
  std::fflush(stdout);
  test_processes();
  test_killed();
  test_mismatch_of_calls();
  test_calls_apart();
  test_mismatch_of_messages();
  test_texts();
  test_learn();
  test_expects();
  test_learn_of_each_other();
  test_end();
  test_leave(true);
  test_leave(false);
  test_bystander();
  test_timeouts();
  test_blame();
  test_blame_of_one_that_is_elsewhere();
  test_completed_by_one();
  test_one_reason();
  test_given_up();
  test_close();
  test_signals();
  test_small_file();
  test_overwritten();
  return report();
}
