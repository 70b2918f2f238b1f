/* SPDX-License-Identifier: ISC */
#include "core/model/gdn.h"

#include <math.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/block_backward.h"
#include "core/model/engine.h"
#include "core/model/model.h"

#define CHANNELS 256 /* that a thread convolves at once */
#define L2_EPS   1e-6

/* Values of a head that go back together: their states of a block (512 KiB of
 * 128 numbers) stay in a cache. */
#define BACK_ROWS 32

struct gdn_sizes
gdn_sizes(const struct config *c)
{
    const struct config_gdn *g = &c->gdn;
    size_t heads = (size_t)g->n_v_heads, values = heads * (size_t)g->v_dim;
    size_t channels = 2 * (size_t)(g->n_k_heads * g->k_dim) + values;
    size_t k = (size_t)g->k_dim, v = (size_t)g->v_dim;

    if (!c->n_states)
        return (struct gdn_sizes){ 0 };
    return (struct gdn_sizes){
        .channels = channels,
        .values = values,
        .heads = heads,
        .fused = c->form.fused_gdn ? channels + values : 0,
        .state = (size_t)(g->kernel - 1) * channels + values * k,
        .scratch = (v + (GDN_BLOCK + 1) * BACK_ROWS) * k,
    };
}

/* A layer's work on a chunk. */
struct work {
    const struct config_gdn *c;
    const struct gdn *gdn;
    const struct chunk *chunk;
    const struct activations *a;
    const struct block_grads *g; /* NULL: forward */
    struct gdn_sizes n;
    size_t at; /* of the layer, in a sequence's state */
};

/* Numbers of a fused row to where they are apart; back, where there are
 * gradients. */
static void
move(const struct work *w, float *fused, float *apart, size_t n)
{
    memcpy(w->g ? fused : apart, w->g ? apart : fused, n * sizeof(*apart));
}

/* Row i's q, k, values and gates from those of each key head. */
static void
split_row(const struct work *w, size_t i)
{
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;
    size_t n = w->n.heads, per = n / n_k, v = w->n.values / n_k;
    float *qkvz = w->a->qkv + i * w->n.fused, *ba = w->a->k + i * 2 * n;
    float *q = (w->g ? w->g->q : w->a->q) + i * w->n.channels;
    float *z = w->a->out_gate + i * w->n.values;
    float *beta = (w->g ? w->g->beta : w->a->beta) + i * n;
    float *decay = (w->g ? w->g->decay : w->a->decay) + i * n;

    for (size_t h = 0; h < n_k; h++, qkvz += 2 * (k + v), ba += 2 * per) {
        move(w, qkvz, q + h * k, k);
        move(w, qkvz + k, q + (n_k + h) * k, k);
        move(w, qkvz + 2 * k, q + 2 * n_k * k + h * v, v);
        move(w, qkvz + 2 * k + v, z + h * v, v);
        move(w, ba, beta + h * per, per);
        move(w, ba + per, decay + h * per, per);
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
            double rate = (double)w->gdn->rate[h], slope = rate;

            /* softplus, whose threshold is torch's */
            if (x <= 20) {
                double e = f64_exp(x);

                x = f64_log(1 + e);
                slope *= e / (1 + e);
            }
            decay[h] = (float)f64_exp(rate * x);
            if (w->a->slope)
                w->a->slope[i * n + h] = (float)(slope * (double)decay[h]);
        }
    }
}

/* A span's channels 'from' on, n of them, and the tokens before it. */
struct channels {
    float *x, *before; /* [rows, all], [kernel - 1, all], NULL: zeros */
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
                              s->state.at ? s->state.at + w->at + from : NULL,
                              all, smaller(CHANNELS, all - from), kernel };
        float *kept = w->a->q_rotated + span->row * all + from;
        float next[CONFIG_MAX_KERNEL * CHANNELS], sum[CHANNELS];

        if (kept_after(span))
            copy_before(&c, s->kept.at + w->at + from, all, kept_after(span));
        if (c.before)
            copy_before(&c, next, CHANNELS, span->n);
        for (size_t row = span->n; row-- > 0;) {
            memset(sum, 0, c.n * sizeof(*sum));
            for (size_t j = 0; j < kernel; j++) {
                size_t back = kernel - 1 - j;
                const float *x = row >= back ? c.x + (row - back) * all
                                 : c.before  ? c.before + (row + j) * all
                                             : NULL;

                if (x)
                    vec_mul_add(sum, w->gdn->conv + j * all + from, x, c.n);
            }
            memcpy(kept + row * all, sum, c.n * sizeof(*sum));
            vec_act(ACT_SILU, sum, NULL, c.n);
            memcpy(c.x + row * all, sum, c.n * sizeof(*sum));
        }
        for (size_t j = 0; c.before && j + 1 < kernel; j++)
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

