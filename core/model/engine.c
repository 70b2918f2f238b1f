/* SPDX-License-Identifier: ISC */
#include "core/model/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/attention.h"
#include "core/model/ends.h"
#include "core/model/gdn.h"
#include "core/model/mla.h"
#include "core/model/model.h"
#include "core/model/splice.h"
#include "core/model/tables.h"
#include "core/tty.h"

/* Bytes of a chunk's activations, or those of one token: a chunk of a model of
 * 600 GB takes 300 MiB, and a file of 2 MB whose heads have 2^18 numbers 2 GB
 * without this. */
#define ACTIVATIONS_MAX ((size_t)512 << 20)

/* What is allocated for an engine: first for each thread, the others for each
 * token of a chunk.  Returns how many there are; rows are not set but of the
 * first. */
#define MAX_ARRAYS 37

static bool
attends_bf16(const struct model *model, const struct engine_options *options)
{
    return options->compute == COMPUTE_BF16 && !options->latents &&
           attention_takes_bf16(&model->config);
}

/* The config with the heads that the cache has. */
static struct config
cached(const struct model *model, const struct engine_options *options)
{
    return options->latents ? mla_cached(&model->config) : model->config;
}

static size_t
list_arrays(struct engine *e, const struct model *model, size_t n_threads,
            const struct engine_options *options,
            struct mem_array to[MAX_ARRAYS])
{
    const struct config *c = &model->config, of_cache = cached(model, options);
    struct activations *a = &e->acts;
    struct experts_work *w = &e->experts;
    size_t n_experts = (size_t)c->n_experts, k = (size_t)c->n_experts_used;
    size_t hidden = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t dv = (size_t)c->v_head_dim, no = (size_t)c->n_heads * dv;
    size_t heads = (size_t)c->n_heads, nq = heads * d;
    size_t nk = (size_t)c->n_kv_heads * d, nv = (size_t)c->n_kv_heads * dv;
    size_t inter = (size_t)c->widest_mlp;
    size_t q_low = (size_t)c->q_rank, kv_low = (size_t)c->kv_rank;
    size_t low = c->form.mla ? kv_low + (size_t)c->rotary_dim : 0;
    struct gdn_sizes gdn = gdn_sizes(c);
    size_t gates = larger(c->form.out_gate ? no : 0, gdn.values);
    size_t widest = larger(larger(hidden, larger(no, gdn.values)),
                           larger(inter, larger(q_low, kv_low)));
    size_t of_experts = n_experts ? hidden : 0;
    size_t own = options->bare ? 0 : 1; /* activations */
    const struct model_form *f = &c->form;
    size_t fused_qkv = config_fused(c), gate_up = f->gate_up;
    size_t parallel = f->residual != RESIDUAL_SEQUENTIAL;
    /* a bare one's products go back, too */
    size_t back =
        own ? 0
            : larger(larger(larger(fused_qkv, gdn.channels),
                            larger(gdn.fused, larger(f->mla * nq, low))),
                     (1 + gate_up) * (size_t)c->widest_mlp);
    size_t rope = config_ropes(c) * (size_t)c->rotary_dim / 2;
    bool bf16 = options->compute == COMPUTE_BF16;

    if (options->latents) { /* queries and sums of latents */
        fused_qkv = heads * (size_t)of_cache.head_dim;
        nk = heads * kv_low;
        nv = 0;
    }

    const struct mem_array arrays[] = {
        { &e->attention_scratch, n_threads,
          attention_scratch(&of_cache, attends_bf16(model, options)), 4 },
        { &e->chunk.spans, 1, 1, sizeof(*e->chunk.spans) },
        { &e->chunk.rows, 1, 1, sizeof(*e->chunk.rows) },
        { &e->ids, 1, 1, sizeof(*e->ids) },
        { &e->wanted_spans, 1, own, sizeof(*e->wanted_spans) },
        { &e->chunk.wanted, 1, 1, sizeof(*e->chunk.wanted) },
        { &a->x, 1, own * hidden, 4 },
        { &a->attn_in, 1, own * hidden, 4 },
        { &a->mlp_out, 1, own * of_experts, 4 },
        { &a->mlp_in, 1, own * parallel * hidden, 4 },
        { &a->qkv, 1, own * larger(fused_qkv, gdn.fused), 4 },
        { &a->q_low, 1, own * q_low, 4 },
        { &a->kv_low, 1, own * low, 4 },
        { &a->kv_normed, 1, own * kv_low, 4 },
        { &a->q, 1, own * larger(nq, gdn.channels), 4 },
        { &a->attended, 1, own * larger(no, gdn.values), 4 },
        { &a->out_gate, 1, own * gates, 4 },
        { &a->beta, 1, own * gdn.heads, 4 },
        { &a->decay, 1, own * gdn.heads, 4 },
        { &a->k, 1, own * larger(nk, 2 * gdn.heads), 4 },
        { &a->v, 1, own * nv, 4 },
        { &a->gate, 1, own * inter * (1 + gate_up), 4 },
        { &a->up, 1, own * !gate_up * !f->plain_mlp * inter, 4 },
        { &a->inner, 1, own * gate_up * inter, 4 },
        { &e->chunk.cosines, 1, rope, 4 },
        { &e->chunk.sines, 1, rope, 4 },
        { &e->low, 1, model->lora_rank, 4 },
        { &e->rounded, 1, bf16 ? gemm_ld_bf16(larger(widest, back)) : 0, 2 },
        { &e->widened, 1, bf16 ? widest : 0, 4 },
        { &e->row_scale, 1, bf16 && n_experts, 4 },
        { &w->x, 1, of_experts, 4 },
        { &w->y, 1, of_experts, 4 },
        { &w->scores, 1, n_experts, 4 },
        { &w->weights, 1, k, 4 },
        { &w->selected, 1, k, 4 },
        { &w->slots, 1, k, 4 },
        { &w->shared, 1, n_experts && f->weighs_shared, 4 },
    };
    _Static_assert(sizeof(arrays) == MAX_ARRAYS * sizeof(*arrays), "arrays");

