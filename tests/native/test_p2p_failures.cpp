// The mailbox when something goes wrong: mismatches, deadlines, and memory that was overwritten.
#include <stdexcept>

#include "p2p_world.h"

namespace {

Failure failure_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Failure& failure) {
    return failure;
  }
  return {Failure::Kind(-1), -1, "nothing failed"};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void mismatches() {
  World world(2);
  for (const bool early : {true, false}) {
    for (const uint64_t bytes : {16, 300000}) {
      Bytes sent = content(bytes, 1), other_size(bytes + 4), other_meta(bytes);
      Ticket first, second;
      const auto post = [&] {
        first = receive(world[1], 0, 1, other_size, "int32(4,)");
        second = receive(world[1], 0, 1, other_meta, "int32(4,)");
      };
      if (early) post();
      send(world[0], 1, 1, sent, "int32(4,)");
      send(world[0], 1, 1, sent, "float32(4,)");
      if (!early) world.progress(20);
      if (!early) post();
      world.progress(20);
      for (const Ticket& ticket : {first, second}) {
        const Failure failure = failure_of([&] { world[1].wait(ticket, kNever); });
        check(failure.kind == Failure::mismatch && failure.peer == 0 && contains(failure.text, "int32(4,)"));
        check(contains(failure.text, ticket == first ? std::to_string(bytes + 4) : "float32(4,)"));
      }
      check(other_size == Bytes(bytes + 4) && other_meta == Bytes(bytes));
      Bytes next(bytes);
      send(world[0], 1, 1, sent);
      const Ticket after = receive(world[1], 0, 1, next);
      world.progress(20);
      check(world[1].done(after) && next == sent);
    }
  }
}

void late_receive_is_never_written() {
  World world(2);
  Bytes data(1000), again(1000);
  const Ticket ticket = receive(world[1], 0, 1, data);
  world.waiters[1].expired = true;
  check(failure_of([&] { world[1].wait(ticket, kNever); }).kind == Failure::timeout);
  world.waiters[1].expired = false;
  send(world[0], 1, 1, content(1000, 1));
  world.progress();
  check(data == Bytes(1000));
  check(failure_of([&] { world[1].wait(ticket, kNever); }).kind == Failure::timeout);  // and stays so
  check(world[1].done(receive(world[1], 0, 1, again)) && again == content(1000, 1));
}

void late_in_the_middle_of_a_receive() {
  World world(2);
  const Bytes large = content(5000000, 1);
  auto data = std::make_unique<Bytes>(large.size());
  const Ticket sent = send(world[0], 1, 1, large), ticket = receive(world[1], 0, 1, *data);
  world.progress(1);
  world.waiters[1].expired = true;
  check(failure_of([&] { world[1].wait(ticket, Deadline::min()); }).kind == Failure::timeout);
  data.reset();  // a sanitizer sees whoever writes it now
  world.progress(50);
  check(world[0].done(sent));
  check(failure_of([&] { world[1].wait(ticket, kNever); }).kind == Failure::timeout);  // and stays so
  Bytes next(10);
  send(world[0], 1, 1, content(10, 2));
  check(world[1].done(receive(world[1], 0, 1, next)) && next == content(10, 2));
}

void late_send_that_had_not_begun() {
  World world(2);
  const Bytes large = content(5000000, 1), small = content(10, 2);
  const Ticket first = send(world[0], 1, 1, large), second = send(world[0], 1, 2, small),
               third = send(world[0], 1, 3, small);
  world.waiters[0].expired = true;
  check(failure_of([&] { world[0].wait(second, kNever); }).kind == Failure::timeout);
  world.progress(50);
  check(world[0].done(first) && world[0].done(third));
  check(world[1].probe(0, 1) && !world[1].probe(0, 2) && world[1].probe(0, 3));
}

