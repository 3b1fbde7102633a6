// Long, because a message in flight needs all of this: what it keeps alive, its text, its result, and the fast path.
#include "python/messages.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#include <numpy/arrayobject.h>

#include <charconv>
#include <cmath>
#include <cstring>

#include "python/convert.h"
#include "python/gil.h"
#include "python/in_call.h"
#include "python/traverse.h"
#include "wait/fork.h"

namespace hocket {

using namespace nb::literals;

namespace {

constexpr std::string_view object_meta = "object[";  // what bytes of an object say instead of a dtype
constexpr unsigned patience = 128;                   // turns of a wait, which does not sleep in so few,
constexpr std::chrono::microseconds a_moment{200};   // nor for so long; of what takes longer others are told

nb::handle request_type;

nb::object miss() { return nb::borrow(Py_NotImplemented); }

PyArrayObject* array(nb::handle h) { return reinterpret_cast<PyArrayObject*>(h.ptr()); }
std::byte* data(nb::handle h) { return static_cast<std::byte*>(PyArray_DATA(array(h))); }
uint64_t bytes_of(nb::handle h) { return static_cast<uint64_t>(PyArray_NBYTES(array(h))); }

// Whether the memory of `h` can be sent, or received into, as it is.
bool is_plain(nb::handle h, bool written) {
  return PyArray_CheckExact(h.ptr()) &&
         PyArray_CHKFLAGS(array(h), NPY_ARRAY_C_CONTIGUOUS | (written ? NPY_ARRAY_WRITEABLE : 0));
}

}  // namespace

// ---- what operations keep alive -------------------------------------------------------------------------------------

Mailbox::Memory Retired::hold(const std::shared_ptr<Retired>& list, nb::handle object) {
  return Mailbox::Memory(new Held{nb::borrow(object), list}, [](void* pointer) {
    Held* const held = static_cast<Held*>(pointer);
    const std::shared_ptr<Retired> list = std::move(held->list);
    held->before = list->last_.load(std::memory_order_relaxed);
    while (!list->last_.compare_exchange_weak(held->before, held, std::memory_order_release)) {
    }
  });
}

void Retired::let_go() {
  if (last_.load(std::memory_order_relaxed) == nullptr) return;
  for (Held* held = last_.exchange(nullptr, std::memory_order_acquire); held != nullptr;) {
    Held* const before = held->before;
    delete held;
    held = before;
  }
}

// ---- dtypes and shapes ----------------------------------------------------------------------------------------------

Formats::Formats(const nb::list& dtypes) {
  for (const nb::handle dtype : dtypes) {
    dtypes_.emplace_back(nb::borrow(dtype), nb::cast<std::string>(dtype.attr("name")));
  }
}

namespace {

// The text of a dtype and a shape; false if it is too long.
bool describe(const std::string& name, PyArrayObject* a, Glimpse& text) {
  char *at = text.text.data(), *const end = at + text.text.size();
  const auto put = [&](std::string_view part) {
    if (part.size() > static_cast<size_t>(end - at)) return false;
    at = std::copy(part.begin(), part.end(), at);
    return true;
  };
  if (!put(name) || !put("[")) return false;
  for (int axis = 0; axis < PyArray_NDIM(a); ++axis) {
    if (axis > 0 && !put(", ")) return false;
    const auto [to, error] = std::to_chars(at, end, PyArray_DIM(a, axis));
    if (error != std::errc()) return false;
    at = to;
  }
  if (!put("]")) return false;
  text.meta_bytes = static_cast<size_t>(at - text.text.data());
  return true;
}

struct Shape {
  int axes = 0;
  std::array<npy_intp, 64> lengths;  // as many as NumPy has
  uint64_t elements = 1;

