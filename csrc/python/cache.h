// Prepared calls, remembered by what they looked like. The first call with given arguments goes the slow path, through
// Python, where it is prepared; the next one that looks the same finds it here, in a fraction of a microsecond.
//
// Guarded by Python's lock.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "python/prepared.h"

namespace hocket {

// What a NumPy array looks like to a call. Only plain arrays have a look: contiguous, aligned, of at most four axes.
struct Look {
  PyObject* dtype = nullptr;  // by identity; null where there is no array
  int axes = 0;
  std::array<intptr_t, 4> shape{};
  bool operator==(const Look& other) const {
    return dtype == other.dtype && axes == other.axes &&
           std::equal(shape.begin(), shape.begin() + axes, other.shape.begin());
  }

  // False if `h` has none. None looks like no array.
  static bool of(nb::handle h, bool written, Look& look);
  nb::object fresh() const;  // a new array that looks so
};

// The methods that are told apart; src/hocket/calls/fastpath.py has the same list.
struct Method {
  enum : int {
    all_reduce,
    reduce,
    reduce_scatter,
    scan,
    exscan,
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

// The arguments of a call, as far as the fast path knows them.
struct Arguments {
  int method;
  nb::handle x, op, out, root;
  nb::object algorithm;  // None, or as `known` has it
  bool any_order;        // of the operands
  bool protects;         // `out`, if there is one

  // An algorithm as calls are told apart by it: equal names are one object, whoever spelled them.
  static nb::object known(nb::handle algorithm);
};

// What the name of an algorithm stands for, in the table of all names. That may be changed at any time, in every way
// that a dictionary knows. So it is asked each time, which may run anything: others may have keys of their own there.
struct Meaning {
  nb::object table, key, function;  // no table: there is no name
  bool holds() const;               // still
};

class Cache {
 public:
  Cache() : entries_(size) {}

  // Remembers a call with such arguments, if they have a look, for as long as the name of its algorithm means what it
  // `means` now. `learns` is the rank that it was learnt from, or -1.
  void remember(const Arguments& arguments, Meaning means, const Prepared& prepared, int learns);

  struct Found {
    Prepared prepared;
    int learns = -1;                // only if that rank makes the same call is it this one
    std::shared_ptr<bool> awaited;  // whether the last one like this was waited for at once; only where it is `later`
  };
  // A call that looks like these arguments, bound to them; false if none is remembered.
  bool recall(const Arguments& arguments, bool later, Found& found);

  void forget() { entries_.assign(size, Entry{}); }
  template <class Visit>
  int traverse(Visit visit);

 private:
  struct Key {
    int method = -1, root = 0;
    PyObject *op = nullptr, *algorithm = nullptr;
    bool any_order = false;
    Look x, out;
    bool shared = false;    // input and output overlap,
    intptr_t distance = 0;  // with the output this many bytes behind the input
    bool protects = false;
    bool operator==(const Key&) const = default;
    static bool of(const Arguments& arguments, Key& key);
  };
  struct Entry {
    Key key;
    nb::object program;
    Meaning means;
    uint64_t fingerprint = 0;
    int learns = -1;
    bool gives = false;  // gives back something: `out`, or a new array that looks like `result`
    Look result;
    std::shared_ptr<bool> awaited;
    std::vector<nb::object> alive;  // what the pointers above point to
  };

  static constexpr size_t size = 256, ways = 8;
  Entry& place(const Key& key);
  const Entry* find(const Key& key);

  std::vector<Entry> entries_;
  std::array<size_t, Method::recv + 1> last_{};  // of each method, where it was found
  size_t replaced_ = 0;
};

template <class Visit>
int Cache::traverse(Visit visit) {
  for (Entry& entry : entries_) {
    for (nb::object* each : {&entry.program, &entry.means.table, &entry.means.key, &entry.means.function}) {
      if (int stop = visit(each->ptr())) return stop;
    }
    for (nb::object& each : entry.alive) {
      if (int stop = visit(each.ptr())) return stop;
    }
  }
  return 0;
}

void import_numpy();  // throws what Python raises

}  // namespace hocket
