#include "cmd/hf-infer/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/gemv.h"
#include "core/kernel/vec.h"
#include "core/le.h"
#include "core/mem.h"

/* Tokens that go through the layers together: enough for the matrices to be
 * read once for many, few enough for scratch to stay small. */
#define CHUNK 64

struct session {
    const struct model *model;
    struct par *par;
    size_t max_tokens, n; /* n: tokens fed */
    float **blocks;       /* [n_blocks] of block_floats: see engine.h */
    size_t n_blocks, block_floats, layer_floats;
    float *scratch; /* what follows lies in it */
    size_t scratch_floats;
    float *x, *h;             /* [CHUNK, hidden]: the residual stream; a step */
    float *q, *attended;      /* [CHUNK, n_heads, head_dim] */
    float *k, *v;             /* [CHUNK, n_kv_heads, head_dim] */
    float *gate, *up;         /* [CHUNK, intermediate] */
    float *cosines, *sines;   /* [CHUNK, head_dim / 2] */
    float *attention_scratch; /* [threads, attention_scratch()] */
};

/* What the steps between the matrices work on: some tokens of one layer. */
struct step {
    struct session *s;
    const struct layer *layer;
    size_t index; /* of the layer */
    const int32_t *ids;
    const float *weight; /* of a norm */
    const float *bias;   /* of a residual, or NULL */
};

/* Runs fn over n tokens; one alone is not worth waking a thread. */
static void
over_tokens(struct step *step, size_t n,
            void (*fn)(void *ctx, size_t begin, size_t end, int thread))
{
    par_for(n > 1 ? step->s->par : NULL, n, 1, fn, step);
}

static void
embed(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *step = ctx;
    struct session *s = step->s;
    const struct linear *e = &s->model->embed;
    size_t row = e->cols * dtype_table[e->dtype].bits / 8;
    size_t half = (size_t)s->model->config.head_dim / 2;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        cvt_to_f32(s->x + i * e->cols,
                   (const char *)e->w + (size_t)step->ids[i] * row, e->dtype,
                   e->cols);
        rope_table(s->cosines + i * half, s->sines + i * half,
                   &s->model->config.rope, s->model->inv_freq, half, s->n + i);
    }
}

static void
norm(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *step = ctx;
    struct session *s = step->s;
    const struct config *c = &s->model->config;
    size_t hidden = (size_t)c->hidden_size;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        vec_rmsnorm(s->h + i * hidden, s->x + i * hidden, step->weight,
                    c->rms_norm_eps, hidden);
}

static void
add_bias(float *y, const float *bias, size_t n)
{
    if (bias)
        vec_add(y, bias, n);
}

static void
add_residual(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *step = ctx;
    struct session *s = step->s;
    size_t hidden = (size_t)s->model->config.hidden_size;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        add_bias(s->h + i * hidden, step->bias, hidden);
        vec_add(s->x + i * hidden, s->h + i * hidden, hidden);
    }
}

/* Normalizes (qwen3) and turns one token's heads. */
static void
turn(const struct session *s, float *heads, size_t n_heads, const float *weight,
     size_t i)
{
    const struct config *c = &s->model->config;
    size_t d = (size_t)c->head_dim, half = d / 2;

    for (size_t j = 0; j < n_heads; j++) {
        float *x = heads + j * d;

        if (weight)
            vec_rmsnorm(x, x, weight, c->rms_norm_eps, d);
        vec_rope(x, s->cosines + i * half, s->sines + i * half, half);
    }
}

/* Puts one token's keys and values in their place (see engine.h), as gemv()
 * wants its weights: little-endian. */
static void
remember(struct session *s, size_t layer, const float *k, const float *v,
         size_t position)
{
    size_t d = (size_t)s->model->config.head_dim;
    size_t n_kv = (size_t)s->model->config.n_kv_heads;
    size_t slot = position % KV_BLOCK;
    float *keys = s->blocks[position / KV_BLOCK] + layer * s->layer_floats;
    float *values = keys + n_kv * KV_BLOCK * d;

    for (size_t j = 0; j < n_kv; j++)
        cvt_from_f32(keys + (j * KV_BLOCK + slot) * d, DT_F32, k + j * d, d);
    for (size_t j = 0; j < n_kv * d; j++)
        put_le32(values + j * KV_BLOCK + slot, f32_bits(v[j]));
}

