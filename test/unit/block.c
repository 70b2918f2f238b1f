/* SPDX-License-Identifier: ISC */
/*
 * A forward in which each layer keeps its activations: the bits of the
 * engine's, which has one memory for all layers, and at each point what its
 * taps show.
 */
#include "core/model/block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/model/attention.h"
#include "core/model/ends.h"
#include "core/model/engine.h"
#include "test/unit/isa.h"
#include "test/unit/model-ref.h"
#include "test/unit/norm-ref.h"

enum { N = 40, N_POINTS = N_TAP_POINTS };

/* What the taps of one point saw: [n_layers, N, dim]. */
struct seen {
    float *rows;
    size_t dim;
};

static void
keep(void *ctx, struct session *session, int64_t layer, size_t first, size_t n,
     const float *rows)
{
    struct seen *seen = ctx;

    (void)session;
    if (layer >= 0)
        memcpy(seen->rows + ((size_t)layer * N + first) * seen->dim, rows,
               n * seen->dim * sizeof(*rows));
}

static int
feed(struct engine *e, const struct sample *m, const struct tap *tap,
     float *logits)
{
    struct session *s = session_new(e, N);
    struct feed f = { s, m->ids, N, N, false };
    struct err err = { 0 };
    int rc = engine_feed(e, &f, 1, tap, logits, &err);

    if (rc)
        printf("# %s: %s\n", m->name, err.what);
    session_close(s);
    return rc;
}

static int
look(struct engine *e, const struct sample *m, enum tap_point point,
     struct seen *seen, float *logits)
{
    const struct config *c = &m->model->config;
    struct tap tap = { point, c->n_layers - 1, keep, seen, NULL };

    seen->dim = tap_dim(c, point, 0);
    seen->rows =
        xcalloc((size_t)c->n_layers * N * seen->dim, sizeof(*seen->rows));
    return feed(e, m, &tap, logits);
}

/* Makes, or frees, memory of its own for each name but x. */
static void
acts_memory(struct activations *a, const struct config *c, bool make)
{
    size_t hidden = (size_t)c->hidden_size, d = (size_t)c->head_dim;
    size_t nq = (size_t)c->n_heads * d, nkv = (size_t)c->n_kv_heads * d;
    size_t inner = larger((size_t)c->intermediate_size, (size_t)c->expert_size);
    const struct {
        float **to;
        size_t n;
    } each[] = {
        { &a->attn_in, hidden },  { &a->q, nq },
        { &a->k, nkv },           { &a->v, nkv },
        { &a->q_rotated, nq },    { &a->k_rotated, nkv },
        { &a->attended, nq },     { &a->lse, (size_t)c->n_heads },
        { &a->attn_out, hidden }, { &a->mid, hidden },
        { &a->mlp_in, hidden },   { &a->gate, inner },
        { &a->up, inner },        { &a->inner, inner },
        { &a->mlp_out, hidden },  { &a->out, hidden },
    };

    for (size_t i = 0; i < sizeof(each) / sizeof(*each); i++)
        if (make)
            *each[i].to = xcalloc(N * each[i].n, sizeof(float));
        else
            free(*each[i].to);
}

/* The sample's ids as one span, in one chunk. */
static int
run_kept(struct engine *e, struct session *s, const struct sample *m,
         const struct activations *acts, float *logits)
{
    const struct config *c = &m->model->config;
    size_t half = (size_t)c->head_dim / 2, wanted[N];
    struct span span = { .session = s, .n = N };
    struct row rows[N];
    struct chunk chunk = { &span,
                           1,
                           rows,
                           N,
                           wanted,
                           N,
                           xcalloc(N * half, sizeof(float)),
                           xcalloc(N * half, sizeof(float)) };
    struct err err;
    int rc = kv_grow(&s->kv, 0, N, &err);

    for (size_t i = 0; i < N; i++) {
        rows[i] = (struct row){ s, i, i };
        wanted[i] = i;
    }
    if (rc == 0) {
        size_t n = (size_t)c->n_layers;

        embed_ids(e, &chunk, m->ids, acts->x, NULL);
        head_logits(e, acts[n - 1].out, trunk_run(e, &chunk, acts, n, NULL), N,
                    logits);
    }
    free(chunk.cosines);
    free(chunk.sines);
    return rc;
}

