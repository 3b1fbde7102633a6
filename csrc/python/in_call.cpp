#include "python/in_call.h"

#include <nanobind/stl/string.h>

#include <algorithm>

#include "python/gil.h"

namespace hocket {

thread_local constinit InCall* InCall::current = nullptr;

void InCall::report() {
  if (!place_.is_valid()) return;
  std::string text = prepared_ != nullptr ? prepared_->title() : *text_;
  const uint64_t call = prepared_ != nullptr && endpoint_.number() != before_ ? endpoint_.number() : 0;
  if (call != 0) text += " (call " + std::to_string(call) + ")";
  const nb::object place = place_;  // which may let go of itself
  const nb::object where = with_python([&] { return place(); });
  told_ = true;
  endpoint_.report(this, call, text, nb::cast<std::string>(where), std::min(begun_, Clock::now()));
}

}  // namespace hocket
