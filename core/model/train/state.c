/* SPDX-License-Identifier: ISC */
#include "core/model/train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/format/st.h"
#include "core/hash.h"
#include "core/js.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/opt.h"
#include "core/out.h"
#include "core/sig.h"
#include "core/str.h"

#define CHUNK ((size_t)65536) /* numbers read at once */

#define STAT_BLOCK 512 /* bytes of st_blocks */
#define MAX_UNPACKED                                        \
    64 /* bytes for one on the disk: moments that are 0 and \
        * file systems that compress stay far below */
#define STOPPED "the state was being read, run it again"

static const char *const kinds[] = { "master", "exp_avg", "exp_avg_sq" };
#define N_KINDS 3

/* The optimizer's array of a kind. */
static float *
array_of(const struct adamw *a, size_t kind)
{
    float *const all[N_KINDS] = { a->master, a->m, a->v };

    return all[kind];
}

void
train_state_set(struct train_state *s, const char *name, const char *value,
                const char *path)
{
    struct train_setting *set = &s->settings[s->n_settings++];

    *set = (struct train_setting){ .name = name,
                                   .value = xstrdup(value),
                                   .path = path };
}

void
train_state_may_differ(struct train_state *s)
{
    s->settings[s->n_settings - 1].is_free = true;
}

int
train_state_was(const char *path, const char *name, const char *was,
                const char *now, struct err *err)
{
    return err_set(err, EX_DATAERR,
                   "%s: %s was %s (now %s; --force starts a new run)", path,
                   name, *was ? was : "not given", *now ? now : "not given");
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
train_state_set_option(struct train_state *s, const struct opt_tool *tool,
                       const char *name, const void *from)
{
    struct str text = { 0 };

    opt_save(opt_of(tool, name), from, &text);
    train_state_set(s, name, text.s, NULL);
    str_free(&text);
}

int
train_state_option(const struct st *st, const struct opt_tool *tool,
                   const char *name, void *to, struct opt_list *kept,
                   struct err *err)
{
    const char *value = st_meta(st, name);
    struct str says = { 0 };
    int rc;

    if (!value)
        return 0;
    str_addf(&says, "%s: %s", st->path, name);
    rc =
        opt_load(opt_of(tool, name), says.s,
                 opt_keep(kept, value, strlen(value)), tool->defaults, to, err);
    str_free(&says);
    if (rc == 0)
        return 1;
    err->status = EX_DATAERR;
    return -1;
}

void
train_state_record(struct train_state *s, const double *record)
{
    if (s->step == s->room) {
        s->room = s->room ? 2 * s->room : 64;
        s->records =
            xrealloc(s->records, s->room, s->table->n * sizeof(*s->records));
    }
    memcpy(train_state_at(s, s->step++), record, s->table->n * sizeof(*record));
}

void
train_state_eval(struct train_state *s, double loss)
{
    struct eval_list *e = &s->evals;

    if (e->n == e->cap)
        e->list = xgrow(e->list, e->n, &e->cap, sizeof(*e->list));
    e->list[e->n++] =
        (struct eval_record){ .step = (double)s->step, .loss = loss };
}

void
train_state_close(struct train_state *s)
{
    for (size_t i = 0; i < s->n_settings; i++)
        free(s->settings[i].value);
    free(s->records);
    free(s->evals.list);
    *s = (struct train_state){ 0 };
}

/* Appends the name of a parameter's array of a kind; returns its elements. */
static size_t
name_of(const struct train_tensor *t, size_t kind, struct str *name)
{
    size_t n = 1;

    str_clear(name);
    str_addf(name, "%s.%s", t->name, kinds[kind]);
    for (size_t i = 0; i < t->n_dims; i++)
        n *= (size_t)t->shape[i];
    return n;
}

/* ---- a checksum of all numbers, as they are in the file ---- */

#define CHECKSUM          "xxh3"
#define SETTINGS_CHECKSUM "settings_xxh3"

static void
checksum(const struct train_state *s, char hex[HASH_MAX_HEX])
{
    struct hash *hash = hash_new(HASH_XXH3);
    struct str name = { 0 };
    size_t at = 0, n;

    hash_add_numbers(hash, s->records, s->step * s->table->n, 8);
    hash_add_numbers(hash, s->evals.list, 2 * s->evals.n, 8);
    for (size_t i = 0; i < s->n_tensors * N_KINDS; i++) {
        size_t kind = i % N_KINDS;

        n = name_of(&s->tensors[i / N_KINDS], kind, &name);
        hash_add_numbers(hash, array_of(s->adamw, kind) + at, n, 4);
        at += kind == N_KINDS - 1 ? n : 0;
    }
    for (size_t i = 0; i < s->n_others; i++)
        hash_add_numbers(hash, s->others[i].at, (size_t)s->others[i].n, 8);
    str_free(&name);
    hash_end(hash, hex);
}

/* That of the settings: as they are, or as a file has those that are there. */
static void
settings_checksum(const struct train_state *s, const struct st *st,
                  char hex[HASH_MAX_HEX])
{
    struct hash *hash = hash_new(HASH_XXH3);

    for (size_t i = 0; i < s->n_settings; i++) {
        const char *name = s->settings[i].name;
        const char *value = st ? st_meta(st, name) : s->settings[i].value;

        if (!value)
            continue;
        hash_add(hash, name, strlen(name) + 1);
        hash_add(hash, value, strlen(value) + 1);
    }
    hash_end(hash, hex);
}

/* Is what was read what was written? */
static int
check_sum(const struct train_state *s, const struct st *st, struct err *err)
{
    const char *want = st_meta(st, CHECKSUM);
    char found[HASH_MAX_HEX];

    checksum(s, found);
    if (want && !strcmp(found, want))
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: is damaged: its numbers are not those that were "
                   "written (XXH3 %s)",
                   st->path, found);
}

