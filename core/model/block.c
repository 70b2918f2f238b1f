/* SPDX-License-Identifier: ISC */
#include "core/model/block.h"

#include <math.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/engine.h"
#include "core/model/experts.h"
#include "core/model/mla.h"
#include "core/model/mlp.h"
#include "core/model/model.h"
#include "core/model/norm.h"
#include "core/model/qkv.h"
#include "core/model/splice.h"
#include "core/model/steer.h"

/* One block of a chunk.  Nothing in it changes while its steps run. */
struct step {
    struct engine *e;
    const struct chunk *chunk;
    const struct activations *a;
    const struct tap *tap;     /* or NULL */
    const struct layer *layer; /* NULL before the first one */
    size_t index;              /* of the layer */
    bool wanted_only; /* once keys and values are kept, wanted rows are all that
                       * go on: the first ones of the activations */
    struct chunk wanted; /* of these */
    enum block_wants wants;
};

size_t
block_rotation(const struct config *c, size_t layer, size_t row)
{
    return (row * config_ropes(c) + c->rotation[layer]) *
           (size_t)c->rotary_dim / 2;
}

static void
set_positions(void *ctx, size_t begin, size_t end)
{
    const struct step *s = ctx;
    const struct chunk *chunk = s->chunk;
    const struct model *m = s->e->model;
    size_t half = (size_t)m->config.rotary_dim / 2;
    size_t n = config_ropes(&m->config);

    for (size_t i = begin; i < end && m->rotations; i++) {
        const float *from = m->rotations + 2 * chunk->rows[i].position * half;

        memcpy(chunk->cosines + i * half, from, half * sizeof(*from));
        memcpy(chunk->sines + i * half, from + half, half * sizeof(*from));
    }
    for (size_t i = begin; i < end && !m->rotations; i++)
        for (size_t k = 0; k < n; k++) {
            size_t table =
                k +
                config_is_long(&m->config, chunk->rows[i].session->max_tokens);

            rope_table(chunk->cosines + (i * n + k) * half,
                       chunk->sines + (i * n + k) * half,
                       &m->config.rope[table], m->inv_freq + table * half, half,
                       chunk->rows[i].position);
        }
}

/* Normalizes, where the model does, and rotates row i's heads. */
static void
rotate(const struct step *s, float *to, const float *heads, size_t n_heads,
       const struct norm *norm, size_t i)
{
    const struct config *c = &s->e->model->config;
    size_t d = (size_t)c->head_dim, half = (size_t)c->rotary_dim / 2, at;

    to += i * n_heads * d;
    heads += i * n_heads * d;
    norm_rows(NULL, norm, to, heads, NULL, n_heads * d / norm->n);
    if (c->rotation[s->index] == ROTATION_NONE)
        return;
    at = block_rotation(c, s->index, i);
    for (size_t j = 0; j < n_heads; j++)
        (c->form.pairs ? vec_rope_pairs : vec_rope)(
            to + j * d, s->chunk->cosines + at, s->chunk->sines + at, half);
}

static void
rotate_rows(void *ctx, size_t begin, size_t end)
{
    const struct step *s = ctx;
    const struct activations *a = s->a;
    const struct layer *l = s->layer;
    const struct config *c = &s->e->model->config;
    size_t n_kv = (size_t)c->n_kv_heads, d = (size_t)c->head_dim;

    for (size_t i = begin; i < end; i++) {
        const struct row *row = &s->chunk->rows[i];

        rotate(s, a->q_rotated, a->q, (size_t)c->n_heads, &l->q_norm, i);
        rotate(s, a->k_rotated, a->k, n_kv, &l->k_norm, i);
        for (size_t j = 0; j < n_kv; j++)
            kv_set(&row->session->kv, (size_t)c->nth[s->index], j, row->slot, 1,
                   a->k_rotated + (i * n_kv + j) * d,
                   a->v + (i * n_kv + j) * d);
    }
}

static int64_t
layer_of(const struct step *s)
{
    return s->layer ? (int64_t)s->index : -1;
}

const struct tap *
tap_at(const struct tap *tap, enum tap_point point)
{
    while (tap && tap->point != point)
        tap = tap->next;
    return tap;
}

