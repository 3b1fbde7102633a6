// What the mailbox needs of a transport: one direction between two ranks, an ordered stream of messages, each a header,
// a meta and a payload that flows in pieces of whatever length suits the transport.
//
//   rank a   StreamWriter ───── header meta payload │ header meta payl… ─────▶ StreamReader   rank b
//
// Both ends are used under the mailbox's lock, by one thread at a time. None of these waits, and none throws.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace hocket {

// Of every message, whatever carries it: a reader that is told more knows that its memory was overwritten.
inline constexpr uint64_t meta_limit = 512;
inline constexpr uint64_t bytes_limit = uint64_t{1} << 48;

// A longer payload may be shown to its reader while it is written: in quarters, of so many bytes at least and at most.
// Each costs its writer a line that its reader looks at; and the last one is copied out when all is written.
inline constexpr uint64_t shown_least = 4 << 10, shown_most = 32 << 10;

// What a message says of itself before its meta and payload.
struct StreamHeader {
  int64_t tag;
  uint64_t bytes;
};

// A message that is there, or has begun to come, as it is seen before it is taken.
struct Glimpse {
  uint64_t bytes;
  size_t meta_bytes;
  std::array<char, meta_limit> text;
  bool whole;

  std::string_view meta() const { return {text.data(), meta_bytes}; }
};

class StreamWriter {
 public:
  virtual ~StreamWriter() = default;

  // Sends a whole message, `shown` to the reader while it is written. False: nothing was done, as there is no room, or
  // it is too long to go in one go.
  virtual bool send(int64_t tag, std::string_view meta, const std::byte* payload, uint64_t bytes, bool shown) = 0;

  // Begins a message whose payload is to be written. False if there is no room yet.
  virtual bool begin(int64_t tag, std::string_view meta, uint64_t bytes) = 0;
  // Writes a piece of the `bytes` that are left of the payload; returns how many.
  virtual uint64_t write(const std::byte* payload, uint64_t bytes) = 0;
  // Shows the reader what was written. False if there is nothing new.
  virtual bool publish() = 0;

  // Nothing more will come, for this reason, which is not 0.
  virtual void give_up(uint32_t reason) = 0;
};

class StreamReader {
 public:
  virtual ~StreamReader() = default;

  // Why the writer has given up, or 0. What it published before can still be read: look at this first, then at empty().
  virtual uint32_t broken() const = 0;
  virtual bool empty() = 0;
  // False if what is there cannot be true; to be asked before anything is read.
  virtual bool sound() const = 0;

  // The header and the meta of the next message; nothing if there is none to be found where it should begin.
  virtual std::optional<StreamHeader> begin(std::string& meta) = 0;
  // Reads a piece of the `bytes` that are left of the payload, to nowhere if `to` is null; returns how many.
  virtual uint64_t read(std::byte* to, uint64_t bytes) = 0;
  // Lets the writer have the room of what was read.
  virtual void release() = 0;

  // Whether the next message is of `tag` and may be sent in one go, and what it is.
  virtual bool glimpse(int64_t tag, Glimpse& seen) = 0;
  // Reads it to `to`, and releases it, if it has this meta and length. Of one that is not there as a whole the rest is
  // waited for, some microseconds at most. False: it is still the next message, though a part of it may be at `to`.
  virtual bool take(int64_t tag, std::string_view meta, std::byte* to, uint64_t bytes) = 0;
};

// Both directions between this rank and a peer; neither of them to itself.
struct Stream {
  std::unique_ptr<StreamWriter> writer;
  std::unique_ptr<StreamReader> reader;
};

}  // namespace hocket