/* Is z = x + norm(y), of N rows?  x NULL: z = norm(y). */
static bool
is_sum(const float *z, const float *x, const float *y, const struct norm *norm)
{
    for (size_t i = 0; i < N * norm->n; i++) {
        const float *row = y + i / norm->n * norm->n;
        double to = x ? (double)x[i] : 0;
        double v = norm_ref(norm, row, i % norm->n);

        if (norm->form == NORM_NONE ? z[i] != (float)(to + v)
                                    : !(fabs((double)z[i] - to - v) <=
                                        1e-6 * (1 + fabs(to) + fabs(v))))
            return false;
    }
    return true;
}

static bool
same(const float *x, const struct seen *seen, size_t layer)
{
    return !memcmp(x, seen->rows + layer * N * seen->dim,
                   N * seen->dim * sizeof(*x));
}

/* Are the rotated keys those of the cache? */
static bool
keys_are_cached(const struct session *s, size_t layer,
                const struct activations *a)
{
    size_t d = s->kv.head_dim, n_heads = s->kv.n_heads;
    float *k = xcalloc(N * d, sizeof(*k)), *v = xcalloc(N * d, sizeof(*v));
    bool same = true;

    for (size_t j = 0; j < n_heads; j++) {
        kv_get(&s->kv, layer, j, N, k, v);
        for (size_t i = 0; i < N; i++) {
            size_t at = (i * n_heads + j) * d;

            same &= !memcmp(a->k_rotated + at, k + i * d, d * sizeof(*k)) &&
                    !memcmp(a->v + at, v + i * d, d * sizeof(*v));
        }
    }
    free(k);
    free(v);
    return same;
}

/* Queries keep their length when they are rotated, but where they are
 * normalized before, or stretched (yarn). */
static bool
is_kept(const struct config *c, const struct activations *a)
{
    size_t d = (size_t)c->head_dim, n = N * (size_t)c->n_heads;
    bool near = true;

    for (size_t i = 0; i < n && !c->form.qk_norm && c->rope->type != ROPE_YARN;
         i++) {
        double before = 0, after = 0;

        for (size_t k = i * d; k < (i + 1) * d; k++) {
            before += (double)a->q[k] * (double)a->q[k];
            after += (double)a->q_rotated[k] * (double)a->q_rotated[k];
        }
        near &= fabs(after - before) <= 1e-5 * before;
    }
    return near;
}

/* to = x + y, in f32 */
static bool
adds(const float *to, const float *x, const float *y, size_t n)
{
    while (n > 0 && to[n - 1] == x[n - 1] + y[n - 1])
        n--;
    return n == 0;
}

static void
check_layer(const struct sample *m, const struct session *s, size_t layer,
            const struct activations *a, const struct seen *seen)
{
    const struct config *c = &m->model->config;
    const struct layer *l = &m->model->layers[layer];
    size_t n = N * (size_t)c->hidden_size;

    tap_ok(same(a->attn_in, &seen[TAP_IN_QKV], layer) &&
               same(a->attended, &seen[TAP_IN_O], layer) &&
               same(a->mlp_in, &seen[TAP_IN_GATE_UP], layer) &&
               same(a->out, &seen[TAP_RESID], layer) &&
               same(a->mid, &seen[TAP_RESID_MID], layer) &&
               (c->sparse[layer] || same(a->inner, &seen[TAP_IN_DOWN], layer)),
           "%s: layer %zu keeps what the taps show", m->name, layer);
    tap_ok(is_sum(a->attn_in, NULL, a->x, &l->attn_norm) &&
               is_sum(a->mlp_in, NULL, a->mid, &l->mlp_norm),
           "%s: layer %zu: what the halves read", m->name, layer);
    tap_ok(
        is_sum(a->mid, a->x, seen[TAP_ATTN].rows + layer * n, &l->attn_post) &&
            is_sum(a->out, a->mid, seen[TAP_MLP].rows + layer * n,
                   &l->mlp_post),
        "%s: layer %zu: the residual stream before, between and after", m->name,
        layer);
    tap_ok(adds(a->mid, a->x, seen[TAP_ATTN_OUT].rows + layer * n, n) &&
               adds(a->out, a->mid, seen[TAP_MLP_OUT].rows + layer * n, n),
           "%s: layer %zu: what the halves add", m->name, layer);
    tap_ok(keys_are_cached(s, layer, a) && is_kept(c, a),
           "%s: layer %zu: heads before and after rotation", m->name, layer);
}

