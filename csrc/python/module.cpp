// The door between Python and the core: convert, release the GIL, call. Addresses cross as integers; the Python side
// keeps the arrays alive.

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "engine/engine.h"
#include "kernels/reduce.h"
#include "python/convert.h"
#include "python/custom.h"
#include "python/gil.h"
#include "python/messages.h"
#include "python/requests.h"
#include "python/session.h"
#include "python/tls.h"
#include "python/ucx.h"
#include "transport/endpoint.h"
#include "transport/tcp/fallback.h"
#include "transport/tcp/stripes.h"

namespace hocket {

using namespace nb::literals;

namespace {

using SendRow =
    std::tuple<uint32_t, uint32_t, int, uint64_t, uint64_t, std::vector<int32_t>, int32_t, bool, bool, int32_t, bool>;
using SourceRow = std::tuple<int32_t, uint32_t, int, uint64_t>;
using ReceiveRow =
    std::tuple<uint32_t, int, uint64_t, uint64_t, std::vector<SourceRow>, bool, std::vector<int32_t>, int32_t>;

Place place(int buffer, uint64_t offset) { return {static_cast<Buffer>(buffer), offset}; }

CustomFold custom_fold(nb::object custom) {
  if (custom.is_none()) return {};
  return [custom, &operation = nb::cast<Custom&>(custom)](void* to, const void* const* sources, size_t k,
                                                          size_t count) { operation.fold(to, sources, k, count); };
}

void make_program(Program* self, const std::vector<SendRow>& sends, const std::vector<ReceiveRow>& receives,
                  std::vector<int32_t> unheard, std::vector<int32_t> untold, uint64_t segment, uint64_t tmp_bytes,
                  uint64_t itemsize, uint64_t divisor, bool signals, bool exposed, uint64_t writers, int dtype, int op,
                  nb::object custom, std::string text, std::shared_ptr<Meter> meter, uint64_t bytes,
                  std::shared_ptr<Trace> trace, int group) {
  new (self) Program{.sends = {},
                     .receives = {},
                     .segment = segment,
                     .tmp_bytes = tmp_bytes,
                     .itemsize = itemsize,
                     .divisor = divisor,
                     .signals = signals,
                     .unheard = std::move(unheard),
                     .untold = std::move(untold),
                     .kernels = op < 0 ? Kernels{} : find_kernels(static_cast<Dtype>(dtype), static_cast<Op>(op)),
                     .custom = custom_fold(custom),
                     .slow = !custom.is_none() && nb::cast<Custom&>(custom).slow(),
                     .exposed = exposed,
                     .inp_bytes = 0,
                     .out_bytes = 0,
                     .writers = writers,
                     .text = std::move(text),
                     .meter = std::move(meter),
                     .bytes = bytes,
                     .flows = {},
                     .trace = std::move(trace),
                     .traced = 0,
                     .scratch = {},
                     .protocols = {},
                     .sources = {}};
  for (const auto& [step, mark, buffer, offset, bytes, peers, after, staged, put, home, copied] : sends) {
    self->sends.push_back({step, mark, place(buffer, offset), bytes, peers, after, staged, put, home, copied});
  }
  for (const auto& [step, buffer, offset, bytes, rows, finished, before, answer] : receives) {
    std::vector<Source> sources;
    for (const auto& [peer, mark, from, at] : rows) sources.push_back({peer, mark, place(from, at)});
    self->receives.push_back({step, place(buffer, offset), bytes, std::move(sources), finished, before, answer});
  }
  measure(*self);
  if (self->trace) self->traced = self->trace->name(self->text.substr(0, self->text.find('\n')), group);
}

int64_t nanoseconds(Clock::duration duration) { return std::chrono::nanoseconds(duration).count(); }

void fold(int dtype, int op, int isa, uintptr_t to, uintptr_t also, const std::vector<uintptr_t>& sources, size_t count,
          uint64_t divisor) {
  std::vector<const void*> pointers;
  for (uintptr_t source : sources) pointers.push_back(pointer<const void>(source));
  find_kernels(static_cast<Dtype>(dtype), static_cast<Op>(op), static_cast<Isa>(isa))
      .fold(pointer<void>(to), pointer<void>(also), pointers.data(), pointers.size(), count, divisor);
}

// What ranks say of themselves need not be UTF-8.
nb::object decoded(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

nb::list survey(Endpoint& self, double patience, bool asks) {
  std::vector<Endpoint::Whereabouts> ranks;
  {
    const Unlocked unlocked;
    ranks = self.survey(std::chrono::milliseconds(static_cast<int64_t>(patience * 1000)), asks);
  }
  nb::list all;
  for (const auto& r : ranks) {
    all.append(nb::make_tuple(decoded(r.doing), r.seconds, r.call, decoded(r.title), r.left, r.gone, r.silent));
  }
  return all;
}

nb::list listed(const Ranks& ranks, int size) {
  nb::list all;
  for (int rank = 0; rank < size; ++rank) {
    if (ranks[static_cast<size_t>(rank)]) all.append(rank);
  }
  return all;
}

nb::object outcome(Endpoint& self) {
  if (!self.is_over()) return nb::none();
  const Settlement::Outcome o = self.outcome();
  return nb::make_tuple(static_cast<int>(o.failure.kind), o.failure.peer, decoded(o.failure.text),
                        listed(o.lost, self.size()), o.completed, o.reached, decoded(self.title_of(o.reached)));
}

nb::list notes(Endpoint& self) {
  nb::list all;
  for (const Outbox::Note& note : self.notes())
    all.append(nb::make_tuple(note.attempt, note.formed != 0, nb::bytes(note.card, note.bytes)));
  return all;
}

nb::tuple settle(Endpoint& self, int round, bool failed, const std::string& text, const std::vector<int>& lost,
                 double patience) {
  Ranks ranks;
  for (int rank : lost) ranks.set(static_cast<size_t>(rank));
  Settlement::Outcome o;
  {
    const Unlocked unlocked;
    o = self.settle(round, {failed ? Failure::peer_lost : Failure::timeout, -1, text}, ranks,
                    std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(patience)));
  }
  return nb::make_tuple(o.failure.kind != Failure::timeout, listed(o.lost, self.size()));
}

// None where there is nothing to be known.
nb::object as_tuple(const std::optional<Flight>& found) {
  if (!found) return nb::none();
  const Flight& f = *found;
  nb::list calls, waits, pids;
  for (const Flight::Call& c : f.calls) {
    const nb::object place = decoded(c.place);
    calls.append(
        nb::make_tuple(c.number, c.fingerprint, decoded(c.title), c.entered, c.left, c.failed, c.waited_for, place));
  }
  for (const Flight::Wait& w : f.waits) {
    waits.append(nb::make_tuple(decoded(w.title), w.begun, w.ended, decoded(w.place)));
  }
  for (int pid : f.pids) pids.append(pid);
  return nb::make_tuple(f.key, f.rank, f.pid, decoded(f.host), f.formed, pids, f.left, decoded(f.reason), f.waits_for,
                        decoded(f.doing), f.since, calls, waits);
}

PyObject* failure_type;

void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const Failure& failure) {
    set_error(failure);
  } catch (const Refusal& refusal) {
    set_error(refusal);
  }
}

}  // namespace

