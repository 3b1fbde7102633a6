// Reductions by what users give: NumPy's ufuncs, and functions of Python's.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hocket {

namespace nb = nanobind;

// An operator on elements of one dtype. Where a ufunc has a loop over these, that is called; everything else is called
// as f(a, b, out), with arrays that are its own: it may keep them, and then gets others the next time.
class Custom {
 public:
  // `elementwise`, as ufuncs are: out may be a or b. `raises`: its loop may set an error of Python's, and is called
  // with Python's lock.
  Custom(nb::object function, nb::object dtype, bool elementwise, bool raises);

  // to = sources[0] op ... op sources[k-1], `count` elements; `to` may be one of the sources. Throws what Python
  // raises.
  void fold(void* to, const void* const* sources, size_t k, size_t count);

  // Whether it is a function of Python's, which may take any time.
  bool slow() const { return loop_ == nullptr; }

 private:
  using Loop = void (*)(char** operands, const intptr_t* count, const intptr_t* steps, void* data);

  void find_loop();
  void loop(const void* a, const void* b, void* out, size_t count);
  void call(const void* a, const void* b, void* out, size_t count);
  nb::object& array(int which, size_t count);

  nb::object function_, dtype_;
  bool elementwise_, raises_;
  size_t itemsize_, alignment_;
  Loop loop_ = nullptr;
  void* data_ = nullptr;  // the loop's own
  std::vector<std::byte> scratch_;
  std::array<nb::object, 3> arrays_;  // a, b and out of the last call
};

void bind_custom(nb::module_& m);

}  // namespace hocket
