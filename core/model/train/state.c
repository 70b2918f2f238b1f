#include "core/model/train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/st.h"
#include "core/js.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/out.h"
#include "core/str.h"

#define N_FIELDS (sizeof(struct step_record) / sizeof(double))
#define CHUNK    ((size_t)65536) /* numbers read at once */

static const char *const kinds[] = { "master", "exp_avg", "exp_avg_sq" };
#define N_KINDS 3

static float *
of_kind(const struct adamw *a, size_t kind)
{
    float *const all[N_KINDS] = { a->master, a->m, a->v };

    return all[kind];
}

void
train_state_set(struct train_state *s, const char *name, const char *value,
                const char *path)
{
    struct train_setting *set = &s->settings[s->n_settings++];

    *set = (struct train_setting){ .name = name, .path = path };
    snprintf(set->value, sizeof(set->value), "%s", value);
}

void
train_state_set_number(struct train_state *s, const char *name, double value)
{
    struct str text = { 0 };

    js_put_f64(&text, value);
    train_state_set(s, name, text.s, NULL);
    str_free(&text);
}

void
train_state_record(struct train_state *s, const struct step_record *record)
{
    if (s->step == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->records = xrealloc(s->records, s->room, sizeof(*s->records));
    }
    s->records[s->step++] = *record;
}

static void
put_name(struct str *to, const struct train_tensor *t, size_t kind)
{
    str_clear(to);
    str_addf(to, "%s.%s", t->name, kinds[kind]);
}

static size_t
n_elements(const struct train_tensor *t)
{
    size_t n = 1;

    for (size_t i = 0; i < t->n_dims; i++)
        n *= (size_t)t->shape[i];
    return n;
}

static void
describe(struct stw *w, const struct train_state *s)
{
    char number[32];

    stw_meta(w, "format", s->format);
    snprintf(number, sizeof(number), "%llu", (unsigned long long)s->step);
    stw_meta(w, "step", number);
    stw_meta(w, "isa", isa_name(cpu_isa()));
    for (size_t i = 0; i < s->n_settings; i++)
        stw_meta(w, s->settings[i].name, s->settings[i].value);
}

/* All tensors, in the order in which fill() writes them. */
static int
announce(struct stw *w, const struct train_state *s, struct err *err)
{
    const uint64_t shape[] = { s->step, N_FIELDS };
    int rc = stw_add(w, "steps", DT_F64, 2, shape, err);
    struct str name = { 0 };

    for (size_t i = 0; i < s->n_tensors; i++)
        for (size_t k = 0; k < N_KINDS && rc >= 0; k++) {
            const struct train_tensor *t = &s->tensors[i];

            put_name(&name, t, k);
            rc = stw_add(w, name.s, DT_F32, t->n_dims, t->shape, err);
        }
    str_free(&name);
    return rc < 0 ? -1 : 0;
}

static int
fill(struct stw *w, const struct train_state *s, struct err *err)
{
    size_t at = 0;
    int tensor = 1;

    if (stw_write_numbers(w, 0, s->records, s->step * N_FIELDS, 8, err) < 0)
        return -1;
    for (size_t i = 0; i < s->n_tensors; i++) {
        size_t n = n_elements(&s->tensors[i]);

        for (size_t k = 0; k < N_KINDS; k++)
            if (stw_write_numbers(w, tensor++, of_kind(s->adamw, k) + at, n, 4,
                                  err) < 0)
                return -1;
        at += n;
    }
    return 0;
}

struct stw *
train_state_write(const struct train_state *s, const char *path,
                  struct err *err)
{
    struct stw *w = stw_new();

    describe(w, s);
    if (announce(w, s, err) == 0 && stw_open(w, path, OUT_FORCE, err) == 0 &&
        fill(w, s, err) == 0)
        return w;
    stw_free(w);
    return NULL;
}

static const char *
meta(const struct st *st, const char *key)
{
    const char *value = st_meta(st, key);

    return value ? value : "";
}

/* The line that says which setting is another one. */
static int
other_setting(const struct st *st, const struct train_setting *now,
              struct err *err)
{
    const char *was = meta(st, now->name);

