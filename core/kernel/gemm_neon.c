#include "core/kernel/gemm_simd.h"

const struct gemm_ops gemm_neon = GEMM_OPS;
