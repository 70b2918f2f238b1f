#include "core/kernel/cvt_simd.h"

const struct cvt_ops cvt_avx2 = CVT_OPS;
