// TLS for Python: what the ranks say to each other before they are linked goes the same way as what they say later.
#pragma once

#include <nanobind/nanobind.h>

namespace hocket {

void bind_tls(nanobind::module_& m);

}  // namespace hocket