void
trunk_point(struct engine *e, const struct chunk *chunk, const struct tap *tap,
            int64_t layer, enum tap_point point, float *rows)
{
    size_t dim = tap_dim(&e->model->config, point, layer);

    tap = tap_at(tap, point);
    splice_apply(e, chunk, layer, point, rows);
    for (size_t i = 0; tap && i < chunk->n_spans; i++) {
        const struct span *span = &chunk->spans[i];

        tap->fn(tap->ctx, span->session, layer, span->first, span->n,
                rows + span->row * dim);
    }
}

static void
at_point(const struct step *s, enum tap_point point, float *rows)
{
    trunk_point(s->e, s->chunk, s->tap, layer_of(s), point, rows);
}

/* Does a tap or an SAE get the rows of this point? */
static bool
is_seen(const struct step *s, enum tap_point point)
{
    return tap_at(s->tap, point) ||
           splice_is_at(s->e->model, layer_of(s), point);
}

/* The chunk of the wanted rows, whose x, q_rotated and, of parallel halves,
 * mlp_in become the first. */
static struct chunk
wanted_rows(const struct step *s)
{
    const struct config *c = &s->e->model->config;
    size_t hidden = (size_t)c->hidden_size;
    size_t nq = (size_t)(c->n_heads * c->head_dim);
    const struct activations *a = s->a;
    const struct span *from = s->chunk->spans, *last = NULL;
    struct chunk to = { .spans = s->e->wanted_spans,
                        .n_rows = s->chunk->n_wanted };

    for (size_t i = 0; i < to.n_rows; i++) {
        size_t row = s->chunk->wanted[i];

        memmove(a->x + i * hidden, a->x + row * hidden, hidden * sizeof(float));
        if (c->form.residual != RESIDUAL_SEQUENTIAL)
            memmove(a->mlp_in + i * hidden, a->mlp_in + row * hidden,
                    hidden * sizeof(float));
        memmove(a->q_rotated + i * nq, a->q_rotated + row * nq,
                nq * sizeof(float));
        if (c->form.out_gate)
            memmove(a->out_gate + i * nq, a->out_gate + row * nq,
                    nq * sizeof(float));
        if (s->e->model->splices)
            s->e->ids[i] = s->e->ids[row];
        while (row >= from->row + from->n)
            from++;
        if (from != last) {
            size_t left_out = row - from->row;

            last = from;
            to.spans[to.n_spans++] =
                (struct span){ .session = from->session,
                               .row = i,
                               .n = from->n - left_out,
                               .first = from->first + left_out,
                               .slot = from->slot + left_out,
                               .generated = from->generated };
        }
    }
    return to;
}

/* to = x + y, rows of n numbers; 'to' may be x or y. */
struct sum {
    float *to;
    const float *x, *y;
    size_t n;
};

static void
add_rows(void *ctx, size_t begin, size_t end)
{
    const struct sum *s = ctx;
    size_t at = begin * s->n, n = (end - begin) * s->n;

    if (s->to != s->x && s->to != s->y)
        memcpy(s->to + at, s->x + at, n * sizeof(*s->to));
    vec_add(s->to + at, (s->to == s->y ? s->x : s->y) + at, n);
}

struct scaling {
    float *y;
    size_t n;
    float by;
    const float *each; /* instead, one for each row; or NULL */
};

static void
scale_rows(void *ctx, size_t begin, size_t end)
{
    const struct scaling *s = ctx;

    for (size_t i = begin; i < end; i++)
        vec_scale(s->y + i * s->n, s->each ? s->each[i] : s->by, s->n);
}

/* What a half of a block reads and adds to: to = from + scale post(y). */
struct half {
    enum tap_point point, added; /* of y, and of what is added */
    const struct norm *post;
    float *y, *to;
    const float *from;
};

