/* SPDX-License-Identifier: ISC */
#include "core/model/gdn.h"

#include <math.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/model/model.h"

#define CHANNELS 256 /* that a thread convolves at once */
#define L2_EPS   1e-6

struct gdn_sizes
gdn_sizes(const struct config *c)
{
    const struct config_gdn *g = &c->gdn;
    size_t heads = (size_t)g->n_v_heads, values = heads * (size_t)g->v_dim;
    size_t channels = 2 * (size_t)(g->n_k_heads * g->k_dim) + values;

    if (!c->n_states)
        return (struct gdn_sizes){ 0 };
    return (struct gdn_sizes){
        .channels = channels,
        .values = values,
        .heads = heads,
        .fused = c->form.fused_gdn ? channels + values : 0,
        .state = (size_t)(g->kernel - 1) * channels + values * (size_t)g->k_dim,
    };
}

/* A layer's work on a chunk. */
struct work {
    const struct config_gdn *c;
    const struct gdn *gdn;
    const struct chunk *chunk;
    const struct activations *a;
    struct gdn_sizes n;
    size_t at; /* of the layer, in a sequence's state */
};

/* Row i's q, k, values and gates from those of each key head. */
static void
split_row(const struct work *w, size_t i)
{
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;
    size_t per = w->n.heads / n_k, v = w->n.values / n_k;
    const float *qkvz = w->a->qkv + i * w->n.fused;
    const float *ba = w->a->k + i * 2 * w->n.heads;
    float *q = w->a->q + i * w->n.channels;
    float *z = w->a->out_gate + i * w->n.values;

    for (size_t h = 0; h < n_k; h++, qkvz += 2 * (k + v), ba += 2 * per) {
        memcpy(q + h * k, qkvz, k * sizeof(*q));
        memcpy(q + (n_k + h) * k, qkvz + k, k * sizeof(*q));
        memcpy(q + 2 * n_k * k + h * v, qkvz + 2 * k, v * sizeof(*q));
        memcpy(z + h * v, qkvz + 2 * k + v, v * sizeof(*z));
        memcpy(w->a->beta + i * w->n.heads + h * per, ba, per * sizeof(*ba));
        memcpy(w->a->decay + i * w->n.heads + h * per, ba + per,
               per * sizeof(*ba));
    }
}

/* beta of b, and e^g of a. */
static void
gate_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t n = w->n.heads;

    for (size_t i = begin; i < end; i++) {
        float *decay = w->a->decay + i * n;

        if (w->n.fused)
            split_row(w, i);
        vec_act(ACT_SIGMOID, w->a->beta + i * n, NULL, n);
        for (size_t h = 0; h < n; h++) {
            double x = (double)(decay[h] + w->gdn->bias[h]);

            /* softplus, whose threshold is torch's */
            x = x > 20 ? x : f64_log(1 + f64_exp(x));
            decay[h] = (float)f64_exp((double)w->gdn->rate[h] * x);
        }
    }
}

/* A span's channels 'from' on, n of them, and the tokens before it. */
struct channels {
    float *x, *before; /* [rows, all], [kernel - 1, all] */
    size_t all, n, kernel;
};

/* The kernel - 1 tokens before the span's row 'row', which may be over its
 * end. */
static void
copy_before(const struct channels *c, float *to, size_t ld, size_t row)
{
    for (size_t j = 0; j + 1 < c->kernel; j++, row++)
        memcpy(to + j * ld,
               row + 1 < c->kernel ? c->before + row * c->all
                                   : c->x + (row + 1 - c->kernel) * c->all,
               c->n * sizeof(*to));
}

/* Where a span's sequence keeps its state, too, after so many of the span's
 * tokens; 0: not in this span. */
static size_t
kept_after(const struct span *span)
{
    size_t n = span->session->n_kept;

    return n > span->first && n <= span->first + span->n ? n - span->first : 0;
}