    memcpy(to, arrays, sizeof(arrays));
    return MAX_ARRAYS;
}

bool
engine_bare_nbytes(const struct model *model, int n_threads,
                   const struct engine_options *options, size_t *nbytes)
{
    struct engine e = { 0 };
    struct mem_array arrays[MAX_ARRAYS];
    size_t n = list_arrays(&e, model, (size_t)n_threads, options, arrays);

    for (size_t i = 1; i < n; i++)
        arrays[i].rows = options->chunk;
    return mem_arrays_nbytes(arrays, n, nbytes) &&
           size_add(*nbytes, gemm_workspace(n_threads), nbytes);
}

int
engine_open(struct engine **engine, const struct model *model, struct par *par,
            const struct engine_options *options, struct err *err)
{
    struct engine *e = xcalloc(1, sizeof(*e));
    struct activations *a = &e->acts;
    struct experts_work *w = &e->experts;
    size_t n_experts = (size_t)model->config.n_experts;
    struct mem_array arrays[MAX_ARRAYS];
    size_t n_arrays =
        list_arrays(e, model, (size_t)par_threads(par), options, arrays);
    size_t nbytes = tables_floats(model->tables) * sizeof(float);
    size_t chunk = options->chunk;

    for (size_t i = 1; i < n_arrays; i++)
        nbytes += arrays[i].cols * arrays[i].size;
    if (!options->bare)
        chunk = larger(smaller(larger(ACTIVATIONS_MAX / nbytes, 1), chunk),
                       options->least);
    w->k = (size_t)model->config.n_experts_used;
    w->room = chunk + (options->bare ? 0 : w->k); /* one token's at least */
    for (size_t i = 1; i < n_arrays; i++)
        arrays[i].rows = w->room;

    *engine = NULL;
    e->model = model;
    e->par = par;
    e->options = *options;
    e->options.chunk = chunk;
    e->attention_bf16 = attends_bf16(model, options);
    w->n = n_experts;
    w->first = xcalloc(n_experts + 1, sizeof(*w->first));
    e->memory =
        mem_arrays(arrays, n_arrays, &e->nbytes, "the activations", err);
    if (!e->memory || gemm_open(&e->gemm, par, err) ||
        tables_work_open(e, err) || splices_work_open(e, err)) {
        engine_close(e);
        return -1;
    }
    a->mid = a->out = a->x;
    a->attn_out = e->head_in = a->attn_in;
    if (model->config.form.residual == RESIDUAL_SEQUENTIAL)
        a->mlp_in = a->attn_in;
    if (!n_experts)
        a->mlp_out = a->attn_in;
    a->q_normed = a->q_low;
    a->gated = a->out_gate;
    a->q_rotated = a->q;
    a->k_rotated = a->k;
    if (model->config.form.gate_up)
        a->up = a->gate + model->config.widest_mlp;
    else
        a->inner = a->gate;
    *engine = e;
    return 0;
}

void
engine_close(struct engine *e)
{
    if (!e)
        return;
    splices_work_close(e);
    tables_work_close(e);
    gemm_close(e->gemm);
    mem_big_free(e->memory, e->nbytes, 1);
    free(e->experts.first);
    free(e);
}

struct session *
session_new(struct engine *engine, size_t max_tokens)
{
    const struct config of = cached(engine->model, &engine->options), *c = &of;
    struct session *s = xcalloc(1, sizeof(*s));

    s->engine = engine;
    /* a learned position is there, or not */
    s->max_tokens = c->form.learned
                        ? smaller(max_tokens, (size_t)c->max_positions)
                        : max_tokens;
    s->kv.n_layers = (size_t)(c->n_layers - c->n_states);
    s->kv.n_heads = (size_t)c->n_kv_heads;
    s->kv.head_dim = (size_t)c->head_dim;
    s->kv.v_head_dim = (size_t)c->v_head_dim;
    s->kv.dtype = engine->options.kv;
    return s;
}

