#include "core/kernel/gemm_bf16_simd.h"

const struct gemm_bf16_ops gemm_bf16_avx512 = GEMM_BF16_OPS;
