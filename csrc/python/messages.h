// Messages as Python has them: what each operation keeps alive, its result or error, and the fast path.
//
// An operation holds a reference to the array whose memory it uses, whatever becomes of the work in Python. It lets go
// of it under the mailbox's lock, on any thread, with or without Python's lock: so the reference goes to a list, and
// the next thread that comes here with Python's lock drops it.
//
// Shared between threads, and by what it is guarded:
//   Retired::last_              atomic; an entry belongs to whoever took it off the list
//   Formats, Messages           constant once made, but for the session's flag, which is atomic
//   MessageRequest: memory_,    `settling_`, which is taken either at once or without Python's lock. It is never held
//     result_, error_, over_    in a wait, nor while code of Python's runs: so no signal's handler finds it locked.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "messages/mailbox.h"
#include "python/session.h"

namespace hocket {

// References that are to be dropped by someone who has Python's lock.
class Retired {
 public:
  // Keeps `object` alive until the last copy is gone, on any thread; then it is retired to `list`.
  static Mailbox::Memory hold(const std::shared_ptr<Retired>& list, nb::handle object);
  ~Retired() { let_go(); }
  void let_go();

 private:
  struct Held {
    nb::object object;
    std::shared_ptr<Retired> list;
    Held* before = nullptr;
  };
  std::atomic<Held*> last_{nullptr};
};

// What a message calls its dtype and shape, such as "float32[3, 4]", and the way back. Without a state, so that any
// thread may ask.
class Formats {
 public:
  explicit Formats(const nb::list& dtypes);

  // Of one of the dtypes themselves, that is, by identity; false if it is none or the text is too long.
  bool write(nb::handle array, Glimpse& text) const;
  // Of any array of these dtypes.
  std::string of(nb::handle array) const;
  // A new array; null, without an error, where `meta` makes no sense for so many bytes. Throws Python's MemoryError.
  nb::object fresh(std::string_view meta, uint64_t bytes) const;

 private:
  std::vector<std::pair<nb::object, std::string>> dtypes_;
};

class Messages {
 public:
  // `session` is that object; `explain(failure, text, seconds, touched)` is the public error for what ended `text`,
  // which might have taken so long; `touched`: the caller's array may hold a part of the message.
  Messages(nb::object session, const nb::list& dtypes, nb::object explain);
  ~Messages();

  // The fast path, for short messages: done at once, or NotImplemented, and nothing was done, but where it has
  // `touched` the caller's `out`: a part of the message that is still to be received may be there. A receive waits for
  // a few microseconds.
  nb::object send_now(nb::handle x, nb::handle to, nb::handle tag);
  nb::object receive_now(nb::handle from, nb::handle out, nb::handle tag, bool& touched);

  // Begins an operation, and gives back the request; or its result, if it `waits`. That is not for the caller to do: a
  // signal's handler that raises in between would leave behind an operation that nobody knows. `x` and `memory` are
  // contiguous; what comes in `memory` is for `array`, which may be the same, and `out` is what the request gives back
  // then. `pickled`: `x` holds the bytes of an object, which is received by who expects one; `sourced`: the result of a
  // receive is a pair, with the rank that it came from.
  nb::object send(nb::object x, int to, int64_t tag, const std::string& text, double seconds, bool waits, bool pickled);
  nb::object receive(int source, int64_t tag, nb::object memory, nb::object array, nb::object out,
                     const std::string& text, double seconds, bool waits, bool sourced);
  nb::object receive_new(int source, int64_t tag, const std::string& text, double seconds, bool waits, bool sourced,
                         bool pickled);

  // The source, meta and bytes of the next message that a receive would get; None if there is none, or, where this
  // waits, it fails after so many seconds.
  nb::object probe(int source, int64_t tag, const std::string& text, double seconds, bool waits);

  bool quick = true;            // whether the fast path may be taken
  uint64_t fast = 0, slow = 0;  // messages that went the fast path, and others; by Python's lock

  // Messages and bytes that were sent to a peer, and that have come from it.
  using Moved = std::tuple<uint64_t, uint64_t, uint64_t, uint64_t>;
  Moved moved(int peer) const;

  void flush();  // as those of Mailbox
  void close();

  std::array<nb::object*, 2> held() { return {&session_, &explain_}; }
  std::array<nb::object*, 1> spare() { return {&explain_}; }

 private:
  friend class MessageRequest;

  template <class Begin>
  nb::object begin(const std::string& text, double seconds, int kind, const Begin& begin);
  // What a handler has caught.
  nb::object explained(const std::string& text, double seconds, bool touched = false);
  Session& session() const { return *nb::inst_ptr<Session>(session_); }
  Mailbox& mailbox() const { return session().endpoint().mailbox(); }
  bool forked() const { return forks() != born_; }  // this is a child of the rank: nothing here is its own

  nb::object session_;
  const Formats formats_;
  nb::object explain_;
  const std::shared_ptr<Retired> retired_ = std::make_shared<Retired>();
  const int born_;
};

// A message in flight.
class MessageRequest {
 public:
  enum Kind { known, open, open_object };  // open: receives into a new array

  MessageRequest(nb::object owner, Mailbox::Ticket ticket, std::string text, double seconds, Deadline until, Kind kind)
      : owner_(std::move(owner)),
        ticket_(std::move(ticket)),
        text_(std::move(text)),
        seconds_(seconds),
        until_(until),
        kind_(kind) {}
  ~MessageRequest();

  // The result, or its error is raised, by the deadline of the call or `within` seconds, if that is sooner; then the
  // message is given up. Any number of threads may wait for one.
  nb::object wait(std::optional<double> within);
  bool over();  // whether wait() would return, or raise, at once
  const std::string& text() const { return text_; }
  int source() const;  // -1 where it has received nothing
  bool writes();       // whether the caller's array may be written while it is in flight

  std::array<nb::object*, 5> held() { return {&owner_, &memory_, &array_, &result_, &error_}; }
  std::array<nb::object*, 4> spare() { return {&memory_, &array_, &result_, &error_}; }

 private:
  friend class Messages;
  using Settling = std::unique_lock<std::mutex>;

  Messages& messages() const { return *nb::inst_ptr<Messages>(owner_); }
  Mailbox& mailbox() const { return messages().mailbox(); }
  Settling settle();
  void accept(const Envelope& envelope);
  void end(nb::object error);

  nb::object owner_;  // the Messages
  const Mailbox::Ticket ticket_;
  const std::string text_;
  const double seconds_;
  const Deadline until_;
  const Kind kind_;
  // Of a receive: the contiguous memory that the message comes in, the array that it is for, and what is given back.
  nb::object memory_, array_, result_ = nb::none();
  nb::object error_;
  std::atomic<bool> over_{false};  // the result or the error is there, for good
  std::mutex settling_;
};

void bind_messages(nb::module_& m);

}  // namespace hocket
