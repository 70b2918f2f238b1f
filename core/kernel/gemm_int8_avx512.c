#include "core/kernel/gemm_int8_simd.h"

const struct gemm_int8_ops gemm_int8_avx512 = GEMM_INT8_OPS;
