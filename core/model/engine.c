#include "core/model/engine.h"

#include <stdlib.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/block.h"
#include "core/model/experts.h"
#include "core/model/model.h"
#include "core/model/session.h"
#include "core/model/tables.h"

/* Bytes of a chunk's activations, or those of one token: a chunk of a model of
 * 600 GB takes 300 MiB, and a file of 2 MB whose heads have 2^18 numbers 2 GB
 * without this. */
#define ACTIVATIONS_MAX ((size_t)512 << 20)

/* ---- feeding ---- */

static int
check_feed(const struct feed *f, struct err *err)
{
    const struct session *s = f->session;
    size_t vocab = (size_t)s->engine->model->config.vocab_size;

    if (f->n > s->max_tokens - s->n)
        return err_set(err, EX_DATAERR,
                       "the text has %zu tokens, but the context has room for "
                       "%zu",
                       s->n + f->n, s->max_tokens);
    for (size_t i = 0; i < f->n; i++)
        if (f->ids[i] < 0 || (size_t)f->ids[i] >= vocab)
            return err_set(err, EX_DATAERR,
                           "token id %ld is not in the vocabulary (0 to %zu)",
                           (long)f->ids[i], vocab - 1);
    return 0;
}

/* Puts n tokens of a feed, from 'done' on, into the chunk. */
static void
add_span(struct chunk *c, const struct feed *f, size_t done, size_t n)
{
    struct session *s = f->session;

    c->spans[c->n_spans++] = (struct span){ .session = s,
                                            .row = c->n_rows,
                                            .n = n,
                                            .first = s->n,
                                            .slot = s->n - s->gone,
                                            .generated = f->generated };
    for (size_t i = done; i < done + n; i++) {
        if (f->n - i <= f->n_logits)
            c->wanted[c->n_wanted++] = c->n_rows;
        c->rows[c->n_rows++] = (struct row){ .session = s,
                                             .position = s->n + i - done,
                                             .slot = s->n - s->gone + i - done,
                                             .id = f->ids[i] };
    }
}

/* Runs the chunk and starts the next one; returns its rows of logits. */
static size_t
flush(struct engine *e, float *logits)
{
    struct chunk *c = &e->chunk;
    size_t n = c->n_wanted;

    if (c->n_rows > 0)
        chunk_run(e, c, &e->acts, 1, logits);
    for (size_t i = 0; i < c->n_spans; i++)
        c->spans[i].session->n += c->spans[i].n;
    c->n_spans = c->n_rows = c->n_wanted = 0;
    return n;
}

int
engine_feed(struct engine *e, const struct feed *feeds, size_t n_feeds,
            float *logits, struct err *err)
{
    size_t vocab = (size_t)e->model->config.vocab_size;

    for (size_t i = 0; i < n_feeds; i++)
        if (check_feed(&feeds[i], err))
            return -1;
    for (size_t i = 0; i < n_feeds; i++)
        if (kv_grow(&feeds[i].session->kv,
                    session_cached(feeds[i].session) + feeds[i].n, err))
            return -1;
    for (size_t i = 0; i < n_feeds; i++)
        for (size_t done = 0, n; done < feeds[i].n; done += n) {
            size_t room = e->options.chunk - e->chunk.n_rows;

            n = feeds[i].n - done < room ? feeds[i].n - done : room;
            add_span(&e->chunk, &feeds[i], done, n);
            if (e->chunk.n_rows == e->options.chunk)
                logits += flush(e, logits) * vocab;
        }
    flush(e, logits);
    return 0;
}

/* ---- memory ---- */

/* Hands out 'floats' of the scratch, or counts them while there is none. */
static float *
take(struct engine *e, size_t *used, size_t floats)
{
    float *p = e->scratch ? e->scratch + *used : NULL;

    *used += (floats + 15) / 16 * 16; /* whole cache lines */
    return p;
}

/* The widest step between gate_proj and down_proj. */
static size_t
widest_inner(const struct config *c)
{
    size_t n = c->n_experts ? (size_t)c->expert_size : 0;

    for (int64_t i = 0; i < c->n_layers; i++)
        if (!c->sparse[i])
            return larger(n, (size_t)c->intermediate_size);
    return n;
}