static void
heads(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *step = ctx;
    struct session *s = step->s;
    const struct layer *l = step->layer;
    const struct config *c = &s->model->config;
    size_t nq = l->q.rows, nkv = l->k.rows;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float *q = s->q + i * nq, *k = s->k + i * nkv, *v = s->v + i * nkv;

        add_bias(q, l->q.bias, nq);
        add_bias(k, l->k.bias, nkv);
        add_bias(v, l->v.bias, nkv);
        turn(s, q, (size_t)c->n_heads, l->q_norm, i);
        turn(s, k, (size_t)c->n_kv_heads, l->k_norm, i);
        remember(s, step->index, k, v, s->n + i);
    }
}

static void
activate(void *ctx, size_t begin, size_t end, int thread)
{
    struct step *step = ctx;
    struct session *s = step->s;
    const struct layer *l = step->layer;
    size_t n = l->gate.rows;

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float *gate = s->gate + i * n, *up = s->up + i * n;

        add_bias(gate, l->gate.bias, n);
        add_bias(up, l->up.bias, n);
        if (s->model->config.act == ACT_SILU)
            vec_silu_mul(gate, up, n);
        else
            vec_gelu_tanh_mul(gate, up, n);
    }
}

static void
apply(const struct session *s, float *y, const struct linear *l, const float *x,
      size_t n)
{
    gemv(s->par, y, l->rows, l->w, l->dtype, l->rows, l->cols, x, l->cols, n);
}

static void
attend(struct session *s, size_t layer, size_t n)
{
    const struct config *c = &s->model->config;
    const struct attention a = {
        .n_heads = (size_t)c->n_heads,
        .n_kv_heads = (size_t)c->n_kv_heads,
        .head_dim = (size_t)c->head_dim,
        .window = (size_t)c->window[layer],
        .first = s->n,
        .n = n,
        .q = s->q,
        .out = s->attended,
        .blocks = s->blocks,
        .layer = layer * s->layer_floats,
        .scratch = s->attention_scratch,
    };

    attention_run(s->par, &a);
}

static void
run_layer(struct session *s, size_t index, size_t n)
{
    const struct layer *l = &s->model->layers[index];
    struct step step = { .s = s, .layer = l, .index = index };

    step.weight = l->attn_norm;
    over_tokens(&step, n, norm);
    apply(s, s->q, &l->q, s->h, n);
    apply(s, s->k, &l->k, s->h, n);
    apply(s, s->v, &l->v, s->h, n);
    over_tokens(&step, n, heads);
    attend(s, index, n);
    apply(s, s->h, &l->o, s->attended, n);
    step.bias = l->o.bias;
    over_tokens(&step, n, add_residual);

    step.weight = l->mlp_norm;
    over_tokens(&step, n, norm);
    apply(s, s->gate, &l->gate, s->h, n);
    apply(s, s->up, &l->up, s->h, n);
    over_tokens(&step, n, activate);
    apply(s, s->h, &l->down, s->gate, n);
    step.bias = l->down.bias;
    over_tokens(&step, n, add_residual);
}

/* One chunk: n <= CHUNK tokens, and the logits of the last n_logits. */
static void
run_chunk(struct session *s, const int32_t *ids, size_t n, float *logits,
          size_t n_logits)
{
    const struct model *m = s->model;
    size_t hidden = (size_t)m->config.hidden_size;
    struct step step = { .s = s, .ids = ids, .weight = m->norm };

    over_tokens(&step, n, embed);
    for (size_t i = 0; i < (size_t)m->config.n_layers; i++)
        run_layer(s, i, n);
    s->n += n;
    if (n_logits == 0)
        return;
    over_tokens(&step, n, norm);
    apply(s, logits, &m->lm_head, s->h + (n - n_logits) * hidden, n_logits);
}

