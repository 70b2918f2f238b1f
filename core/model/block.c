#include "core/model/block.h"

#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/vec.h"
#include "core/model/attention.h"
#include "core/model/engine.h"
#include "core/model/experts.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/norm.h"
#include "core/model/session.h"
#include "core/model/tap.h"

/* What the steps between the matrices work on: the rows of one layer. */
struct step {
    struct engine *e;
    const struct layer *layer;
    size_t index;        /* of the layer */
    const float *output; /* of a block, [rows, hidden] */
};

static void
embed(void *ctx, size_t begin, size_t end, int thread)
{
    struct engine *e = ((struct step *)ctx)->e;
    const struct linear *w = &e->model->embed;
    size_t row = w->cols * dtype_table[w->dtype].bits / 8;
    size_t half = (size_t)e->model->config.head_dim / 2;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        cvt_to_f32(e->x + i * w->cols,
                   (const char *)w->w + (size_t)e->rows[i].id * row, w->dtype,
                   w->cols);
        rope_table(e->cosines + i * half, e->sines + i * half,
                   &e->model->config.rope, e->model->inv_freq, half,
                   e->rows[i].position);
    }
}

/* Normalizes (qwen3) and rotates one token's heads. */
static void
rotate(const struct engine *e, float *heads, size_t n_heads,
       const struct norm *norm, size_t i)
{
    size_t half = (size_t)e->model->config.head_dim / 2;

    if (norm->weight)
        norm_rows(NULL, norm, heads, heads, n_heads);
    for (size_t j = 0; j < n_heads; j++)
        vec_rope(heads + j * 2 * half, e->cosines + i * half,
                 e->sines + i * half, half);
}

static void
heads(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *step = ctx;
    struct engine *e = step->e;
    const struct layer *l = step->layer;
    const struct config *c = &e->model->config;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float *k = e->k + i * l->k.rows;

        rotate(e, e->q + i * l->q.rows, (size_t)c->n_heads, &l->q_norm, i);
        rotate(e, k, (size_t)c->n_kv_heads, &l->k_norm, i);
        kv_put(&e->rows[i].session->kv, step->index, e->rows[i].slot, k,
               e->v + i * l->v.rows);
    }
}

static void
attend(struct engine *e, size_t layer)
{
    const struct config *c = &e->model->config;
    const struct attention a = {
        .n_heads = (size_t)c->n_heads,
        .n_kv_heads = (size_t)c->n_kv_heads,
        .head_dim = (size_t)c->head_dim,
        .window = (size_t)c->window[layer],
        .layer = layer,
        .spans = e->spans,
        .n_spans = e->n_spans,
        .q = e->q,
        .out = e->attended,
        .scratch = e->attention_scratch,
    };

    attention_run(e->par, &a);
}

static bool
tapped(const struct engine *e, enum tap_point point)
{
    return e->tap && e->tap->point == point;
}

/* Shows the chunk's rows at a point to whom it may concern. */
static void
tap(struct engine *e, enum tap_point point, int64_t layer, const float *rows)
{
    size_t dim = tap_dim(&e->model->config, point);

    for (size_t i = 0; tapped(e, point) && i < e->n_spans; i++) {
        const struct span *s = &e->spans[i];

        e->tap->fn(e->tap->ctx, s->session, layer, s->first, s->n,
                   rows + s->row * dim);
    }
}

static void
add_output(void *ctx, size_t begin, size_t end, int thread)
{
    const struct step *step = ctx;
    size_t hidden = (size_t)step->e->model->config.hidden_size;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        vec_add(step->e->x + i * hidden, step->output + i * hidden, hidden);
}

/* A block's output joins the residual stream; who looks at it gets it by
 * itself first, and so does an adapter.  The sum is the same: of two numbers,
 * in either order. */
static void
apply_output(struct step *step, const struct linear *l, const float *x,
             enum tap_point point)
{
    struct engine *e = step->e;

    if (tapped(e, point) || l->lora) {
        linear_apply(e, &(struct apply){ l, e->h, false }, 1, x);
        tap(e, point, (int64_t)step->index, e->h);
        step->output = e->h;
        par_for(e->par, e->n_rows, 1, add_output, step);
    } else {
        linear_apply(e, &(struct apply){ l, e->x, true }, 1, x);
    }
}

static void
run_attention(struct step *step)
{
    struct engine *e = step->e;
    const struct layer *l = step->layer;

    norm_rows(e->par, &l->attn_norm, e->h, e->x, e->n_rows);
    tap(e, TAP_IN_QKV, (int64_t)step->index, e->h);
    linear_apply(e,
                 (struct apply[]){
                     { &l->q, e->q, false },
                     { &l->k, e->k, false },
                     { &l->v, e->v, false },
                 },
                 3, e->h);
    par_for(e->par, e->n_rows, 1, heads, step);
    attend(e, step->index);
    tap(e, TAP_IN_O, (int64_t)step->index, e->attended);
    apply_output(step, &l->o, e->attended, TAP_ATTN);
}

static void
run_mlp(struct step *step)
{
    struct engine *e = step->e;
    const struct mlp *m = &step->layer->mlp;

    linear_apply(e,
                 (struct apply[]){
                     { &m->gate, e->gate, false },
                     { &m->up, e->up, false },
                 },
                 2, e->h);
    mlp_activate(e->par, e->model->config.act, e->gate, e->gate, e->up,
                 m->gate.rows, e->n_rows);
    tap(e, TAP_IN_DOWN, (int64_t)step->index, e->gate);
    apply_output(step, &m->down, e->gate, TAP_MLP);
}

static void
run_experts(struct step *step)
{
    struct engine *e = step->e;

    step->output = experts_apply(e, step->layer, e->h);
    tap(e, TAP_MLP, (int64_t)step->index, step->output);
    par_for(e->par, e->n_rows, 1, add_output, step);
}

static void
run_feed_forward(struct step *step)
{
    struct engine *e = step->e;

    norm_rows(e->par, &step->layer->mlp_norm, e->h, e->x, e->n_rows);
    tap(e, TAP_IN_GATE_UP, (int64_t)step->index, e->h);
    if (step->layer->experts)
        run_experts(step);
    else
        run_mlp(step);
    tap(e, TAP_RESID, (int64_t)step->index, e->x);
}

/* Nobody looks at what comes after the last tapped layer. */
static size_t
n_layers(const struct engine *e)
{
    size_t n = (size_t)e->model->config.n_layers;

    if (e->tap && e->n_wanted == 0 && e->tap->last_layer + 1 < (int64_t)n)
        return (size_t)(e->tap->last_layer + 1);
    return n;
}

void
chunk_run(struct engine *e, float *logits)
{
    const struct model *m = e->model;
    struct step step = { .e = e };

    par_for(e->par, e->n_rows, 1, embed, &step);
    tap(e, TAP_RESID, -1, e->x);
    for (size_t i = 0; i < n_layers(e); i++) {
        step.layer = &m->layers[i];
        step.index = i;
        run_attention(&step);
        run_feed_forward(&step);
    }
    norm_gather(e->par, &m->norm, e->h, e->x, e->wanted, e->n_wanted);
    linear_logits(e, logits, e->h, e->n_wanted);
}
