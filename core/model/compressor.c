#include "core/model/compressor.h"

#include <stdlib.h>

#include "core/format/kvc.h"
#include "core/mem.h"
#include "core/model/compressor_mlp.h"
#include "core/model/engine.h"
#include "core/model/session.h"
#include "core/par.h"

struct compressor {
    size_t n_layers, factor, min_groups;
    struct compressor_mlp *k, *v; /* [n_layers] */
};

static int
check_header(const struct kvc *kvc, const struct config *c, struct err *err)
{
    if (kvc->header.num_layers != c->n_layers)
        return err_set(
            err, EX_DATAERR, "%s: has %u layers (expected the model's %lld)",
            kvc->path, kvc->header.num_layers, (long long)c->n_layers);
    if (kvc->header.compression_factor < 2)
        return err_set(err, EX_DATAERR,
                       "%s: compression_factor is %u (expected at least 2)",
                       kvc->path, kvc->header.compression_factor);
    for (int64_t i = 0; i < c->n_layers; i++)
        if (c->window[i])
            return err_set(err, EX_DATAERR,
                           "%s: layer %lld of the model has a sliding window, "
                           "which a shorter cache cannot have",
                           kvc->path, (long long)i);
    return 0;
}

static int
load(struct compressor_mlp *mlp, const struct kvc *kvc, size_t layer,
     enum kvc_prefix prefix, const struct config *c, struct err *err)
{
    size_t d = (size_t)c->head_dim, factor = kvc->header.compression_factor;

    if (compressor_mlp_load(mlp, kvc, layer, prefix, err) < 0)
        return -1;
    if (mlp->dims[KVC_SLOTS] == d && mlp->dims[0] == factor * d)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: layer %zu makes %zu numbers of %zu (expected %zu of "
                   "%zu: head_dim of %zu tokens)",
                   kvc->path, layer, mlp->dims[KVC_SLOTS], mlp->dims[0], d,
                   factor * d, factor);
}

int
compressor_open(struct compressor **compressor, const char *path,
                const struct config *config, struct err *err)
{
    struct compressor *c = xcalloc(1, sizeof(*c));
    struct kvc kvc;
    int rc;

    *compressor = NULL;
    if (kvc_open(&kvc, path, err) < 0) {
        free(c);
        return -1;
    }
    rc = check_header(&kvc, config, err);
    c->n_layers = rc < 0 ? 0 : (size_t)config->n_layers;
    c->factor = kvc.header.compression_factor;
    c->min_groups = kvc.header.min_seq_len;
    c->k = xcalloc(c->n_layers, sizeof(*c->k));
    c->v = xcalloc(c->n_layers, sizeof(*c->v));
    for (size_t i = 0; i < c->n_layers && rc == 0; i++)
        if (load(&c->k[i], &kvc, i, KVC_TEXT_K, config, err) < 0 ||
            load(&c->v[i], &kvc, i, KVC_TEXT_V, config, err) < 0)
            rc = -1;
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
    for (size_t i = 0; i < c->n_layers; i++) {
        compressor_mlp_free(&c->k[i]);
        compressor_mlp_free(&c->v[i]);
    }
    free(c->k);
    free(c->v);
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
        compressor_mlp_run(&w->c->k[layer], k, k, w->n, scratch);
        compressor_mlp_run(&w->c->v[layer], v, v, w->n, scratch);
        kv_set(w->kv, layer, head, w->n_after, k, v);
    }
}

/* The most that any of the MLPs needs. */
static size_t
scratch_floats(const struct compressor *c)
{
    size_t max = 0;

    for (size_t i = 0; i < c->n_layers; i++) {
        size_t k = compressor_mlp_scratch(&c->k[i]),
               v = compressor_mlp_scratch(&c->v[i]);

        max = k > max ? k : max;
        max = v > max ? v : max;
    }
    return max;
}

int
session_compress(struct session *s, const struct compressor *c, struct err *err)
{
    struct par *par = s->engine->par;
    struct work w = { .kv = &s->kv, .c = c, .n = session_cached(s) };
    size_t n_groups = w.n / c->factor, threads = (size_t)par_threads(par);
    size_t room;

    if (n_groups < c->min_groups || n_groups == 0)
        return 0;
    w.n_after = n_groups + w.n % c->factor;
    w.scratch_n = scratch_floats(c);
    room = 2 * w.n * s->kv.head_dim + w.scratch_n;
    w.memory = mem_try(threads, room * sizeof(float), "the compressor", err);
    if (!w.memory)
        return -1;
    par_for(par, s->kv.n_layers * s->kv.n_heads, 1, compress_heads, &w);
    free(w.memory);
    s->gone += w.n - w.n_after;
    return 1;
}
