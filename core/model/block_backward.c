/* SPDX-License-Identifier: ISC */
#include "core/model/block_backward.h"

#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/model/engine.h"
#include "core/model/experts_backward.h"
#include "core/model/mla.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/norm.h"
#include "core/model/qkv.h"

/* One block of a chunk. */
struct back {
    struct engine *e;
    const struct chunk *chunk;
    const struct activations *a;
    const struct block_grads *g;
    const struct layer *layer;
};

void
block_back_linear(struct engine *e, const struct block_grads *g,
                  const struct linear *l, const float *x, float *dx, bool add,
                  const float *dy, size_t n_rows)
{
    linear_backward(e, l, dx, add, dy, g->low, n_rows);
    block_grads_add(
        g,
        &(struct linear_grads){
            .linear = l, .x = x, .dy = dy, .low = g->low, .n_rows = n_rows });
}

static void
back_linear(const struct back *b, const struct linear *l, const float *x,
            float *dx, bool add, const float *dy)
{
    block_back_linear(b->e, b->g, l, x, dx, add, dy, b->chunk->n_rows);
}

/* ---- the halves ---- */

/* The gradient of what a half adds, y, or y normalized and times
 * residual_scale, which the residual stream's is, too: becomes that of y. */
static const float *
back_output(const struct back *b, const struct norm *post, float *y)
{
    const struct block_grads *g = b->g;
    size_t n_rows = b->chunk->n_rows, n = n_rows * post->n;
    double by = b->e->model->config.residual_scale;

    if (post->form == NORM_NONE && !(by > 0))
        return g->resid;
    memcpy(g->output, g->resid, n * sizeof(*g->output));
    if (by > 0)
        vec_scale(g->output, (float)by, n);
    norm_backward(b->e->par, post, NULL, g->output, y, n_rows);
    return g->output;
}

/* A shared expert's inner was weighed: see add_shared() in block.c. */
static void
weigh_shared(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    const struct activations *a = b->a;
    const struct mlp *m = &b->layer->mlp;
    const struct model_form *f = &b->e->model->config.form;
    size_t n = m->down.in, ld = mlp_first(m, f)->out;

    for (size_t i = begin; i < end; i++) {
        float weight = b->e->experts.shared[i];
        float slope = vec_dot(b->g->inner + i * n, a->inner + i * n, n);

        b->g->weights[i] = slope * (weight * (1 - weight));
        vec_scale(a->inner + i * n, weight, n);
        vec_scale(a->gate + i * ld, weight, ld);
        if (!f->gate_up && !f->plain_mlp)
            vec_scale(a->up + i * n, weight, n);
    }
}

/* 'add': g->input has what other experts gave. */
static void
back_mlp(struct back *b, const float *dy, bool add)
{
    const struct linear *weighed = &b->layer->shared_router;
    const struct activations *a = b->a;
    const struct block_grads *g = b->g;
    const struct mlp *m = &b->layer->mlp;
    const struct model_form *f = &b->e->model->config.form;
    const struct linear *first = mlp_first(m, f);
    size_t n = b->chunk->n_rows;
    struct par *par = b->e->par;

    linear_backward(b->e, &m->down, g->inner, false, dy, g->low, n);
    mlp_backward(par, f->act, a->inner, a->gate, f->plain_mlp ? NULL : a->up,
                 first->out, g->inner, m->down.in, n);
    if (weighed->out)
        par_for(par, n, 1, weigh_shared, b);
    block_grads_add(g, &(struct linear_grads){ &m->down, a->inner, dy, g->low,
                                               n, NULL, 0 });
    back_linear(b, first, a->mlp_in, g->input, add, a->gate);
    if (!f->gate_up && !f->plain_mlp)
        back_linear(b, &m->up, a->mlp_in, g->input, true, a->up);
    if (weighed->out) {
        struct gemm_job job = linear_back_job(weighed, g->input, true);

        gemm_exact(b->e->gemm, &job, 1, g->weights, 1, n);
    }
}

/* Row i's heads: rotated back and, in qwen3, back through their norm. */
static void
unrotate(const struct back *b, float *grad, float *heads, size_t n_heads,
         const struct norm *norm, size_t i)
{
    const struct config *c = &b->e->model->config;
    size_t d = (size_t)c->head_dim, half = (size_t)c->rotary_dim / 2;
    size_t layer = (size_t)(b->layer - b->e->model->layers);
    bool rotates = c->rotation[layer] != ROTATION_NONE;

    grad += i * n_heads * d;
    heads += i * n_heads * d;
    for (size_t j = 0; j < n_heads && rotates; j++)
        (c->form.pairs ? vec_rope_pairs : vec_rope)(
            grad + j * d, b->chunk->cosines + block_rotation(c, layer, i),
            b->g->sines_back + i * half, half);
    norm_backward(NULL, norm, NULL, grad, heads, n_heads * d / norm->n);
}