/* ---- the file ---- */

struct stw *
train_state_write(const struct train_state *s, const char *path,
                  struct err *err)
{
    const uint64_t shape[] = { s->step, s->table->n };
    const uint64_t eval[] = { s->evals.n, 2 };
    struct stw *w = stw_new();
    struct str text = { 0 };
    size_t at = 0, n;
    char hex[HASH_MAX_HEX];
    int evals = -1;
    int rc;

    checksum(s, hex);
    stw_meta(w, CHECKSUM, hex);
    settings_checksum(s, NULL, hex);
    stw_meta(w, SETTINGS_CHECKSUM, hex);
    str_addf(&text, "%llu", (unsigned long long)s->step);
    stw_meta(w, "format", s->format);
    stw_meta(w, "step", text.s);
    stw_meta(w, "arithmetic", s->arithmetic);
    for (size_t i = 0; i < s->n_settings; i++)
        stw_meta(w, s->settings[i].name, s->settings[i].value);
    rc = stw_add(w, "steps", DT_F64, 2, shape, err);
    for (size_t i = 0; rc >= 0 && i < s->n_tensors * N_KINDS; i++) {
        const struct train_tensor *t = &s->tensors[i / N_KINDS];

        name_of(t, i % N_KINDS, &text);
        rc = stw_add(w, text.s, DT_F32, t->n_dims, t->shape, err);
    }
    for (size_t i = 0; rc >= 0 && i < s->n_others; i++)
        rc = stw_add(w, s->others[i].name, DT_F64, 1, &s->others[i].n, err);
    if (rc >= 0 && s->evals.n)
        rc = evals = stw_add(w, "evals", DT_F64, 2, eval, err);
    if (rc >= 0)
        rc = stw_open(w, path, OUT_RUN, err);
    if (rc == 0)
        rc = stw_write_numbers(w, 0, s->records, s->step * s->table->n, 8, err);
    for (size_t i = 0; rc == 0 && i < s->n_tensors * N_KINDS; i++) {
        size_t kind = i % N_KINDS;

        n = name_of(&s->tensors[i / N_KINDS], kind, &text);
        rc = stw_write_numbers(w, 1 + (int)i, array_of(s->adamw, kind) + at, n,
                               4, err);
        at += kind == N_KINDS - 1 ? n : 0;
    }
    for (size_t i = 0; rc == 0 && i < s->n_others; i++)
        rc = stw_write_numbers(w, (int)(1 + s->n_tensors * N_KINDS + i),
                               s->others[i].at, (size_t)s->others[i].n, 8, err);
    if (rc == 0 && evals >= 0)
        rc = stw_write_numbers(w, evals, s->evals.list, 2 * s->evals.n, 8, err);
    str_free(&text);
    if (rc == 0)
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

static int
check_settings(const struct st *st, const struct train_state *s,
               struct err *err)
{
    const char *was = st_meta(st, "arithmetic");
    const char *want = st_meta(st, SETTINGS_CHECKSUM);
    char found[HASH_MAX_HEX];

