#include "core/model/train/loss.h"

#include <math.h>

#include "core/dtype.h"
#include "core/le.h"

/* Sums are made of this many parts, added in their order. */
#define N_PARTS 256
#define GRAIN   ((size_t)16384) /* elements */

/* What the parts of a sum see. */
struct parts {
    const float *a, *b;
    uint16_t *grad;
    size_t n;
    double sum[N_PARTS];
};

static size_t
part_begin(size_t n, size_t part)
{
    size_t each = (n + N_PARTS - 1) / N_PARTS;

    return part * each < n ? part * each : n;
}

static double
add_parts(struct parts *parts, struct par *par,
          void (*fn)(void *ctx, size_t begin, size_t end, int thread))
{
    double sum = 0;

    par_for(par, N_PARTS, 1, fn, parts);
    for (size_t i = 0; i < N_PARTS; i++)
        sum += parts->sum[i];
    return sum;
}

static void
mse_part(void *ctx, size_t begin, size_t end, int thread)
{
    struct parts *p = ctx;

    (void)thread;
    for (size_t part = begin; part < end; part++) {
        double sum = 0;

        for (size_t i = part_begin(p->n, part); i < part_begin(p->n, part + 1);
             i++) {
            double d = (double)p->a[i] - (double)p->b[i];

            sum += d * d;
            put_le16(&p->grad[i], f32_to_bf16((float)(2 * d / (double)p->n)));
        }
        p->sum[part] = sum;
    }
}

double
loss_mse(uint16_t *grad, const float *output, const float *target, size_t n,
         struct par *par)
{
    struct parts parts = { .a = output, .b = target, .grad = grad, .n = n };

    return add_parts(&parts, par, mse_part) / (double)n;
}

static void
square_part(void *ctx, size_t begin, size_t end, int thread)
{
    struct parts *p = ctx;

    (void)thread;
    for (size_t part = begin; part < end; part++) {
        double sum = 0;

        for (size_t i = part_begin(p->n, part); i < part_begin(p->n, part + 1);
             i++)
            sum += (double)p->a[i] * (double)p->a[i];
        p->sum[part] = sum;
    }
}

double
grad_norm(const float *grad, size_t n, struct par *par)
{
    struct parts parts = { .a = grad, .n = n };

    return sqrt(add_parts(&parts, par, square_part));
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
add_chunk(void *ctx, size_t begin, size_t end, int thread)
{
    const struct addition *a = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        a->sum[i] += a->grad[i];
}

void
grad_add(float *sum, const float *grad, size_t n, struct par *par)
{
    struct addition a = { sum, grad };

    par_for(par, n, GRAIN, add_chunk, &a);
}
