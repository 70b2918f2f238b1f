#include "core/kernel/vec_simd.h"

const struct vec_ops vec_avx512 = VEC_OPS;
