// Which message goes to which receive: those that wait for one another, in the order in which they came.
//
// The rules are MPI's. A receive names a tag, and one source or any. Of the receives that want a message the first
// posted gets it; of the messages that a receive wants it gets the first that came. Of one source and tag, that is the
// order of sending.
//
// Invariant: no posted receive wants any unclaimed message. So a new message needs to be compared with receives only,
// and a new receive with messages only; and each with two queues at most: a posted receive stands in the queue of its
// (source, tag), where any source is one like others; an unclaimed message in two, that of its (source, tag) and that
// of (any, tag). Numbers tell which of two fronts came first. Nothing is ever searched for from end to end, but when a
// source breaks.
//
// Guarded by the mailbox's lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "messages/operation.h"

namespace hocket {

class Mailbox::Matching {
 public:
  bool empty() const { return posted_.empty() && unclaimed_.empty(); }

  // The receive that gets a new message, which is no longer posted then; null if there is none.
  Ticket receive_for(const Envelope& sent);
  // The message that a new receive gets, which is claimed then; null if there is none.
  std::shared_ptr<Arrival> message_for(int source, int64_t tag);
  // The same, but it is not claimed.
  const Arrival* first_for(int source, int64_t tag) const;

  // What found no partner waits for one.
  void post(const Ticket& receive);
  void keep(const std::shared_ptr<Arrival>& message);

  // What waits no longer.
  void remove(const Operation& receive);
  void remove(const Arrival& message);
  // The receives that are posted for this source and no other, or all of them; they no longer are.
  std::vector<Ticket> remove_receives(int source);
  std::vector<Ticket> remove_receives();

  // How many messages of `source`, or of any, are unclaimed, and of which tags.
  uint64_t unclaimed(int source, std::set<int64_t>& tags) const;

 private:
  struct Key {
    int source;
    int64_t tag;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t x = static_cast<uint64_t>(key.tag) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(key.source);
      x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
      return x ^ (x >> 32);
    }
  };
  // By number. A queue that is empty does not exist.
  template <class T>
  using Queues = std::unordered_map<Key, std::map<uint64_t, T>, Hash>;

  Queues<Ticket> posted_;
  Queues<std::shared_ptr<Arrival>> unclaimed_;
  uint64_t receives_ = 0, messages_ = 0;  // so far
};

}  // namespace hocket
