#include "core/model/experts.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/activations.h"
#include "core/model/engine.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/router.h"

struct experts_work {
    size_t n, k;        /* experts, those of a token */
    float *probability; /* [chunk, n] */
    uint32_t *chosen;   /* [chunk, k] */
    float *weights;     /* [chunk, k] */
    uint32_t *slots;    /* [chunk * k], by expert: slot i is row i / k's */
    size_t *first;      /* [n + 1] of the experts' slots */
    float *x, *y;       /* [chunk, hidden] an expert's input, output */
};

/* One expert's rows: x is gathered for it, and what it makes added to sum. */
struct part {
    const struct experts_work *work;
    const uint32_t *slots; /* [n_rows] */
    size_t n_rows, hidden;
    const float *x; /* [rows, hidden] */
    float *sum;     /* [rows, hidden] */
};

/* The router's rows: logits in, what is chosen and its weights out. */
struct choice {
    struct experts_work *work;
    bool normalize;
};

static void
choose_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct choice *c = ctx;
    const struct experts_work *w = c->work;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        router_select(w->chosen + i * w->k, w->weights + i * w->k, w->k,
                      w->probability + i * w->n, w->n, c->normalize);
}

static void
gather(void *ctx, size_t begin, size_t end, int thread)
{
    const struct part *p = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        memcpy(p->work->x + i * p->hidden,
               p->x + p->slots[i] / p->work->k * p->hidden,
               p->hidden * sizeof(*p->x));
}

/* A row is once among an expert's slots. */
static void
scatter(void *ctx, size_t begin, size_t end, int thread)
{
    const struct part *p = ctx;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        vec_axpy(p->sum + p->slots[i] / p->work->k * p->hidden,
                 p->work->weights[p->slots[i]], p->work->y + i * p->hidden,
                 p->hidden);
}

static void
run_expert(struct engine *e, const struct mlp *m, struct part *p, float *gate,
           float *up)
{
    par_for(e->par, p->n_rows, 1, gather, p);
    linear_rows(e,
                (struct apply[]){
                    { &m->gate, gate, false },
                    { &m->up, up, false },
                },
                2, p->work->x, p->n_rows);
    mlp_activate(e->par, e->model->config.act, gate, gate, up, m->gate.rows,
                 p->n_rows);
    linear_rows(e, &(struct apply){ &m->down, p->work->y, false }, 1, gate,
                p->n_rows);
    par_for(e->par, p->n_rows, 1, scatter, p);
}

void
experts_apply(struct engine *e, const struct layer *l,
              const struct activations *a, size_t n_rows)
{
    const struct config *c = &e->model->config;
    struct experts_work *w = e->experts;
    size_t hidden = (size_t)c->hidden_size;

    /* which experts it is must not depend on a rounding that is asked for */
    linear_exact(e, &(struct apply){ &l->router, w->probability, false },
                 a->mlp_in, n_rows);
    par_for(e->par, n_rows, 1, choose_rows,
            &(struct choice){ w, c->norm_topk_prob });
    router_group(w->slots, w->first, w->chosen, n_rows * w->k, w->n);
    memset(a->mlp_out, 0, n_rows * hidden * sizeof(*a->mlp_out));
    for (size_t i = 0; i < w->n; i++) {
        struct part p = { w,
                          w->slots + w->first[i],
                          w->first[i + 1] - w->first[i],
                          hidden,
                          a->mlp_in,
                          a->mlp_out };

        if (p.n_rows > 0)
            run_expert(e, &l->experts[i], &p, a->gate, a->up);
    }
}

int
experts_work_open(struct engine *e, struct err *err)
{
    static const char what[] = "the experts' work";
    const struct config *c = &e->model->config;
    size_t chunk = e->options.chunk;
    struct experts_work *w;
    size_t row;

    if (c->n_experts == 0)
        return 0;
    w = e->experts = xcalloc(1, sizeof(*w));
    w->n = (size_t)c->n_experts;
    w->k = (size_t)c->n_experts_used;
    row = (size_t)c->hidden_size * sizeof(float);
    w->first = xcalloc(w->n + 1, sizeof(*w->first));
    w->probability = mem_try(chunk, w->n * sizeof(float), what, err);
    w->chosen = mem_try(chunk, w->k * sizeof(*w->chosen), what, err);
    w->weights = mem_try(chunk, w->k * sizeof(*w->weights), what, err);
    w->slots = mem_try(chunk, w->k * sizeof(*w->slots), what, err);
    w->x = mem_try(chunk, row, what, err);
    w->y = mem_try(chunk, row, what, err);
    return w->probability && w->chosen && w->weights && w->slots && w->x && w->y
               ? 0
               : -1;
}

void
experts_work_close(struct engine *e)
{
    struct experts_work *w = e->experts;

    if (!w)
        return;
    free(w->y);
    free(w->x);
    free(w->slots);
    free(w->weights);
    free(w->chosen);
    free(w->probability);
    free(w->first);
    free(w);
}
