// What a rank is in, for others to tell: its call and its line of the program. It is written once a wait lasts, so that
// a call that does not wait for long pays nothing for it.
#pragma once

#include <string>

#include "transport/outbox/layout.h"
#include "wait/wait.h"

namespace hocket {

struct Activity {
  std::string text;  // empty: none that was told
  Clock::time_point since{};
  uint64_t version = 0;
};

// One thread writes, any thread of any rank reads. Of a long text the first part.
void write(Seqlock<Outbox::Doing>& to, const std::string& text, Clock::time_point since);
// False while it is being written.
bool read(const Seqlock<Outbox::Doing>& from, Activity& to);

}  // namespace hocket
