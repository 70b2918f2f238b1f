/* SPDX-License-Identifier: ISC */
/*
 * model [DIR]: every model that test/ref/tiny_models.py has written
 * to DIR (made now without one) against its float64 logits, on the ISA of
 * TU_ISA; and the same bits for any threads and any cut of the prompt:
 * under an emulator of each fourth model, one cut.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/kernel/cpu.h"
#include "core/map.h"
#include "core/model/engine.h"
#include "test/unit/model-ref.h"

#define TOLERANCE 2e-4
#define GAP       1e-3 /* top-1 may differ where the two best are closer */

/* A chunk that some of the cuts below exceed. */
static const struct engine_options usual = { .chunk = 48,
                                             .compute = COMPUTE_F32,
                                             .kv = DT_F32 };

/* The prompt in pieces: sizes are repeated until it ends. */
struct cut {
    const char *name;
    size_t sizes[4];
};

static const struct cut cuts[] = {
    { "whole", { SIZE_MAX } },
    { "token by token", { 1 } },
    { "seven at a time", { 7 } },
    { "64 at a time", { 64 } },
    { "3, then 61 at a time", { 3, 61, 61, 61 } },
    { "65, 1, 1 and again", { 65, 1, 1, 65 } },
};

/* All logits of the sample through 's'; 0 or -1. */
static int
feed(const struct sample *m, struct session *s, const struct cut *cut,
     float *logits, struct err *err)
{
    size_t piece = 0;

    for (size_t at = 0; at < m->n; piece++) {
        size_t n = cut->sizes[piece % 4];

        n = n ? n : cut->sizes[0];
        n = n < m->n - at ? n : m->n - at;
        if (session_feed(s, m->ids + at, n, logits + at * m->vocab, n, err))
            return -1;
        at += n;
    }
    return 0;
}

/* One run from nothing. */
static int
run(const struct sample *m, int threads, const struct cut *cut, float *logits)
{
    struct err err = { 0 };
    struct par *par = NULL;
    struct engine *engine = NULL;
    struct session *s = NULL;
    int rc = -1;

    memset(logits, 0xff, m->n * m->vocab * sizeof(*logits));
    if (!par_open(&par, threads, &err) &&
        !engine_open(&engine, m->model, par, &usual, &err)) {
        s = session_new(engine, m->n);
        rc = feed(m, s, cut, logits, &err);
    }
    if (rc)
        printf("# %s: %s\n", m->name, err.what);
    session_close(s);
    engine_close(engine);
    par_close(par);
    return rc;
}

static size_t
best(const double *x, size_t n, double *gap)
{
    size_t k = 0;

    *gap = INFINITY;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[k])
            k = i;
    for (size_t i = 0; i < n; i++)
        if (i != k && x[k] - x[i] < *gap)
            *gap = x[k] - x[i];
    return k;
}

static void
test_against_reference(struct sample *m)
{
    const double *expected = m->expected;
    double worst = 0, gap;
    size_t wrong = 0;

    if (run(m, 1, &cuts[0], m->first)) {
        tap_ok(0, "%s: runs", m->name);
        return;
    }
    for (size_t i = 0; i < m->n * m->vocab; i++) {
        double e = fabs(m->first[i] - expected[i]);

        if (!(e <= worst)) /* a NaN counts */
            worst = e;
    }
    for (size_t i = 0; i < m->n; i++) {
        const float *row = m->first + i * m->vocab;
        size_t k = best(expected + i * m->vocab, m->vocab, &gap);

        for (size_t j = 0; gap > GAP && j < m->vocab; j++)
            wrong += row[j] > row[k];
    }
    tap_ok(worst <= TOLERANCE, "%s: logits are within %g of float64 (%.2g)",
           m->name, TOLERANCE, worst);
    tap_ok(wrong == 0, "%s: the likeliest token is float64's", m->name);
}

static void
test_bits(const struct sample *m, float *logits)
{
    size_t nbytes = m->n * m->vocab * sizeof(*logits);
    int emulated = tap_slow(); /* one cut, one -j */
    size_t n_cuts = emulated ? 3 : sizeof(cuts) / sizeof(*cuts);

    for (int threads = emulated ? 3 : 1; threads <= 3; threads++) {
        const char *differs = NULL;

        for (size_t i = emulated ? 2 : 0; i < n_cuts; i++)
            if (run(m, threads, &cuts[i], logits) ||
                memcmp(logits, m->first, nbytes) != 0)
                differs = cuts[i].name;
        tap_ok(!differs, "%s: -j %d gives the bits of -j 1, whole (%s)",
               m->name, threads, differs ? differs : "all cuts");
    }
}