/* A row's step of a value head, but for its state and output. */
static struct vec_delta
step_of(const struct work *w, size_t row, size_t h)
{
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;
    size_t v = (size_t)w->c->v_dim, heads = w->n.heads;
    const float *q = w->a->q + row * w->n.channels;

    return (struct vec_delta){ .q = q + h * n_k / heads * k,
                               .k = q + (n_k + h * n_k / heads) * k,
                               .v = q + 2 * n_k * k + h * v,
                               .decay = w->a->decay[row * heads + h],
                               .beta = w->a->beta[row * heads + h],
                               .rows = v,
                               .n = k };
}

/* Where the state before a row is left: spans begin anew. */
static float *
state_before(const struct work *w, size_t row, size_t h)
{
    return w->a->states + ((row / GDN_BLOCK - 1) * w->n.heads + h) *
                              (size_t)(w->c->v_dim * w->c->k_dim);
}

/* A value head of a span, token by token. */
static void
recur(void *ctx, size_t begin, size_t end, int thread)
{
    const struct work *w = ctx;
    size_t v = (size_t)w->c->v_dim, heads = w->n.heads;
    size_t size = v * (size_t)w->c->k_dim * sizeof(float);
    size_t before = (size_t)(w->c->kernel - 1) * w->n.channels;

    for (size_t i = begin; i < end; i++) {
        const struct span *span = &w->chunk->spans[i / heads];
        size_t h = i % heads, at = w->at + before + h * size / sizeof(float);
        struct session *s = span->session;
        float *state = s->state.at
                           ? s->state.at + at
                           : w->a->scratch + (size_t)thread * w->n.scratch;

        if (!s->state.at)
            memset(state, 0, size);
        for (size_t t = 0; t < span->n; t++) {
            size_t row = span->row + t;
            struct vec_delta d = step_of(w, row, h);

            if (w->a->states && t > 0 && t % GDN_BLOCK == 0)
                memcpy(state_before(w, row, h), state, size);
            d.s = d.to = state;
            d.o = w->a->attended + row * w->n.values + h * v;
            vec_delta(&d);
            if (t + 1 == kept_after(span))
                memcpy(s->kept.at + at, state, size);
        }
    }
}

/* The heads of a row, normalized, times silu(z). */
static void
finish_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t v = (size_t)w->c->v_dim, n = w->n.values;
    float head[CONFIG_MAX_HEAD_DIM];

    if (w->a->gated != w->a->out_gate)
        memcpy(w->a->gated + begin * n, w->a->out_gate + begin * n,
               (end - begin) * n * sizeof(*head));
    for (size_t at = begin * n; at < end * n; at += v) {
        norm_rows(NULL, &w->gdn->norm, head, w->a->attended + at, NULL, 1);
        vec_act(ACT_SILU, w->a->gated + at, head, v);
    }
}

void
gdn_run(struct engine *e, const struct chunk *chunk,
        const struct activations *a, size_t layer)
{
    const struct config *c = &e->model->config;
    const struct gdn *g = &e->model->layers[layer].gdn;
    struct work w = { &c->gdn, g, chunk, a, NULL, gdn_sizes(c), 0 };
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
    par_for_thread(e->par, chunk->n_spans * w.n.heads, 1, recur, &w);
    par_for(e->par, chunk->n_rows, 1, finish_rows, &w);
}

/* ---- back ---- */

/* The gradients of the heads and of z, which it becomes. */
static void
unfinish_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t v = (size_t)w->c->v_dim, n = w->n.values;
    float head[CONFIG_MAX_HEAD_DIM];

    for (size_t at = begin * n; at < end * n; at += v) {
        float *o = w->a->attended + at, *dy = w->g->attended + at;

        norm_rows(NULL, &w->gdn->norm, head, o, NULL, 1);
        vec_act_back(ACT_SILU, w->a->gated + at, w->a->out_gate + at, head, dy,
                     v);
        norm_backward(NULL, &w->gdn->norm, NULL, head, o, 1);
        memcpy(dy, head, v * sizeof(*dy));
    }
}

