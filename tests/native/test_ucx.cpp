// A pipe through UCX, both ends in this process: its two streams, who is woken, and how it ends. Of libucp there must
// be one, which HOCKET_UCX names.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>

#include "check.h"
#include "transport/ucx/pipe.h"

using namespace hocket;
using namespace hocket::testing;

namespace {

constexpr int skipped = 77;  // as CMakeLists.txt has it

std::shared_ptr<ucx::Context> context;

struct Pair {
  Pair() {
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0, "no sockets");
    for (int end = 0; end < 2; ++end) pipes[end] = std::make_unique<ucx::Pipe>(context, fds[end]);
    const bool tells = pipes[0]->connect(pipes[1]->address());
    check(tells == pipes[1]->connect(pipes[0]->address()), "the ends do not agree");
    const auto limit = watchdog();
    for (bool met = false; !met && check(Clock::now() < limit, "no greeting");) {
      const bool first = pipes[0]->greeted();  // both look around in each turn
      met = pipes[1]->greeted() && first;
    }
  }
  ~Pair() {
    for (auto& pipe : pipes) pipe->close();
    for (int fd : fds) close(fd);
  }
  int fds[2];
  std::unique_ptr<ucx::Pipe> pipes[2];
};

std::byte at(uint64_t position) { return std::byte(mix(position / 8, 11) >> position % 8 * 8); }

// Some parts of random lengths, one behind the other, of at most `most` bytes in all.
std::vector<iovec> parts_of(Bytes& memory, std::mt19937_64& random, uint64_t most) {
  std::vector<iovec> parts(1 + random() % 4);
  uint64_t begin = 0;
  for (iovec& part : parts) {
    const uint64_t bytes = std::min(random() % (uint64_t{1} << random() % 18), most - begin);
    part = {memory.data() + begin, bytes};
    begin += bytes;
  }
  return parts;
}

// Whoever has taken bytes needs their memory no more: here it is filled with nonsense at once.
void stream(ucx::Pipe& pipe, uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes memory(1 << 19);
  const auto limit = watchdog();
  for (uint64_t sent = 0; sent < bytes && check(Clock::now() < limit, "it takes no more");) {
    std::vector<iovec> parts = parts_of(memory, random, std::min<uint64_t>(bytes - sent, memory.size()));
    uint64_t all = 0;
    for (const iovec& part : parts) all += part.iov_len;
    for (uint64_t i = 0; i < all; ++i) memory[i] = at(sent + i);
    const ssize_t n = pipe.send(parts);
    if (!check(n >= 0 || errno == EAGAIN, "send: ", std::strerror(errno))) return;
    std::fill(memory.begin(), memory.begin() + static_cast<ptrdiff_t>(all), std::byte(0xee));
    if (n > 0) sent += static_cast<uint64_t>(n);
  }
  while (!pipe.flush() && check(Clock::now() < limit, "it does not get rid of it")) {
  }
}

void gather(ucx::Pipe& pipe, uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes memory(1 << 19);
  const auto limit = watchdog();
  for (uint64_t received = 0; received < bytes && check(Clock::now() < limit, "no more comes");) {
    std::vector<iovec> parts = parts_of(memory, random, std::min<uint64_t>(bytes - received, memory.size()));
    const ssize_t n = pipe.receive(parts);
    if (!check(n >= 0 || errno == EAGAIN || errno == EINTR, "receive: ", std::strerror(errno))) return;
    for (ssize_t i = 0; i < n; ++i, ++received) {
      if (memory[static_cast<size_t>(i)] != at(received)) {
        check(false, "byte ", received, " is another one");
        return;
      }
    }
  }
}

// Both ways at once; those who receive are faster, and see the bytes as they come.
void carries_bytes_in_order() {
  constexpr uint64_t bytes = 24 << 20;
  Pair pair;
  std::thread others[] = {
      std::thread([&] { stream(*pair.pipes[0], bytes, 1); }),
      std::thread([&] { gather(*pair.pipes[1], bytes, 2); }),
      std::thread([&] { stream(*pair.pipes[1], bytes, 3); }),
  };
  gather(*pair.pipes[0], bytes, 4);
  for (std::thread& other : others) other.join();
}

iovec word(char* text) { return {text, std::strlen(text)}; }

// Until nothing more can be done without the other end.
ssize_t receive(ucx::Pipe& pipe, char* to, size_t most) {
  iovec part{to, most};
  ssize_t n;
  do n = pipe.receive({&part, 1});
  while (n < 0 && errno == EINTR);
  return n;
}

// Nothing is there, and `sleeper` may sleep until there is.
void falls_asleep(ucx::Pipe& sleeper) {
  char found[9];
  while (sleeper.arm() != std::chrono::microseconds::max()) {
    check(receive(sleeper, found, sizeof found) < 0 && errno == EAGAIN, "something is there already");
  }
  pollfd one{sleeper.socket(), POLLIN, 0};
  check(poll(&one, 1, 0) == 0, "it does not sleep");
}