/* The last logits alone, and a session used again. */
static void
test_last_and_reset(const struct sample *m, float *logits)
{
    size_t row = m->vocab * sizeof(*logits);
    struct engine *engine;
    struct session *s;
    struct err err = { 0 };
    int good = 1;

    if (engine_open(&engine, m->model, NULL, &usual, &err)) {
        tap_ok(0, "%s: %s", m->name, err.what);
        return;
    }
    for (size_t last = 0; last <= 3; last++) {
        s = session_new(engine, m->n);
        good &= !session_feed(s, m->ids, m->n, logits, last, &err);
        good &=
            !memcmp(logits, m->first + (m->n - last) * m->vocab, last * row);
        good &= s->n == m->n;
        session_close(s);
    }
    tap_ok(good, "%s: the last 0..3 logits alone, each in a new session",
           m->name);
    engine_close(engine);
}

static void
test_model(const char *dir, const char *name)
{
    static unsigned n;
    struct sample m;

    if (!sample_open(&m, dir, name)) {
        float *logits = xcalloc(m.n * m.vocab, sizeof(*logits));

        test_against_reference(&m);
        if (n++ % (tap_slow() ? 4 : 1) == 0) {
            test_bits(&m, logits);
            test_last_and_reset(&m, logits);
        }
        free(logits);
    }
    sample_close(&m);
}

static void
test_refusals(const char *dir)
{
    struct str path = { 0 };
    struct model *model;
    struct engine *engine;
    struct session *s;
    struct err err = { 0 };
    int32_t id = 509;
    const int32_t ok[3] = { 1, 508, 2 };
    float logits[509];

    str_addf(&path, "%s/llama/", dir);
    if (model_open(&model, path.s, &err) ||
        engine_open(&engine, model, NULL, &usual, &err)) {
        tap_ok(0, "llama opens: %s", err.what);
        return;
    }
    s = session_new(engine, 2);
    tap_ok(session_feed(s, &id, 1, logits, 1, &err) &&
               err.status == EX_DATAERR &&
               !strcmp(err.what, "token id 509 is not in the vocabulary (0 to "
                                 "508)"),
           "an id outside the vocabulary is refused: %s", err.what);
    id = -1;
    tap_ok(session_feed(s, &id, 1, logits, 1, &err) != 0,
           "a negative id is refused: %s", err.what);
    tap_ok(session_feed(s, ok, 3, logits, 1, &err) &&
               err.status == EX_DATAERR && s->n == 0,
           "three tokens in a context of two are refused: %s", err.what);
    tap_ok(!session_feed(s, ok, 2, logits, 1, &err) && s->n == 2, "two fit");
    session_close(s);
    engine_close(engine);
    model_close(model);
    str_free(&path);
}

/* "NAME<tab>MESSAGE": the directory must be refused with words that end so. */
static void
test_bad(const char *dir, char *line)
{
    char *message = strchr(line, '\t');
    struct str path = { 0 };
    struct model *model;
    struct err err = { 0 };
    size_t n, k;

    *message++ = '\0';
    str_addf(&path, "%s/%s", dir, line);
    tap_ok(model_open(&model, path.s, &err) && err.status == EX_DATAERR,
           "%s is refused", line);
    n = strlen(err.what);
    k = strlen(message);
    tap_ok(n >= k && !strcmp(err.what + n - k, message) &&
               !strncmp(err.what, path.s, path.n),
           "%s: %s", line, err.what);
    str_free(&path);
}

/* Calls for each line of DIR/LIST. */
static void
each_line(const char *dir, const char *list, int bad)
{
    struct str path = { 0 }, text = { 0 };
    struct err err = { 0 };
    char *save = NULL;

    str_addf(&path, "%s/%s", dir, list);
    if (file_read_all(path.s, 1 << 20, &text, &err))
        tap_ok(0, "%s", err.what);
    for (char *line = text.s ? strtok_r(text.s, "\n", &save) : NULL; line;
         line = strtok_r(NULL, "\n", &save)) {
        if (bad)
            test_bad(dir, line);
        else
            test_model(dir, line);
    }
    str_free(&text);
    str_free(&path);
}

int
main(int argc, char **argv)
{
    char made[] = "/tmp/hf-infer-model.XXXXXX";
    const char *dir = argc > 1 ? argv[1] : mkdtemp(made);
    struct err err = { 0 };

    if (cpu_check(&err)) {
        tap_skip("the models of test/ref/tiny_models.py", err.what);
        return tap_done();
    }
    if (argc < 2 && python_kept("test/ref/tiny_models.py", dir))
        tap_ok(0, "test/ref/tiny_models.py runs");
    each_line(dir, "models", 0);
    each_line(dir, "bad", 1);
    test_refusals(dir);
    if (argc < 2) {
        struct str command = { 0 };

        str_addf(&command, "rm -r '%s'", made);
        tap_ok(system(command.s) == 0, "the models are removed");
        str_free(&command);
    }
    return tap_done();
}
