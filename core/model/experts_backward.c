/* SPDX-License-Identifier: ISC */
#include "core/model/experts_backward.h"

#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/block_backward.h"
#include "core/model/engine.h"
#include "core/model/experts.h"
#include "core/model/lora.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/router.h"

/* A layer's rows, and those of them that one expert has. */
struct back {
    struct engine *e;
    const struct activations *a;
    const struct block_grads *g;
    const struct experts_work *work;
    size_t hidden;
    struct router router;
    const struct mlp *mlp; /* the expert */
    struct router_slots s;
    float *x, *dy, *dx; /* [n, hidden] */
    const float *grad;  /* of the layer's output, of all rows */
};

/* All has been of the output's gradient, without the slot's weight, whose
 * gradient that gives: down's product with h is down(h)'s with the output's. */
static void
weigh(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    const struct activations *a = b->a;
    const struct lora *lora = b->mlp->down.lora;
    const float *bias = b->mlp->down.bias;
    size_t n = b->mlp->down.in, rank = lora ? lora->a.out : 0;

    for (size_t i = begin; i < end; i++) {
        float weight = b->work->weights[b->s.slots[i]];
        float slope = vec_dot(b->g->inner + i * n, a->inner + i * n, n);

        if (bias)
            slope += vec_dot(b->dy + i * b->hidden, bias, b->hidden);
        b->g->weights[b->s.slots[i]] = slope;
        vec_scale(a->gate + i * n, weight, n);
        vec_scale(a->up + i * n, weight, n);
        vec_scale(b->dy + i * b->hidden, weight, b->hidden);
        vec_scale(b->g->low + i * rank, weight, rank);
    }
}

static void
back_adapter(const struct back *b, const struct linear *l, const float *x,
             const float *dy)
{
    block_grads_add(b->g, &(struct linear_grads){ .linear = l,
                                                  .x = x,
                                                  .dy = dy,
                                                  .low = b->g->low,
                                                  .n_rows = b->s.n,
                                                  .slots = b->s.slots,
                                                  .per_row = b->s.k });
}

static void
back_expert(struct back *b)
{
    struct engine *e = b->e;
    const struct activations *a = b->a;
    const struct block_grads *g = b->g;
    const struct mlp *m = b->mlp;
    size_t n = b->s.n, nbytes = b->hidden * sizeof(float);

    router_gather(e->par, &b->s, b->x, nbytes, a->mlp_in, nbytes);
    router_gather(e->par, &b->s, b->dy, nbytes, b->grad, nbytes);
    linear_rows(e,
                (struct apply[]){
                    { &m->gate, a->gate, false },
                    { &m->up, a->up, false },
                },
                2, b->x, n, false);
    linear_backward(e, &m->down, g->inner, false, b->dy, g->low, n);
    mlp_backward(e->par, e->model->config.form.act, a->inner, a->gate, a->up,
                 m->down.in, g->inner, m->down.in, n);
    par_for(e->par, n, 1, weigh, b);
    back_adapter(b, &m->down, a->inner, b->dy);
    linear_backward(e, &m->gate, b->dx, false, a->gate, g->low, n);
    back_adapter(b, &m->gate, b->x, a->gate);
    linear_backward(e, &m->up, b->dx, true, a->up, g->low, n);
    back_adapter(b, &m->up, b->x, a->up);
    router_scatter(e->par, &b->s, g->input, NULL, b->dx, b->hidden);
}

static void
back_router(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    const struct experts_work *w = b->work;

    for (size_t i = begin; i < end; i++)
        router_backward(&b->router, w->scores + i * w->n,
                        w->selected + i * w->k, w->weights + i * w->k,
                        b->g->weights + i * w->k);
}

void
experts_backward(struct engine *e, const struct layer *l,
                 const struct activations *a, const struct block_grads *g,
                 const float *dy, size_t n_rows)
{
    const struct config *c = &e->model->config;
    const struct experts_work *w = &e->experts;
    struct gemm_job router = linear_back_job(&l->router, g->input, true);
    struct back b = { .e = e,
                      .a = a,
                      .g = g,
                      .work = w,
                      .hidden = (size_t)c->hidden_size,
                      .router = experts_router(e, l),
                      .x = w->x,
                      .dy = w->y,
                      .dx = a->mlp_out,
                      .grad = dy };

    memset(g->input, 0, n_rows * b.hidden * sizeof(*g->input));
    for (size_t i = 0; i < w->n; i++) {
        b.mlp = &l->experts[i];
        b.s = experts_slots(w, i);
        back_expert(&b);
    }
    par_for(e->par, n_rows, 1, back_router, &b);
    /* exact, as its forward is */
    gemm_exact(e->gemm, &router, 1, w->scores, w->n, n_rows);
}
