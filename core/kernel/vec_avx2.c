#include "core/kernel/vec_simd.h"

const struct vec_ops vec_avx2 = VEC_OPS;