/* Some channels of a span, from the last row on, which may so stay in place. */
static void
convolve(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t all = w->n.channels, blocks = (all + CHANNELS - 1) / CHANNELS;

    for (size_t i = begin; i < end; i++) {
        const struct span *span = &w->chunk->spans[i / blocks];
        size_t from = i % blocks * CHANNELS, kernel = (size_t)w->c->kernel;
        struct session *s = span->session;
        struct channels c = { w->a->q + span->row * all + from,
                              s->state.at + w->at + from, all,
                              smaller(CHANNELS, all - from), kernel };
        float next[CONFIG_MAX_KERNEL * CHANNELS], sum[CHANNELS];

        if (kept_after(span))
            copy_before(&c, s->kept.at + w->at + from, all, kept_after(span));
        copy_before(&c, next, CHANNELS, span->n);
        for (size_t row = span->n; row-- > 0;) {
            memset(sum, 0, c.n * sizeof(*sum));
            for (size_t j = 0; j < kernel; j++) {
                size_t back = kernel - 1 - j;
                const float *x = row >= back ? c.x + (row - back) * all
                                             : c.before + (row + j) * all;

                vec_mul_add(sum, w->gdn->conv + j * all + from, x, c.n);
            }
            vec_act(ACT_SILU, sum, NULL, c.n);
            memcpy(c.x + row * all, sum, c.n * sizeof(*sum));
        }
        for (size_t j = 0; j + 1 < kernel; j++)
            memcpy(c.before + j * all, next + j * CHANNELS,
                   c.n * sizeof(*next));
    }
}

/* q and k of length 1, q by the products' scale, too. */
static void
scale_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;

    for (size_t i = begin; i < end; i++)
        for (size_t h = 0; h < 2 * n_k; h++) {
            float *x = w->a->q + i * w->n.channels + h * k;
            double by = 1 / sqrt((double)vec_dot(x, x, k) + L2_EPS);

            vec_scale(x, (float)(h < n_k ? by / sqrt((double)k) : by), k);
        }
}

/* A value head of a span, token by token. */
static void
recur(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;
    size_t v = (size_t)w->c->v_dim, heads = w->n.heads;
    size_t before = (size_t)(w->c->kernel - 1) * w->n.channels;

    for (size_t i = begin; i < end; i++) {
        const struct span *span = &w->chunk->spans[i / heads];
        size_t h = i % heads, at = w->at + before + h * v * k;
        struct session *s = span->session;

        for (size_t t = 0; t < span->n; t++) {
            size_t row = span->row + t;
            const float *q = w->a->q + row * w->n.channels;
            struct vec_delta d = {
                .s = s->state.at + at,
                .to = s->state.at + at,
                .o = w->a->attended + row * w->n.values + h * v,
                .q = q + h * n_k / heads * k,
                .k = q + (n_k + h * n_k / heads) * k,
                .v = q + 2 * n_k * k + h * v,
                .decay = w->a->decay[row * heads + h],
                .beta = w->a->beta[row * heads + h],
                .rows = v,
                .n = k,
            };

            vec_delta(&d);
            if (t + 1 == kept_after(span))
                memcpy(s->kept.at + at, d.to, v * k * sizeof(*d.to));
        }
    }
}

/* The heads of a row, normalized, times silu(z): in place of z. */
static void
finish_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t n = w->n.values;
    float *o = w->a->attended + begin * n;

    norm_rows(NULL, &w->gdn->norm, o, o, NULL, (end - begin) * w->n.heads);
    vec_act(ACT_SILU, w->a->out_gate + begin * n, o, (end - begin) * n);
}

void
gdn_run(struct engine *e, const struct chunk *chunk,
        const struct activations *a, size_t layer)
{
    const struct config *c = &e->model->config;
    const struct gdn *g = &e->model->layers[layer].gdn;
    struct work w = { &c->gdn, g, chunk, a, gdn_sizes(c), 0 };
    const struct apply apart[] = { { &g->qkv, a->q, false },
                                   { &g->z, a->out_gate, false },
                                   { &g->b, a->beta, false },
                                   { &g->a, a->decay, false } };
    const struct apply fused[] = { { &g->qkvz, a->qkv, false },
                                   { &g->ba, a->k, false } };
    size_t blocks = (w.n.channels + CHANNELS - 1) / CHANNELS;

    w.at = (size_t)c->nth[layer] * w.n.state;
    linear_apply(e, chunk, w.n.fused ? fused : apart, w.n.fused ? 2 : 4,
                 a->attn_in);
    par_for(e->par, chunk->n_rows, 1, gate_rows, &w);
    par_for(e->par, chunk->n_spans * blocks, 1, convolve, &w);
    par_for(e->par, chunk->n_rows, 1, scale_rows, &w);
    par_for(e->par, chunk->n_spans * w.n.heads, 1, recur, &w);
    par_for(e->par, chunk->n_rows, 1, finish_rows, &w);
}
