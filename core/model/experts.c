/* SPDX-License-Identifier: ISC */
#include "core/model/experts.h"

#include <string.h>

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

/* Rows x and their sums y, all of prompts or all generated. */
static void
apply_rows(struct engine *e, const struct layer *l, const struct activations *a,
           float *y, const float *x, const float *weights, bool generated)
{
    const struct experts_work *w = &e->experts;
    size_t hidden = l->experts->gate.in, nbytes = hidden * sizeof(*x);

    for (size_t i = 0; i < w->n; i++) {
        const struct mlp *m = &l->experts[i];
        const struct router_slots s = experts_slots(w, i);

        if (s.n == 0)
            continue;
        router_gather(e->par, &s, w->x, nbytes, x, nbytes);
        linear_rows(e,
                    (struct apply[]){
                        { &m->gate, a->gate, false },
                        { &m->up, a->up, false },
                    },
                    2, w->x, s.n, generated);
        mlp_activate(e->par, e->model->config.form.act, a->gate, a->gate, a->up,
                     m->gate.out, m->gate.out, s.n);
        linear_rows(e, &(struct apply){ &m->down, w->y, false }, 1, a->gate,
                    s.n, generated);
        router_scatter(e->par, &s, y, weights, w->y, hidden);
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
