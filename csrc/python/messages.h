// Messages on the fast path: those of arrays that look like earlier ones, up to the length that goes in one piece.
#pragma once

#include <string>
#include <vector>

#include "python/session.h"

namespace hocket {

class Messages {
 public:
  explicit Messages(nb::object session) : session_(std::move(session)) {}

  // NotImplemented where it cannot be done at once. A receive waits for a few microseconds.
  nb::object send(nb::handle x, nb::handle to, nb::handle tag);
  nb::object receive(nb::handle from, nb::handle out, nb::handle tag);
  // Remembers what a message calls arrays that look like `x`.
  void know(nb::handle x, std::string meta);

 private:
  Session& session() const { return *nb::inst_ptr<Session>(session_); }

  struct Known {
    Look look;
    std::string meta;
    nb::object dtype;  // alive, for the look
  };
  static constexpr size_t most_known = 64;

  nb::object session_;
  std::vector<Known> known_;
};

void bind_messages(nb::module_& m);

}  // namespace hocket