    if (now->path)
        return err_set(err, EX_DATAERR,
                       "%s: is of another %s than %s (--force begins anew)",
                       st->path, now->name, now->path);
    return err_set(err, EX_DATAERR,
                   "%s: %s was %s (now %s; --force begins anew)", st->path,
                   now->name, was, now->value);
}

static int
check_settings(const struct st *st, const struct train_state *s,
               struct err *err)
{
    if (strcmp(meta(st, "format"), s->format) != 0)
        return err_set(err, EX_DATAERR, "%s: is no state of %s (format \"%s\")",
                       st->path, s->program, meta(st, "format"));
    for (size_t i = 0; i < s->n_settings; i++)
        if (strcmp(meta(st, s->settings[i].name), s->settings[i].value) != 0)
            return other_setting(st, &s->settings[i], err);
    return 0;
}

/* Steps on another machine are as good, but not the same bits. */
static void
warn_isa(const struct st *st)
{
    const char *was = st_meta(st, "isa"), *now = isa_name(cpu_isa());

    if (was && strcmp(was, now) != 0)
        err_warn("%s: was made by %s, and goes on by %s, to other bits "
                 "(TU_ISA=%s is the same again, where it can be had)",
                 st->path, was, now, was);
}

/* A tensor of the state, of the shape it must have. */
static const struct st_tensor *
find(const struct st *st, const char *name, enum dtype dtype, size_t n_dims,
     const uint64_t *shape, struct err *err)
{
    const struct st_tensor *t = st_find(st, name);

    if (t && t->dtype == dtype && t->n_dims == n_dims &&
        !memcmp(t->shape, shape, n_dims * sizeof(*shape)))
        return t;
    err_set(err, EX_DATAERR, "%s: %s is %s", st->path, name,
            t ? "of another shape or dtype" : "missing");
    return NULL;
}

static int
read_records(struct train_state *s, const struct st *st, struct err *err)
{
    uint64_t step = strtoull(meta(st, "step"), NULL, 10);
    const struct st_tensor *t =
        find(st, "steps", DT_F64, 2, (uint64_t[]){ step, N_FIELDS }, err);
    struct step_record r = { 0 };
    unsigned char row[sizeof(r)];

    if (!t)
        return -1;
    s->step = 0;
    while (s->step < step) {
        if (st_pread(st, t, row, sizeof(row), s->step * sizeof(row), err) < 0)
            return -1;
        r = (struct step_record){ le_f64(row), le_f64(row + 8),
                                  le_f64(row + 16), le_f64(row + 24) };
        train_state_record(s, &r);
    }
    return 0;
}

static int
read_floats(const struct st *st, const struct st_tensor *t, float *to,
            struct err *err)
{
    float *le = xcalloc(CHUNK, sizeof(*le));
    size_t n = (size_t)t->n_elements;
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i += CHUNK) {
        size_t part = n - i < CHUNK ? n - i : CHUNK;

        rc = st_pread(st, t, le, part * 4, i * 4, err);
        cvt_to_f32(to + i, le, DT_F32, part);
    }
    free(le);
    return rc;
}

static int
read_tensors(struct train_state *s, const struct st *st, struct err *err)
{
    struct str name = { 0 };
    size_t at = 0;
    int rc = 0;

    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct train_tensor *want = &s->tensors[i];

        for (size_t k = 0; k < N_KINDS && rc == 0; k++) {
            const struct st_tensor *t;

            put_name(&name, want, k);
            t = find(st, name.s, DT_F32, want->n_dims, want->shape, err);
            rc = t ? read_floats(st, t, of_kind(s->adamw, k) + at, err) : -1;
        }
        at += n_elements(want);
    }
    str_free(&name);
    return rc;
}

int
train_state_read(struct train_state *s, const char *path, struct err *err)
{
    struct st st;
    int rc;

    if (st_open(&st, path, err) < 0)
        return -1;
    rc = check_settings(&st, s, err);
    if (rc == 0) {
        warn_isa(&st);
        rc = read_records(s, &st, err);
    }
    if (rc == 0)
        rc = read_tensors(s, &st, err);
    st_close(&st);
    return rc;
}
