#include "messages/matching.h"

#include <utility>

namespace hocket {

namespace {

template <class Queues, class Key>
void erase(Queues& queues, const Key& key, uint64_t number) {
  const auto queue = queues.find(key);
  if (queue == queues.end()) return;
  queue->second.erase(number);
  if (queue->second.empty()) queues.erase(queue);
}

}  // namespace

Mailbox::Ticket Mailbox::Matching::receive_for(const Envelope& sent) {
  Ticket first;
  for (const int source : {sent.source, any_source}) {
    const auto queue = posted_.find({source, sent.tag});
    if (queue == posted_.end()) continue;
    const Ticket& front = queue->second.begin()->second;
    if (!first || front->number < first->number) first = front;
  }
  if (first) remove(*first);
  return first;
}

std::shared_ptr<Mailbox::Arrival> Mailbox::Matching::message_for(int source, int64_t tag) {
  const auto queue = unclaimed_.find({source, tag});
  if (queue == unclaimed_.end()) return nullptr;
  std::shared_ptr<Arrival> first = queue->second.begin()->second;
  remove(*first);
  return first;
}

const Mailbox::Arrival* Mailbox::Matching::first_for(int source, int64_t tag) const {
  const auto queue = unclaimed_.find({source, tag});
  return queue == unclaimed_.end() ? nullptr : queue->second.begin()->second.get();
}

void Mailbox::Matching::post(const Ticket& receive) {
  receive->number = ++receives_;
  posted_[{receive->peer, receive->tag}].emplace(receive->number, receive);
}

void Mailbox::Matching::keep(const std::shared_ptr<Arrival>& message) {
  message->number = ++messages_;
  const Envelope& sent = message->envelope;
  for (const int source : {sent.source, any_source}) unclaimed_[{source, sent.tag}].emplace(message->number, message);
}

void Mailbox::Matching::remove(const Operation& receive) {
  erase(posted_, Key{receive.peer, receive.tag}, receive.number);
}

void Mailbox::Matching::remove(const Arrival& message) {
  const Key key{message.envelope.source, message.envelope.tag};
  const uint64_t number = message.number;
  erase(unclaimed_, Key{any_source, key.tag}, number);
  erase(unclaimed_, key, number);  // the message may end here
}

std::vector<Mailbox::Ticket> Mailbox::Matching::remove_receives(int source) {
  std::vector<Ticket> removed;
  for (auto queue = posted_.begin(); queue != posted_.end();) {
    if (queue->first.source != source) {
      ++queue;
      continue;
    }
    for (const auto& [_, receive] : queue->second) removed.push_back(receive);
    queue = posted_.erase(queue);
  }
  return removed;
}

std::vector<Mailbox::Ticket> Mailbox::Matching::remove_receives() {
  std::vector<Ticket> removed;
  for (const auto& [_, queue] : std::exchange(posted_, {})) {
    for (const auto& [_, receive] : queue) removed.push_back(receive);
  }
  return removed;
}

uint64_t Mailbox::Matching::unclaimed(int source, std::set<int64_t>& tags) const {
  uint64_t number = 0;
  for (const auto& [key, queue] : unclaimed_) {
    if (key.source != source) continue;
    number += queue.size();
    tags.insert(key.tag);
  }
  return number;
}

}  // namespace hocket
