/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/cache.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/adapter.h"
#include "cmd/moe-sft/base.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/format/stwant.h"
#include "core/hash.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"

#define VERSION_1 "1"

/* Keys of the metadata, each with a digest of what it names. */
enum { D_BASE, D_LORA, D_ROUTING, D_VALUES, N_DIGESTS };
static const char *const keys[N_DIGESTS] = { "base", "lora", "routing",
                                             "values" };

/* ---- digests ---- */

/* Of all that a cache depends on, in the file's order of bytes; gate and up
 * have n numbers. */
static void
digest_all(char hex[N_DIGESTS][HASH_MAX_HEX], const struct sft_run *run,
           const struct batch *batch, const uint16_t *gate, const uint16_t *up,
           size_t n)
{
    struct hash *h[N_DIGESTS];
    uint8_t bytes[16];

    for (int i = 0; i < N_DIGESTS; i++)
        h[i] = hash_new(HASH_XXH3);
    base_digest(&run->base, h[D_BASE]);
    adapter_digest(&run->adapter, h[D_LORA]);
    put_le64(bytes, batch->qlen);
    put_le64(bytes + 8, batch->top_k);
    hash_add(h[D_ROUTING], bytes, 16);
    for (size_t i = 0; i < batch->qlen * batch->top_k; i++) {
        put_le64(bytes, (uint64_t)batch->expert_ids[i]);
        put_le32(bytes + 8, f32_bits(batch->weights[i]));
        hash_add(h[D_ROUTING], bytes, 12);
    }
    hash_add(h[D_ROUTING], batch->input,
             batch->qlen * batch->hidden * sizeof(*batch->input));
    hash_add(h[D_VALUES], gate, n * sizeof(*gate));
    hash_add(h[D_VALUES], up, n * sizeof(*up));
    for (int i = 0; i < N_DIGESTS; i++)
        hash_end(h[i], hex[i]);
}

/* ---- writing ---- */

struct stw *
cache_write(const struct sft_run *run, const char *path, struct err *err)
{
    const struct batch *b = &run->batch;
    size_t inter = run->base.intermediate;
    struct stw *w = stw_new();
    struct moe_cache top;

    if (moe_cache_top(run->moe, &top, err) == 0) {
        const struct output_tensor tensors[] = {
            { "input", DT_BF16, 2, { b->qlen, b->hidden }, b->input },
            { "expert_ids", DT_I64, 2, { b->qlen, b->top_k }, b->expert_ids },
            { "weights", DT_F32, 2, { b->qlen, b->top_k }, b->weights },
            { "gate", DT_BF16, 2, { top.n_rows, inter }, top.gate },
            { "up", DT_BF16, 2, { top.n_rows, inter }, top.up },
        };

        char hex[N_DIGESTS][HASH_MAX_HEX];

        digest_all(hex, run, b, top.gate, top.up, top.n_rows * inter);
        adapter_meta(&run->adapter, w);
        stw_meta(w, CACHE_VERSION_KEY, VERSION_1);
        stw_meta(w, "mode", mode_names[moe_config(run->moe)->mode]);
        for (int i = 0; i < N_DIGESTS; i++)
            stw_meta(w, keys[i], hex[i]);
        if (write_tensors(w, tensors, sizeof(tensors) / sizeof(*tensors), path,
                          run->cmd->out_flags, err) == 0)
            return w;
    }
    stw_free(w);
    return NULL;
}

/* ---- reading ---- */

static int
read_values(const struct st *st, const char *name, uint16_t **to, size_t rows,
            size_t cols, struct err *err)
{
    const struct st_want want = { .n_dims = 2, .shape = { rows, cols } };
    const struct st_tensor *t = st_find(st, name);

    if (!t)
        return st_missing(st->path, name, err);
    if (st_want(st->path, t, &want, err) < 0)
        return -1;
    *to = mem_try(t->n_elements + 1, sizeof(**to), st->path, err);
    if (!*to)
        return -1;
    cvt_to_bf16(*to, st_data(st, t), t->dtype, t->n_elements);
    return 0;
}

/* Compares the file's digests with those of what it depends on. */
static int
check_digests(const struct cache *c, const struct sft_run *run,
              const struct st *st, struct err *err)
{
    static const char *const what[] = { "other base weights",
                                        "another adapter" };
    char hex[N_DIGESTS][HASH_MAX_HEX];

    digest_all(hex, run, &c->batch, c->gate, c->up,
               c->n_rows * run->base.intermediate);
    for (int i = 0; i < N_DIGESTS; i++) {
        const char *said = st_meta(st, keys[i]);

        if (said && !strcmp(said, hex[i]))
            continue;
        if (said && i <= D_LORA)
            return err_set(err, EX_DATAERR, "%s: was made by a forward with %s",
                           st->path, what[i]);
        return err_set(err, EX_DATAERR,
                       "%s: %s is \"%s\", but what it has gives %s: the file "
                       "was changed",
                       st->path, keys[i], said ? said : "", hex[i]);
    }
    return 0;
}

int
cache_open(struct cache *c, const struct sft_run *run, const char *path,
           int mode, struct err *err)
{
    size_t inter = run->base.intermediate;
    const char *version, *text;
    struct st st;
    int rc;

    *c = (struct cache){ 0 };
    if (st_open(&st, path, err) < 0)
        return -1;
    version = st_meta(&st, CACHE_VERSION_KEY);
    text = st_meta(&st, "mode");
    c->mode = text && !strcmp(text, "int8") ? MOE_INT8 : MOE_BF16;
    rc = st_map(&st, err);
    if (rc == 0 && (!version || strcmp(version, VERSION_1) != 0))
        rc = err_set(err, EX_DATAERR,
                     "%s: is not a cache of moe-sft forward (%s)", st.path,
                     version ? "of another version"
                             : "has no " CACHE_VERSION_KEY);
    else if (rc == 0 && (!text || strcmp(text, mode_names[c->mode]) != 0))
        rc = err_set(err, EX_DATAERR,
                     "%s: __metadata__ mode is \"%s\" (expected bf16 or int8)",
                     st.path, text ? text : "");
    else if (rc == 0 && mode >= 0 && (enum moe_mode)mode != c->mode)
        rc =
            err_set(err, EX_DATAERR, "%s: was made by a forward in %s (not %s)",
                    st.path, mode_names[c->mode], mode_names[mode]);
    if (rc == 0)
        rc = batch_parse(&c->batch, st.map.data, st.map.size, st.path,
                         BATCH_INPUT | BATCH_ROUTING, run->base.hidden, err);
    for (size_t i = 0; rc == 0 && i < c->batch.qlen * c->batch.top_k; i++)
        c->n_rows += c->batch.expert_ids[i] >= 0 &&
                     (uint64_t)c->batch.expert_ids[i] < run->base.n_experts;
    if (rc == 0 &&
        (read_values(&st, "gate", &c->gate, c->n_rows, inter, err) < 0 ||
         read_values(&st, "up", &c->up, c->n_rows, inter, err) < 0 ||
         check_digests(c, run, &st, err) < 0))
        rc = -1;
    st_close(&st);
    if (rc < 0)
        cache_close(c);
    return rc;
}

void
cache_close(struct cache *c)
{
    batch_close(&c->batch);
    free(c->gate);
    free(c->up);
    *c = (struct cache){ 0 };
}