    if (strcmp(meta(st, "format"), s->format) != 0)
        return err_set(err, EX_DATAERR,
                       "%s: is not a state of this version of %s (format "
                       "\"%s\", expected \"%s\"; --force starts a new run)",
                       st->path, s->program, meta(st, "format"), s->format);
    if (!want || !st_meta(st, CHECKSUM))
        return err_set(err, EX_DATAERR,
                       "%s: has no checksums (" CHECKSUM ", " SETTINGS_CHECKSUM
                       "), without which a state is not "
                       "continued (--force starts a new run)",
                       st->path);
    for (size_t i = 0; i < s->n_settings; i++) {
        const struct train_setting *set = &s->settings[i];
        const char *old = st_meta(st, set->name);

        if (set->is_free || !strcmp(old ? old : "", set->value))
            continue;
        if (!old) /* of a version without it, or not ours */
            return err_set(err, EX_DATAERR,
                           "%s: does not say what %s%s was (now %s; --force "
                           "starts a new run)",
                           st->path, set->path ? "its " : "", set->name,
                           set->path ? set->path : set->value);
        if (set->path && *old)
            return err_set(
                err, EX_DATAERR,
                "%s: its %s is not that of %s (--force starts a new run)",
                st->path, set->name, set->path);
        if (set->path)
            return err_set(err, EX_DATAERR,
                           "%s: its %s was not given (now %s; --force starts "
                           "a new run)",
                           st->path, set->name, set->path);
        return train_state_was(st->path, set->name, old, set->value, err);
    }
    settings_checksum(s, st, found);
    if (strcmp(found, want) != 0)
        return err_set(err, EX_DATAERR,
                       "%s: is damaged: its settings are not those that were "
                       "written (XXH3 %s)",
                       st->path, found);
    if (!was)
        was = "unknown instructions";
    if (!strcmp(was, s->arithmetic))
        return 0;
    if (!s->any_isa)
        return err_set(err, EX_DATAERR,
                       "%s: was made with %s, which gives other bits than %s "
                       "(TU_ISA selects instructions that the CPU has; "
                       "--any-isa continues)",
                       st->path, was, s->arithmetic);
    err_warn("%s: was made with %s and continues with %s: its bits will differ",
             st->path, was, s->arithmetic);
    return 0;
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
read_tensors(struct train_state *s, const struct st *st, struct err *err)
{
    float *le = xcalloc(CHUNK, sizeof(*le));
    struct str name = { 0 };
    size_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->n_tensors * N_KINDS; i++) {
        const struct train_tensor *want = &s->tensors[i / N_KINDS];
        size_t kind = i % N_KINDS, n = name_of(want, kind, &name), part;
        const struct st_tensor *t =
            find(st, name.s, DT_F32, want->n_dims, want->shape, err);

        rc = t ? 0 : -1;
        for (size_t k = 0; rc == 0 && k < n; k += part) {
            part = smaller(n - k, CHUNK);
            rc = st_pread(st, t, le, part * 4, k * 4, err);
            cvt_to_f32(array_of(s->adamw, kind) + at + k, le, DT_F32, part);
            if (rc == 0 && sig_stop())
                rc = sig_stopped(STOPPED, err);
        }
        at += kind == N_KINDS - 1 ? n : 0;
    }
    free(le);
    str_free(&name);
    return rc;
}

/* A state has evaluations, or is of a run without any so far. */
static int
read_evals(struct train_state *s, const struct st *st, struct err *err)
{
    const struct st_tensor *t = st_find(st, "evals");
    size_t n = t && t->n_dims == 2 ? t->shape[0] : 0;
    unsigned char row[sizeof(struct eval_record)];

    s->evals.n = 0;
    if (t && !find(st, "evals", DT_F64, 2, (uint64_t[]){ n, 2 }, err))
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (st_pread(st, t, row, sizeof(row), i * sizeof(row), err) < 0)
            return -1;
        train_state_eval(s, le_f64(row + 8));
        s->evals.list[i].step = le_f64(row);
    }
    return 0;
}

