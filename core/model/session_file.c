/* SPDX-License-Identifier: ISC */
#include "core/model/session_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format/stw.h"
#include "core/format/stwant.h"
#include "core/hash.h"
#include "core/kernel/cpu.h"
#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/le.h"
#include "core/mem.h"
#include "core/model/config_file.h"
#include "core/model/engine.h"
#include "core/model/gdn.h"
#include "core/model/lora.h"
#include "core/model/model.h"
#include "core/str.h"

#define FORMAT "tensorutils session 1"
#define LONG   "longrope" /* "true" or "false": the long factors */
#define SUM    "xxh3"     /* of the numbers, head by head */
#define NO_SUM "00000000000000000000000000000000"

/* ---- what keys and values depend on ---- */

static void
add_tensors(struct hash *hash, const struct stdir *dir)
{
    for (size_t i = 0; i < dir->n_tensors; i++) {
        const struct stdir_tensor *t = &dir->tensors[i];

        st_hash(hash, t->t);
        hash_sample(hash, st_data(t->st, t->t), t->t->nbytes);
    }
}

/* The configuration, each tensor's name, type, shape and a sample of its
 * numbers; and the same of adapters, in their order. */
static int
digest(const struct model *m, char hex[HASH_MAX_HEX], struct err *err)
{
    struct hash *hash = hash_new(HASH_XXH3);
    struct str config = { 0 };
    int rc = config_file_text(&config, m->dir.path, err);

    hash_add(hash, config.s ? config.s : "", config.n);
    add_tensors(hash, &m->dir);
    for (const struct adapter *a = m->adapters; a; a = a->next) {
        hash_add_numbers(hash, &a->file.layer, 1, sizeof(a->file.layer));
        for (size_t i = 0; i < a->n_parts; i++)
            hash_add_numbers(hash, &a->parts[i].scale, 1, sizeof(float));
        add_tensors(hash, &a->file.dir);
    }
    hash_end(hash, hex);
    str_free(&config);
    return rc;
}

/* What must be the same, and what an error says of it. */
enum { CACHE, ARITHMETIC, MODEL, N_KEYS };
static const struct {
    const char *key, *by;
} keys[N_KEYS] = { { "kv_dtype", "by --kv-dtype and --kv-latents" },
                   { "arithmetic", "by --compute" },
                   { "model_xxh3", "of this model and its adapters" } };

static int
find_values(const struct engine *e, char values[N_KEYS][HASH_MAX_HEX],
            struct err *err)
{
    bool exact = e->options.compute == COMPUTE_F32;

    snprintf(values[CACHE], HASH_MAX_HEX, "%s%s",
             dtype_table[e->options.kv].name,
             e->options.latents ? ", latents" : "");
    snprintf(values[ARITHMETIC], HASH_MAX_HEX, "%s, %s", exact ? "f32" : "bf16",
             exact ? GEMM_EXACT_ORDER : isa_name(cpu_isa()));
    return digest(e->model, values[MODEL], err);
}

static bool
is_long(const struct session *s)
{
    return config_is_long(&s->engine->model->config, s->max_tokens);
}

/* ---- states ---- */

/* A state is two tensors: what is before the convolution, and the heads'. */
struct tensor_state {
    const char *word;
    struct st_want want;
    size_t at, n; /* of its numbers in a layer's state */
};

static void
state_tensors(const struct config *c, struct tensor_state to[2])
{
    const struct config_gdn *g = &c->gdn;
    struct gdn_sizes n = gdn_sizes(c);
    size_t before = (size_t)(g->kernel - 1);

    to[0] = (struct tensor_state){
        "conv", { 2, .shape = { before, n.channels } }, 0, before * n.channels
    };
    to[1] = (struct tensor_state){ "state",
                                   { 3, .shape = { n.heads, (size_t)g->v_dim,
                                                   (size_t)g->k_dim } },
                                   before * n.channels,
                                   n.state - before * n.channels };
}

/* The name of tensor i of all states' 2 n_states. */
static void
state_name(struct str *name, const struct config *c,
           const struct tensor_state of[2], size_t i)
{
    size_t layer = 0;

    while (c->mixer[layer] != MIXER_GDN || (size_t)c->nth[layer] != i / 2)
        layer++;
    str_clear(name);
    str_addf(name, "layers.%zu.%s", layer, of[i % 2].word);
}

