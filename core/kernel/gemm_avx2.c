#include "core/kernel/gemm_pack_simd.h"
#include "core/kernel/gemm_simd.h"
#include "core/kernel/gemm_wide_simd.h"

const struct gemm_ops gemm_avx2 = {
    .exact = exact,
    .bf16 = bf16,
    .int8 = int8,
    GEMM_PACK_OPS,
};
