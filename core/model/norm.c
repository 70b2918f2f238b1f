/* SPDX-License-Identifier: ISC */
#include "core/model/norm.h"

#include <math.h>
#include <string.h>

#include "core/kernel/vec.h"

void
norm_bind(struct norm *norm, const struct norm_kind *kind, float *weight,
          const float *bias, size_t n_sets, size_t n, float eps)
{
    for (size_t i = 0; kind->plus_one && i < n_sets * n; i++)
        weight[i] += 1;
    *norm = (struct norm){ kind->form, weight, bias, n, eps, n_sets };
}

/* Where the numbers of row i's set begin in weight and bias. */
static size_t
set_of(const struct norm *norm, size_t i)
{
    return norm->n_sets > 1 ? i % norm->n_sets * norm->n : 0;
}

struct task {
    const struct norm *norm;
    float *y;
    const float *x;
    const size_t *from; /* NULL: row i of x is row i of y */
};

static void
run(void *ctx, size_t begin, size_t end)
{
    const struct task *t = ctx;
    const struct norm *norm = t->norm;
    size_t n = norm->n;

    for (size_t i = begin; i < end; i++) {
        const float *x = t->x + (t->from ? t->from[i] : i) * n;
        float *y = t->y + i * n;

        if (norm->form == NORM_NONE && y != x)
            memcpy(y, x, n * sizeof(*y));
        if (norm->form == NORM_SCALE)
            for (size_t k = 0; k < n; k++)
                y[k] = x[k] * norm->weight[k];
        if (norm->form == NORM_NONE || norm->form == NORM_SCALE)
            continue;
        if (norm->form == NORM_LAYER) {
            vec_center(y, x, n);
            x = y;
        }
        vec_rmsnorm(y, x, norm->weight + set_of(norm, i), norm->eps, n);
        if (norm->bias)
            vec_add(y, norm->bias + set_of(norm, i), n);
    }
}

void
norm_rows(struct par *par, const struct norm *norm, float *y, const float *x,
          const size_t *from, size_t n_rows)
{
    struct task task = { norm, y, x, from };

    par_for(par, n_rows, 1, run, &task);
}

struct back {
    const struct norm *norm;
    float *sum, *dy, *x;
};

static void
run_back(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    bool centers = b->norm->form == NORM_LAYER;
    size_t n = b->norm->n;

    for (size_t i = begin; i < end; i++) {
        float *x = b->x + i * n, *dy = b->dy + i * n, mean;
        const float *w = b->norm->weight;
        double r;

        if (centers)
            vec_center(x, x, n);
        if (w) {
            mean = vec_dot(x, x, n) / (float)n;
            r = 1 / sqrt((double)mean + (double)b->norm->eps);
            w += set_of(b->norm, i);
            for (size_t k = 0; k < n; k++)
                dy[k] *= w[k];
            mean = vec_dot(dy, x, n) / (float)n;
            vec_scale(dy, (float)r, n);
            vec_axpy(dy, (float)(-r * r * r * (double)mean), x, n);
        }
        if (centers)
            vec_center(dy, dy, n);
        if (b->sum)
            vec_add(b->sum + i * n, dy, n);
    }
}

void
norm_backward(struct par *par, const struct norm *norm, float *sum, float *dy,
              float *x, size_t n_rows)
{
    struct back back = { norm, sum, dy, x };

    par_for(par, n_rows, 4, run_back, &back);
}