/* One token's logits: the other rows end with the last layer's input, and the
 * whole sequence with its keys and values. */
static void
check_wanted(const struct sample *m, struct engine *e, const float *logits,
             const struct seen *resid, const struct activations *last)
{
    const struct config *c = &m->model->config;
    size_t hidden = (size_t)c->hidden_size, layer = (size_t)c->n_layers - 1;
    const float *input = resid->rows + (layer - 1) * N * hidden;
    float *row = xcalloc(m->vocab, sizeof(*row));
    struct session *s = session_new(e, N);
    struct err err = { 0 };

    tap_ok(session_feed(s, m->ids, N, row, 1, &err) == 0 &&
               !memcmp(row, logits + (N - 1) * m->vocab,
                       m->vocab * sizeof(*row)) &&
               !memcmp(e->acts.x + hidden, input + hidden,
                       (N - 1) * hidden * sizeof(*input)) &&
               keys_are_cached(s, layer, last),
           "%s: the last layer is computed of the row that is asked for alone",
           m->name);
    session_close(s);
    free(row);
}

static void
test(const struct sample *m)
{
    const struct engine_options options = { .chunk = N,
                                            .compute = COMPUTE_F32,
                                            .kv = DT_F32 };
    const struct config *c = &m->model->config;
    size_t n_layers = (size_t)c->n_layers, n_logits = N * m->vocab;
    struct activations *acts = xcalloc(n_layers, sizeof(*acts));
    float *shared = xcalloc(n_logits, sizeof(*shared));
    float *kept = xcalloc(n_logits, sizeof(*kept));
    float *x = xcalloc(N * (size_t)c->hidden_size, sizeof(*x));
    struct seen seen[N_POINTS];
    struct engine *e = NULL;
    struct par *par = NULL;
    struct session *s;
    struct err err = { 0 };
    int rc = 0;

    if (par_open(&par, 2, &err) ||
        engine_open(&e, m->model, par, &options, &err)) {
        tap_ok(0, "%s: %s", m->name, err.what);
        return;
    }
    for (int point = 0; point < N_POINTS; point++)
        rc |= look(e, m, (enum tap_point)point, &seen[point], shared);
    s = session_new(e, N);
    for (size_t i = 0; i < n_layers; i++) {
        acts[i].x = i ? acts[i - 1].out : x;
        acts_memory(&acts[i], c, true);
    }
    rc |= run_kept(e, s, m, acts, kept);
    tap_ok(rc == 0 && !memcmp(kept, shared, n_logits * sizeof(*kept)),
           "%s: logits have the engine's bits", m->name);
    for (size_t i = 0; i < n_layers; i++)
        check_layer(m, s, i, &acts[i], seen);
    check_wanted(m, e, shared, &seen[TAP_RESID], &acts[n_layers - 1]);
    session_close(s);
    for (size_t i = 0; i < n_layers; i++)
        acts_memory(&acts[i], c, false);
    for (int point = 0; point < N_POINTS; point++)
        free(seen[point].rows);
    free(x);
    free(kept);
    free(shared);
    free(acts);
    engine_close(e);
    par_close(par);
}

