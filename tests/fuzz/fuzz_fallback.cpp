// Any bytes at all, on each of the ways of one pipe: what the other end says of how far it has come.
//
//   input = options, length of pieces, how much has been sent, two lengths, and the bytes of way 0, 1 and 2
#include <array>
#include <cerrno>
#include <cstring>

#include "recording.h"
#include "transport/tcp/fallback.h"

using namespace hocket;
using namespace hocket::fuzzing;
using tcp::Fallback;
using Head = Fallback::Head;

namespace {

constexpr size_t options_bytes = 5, most_ways = 3;

// Heads get the sums that belong to them, so that it is not these which are tried.
void sign(Bytes& stream) {
  for (size_t at = 0; at + sizeof(Head) <= stream.size();) {
    Head found;
    std::memcpy(&found, stream.data() + at, sizeof found);
    found = Head::of(found.bytes, found.received);
    std::memcpy(stream.data() + at, &found, sizeof found);
    at += sizeof found + (found.bytes == Fallback::anew ? 0 : found.bytes);
  }
}

void add(Bytes& to, const Head& said, size_t bytes = 0) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&said);
  to.insert(to.end(), begin, begin + sizeof said);
  to.resize(to.size() + bytes, std::byte{0x5a});
}

}  // namespace

std::vector<Bytes> hocket::fuzzing::seeds() {
  std::vector<Bytes> all;
  for (const uint8_t options : {0, 1, 2, 5, 6, 8, 15}) {
    Bytes ways[most_ways];
    for (int i = 0; i < 3; ++i) add(ways[0], Head::of(100, 50 * i), 100);
    add(ways[1], Head::of(Fallback::anew, 200));
    add(ways[1], Head::of(500, 250), 500);
    add(ways[2], Head::of(Fallback::anew, 300));
    add(ways[2], Head::of(40, 300), 40);
    Bytes seed{std::byte{options}, std::byte(options * 3), std::byte{1}, std::byte(ways[0].size() / 4),
               std::byte(ways[1].size() / 4)};
    for (const Bytes& way : ways) seed.insert(seed.end(), way.begin(), way.end());
    all.push_back(std::move(seed));
  }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  if (bytes < options_bytes) return 0;
  const uint8_t options = data[0];
  const size_t count = 2 + (options & 1), piece = data[1] == 0 ? SIZE_MAX : data[1];
  Bytes said[most_ways];
  const auto* const begin = reinterpret_cast<const std::byte*>(data);
  size_t at = options_bytes;
  for (size_t way = 0; way < count; ++way) {
    const size_t wanted = way + 1 == count ? bytes - at : size_t{4} * data[3 + way];
    const size_t some = std::min(bytes - at, wanted);
    said[way].assign(begin + at, begin + at + some);
    at += some;
    if (options & 2) sign(said[way]);
  }
  std::vector<std::shared_ptr<Line>> lines;
  std::vector<std::shared_ptr<tcp::Pipe>> ways;
  size_t all = 0;
  for (size_t way = 0; way < count; ++way) {
    lines.push_back(std::make_shared<Line>());
    lines[way]->in = said[way];
    lines[way]->piece = piece;
    lines[way]->full = options & 4;
    ways.push_back(lines[way]);
    all += said[way].size();
  }
  Fallback pipe(ways, std::chrono::seconds(1));
  Bytes sent(size_t{1000} * data[2] + 1, std::byte{0x33});
  std::array<iovec, 1> parts{{{sent.data(), sent.size()}}};
  pipe.send(parts);
  uint64_t received = 0;
  Bytes room(700);
  for (size_t turn = 0; turn < 2 * all + 8; ++turn) {
    if (turn == all + 4) {
      for (const auto& line : lines) line->ended = true;
    }
    if ((options & 8) && turn == 3) lines[0]->ended = true;
    std::array<iovec, 2> into{{{room.data(), room.size() / 3}, {room.data() + room.size() / 3, room.size() / 2}}};
    const ssize_t n = pipe.receive(into);
    demand(n <= static_cast<ssize_t>(room.size()), "no more comes than there is room for");
    if (n > 0) received += static_cast<uint64_t>(n);
    demand(received <= all, "nothing comes that was not said");
    demand(pipe.way() < count && pipe.goes_on() <= pipe.way(), "it is on a way that there is");
    pipe.flush();
    if (n > 0 || (n < 0 && errno == EAGAIN)) continue;
    std::array<iovec, 1> more{{{room.data(), room.size()}}}, again{{{sent.data(), sent.size()}}};
    demand(pipe.receive(more) <= 0 && errno != EAGAIN, "what is over stays over");
    demand(pipe.send(again) < 0 && errno != EAGAIN, "and takes nothing more");
    return 0;
  }
  return 0;
}