  // Reads "3, 4]"; false where that makes no sense, or is too much for any memory.
  bool read(std::string_view text) {
    const char *at = text.data(), *const end = at + text.size();
    while (at != end && *at != ']') {
      npy_intp length = 0;
      const auto [to, error] = std::from_chars(at, end, length);
      if (error != std::errc() || length < 0 || axes == static_cast<int>(lengths.size())) return false;
      if (__builtin_mul_overflow(elements, static_cast<uint64_t>(length), &elements)) return false;
      lengths[axes++] = length;
      at = end - to > 2 && to[0] == ',' && to[1] == ' ' ? to + 2 : to;
    }
    return end - at == 1;
  }
};

}  // namespace

bool Formats::write(nb::handle h, Glimpse& text) const {
  const PyObject* const dtype = reinterpret_cast<PyObject*>(PyArray_DESCR(array(h)));
  for (const auto& [known, name] : dtypes_) {
    if (known.ptr() == dtype) return describe(name, array(h), text);
  }
  return false;
}

std::string Formats::of(nb::handle h) const {
  Glimpse text;
  for (const auto& [known, name] : dtypes_) {
    if (!PyArray_EquivTypes(reinterpret_cast<PyArray_Descr*>(known.ptr()), PyArray_DESCR(array(h)))) continue;
    if (!describe(name, array(h), text)) throw nb::value_error("an array of so many axes is too much for a message");
    return std::string(text.meta());
  }
  throw nb::type_error("a message cannot be of this dtype");
}

nb::object Formats::fresh(std::string_view meta, uint64_t bytes) const {
  const size_t bracket = meta.find('[');
  if (bracket == std::string_view::npos) return {};
  for (const auto& [dtype, name] : dtypes_) {
    if (name != meta.substr(0, bracket)) continue;
    Shape shape;
    uint64_t all;
    auto* const descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
    const auto itemsize = static_cast<uint64_t>(PyDataType_ELSIZE(descr));
    if (!shape.read(meta.substr(bracket + 1))) return {};
    if (__builtin_mul_overflow(shape.elements, itemsize, &all) || all != bytes) return {};
    Py_INCREF(descr);
    PyObject* made =
        PyArray_NewFromDescr(&PyArray_Type, descr, shape.axes, shape.lengths.data(), nullptr, nullptr, 0, nullptr);
    if (made == nullptr) throw nb::python_error();
    return nb::steal(made);
  }
  return {};
}

// ---- beginning ------------------------------------------------------------------------------------------------------

Messages::Messages(nb::object session, const nb::list& dtypes, nb::object explain)
    : session_(std::move(session)), formats_(dtypes), explain_(std::move(explain)), born_(forks()) {}

// Nobody waits for anything any more, so nothing needs to be kept alive.
Messages::~Messages() {
  if (!forked()) close();
}

nb::object Messages::send_now(nb::handle x, nb::handle to, nb::handle tag) {
  Glimpse text;
  const int destination = number(to), tagged = number(tag);
  if (!quick || !session().usable() || destination < 0 || tagged < 0 || !is_plain(x, false) ||
      !formats_.write(x, text)) {
    return miss();
  }
  // A lock is held while this copies, under Python's lock: no signal's handler can run there.
  const bool sent = mailbox().send_now(destination, tagged, text.meta(), data(x), bytes_of(x));
  fast += sent;
  return sent ? nb::none() : miss();
}

nb::object Messages::receive_now(nb::handle from, nb::handle out, nb::handle tag, bool& touched) {
  Glimpse text, wanted;
  const int source = number(from), tagged = number(tag);
  if (!quick || !session().usable() || source < 0 || tagged < 0) return miss();
  if (!out.is_none() && (!is_plain(out, true) || !formats_.write(out, wanted))) return miss();
  Mailbox& box = mailbox();
  Mailbox::Next next = box.next(source, tagged, text);
  if (next == Mailbox::nothing) {
    try {
      const Unlocked unlocked(session().endpoint().listens ? Unlocked::at_once : Unlocked::in_a_wait);
      Wait wait(session().endpoint(), Deadline::max());
      const Deadline soon = Clock::now() + a_moment;
      for (unsigned turn = 0; turn < patience && next == Mailbox::nothing && Clock::now() < soon; ++turn) {
        wait.idle(source);
        next = box.next(source, tagged, text);
      }
    } catch (const Failure&) {  // the slow path will find it too
      return miss();
    }
  }
  if (next != Mailbox::ready) return miss();
  nb::object result = nb::borrow(out);
  if (out.is_none()) {
    try {
      result = formats_.fresh(text.meta(), text.bytes);
    } catch (nb::python_error&) {  // no memory: the slow path will say so
      return miss();
    }
    if (!result.is_valid()) return miss();
  } else if (wanted.meta() != text.meta() || text.bytes != bytes_of(out)) {
    return miss();
  }
  if (!box.receive_now(source, tagged, text.meta(), data(result), text.bytes)) {
    touched = !out.is_none();
    return miss();
  }
  ++fast;
  return result;
}

nb::object Messages::explained(const std::string& text, double seconds, bool touched) {
  const nb::object explains = explain_;  // which may let go of itself
  if (!explains.is_valid()) throw Refusal{"this group is closed"};
  return with_python([&] { return explains(caught(), text, seconds, touched); });
}

namespace {

[[noreturn]] void raise(nb::handle error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  throw nb::python_error();
}

}  // namespace

// `begin` is without Python's lock: the mailbox may be busy for a while, or have no room.
template <class Begin>
nb::object Messages::begin(const std::string& text, double seconds, int kind, const Begin& begin) {
  const Deadline until = in(seconds);
  ++slow;
  Mailbox::Ticket ticket;
  const InCall in_call(session().endpoint(), session().place(), text, Clock::now());
  try {
    const Unlocked unlocked;
    ticket = begin(mailbox(), until);
  } catch (const Failure&) {
    raise(explained(text, seconds));
  }
  retired_->let_go();
  nb::object request = nb::inst_alloc(request_type);
  new (nb::inst_ptr<MessageRequest>(request))
      MessageRequest(nb::find(this), std::move(ticket), text, seconds, until, static_cast<MessageRequest::Kind>(kind));
  nb::inst_mark_ready(request);
  return request;
}

namespace {

nb::object outcome(nb::object made, bool waits, bool sourced = false) {
  if (!waits) return made;
  MessageRequest& request = *nb::inst_ptr<MessageRequest>(made);
  nb::object result = request.wait(std::nullopt);
  return sourced ? nb::make_tuple(result, request.source()) : result;
}

}  // namespace

nb::object Messages::send(nb::object x, int to, int64_t tag, const std::string& text, double seconds, bool waits,
                          bool pickled) {
  std::string meta = pickled ? std::string(object_meta) + std::to_string(bytes_of(x)) + "]" : formats_.of(x);
  Mailbox::Memory held = Retired::hold(retired_, x);
  nb::object made = begin(text, seconds, MessageRequest::known,
                          [&, from = data(x), bytes = bytes_of(x)](Mailbox& mailbox, Deadline until) {
                            return mailbox.send(to, tag, std::move(meta), from, bytes, until, std::move(held));
                          });
  return outcome(std::move(made), waits);
}

nb::object Messages::receive(int source, int64_t tag, nb::object memory, nb::object array, nb::object out,
                             const std::string& text, double seconds, bool waits, bool sourced) {
  std::string meta = formats_.of(memory);
  Mailbox::Memory held = Retired::hold(retired_, memory);
  nb::object made = begin(text, seconds, MessageRequest::known,
                          [&, to = data(memory), bytes = bytes_of(memory)](Mailbox& mailbox, Deadline) {
                            return mailbox.receive(source, tag, std::move(meta), to, bytes, std::move(held));
                          });
  MessageRequest& request = *nb::inst_ptr<MessageRequest>(made);
  request.memory_ = std::move(memory);
  request.array_ = std::move(array);
  request.result_ = std::move(out);
  return outcome(std::move(made), waits, sourced);
}

nb::object Messages::receive_new(int source, int64_t tag, const std::string& text, double seconds, bool waits,
                                 bool sourced, bool pickled) {
  const auto post = [&](Mailbox& mailbox, Deadline) { return mailbox.receive(source, tag); };
  const MessageRequest::Kind kind = pickled ? MessageRequest::open_object : MessageRequest::open;
  return outcome(begin(text, seconds, kind, post), waits, sourced);
}

nb::object Messages::probe(int source, int64_t tag, const std::string& text, double seconds, bool waits) {
  std::optional<Envelope> found;
  const InCall in_call(session().endpoint(), session().place(), text, Clock::now());
  try {
    const Unlocked unlocked;
    found = waits ? mailbox().probe(source, tag, in(seconds)) : mailbox().probe(source, tag);
  } catch (const Failure&) {
    raise(explained(text, seconds));
  }
  if (!found) return nb::none();
  return nb::make_tuple(found->source, found->meta, found->bytes);
}

Messages::Moved Messages::moved(int peer) const {
  const auto [sent, received] = mailbox().moved(peer);
  return {sent.messages, sent.bytes, received.messages, received.bytes};
}

void Messages::flush() {
  {
    const Unlocked unlocked;
    mailbox().flush();
  }
  retired_->let_go();
}

void Messages::close() {
  mailbox().close({Failure::interrupted, session().endpoint().rank(), "this group is closed"});
  retired_->let_go();
}

// ---- one message ----------------------------------------------------------------------------------------------------

MessageRequest::~MessageRequest() {
  if (kind_ != known && !over_ && !messages().forked()) mailbox().forget(ticket_);
}

MessageRequest::Settling MessageRequest::settle() {
  Settling lock(settling_, std::try_to_lock);
  if (!lock) {
    const Unlocked unlocked;
    lock.lock();
  }
  return lock;
}

nb::object MessageRequest::wait(std::optional<double> within) {
  if (messages().forked()) throw Refusal{Session::forked};
  if (within && std::isnan(*within)) throw nb::value_error("timeout is a number of seconds, not nan");
  if (!over_) {
    const Deadline deadline = within ? std::min(until_, in(*within)) : until_;
    const Session& session = messages().session();
    const InCall in_call(session.endpoint(), session.place(), text_, Clock::now());
    try {
      if (kind_ != known) {
        Envelope envelope;
        {
          const Unlocked unlocked;
          envelope = mailbox().arrival(ticket_, deadline);
        }
        accept(envelope);
      }
      {
        const Unlocked unlocked;
        mailbox().wait(ticket_, deadline);
      }
      end({});
    } catch (const Failure&) {
      end(messages().explained(text_, within.value_or(seconds_), writes() && Mailbox::touched(ticket_)));
    }
    messages().retired_->let_go();
  }
  nb::object result, error;
  {
    const Settling lock = settle();
    result = result_;
    error = error_;
  }
  if (error.is_valid()) raise(error);
  return result;
}

// Gives an open receive its memory: whichever of the threads that wait for it comes first.
void MessageRequest::accept(const Envelope& envelope) {
  nb::object made;
  {
    const Settling lock = settle();
    if (memory_.is_valid() || over_) return;
  }
  const bool is_object = envelope.meta.starts_with(object_meta);
  if (is_object != (kind_ == open_object)) {
    const std::string what = is_object ? "it sent an object: receive it with recv_object"
                                       : "it sent an array, " + envelope.meta + ": receive it with recv";
    mailbox().cancel(ticket_, {Failure::mismatch, envelope.source, what});
    return;  // the wait for it tells
  }
  try {
    const std::string meta = is_object ? "uint8" + envelope.meta.substr(object_meta.size() - 1) : envelope.meta;
    made = messages().formats_.fresh(meta, envelope.bytes);
  } catch (nb::python_error& error) {
    mailbox().cancel(ticket_, {Failure::internal, envelope.source, "there is no memory for what it sent"});
    return end(nb::borrow(error.value()));
  }
  if (!made.is_valid()) {
    mailbox().cancel(ticket_, {Failure::internal, envelope.source, "what it sent makes no sense: " + envelope.meta});
    return;  // the wait for it tells
  }
  const Settling lock = settle();
  if (memory_.is_valid() || over_) return;
  memory_ = result_ = made;
  Mailbox::Memory held = Retired::hold(messages().retired_, made);
  const Unlocked unlocked;  // what has come already is copied
  mailbox().accept(ticket_, data(made), std::move(held));
}

// The message has come, or it ended with this error. The first end is for good.
void MessageRequest::end(nb::object error) {
  nb::object memory, array;  // let go of when nothing is locked
  const Settling lock = settle();
  if (over_) return;
  std::swap(memory, memory_);
  std::swap(array, array_);
  if (!error.is_valid() && array.is_valid() && array.ptr() != memory.ptr() &&
      PyArray_CopyInto(reinterpret_cast<PyArrayObject*>(array.ptr()), reinterpret_cast<PyArrayObject*>(memory.ptr())) !=
          0) {
    error = nb::borrow(nb::python_error().value());
  }
  error_ = std::move(error);
  over_ = true;
}

bool MessageRequest::over() {
  if (over_) return true;
  if (messages().forked()) throw Refusal{Session::forked};
  bool done;
  {
    const Unlocked unlocked;
    done = mailbox().done(ticket_) || Clock::now() >= until_;
  }
  messages().retired_->let_go();
  return done;
}

bool MessageRequest::writes() {
  const Settling lock = settle();
  return array_.is_valid() && array_.ptr() == memory_.ptr();
}

int MessageRequest::source() const { return mailbox().source(ticket_).value_or(-1); }

void bind_messages(nb::module_& m) {
  if (_import_array() < 0) throw nb::python_error();
  request_type = nb::class_<MessageRequest>(m, "MessageRequest", nb::type_slots(slots_of<MessageRequest>))
                     .def("wait", &MessageRequest::wait, "timeout"_a.none() = nb::none())
                     .def_prop_ro("over", &MessageRequest::over)
                     .def_prop_ro("text", &MessageRequest::text)
                     .def_prop_ro("source", &MessageRequest::source)
                     .def_prop_ro("writes", &MessageRequest::writes);
  nb::class_<Messages>(m, "Messages", nb::type_slots(slots_of<Messages>))
      .def(nb::init<nb::object, const nb::list&, nb::object>(), "session"_a, "dtypes"_a, "explain"_a)
      .def("send", &Messages::send, "x"_a, "to"_a, "tag"_a, "text"_a, "seconds"_a, "waits"_a, "pickled"_a)
      .def("receive", &Messages::receive, "source"_a, "tag"_a, "memory"_a, "array"_a, "out"_a, "text"_a, "seconds"_a,
           "waits"_a, "sourced"_a)
      .def("receive_new", &Messages::receive_new, "source"_a, "tag"_a, "text"_a, "seconds"_a, "waits"_a, "sourced"_a,
           "pickled"_a)
      .def("probe", &Messages::probe, "source"_a, "tag"_a, "text"_a, "seconds"_a, "waits"_a)
      .def("moved", &Messages::moved, "peer"_a)
      .def_rw("quick", &Messages::quick)
      .def_ro("fast", &Messages::fast)
      .def_ro("slow", &Messages::slow)
      .def("flush", &Messages::flush)
      .def("close", &Messages::close);
}

}  // namespace hocket
