/* SPDX-License-Identifier: ISC */
/*
 * How exact the engine is in each of its ways to compute and to store keys and
 * values, against float64; and that every way has the same bits for any
 * threads, any cut, and whatever else is fed beside.  With TU_WAYS=one each
 * model has one of the ways, and of the chunks in which others are beside it;
 * under an emulator each fourth model.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/model/engine.h"
#include "test/unit/model-ref.h"

/*
 * Rounding to bf16 loses 2^-9 of a number at most, to f16 2^-12; over a
 * model's layers that comes to a few percent of the logits' spread, an eighth
 * of it for f16.
 */
static const struct way {
    const char *name;
    enum compute compute;
    enum dtype kv;
    double tolerance; /* rms error, in standard deviations of the logits */
} ways[] = {
    { "f32", COMPUTE_F32, DT_F32, 1e-5 },
    { "kv f16", COMPUTE_F32, DT_F16, 2.5e-3 },
    { "kv bf16", COMPUTE_F32, DT_BF16, 1.5e-2 },
    { "compute bf16", COMPUTE_BF16, DT_F32, 3e-2 },
    { "compute and kv bf16", COMPUTE_BF16, DT_BF16, 3e-2 },
};

#define N_WAYS (sizeof(ways) / sizeof(*ways))

/* The first half of a text is a prompt; the model went on from there. */
static struct feed
piece(struct session *s, const int32_t *ids, size_t n, size_t most)
{
    size_t at = s->n, half = n / 2;
    size_t left = (at < half ? half : n) - at;
    size_t k = most < left ? most : left;

    return (struct feed){ s, ids + at, k, k, at >= half };
}

/* The sample through an engine, 'most' tokens at a time. */
static int
run(const struct sample *m, const struct way *way, int threads, size_t chunk,
    size_t most, float *logits)
{
    const struct engine_options options = { .chunk = chunk,
                                            .compute = way->compute,
                                            .kv = way->kv };
    struct engine *engine = NULL;
    struct session *s = NULL;
    struct par *par = NULL;
    struct err err = { 0 };
    int rc = -1;

    memset(logits, 0xff, m->n * m->vocab * sizeof(*logits));
    if (par_open(&par, threads, &err) ||
        engine_open(&engine, m->model, par, &options, &err))
        goto out;
    s = session_new(engine, m->n);
    rc = 0;
    while (rc == 0 && s->n < m->n) {
        struct feed f = piece(s, m->ids, m->n, most);

        rc = engine_feed(engine, &f, 1, NULL, logits + s->n * m->vocab, &err);
    }
out:
    if (rc)
        printf("# %s: %s\n", m->name, err.what);
    session_close(s);
    engine_close(engine);
    par_close(par);
    return rc;
}

/* rms(x - expected) / std(expected) */
static double
error_of(const float *x, const double *expected, size_t n)
{
    double sum = 0, mean = 0, var = 0;

    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - expected[i];

        sum += e * e;
        mean += expected[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++)
        var += (expected[i] - mean) * (expected[i] - mean);
    return sqrt(sum / var);
}

static int
by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The error of all tokens; of a rounded way with experts, of half of them: a
 * token that rounding sends to another expert is far off. */
static double
error_of_way(const struct sample *m, const struct way *way, const float *x)
{
    double *each;
    double error;

    if (way->compute == COMPUTE_F32 || m->model->config.n_experts == 0)
        return error_of(x, m->expected, m->n * m->vocab);
    each = xcalloc(m->n, sizeof(*each));
    for (size_t i = 0; i < m->n; i++)
        each[i] =
            error_of(x + i * m->vocab, m->expected + i * m->vocab, m->vocab);
    qsort(each, m->n, sizeof(*each), by_size);
    error = each[m->n / 2];
    free(each);
    return error;
}

