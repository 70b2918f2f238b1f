#include "core/kernel/gemm_pack_simd.h"
#include "core/kernel/gemm_simd.h"

const struct gemm_ops gemm_neon = { GEMM_EXACT_OPS, GEMM_PACK_OPS };
