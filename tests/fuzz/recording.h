// A rank that talks over a link to nobody: what its link sends is written down.
#pragma once

#include <sys/mman.h>

#include <memory>
#include <span>
#include <string>

#include "messages/mailbox.h"
#include "target.h"
#include "transport/outbox/channels.h"
#include "transport/outbox/layout.h"
#include "transport/outbox/liveness.h"
#include "transport/outbox/stream.h"
#include "transport/tcp/link.h"

namespace hocket::fuzzing {

constexpr int size = 3, talker = 0, listener = 1, third = 2;
constexpr uint64_t slots = 64 << 10;
constexpr Label expected_label{1, 6};      // of the message that the listener expects first,
constexpr uint64_t expected_bytes = 5000;  // and its length
constexpr int64_t tag = 4;                 // of the message that it receives,
constexpr uint64_t mail_bytes = 9000;      // and its length

// One rank's outbox, of zeros.
struct Box {
  Box()
      : bytes(arena_offset(size, slots)),
        box(static_cast<Outbox*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    demand(box != MAP_FAILED, "no memory for an outbox");
  }
  ~Box() { munmap(box, bytes); }
  Box(const Box&) = delete;
  std::byte* region() const { return box->slots(size) + slots; }

  const uint64_t bytes;
  Outbox* const box;
};

// A connection of which this end hears `in`, in pieces, and then nothing, or the end. What is said is kept in `out`,
// unless it is `full`.
struct Line : tcp::Pipe {
  Line() : Pipe(0) {}  // a descriptor that is never used

  ssize_t send(std::span<iovec> parts) override {
    size_t all = 0;
    for (const iovec& part : parts) {
      if (keeps)
        out.insert(out.end(), static_cast<std::byte*>(part.iov_base),
                   static_cast<std::byte*>(part.iov_base) + part.iov_len);
      all += part.iov_len;
    }
    if (!full) return static_cast<ssize_t>(all);
    errno = EAGAIN;
    return -1;
  }
  ssize_t receive(std::span<iovec> parts) override {
    size_t taken = 0;
    for (const iovec& part : parts) {
      const size_t some = std::min({part.iov_len, in.size(), piece - taken});
      if (some != 0) std::memcpy(part.iov_base, in.data(), some);
      in = in.subspan(some);
      taken += some;
    }
    if (taken != 0 || ended) return static_cast<ssize_t>(taken);
    errno = EAGAIN;
    return -1;
  }
  void shut() override {}

  std::span<const std::byte> in;
  size_t piece = SIZE_MAX;
  bool ended = false, full = false, keeps = false;
  Bytes out;
};

// Moves what it is told to; nobody sleeps, and no deadline passes.
struct Bystander : Waiter {
  void notify(int) override {}
  bool shares_core(int) override { return false; }
  uint32_t announce() override { return 0; }
  void sleep(uint32_t, std::chrono::microseconds) override {}
  void withdraw() override {}
  void check(int, Deadline) override { throw Failure{Failure::internal, -1, "it would wait"}; }
};

// Bytes that differ by seed and place.
inline Bytes content(uint64_t seed, uint64_t bytes) {
  Bytes data(bytes);
  for (uint64_t k = 0; k < bytes; ++k) data[k] = std::byte((seed * 131 + k * 7 + k / 251) & 0xff);
  return data;
}

// Each of its functions leaves something in the outbox, as a rank does, and has the link send it.
class Talker {
 public:
  explicit Talker(bool checked)
      : link(talker, size, listener, line, checked, own.box, reinterpret_cast<std::byte*>(own.box), slots),
        mailbox(talker, size,
                shm::streams(talker, {own.region(), link.mirror()->slots(size) + tcp::window, far.region()},
                             {false, false, false}),
                bystander) {
    line->keeps = true;
  }

  void call(uint64_t number, uint64_t fingerprint, const std::string& text) {
    Outbox::Text& t = own.box->texts[fingerprint % text_count];
    text.copy(t.text, sizeof t.text - 1);
    t.fingerprint = fingerprint;
    Outbox::Entry& e = own.box->board[number % board_size];
    e.fingerprint = fingerprint;
    e.call = number;
    link.push();
  }
  void message(Label label, uint64_t bytes) {
    data.push_back(content(data.size(), bytes));
    Descriptor& d = own.box->descriptors(size, listener)[(data.size() - 1) % depth];
    d.call = label.call;
    d.place = label.place;
    d.bytes = bytes;
    d.kind = Descriptor::view;
    d.offset = static_cast<uint64_t>(data.back().data() - reinterpret_cast<std::byte*>(own.box));
    d.turn = data.size();
    link.push();
  }
  void mail(int64_t under, uint64_t bytes) {
    const Bytes payload = content(99, bytes);
    mailbox.send(listener, under, "<f4 (2250,)", payload.data(), bytes, Deadline::max());
    for (int i = 0; i < 4; ++i) mailbox.progress(), link.push();
  }
  void pulse() { link.beat(Clock::now(), std::chrono::seconds(0)); }
  void stop_in_the_middle_of_mail() {
    own_mail().lane(listener).broken = 1 + Failure::timeout;
    link.push();
  }
  void end(const std::string& why) {
    Outbox::Finding& finding = own.box->findings[0];
    finding.why.kind = Failure::custom_op;
    finding.why.culprit = third;
    why.copy(finding.why.text, reason_bytes - 1);
    finding.there = 1;
    Outbox::Stand stand{Outbox::Stand::settling, 1, 0, {}, {}};
    stand.lost[third] = true;
    own.box->stands[0].write(stand);
    ++own.box->affairs;
    link.push();
    stand.stage = Outbox::Stand::settled;
    stand.reached = 2;
    stand.why = finding.why;
    own.box->stands[0].write(stand);
    own.box->note.write({1, 1, 5, "where"});
    ++own.box->affairs;
    link.push();
  }
  void leave() {
    own.box->left = 1;
    link.push();
  }

  shm::Region own_mail() const { return {own.region(), size}; }
  const Bytes& said() const { return line->out; }

  std::shared_ptr<Line> line = std::make_shared<Line>();
  Box own, far;
  tcp::Link link;
  std::vector<Bytes> data;  // of the messages

 private:
  Bystander bystander;
  Mailbox mailbox;
};

// A call of two ranks, with all that goes over a link.
inline void talk(Talker& rank) {
  rank.call(1, 42, "all_reduce(float32[1250])\nsum");
  rank.message(expected_label, expected_bytes);
  rank.message({1, 7}, 24);
  rank.message({1, 8}, 700);
  rank.mail(tag, mail_bytes);
  rank.mail(tag + 1, 100);
  rank.pulse();
  rank.call(2, 43, "barrier()");
  rank.message({2, 0}, 4500);
  rank.stop_in_the_middle_of_mail();
  rank.end("ValueError: of rank 0's own");
  rank.leave();
}

}  // namespace hocket::fuzzing
