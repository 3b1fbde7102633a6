// The short way into a collective. The first call with given arguments goes the long way, through Python, where it is
// checked, planned and bound; what was bound is remembered under the look of its arguments, and the next call that
// looks the same finds it again here, in a fraction of a microsecond.
//
// All calls of a rank, long and short, take turns (queue.h). A short one is made where it can have the turn at once, or
// is queued if it is asynchronous; else it goes the long way, which always queues.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "python/jobs.h"
#include "transport/shm/endpoint.h"

namespace hocket {

namespace nb = nanobind;

// What a NumPy array looks like to a call. Only plain arrays have a look: contiguous, aligned, of at most four axes.
struct Look {
  PyObject* dtype = nullptr;  // by identity; null where there is no array
  int axes = 0;
  std::array<intptr_t, 4> shape{};
  bool operator==(const Look&) const = default;
};

// What the short way tells apart; src/hocket/short.py has the same list.
struct Method {
  enum : int {
    all_reduce,
    reduce,
    reduce_scatter,
    broadcast,
    scatter,
    all_gather,
    gather,
    all_to_all,
    barrier,
    send,
    recv
  };
};

// A call that needs only to be made.
struct Bound {
  Program& call() const { return *nb::inst_ptr<Program>(program); }

  nb::object program;
  uint64_t fingerprint = 0;
  const std::byte* inp = nullptr;
  std::byte* out = nullptr;
  nb::object alive, result;
};

class Messages;

class Calls {
 public:
  explicit Calls(SharedMemory& memory) : memory_(memory), entries_(size) {}
  ~Calls() { forget(); }

  // One collective call: enter, move, and leave only when every rank is known to have made the same call.
  void run(const Bound& bound, Deadline deadline);

  // The result if the call was made, within so many seconds; the object `miss` if it must go the long way.
  nb::object attempt(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle root, double within);

  // The same for an asynchronous call: what it gives back is the work, or `miss`. `fail` is as in forms.h.
  nb::object begin(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle root, double within,
                   nb::object fail);

  // Remembers the program of a call that has just gone the long way, if its arguments have a look. `result` is what it
  // gave back; `learns` is the rank that it was learnt from, or -1.
  void remember(int method, nb::handle x, nb::handle op, nb::handle out, int root, nb::handle result,
                nb::object program, uint64_t fingerprint, int learns);
  void forget();

  Jobs jobs;
  std::atomic<bool> enabled{true};  // false after an error, and once the group is closed
  double seconds = 30;              // how long a call may take
  Messages* messages = nullptr;     // those of the group, which are gone before these are

  static nb::object miss();

 private:
  struct Key {
    int method = -1, root = 0;
    PyObject* op = nullptr;
    Look x, out;
    bool shared = false;    // input and output overlap,
    intptr_t distance = 0;  // with the output this many bytes behind the input
    bool operator==(const Key&) const = default;
  };
  struct Entry {
    Key key;
    nb::object program;
    uint64_t fingerprint = 0;
    int learns = -1;     // the rank that alone could tell what call this is: only if it makes the same is it this one
    bool gives = false;  // gives back something: `out`, or a new array of `shape`
    Look result;
    std::shared_ptr<bool> awaited;  // as Jobs has it
    std::vector<nb::object> alive;  // what the pointers above point to
  };

  static constexpr size_t size = 256, ways = 8;
  static bool key_of(int method, nb::handle x, nb::handle op, nb::handle out, int root, Key& key);
  static nb::object fresh(const Look& look);
  Entry& place(const Key& key);
  const Entry* recall(int method, nb::handle x, nb::handle op, nb::handle out, nb::handle root, Bound& bound);

  SharedMemory& memory_;
  std::vector<Entry> entries_;
  size_t replaced_ = 0;
};

void set_error(const Failure& failure);
nb::object caught();  // Python's error for what a handler has caught

void bind_calls(nb::module_& m);
void bind_forms(nb::module_& m);
void bind_door(nb::module_& m);

}  // namespace hocket
