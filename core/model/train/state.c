/* SPDX-License-Identifier: ISC */
#include "core/model/train/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/format/st.h"
#include "core/hash.h"
#include "core/js.h"
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

/* ---- tensors of the file ---- */

struct item {
    char *name;
    enum dtype dtype;
    size_t n_dims;
    uint64_t shape[3]; /* n_dims of them */
    char *at;          /* its numbers, in this machine's order */
};

/* All of them, as the checksum has them one after the other. */
struct items {
    struct item *list; /* [n] */
    size_t n;
};

static struct items
items_of(const struct train_state *s)
{
    static const char *const kinds[] = { "master", "exp_avg", "exp_avg_sq" };
    enum { N_KINDS = sizeof(kinds) / sizeof(*kinds) };
    float *const arrays[N_KINDS] = { s->adamw->master, s->adamw->m,
                                     s->adamw->v };
    size_t most = 2 + s->n_tensors * N_KINDS + s->n_others, n = 0, at = 0;
    struct item *list = xcalloc(most, sizeof(*list));

    list[n++] = (struct item){ xstrdup("steps"),
                               DT_F64,
                               2,
                               { s->step, s->table->n },
                               (char *)s->records };
    if (s->evals.n)
        list[n++] = (struct item){ xstrdup("evals"),
                                   DT_F64,
                                   2,
                                   { s->evals.n, 2 },
                                   (char *)s->evals.list };
    for (size_t i = 0; i < s->n_tensors; i++) {
        const struct train_tensor *t = &s->tensors[i];
        size_t numbers = 1;

        for (size_t k = 0; k < N_KINDS; k++) {
            struct str name = { 0 };

            str_addf(&name, "%s.%s", t->name, kinds[k]);
            list[n] = (struct item){
                name.s, DT_F32, t->n_dims, { 0 }, (char *)(arrays[k] + at)
            };
            memcpy(list[n++].shape, t->shape, sizeof(t->shape));
        }
        for (size_t k = 0; k < t->n_dims; k++)
            numbers *= (size_t)t->shape[k];
        at += numbers;
    }
    for (size_t i = 0; i < s->n_others; i++)
        list[n++] = (struct item){ xstrdup(s->others[i].name),
                                   DT_F64,
                                   1,
                                   { s->others[i].n },
                                   (char *)s->others[i].at };
    return (struct items){ list, n };
}

static void
free_items(const struct items *items)
{
    for (size_t i = 0; i < items->n; i++)
        free(items->list[i].name);
    free(items->list);
}

static size_t
numbers_of(const struct item *item)
{
    size_t n = 1;

    for (size_t i = 0; i < item->n_dims; i++)
        n *= (size_t)item->shape[i];
    return n;
}

/* ---- checksums ---- */

#define CHECKSUM          "xxh3"
#define SETTINGS_CHECKSUM "settings_xxh3"

/* That of all numbers, as they are in the file. */
static void
checksum(const struct items *items, char hex[HASH_MAX_HEX])
{
    struct hash *hash = hash_new(HASH_XXH3);

    for (size_t i = 0; i < items->n; i++)
        hash_add_numbers(hash, items->list[i].at, numbers_of(&items->list[i]),
                         dtype_size(items->list[i].dtype));
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

/* ---- the file ---- */

struct stw *
train_state_write(const struct train_state *s, const char *path,
                  struct err *err)
{
    const struct items items = items_of(s);
    struct stw *w = stw_new();
    struct str step = { 0 };
    char hex[HASH_MAX_HEX];
    int rc = 0;

    checksum(&items, hex);
    stw_meta(w, CHECKSUM, hex);
    settings_checksum(s, NULL, hex);
    stw_meta(w, SETTINGS_CHECKSUM, hex);
    str_addf(&step, "%llu", (unsigned long long)s->step);
    stw_meta(w, "format", s->format);
    stw_meta(w, "step", step.s);
    stw_meta(w, "arithmetic", s->arithmetic);
    for (size_t i = 0; i < s->n_settings; i++)
        stw_meta(w, s->settings[i].name, s->settings[i].value);
    for (size_t i = 0; rc >= 0 && i < items.n; i++) {
        const struct item *item = &items.list[i];

        rc =
            stw_add(w, item->name, item->dtype, item->n_dims, item->shape, err);
    }
    if (rc >= 0)
        rc = stw_open(w, path, OUT_RUN, err);
    for (size_t i = 0; rc == 0 && i < items.n; i++)
        rc = stw_write_numbers(w, (int)i, items.list[i].at,
                               numbers_of(&items.list[i]),
                               dtype_size(items.list[i].dtype), err);
    free_items(&items);
    str_free(&step);
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

/* Reads a tensor, which must have this shape. */
static int
read_item(const struct item *item, const struct st *st, struct err *err)
{
    const struct st_tensor *t = st_find(st, item->name);
    size_t size = dtype_size(item->dtype), n = numbers_of(item);
    int rc = 0;

    if (!t || t->dtype != item->dtype || t->n_dims != item->n_dims ||
        memcmp(t->shape, item->shape, t->n_dims * sizeof(*t->shape)) != 0)
        return err_set(err, EX_DATAERR, "%s: %s is %s", st->path, item->name,
                       t ? "of another shape or dtype" : "missing");
    for (size_t i = 0, part; rc == 0 && i < n; i += part) {
        part = smaller(n - i, CHUNK);
        rc = st_read_numbers(st, t, i, item->at + i * size, part, size, err);
        if (rc == 0 && sig_stop())
            rc = sig_stopped("the state was being read, run it again", err);
    }
    return rc;
}

/* Makes room for as many steps and evaluations as there are, of which a run may
 * have none so far. */
static void
make_room(struct train_state *s, const struct st *st)
{
    const struct st_tensor *steps = st_find(st, "steps");
    const struct st_tensor *evals = st_find(st, "evals");
    struct eval_list *e = &s->evals;

    s->step = strtoull(meta(st, "step"), NULL, 10);
    s->room = larger(steps ? steps->n_elements / s->table->n : 0, 64);
    s->records =
        xrealloc(s->records, s->room, s->table->n * sizeof(*s->records));
    e->n = evals ? evals->n_elements / 2 : 0;
    e->cap = larger(e->n, 1);
    e->list = xrealloc(e->list, e->cap, sizeof(*e->list));
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
    struct items items = { 0 };
    char found[HASH_MAX_HEX];
    struct st st;
    int rc;

    if (train_state_open(&st, path, err) < 0)
        return -1;
    rc = check_settings(&st, s, err);
    if (rc == 0) {
        make_room(s, &st);
        items = items_of(s);
    }
    for (size_t i = 0; rc == 0 && i < items.n; i++)
        rc = read_item(&items.list[i], &st, err);
    if (rc == 0)
        checksum(&items, found);
    if (rc == 0 && strcmp(found, meta(&st, CHECKSUM)) != 0)
        rc = err_set(err, EX_DATAERR,
                     "%s: is damaged: its numbers are not those that were "
                     "written (XXH3 %s)",
                     path, found);
    if (rc < 0)
        s->step = s->evals.n = 0;
    free_items(&items);
    st_close(&st);
    return rc;
}