static size_t
lay_out(struct engine *e)
{
    const struct config *c = &e->model->config;
    struct activations *a = &e->acts;
    size_t hidden = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t nq = (size_t)c->n_heads * d, nkv = (size_t)c->n_kv_heads * d;
    size_t inter = widest_inner(c), chunk = e->options.chunk;
    size_t threads = (size_t)par_threads(e->par);
    size_t used = 0;

    a->x = a->mid = a->out = take(e, &used, chunk * hidden);
    a->attn_in = a->attn_out = a->mlp_in = take(e, &used, chunk * hidden);
    a->mlp_out = c->n_experts ? take(e, &used, chunk * hidden) : a->mlp_in;
    a->q = a->q_rotated = take(e, &used, chunk * nq);
    a->attended = take(e, &used, chunk * nq);
    a->k = a->k_rotated = take(e, &used, chunk * nkv);
    a->v = take(e, &used, chunk * nkv);
    a->gate = a->inner = take(e, &used, chunk * inter);
    a->up = take(e, &used, chunk * inter);
    e->head_in = a->mlp_in;
    e->chunk.cosines = take(e, &used, chunk * d / 2);
    e->chunk.sines = take(e, &used, chunk * d / 2);
    e->low = take(e, &used, chunk * e->model->lora_rank);
    e->attention_scratch = take(e, &used, threads * attention_scratch(c));
    if (e->options.compute == COMPUTE_BF16) {
        size_t widest = larger(larger(hidden, nq), inter);

        e->rounded = (uint16_t *)(void *)take(e, &used,
                                              chunk * gemm_ld_bf16(widest) / 2);
        e->widened = take(e, &used, chunk * widest);
    }
    return used;
}

/* The chunk that was asked for, or as much of it as ACTIVATIONS_MAX has room
 * for: the numbers do not depend on it. */
static size_t
fitting_chunk(struct engine *e, size_t chunk)
{
    const struct config *c = &e->model->config;
    size_t floats, most;

    e->options.chunk = 16; /* whole cache lines of each */
    floats = lay_out(e);
    e->options.chunk = 32;
    floats = (lay_out(e) - floats) / 16 + tables_floats(e->model->tables);
    if (c->n_experts)
        floats +=
            (size_t)(2 * c->hidden_size + 3 * c->n_experts_used + c->n_experts);
    most = ACTIVATIONS_MAX / (floats * sizeof(float));
    return chunk < most ? chunk : larger(most, 1);
}

int
engine_open(struct engine **engine, const struct model *model, struct par *par,
            const struct engine_options *options, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));

    *engine = NULL;
    e->model = model;
    e->par = par;
    e->options = *options;
    e->options.chunk = fitting_chunk(e, options->chunk);
    e->chunk.spans = xcalloc(e->options.chunk, sizeof(*e->chunk.spans));
    e->chunk.rows = xcalloc(e->options.chunk, sizeof(*e->chunk.rows));
    e->chunk.wanted = xcalloc(e->options.chunk, sizeof(*e->chunk.wanted));
    e->scratch_floats = lay_out(e);
    e->scratch =
        mem_big(e->scratch_floats, sizeof(float), "the activations", err);
    if (!e->scratch || gemm_open(&e->gemm, par, err) ||
        experts_work_open(e, err) || tables_work_open(e, err)) {
        engine_close(e);
        return -1;
    }
    lay_out(e);
    *engine = e;
    return 0;
}

void
engine_close(struct engine *e)
{
    if (!e)
        return;
    tables_work_close(e);
    experts_work_close(e);
    gemm_close(e->gemm);
    mem_big_free(e->scratch, e->scratch_floats, sizeof(float));
    free(e->chunk.wanted);
    free(e->chunk.rows);
    free(e->chunk.spans);
    free(e);
}

void
engine_tap(struct engine *e, const struct tap *tap)
{
    e->tap = tap;
}
