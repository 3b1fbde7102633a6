#ifdef __x86_64__
#include "kernels/reduce_kernels.h"

namespace hocket::avx2 {

Fold find_fold(Dtype dtype, Op op) { return find(dtype, op); }

}  // namespace hocket::avx2
#endif
