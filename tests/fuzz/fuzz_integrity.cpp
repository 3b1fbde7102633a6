// A link with checksums, over a line that changes one thing on the way: whatever that is, what is delivered is what was
// sent, and nothing that comes behind the change is delivered.
//
//   input = kind of change, position, length, bits
#include <cerrno>
#include <cstring>

#include "recording.h"

using namespace hocket;
using namespace hocket::fuzzing;
using tcp::Frame;

namespace {

enum Kind : uint8_t { burst, cut, dropped, repeated, moved, kinds };

struct Change {
  uint8_t kind, bit;
  uint16_t piece;
  uint32_t at, length, to, bits;
};

// What comes out of the line. A burst is of 32 bits at most: all of these a CRC of 32 bits finds, so that no fuzzer can
// forge one.
Bytes changed(const Bytes& said, const Change& change) {
  Bytes heard = said;
  const size_t at = change.at % said.size(), length = std::min<size_t>(1 + change.length % 5000, said.size() - at);
  const auto begin = heard.begin() + static_cast<ptrdiff_t>(at), end = begin + static_cast<ptrdiff_t>(length);
  switch (change.kind % kinds) {
    case burst: {
      const uint64_t bits = static_cast<uint64_t>(change.bits) << change.bit % 8;
      for (size_t k = 0; k < 5 && at + k < heard.size(); ++k) heard[at + k] ^= std::byte(bits >> 8 * k);
      break;
    }
    case cut:
      heard.resize(at);
      break;
    case dropped:
      heard.erase(begin, end);
      break;
    case repeated: {
      const Bytes again(begin, end);
      heard.insert(end, again.begin(), again.end());
      break;
    }
    case moved: {
      const Bytes piece(begin, end);
      heard.erase(begin, end);
      heard.insert(heard.begin() + change.to % (heard.size() + 1), piece.begin(), piece.end());
      break;
    }
  }
  return heard;
}

// What of a recording is whole before this place: how many messages, and up to where the mail.
struct Whole {
  uint64_t messages = 0, mail = 0;
  bool call = false, reason = false, left = false;
};

Whole before(const Bytes& said, size_t place) {
  Whole whole;
  for (size_t at = 0; at + sizeof(Frame) <= said.size();) {
    Frame frame;
    std::memcpy(&frame, said.data() + at, sizeof frame);
    at += sizeof frame + frame.bytes;
    if (at > place) break;
    whole.messages += frame.kind == Frame::message;
    if (frame.kind == Frame::mail) whole.mail = frame.a + frame.bytes;
    whole.call |= frame.kind == Frame::call;
    whole.reason |= frame.kind == Frame::reason;
    whole.left |= frame.kind == Frame::left;
  }
  return whole;
}

Talker& recording() {
  static Talker* const made = [] {
    auto* const rank = new Talker(true);
    talk(*rank);
    return rank;
  }();
  return *made;
}

void is_what_was_sent(tcp::Link& link, const Whole& whole, const Bytes& landed) {
  const Talker& rank = recording();
  Outbox *const mirror = link.mirror(), *const own = rank.own.box;
  for (uint64_t i = 0; i < depth; ++i) {
    const Descriptor& d = mirror->descriptors(size, listener)[i];
    demand((d.turn != 0) == (i < whole.messages), "messages are there up to the change, and no more");
    if (d.turn == 0) continue;
    const Descriptor& sent = own->descriptors(size, listener)[i];
    const std::byte* const at = d.kind == Descriptor::here   ? d.payload
                                : d.kind == Descriptor::slot ? mirror->slots(size) + d.offset
                                                             : reinterpret_cast<const std::byte*>(d.offset);
    demand(d.kind != Descriptor::landed || at == landed.data(), "a message landed where it was expected");
    demand(d.call == sent.call && d.place == sent.place && d.bytes == sent.bytes &&
               std::memcmp(at, rank.data[i].data(), d.bytes) == 0,
           "a message is what was sent");
  }
  const shm::Region mail{mirror->slots(size) + tcp::window, size};
  demand(mail.lane(listener).published == whole.mail, "mail is there up to the change, and no more");
  demand(std::memcmp(mail.ring(listener), rank.own_mail().ring(listener), whole.mail) == 0, "mail is what was sent");
  demand((mirror->board[1].call == 1) == whole.call && (!whole.call || mirror->board[1].fingerprint == 42), "a call");
  demand((mirror->findings[0].there != 0) == whole.reason &&
             (!whole.reason || std::strcmp(mirror->findings[0].why.text, own->findings[0].why.text) == 0),
         "a reason is what was sent");
  demand((mirror->left != 0) == whole.left, "a farewell was sent");
}

}  // namespace

std::vector<Bytes> hocket::fuzzing::seeds() {
  std::vector<Bytes> all;
  for (uint8_t kind = 0; kind < kinds; ++kind) {
    for (uint32_t at : {0u, 90u, 3000u, 14'000u}) {
      const Change change{kind, 3, 500, at, 64, 6000, 0x10001};
      const auto* begin = reinterpret_cast<const std::byte*>(&change);
      all.emplace_back(begin, begin + sizeof change);
    }
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  Change change;
  if (bytes < sizeof change) return 0;
  std::memcpy(&change, data, sizeof change);
  const Bytes &said = recording().said(), heard = changed(said, change);
  const size_t same =
      static_cast<size_t>(std::mismatch(said.begin(), said.end(), heard.begin(), heard.end()).first - said.begin());

  const auto line = std::make_shared<Line>();
  Box own;
  tcp::Link link(listener, size, talker, line, true, own.box, reinterpret_cast<std::byte*>(own.box), slots);
  Bytes landing(expected_bytes);
  link.expect(expected_label, landing.data(), expected_bytes);
  const size_t piece = 16 + change.piece;
  for (size_t at = 0; at < heard.size(); at += piece) {
    line->in = std::span(heard).subspan(at, std::min(piece, heard.size() - at));
    link.turn();
  }
  is_what_was_sent(link, before(said, same), landing);
  demand(same != said.size() || heard.size() != said.size() || link.broken() == nullptr,
         "an unchanged line is no error");
  line->ended = true;
  link.turn();
  demand(link.broken() != nullptr, "a link that has ended is broken");
  return 0;
}