void is_woken(const ucx::Pipe& sleeper) {
  pollfd one{sleeper.socket(), POLLIN, 0};
  check(poll(&one, 1, 20000) == 1, "nobody woke the sleeper");
}

void wakes_who_sleeps() {
  Pair pair;
  char text[] = "a word", found[sizeof text];
  for (int turn = 0; turn < 200; ++turn) {
    ucx::Pipe& sleeper = *pair.pipes[turn % 2];
    falls_asleep(sleeper);
    std::thread other([&] {
      iovec part = word(text);
      check(pair.pipes[1 - turn % 2]->send({&part, 1}) == static_cast<ssize_t>(part.iov_len), "it was not taken");
    });
    is_woken(sleeper);
    other.join();
    check(receive(sleeper, found, sizeof found) == static_cast<ssize_t>(std::strlen(text)), "the word is not there");
    check(std::memcmp(found, text, std::strlen(text)) == 0, "another word");
  }
}

// What was sent before a farewell, or a death, is there; then there is the end, and who sleeps is woken for it.
void ends(bool with_farewell, bool while_asleep) {
  Pair pair;
  ucx::Pipe& left = *pair.pipes[1];
  char text[] = "the last words", found[sizeof text];
  iovec part = word(text);
  const auto length = static_cast<ssize_t>(part.iov_len);
  pair.pipes[0]->send({&part, 1});
  check(pair.pipes[0]->flush(), "they are not gone");
  const ssize_t first = while_asleep ? length : 3;
  check(receive(left, found, static_cast<size_t>(first)) == first, "they are not there");
  if (while_asleep) falls_asleep(left);
  if (with_farewell) {
    pair.pipes[0]->shut();
  } else {
    shutdown(pair.fds[0], SHUT_RDWR);  // as the kernel does it for the dead
  }
  if (while_asleep) is_woken(left);
  check(while_asleep || left.arm().count() == 0, "there is something, and nobody says so");
  check(while_asleep || receive(left, found, sizeof found) == length - first, "the rest is lost");
  check(receive(left, found, sizeof found) == 0, "no end");
}

// An end that was told of more, or fewer, bytes than came.
void takes_no_nonsense_for_an_end() {
  for (const uint64_t all : {uint64_t{5}, uint64_t{7}}) {
    Pair pair;
    char text[] = "sixsix", found[9];
    iovec part = word(text);
    pair.pipes[0]->send({&part, 1});
    check(receive(*pair.pipes[1], found, sizeof found) == 6, "they are not there");
    check(send(pair.fds[0], &all, sizeof all, 0) == sizeof all, "not said");
    shutdown(pair.fds[0], SHUT_WR);
    check(receive(*pair.pipes[1], found, sizeof found) == -1, "an end of ", all, " of 6 bytes");
    check(errno == (all < 6 ? EBADMSG : EAGAIN), "errno ", errno, " of ", all, " of 6 bytes");
  }
}

// What does not go out is not taken without end, and what was taken is not lost.
void takes_no_more_than_it_holds() {
  Pair pair;
  Bytes memory(1 << 20);
  uint64_t sent = 0;
  for (;;) {
    for (uint64_t i = 0; i < memory.size(); ++i) memory[i] = at(sent + i);
    iovec part{memory.data(), memory.size()};
    const ssize_t n = pair.pipes[0]->send({&part, 1});
    if (n < 0) break;
    sent += static_cast<uint64_t>(n);
    if (!check(sent < 256 << 20, "there is no end to what it takes")) return;
  }
  check(errno == EAGAIN, "send: ", std::strerror(errno));
  check(!pair.pipes[0]->flush(), "all is gone, and nobody took it");
  std::thread other([&] {
    while (!pair.pipes[0]->flush()) {
    }
  });
  gather(*pair.pipes[1], sent, 5);
  other.join();
}

}  // namespace

int main() {
  const char* const path = std::getenv("HOCKET_UCX");
  if (path == nullptr || *path == 0) {
    std::puts("HOCKET_UCX names no libucp: nothing was tested (make .venv/ucx installs one)");
    return skipped;
  }
  try {
    context = std::make_shared<ucx::Context>(path, "posix,sysv,cma,self");
    carries_bytes_in_order();
    wakes_who_sleeps();
    for (const bool while_asleep : {false, true}) {
      ends(true, while_asleep);
      ends(false, while_asleep);
    }
    takes_no_nonsense_for_an_end();
    takes_no_more_than_it_holds();
  } catch (const Refusal& refusal) {
    check(false, refusal.text);
  }
  return report();
}