static void
test_way(const struct sample *m, const struct way *way, size_t nth,
         const float *exact)
{
    static const struct {
        int threads;
        size_t chunk, most;
    } cuts[] = { { 2, 7, 30 }, { 1, 64, 1 }, { 3, 1, 64 }, { 2, 256, 5 } };
    size_t n = m->n * m->vocab;
    float *first = xcalloc(n, sizeof(*first));
    float *logits = xcalloc(n, sizeof(*logits));
    size_t n_cuts = tap_slow() ? 1 : sizeof(cuts) / sizeof(*cuts);
    int same = 1, rc = run(m, way, 1, 48, SIZE_MAX, first);
    double error = error_of_way(m, way, first);

    tap_ok(rc == 0 && error <= way->tolerance,
           "%s, %s: logits are within %g of float64 (rms/std %.2g)", m->name,
           way->name, way->tolerance, error);
    if (way != ways)
        tap_ok(memcmp(first, exact, n * sizeof(*first)) != 0,
               "%s, %s: is not the exact way", m->name, way->name);
    for (size_t i = 0; i < n_cuts; i++)
        if ((!tap_few() || i == nth % n_cuts) &&
            (run(m, way, cuts[i].threads, cuts[i].chunk, cuts[i].most,
                 logits) ||
             memcmp(first, logits, n * sizeof(*first)) != 0))
            same = 0;
    tap_ok(same, "%s, %s: the same bits for any -j, chunk and cut", m->name,
           way->name);
    free(logits);
    free(first);
}

#define N_BATCH 4

/* Four texts out of one: it, its later part, it backwards, its beginning. */
struct text {
    int32_t *ids;
    size_t n;
    float *alone, *together; /* [n, vocab] */
    struct session *session;
};

static void
make_texts(const struct sample *m, struct text *texts, struct engine *engine)
{
    for (size_t i = 0; i < N_BATCH; i++) {
        struct text *t = &texts[i];
        size_t from = i == 1 ? m->n / 3 : 0;

        t->n = i == 3 ? m->n / 2 : m->n - from;
        t->ids = xcalloc(t->n, sizeof(*t->ids));
        for (size_t k = 0; k < t->n; k++)
            t->ids[k] = m->ids[i == 2 ? m->n - 1 - k : from + k];
        t->alone = xcalloc(t->n * m->vocab, sizeof(float));
        t->together = xcalloc(t->n * m->vocab, sizeof(float));
        t->session = session_new(engine, m->n);
    }
}

/* Each round feeds each text a piece of its own size, to the end of all, and
 * asks for at most so many logits of each, its last ones: the others are not
 * compared. */
static int
feed_together(const struct sample *m, struct text *texts, struct engine *engine,
              size_t n_logits)
{
    static const size_t sizes[N_BATCH] = { 1, 9, 3, 30 };
    float *logits = xcalloc(43 * m->vocab, sizeof(*logits));
    struct err err = { 0 };
    int rc = 0;

    for (size_t n_feeds = 1; rc == 0 && n_feeds > 0;) {
        struct feed feeds[N_BATCH];
        const float *row = logits;

        n_feeds = 0;
        for (size_t i = 0; i < N_BATCH; i++) {
            struct text *t = &texts[i];

            feeds[n_feeds] = piece(t->session, t->ids, t->n, sizes[i]);
            feeds[n_feeds].n_logits = smaller(feeds[n_feeds].n, n_logits);
            n_feeds += feeds[n_feeds].n > 0;
        }
        rc = engine_feed(engine, feeds, n_feeds, NULL, logits, &err);
        for (size_t i = 0, k = 0; rc == 0 && k < n_feeds; i++) {
            struct text *t = &texts[i];
            size_t at = t->session->n - feeds[k].n;
            size_t left_out = feeds[k].n - feeds[k].n_logits;

            if (t->session != feeds[k].session)
                continue;
            memcpy(t->together + at * m->vocab, t->alone + at * m->vocab,
                   left_out * m->vocab * sizeof(*row));
            memcpy(t->together + (at + left_out) * m->vocab, row,
                   feeds[k].n_logits * m->vocab * sizeof(*row));
            row += feeds[k++].n_logits * m->vocab;
        }
    }
    free(logits);
    return rc;
}

/* NaNs for what a sequence leaves behind: nobody may look at it. */
static void
poison(struct session *s)
{
    const struct kv *kv = &s->kv;
    size_t n = kv->n_layers * 2 * kv->n_heads * KV_BLOCK * kv->head_dim;

    for (size_t i = 0; i < kv->n_blocks; i++)
        memset(kv->blocks[i], 0xff, n * dtype_size(kv->dtype));
}