/* Blocks for n more tokens.  On failure what there was remains. */
static int
grow(struct session *s, size_t n, struct err *err)
{
    size_t need = (s->n + n + KV_BLOCK - 1) / KV_BLOCK;

    if (need > s->n_blocks)
        s->blocks = xrealloc(s->blocks, need, sizeof(*s->blocks));
    while (s->n_blocks < need) {
        float *block =
            mem_big(s->block_floats, sizeof(*block), "the KV cache", err);

        if (!block)
            return -1;
        s->blocks[s->n_blocks++] = block;
    }
    return 0;
}

int
session_feed(struct session *s, const int32_t *ids, size_t n, float *logits,
             size_t n_logits, struct err *err)
{
    size_t vocab = (size_t)s->model->config.vocab_size;
    size_t done = 0;

    if (n > s->max_tokens - s->n)
        return err_set(err, EX_DATAERR,
                       "the text has %zu tokens, but the context has room for "
                       "%zu",
                       s->n + n, s->max_tokens);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= vocab)
            return err_set(err, EX_DATAERR,
                           "token id %ld is outside the vocabulary of %zu",
                           (long)ids[i], vocab);
    if (grow(s, n, err))
        return -1;
    while (done < n) {
        size_t k = n - done < CHUNK ? n - done : CHUNK;
        size_t after = n - done - k; /* tokens that follow this chunk */
        size_t want = n_logits > after ? n_logits - after : 0;

        if (want > k)
            want = k;
        run_chunk(s, ids + done, k, logits, want);
        if (want)
            logits += want * vocab;
        done += k;
    }
    return 0;
}

/* Hands out 'floats' of the scratch, or counts them while there is none. */
static float *
take(struct session *s, size_t *used, size_t floats)
{
    float *p = s->scratch ? s->scratch + *used : NULL;

    *used += (floats + 15) / 16 * 16; /* whole cache lines */
    return p;
}

static size_t
lay_out(struct session *s)
{
    const struct config *c = &s->model->config;
    size_t hidden = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t nq = (size_t)c->n_heads * d, nkv = (size_t)c->n_kv_heads * d;
    size_t inter = (size_t)c->intermediate_size;
    size_t threads = s->par ? (size_t)par_threads(s->par) : 1;
    size_t used = 0;

    s->x = take(s, &used, CHUNK * hidden);
    s->h = take(s, &used, CHUNK * hidden);
    s->q = take(s, &used, CHUNK * nq);
    s->attended = take(s, &used, CHUNK * nq);
    s->k = take(s, &used, CHUNK * nkv);
    s->v = take(s, &used, CHUNK * nkv);
    s->gate = take(s, &used, CHUNK * inter);
    s->up = take(s, &used, CHUNK * inter);
    s->cosines = take(s, &used, CHUNK * d / 2);
    s->sines = take(s, &used, CHUNK * d / 2);
    s->attention_scratch = take(s, &used, threads * attention_scratch(c));
    return used;
}

int
session_open(struct session **session, const struct model *model,
             struct par *par, size_t max_tokens, struct err *err)
{
    const struct config *c = &model->config;
    struct session *s = xcalloc(1, sizeof(*s));

    *session = NULL;
    s->model = model;
    s->par = par;
    s->max_tokens = max_tokens;
    s->layer_floats = (size_t)(2 * c->n_kv_heads * c->head_dim) * KV_BLOCK;
    s->block_floats = (size_t)c->n_layers * s->layer_floats;
    s->scratch_floats = lay_out(s);
    s->scratch =
        mem_big(s->scratch_floats, sizeof(float), "the activations", err);
    if (!s->scratch) {
        session_close(s);
        return -1;
    }
    lay_out(s);
    *session = s;
    return 0;
}

void
session_close(struct session *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_blocks; i++)
        mem_big_free(s->blocks[i], s->block_floats, sizeof(float));
    free(s->blocks);
    mem_big_free(s->scratch, s->scratch_floats, sizeof(float));
    free(s);
}

size_t
session_length(const struct session *session)
{
    return session->n;
}

void
session_reset(struct session *s)
{
    size_t used = (s->n + KV_BLOCK - 1) / KV_BLOCK;

    for (size_t i = 0; i < used; i++) /* attention counts on zeros ahead */
        memset(s->blocks[i], 0, s->block_floats * sizeof(float));
    s->n = 0;
}
