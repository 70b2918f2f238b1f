#include "core/model/mlp.h"

#include "core/kernel/vec.h"

void
mlp_activate(const struct config *c, float *gate, const float *up, size_t n)
{
    if (c->act == ACT_SILU)
        vec_silu_mul(gate, up, n);
    else
        vec_gelu_tanh_mul(gate, up, n);
}
