#include "core/kernel/gemm_simd.h"

const struct gemm_ops gemm_avx2 = GEMM_OPS;
