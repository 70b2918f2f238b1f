#include "core/kernel/mix_simd.h"

const struct mix_ops mix_avx512 = MIX_OPS;
