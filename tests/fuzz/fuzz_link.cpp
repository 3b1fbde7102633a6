// Any bytes at all, into a link, and on to all that reads its mirror: a rank that may say whatever it likes, and sign
// it, harms nobody but itself.
//
//   input = options, length of pieces, messages read after each, bytes of the link; or the heads of its frames alone
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <random>

#include "recording.h"
#include "transport/outbox/bell.h"
#include "transport/outbox/board.h"
#include "transport/tcp/crc32c.h"

using namespace hocket;
using namespace hocket::fuzzing;
using tcp::Frame;

namespace {

struct Options {
  explicit Options(const uint8_t* data)
      : checked(data[0] & 1),
        is_signed(data[0] & 2),
        full(data[0] & 4),
        fences(data[0] & 8),
        bare(data[0] & 16),
        piece(data[1] == 0 ? SIZE_MAX : data[1] * 37u),
        reads(data[2] % 8) {}
  bool checked, is_signed, full, fences, bare;
  size_t piece;
  int reads;
};
constexpr size_t options_bytes = 3;

// Where the frames of a stream begin, as their heads tell, and where the last one ends, or is cut off. Of `bare` ones
// there are the heads alone.
std::vector<size_t> boundaries(const Bytes& stream, bool bare = false) {
  std::vector<size_t> all;
  size_t at = 0;
  while (at + sizeof(Frame) <= stream.size()) {
    all.push_back(at);
    Frame frame;
    std::memcpy(&frame, stream.data() + at, sizeof frame);
    at = std::min(stream.size(), at + sizeof frame + (bare ? 0 : frame.bytes));
  }
  all.push_back(stream.size());
  return all;
}

// Bare heads, and what they announce: so a few bytes of an input fill all that there is to fill.
Bytes with_bodies(const Bytes& heads) {
  constexpr size_t most = 6 << 20, most_of_one = 1 << 20;
  Bytes stream;
  for (size_t at = 0; at + sizeof(Frame) <= heads.size() && stream.size() < most; at += sizeof(Frame)) {
    Frame frame;
    std::memcpy(&frame, heads.data() + at, sizeof frame);
    stream.insert(stream.end(), heads.data() + at, heads.data() + at + sizeof frame);
    stream.resize(stream.size() + std::min<size_t>(frame.bytes, most_of_one), std::byte{0x5a});
  }
  return stream;
}

// Numbers and checksums as they would be in this place, so that it is not these which are tried.
void sign(Bytes& stream) {
  const std::vector<size_t> at = boundaries(stream);
  for (size_t i = 0; i + 1 < at.size() && at[i] + sizeof(Frame) <= stream.size(); ++i) {
    Frame frame;
    std::memcpy(&frame, stream.data() + at[i], sizeof frame);
    frame.number = static_cast<uint32_t>(i);
    frame.half = 0;
    frame.sum = 0;
    uint32_t sum = tcp::crc32c(0, reinterpret_cast<const std::byte*>(&frame), sizeof frame);
    frame.half = static_cast<uint16_t>(sum);
    frame.sum = tcp::crc32c(sum, stream.data() + at[i] + sizeof frame, at[i + 1] - at[i] - sizeof frame);
    std::memcpy(stream.data() + at[i], &frame, sizeof frame);
  }
}

class Ears final : public Channels {
 public:
  Ears(std::vector<Outbox*> boxes, Bell& bell, Board& board)
      : Channels(listener, boxes, {tcp::window, slots, slots}, 0, bell, board), bell_(bell) {}
  void notify(int peer) override { bell_.notify(peer); }
  bool shares_core(int) override { return false; }
  uint32_t announce() override { return 0; }
  void sleep(uint32_t, std::chrono::microseconds) override {}
  void withdraw() override {}
  void check(int, Deadline) override {}

