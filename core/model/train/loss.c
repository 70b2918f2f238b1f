/* SPDX-License-Identifier: ISC */
#include "core/model/train/loss.h"

#include <math.h>

#include "core/dtype.h"
#include "core/le.h"
#include "core/mem.h"

/* Sums are made of this many parts, added in their order. */
#define N_PARTS 256
#define GRAIN   ((size_t)16384) /* elements */

/* Sums of squares: of a - b, with the gradient of their mean; or of a. */
struct parts {
    const float *a, *b; /* b NULL: of a */
    uint16_t *grad;
    size_t n;
    double sum[N_PARTS];
};

static void
sum_part(void *ctx, size_t begin, size_t end)
{
    struct parts *p = ctx;
    size_t each = (p->n + N_PARTS - 1) / N_PARTS;

    for (size_t part = begin; part < end; part++) {
        size_t first = smaller(part * each, p->n);
        size_t last = smaller(first + each, p->n);
        double sum = 0;

        for (size_t i = first; i < last; i++) {
            double d = (double)p->a[i] - (p->b ? (double)p->b[i] : 0);

            sum += d * d;
            if (p->grad)
                put_le16(&p->grad[i],
                         f32_to_bf16((float)(2 * d / (double)p->n)));
        }
        p->sum[part] = sum;
    }
}

static double
sum_squares(struct parts *parts, struct par *par)
{
    double sum = 0;

    par_for(par, N_PARTS, 1, sum_part, parts);
    for (size_t i = 0; i < N_PARTS; i++)
        sum += parts->sum[i];
    return sum;
}

double
loss_mse(uint16_t *grad, const float *output, const float *target, size_t n,
         struct par *par)
{
    struct parts parts = { .a = output, .b = target, .grad = grad, .n = n };

    return sum_squares(&parts, par) / (double)n;
}

double
grad_norm(const float *grad, size_t n, struct par *par)
{
    struct parts parts = { .a = grad, .n = n };

    return sqrt(sum_squares(&parts, par));
}

double
clip_scale(double norm, double clip)
{
    double scale = clip / (norm + 1e-6);

    return clip > 0 && scale < 1 ? scale : 1;
}

struct addition {
    float *sum;
    const float *grad;
};

static void
add_chunk(void *ctx, size_t begin, size_t end)
{
    const struct addition *a = ctx;

    for (size_t i = begin; i < end; i++)
        a->sum[i] += a->grad[i];
}

void
grad_add(float *sum, const float *grad, size_t n, struct par *par)
{
    struct addition a = { sum, grad };

    par_for(par, n, GRAIN, add_chunk, &a);
}
