#include "core/kernel/vec_simd.h"

const struct vec_ops vec_neon = VEC_OPS;