// A text may be another rank's, and need not be UTF-8.
void set_error(const Failure& failure) {
  const nb::object text = decoded(failure.text);
  if (!text.is_valid()) return;  // there is no memory, and that is the error
  const nb::tuple args = nb::make_tuple(static_cast<int>(failure.kind), failure.peer, text, failure.relayed);
  PyErr_SetObject(failure_type, args.ptr());
}

void set_error(const Refusal& refusal) {
  const nb::object type = nb::module_::import_("hocket.errors").attr("HocketError");
  PyErr_SetString(type.ptr(), refusal.text.c_str());
}

void restore_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const Failure& failure) {
    set_error(failure);
  } catch (const Refusal& refusal) {
    set_error(refusal);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

nb::object caught() {
  restore_error();
  return nb::borrow(nb::python_error().value());
}

namespace {

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a group that an uncaught error keeps alive until the very end is no leak
  m.doc() = "hocket's native core. Private: use hocket.Group.";

  failure_type = PyErr_NewException("hocket._core.Failure", PyExc_RuntimeError, nullptr);
  m.attr("Failure") = nb::steal(failure_type);
  m.attr("VERSION") = HOCKET_VERSION;
  m.attr("ATTEMPTS") = attempts;
  nb::register_exception_translator(translate);

  nb::class_<Program>(m, "Program")
      .def("__init__", &make_program, "sends"_a, "receives"_a, "unheard"_a, "untold"_a, "segment"_a, "tmp_bytes"_a,
           "itemsize"_a, "divisor"_a, "signals"_a, "exposed"_a, "writers"_a, "dtype"_a, "op"_a, "custom"_a.none(),
           "text"_a, "meter"_a, "bytes"_a, "trace"_a.none(), "group"_a);
  nb::class_<Trace>(m, "Trace")
      .def(nb::init<uint64_t>(), "most"_a)
      .def(
          "add",
          [](Trace& self, std::string title, int group, int64_t begun, bool failed) {
            const Clock::time_point since{std::chrono::nanoseconds(begun)};
            self.add({self.name(std::move(title), group), since, Clock::now(), {}, failed});
          },
          "title"_a, "group"_a, "begun"_a, "failed"_a)
      .def_prop_ro("events",
                   [](const Trace& self) {
                     nb::list all;
                     self.each([&](const Trace::Name& name, const Trace::Event& e) {
                       const auto begun = e.begun.time_since_epoch();
                       all.append(nb::make_tuple(name.title, name.group, nanoseconds(begun),
                                                 nanoseconds(e.ended - e.begun), nanoseconds(e.waited), e.failed));
                     });
                     return all;
                   })
      .def_prop_ro("dropped", &Trace::dropped);
  nb::class_<Traffic>(m, "Traffic")
      .def(nb::init<size_t>(), "size"_a)
      .def(
          "of",
          [](const Traffic& self, size_t peer) {
            const Traffic::Peer& p = self.peers.at(peer);
            return std::tuple(p.sent.get(), p.received.get());
          },
          "peer"_a);
  nb::class_<Meter>(m, "Meter")
      .def(nb::init<std::shared_ptr<Traffic>>(), "traffic"_a)
      .def_prop_ro("calls", [](const Meter& self) { return self.calls.get(); })
      .def_prop_ro("bytes", [](const Meter& self) { return self.bytes.get(); })
      .def_prop_ro("seconds", [](const Meter& self) { return static_cast<double>(self.nanoseconds.get()) * 1e-9; })
      .def_prop_ro("waiting", [](const Meter& self) { return static_cast<double>(self.waited.get()) * 1e-9; });

  nb::class_<Endpoint>(m, "Endpoint")
      .def(
          "__init__",
          [](Endpoint* self, int rank, const std::vector<int>& fds, const std::vector<int>& sockets,
             const std::vector<int>& pidfds, const std::vector<int>& events, uint64_t slots, uint64_t arena, int crowd,
             const std::vector<std::shared_ptr<tcp::Pipe>>& pipes, bool checked, double life) {
            new (self)
                Endpoint(rank, fds, sockets, pidfds, events, slots, arena, look_for_signals, crowd, pipes, checked,
                         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(life)));
          },
          "rank"_a, "fds"_a, "sockets"_a, "pidfds"_a, "events"_a, "slots"_a, "arena"_a, "crowd"_a, "pipes"_a,
          "checked"_a, "life"_a)
      .def_static("outbox_bytes", &Endpoint::outbox_bytes, "size"_a, "slots"_a, "arena"_a)
      .def_prop_ro("arena", [](const Endpoint& self) { return reinterpret_cast<uintptr_t>(self.arena()); })
      .def("give_back", &Endpoint::give_back, "begin"_a, "bytes"_a)
      .def("stage_all", &Endpoint::stage_all)
      .def("offer_all", &Endpoint::offer_all)
      .def(
          "end",
          [](Endpoint& self, int kind, int peer, const std::string& text) {
            const Unlocked unlocked;  // the ranks settle it
            self.end({static_cast<Failure::Kind>(kind), peer, text});
          },
          "kind"_a, "peer"_a, "text"_a)
      .def_prop_ro("completed", &Endpoint::completed)
      .def("outcome", &outcome)
      .def(
          "say_where",
          [](Endpoint& self, uint32_t attempt, bool formed, nb::bytes card) {
            self.say_where(attempt, formed, std::string(card.c_str(), card.size()));
          },
          "attempt"_a, "formed"_a, "card"_a)
      .def("notes", &notes)
      .def_prop_ro("absence",
                   [](const Endpoint& self) { return std::chrono::duration<double>(self.absence()).count(); })
      .def("absent", [](Endpoint& self) { return listed(self.absent(), self.size()); })
      .def("settle", &settle, "round"_a, "failed"_a, "text"_a, "lost"_a, "patience"_a)
      .def(
          "look",
          [](Endpoint& self, int peer, double within) {
            const Unlocked unlocked;
            self.check(peer, in(within));
          },
          "peer"_a, "within"_a)
      .def("survey", &survey, "patience"_a, "asks"_a)
      .def("sign", &Endpoint::sign, "group"_a, "host"_a, "pids"_a)
      .def(
          "flight",
          [](const Endpoint& self, int rank) {
            const std::optional<Flight> found = [&] {
              const Unlocked unlocked;
              return self.flight(rank);
            }();
            return as_tuple(found);
          },
          "rank"_a)
      .def("leave", &Endpoint::leave)
      .def("close", &Endpoint::close)
      .def("disown", &Endpoint::disown)
      .def(
          "disconnect",
          [](Endpoint& self, bool for_all) {
            const Unlocked unlocked;  // it may wait for a farewell
            self.disconnect(for_all);
          },
          "for_all"_a);

  nb::class_<tcp::Pipe>(m, "Pipe").def(nb::init<int>(), "socket"_a);
  nb::class_<tcp::Stripes, tcp::Pipe>(m, "Stripes").def(nb::init<std::vector<std::shared_ptr<tcp::Pipe>>>(), "pipes"_a);
  nb::class_<tcp::Fallback, tcp::Pipe>(m, "Fallback")
      .def(
          "__init__",
          [](tcp::Fallback* self, std::vector<std::shared_ptr<tcp::Pipe>> ways, double patience) {
            new (self) tcp::Fallback(std::move(ways), std::chrono::milliseconds(std::llround(1000 * patience)));
          },
          "ways"_a, "patience"_a)
      .def_prop_ro("way", &tcp::Fallback::goes_on);
  bind_tls(m);
  bind_ucx(m);
  bind_requests(m);
  bind_session(m);
  bind_persistent(m);
  bind_custom(m);
  bind_messages(m);
  bind_fastpath(m);

  m.def(
      "read_flight",
      [](int fd) {
        const std::optional<Flight> found = [&] {
          const Unlocked unlocked;
          return read_flight(fd);
        }();
        return as_tuple(found);
      },
      "fd"_a);
  m.def("fold", &fold, "dtype"_a, "op"_a, "isa"_a, "to"_a, "also"_a, "sources"_a, "count"_a, "divisor"_a);
  m.def("supported",
        [](int dtype, int op) { return find_kernels(static_cast<Dtype>(dtype), static_cast<Op>(op)).fold != nullptr; });
  m.def("isas", [] {
    std::vector<int> all;
    for (Isa isa : isas()) all.push_back(static_cast<int>(isa));
    return all;
  });
  m.def("kernels", [] { return name_of(isas().back()); });
  m.def("prefer_node", &prefer_node, "fd"_a, "bytes"_a, "node"_a);
}

}  // namespace
}  // namespace hocket
