#include "core/kernel/gemv_simd.h"

const struct gemv_ops gemv_avx2 = GEMV_OPS;
