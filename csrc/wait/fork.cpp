#include "wait/fork.h"

#include <pthread.h>

namespace hocket {

std::atomic<int> births{0};

namespace {

[[maybe_unused]] const int counted = pthread_atfork(nullptr, nullptr, [] { births.fetch_add(1); });

}  // namespace

}  // namespace hocket
