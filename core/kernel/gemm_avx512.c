#include "core/kernel/gemm_simd.h"

const struct gemm_ops gemm_avx512 = GEMM_OPS;
