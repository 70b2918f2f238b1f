/* SPDX-License-Identifier: ISC */
#include "core/model/compressor.h"

#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/mem.h"
#include "core/model/engine.h"
#include "core/par.h"

/* ---- one MLP ---- */

static float
round_f16(float x)
{
    return f16_to_f32(f32_to_f16(x));
}

static void
load_f16(float *to, const struct kvc *k, size_t offset, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = round_f16((float)dtype_get(k->dtype, k->map.data + offset, i));
}

int
compressor_mlp_load(struct compressor_mlp *m, const struct kvc *k, size_t layer,
                    enum kvc_prefix prefix, struct err *err)
{
    size_t per = k->header.weight_count_per_layer;
    size_t first = (size_t)prefix * KVC_SLOTS;

    *m = (struct compressor_mlp){ 0 };
    if (layer >= k->header.num_layers || first + KVC_SLOTS > per)
        return err_set(err, EX_DATAERR,
                       "%s: no blocks %zu .. %zu of layer %zu (%u layers of "
                       "%zu)",
                       k->path, first, first + KVC_SLOTS - 1, layer,
                       k->header.num_layers, per);
    for (size_t i = 0; i < KVC_SLOTS; i++) {
        const struct kvc_block *b = &k->blocks[layer * per + first + i];

        if (i > 0 && b->cols != m->dims[i]) {
            err_set(err, EX_DATAERR,
                    "%s: the block at byte %zu has %u columns (expected %zu, "
                    "the rows before it)",
                    k->path, b->at, b->cols, m->dims[i]);
            goto fail;
        }
        m->dims[i] = b->cols;
        m->dims[i + 1] = b->rows;
        m->w[i] = mem_try((size_t)b->rows * b->cols, sizeof(float),
                          "a compressor's weights", err);
        if (!m->w[i])
            goto fail;
        m->bias[i] = xcalloc(b->rows, sizeof(float));
        load_f16(m->w[i], k, b->weight, (size_t)b->rows * b->cols);
        if (b->has_bias)
            load_f16(m->bias[i], k, b->bias, b->rows);
    }
    if (m->dims[0] % m->dims[KVC_SLOTS] == 0)
        return 0;
    err_set(err, EX_DATAERR,
            "%s: layer %zu block %zu: %zu columns are not a number of tokens "
            "of %zu",
            k->path, layer, first, m->dims[0], m->dims[KVC_SLOTS]);
fail:
    compressor_mlp_free(m);
    return -1;
}

void
compressor_mlp_free(struct compressor_mlp *m)
{
    for (size_t i = 0; i < KVC_SLOTS; i++) {
        free(m->w[i]);
        free(m->bias[i]);
    }
    *m = (struct compressor_mlp){ 0 };
}

size_t
compressor_mlp_scratch(const struct compressor_mlp *m)
{
    return m->dims[0] + m->dims[1] + m->dims[2];
}

/* W x in double: whatever the order, f32 has it exactly rounded but for ties.
 * Eight sums side by side keep the adders busy. */
static double
dot(const float *w, const float *x, size_t n)
{
    double sums[8] = { 0 };
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += (double)w[i + j] * x[i + j];
    for (; i < n; i++)
        sums[i % 8] += (double)w[i] * x[i];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static void
apply_slot(const struct compressor_mlp *m, size_t slot, float *y,
           const float *x)
{
    size_t cols = m->dims[slot];

    for (size_t r = 0; r < m->dims[slot + 1]; r++) {
        const float *w = m->w[slot] + r * cols;

        y[r] = round_f16((float)(dot(w, x, cols) + m->bias[slot][r]));
    }
}

static void
relu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] > 0 || x[i] != x[i] ? x[i] : 0;
}

size_t
compressor_mlp_run(const struct compressor_mlp *m, float *y, const float *x,
                   size_t n, float *scratch)
{
    float *in = scratch, *h0 = in + m->dims[0], *h1 = h0 + m->dims[1];
    size_t d = m->dims[KVC_SLOTS], factor = m->dims[0] / d;
    size_t n_groups = n / factor, n_left = n % factor;

    for (size_t i = 0; i < n_groups; i++) {
        for (size_t j = 0; j < m->dims[0]; j++)
            in[j] = round_f16(x[i * m->dims[0] + j]);
        apply_slot(m, 0, h0, in);
        relu(h0, m->dims[1]);
        apply_slot(m, 1, h1, h0);
        relu(h1, m->dims[2]);
        apply_slot(m, 2, y + i * d, h1);
    }
    memmove(y + n_groups * d, x + n_groups * factor * d,
            n_left * d * sizeof(*y));
    return n_groups + n_left;
}

/* ---- those of a model ---- */

struct compressor {
    size_t n_layers, factor, min_groups;
    struct compressor_mlp (*mlps)[2]; /* [n_layers] of keys and of values */
};

