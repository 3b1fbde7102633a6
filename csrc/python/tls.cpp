#include "python/tls.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <optional>

#include "transport/tcp/tls.h"
#include "wait/wait.h"

namespace hocket {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using tcp::Tls;

// Whether there was something to do; throws what Python raises for an error of the socket.
bool done(const Tls& tls, ssize_t n) {
  if (n >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
  if (errno == EPROTO) throw Refusal{"TLS: " + tls.why()};
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

std::optional<nb::bytes> read(Tls& tls, size_t most) {
  std::string data(most, '\0');
  iovec part{data.data(), most};
  const ssize_t n = tls.receive({&part, 1});
  if (!done(tls, n)) return std::nullopt;
  return nb::bytes(data.data(), static_cast<size_t>(n));
}

size_t write(Tls& tls, nb::bytes data) {
  iovec part{const_cast<void*>(data.data()), data.size()};
  const ssize_t n = tls.send({&part, 1});
  return done(tls, n) ? static_cast<size_t>(n) : 0;
}

}  // namespace

void bind_tls(nb::module_& m) {
  nb::class_<tcp::Credentials>(m, "Credentials")
      .def(nb::init<const std::string&, const std::string&, const std::string&>(), "certificate"_a, "key"_a,
           "authority"_a);
  nb::class_<Tls, tcp::Pipe>(m, "Tls")
      .def(
          "__init__",
          [](Tls* self, const tcp::Credentials& credentials, int socket, bool calls) {
            new (self) Tls(credentials, socket, calls ? Tls::Role::caller : Tls::Role::host);
          },
          "credentials"_a, "socket"_a, "calls"_a)
      .def("read", &read, "most"_a, nb::sig("def read(self, most: int) -> bytes | None"))
      .def("write", &write, "data"_a)
      .def("flush", &Tls::flush);
}

}  // namespace hocket
