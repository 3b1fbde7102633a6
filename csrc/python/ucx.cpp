#include "python/ucx.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "transport/ucx/pipe.h"

namespace hocket {

namespace nb = nanobind;
using namespace nb::literals;

void bind_ucx(nb::module_& m) {
  nb::class_<ucx::Context>(m, "UcxContext")
      .def(nb::init<const std::string&, const std::string&>(), "path"_a, "transports"_a)
      .def_prop_ro("version", &ucx::Context::version)
      .def_prop_ro("path", &ucx::Context::path);
  nb::class_<ucx::Pipe, tcp::Pipe>(m, "Ucx")
      .def(nb::init<std::shared_ptr<ucx::Context>, int>(), "context"_a, "socket"_a)
      .def("address",
           [](const ucx::Pipe& self) {
             const std::string found = self.address();
             return nb::bytes(found.data(), found.size());
           })
      .def(
          "connect",
          [](ucx::Pipe& self, const nb::bytes& address) {
            return self.connect(std::string(address.c_str(), address.size()));
          },
          "address"_a)
      .def("greeted", &ucx::Pipe::greeted)
      .def("transports", &ucx::Pipe::transports)
      .def("close", &ucx::Pipe::close);
}

}  // namespace hocket