/*
 * Back through a step, d->s being the state S before it, d->given S k: g, the
 * gradient of the state after it, becomes that of S.
 *   g += dout q^T;  e = v - decay S k;  dv = beta g k
 *   dk += beta g^T e - decay S^T dv;  dq += decay S^T dout + (beta e dout) k
 *   dbeta += e g k;  ddecay += g S - dv S k
 *   g = decay (g - dv k^T), which is a step of it, with values of 0
 */
static void
back_step(const struct work *w, const struct vec_delta *d, float *g,
          const float *dout, float *dq, float *dv, float *dbeta, float *ddecay)
{
    static const float zeros[BACK_ROWS];
    size_t rows = d->rows, n = d->n, to_k = (size_t)w->c->n_k_heads * n;
    float change[BACK_ROWS], by_s[2 * BACK_ROWS], gk[BACK_ROWS], o[BACK_ROWS];
    const struct vec_delta back = { g,  g,        o,       d->k, d->k, zeros,
                                    gk, d->decay, d->beta, rows, n };
    struct weighted_sum sum = { .y = g,
                                .w = d->q,
                                .p = dout,
                                .ldy = n,
                                .ldw = n,
                                .ldp = 1,
                                .rows = 1,
                                .cols = n,
                                .n = rows,
                                .w_dtype = DT_F32,
                                .native = true,
                                .add = true };

    weighted_sum(&sum);
    for (size_t j = 0; j < rows; j++)
        change[j] = d->beta * (d->v[j] - d->decay * d->given[j]);
    vec_axpy(dq, vec_dot(change, dout, rows), d->k, n);
    sum.y = dq + to_k;
    sum.w = g;
    sum.p = change;
    sum.rows = rows;
    sum.n = 1;
    weighted_sum(&sum);
    *ddecay += vec_dot(g, d->s, rows * n);
    vec_delta(&back);
    for (size_t j = 0; j < rows; j++) {
        dv[j] = d->beta * gk[j];
        *dbeta += (d->v[j] - d->decay * d->given[j]) * gk[j];
        *ddecay -= dv[j] * d->given[j];
        by_s[j] = d->decay * dout[j];
        by_s[rows + j] = -d->decay * dv[j];
    }
    sum.y = dq;
    sum.ldy = to_k;
    sum.w = d->s;
    sum.p = by_s;
    sum.ldp = rows;
    sum.n = 2;
    weighted_sum(&sum);
}

/* Rows row .. row + n - 1, a block of a span, and a head's values first ..,
 * whose states of the block follow each other in 's'. */
static void
back_block(const struct work *w, bool is_first, size_t row, size_t n, size_t h,
           size_t first, float *g, float *s)
{
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;
    size_t v = (size_t)w->c->v_dim, heads = w->n.heads;
    size_t rows = smaller(BACK_ROWS, v - first), size = rows * k;
    struct vec_delta steps[GDN_BLOCK];
    float o[BACK_ROWS], given[GDN_BLOCK * BACK_ROWS];

    if (is_first)
        memset(s, 0, size * sizeof(*s));
    else
        memcpy(s, state_before(w, row, h) + first * k, size * sizeof(*s));
    for (size_t t = 0; t < n; t++, s += size) {
        steps[t] = step_of(w, row + t, h);
        steps[t].s = s;
        steps[t].to = s + size;
        steps[t].o = o;
        steps[t].v += first;
        steps[t].given = given + t * BACK_ROWS;
        steps[t].rows = rows;
        vec_delta(&steps[t]);
    }
    for (size_t t = n; t-- > 0;) {
        size_t at = row + t;
        float *dq = w->g->q + at * w->n.channels;

        back_step(w, &steps[t], g + first * k,
                  w->g->attended + at * w->n.values + h * v + first,
                  dq + h * n_k / heads * k, dq + 2 * n_k * k + h * v + first,
                  w->g->beta + at * heads + h, w->g->decay + at * heads + h);
    }
}

