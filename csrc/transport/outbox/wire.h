// What keeps the outbox of a rank that shares no memory with this one up to date here, and ours there.
//
// Such an outbox is a *mirror*: memory of this process that looks as the other rank's outbox does there, as far as it
// concerns this rank. All that reads and writes outboxes works on a mirror too; the one difference is that somebody has
// to carry what changes.
#pragma once

namespace hocket {

class Wire {
 public:
  virtual ~Wire() = default;
  // Sends what is new in our outbox, as far as it goes without waiting. Never throws.
  virtual void push() = 0;
  // Takes what has come, and sends what could not be sent before. Whether anything came. Never waits and never throws.
  virtual bool turn() = 0;
};

}  // namespace hocket