int
compressor_open(struct compressor **compressor, const char *path,
                const struct config *config, struct err *err)
{
    size_t d = (size_t)config->head_dim;
    struct compressor *c;
    struct kvc kvc;
    int rc = 0;

    *compressor = NULL;
    if (kvc_open(&kvc, path, err) < 0)
        return -1;
    c = xcalloc(1, sizeof(*c));
    c->factor = kvc.header.compression_factor;
    if (kvc.header.num_layers != config->n_layers)
        rc = err_set(err, EX_DATAERR,
                     "%s: has %u layers (expected the model's %lld)", path,
                     kvc.header.num_layers, (long long)config->n_layers);
    else if (config->n_states)
        rc = err_set(err, EX_DATAERR,
                     "%s: %d layers of the model have a state in place of keys "
                     "and values, which nothing makes fewer",
                     path, (int)config->n_states);
    else if (c->factor < 2)
        rc = err_set(err, EX_DATAERR,
                     "%s: compression_factor is %zu (expected at least 2)",
                     path, c->factor);
    else if (config->v_head_dim != config->head_dim)
        rc = err_set(err, EX_DATAERR,
                     "%s: a key of the model has %lld numbers and a value "
                     "%lld, which a compressor cannot have",
                     path, (long long)config->head_dim,
                     (long long)config->v_head_dim);
    for (int64_t i = 0; i < config->n_layers && rc == 0; i++)
        if (config->window[i])
            rc = err_set(err, EX_DATAERR,
                         "%s: layer %lld of the model has a sliding window, "
                         "which a shorter cache cannot have",
                         path, (long long)i);
    c->n_layers = rc < 0 ? 0 : (size_t)config->n_layers;
    c->min_groups = kvc.header.min_seq_len;
    c->mlps = xcalloc(c->n_layers, sizeof(*c->mlps));
    for (size_t i = 0; i < 2 * c->n_layers && rc == 0; i++) {
        struct compressor_mlp *mlp = &c->mlps[i / 2][i % 2];

        rc = compressor_mlp_load(mlp, &kvc, i / 2,
                                 i % 2 ? KVC_TEXT_V : KVC_TEXT_K, err);
        if (rc == 0 &&
            (mlp->dims[KVC_SLOTS] != d || mlp->dims[0] != c->factor * d))
            rc = err_set(err, EX_DATAERR,
                         "%s: layer %zu makes %zu numbers of %zu (expected %zu "
                         "of %zu: head_dim of %zu tokens)",
                         kvc.path, i / 2, mlp->dims[KVC_SLOTS], mlp->dims[0], d,
                         c->factor * d, c->factor);
    }
    kvc_close(&kvc);
    if (rc < 0)
        compressor_close(c);
    else
        *compressor = c;
    return rc;
}

void
compressor_close(struct compressor *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < 2 * c->n_layers; i++)
        compressor_mlp_free(&c->mlps[i / 2][i % 2]);
    free(c->mlps);
    free(c);
}

/* A call of session_compress(): a task is a head of a layer. */
struct work {
    struct kv *kv;
    const struct compressor *c;
    size_t n, n_after; /* keys before and after */
    size_t scratch_n;  /* floats, of one thread: */
    float *memory;     /* k and v [n, head_dim], scratch */
};

static void
compress_heads(void *ctx, size_t begin, size_t end, int thread)
{
    const struct work *w = ctx;
    size_t nd = w->n * w->kv->head_dim;
    float *k = w->memory + (size_t)thread * (2 * nd + w->scratch_n);
    float *v = k + nd, *scratch = v + nd;

    for (size_t i = begin; i < end; i++) {
        size_t layer = i / w->kv->n_heads, head = i % w->kv->n_heads;

        kv_get(w->kv, layer, head, w->n, k, v);
        compressor_mlp_run(&w->c->mlps[layer][0], k, k, w->n, scratch);
        compressor_mlp_run(&w->c->mlps[layer][1], v, v, w->n, scratch);
        kv_set(w->kv, layer, head, 0, w->n_after, k, v);
    }
}

int
session_compress(struct session *s, const struct compressor *c, struct err *err)
{
    struct par *par = s->engine->par;
    struct work w = { .kv = &s->kv, .c = c, .n = s->n_cached };
    size_t n_groups = w.n / c->factor, threads = (size_t)par_threads(par);
    size_t room;

    if (n_groups < c->min_groups || n_groups == 0)
        return 0;
    w.n_after = n_groups + w.n % c->factor;
    for (size_t i = 0; i < 2 * c->n_layers; i++)
        w.scratch_n =
            larger(w.scratch_n, compressor_mlp_scratch(&c->mlps[i / 2][i % 2]));
    room = 2 * w.n * s->kv.head_dim + w.scratch_n;
    if (kv_grow(&s->kv, 0, s->n_cached, err) < 0) /* no other session's */
        return -1;
    w.memory = mem_try(threads, room * sizeof(float), "the compressor", err);
    if (!w.memory)
        return -1;
    par_for_thread(par, s->kv.n_layers * s->kv.n_heads, 1, compress_heads, &w);
    free(w.memory);
    s->n_cached = w.n_after;
    return 1;
}
