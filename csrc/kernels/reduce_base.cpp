#include "kernels/reduce_kernels.h"

namespace hocket::base {

Kernels find_kernels(Dtype dtype, Op op) { return find(dtype, op); }

}  // namespace hocket::base
