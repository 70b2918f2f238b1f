#include "core/model/norm.h"

#include "core/kernel/vec.h"

struct task {
    const struct norm *norm;
    float *y;
    const float *x;
    const size_t *from; /* NULL: row i of x is row i of y */
};

static void
run(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;
    const struct norm *norm = t->norm;

    (void)thread;
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
