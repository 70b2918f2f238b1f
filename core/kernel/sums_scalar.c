/* SPDX-License-Identifier: ISC */
/* The reference: the sums of sums.h, one number at a time. */
#include "core/kernel/sums.h"

#include "core/kernel/keys.h"
#include "core/kernel/scalar.h"

INLINE float
weight_of(const struct weighted_sum *s, enum dtype t, size_t i)
{
    return s->native ? ((const float *)s->w)[i] : weight(s->w, t, i);
}

INLINE void
weighted_by(const struct weighted_sum *s, enum dtype t)
{
    for (size_t i = 0; i < s->n; i++) {
        const float *p = s->p + i * s->ldp;
        float *y = s->y + i * s->ldy;

        for (size_t c = 0; c < s->cols && !s->add; c++)
            y[c] = 0;
        for (size_t r = 0; r < s->rows; r++)
            for (size_t c = 0; c < s->cols; c++)
                y[c] = fmaf(p[r], weight_of(s, t, r * s->ldw + c), y[c]);
    }
}

static void
weighted(const struct weighted_sum *s)
{
    BY_DTYPE(weighted_by, s);
}

INLINE void
sparse_by(const struct sparse_sum *s, enum dtype t)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t c = 0; c < s->cols; c++)
            s->y[c] =
                fmaf(s->v[i], weight(s->w, t, s->idx[i] * s->ldw + c), s->y[c]);
}

static void
sparse(const struct sparse_sum *s)
{
    BY_DTYPE(sparse_by, s);
}

static uint64_t
outside(const float *x, size_t n, float lo, float hi)
{
    uint64_t bits = 0;

    for (size_t i = 0; i < n; i++)
        bits |= (uint64_t) !(x[i] >= lo && x[i] <= hi) << i;
    return bits;
}

const struct sums_ops sums_scalar = {
    .weighted = weighted,
    .sparse = sparse,
    .outside = outside,
    .keys = keys_each,
    .over = keys_over,
    .between = keys_between,
};