/* ---- a head's keys and values ---- */

struct head {
    float *of[2];      /* keys, values */
    size_t n_items[2]; /* n * head_dim, n * v_head_dim */
    size_t nbytes[2];
    char *bytes; /* of one of them, as in the file */
};

static int
head_open(struct head *h, const struct kv *kv, size_t n, struct err *err)
{
    size_t widest = n * larger(kv->head_dim, kv->v_head_dim);

    for (int i = 0; i < 2; i++) {
        h->n_items[i] = n * (i ? kv->v_head_dim : kv->head_dim);
        h->nbytes[i] = h->n_items[i] * dtype_size(kv->dtype);
    }
    h->of[0] = mem_try(widest, 3 * sizeof(float), "keys and values", err);
    if (!h->of[0])
        return -1;
    h->of[1] = h->of[0] + widest;
    h->bytes = (char *)(h->of[1] + widest);
    return 0;
}

static void
tensor_name(struct str *name, const struct config *c, size_t nth, bool values)
{
    str_clear(name);
    str_addf(name, "layers.%zu.%s", config_keyed(c, nth),
             values ? "values" : "keys");
}

/* What the sum is of before the heads. */
static void
add_ids(struct hash *hash, const struct session *s, const int32_t *ids)
{
    hash_add(hash, is_long(s) ? "long" : "", is_long(s) ? 4 : 0);
    hash_add_numbers(hash, ids, s->n, sizeof(*ids));
}

/* ---- writing ---- */

struct stw *
session_file_begin(const struct session *s, const int32_t *ids, size_t n,
                   const char *path, int flags, struct err *err)
{
    const struct kv *kv = &s->kv;
    const uint64_t shape[][3] = { { kv->n_heads, n, kv->head_dim },
                                  { kv->n_heads, n, kv->v_head_dim } };
    const struct config *c = &s->engine->model->config;
    struct tensor_state of[2];
    char values[N_KEYS][HASH_MAX_HEX];
    struct stw *w = stw_new();
    struct str name = { 0 };
    int rc = find_values(s->engine, values, err);

    stw_meta(w, "format", FORMAT);
    for (size_t i = 0; i < N_KEYS && rc == 0; i++)
        stw_meta(w, keys[i].key, values[i]);
    stw_meta(w, LONG, is_long(s) ? "true" : "false");
    stw_meta(w, SUM, NO_SUM);
    if (rc == 0 && stw_add(w, "ids", DT_I32, 1, &shape[0][1], err) < 0)
        rc = -1;
    for (size_t i = 0; i < 2 * kv->n_layers && rc == 0; i++) {
        tensor_name(&name, c, i / 2, i % 2);
        if (stw_add(w, name.s, kv->dtype, 3, shape[i % 2], err) < 0)
            rc = -1;
    }
    state_tensors(c, of);
    for (size_t i = 0; i < 2 * (size_t)c->n_states && rc == 0; i++) {
        const struct st_want *want = &of[i % 2].want;

        state_name(&name, c, of, i);
        if (stw_add(w, name.s, DT_F32, (int)want->n_dims, want->shape, err) < 0)
            rc = -1;
    }
    if (rc == 0)
        rc = stw_open(w, path, flags, err);
    if (rc == 0)
        rc = stw_write_numbers(w, 0, ids, n, sizeof(*ids), err);
    str_free(&name);
    if (rc == 0)
        return w;
    stw_free(w);
    return NULL;
}

int
session_file_end(struct stw *w, const struct session *s, const int32_t *ids,
                 struct err *err)
{
    struct hash *hash = hash_new(HASH_XXH3);
    const struct config *c = &s->engine->model->config;
    const struct kv *kv = &s->kv;
    struct tensor_state of[2];
    char hex[HASH_MAX_HEX];
    struct head h = { 0 };
    int rc = head_open(&h, kv, s->n, err);

