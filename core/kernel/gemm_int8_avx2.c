#include "core/kernel/gemm_int8_simd.h"

const struct gemm_int8_ops gemm_int8_avx2 = GEMM_INT8_OPS;
