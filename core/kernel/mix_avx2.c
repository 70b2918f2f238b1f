#include "core/kernel/mix_simd.h"

const struct mix_ops mix_avx2 = MIX_OPS;