/* How many texts have other logits together than alone? */
static size_t
differ_together(const struct sample *m, struct text *texts,
                struct engine *engine, size_t n_logits)
{
    size_t differ = 0;

    for (size_t i = 0; i < N_BATCH; i++) { /* it begins again */
        poison(texts[i].session);
        texts[i].session->n = texts[i].session->n_cached = 0;
    }
    differ += feed_together(m, texts, engine, n_logits) != 0;
    for (size_t i = 0; i < N_BATCH; i++)
        differ += memcmp(texts[i].alone, texts[i].together,
                         texts[i].n * m->vocab * sizeof(float)) != 0;
    return differ;
}

/* Each text alone, then all at once: with room for some or all of a round. */
static void
test_batch(const struct sample *m, const struct way *way, size_t chunk)
{
    const struct engine_options options = { .chunk = chunk,
                                            .compute = way->compute,
                                            .kv = way->kv };
    struct text texts[N_BATCH];
    struct engine *engine = NULL;
    struct par *par = NULL;
    struct err err = { 0 };
    size_t differ = 0;

    if (par_open(&par, 2, &err) ||
        engine_open(&engine, m->model, par, &options, &err)) {
        tap_ok(0, "%s: %s", m->name, err.what);
        return;
    }
    make_texts(m, texts, engine);
    for (size_t i = 0; i < N_BATCH; i++) {
        struct text *t = &texts[i];

        while (t->session->n < t->n) {
            struct feed f = piece(t->session, t->ids, t->n, SIZE_MAX);
            float *to = t->alone + t->session->n * m->vocab;

            differ += engine_feed(engine, &f, 1, NULL, to, &err) != 0;
        }
    }
    differ += differ_together(m, texts, engine, SIZE_MAX);
    tap_ok(differ == 0,
           "%s, %s: four sequences at once, chunk %zu: the bits of each alone",
           m->name, way->name, chunk);
    tap_ok(differ_together(m, texts, engine, 2) == 0,
           "%s, %s: at most two logits of each at once, chunk %zu: their bits",
           m->name, way->name, chunk);
    for (size_t i = 0; i < N_BATCH; i++) {
        session_close(texts[i].session);
        free(texts[i].ids);
        free(texts[i].alone);
        free(texts[i].together);
    }
    engine_close(engine);
    par_close(par);
}

/* Feeds the rest of the sample; how many logits differ from those of a session
 * fed from its first token on? */
static size_t
differ_after(const struct sample *m, struct session *s, const float *first)
{
    size_t from = s->n, n = (m->n - from) * m->vocab, differ = 0;
    float *logits = xcalloc(n + 1, sizeof(*logits));
    struct err err = { 0 };

    while (s->n < m->n) {
        struct feed f = piece(s, m->ids, m->n, SIZE_MAX);

        if (engine_feed(s->engine, &f, 1, NULL,
                        logits + (s->n - from) * m->vocab, &err))
            return SIZE_MAX;
    }
    for (size_t i = 0; i < n; i++)
        differ += memcmp(&logits[i], &first[from * m->vocab + i], 4) != 0;
    free(logits);
    return differ;
}

/* A session, forks of it at many lengths, and what is cut: while each of them
 * goes on elsewhere, none of them has another one's keys. */