/* The numbers of a state, of all layers that have one. */
static size_t
state_floats(const struct session *s)
{
    const struct config *c = &s->engine->model->config;

    return (size_t)c->n_states * gdn_sizes(c).state;
}

void
session_close(struct session *s)
{
    if (!s)
        return;
    kv_free(&s->kv);
    state_free(&s->state, state_floats(s));
    state_free(&s->kept, state_floats(s));
    free(s);
}

bool
session_may_fork(const struct session *from, size_t max_tokens)
{
    const struct config *c = &from->engine->model->config;

    return from->n_cached == from->n &&
           config_is_long(c, from->max_tokens) == config_is_long(c, max_tokens);
}

size_t
session_reach(const struct session *s, size_t n)
{
    bool has_kept = s->n_kept <= s->n && s->n_kept <= n;

    return n >= s->n || !s->engine->model->config.n_states ? n
           : has_kept                                      ? s->n_kept
                                                           : 0;
}

void
session_keep(struct session *s, size_t n)
{
    state_free(&s->kept, state_floats(s));
    s->n_kept = n < s->n ? 0 : n;
    if (n == s->n)
        state_share(&s->kept, &s->state, state_floats(s));
}

struct session *
session_fork(const struct session *from, size_t n, size_t max_tokens)
{
    struct session *s = session_new(from->engine, max_tokens);

    kv_share(&s->kv, &from->kv, n);
    if (n)
        state_share(&s->state, n == from->n ? &from->state : &from->kept,
                    state_floats(s));
    s->n = s->n_cached = n;
    session_keep(s, n); /* for others that begin so */
    return s;
}

size_t
session_back(struct session *s, size_t n)
{
    n = session_reach(s, n);
    if (n == 0)
        state_free(&s->state, state_floats(s));
    else if (n < s->n)
        state_share(&s->state, &s->kept, state_floats(s));
    s->n = s->n_cached = n;
    return n;
}

size_t
session_cut(struct session *s, size_t n)
{
    n = session_back(s, n);
    kv_cut(&s->kv, n);
    return n;
}

/* Makes room for n more tokens. */
static int
grow(struct session *s, size_t n, struct err *err)
{
    size_t n_state = state_floats(s), kept = s->n_kept;
    bool keeps = kept > s->n && kept <= s->n + n;

    return kv_grow(&s->kv, s->n_cached, s->n_cached + n, err) ||
                   (n_state && n && state_own(&s->state, n_state, err)) ||
                   (n_state && keeps && state_own(&s->kept, n_state, err))
               ? -1
               : 0;
}

/* Runs the chunk and starts the next one; returns where its logits end. */
static float *
flush(struct engine *e, const struct tap *tap, float *logits)
{
    struct chunk *c = &e->chunk;

    if (c->n_rows > 0) {
        if (!trunk_goes_on(e))
            embed_ids(e, c, e->ids, e->acts.x, tap);
        head_logits(e, e->acts.out, trunk_run(e, c, &e->acts, 1, tap),
                    c->n_wanted, logits);
    }
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
    const struct feed *end = feeds + n_feeds;
    size_t vocab = (size_t)e->model->config.vocab_size;
    struct chunk *c = &e->chunk;

    for (const struct feed *f = feeds; f < end; f++) {
        size_t n = f->session->n + f->n, room = f->session->max_tokens;

        if (n > room)
            return err_set(err, EX_DATAERR,
                           "the text has %zu token%s, but the context has room "
                           "for %zu",
                           n, plural(n), room);
        for (size_t i = 0; i < f->n; i++)
            if (f->ids[i] < 0 || (size_t)f->ids[i] >= vocab)
                return err_set(err, EX_DATAERR,
                               "token id %ld is not in the vocabulary (0 to "
                               "%zu)",
                               (long)f->ids[i], vocab - 1);
    }
    for (const struct feed *f = feeds; f < end; f++)
        if (grow(f->session, f->n, err))
            return -1;
    for (const struct feed *f = feeds; f < end; f++) {
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
                e->ids[c->n_rows] = f->ids[done + i];
                c->rows[c->n_rows++] = (struct row){ .session = s,
                                                     .position = s->n + i,
                                                     .slot = s->n_cached + i };
            }
            if (c->n_rows == e->options.chunk)
                logits = flush(e, tap, logits);
        }
    }
    flush(e, tap, logits);
    return 0;
}

int
session_feed(struct session *s, const int32_t *ids, size_t n, float *logits,
             size_t n_logits, struct err *err)
{
    const struct feed feed = { s, ids, n, n_logits, false };

    return engine_feed(s->engine, &feed, 1, NULL, logits, err);
}
