#include "kernels/reduce_kernels.h"

namespace hocket::base {

Fold find_fold(Dtype dtype, Op op) { return find(dtype, op); }

}  // namespace hocket::base