    add_ids(hash, s, ids);
    for (size_t i = 0; i < kv->n_layers * kv->n_heads && rc == 0; i++) {
        size_t layer = i / kv->n_heads, head = i % kv->n_heads;

        kv_get(kv, layer, head, s->n, h.of[0], h.of[1]);
        for (int k = 0; k < 2 && rc == 0; k++) {
            cvt_from_f32(h.bytes, kv->dtype, h.of[k], h.n_items[k]);
            hash_add(hash, h.bytes, h.nbytes[k]);
            rc = stw_write(w, (int)(1 + 2 * layer) + k, h.bytes, h.nbytes[k],
                           head * h.nbytes[k], err);
        }
    }
    state_tensors(c, of);
    for (size_t i = 0; i < 2 * (size_t)c->n_states && rc == 0; i++) {
        const float *from =
            s->state.at + i / 2 * (of[1].at + of[1].n) + of[i % 2].at;

        hash_add_numbers(hash, from, of[i % 2].n, sizeof(*from));
        rc = stw_write_numbers(w, (int)(1 + 2 * kv->n_layers + i), from,
                               of[i % 2].n, sizeof(*from), err);
    }
    hash_end(hash, hex);
    if (rc == 0)
        rc = stw_late(w, SUM, hex, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    free(h.of[0]);
    stw_free(w);
    return rc;
}

/* ---- reading ---- */

static int
check_meta(const struct st *st, const struct engine *e, struct err *err)
{
    const char *format = st_meta(st, "format");
    char values[N_KEYS][HASH_MAX_HEX];

    if (!format || strcmp(format, FORMAT) != 0)
        return err_data(err, st->path,
                        "is not a session (format is %s, expected %s)",
                        format ? format : "missing", FORMAT);
    if (find_values(e, values, err) < 0)
        return -1;
    for (size_t i = 0; i < N_KEYS; i++) {
        const char *value = st_meta(st, keys[i].key);

        if (!value || strcmp(value, values[i]) != 0)
            return err_data(err, st->path, "%s is %s (expected %s, %s)",
                            keys[i].key, value ? value : "missing", values[i],
                            keys[i].by);
    }
    return 0;
}

/* The ids [*n], which are all in the vocabulary; NULL with 'err' set. */
static int32_t *
read_ids(const struct st *st, const struct config *c, size_t *n,
         struct err *err)
{
    const struct st_want want = { .n_dims = 1,
                                  .shape = { ST_OPEN },
                                  .open = "tokens" };
    const uint8_t *from = st_want_data(st, "ids", DT_I32, &want, err);
    int32_t *ids;

    if (!from)
        return NULL;
    *n = st_find(st, "ids")->n_elements;
    if (*n == 0 || *n > (size_t)c->max_positions) {
        err_data(err, st->path,
                 "has %zu tokens (expected 1 to %lld, the model's context)", *n,
                 (long long)c->max_positions);
        return NULL;
    }
    ids = xmalloc(*n * sizeof(*ids));
    for (size_t i = 0; i < *n; i++) {
        ids[i] = (int32_t)le32(from + 4 * i);
        if (ids[i] >= 0 && ids[i] < c->vocab_size)
            continue;
        err_data(err, st->path, "ids[%zu] is %ld (expected 0 to %lld)", i,
                 (long)ids[i], (long long)c->vocab_size - 1);
        free(ids);
        return NULL;
    }
    return ids;
}

static int
find_tensors(const struct st *st, const struct session *s, const char **data,
             struct err *err)
{
    const struct config *c = &s->engine->model->config;
    const struct kv *kv = &s->kv;
    const struct st_want want[] = {
        { .n_dims = 3, .shape = { kv->n_heads, s->n, kv->head_dim } },
        { .n_dims = 3, .shape = { kv->n_heads, s->n, kv->v_head_dim } },
    };
    struct tensor_state of[2];
    struct str name = { 0 };
    int rc = 0;

