/* SPDX-License-Identifier: ISC */
/*
 * The models that test/ref/tiny_models.py makes, with ids and their float64
 * logits: for the tests of the engine.
 */
#ifndef TEST_UNIT_MODEL_REF_H
#define TEST_UNIT_MODEL_REF_H

#include <stdlib.h>

#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/model.h"
#include "core/str.h"
#include "test/unit/tap.h"

struct sample {
    const char *name;
    struct model *model;
    int32_t *ids;     /* [n] */
    double *expected; /* [n, vocab] */
    size_t n, vocab;
    float *first; /* our logits, one thread, fed whole */
};

/* ids.i32 and logits.f64: little-endian, whatever this machine is. */
static int
read_numbers(struct sample *m, const char *dir, struct err *err)
{
    struct str path = { 0 };
    struct map ids = { 0 }, logits = { 0 };
    int rc = -1;

    str_addf(&path, "%s/ids.i32", dir);
    if (map_open(&ids, path.s, err))
        goto out;
    str_clear(&path);
    str_addf(&path, "%s/logits.f64", dir);
    if (map_open(&logits, path.s, err))
        goto out;
    m->n = ids.size / 4;
    m->ids = xcalloc(m->n, sizeof(*m->ids));
    m->expected = xcalloc(m->n * m->vocab, sizeof(*m->expected));
    if (logits.size != m->n * m->vocab * 8)
        goto out;
    for (size_t i = 0; i < m->n; i++)
        m->ids[i] = (int32_t)le32(ids.data + 4 * i);
    for (size_t i = 0; i < m->n * m->vocab; i++)
        m->expected[i] = le_f64(logits.data + 8 * i);
    rc = 0;
out:
    map_close(&logits);
    map_close(&ids);
    str_free(&path);
    return rc;
}

static __attribute__((unused)) int
sample_open(struct sample *m, const char *dir, const char *name)
{
    struct str path = { 0 };
    struct err err = { 0 };
    int rc = -1;

    *m = (struct sample){ .name = name };
    str_addf(&path, "%s/%s", dir, name);
    if (!model_open(&m->model, path.s, &err)) {
        m->vocab = (size_t)m->model->config.vocab_size;
        rc = read_numbers(m, path.s, &err);
        m->first = xcalloc(m->n * m->vocab, sizeof(*m->first));
    }
    tap_ok(rc == 0, "%s: opens %s", name, err.what);
    str_free(&path);
    return rc;
}

static __attribute__((unused)) void
sample_close(struct sample *m)
{
    free(m->first);
    free(m->ids);
    free(m->expected);
    model_close(m->model);
}

static int
run_in(const char *how, const char *what, const char *dir)
{
    struct str command = { 0 };
    int rc;

    str_addf(&command, "%s %s '%s'", how, what, dir);
    rc = system(command.s);
    str_free(&command);
    return rc;
}

static __attribute__((unused)) int
python(const char *what, const char *dir)
{
    const char *name = getenv("PYTHON");

    return run_in(name ? name : "python3", what, dir);
}

/* python_kept() computes it once for all builds, of a script whose files do not
 * have the directory's name in them. */
static __attribute__((unused)) int
python_kept(const char *what, const char *dir)
{
    return run_in("sh test/unit/kept.sh", what, dir);
}

#endif
