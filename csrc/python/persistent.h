// A call that is made again and again.
#pragma once

#include "python/session.h"

namespace hocket {

// Makes a prepared call; `again` makes it the slow path, as always where there is nothing prepared.
struct Persistent {
  Session& session;  // alive as long as `owner`
  nb::object owner;
  Prepared prepared;
  nb::object again;

  nb::object call();
  std::vector<nb::object*> held();
  std::vector<nb::object*> spare() { return {&again}; }  // without which it makes no call
};

}  // namespace hocket