/* The half's output y joins the residual stream. */
static void
add_output(const struct step *s, const struct half *h)
{
    const struct config *c = &s->e->model->config;
    size_t hidden = (size_t)c->hidden_size;
    size_t n_rows = s->chunk->n_rows;
    bool scales = h->post->form == NORM_SCALE;
    bool has_post = h->post->form != NORM_NONE && !scales;
    bool post_alone = c->form.norm.places == NORM_POST;
    /* a backward, which has memory of its own for 'to', reads y */
    float *added = has_post && h->to != h->from ? h->to : h->y;
    struct scaling scaling = { added, hidden, (float)c->residual_scale, NULL };
    struct sum sum = { h->to, h->from, added, hidden };

    if (scales)
        norm_rows(s->e->par, h->post, h->y, h->y, NULL, n_rows);
    at_point(s, h->point, h->y);
    if (post_alone)
        at_point(s, h->added, h->y);
    if (has_post)
        norm_rows(s->e->par, h->post, added, h->y, NULL, n_rows);
    if (c->residual_scale > 0)
        par_for(s->e->par, n_rows, 1, scale_rows, &scaling);
    if (!post_alone)
        at_point(s, h->added, added);
    par_for(s->e->par, n_rows, 1, add_rows, &sum);
}

/*
 * The output of a half's last layer joins the residual stream.  A norm, a tap,
 * an SAE and an adapter get y by itself first; else it is added on the way.
 * The sum is the same: of two numbers, in either order.
 */
static void
apply_output(const struct step *s, const struct linear *l, const float *input,
             const struct half *h)
{
    float *to = h->to;

    if (h->post->form != NORM_NONE || is_seen(s, h->point) ||
        is_seen(s, h->added) || l->lora ||
        s->e->model->config.residual_scale > 0) {
        linear_apply(s->e, s->chunk, &(struct apply){ l, h->y, false }, 1,
                     input);
        add_output(s, h);
    } else {
        if (to != h->from)
            memcpy(to, h->from, s->chunk->n_rows * l->out * sizeof(*to));
        linear_apply(s->e, s->chunk, &(struct apply){ l, to, true }, 1, input);
    }
}

struct attention
block_attention(const struct engine *e, const struct chunk *chunk,
                const struct activations *a, size_t layer)
{
    const struct config *c = &e->model->config;
    double d = c->query_scalar > 0 ? c->query_scalar : (double)c->head_dim;
    double scale = c->unscaled         ? 1
                   : c->attn_scale > 0 ? c->attn_scale
                                       : 1 / sqrt(d);

    return (struct attention){
        .n_heads = (size_t)c->n_heads,
        .n_kv_heads = (size_t)c->n_kv_heads,
        .head_dim = (size_t)c->head_dim,
        .v_head_dim = (size_t)c->v_head_dim,
        .scale =
            (float)(c->scale_by_layer ? scale / (double)(layer + 1) : scale),
        .softcap = (float)c->attn_softcap,
        .window = (size_t)c->window[layer],
        .sinks = e->model->layers[layer].sinks.weight,
        .both_ways = c->form.both_ways,
        .layer = (size_t)c->nth[layer],
        .spans = chunk->spans,
        .n_spans = chunk->n_spans,
        .q = a->q_rotated,
        .out = a->attended,
        .lse = a->lse,
        .bf16 = e->attention_bf16,
        .scratch = e->attention_scratch,
    };
}

/* The heads, times the sigmoid of their gates. */
static void
scale_heads(void *ctx, size_t begin, size_t end)
{
    const struct step *s = ctx;
    const struct config *c = &s->e->model->config;
    size_t nq = (size_t)(c->n_heads * c->v_head_dim);
    size_t at = begin * nq, n = (end - begin) * nq;

    if (s->a->gated != s->a->out_gate)
        memcpy(s->a->gated + at, s->a->out_gate + at, n * sizeof(float));
    vec_act(ACT_SIGMOID, s->a->gated + at, s->a->attended + at, n);
}

/* q, k and v of attn_in. */
static void
apply_qkv(const struct step *s)
{
    const struct activations *a = s->a;
    const struct layer *l = s->layer;
    const struct config *c = &s->e->model->config;
    bool gated = c->form.out_gate;
    const struct apply apart[] = { { &l->q, gated ? a->qkv : a->q, false },
                                   { &l->k, a->k, false },
                                   { &l->v, a->v, false } };
    const struct apply fused = { &l->qkv, a->qkv, false };
    const struct qkv rows = {
        s->chunk->n_rows, a->qkv, a->q, a->k, a->v, gated ? a->out_gate : NULL
    };
    bool is_fused = c->form.qkv != FUSED_NOT;

    linear_apply(s->e, s->chunk, is_fused ? &fused : apart, is_fused ? 1 : 3,
                 a->attn_in);
    if (is_fused || gated)
        qkv_move(s->e->par, c, &rows, false);
}