static int
read_others(const struct train_numbers *to, const struct st *st,
            struct err *err)
{
    const struct st_tensor *t = find(st, to->name, DT_F64, 1, &to->n, err);
    unsigned char number[8];

    if (!t)
        return -1;
    for (size_t i = 0; i < to->n; i++) {
        if (st_pread(st, t, number, 8, i * 8, err) < 0)
            return -1;
        to->at[i] = le_f64(number);
    }
    return 0;
}

int
train_state_open(struct st *st, const char *path, struct err *err)
{
    struct stat file;

    if (st_open(st, path, err) < 0)
        return -1;
    /* no blocks: the file system does not say */
    if (stat(path, &file) < 0 || file.st_blocks == 0 ||
        file.st_size / MAX_UNPACKED <= file.st_blocks * STAT_BLOCK)
        return 0;
    st_close(st);
    return err_set(err, EX_DATAERR,
                   "%s: has %lld bytes, but only %lld of them were written",
                   path, (long long)file.st_size,
                   (long long)file.st_blocks * STAT_BLOCK);
}

int
train_state_read(struct train_state *s, const char *path, struct err *err)
{
    const struct st_tensor *t = NULL;
    size_t row_n = s->table->n * sizeof(double);
    unsigned char *row = xcalloc(s->table->n, sizeof(double));
    double *record = xcalloc(s->table->n, sizeof(*record));
    uint64_t step;
    struct st st;
    int rc;

    if (train_state_open(&st, path, err) < 0) {
        free(record);
        free(row);
        return -1;
    }
    step = strtoull(meta(&st, "step"), NULL, 10);
    if (check_settings(&st, s, err) == 0)
        t = find(&st, "steps", DT_F64, 2, (uint64_t[]){ step, s->table->n },
                 err);
    s->step = 0;
    for (rc = t ? 0 : -1; rc == 0 && s->step < step;) {
        rc = st_pread(&st, t, row, row_n, s->step * row_n, err);
        for (size_t i = 0; i < s->table->n; i++)
            record[i] = le_f64(row + 8 * i);
        if (rc == 0)
            train_state_record(s, record);
        if (rc == 0 && sig_stop())
            rc = sig_stopped(STOPPED, err);
    }
    if (rc == 0)
        rc = read_evals(s, &st, err);
    if (rc == 0)
        rc = read_tensors(s, &st, err);
    for (size_t i = 0; rc == 0 && i < s->n_others; i++)
        rc = read_others(&s->others[i], &st, err);
    if (rc == 0)
        rc = check_sum(s, &st, err);
    st_close(&st);
    free(record);
    free(row);
    return rc;
}
