#include "core/model/norm.h"

#include <math.h>

#include "core/kernel/vec.h"

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

    for (size_t i = begin; i < end; i++) {
        size_t from = t->from ? t->from[i] : i;

        vec_rmsnorm(t->y + i * norm->n, t->x + from * norm->n, norm->weight,
                    norm->eps, norm->n);
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
    float *sum, *dy;
    const float *x;
};

static void
run_back(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    const float *w = b->norm->weight;
    size_t n = b->norm->n;

    for (size_t i = begin; i < end; i++) {
        const float *x = b->x + i * n;
        float *dy = b->dy + i * n, mean = vec_dot(x, x, n) / (float)n;
        double r = 1 / sqrt((double)mean + (double)b->norm->eps);

        for (size_t k = 0; k < n; k++)
            dy[k] *= w[k];
        mean = vec_dot(dy, x, n) / (float)n;
        vec_scale(dy, (float)r, n);
        vec_axpy(dy, (float)(-r * r * r * (double)mean), x, n);
        if (b->sum)
            vec_add(b->sum + i * n, dy, n);
    }
}

void
norm_backward(struct par *par, const struct norm *norm, float *sum, float *dy,
              const float *x, size_t n_rows)
{
    struct back back = { norm, sum, dy, x };

    par_for(par, n_rows, 4, run_back, &back);
}
