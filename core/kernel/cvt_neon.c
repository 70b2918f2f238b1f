#include "core/kernel/cvt_simd.h"

const struct cvt_ops cvt_neon = CVT_OPS;
