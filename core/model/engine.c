#include "core/model/engine.h"

#include <stdlib.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/model.h"
#include "core/model/tables.h"
#include "core/tty.h"

/* Bytes of a chunk's activations, or those of one token: a chunk of a model of
 * 600 GB takes 300 MiB, and a file of 2 MB whose heads have 2^18 numbers 2 GB
 * without this. */
#define ACTIVATIONS_MAX ((size_t)512 << 20)

/* Floats in whole cache lines. */
static size_t
padded(size_t floats)
{
    return (floats + 15) / 16 * 16;
}

int
engine_open(struct engine **engine, const struct model *model, struct par *par,
            const struct engine_options *options, struct err *err)
{
    const struct config *c = &model->config;
    struct engine *e = xcalloc(1, sizeof(*e));
    struct activations *a = &e->acts;
    struct experts_work *w = &e->experts;
    size_t n_experts = (size_t)c->n_experts, k = (size_t)c->n_experts_used;
    size_t hidden = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t nq = (size_t)c->n_heads * d, nkv = (size_t)c->n_kv_heads * d;
    size_t inter = (size_t)c->expert_size, widest;
    size_t of_experts = n_experts ? hidden : 0;
    bool bf16 = options->compute == COMPUTE_BF16;
    float *rounded, *selected, *slots;

    for (int64_t i = 0; i < c->n_layers; i++)
        if (!c->sparse[i])
            inter = larger(inter, (size_t)c->intermediate_size);
    widest = larger(larger(hidden, nq), inter);

    const struct {
        float **to;
        size_t n; /* for each token */
    } rooms[] = {
        { &a->x, hidden },
        { &a->attn_in, hidden },
        { &a->mlp_out, of_experts },
        { &a->q, nq },
        { &a->attended, nq },
        { &a->k, nkv },
        { &a->v, nkv },
        { &a->gate, inter },
        { &a->up, inter },
        { &e->chunk.cosines, d / 2 },
        { &e->chunk.sines, d / 2 },
        { &e->low, model->lora_rank },
        { &rounded, bf16 ? gemm_ld_bf16(widest) / 2 : 0 },
        { &e->widened, bf16 ? widest : 0 },
        { &w->x, of_experts },
        { &w->y, of_experts },
        { &w->probability, n_experts },
        { &w->weights, k },
        { &selected, k },
        { &slots, k },
    };
    const size_t n_rooms = sizeof(rooms) / sizeof(*rooms);
    size_t n_floats = tables_floats(model->tables), chunk;
    float *at;

    for (size_t i = 0; i < n_rooms; i++)
        n_floats += rooms[i].n;
    chunk = larger(ACTIVATIONS_MAX / (n_floats * sizeof(float)), 1);
    chunk = smaller(chunk, options->chunk);

    *engine = NULL;
    e->model = model;
    e->par = par;
    e->options = *options;
    e->options.chunk = chunk;
    e->chunk.spans = xcalloc(chunk, sizeof(*e->chunk.spans));
    e->chunk.rows = xcalloc(chunk, sizeof(*e->chunk.rows));
    e->chunk.wanted = xcalloc(chunk, sizeof(*e->chunk.wanted));
    w->n = n_experts;
    w->k = k;
    w->first = xcalloc(n_experts + 1, sizeof(*w->first));
    e->scratch_floats = (size_t)par_threads(par) * attention_scratch(c);
    for (size_t i = 0; i < n_rooms; i++)
        e->scratch_floats += padded(chunk * rooms[i].n);
    e->scratch = at =
        mem_big(e->scratch_floats, sizeof(float), "the activations", err);
    if (!e->scratch || gemm_open(&e->gemm, par, err) ||
        tables_work_open(e, err)) {
        engine_close(e);
        return -1;
    }
    for (size_t i = 0; i < n_rooms; i++) {
        *rooms[i].to = at;
        at += padded(chunk * rooms[i].n);
    }
    e->attention_scratch = at;
    e->rounded = (uint16_t *)(void *)rounded;
    w->selected = (uint32_t *)(void *)selected;
    w->slots = (uint32_t *)(void *)slots;
    a->mid = a->out = a->x;
    a->attn_out = a->mlp_in = e->head_in = a->attn_in;
    if (!n_experts)
        a->mlp_out = a->mlp_in;
    a->q_rotated = a->q;
    a->k_rotated = a->k;
    a->inner = a->gate;
    *engine = e;
    return 0;
}

