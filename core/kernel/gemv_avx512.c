#include "core/kernel/gemv_simd.h"

const struct gemv_ops gemv_avx512 = GEMV_OPS;
