/* SPDX-License-Identifier: ISC */
/* --bench: what each step costs, on the first batch of x. */
#include <stdlib.h>

#include "cmd/lut-apply/apply.h"
#include "core/clock.h"
#include "core/kernel/sums.h"
#include "core/mem.h"
#include "core/str.h"

#define ROUNDS 7

enum { ENCODE, TOPK, SCREEN, COMBINE, COMPENSATE, ALL, DENSE, STEPS };

static const char *const names[] = { "encode",  "top-k",        "screened",
                                     "combine", "compensation", "table",
                                     "layer" };

struct bench {
    struct apply_run *run;
    size_t n;
    float *p;      /* [n, n_basis] */
    uint64_t *key; /* top-k's */
    uint32_t *idx;
    float *v;
};

static void
topk_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct bench *b = ctx;
    const struct latents *l = &b->run->table.latents;
    size_t cap = topk_cap(l->k);
    uint64_t *key = b->key + (size_t)thread * 2 * cap;
    uint32_t *idx = b->idx + (size_t)thread * l->k;
    float *v = b->v + (size_t)thread * l->k;
    struct topk top;
    bool bad = false;

    for (size_t i = begin; i < end; i++) {
        const float *p = b->p + i * l->w.n;

        if (l->thresholds) {
            select_over(idx, v, p, l->thresholds, l->w.n, &bad);
            continue;
        }
        topk_start(&top, key, key + cap, l->k);
        topk_put(&top, p, 0, l->w.n);
        topk_take(&top, idx, v);
    }
}

static void
step(struct bench *b, int which)
{
    struct apply_run *r = b->run;
    const struct table *t = &r->table;
    const struct gemm_job encode = { /* table_encode() but for its top-k */
                                     .w = t->latents.w,
                                     .c = b->p,
                                     .ldc = t->n_basis,
                                     .end = { .bias = t->latents.bias }
    };

    switch (which) {
    case ENCODE:
        gemm_exact(r->gemm, &encode, 1, r->x, t->in, b->n);
        break;
    case TOPK:
        par_for_thread(r->par, b->n, 1, topk_rows, b);
        break;
    case SCREEN:
        table_encode(r->work, t, r->x, t->in, b->n, 0);
        table_select(r->work, t, b->n);
        break;
    case COMBINE:
        table_combine(r->work, t, r->y, t->out, b->n);
        break;
    case COMPENSATE:
        table_compensate(r->work, t, &r->fix, r->y, t->out, r->x, t->in, b->n,
                         0);
        break;
    case ALL:
        table_apply(r->work, t, &r->fix, r->y, t->out, r->x, t->in, b->n, 0);
        break;
    default:
        table_dense(r->gemm, t, r->dense, t->out, r->x, t->in, b->n);
    }
}

int
bench_main(struct apply_run *run, struct err *err)
{
    const struct table *t = &run->table;
    size_t threads = (size_t)par_threads(run->par);
    ssize_t n = row_input_rows(&run->input, run->x, run->batch, err);
    struct bench b = { .run = run, .n = n > 0 ? (size_t)n : 0 };
    double us[STEPS][ROUNDS];
    struct str s = { 0 };
    int rc = -1, whole = t->n_parts ? DENSE : ALL;

    if (n == 0)
        err_set(err, EX_DATAERR, "%s: has no rows", run->input.name);
    if (n <= 0)
        return -1;
    b.key = xcalloc(threads * 2 * topk_cap(t->latents.k), sizeof(*b.key));
    b.idx = xcalloc(threads * t->latents.k, sizeof(*b.idx));
    b.v = xcalloc(threads * t->latents.k, sizeof(*b.v));
    b.p = mem_big(b.n, t->n_basis * sizeof(float), "pre-activations", err);
    if (!b.p)
        goto out;
    step(&b, ALL); /* warms the caches */
    /* round by round, so that a busy moment does not slow one step alone */
    for (int i = 0; i < ROUNDS; i++)
        for (int k = 0; k < STEPS; k++) {
            double from = clock_s();

            step(&b, k);
            us[k][i] = 1e6 * (clock_s() - from) / (double)b.n;
        }
    for (int k = 0; k < STEPS; k++)
        qsort(us[k], ROUNDS, sizeof(double), by_f64);
    str_addf(&s, "step\trows\tus_per_row\tof_%s\n", names[whole]);
    for (int k = 0; k < STEPS; k++)
        if ((k != SCREEN || t->latents.screen) &&
            (k != COMPENSATE || run->fix.how != FIX_NONE) &&
            (k != DENSE || whole == DENSE))
            str_addf(&s, "%s\t%zu\t%.3f\t%.4f\n",
                     k == TOPK && t->latents.thresholds ? "threshold"
                                                        : names[k],
                     b.n, us[k][ROUNDS / 2],
                     us[k][ROUNDS / 2] / us[whole][ROUNDS / 2]);
    rc = out_write(run->cmd->out, s.s, s.n, err);
out:
    str_free(&s);
    mem_big_free(b.p, b.n, t->n_basis * sizeof(float));
    free(b.v);
    free(b.idx);
    free(b.key);
    return rc;
}