void
engine_close(struct engine *e)
{
    if (!e)
        return;
    tables_work_close(e);
    gemm_close(e->gemm);
    mem_big_free(e->scratch, e->scratch_floats, sizeof(float));
    free(e->experts.first);
    free(e->chunk.wanted);
    free(e->chunk.rows);
    free(e->chunk.spans);
    free(e);
}

struct session *
session_new(struct engine *engine, size_t max_tokens)
{
    const struct config *c = &engine->model->config;
    struct session *s = xcalloc(1, sizeof(*s));

    s->engine = engine;
    s->max_tokens = max_tokens;
    s->kv.n_layers = (size_t)c->n_layers;
    s->kv.n_heads = (size_t)c->n_kv_heads;
    s->kv.head_dim = (size_t)c->head_dim;
    s->kv.dtype = engine->options.kv;
    return s;
}

void
session_close(struct session *s)
{
    if (!s)
        return;
    kv_free(&s->kv);
    free(s);
}

static int
check_feed(const struct feed *f, struct err *err)
{
    const struct session *s = f->session;
    size_t vocab = (size_t)s->engine->model->config.vocab_size;

    if (f->n > s->max_tokens - s->n)
        return err_set(err, EX_DATAERR,
                       "the text has %zu token%s, but the context has room for "
                       "%zu",
                       s->n + f->n, plural(s->n + f->n), s->max_tokens);
    for (size_t i = 0; i < f->n; i++)
        if (f->ids[i] < 0 || (size_t)f->ids[i] >= vocab)
            return err_set(err, EX_DATAERR,
                           "token id %ld is not in the vocabulary (0 to %zu)",
                           (long)f->ids[i], vocab - 1);
    return 0;
}

/* Runs the chunk and starts the next one; returns where its logits end. */
static float *
flush(struct engine *e, float *logits)
{
    struct chunk *c = &e->chunk;

    if (c->n_rows > 0)
        chunk_run(e, c, &e->acts, 1, logits);
    for (size_t i = 0; i < c->n_spans; i++) {
        c->spans[i].session->n += c->spans[i].n;
        c->spans[i].session->n_cached += c->spans[i].n;
    }
    logits += c->n_wanted * (size_t)e->model->config.vocab_size;
    c->n_spans = c->n_rows = c->n_wanted = 0;
    return logits;
}

int
engine_feed(struct engine *e, const struct feed *feeds, size_t n_feeds,
            const struct tap *tap, float *logits, struct err *err)
{
    struct chunk *c = &e->chunk;

    for (size_t i = 0; i < n_feeds; i++)
        if (check_feed(&feeds[i], err))
            return -1;
    for (size_t i = 0; i < n_feeds; i++)
        if (kv_grow(&feeds[i].session->kv,
                    feeds[i].session->n_cached + feeds[i].n, err))
            return -1;
    c->tap = tap;
    for (const struct feed *f = feeds; f < feeds + n_feeds; f++) {
        struct session *s = f->session;

        for (size_t done = 0, n; done < f->n; done += n) {
            n = smaller(f->n - done, e->options.chunk - c->n_rows);
            c->spans[c->n_spans++] = (struct span){ .session = s,
                                                    .row = c->n_rows,
                                                    .n = n,
                                                    .first = s->n,
                                                    .slot = s->n_cached,
                                                    .generated = f->generated };
            for (size_t i = 0; i < n; i++) {
                if (f->n - done - i <= f->n_logits)
                    c->wanted[c->n_wanted++] = c->n_rows;
                c->rows[c->n_rows++] = (struct row){ .session = s,
                                                     .position = s->n + i,
                                                     .slot = s->n_cached + i,
                                                     .id = f->ids[done + i] };
            }
            if (c->n_rows == e->options.chunk)
                logits = flush(e, logits);
        }
    }
    flush(e, logits);
    return 0;
}

int
session_feed(struct session *s, const int32_t *ids, size_t n, float *logits,
             size_t n_logits, struct err *err)
{
    const struct feed feed = { s, ids, n, n_logits, false };

    return engine_feed(s->engine, &feed, 1, NULL, logits, err);
}
