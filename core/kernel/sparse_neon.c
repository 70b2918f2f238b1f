#include "core/kernel/sparse_simd.h"

const struct sparse_ops sparse_neon = SPARSE_OPS;