/* Attention, from attn_in to what o_proj reads; false where no row goes on. */
static bool
attend(struct step *s)
{
    const struct engine *e = s->e;
    const struct config *c = &e->model->config;
    const struct activations *a = s->a;
    struct attention attention;

    if (c->form.mla) {
        mla_apply(s->e, s->chunk, a, s->index);
    } else {
        apply_qkv(s);
        par_for(e->par, s->chunk->n_rows, 1, rotate_rows, s);
    }
    if (s->wanted_only) {
        s->wanted = wanted_rows(s);
        s->chunk = &s->wanted;
        if (s->chunk->n_rows == 0)
            return false;
    }
    attention = block_attention(e, s->chunk, a, s->index);
    if (s->wants == BLOCK_OUT)
        attention.lse = NULL;
    if (e->options.latents)
        mla_attend(s->e, s->chunk, a, s->index, &attention);
    else
        attention_run(e->par, &attention);
    if (c->form.out_gate)
        par_for(e->par, s->chunk->n_rows, 1, scale_heads, s);
    return true;
}

void
block_gate_up(struct engine *e, const struct chunk *chunk,
              const struct activations *a, const struct mlp *m)
{
    const struct model_form *f = &e->model->config.form;
    const struct apply to[] = { { mlp_first(m, f), a->gate, false },
                                { &m->up, a->up, false } };

    linear_apply(e, chunk, to, f->gate_up || f->plain_mlp ? 1 : 2, a->mlp_in);
}

static void
activate(const struct step *s)
{
    const struct activations *a = s->a;
    const struct model_form *f = &s->e->model->config.form;
    size_t n = s->layer->mlp.down.in;

    mlp_activate(s->e->par, f->act, a->inner, a->gate,
                 f->plain_mlp ? NULL : a->up, f->gate_up ? 2 * n : n, n,
                 s->chunk->n_rows);
}

/* The expert of all tokens joins the sum of the others: its weight is its
 * product's input's, as that is linear. */
static void
add_shared(const struct step *s)
{
    const struct mlp *m = &s->layer->mlp;
    struct scaling scaling = { .y = s->a->inner,
                               .n = m->down.in,
                               .each = s->e->experts.shared };

    block_gate_up(s->e, s->chunk, s->a, m);
    activate(s);
    if (s->layer->shared_router.out)
        par_for(s->e->par, s->chunk->n_rows, 1, scale_rows, &scaling);
    linear_apply(s->e, s->chunk,
                 &(struct apply){ &m->down, s->a->mlp_out, true }, 1,
                 s->a->inner);
}

/* Both halves of a block, one step after another. */
static void
run_block(struct step *s)
{
    struct engine *e = s->e;
    const struct chunk *chunk = s->chunk;
    const struct config *c = &e->model->config;
    const struct activations *a = s->a;
    const struct layer *l = s->layer;
    const struct half attn = { TAP_ATTN,    TAP_ATTN_OUT, &l->attn_post,
                               a->attn_out, a->mid,       a->x };
    const struct half mlp = { TAP_MLP,    TAP_MLP_OUT, &l->mlp_post,
                              a->mlp_out, a->out,      a->mid };
    bool cut = s->wants == BLOCK_BACKWARD && l->mlp_post.form == NORM_NONE;
    bool parallel = c->form.residual != RESIDUAL_SEQUENTIAL;
    bool gdn = c->mixer[s->index] == MIXER_GDN;
    float *heads = gdn || c->form.out_gate ? a->gated : a->attended;

    if (parallel)
        norm_rows(e->par, &l->mlp_norm, a->mlp_in, a->x, NULL, chunk->n_rows);
    norm_rows(e->par, &l->attn_norm, a->attn_in, a->x, NULL, chunk->n_rows);
    at_point(s, TAP_IN_QKV, a->attn_in);
    if (gdn)
        gdn_run(e, chunk, a, s->index);
    else if (!attend(s))
        return;
    chunk = s->chunk;
    at_point(s, TAP_IN_O, heads);
    apply_output(s, gdn ? &l->gdn.out : &l->o, heads, &attn);

    if (!parallel) {
        at_point(s, TAP_RESID_MID, a->mid);
        norm_rows(e->par, &l->mlp_norm, a->mlp_in, a->mid, NULL, chunk->n_rows);
    }
    at_point(s, TAP_IN_GATE_UP, a->mlp_in);
    if (l->experts && cut) {
        experts_route(e, l, a, chunk->n_rows);
        return;
    }
    if (l->experts) {
        experts_apply(e, l, a, chunk);
        if (l->mlp.down.in)
            add_shared(s);
        add_output(s, &mlp);
    } else {
        block_gate_up(e, chunk, a, &l->mlp);
        if (cut)
            return;
        activate(s);
        at_point(s, TAP_IN_DOWN, a->inner);
        apply_output(s, &l->mlp.down, a->inner, &mlp);
    }
}