/* The same where norms are others, and elsewhere, than a family here has. */
static void
test_norms(struct sample *m)
{
    static const struct {
        const char *name;
        enum norm_form pre, post;
    } ways[] = {
        { "norms on both sides", NORM_RMS, NORM_RMS },
        { "norms after the halves alone", NORM_NONE, NORM_RMS },
        { "LayerNorm on both sides", NORM_LAYER, NORM_LAYER },
    };
    size_t n_layers = (size_t)m->model->config.n_layers;
    size_t hidden = (size_t)m->model->config.hidden_size;
    const char *model = m->name;
    float *numbers = xcalloc(n_layers * 8 * hidden, sizeof(*numbers));

    for (size_t i = 0; i < n_layers * 8 * hidden; i++)
        numbers[i] = 1 + rnd();
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
        char name[100];
        const float *at = numbers;

        for (struct layer *l = m->model->layers;
             l < m->model->layers + n_layers; l++) {
            struct norm *const norms[] = { &l->attn_norm, &l->mlp_norm,
                                           &l->attn_post, &l->mlp_post };

            for (size_t k = 0; k < 4; k++, at += 2 * hidden)
                *norms[k] = (struct norm){ k < 2 ? ways[i].pre : ways[i].post,
                                           at,
                                           at + hidden,
                                           hidden,
                                           1e-5f,
                                           0 };
        }
        snprintf(name, sizeof(name), "%s, %s", model, ways[i].name);
        m->name = name;
        test(m);
    }
    m->name = model;
    free(numbers);
}

static bool
scale_is(const struct model *m, size_t layer, double scale)
{
    const struct engine e = { .model = m };
    const struct activations a = { .x = NULL };
    const struct chunk chunk = { .n_rows = 0 };

    return block_attention(&e, &chunk, &a, layer).scale == (float)scale;
}

static void
test_scales(void)
{
    int64_t window[3] = { 0 };
    int32_t nth[3] = { 0 };
    struct layer layers[3] = { 0 };
    struct model m = {
        .config = { .head_dim = 80, .window = window, .nth = nth },
        .layers = layers
    };

    tap_ok(scale_is(&m, 2, 1 / sqrt(80)),
           "scores are divided by sqrt(head_dim)");
    m.config.scale_by_layer = true;
    tap_ok(scale_is(&m, 0, 1 / sqrt(80)) && scale_is(&m, 2, 1 / sqrt(80) / 3),
           "scale_by_layer: in layer i also by i + 1");
    m.config.scale_by_layer = false;
    m.config.attn_scale = 0.0625;
    m.config.attn_softcap = 50;
    tap_ok(!attention_takes_bf16(&m.config), "capped scores are not in bf16");
    tap_ok(scale_is(&m, 2, 0.0625), "attn_scale: they are multiplied by it");
}

int
main(void)
{
    static const char *const names[] = { "llama-mqa-gelu", "mistral-window-7",
                                         "qwen2", "qwen3",
                                         "qwen3_moe-dense-first-last" };
    char dir[] = "/tmp/hf-infer-block.XXXXXX";
    struct str command = { 0 };
    struct err err = { 0 };

    test_scales();
    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/tiny_models.py", err.what);
        return tap_done();
    }
    if (!mkdtemp(dir) || python_kept("test/ref/tiny_models.py", dir))
        tap_ok(0, "test/ref/tiny_models.py runs");
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct sample m;

        if (!sample_open(&m, dir, names[i]) && tap_ok(m.n >= N,
                                                      "%s: is long "
                                                      "enough",
                                                      names[i])) {
            test(&m);
            if (i == 0 || i == 4)
                test_norms(&m);
        }
        sample_close(&m);
    }
    str_addf(&command, "rm -r '%s'", dir);
    tap_ok(system(command.s) == 0, "the models are removed");
    str_free(&command);
    return tap_done();
}