 private:
  Bell& bell_;
};

void is_possible(const Failure& failure) {
  demand(failure.kind >= Failure::timeout && failure.kind <= Failure::closed, "a failure has a kind that there is");
  demand(failure.peer >= -1 && failure.peer < size, "a failure is of a rank that there is");
}

// As of a descriptor that must not change while it is not read.
struct Head {
  explicit Head(const Descriptor& d) : turn(d.turn), call(d.call), bytes(d.bytes), place(d.place), kind(d.kind) {
    std::memcpy(payload.data(), d.payload, sizeof d.payload);
  }
  bool operator==(const Head&) const = default;
  uint64_t turn, call, bytes;
  uint32_t place, kind;
  std::array<std::byte, Descriptor::room> payload;
};

class Listener {
 public:
  explicit Listener(const Options& options)
      : options_(options),
        line_(std::make_shared<Line>()),
        link_(listener, size, talker, line_, options.checked, own_.box, reinterpret_cast<std::byte*>(own_.box), slots),
        boxes_{link_.mirror(), own_.box, other_.box},
        bell_(listener, boxes_, {&link_, nullptr, nullptr}, {-1, -1, -1}, size),
        settlement_(
            listener, boxes_, {talker}, [] { return Ranks(); }, [] {}),
        board_(listener, boxes_, settlement_),
        liveness_(listener, boxes_, {-1, -1, -1}, {-1, -1, -1}, std::chrono::seconds(1), std::chrono::seconds(2)),
        ears_(boxes_, bell_, board_),
        mailbox_(listener, size,
                 shm::streams(listener, {link_.mirror()->slots(size) + tcp::window, own_.region(), other_.region()},
                              {false, false, false}),
                 ears_),
        landing_(expected_bytes, untouched),
        mail_(mail_bytes) {
    line_->piece = options.piece;
    line_->full = options.full;
    board_.describe(42, "all_reduce(float32[1250])");
    board_.enter(42, 0);
    link_.expect(expected_label, landing_.data(), expected_bytes);
    receive_ = mailbox_.receive(talker, tag, "<f4 (2250,)", mail_.data(), mail_bytes);
    static const Bytes more_than_a_ring = content(3, shm::ring_bytes + 100'000);
    send_ = mailbox_.send(talker, 1, "", more_than_a_ring.data(), more_than_a_ring.size(), Deadline::max());
  }

  void hear(std::span<const std::byte> said) {
    line_->in = said;
    while (!line_->in.empty() && link_.broken() == nullptr) {
      // In pieces, and as often as something is read: a link takes all that there is, at once.
      const auto all = line_->in;
      line_->in = all.first(std::min(all.size(), options_.piece));
      const size_t taken = line_->in.size();
      turn();
      line_->in = all.subspan(taken - line_->in.size());
      if (options_.fences && line_->in.size() < said.size() / 2) fence();
    }
    line_->ended = true;
    turn();
    demand(link_.broken() != nullptr, "a link that has ended is broken");
    is_whole();
  }

 private:
  void turn() {
    bell_.hear(talker);
    if (fenced_) demand(landing_ == after_fence_, "nothing lands after a fence");
    messages_are_kept();
    for (int i = 0; i < options_.reads; ++i) read();
    speak();
    demand(mail().lane(listener).published - own_mail().consumed(talker).position <= shm::ring_bytes,
           "there is no more mail than a ring of it");
    move_mail();
    look_around();
  }

  const Descriptor& descriptor(uint64_t number) const {
    return link_.mirror()->descriptors(size, listener)[number % depth];
  }

  shm::Region mail() const { return {link_.mirror()->slots(size) + tcp::window, size}; }
  shm::Region own_mail() const { return {own_.region(), size}; }

  void messages_are_kept() {
    for (uint64_t i = read_; i < read_ + heads_.size(); ++i)
      demand(Head(descriptor(i)) == heads_[i - read_], "a message is not overwritten before it is read");
    while (descriptor(read_ + heads_.size()).turn == read_ + heads_.size() + 1 && heads_.size() < depth)
      heads_.emplace_back(descriptor(read_ + heads_.size()));
    demand(descriptor(read_).turn <= read_ + 1, "nor are there more of them than there is room for");
  }

  void read() {
    Message message;
    if (!ears_.peek(talker, message)) return;
    messages_are_kept();
    uint64_t sum = 0;  // of every byte, for the address sanitizer
    for (uint64_t k = 0; k < message.bytes; ++k) sum += std::to_integer<uint64_t>(message.data[k]);
    sum_ = sum_ + sum;
    ears_.release(talker);
    ++read_;
    heads_.erase(heads_.begin());
  }

  void speak() {
    const int32_t to[] = {talker};
    if (std::byte* const at = ears_.reserve(to, 200)) {
      std::memset(at, 1, 200);
      ears_.post(to, 200, {1, 0});
    }
    if (ears_.posted(talker) > 0) ears_.consumed(talker, ears_.posted(talker));
  }

  void move_mail() {
    try {
      mailbox_.progress();
      mailbox_.probe(Mailbox::any_source, tag + 1);
      for (const auto& ticket : {receive_, send_}) {
        if (mailbox_.done(ticket)) mailbox_.wait(ticket, Deadline::max());
      }
    } catch (const Failure& failure) {
      is_possible(failure);
    }
  }

  void look_around() {
    for (const auto& look : {+[](Listener& l) { l.settlement_.turn(), l.settlement_.check(); },
                             +[](Listener& l) { l.board_.compare(talker); }}) {
      try {
        look(*this);
      } catch (const Failure& failure) {
        is_possible(failure);
        demand(failure.text.size() < reason_bytes + 2 * text_bytes, "what is said of a failure is short");
      }
    }
    const int culprit = liveness_.culprit(talker, [this](int rank) { return board_.is_here(rank); });
    demand(culprit >= 0 && culprit < size, "a rank is to blame that there is");
    demand(board_.place_of_output(talker) == 0, "over a link nobody says where its memory is");
  }

  void fence() {
    if (fenced_) return;
    link_.fence();
    for (int i = 0; i < 3; ++i) link_.expect(expected_label, landing_.data(), expected_bytes);
    landing_.assign(expected_bytes, std::byte{0x77});
    after_fence_ = landing_;
    fenced_ = true;
  }

  // What belongs to other ranks, and lies beside what belongs to this one.
  void is_whole() const {
    static const Bytes zeros(64 << 10);
    const auto is_zero = [](const void* at, size_t bytes) { return std::memcmp(at, zeros.data(), bytes) == 0; };
    Outbox* const mirror = link_.mirror();
    const shm::Region mail = this->mail();
    for (int rank : {talker, third}) {
      demand(is_zero(mirror->descriptors(size, rank), depth * sizeof(Descriptor)) &&
                 is_zero(&mail.lane(rank), sizeof(shm::Lane)) && is_zero(&mail.consumed(rank), sizeof(shm::Consumed)) &&
                 is_zero(&mirror->counts()[rank], sizeof(Outbox::Count)),
             "what is another rank's is not written");
    }
    demand(is_zero(mail.ring(third), zeros.size()) && is_zero(mail.ring(listener) - 4096, 4096),
           "nor another rank's ring");
    demand(mirror->sleepers == 1 && mirror->bell == 0 && mirror->cpu == 0, "nor what no frame tells of");
  }

  static constexpr std::byte untouched{0xcc};
  const Options options_;
  const std::shared_ptr<Line> line_;
  Box own_, other_;
  tcp::Link link_;
  std::vector<Outbox*> boxes_;
  Bell bell_;
  Settlement settlement_;
  Board board_;
  Liveness liveness_;
  Ears ears_;
  Mailbox mailbox_;
  Bytes landing_, mail_, after_fence_{};
  Mailbox::Ticket receive_, send_;
  std::vector<Head> heads_;  // of the messages that are not read
  uint64_t read_ = 0;
  volatile uint64_t sum_ = 0;
  bool fenced_ = false;
};

}  // namespace

std::vector<Bytes> hocket::fuzzing::seeds() {
  std::vector<Bytes> all;
  const auto add = [&](const Talker& rank, int options, int piece, int reads) {
    Bytes seed{std::byte(options), std::byte(piece), std::byte(reads)};
    seed.insert(seed.end(), rank.said().begin(), rank.said().end());
    all.push_back(std::move(seed));
  };
  for (const int options : {0, 1, 2, 10}) {
    const bool checked = options == 1;
    Talker brief(checked), full(checked), all_there_is(checked);
    brief.call(1, 42, "all_reduce(float32[1250])\nsum");
    brief.message({1, 5}, 24);
    brief.pulse();
    add(brief, options, 0, 1);
    for (uint64_t i = 0; i < depth; ++i) full.message({1, static_cast<uint32_t>(i)}, 8);  // and nobody reads
    add(full, options, 0, 0);
    talk(all_there_is);
    add(all_there_is, options, options * 10, 1 + options % 4);
  }
  // A ring full of mail, and one more, and a window full of messages; and nobody reads.
  Frame mail{}, message{};
  mail.kind = Frame::mail;
  mail.bytes = tcp::mail_piece;
  message.kind = Frame::message;
  message.bytes = 1 << 20;
  Bytes seed{std::byte{2 + 16}, std::byte{0}, std::byte{0}};
  const auto say = [&](const Frame& frame) {
    const auto* const head = reinterpret_cast<const std::byte*>(&frame);
    seed.insert(seed.end(), head, head + sizeof frame);
  };
  for (; message.c < tcp::window; message.c += message.bytes) say(message);
  for (; mail.a <= shm::ring_bytes; mail.a += mail.bytes) say(mail);
  all.push_back(std::move(seed));
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < options_bytes) return 0;
  const Options options(data);
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  Bytes stream(begin + options_bytes, begin + bytes);
  if (options.bare) stream = with_bodies(stream);
  if (options.is_signed) sign(stream);
  Listener(options).hear(stream);
  return 0;
}

