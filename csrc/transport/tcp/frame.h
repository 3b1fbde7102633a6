// What goes over a link: frames, each a head of one cache line and the bytes that it announces. Both ends are
// little-endian.
//
// A head is believed only as far as it can do no harm: its kind, its length and where it says its bytes belong are
// looked at before one of them is used.
#pragma once

#include <bit>
#include <cstdint>

#include "transport/outbox/layout.h"

namespace hocket::tcp {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

constexpr uint64_t window = 4 << 20;       // bytes of messages to one reader that it has not read yet
constexpr uint64_t mail_piece = 64 << 10;  // of a stream, in one frame

struct alignas(line) Frame {
  enum Kind : uint16_t { call = 1, text, message, mail, stuck, reason, left, pulse, doing, stand, note };
  uint16_t kind;
  uint16_t half;      // of the sum over this head alone: so that no length is believed that was changed on its way
  uint32_t bytes;     // that follow
  uint32_t number;    // of this frame on its link, from 0
  uint32_t sum;       // CRC32C of all of it, counted with zeros in these two; where the ranks have agreed on it
  uint64_t read;      // messages that the sender of this frame has read of its reader's
  uint64_t consumed;  // and up to where it has read its stream
  // clang-format off
  //           call         text         message  mail      stuck  reason   left  pulse                     doing        stand             note
  uint64_t a;  // number    fingerprint  call     position  why    kind           beat                      for so long  stage             attempt
  uint64_t b;  // fingerprint            place                     culprit        waits for this rank, or to be told of  completed         formed
  uint64_t c;  //                        offset                    round          this call,                             reached
  uint64_t d;  //                                                                 which it takes for this fingerprint    round, kind, culprit
  // clang-format on
};
static_assert(sizeof(Frame) == line);

}  // namespace hocket::tcp