static void
unrotate_rows(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    const struct config *c = &b->e->model->config;
    const struct layer *l = b->layer;
    size_t half = (size_t)c->rotary_dim / 2;
    size_t layer = (size_t)(l - b->e->model->layers);

    for (size_t i = begin; i < end; i++) {
        for (size_t k = 0; k < half && c->rotation[layer] != ROTATION_NONE; k++)
            b->g->sines_back[i * half + k] =
                -b->chunk->sines[block_rotation(c, layer, i) + k];
        unrotate(b, b->g->q, b->a->q, (size_t)c->n_heads, &l->q_norm, i);
        unrotate(b, b->g->k, b->a->k, (size_t)c->n_kv_heads, &l->k_norm, i);
    }
}

static void
back_o(const struct back *b)
{
    const struct config *c = &b->e->model->config;
    bool gdn = c->mixer[b->layer - b->e->model->layers] == MIXER_GDN;

    back_linear(b, gdn ? &b->layer->gdn.out : &b->layer->o,
                gdn || c->form.out_gate ? b->a->gated : b->a->attended,
                b->g->attended, false,
                back_output(b, &b->layer->attn_post, b->a->attn_out));
}

/* From the gradient of heads that are scaled by their gates to theirs, and to
 * that of the gates. */
static void
unscale_heads(void *ctx, size_t begin, size_t end)
{
    const struct back *b = ctx;
    const struct config *c = &b->e->model->config;
    size_t n = (size_t)c->n_heads, d = (size_t)c->v_head_dim;
    float head[CONFIG_MAX_HEAD_DIM];

    for (size_t i = begin * n; i < end * n; i++) {
        float *dy = b->g->attended + i * d;

        memcpy(head, b->a->attended + i * d, d * sizeof(*head));
        vec_act_back(ACT_SIGMOID, b->a->gated + i * d, b->a->out_gate + i * d,
                     head, dy, d);
        memcpy(dy, head, d * sizeof(*head));
    }
}

/* From the gradients of q, k and v to that of attn_in, unless it is NULL. */
static void
back_qkv(const struct back *b, float *input)
{
    const struct activations *a = b->a;
    const struct block_grads *g = b->g;
    const struct layer *l = b->layer;
    const struct config *c = &b->e->model->config;
    bool is_fused = c->form.qkv != FUSED_NOT, gated = c->form.out_gate;
    const struct qkv rows = {
        b->chunk->n_rows, a->qkv, g->q, g->k, g->v, gated ? a->out_gate : NULL
    };

    if (is_fused || gated)
        qkv_move(b->e->par, c, &rows, true);
    if (is_fused) {
        back_linear(b, &l->qkv, a->attn_in, input, false, a->qkv);
        return;
    }
    back_linear(b, &l->q, a->attn_in, input, false, gated ? a->qkv : g->q);
    back_linear(b, &l->k, a->attn_in, input, true, g->k);
    back_linear(b, &l->v, a->attn_in, input, true, g->v);
}

/* From the gradient of what o_proj reads on, to that of attn_in, unless it is
 * NULL. */
static void
back_attention(struct back *b, size_t layer, float *input)
{
    const struct activations *a = b->a;
    const struct block_grads *g = b->g;
    size_t n = b->chunk->n_rows;
    struct par *par = b->e->par;
    const struct attention forward = block_attention(b->e, b->chunk, a, layer);

    if (b->e->model->config.form.out_gate)
        par_for(par, n, 1, unscale_heads, b);
    attention_backward(par, &forward,
                       &(struct attention_grads){
                           .k = a->k_rotated,
                           .v = a->v,
                           .dout = g->attended,
                           .scaled = a->q_rotated,
                           .dq = g->q,
                           .dk = g->k,
                           .dv = g->v,
                           .work = g->attention,
                       });
    if (b->e->model->config.form.mla) {
        mla_backward(b->e, b->chunk, a, g, layer, input);
    } else {
        par_for(par, n, 1, unrotate_rows, b);
        back_qkv(b, input);
    }
}

void
block_backward(struct engine *e, const struct chunk *chunk,
               const struct activations *acts, const struct block_grads *g,
               size_t layer, bool is_first)
{
    struct back b = { e, chunk, acts, g, &e->model->layers[layer] };
    bool parallel = e->model->config.form.residual != RESIDUAL_SEQUENTIAL;
    const float *dy = back_output(&b, &b.layer->mlp_post, acts->mlp_out);
    float *input = is_first ? NULL : g->input;

    if (b.layer->experts)
        experts_backward(e, b.layer, acts, g, dy, chunk->n_rows);
    if (b.layer->experts && b.layer->mlp.down.in)
        block_gate_up(e, chunk, acts, &b.layer->mlp);
    if (b.layer->mlp.down.in)
        back_mlp(&b, dy, b.layer->experts);
    /* the halves of a block that are parallel both add to its out */
    if (parallel)
        back_o(&b);
    norm_backward(e->par, &b.layer->mlp_norm, g->resid, g->input,
                  parallel ? acts->x : acts->mid, chunk->n_rows);
    if (!parallel)
        back_o(&b);
    if (e->model->config.mixer[layer] == MIXER_GDN)
        gdn_backward(e, chunk, acts, g, layer, input);
    else
        back_attention(&b, layer, input);
    if (input)
        norm_backward(e->par, &b.layer->attn_norm, g->resid, input, acts->x,
                      chunk->n_rows);
}