    for (size_t i = 0; i < 2 * kv->n_layers && rc == 0; i++) {
        tensor_name(&name, c, i / 2, i % 2);
        data[i] = st_want_data(st, name.s, kv->dtype, &want[i % 2], err);
        rc = data[i] ? 0 : -1;
    }
    state_tensors(c, of);
    data += 2 * kv->n_layers;
    for (size_t i = 0; i < 2 * (size_t)c->n_states && rc == 0; i++) {
        state_name(&name, c, of, i);
        data[i] = st_want_data(st, name.s, DT_F32, &of[i % 2].want, err);
        rc = data[i] ? 0 : -1;
    }
    str_free(&name);
    return rc;
}

/* Are the numbers those that were written?  Before there is room for them: a
 * sparse file promises much. */
static int
check_sum(const struct st *st, const struct session *s, const int32_t *ids,
          const char *const *data, struct err *err)
{
    const struct config *c = &s->engine->model->config;
    const struct kv *kv = &s->kv;
    struct tensor_state state[2];
    size_t n = s->n * dtype_size(kv->dtype);
    size_t nbytes[] = { n * kv->head_dim, n * kv->v_head_dim };
    struct hash *hash = hash_new(HASH_XXH3);
    const char *sum = st_meta(st, SUM);
    char hex[HASH_MAX_HEX];

    add_ids(hash, s, ids);
    for (size_t i = 0; i < kv->n_layers * kv->n_heads; i++) {
        const char *const *of = &data[i / kv->n_heads * 2];

        for (int k = 0; k < 2; k++)
            hash_add(hash, of[k] + i % kv->n_heads * nbytes[k], nbytes[k]);
    }
    state_tensors(c, state);
    for (size_t i = 0; i < 2 * (size_t)c->n_states; i++)
        hash_add(hash, data[2 * kv->n_layers + i],
                 state[i % 2].n * sizeof(float));
    hash_end(hash, hex);
    if (sum && !strcmp(sum, hex))
        return 0;
    return err_data(err, st->path,
                    "is damaged: its numbers are not those that were written "
                    "(XXH3 %s)",
                    hex);
}

static int
fill(struct session *s, const char *const *data, struct err *err)
{
    const struct config *c = &s->engine->model->config;
    struct kv *kv = &s->kv;
    struct tensor_state of[2];
    struct head h = { 0 };
    float *to;

    state_tensors(c, of);
    if (kv_grow(kv, 0, s->n, err) < 0 ||
        (c->n_states &&
         state_own(&s->state, (size_t)c->n_states * gdn_sizes(c).state, err)) ||
        head_open(&h, kv, s->n, err) < 0)
        return -1;
    to = s->state.at;
    for (size_t i = 0; i < 2 * (size_t)c->n_states; to += of[i++ % 2].n)
        cvt_to_f32(to, data[2 * kv->n_layers + i], DT_F32, of[i % 2].n);
    for (size_t i = 0; i < kv->n_layers * kv->n_heads; i++) {
        size_t layer = i / kv->n_heads, head = i % kv->n_heads;

        for (size_t k = 0; k < 2; k++)
            cvt_to_f32(h.of[k], data[2 * layer + k] + head * h.nbytes[k],
                       kv->dtype, h.n_items[k]);
        kv_set(kv, layer, head, 0, s->n, h.of[0], h.of[1]);
    }
    free(h.of[0]);
    return 0;
}

int
session_file_read(struct session **session, int32_t **ids,
                  struct engine *engine, const char *path, struct err *err)
{
    const struct config *c = &engine->model->config;
    const char **data = NULL, *longrope;
    struct session *s = NULL;
    size_t n, most;
    struct st st;
    int rc = -1;

    *ids = NULL;
    if (st_open(&st, path, err) < 0)
        return -1;
    if (check_meta(&st, engine, err) < 0 || st_map(&st, err) < 0 ||
        !(*ids = read_ids(&st, c, &n, err)))
        goto out;
    longrope = st_meta(&st, LONG);
    most = c->rope->type == ROPE_LONG && longrope && !strcmp(longrope, "false")
               ? (size_t)c->rope->original_max_positions
               : SIZE_MAX;
    s = session_new(engine, larger(n, smaller((size_t)c->max_positions, most)));
    data = xcalloc(2 * (size_t)c->n_layers, sizeof(*data));
    s->n = s->n_cached = n;
    if (find_tensors(&st, s, data, err) == 0 &&
        check_sum(&st, s, *ids, data, err) == 0 && fill(s, data, err) == 0)
        rc = st_unchanged(&st, err);
out:
    free(data);
    st_close(&st);
    if (rc < 0) {
        session_close(s);
        free(*ids);
        *ids = NULL;
        s = NULL;
    }
    *session = s;
    return rc;
}
