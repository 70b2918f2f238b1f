#include "core/model/experts.h"

#include <string.h>

#include "core/kernel/vec.h"
#include "core/model/block.h"
#include "core/model/engine.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/router.h"

/* The rows of a layer, and which of them are in the slots of one expert. */
struct layer_rows {
    const struct experts_work *work;
    bool normalize;
    size_t hidden;
    const float *x;        /* [rows, hidden] */
    float *sum;            /* [rows, hidden] of the experts so far */
    const uint32_t *slots; /* of the expert */
};

static void
select_experts(void *ctx, size_t begin, size_t end, int thread)
{
    const struct layer_rows *r = ctx;
    const struct experts_work *w = r->work;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        router_select(w->selected + i * w->k, w->weights + i * w->k, w->k,
                      w->probability + i * w->n, w->n, r->normalize);
}

static void
gather(void *ctx, size_t begin, size_t end, int thread)
{
    const struct layer_rows *r = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        memcpy(r->work->x + i * r->hidden,
               r->x + r->slots[i] / r->work->k * r->hidden,
               r->hidden * sizeof(*r->x));
}

/* A row is in at most one of an expert's slots. */
static void
scatter(void *ctx, size_t begin, size_t end, int thread)
{
    const struct layer_rows *r = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        vec_axpy(r->sum + r->slots[i] / r->work->k * r->hidden,
                 r->work->weights[r->slots[i]], r->work->y + i * r->hidden,
                 r->hidden);
}

void
experts_route(struct engine *e, const struct layer *l,
              const struct activations *a, size_t n_rows)
{
    const struct experts_work *w = &e->experts;
    struct layer_rows r = { .work = w,
                            .normalize = e->model->config.norm_topk_prob };

    /* which experts it is must not depend on a rounding that is asked for */
    linear_exact(e, &(struct apply){ &l->router, w->probability, false },
                 a->mlp_in, n_rows);
    par_for(e->par, n_rows, 1, select_experts, &r);
    router_group(w->slots, w->first, w->selected, n_rows * w->k, w->n);
}

void
experts_apply(struct engine *e, const struct layer *l,
              const struct activations *a, size_t n_rows)
{
    const struct config *c = &e->model->config;
    const struct experts_work *w = &e->experts;
    struct layer_rows r = { .work = w,
                            .hidden = (size_t)c->hidden_size,
                            .x = a->mlp_in,
                            .sum = a->mlp_out };

    experts_route(e, l, a, n_rows);
    memset(a->mlp_out, 0, n_rows * r.hidden * sizeof(*a->mlp_out));
    for (size_t i = 0; i < w->n; i++) {
        const struct mlp *m = &l->experts[i];
        size_t n = w->first[i + 1] - w->first[i];

        if (n == 0)
            continue;
        r.slots = w->slots + w->first[i];
        par_for(e->par, n, 1, gather, &r);
        linear_rows(e,
                    (struct apply[]){
                        { &m->gate, a->gate, false },
                        { &m->up, a->up, false },
                    },
                    2, w->x, n);
        mlp_activate(e->par, c->act, a->gate, a->gate, a->up, m->gate.out, n);
        linear_rows(e, &(struct apply){ &m->down, w->y, false }, 1, a->gate, n);
        par_for(e->par, n, 1, scatter, &r);
    }
}
