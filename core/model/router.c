#include "core/model/router.h"

#include <stdlib.h>

#include "core/kernel/vec.h"

struct task {
    float *p;
    uint32_t *chosen;
    size_t n, k;
    bool normalize;
};

static int
by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* One token's experts. */
static void
select_row(const struct task *t, float *p, uint32_t *chosen)
{
    float sum = vec_exp_sum(p, vec_max(p, t->n), t->n);

    for (size_t i = 0; i < t->n; i++)
        p[i] /= sum;
    vec_topk(chosen, t->k, p, t->n);
    sum = 0;
    for (size_t i = 0; i < t->k; i++)
        sum += p[chosen[i]];
    for (size_t i = 0; i < t->k && t->normalize; i++)
        p[chosen[i]] /= sum;
    qsort(chosen, t->k, sizeof(*chosen), by_id);
}

static void
run(void *ctx, size_t begin, size_t end, int thread)
{
    const struct task *t = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        select_row(t, t->p + i * t->n, t->chosen + i * t->k);
}

void
router_select(struct par *par, float *p, uint32_t *chosen, size_t n, size_t k,
              bool normalize, size_t n_rows)
{
    struct task task = { p, chosen, n, k, normalize };

    par_for(par, n_rows, 1, run, &task);
}