/* A key head of a span: its value heads, one after another. */
static void
recur_back(void *ctx, size_t begin, size_t end, int thread)
{
    const struct work *w = ctx;
    size_t k = (size_t)w->c->k_dim, v = (size_t)w->c->v_dim;
    size_t heads = w->n.heads, per = heads / (size_t)w->c->n_k_heads;
    float *g = w->a->scratch + (size_t)thread * w->n.scratch;

    for (size_t i = begin * per; i < end * per; i++) {
        const struct span *span = &w->chunk->spans[i / heads];

        memset(g, 0, v * k * sizeof(*g));
        for (size_t last = span->n, t; last > 0; last = t) {
            t = (last - 1) / GDN_BLOCK * GDN_BLOCK;
            for (size_t j = 0; j < v; j += BACK_ROWS)
                back_block(w, t == 0, span->row + t, last - t, i % heads, j, g,
                           g + v * k);
        }
    }
}

/* Back through the lengths of q and k, silu, and the gates. */
static void
unscale_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    size_t k = (size_t)w->c->k_dim, n_k = (size_t)w->c->n_k_heads;
    size_t all = w->n.channels, heads = w->n.heads;
    float x[CONFIG_MAX_HEAD_DIM];

    for (size_t i = begin; i < end; i++) {
        for (size_t h = 0; h < 2 * n_k; h++) {
            float *dx = w->g->q + i * all + h * k;
            double r, by, dot;

            memcpy(x, w->a->q_rotated + i * all + h * k, k * sizeof(*x));
            vec_act(ACT_SILU, x, NULL, k);
            r = 1 / sqrt((double)vec_dot(x, x, k) + L2_EPS);
            by = h < n_k ? r / sqrt((double)k) : r;
            dot = (double)vec_dot(dx, x, k);
            vec_scale(dx, (float)by, k);
            vec_axpy(dx, (float)(-by * r * r * dot), x, k);
        }
        vec_act_back(ACT_SILU, w->a->q + i * all, w->a->q_rotated + i * all,
                     NULL, w->g->q + i * all, all);
        for (size_t h = i * heads; h < (i + 1) * heads; h++) {
            w->g->beta[h] *= w->a->beta[h] * (1 - w->a->beta[h]);
            w->g->decay[h] *= w->a->slope[h];
        }
    }
}

/* The channels of a row have those of the kernel's tokens from it on. */
static void
unconvolve_rows(void *ctx, size_t begin, size_t end)
{
    const struct work *w = ctx;
    const struct chunk *c = w->chunk;
    size_t all = w->n.channels, kernel = (size_t)w->c->kernel;

    for (size_t i = begin; i < end; i++) {
        float *dx = w->g->q + i * all;

        memset(dx, 0, all * sizeof(*dx));
        for (size_t j = 0; j < kernel; j++) {
            size_t row = i + kernel - 1 - j;

            if (row < c->n_rows && c->rows[row].session == c->rows[i].session)
                vec_mul_add(dx, w->gdn->conv + j * all,
                            w->a->q_rotated + row * all, all);
        }
        if (w->n.fused)
            split_row(w, i);
    }
}

void
gdn_backward(struct engine *e, const struct chunk *chunk,
             const struct activations *a, const struct block_grads *grads,
             size_t layer, float *input)
{
    const struct config *c = &e->model->config;
    const struct gdn *g = &e->model->layers[layer].gdn;
    struct work w = { &c->gdn, g, chunk, a, grads, gdn_sizes(c), 0 };
    const struct {
        const struct linear *linear;
        const float *dy;
    } of[2][4] = { { { &g->qkv, grads->q },
                     { &g->z, a->out_gate },
                     { &g->b, grads->beta },
                     { &g->a, grads->decay } },
                   { { &g->qkvz, a->qkv }, { &g->ba, a->k } } };
    size_t n = chunk->n_rows;

    memset(grads->q, 0, n * w.n.channels * sizeof(*grads->q));
    memset(grads->beta, 0, n * w.n.heads * sizeof(*grads->beta));
    memset(grads->decay, 0, n * w.n.heads * sizeof(*grads->decay));
    par_for(e->par, n, 1, unfinish_rows, &w);
    par_for_thread(e->par, chunk->n_spans * (size_t)c->gdn.n_k_heads, 1,
                   recur_back, &w);
    par_for(e->par, n, 1, unscale_rows, &w);
    par_for(e->par, n, 1, unconvolve_rows, &w);
    for (size_t i = 0; i < (w.n.fused ? 2 : 4); i++)
        block_back_linear(e, grads, of[w.n.fused > 0][i].linear, a->attn_in,
                          input, i > 0, of[w.n.fused > 0][i].dy, n);
}
