#include "core/kernel/gemv_simd.h"

const struct gemv_ops gemv_neon = GEMV_OPS;
