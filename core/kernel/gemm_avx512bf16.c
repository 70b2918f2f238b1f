#include "core/kernel/ops.h"

const struct gemm_ops gemm_avx512bf16 = { 0 };
