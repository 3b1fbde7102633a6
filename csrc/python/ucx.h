// UCX for Python, where ranks agree on it while they meet.
#pragma once

#include <nanobind/nanobind.h>

namespace hocket {

void bind_ucx(nanobind::module_& m);

}  // namespace hocket
