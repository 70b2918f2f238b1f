#include "core/kernel/mix_simd.h"

const struct mix_ops mix_neon = MIX_OPS;
