/* The reference: the sums of sparse.h, one number at a time. */
#include "core/kernel/sparse.h"

#include "core/kernel/scalar.h"
#include "core/kernel/sparse_keys.h"

#define KERNEL(name, get)                                               \
    static void name(const struct sparse *s)                            \
    {                                                                   \
        for (size_t i = 0; i < s->n; i++)                               \
            for (size_t c = 0; c < s->cols; c++)                        \
                s->y[c] += s->v[i] * get(s->w, s->idx[i] * s->ldw + c); \
    }

KERNEL(bf16, get_bf16)
KERNEL(f16, get_f16)
KERNEL(f32, get_f32)

static uint64_t
outside(const float *x, size_t n, float lo, float hi)
{
    uint64_t bits = 0;

    for (size_t i = 0; i < n; i++)
        bits |= (uint64_t) !(x[i] >= lo && x[i] <= hi) << i;
    return bits;
}

const struct sparse_ops sparse_scalar = {
    .bf16 = bf16,
    .f16 = f16,
    .f32 = f32,
    .outside = outside,
    .keys = keys_each,
    .over = keys_over,
    .between = keys_between,
};
