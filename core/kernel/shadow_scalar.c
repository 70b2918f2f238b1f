/* SPDX-License-Identifier: ISC */
/* The reference of a shadow's products and bounds. */
#include <float.h>
#include <math.h>

#include "core/kernel/ops.h"

static void
products(const struct shadow_args *a)
{
    for (size_t r = 0; r < a->rows; r++)
        for (size_t i = 0; i < a->n_x; i++) {
            const int8_t *w = a->w + r * a->cols;
            const int16_t *x = a->x + i * a->ldx;
            int32_t sum = 0;

            for (size_t c = 0; c < a->cols; c++)
                sum += w[c] * x[c];
            a->t[i * a->ldt + r] = (float)sum;
        }
}

static void
bound(const struct shadow_bound *b)
{
    for (size_t i = 0; i < b->width; i++)
        b->low[i] = -FLT_MAX;
    for (size_t i = 0; i < b->n; i++) {
        float *low = &b->low[i % b->width];
        float w = b->a * b->norm[i] + b->b * b->lost[i];

        b->u[i] = b->u[i] * b->x_scale * b->scale[i] + b->bias[i] + w;
        *low = fmaxf(*low, b->u[i] * b->shrink - b->twice * w);
    }
}

const struct shadow_ops shadow_scalar = { .products = products,
                                          .bound = bound };