namespace {

using Random = std::minstd_rand;

// One frame is repeated, left out, or put elsewhere.
void rearrange(Bytes& stream, const std::vector<size_t>& at, Random& random) {
  const auto place = [&](size_t i) { return stream.begin() + static_cast<ptrdiff_t>(i); };
  const size_t one = random() % (at.size() - 1), to = at[random() % at.size()], kind = random() % 3;
  const Bytes frame(place(at[one]), place(at[one + 1]));
  if (kind != 0) stream.insert(place(to), frame.begin(), frame.end());
  const size_t from = at[one] + (kind == 1 && to <= at[one] ? frame.size() : 0);
  if (kind != 2) stream.erase(place(from), place(from + frame.size()));
}

// A field of a head becomes what is just right, or just too much, for something.
void exaggerate(Bytes& stream, const std::vector<size_t>& at, Random& random) {
  constexpr uint64_t limits[] = {0,
                                 line,
                                 Descriptor::room,
                                 depth,
                                 text_bytes,
                                 reason_bytes,
                                 tcp::mail_piece,
                                 shm::ring_bytes,
                                 tcp::window,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 63};
  const size_t begin = at[random() % (at.size() - 1)];
  if (begin + sizeof(Frame) > stream.size()) return;
  Frame frame;
  std::memcpy(&frame, stream.data() + begin, sizeof frame);
  const uint64_t limit = limits[random() % std::size(limits)] - (random() % 2 ? frame.bytes : 0);
  const uint64_t value = limit + (random() % 5 - 2) * (random() % 2 ? 1 : line);
  uint64_t* const fields[] = {&frame.c, &frame.a, &frame.b, &frame.d, &frame.read, &frame.consumed};
  switch (const size_t which = random() % 8; which) {
    case 7:
      frame.c = value / line * line;  // of a message: its place
      break;
    case 6:
      frame.bytes = static_cast<uint32_t>(value);
      break;
    default:
      *fields[which] = value;
  }
  std::memcpy(stream.data() + begin, &frame, sizeof frame);
}

}  // namespace

// Half of the time whole frames, or what their heads say, are changed, which changes of bytes hardly come to.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t bytes, size_t most);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t bytes, size_t most, unsigned seed) {
  Random random(seed);
  const size_t how = random() % 4;
  if (how < 2 || bytes <= options_bytes) return LLVMFuzzerMutate(data, bytes, most);
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  Bytes stream(begin + options_bytes, begin + bytes);
  const std::vector<size_t> at = boundaries(stream, Options(data).bare);
  if (at.size() == 1) return LLVMFuzzerMutate(data, bytes, most);
  (how == 2 ? rearrange : exaggerate)(stream, at, random);
  stream.resize(std::min(stream.size(), most - options_bytes));
  std::memcpy(data + options_bytes, stream.data(), stream.size());
  return options_bytes + stream.size();
}
