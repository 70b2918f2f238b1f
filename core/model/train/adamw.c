/* SPDX-License-Identifier: ISC */
#include "core/model/train/adamw.h"

#include <math.h>

#include "core/kernel/f64.h"
#include "core/mem.h"

#define GRAIN ((size_t)16384) /* elements */

int
adamw_open(struct adamw *a, size_t n, struct err *err)
{
    a->n = n;
    a->master = mem_big(n, sizeof(float), "AdamW's parameters", err);
    a->m = mem_big(n, sizeof(float), "AdamW's first moments", err);
    a->v = mem_big(n, sizeof(float), "AdamW's second moments", err);
    if (a->master && a->m && a->v)
        return 0;
    adamw_close(a);
    return -1;
}

void
adamw_close(struct adamw *a)
{
    mem_big_free(a->master, a->n, sizeof(float));
    mem_big_free(a->m, a->n, sizeof(float));
    mem_big_free(a->v, a->n, sizeof(float));
    a->master = a->m = a->v = NULL;
}

struct adamw_rates
adamw_rates(const struct adamw *a, double scale, double lr, uint64_t t)
{
    return (struct adamw_rates){
        .scale = scale,
        .keep = 1 - lr * a->weight_decay,
        .size = lr / (1 - f64_pow(a->beta1, (double)t)),
        .correct = 1 / sqrt(1 - f64_pow(a->beta2, (double)t)),
    };
}

void
adamw_move(struct adamw *a, const struct adamw_rates *r, size_t first, size_t n,
           const float *grad)
{
    float *restrict w = a->master + first;
    float *restrict m = a->m + first;
    float *restrict v = a->v + first;

    for (size_t i = 0; i < n; i++) {
        double g = r->scale * (double)grad[i];
        double mi = a->beta1 * (double)m[i] + (1 - a->beta1) * g;
        double vi = a->beta2 * (double)v[i] + (1 - a->beta2) * g * g;
        double root = sqrt(vi) * r->correct + a->eps;

        m[i] = (float)mi;
        v[i] = (float)vi;
        w[i] = (float)(r->keep * (double)w[i] - r->size * mi / root);
    }
}

struct step {
    struct adamw *a;
    struct adamw_rates rates;
    size_t first;
    const float *grad;
};

static void
step_chunk(void *ctx, size_t begin, size_t end)
{
    const struct step *s = ctx;

    adamw_move(s->a, &s->rates, s->first + begin, end - begin,
               s->grad + s->first + begin);
}

void
adamw_step(struct adamw *a, size_t first, size_t n, const float *grad,
           double scale, double lr, uint64_t t, struct par *par)
{
    struct step s = { .a = a,
                      .rates = adamw_rates(a, scale, lr, t),
                      .first = first,
                      .grad = grad };

    par_for(par, n, GRAIN, step_chunk, &s);
}