void late_in_the_middle_of_a_send(bool half_there, bool known) {
  World world(3);
  auto large = std::make_unique<Bytes>(content(5000000, 1));
  const Ticket begun = send(world[0], 1, 1, *large), behind = send(world[0], 1, 3, *large);
  if (half_there) world[1].progress();
  world.waiters[0].expired = true;
  check(failure_of([&] { world[0].wait(begun, kNever); }).kind == Failure::timeout);
  world.waiters[0].expired = false;
  large.reset();
  check(failure_of([&] { world[0].wait(behind, kNever); }).kind == Failure::timeout);
  const Bytes small = content(10, 1);
  check(contains(failure_of([&] { world[0].wait(send(world[0], 1, 4, small), kNever); }).text, "given up"));

  if (known) world[1].progress();
  Bytes data(5000000), other(10);
  const Ticket half = receive(world[1], 0, 1, data), never = receive(world[1], 0, 4, other);
  for (const Ticket& ticket : {half, never, receive(world[1], 0, 5, other)}) {
    const Failure failure = failure_of([&] { world[1].wait(ticket, kNever); });
    check(failure.kind == Failure::timeout && failure.peer == 0 && !failure.relayed &&
          contains(failure.text, "stopped"));
  }
  check(failure_of([&] { world[1].probe(0, 1); }).kind == Failure::timeout);
  send(world[2], 1, 5, small);  // other pairs are as before
  send(world[1], 0, 5, small);
  for (const auto& [at, from] : {std::pair{1, 2}, std::pair{0, 1}}) {
    Bytes got(10);
    const Ticket ticket = receive(world[at], from, 5, got);
    world.progress();
    check(world[at].done(ticket) && got == small);
  }
}

void bad_arguments() {
  World world(2);
  const auto refuses = [](const std::function<void()>& action) {
    try {
      action();
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  check(refuses([&] { world[0].send(2, 0, "", nullptr, 0, kNever); }) &&
        refuses([&] { world[0].send(-1, 0, "", nullptr, 0, kNever); }));
  check(refuses([&] { world[0].receive(2, 0); }) && refuses([&] { world[0].receive(-2, 0, "", nullptr, 0); }));
  check(refuses([&] { world[0].probe(-2, 0); }) && refuses([&] { world[0].probe(2, 0); }));
  check(refuses([&] { world[0].send(1, 0, std::string(513, 'x'), nullptr, 0, kNever); }));
  const std::string longest(512, 'x');
  send(world[0], 1, -5, content(3, 1), longest);
  Bytes data(3);
  check(world[1].done(receive(world[1], 0, -5, data, longest)) && data == content(3, 1));
}

// Whatever is written over the sender's region: a receiver gets a message, nothing, or an internal failure.
void overwritten_memory() {
  std::mt19937_64 random(kSeed);
  int found = 0;
  for (int turn = 0; turn < 500; ++turn) {
    World world(2);
    const shm::Region region{world.regions[0], 2};
    const Ticket sent = send(world[0], 1, 1, content(random() % 1000000, 1));
    auto* words = reinterpret_cast<uint64_t*>(region.ring(1));
    if (turn % 6 == 0) region.lane(1).published.store(random() >> random() % 64);
    if (turn % 6 == 1) region.lane(1).published.fetch_add(64 * (random() % 10000));
    if (turn % 6 == 2) words[0] ^= 1ull << random() % 64;             // the mark
    if (turn % 6 == 3) words[2] = ~0ull >> random() % 15;             // the payload's length
    if (turn % 6 == 4) words[3] = (513 + random()) >> random() % 50;  // the meta's length
    if (turn % 6 == 5) words[3] |= 1ull << (32 + random() % 32);      // where the payload lies
    Bytes data(1000);
    const Ticket ticket = receive(world[1], 0, 1, data);
    for (int i = 0; i < 5; ++i) world[1].progress();
    world[0].progress();
    if (!world[1].done(ticket)) continue;
    const Failure failure = failure_of([&] { world[1].wait(ticket, kNever); });
    check(failure.kind == Failure::internal || failure.kind == Failure::mismatch);
    found += failure.kind == Failure::internal;
  }
  check(found > 300);
}

}  // namespace

int main() {
  mismatches();
  late_receive_is_never_written();
  late_in_the_middle_of_a_receive();
  late_send_that_had_not_begun();
  for (const bool half_there : {false, true}) {
    for (const bool known : {false, true}) late_in_the_middle_of_a_send(half_there, known);
  }
  bad_arguments();
  overwritten_memory();
  return report();
}
