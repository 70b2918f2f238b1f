#include "core/model/experts.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/router.h"

/* A row that an expert gets, and what its output counts. */
struct slot {
    uint32_t row;
    float weight;
};

struct experts_work {
    size_t n, k;        /* experts, those of a token */
    float *probability; /* [chunk, n] */
    uint32_t *chosen;   /* [chunk, k] */
    float *weights;     /* [chunk, k] */
    struct slot *slots; /* [chunk * k], by expert, then by row */
    size_t *first;      /* [n + 1] of the experts' slots */
    float *x, *y;       /* [chunk, hidden] an expert's input, output */
    float *sum;         /* [chunk, hidden] */
};

/* What the steps work on. */
struct step {
    struct engine *e;
    const float *x;           /* [rows, hidden] */
    const struct slot *slots; /* of an expert */
};

static void
choose_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct engine *e = ((struct step *)ctx)->e;
    const struct experts_work *w = e->experts;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        router_select(w->chosen + i * w->k, w->weights + i * w->k, w->k,
                      w->probability + i * w->n, w->n,
                      e->model->config.norm_topk_prob);
}

/* Sorts the chunk's slots by expert. */
static void
sort_slots(const struct engine *e)
{
    struct experts_work *w = e->experts;
    size_t n = e->n_rows * w->k, at = 0;

    memset(w->first, 0, (w->n + 1) * sizeof(*w->first));
    for (size_t i = 0; i < n; i++)
        w->first[w->chosen[i]]++;
    for (size_t i = 0; i <= w->n; i++) {
        size_t count = w->first[i];

        w->first[i] = at;
        at += count;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t row = (uint32_t)(i / w->k);

        w->slots[w->first[w->chosen[i]]++] =
            (struct slot){ row, w->weights[i] };
    }
    memmove(w->first + 1, w->first, w->n * sizeof(*w->first));
    w->first[0] = 0;
}

static void
gather(void *ctx, size_t begin, size_t end, int thread)
{
    const struct step *step = ctx;
    size_t hidden = (size_t)step->e->model->config.hidden_size;
    float *to = step->e->experts->x;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        memcpy(to + i * hidden, step->x + step->slots[i].row * hidden,
               hidden * sizeof(*to));
}

/* A row is once among an expert's slots. */
static void
scatter(void *ctx, size_t begin, size_t end, int thread)
{
    const struct step *step = ctx;
    const struct experts_work *w = step->e->experts;
    size_t hidden = (size_t)step->e->model->config.hidden_size;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        vec_axpy(w->sum + step->slots[i].row * hidden, step->slots[i].weight,
                 w->y + i * hidden, hidden);
}

static void
run_expert(struct step *step, const struct mlp *m, size_t n_rows)
{
    struct engine *e = step->e;
    const struct experts_work *w = e->experts;

    par_for(e->par, n_rows, 1, gather, step);
    linear_rows(e,
                (struct apply[]){
                    { &m->gate, e->gate, false },
                    { &m->up, e->up, false },
                },
                2, w->x, n_rows);
    mlp_activate(e->par, e->model->config.act, e->gate, e->gate, e->up,
                 m->gate.rows, n_rows);
    linear_rows(e, &(struct apply){ &m->down, w->y, false }, 1, e->gate,
                n_rows);
    par_for(e->par, n_rows, 1, scatter, step);
}

const float *
experts_apply(struct engine *e, const struct layer *l, const float *x)
{
    struct experts_work *w = e->experts;
    struct step step = { .e = e, .x = x };

    router_rows(e, &(struct apply){ &l->router, w->probability, false }, x);
    par_for(e->par, e->n_rows, 1, choose_rows, &step);
    sort_slots(e);
    memset(w->sum, 0,
           e->n_rows * (size_t)e->model->config.hidden_size * sizeof(float));
    for (size_t i = 0; i < w->n; i++) {
        step.slots = w->slots + w->first[i];
        if (w->first[i + 1] > w->first[i])
            run_expert(&step, &l->experts[i], w->first[i + 1] - w->first[i]);
    }
    return w->sum;
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
    w->sum = mem_try(chunk, row, what, err);
    return w->probability && w->chosen && w->weights && w->slots && w->x &&
                   w->y && w->sum
               ? 0
               : -1;
}

void
experts_work_close(struct engine *e)
{
    struct experts_work *w = e->experts;

    if (!w)
        return;
    free(w->sum);
    free(w->y);
    free(w->x);
    free(w->slots);
    free(w->weights);
    free(w->chosen);
    free(w->probability);
    free(w->first);
    free(w);
}
