#include "transport/outbox/activity.h"

#include <algorithm>
#include <cstring>

#include "wait/failpoint.h"

namespace hocket {

void write(Seqlock<Outbox::Doing>& to, const std::string& text, Clock::time_point since) {
  Outbox::Doing now{};
  now.since = since.time_since_epoch().count();
  std::memcpy(now.text, text.data(), std::min<size_t>(text.size(), activity_bytes - 1));
  to.write(now);
  FAILPOINT(said);
}

bool read(const Seqlock<Outbox::Doing>& from, Activity& to) {
  Outbox::Doing now;
  const uint64_t version = from.version();
  if (!from.read(now) || from.version() != version) return false;
  to = {std::string(now.text, strnlen(now.text, activity_bytes)), Clock::time_point(Clock::duration(now.since)),
        version};
  return true;
}

}  // namespace hocket
