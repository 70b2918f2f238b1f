#include "core/kernel/sparse_simd.h"

const struct sparse_ops sparse_avx2 = SPARSE_OPS;