static void
test_fork(const struct sample *m, const struct way *way, const float *first)
{
    const struct engine_options options = { .chunk = 48,
                                            .compute = way->compute,
                                            .kv = way->kv };
    size_t half = m->n / 2, differ = 0, at, blocks = 0;
    int32_t *other = xcalloc(m->n, sizeof(*other)); /* another text */
    struct session *s = NULL, *fork[8] = { NULL };
    struct engine *engine = NULL;
    struct par *par = NULL;
    struct err err = { 0 };

    for (size_t i = 0; i < m->n; i++)
        other[i] = m->ids[m->n - 1 - i];
    if (par_open(&par, 2, &err) ||
        engine_open(&engine, m->model, par, &options, &err))
        goto out;
    s = session_new(engine, m->n);
    differ += session_feed(s, m->ids, half, NULL, 0, &err) != 0;
    for (size_t i = 0; i < 8; i++) {
        at = i == 7 ? half : half * i / 7;
        fork[i] = session_fork(s, at, m->n);
        differ += !fork[i] || fork[i]->n != at;
    }
    if (differ)
        goto out;
    for (size_t i = 0; i < 8; i++)
        blocks += fork[i]->kv.n_blocks > 0 &&
                  fork[i]->kv.blocks[0] == s->kv.blocks[0];
    tap_ok(blocks == 7, "%s, %s: forks share a session's blocks", m->name,
           way->name);
    for (size_t i = 0; i < 8; i += 2) /* each second one is of another text */
        differ +=
            session_feed(fork[i], other, m->n - fork[i]->n, NULL, 0, &err) != 0;
    differ += differ_after(m, s, first);
    session_cut(s, half); /* and the ones that have most of it come first */
    for (size_t i = 7; i < 8; i -= 2)
        differ += differ_after(m, fork[i], first);
    differ += differ_after(m, s, first);
    tap_ok(differ == 0, "%s, %s: a fork has the bits of the whole sequence",
           m->name, way->name);
    differ = 0;
    for (size_t i = 0; i < 8; i += 2) {
        session_cut(fork[i], half * i / 7);
        differ += differ_after(m, fork[i], first);
    }
    session_close(fork[6]);
    session_cut(fork[6] = s, 0);
    s = NULL;
    differ += fork[6]->kv.n_blocks + differ_after(m, fork[6], first);
    tap_ok(differ == 0, "%s, %s: another text is cut off, and leaves no trace",
           m->name, way->name);
out:
    if (err.status)
        tap_ok(0, "%s: %s", m->name, err.what);
    for (size_t i = 0; i < 8; i++)
        session_close(fork[i]);
    session_close(s);
    engine_close(engine);
    par_close(par);
    free(other);
}

static void
test_model(const char *dir, const char *name, size_t nth)
{
    float *logits;
    struct sample m;

    if (!sample_open(&m, dir, name)) {
        if (run(&m, &ways[0], 1, 48, SIZE_MAX, m.first))
            tap_ok(0, "%s: runs", name);
        logits = xcalloc(m.n * m.vocab, sizeof(*logits));
        for (size_t i = 0; i < N_WAYS; i++) {
            if ((tap_slow() || tap_one_way()) && i != nth % N_WAYS)
                continue;
            test_way(&m, &ways[i], nth, m.first);
            if ((!tap_few() || nth % 3 == 0) &&
                run(&m, &ways[i], 2, 48, SIZE_MAX, logits) == 0)
                test_fork(&m, &ways[i], logits);
            if (tap_few() ? nth % 3 == 1
                          : tap_slow() || !tap_one_way() || nth % 2 == 0)
                test_batch(&m, &ways[i], 64);
            if (tap_few() ? nth % 3 == 2
                          : !tap_slow() && (!tap_one_way() || nth % 2))
                test_batch(&m, &ways[i], 10);
        }
        free(logits);
    }
    sample_close(&m);
}

int
main(void)
{
    char dir[] = "/tmp/hf-infer-engine.XXXXXX";
    struct str path = { 0 }, text = { 0 };
    struct err err = { 0 };
    char *save = NULL;
    size_t n = 0, every = tap_slow() ? 4 : 1;

    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/tiny_models.py", err.what);
        return tap_done();
    }
    if (!mkdtemp(dir) || python_kept("test/ref/tiny_models.py", dir))
        tap_ok(0, "test/ref/tiny_models.py runs");
    str_addf(&path, "%s/models", dir);
    if (file_read_all(path.s, 1 << 20, &text, &err))
        tap_ok(0, "%s", err.what);
    for (char *line = text.s ? strtok_r(text.s, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save))
        if (n++ % every == 0)
            test_model(dir, line, n / every);
    str_clear(&path);
    str_addf(&path, "rm -r '%s'", dir);
    tap_ok(system(path.s) == 0, "the models are removed");
    str_free(&text);
    str_free(&path);
    return tap_done();
}
