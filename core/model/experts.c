/* SPDX-License-Identifier: ISC */
#include "core/model/experts.h"

#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/router.h"

struct router
experts_router(const struct engine *e, const struct layer *l)
{
    return (struct router){ &e->model->config.router, e->experts.n,
                            e->experts.k, l->correction };
}

struct selecting {
    const struct experts_work *work;
    struct router router;
};

static void
select_experts(void *ctx, size_t begin, size_t end)
{
    const struct selecting *s = ctx;
    const struct experts_work *w = s->work;

    for (size_t i = begin; i < end; i++)
        router_select(&s->router, w->selected + i * w->k, w->weights + i * w->k,
                      w->scores + i * w->n);
}

void
experts_route(struct engine *e, const struct layer *l,
              const struct activations *a, size_t n_rows)
{
    const struct experts_work *w = &e->experts;
    struct selecting s = { w, experts_router(e, l) };

    /* which experts it is must not depend on a rounding that is asked for */
    linear_exact(e, &(struct apply){ &l->router, w->scores, false }, a->mlp_in,
                 n_rows);
    par_for(e->par, n_rows, 1, select_experts, &s);
    if (l->shared_router.out) {
        linear_exact(e, &(struct apply){ &l->shared_router, w->shared, false },
                     a->mlp_in, n_rows);
        vec_act(ACT_SIGMOID, w->shared, NULL, n_rows);
    }
    router_group(w->slots, w->first, w->selected, n_rows * w->k, w->n);
}

/* May their products share a call?  One that rounds looks at all weights' types
 * to choose how. */
static bool
are_alike(const struct mlp *a, const struct mlp *b)
{
    return a->gate.w.dtype == b->gate.w.dtype &&
           a->up.w.dtype == b->up.w.dtype && a->down.w.dtype == b->down.w.dtype;
}

/*
 * Rows x and their sums y, all of prompts or all generated.  As many experts as
 * there is room for share calls of products: one alone has too few rows for
 * many threads.
 */
static void
apply_rows(struct engine *e, const struct layer *l, const struct activations *a,
           float *y, const float *x, const float *weights, bool generated)
{
    const struct experts_work *w = &e->experts;
    size_t hidden = l->experts->gate.in, nbytes = hidden * sizeof(*x);
    size_t inter = l->experts->gate.out;

    for (size_t i = 0; w->first[i] < w->first[w->n];) {
        struct apply_some gate_up[GEMM_MAX_JOBS], down[GEMM_MAX_JOBS / 2];
        struct router_slots some = experts_slots(w, i);
        size_t first = w->first[i], n = 0;
        const struct mlp *m = NULL;

        for (; i < w->n && n < GEMM_MAX_JOBS / 2; i++) {
            size_t row = w->first[i] - first, n_rows = experts_slots(w, i).n;

            if (n_rows == 0)
                continue;
            if (row + n_rows > w->room || (m && !are_alike(m, &l->experts[i])))
                break;
            m = &l->experts[i];
            gate_up[2 * n] = (struct apply_some){
                { &m->gate, a->gate + row * inter, false }, row, n_rows
            };
            gate_up[2 * n + 1] = (struct apply_some){
                { &m->up, a->up + row * inter, false }, row, n_rows
            };
            down[n++] = (struct apply_some){
                { &m->down, w->y + row * hidden, false }, row, n_rows
            };
        }
        some.n = w->first[i] - first;
        router_gather(e->par, &some, w->x, nbytes, x, nbytes);
        linear_some(e, gate_up, 2 * n, w->x, some.n, generated);
        mlp_activate(e->par, e->model->config.form.act, a->gate, a->gate, a->up,
                     inter, inter, some.n);
        linear_some(e, down, n, a->gate, some.n, generated);
        router_scatter(e->par, &some, y, weights, w->y, hidden);
    }
}

void
experts_apply(struct engine *e, const struct layer *l,
              const struct activations *a, const struct chunk *chunk)
{
    const struct experts_work *w = &e->experts;
    size_t hidden = l->experts->gate.in;

    experts_route(e, l, a, chunk->n_rows);
    memset(a->mlp_out, 0, chunk->n_rows * hidden * sizeof(*a->mlp_out));
    for (size_t i = 0; i < chunk->n_spans;) {
        const struct span *span = &chunk->spans[i];
        size_t n_rows = linear_alike(e, chunk, &i), at = span->row;

        if (n_rows < chunk->n_rows)
            router_group(w->slots, w->first, w->selected + at * w->k,
                         n_rows * w->k, w->n);
        apply_rows(e, l, a, a->mlp_out + at * hidden, a->mlp_in + at * hidden,
                   w->weights + at * w->k, span->generated);
    }
}