void
trunk_begin(struct engine *e, const struct chunk *chunk)
{
    struct step s = { .e = e, .chunk = chunk };

    par_for(e->par, chunk->n_rows, 1, set_positions, &s);
}

void
block_run(struct engine *e, const struct chunk *chunk,
          const struct activations *a, size_t layer, enum block_wants wants)
{
    struct step s = { .e = e,
                      .chunk = chunk,
                      .a = a,
                      .layer = &e->model->layers[layer],
                      .index = layer,
                      .wants = wants };

    run_block(&s);
    at_point(&s, TAP_RESID, a->out);
}

bool
trunk_goes_on(const struct engine *e)
{
    return e->each && e->each->rows && e->each->now != STEER_NONE;
}

/* What the first layers have left of a window: to 'each', or back. */
static void
keep_rows(const struct step *s, bool back)
{
    size_t hidden = (size_t)s->e->model->config.hidden_size;

    for (size_t i = 0; i < s->chunk->n_spans; i++) {
        const struct span *span = &s->chunk->spans[i];
        float *x = s->a->x + span->row * hidden;
        float *kept = s->e->each->rows + span->first * hidden;

        memcpy(back ? x : kept, back ? kept : x, span->n * hidden * sizeof(*x));
    }
}

const size_t *
trunk_run(struct engine *e, const struct chunk *chunk,
          const struct activations *acts, size_t n_acts,
          const struct tap *shown)
{
    const struct model *m = e->model;
    size_t n_layers = (size_t)m->config.n_layers;
    size_t first = trunk_goes_on(e) ? e->each->n_layers : 0;
    struct step s = { .e = e, .chunk = chunk, .a = acts, .tap = shown };

    /* nothing is read after the last tapped layer */
    if (shown && chunk->n_wanted == 0)
        n_layers = smaller(n_layers, (size_t)(shown->last_layer + 1));
    trunk_begin(e, chunk);
    for (size_t i = first;; i++) {
        if (i > 0) {
            s.layer = &m->layers[i - 1];
            s.index = i - 1;
        }
        if (e->each && e->each->rows && e->each->n_layers == i)
            keep_rows(&s, i == first && first > 0);
        at_point(&s, TAP_RESID, i > 0 ? s.a->out : acts->x);
        if (i == n_layers)
            break;
        s.a = &acts[i % n_acts];
        s.layer = &m->layers[i];
        s.index = i;
        /* reports of tables count all rows */
        s.wanted_only = i + 1 == (size_t)m->config.n_layers && n_acts == 1 &&
                        !shown && !m->tables &&
                        chunk->n_wanted < chunk->n_rows &&
                        m->config.mixer[i] != MIXER_GDN;
        run_block(&s);
    }
    return s.wanted_only ? NULL : chunk->wanted;
}

size_t
tap_dim(const struct config *c, enum tap_point point, int64_t layer)
{
    bool gdn = layer >= 0 && c->mixer[layer] == MIXER_GDN;

    return point == TAP_IN_O && gdn ? (size_t)(c->gdn.n_v_heads * c->gdn.v_dim)
           : point == TAP_IN_O      ? (size_t)(c->n_heads * c->v_head_dim)
           : point == TAP_IN_DOWN   ? (size_t)c->intermediate_size
                                    : (size_t)c->hidden_size;
}
