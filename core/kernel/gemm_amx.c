#include "core/kernel/ops.h"

const struct gemm_ops gemm_amx = { 0 };
