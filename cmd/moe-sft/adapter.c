#include "cmd/moe-sft/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/tensor.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/lora_stack.h"
#include "core/pyjson.h"

struct moe_config
adapter_config(const struct expert_adapter *a, size_t top_k)
{
    return (struct moe_config){ .n_experts = a->n_experts,
                                .top_k = top_k,
                                .hidden = a->hidden,
                                .intermediate = a->intermediate,
                                .lora_rank = a->rank,
                                .lora_alpha = a->alpha,
                                .max_cache_depth = 1,
                                .n_parts = 1 };
}

/* Numbers of a matrix; 0 if they leave 64 bits. */
static size_t
n_numbers(const struct expert_adapter *a, enum moe_lora_matrix m)
{
    struct moe_config config = adapter_config(a, 1);

    return moe_lora_numbers(&config, m);
}

size_t
adapter_size(const struct expert_adapter *a, enum moe_lora_matrix m)
{
    return n_numbers(a, m) / a->n_experts;
}

/* All six have numbers, and no more of them than can be counted. */
static int
check_sizes(const struct expert_adapter *a, struct err *err)
{
    for (int m = 0; m < MOE_N_LORA; m++)
        if (n_numbers(a, m) == 0)
            return err_set(err, EX_DATAERR,
                           "an adapter of %zu experts, rank %zu, %zu x %zu is "
                           "too large, or empty",
                           a->n_experts, a->rank, a->hidden, a->intermediate);
    return 0;
}

/* Zeros of the sizes that 'a' has. */
static int
alloc(struct expert_adapter *a, struct err *err)
{
    if (check_sizes(a, err) < 0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++) {
        a->m[m] =
            mem_big(n_numbers(a, m), sizeof(*a->m[m]), moe_lora_names[m], err);
        if (!a->m[m])
            return -1;
    }
    return 0;
}

int
adapter_new(struct expert_adapter *a, const struct base *base, size_t rank,
            float alpha, struct err *err)
{
    *a = (struct expert_adapter){ .n_experts = base->n_experts,
                                  .hidden = base->hidden,
                                  .intermediate = base->intermediate,
                                  .rank = rank,
                                  .alpha = alpha,
                                  .layer = base->layer,
                                  .dtype = -1 };
    if (alloc(a, err) == 0)
        return 0;
    adapter_close(a);
    return -1;
}

/* Lets go of the file. */
static void
unmap(struct expert_adapter *a)
{
    mem_big_free(a->parts, MOE_N_LORA * a->n_experts, sizeof(*a->parts));
    stdir_close(&a->dir);
    a->parts = NULL;
}

void
adapter_close(struct expert_adapter *a)
{
    for (int m = 0; m < MOE_N_LORA; m++)
        mem_big_free(a->m[m], n_numbers(a, m), sizeof(*a->m[m]));
    unmap(a);
    *a = (struct expert_adapter){ 0 };
}

struct moe_lora
adapter_lora(const struct expert_adapter *a)
{
    struct moe_lora lora;

    for (int m = 0; m < MOE_N_LORA; m++)
        lora.m[m] = a->m[m];
    return lora;
}

size_t
adapter_nbytes(const struct expert_adapter *a)
{
    size_t n = 0;

    for (int m = 0; m < MOE_N_LORA; m++)
        n += n_numbers(a, m) * sizeof(*a->m[m]);
    return n;
}

void
adapter_digest(const struct expert_adapter *a, struct hash *hash)
{
    uint8_t sizes[5 * 8];

    put_le64(sizes, a->n_experts);
    put_le64(sizes + 8, a->hidden);
    put_le64(sizes + 16, a->intermediate);
    put_le64(sizes + 24, a->rank);
    put_le64(sizes + 32, f32_bits(a->alpha));
    hash_add(hash, sizes, sizeof(sizes));
    for (int m = 0; m < MOE_N_LORA; m++)
        hash_add(hash, a->m[m], n_numbers(a, m) * sizeof(*a->m[m]));
}

/* ---- from files ---- */

int
adapter_parts(struct expert_adapter *a, struct err *err)
{
    if (check_sizes(a, err) < 0)
        return -1;
    a->parts = mem_big(MOE_N_LORA * a->n_experts, sizeof(*a->parts),
                       "experts' places in a file", err);
    return a->parts ? 0 : -1;
}

void
adapter_take(struct expert_adapter *a, enum moe_lora_matrix m, size_t first,
             size_t n, const struct st *st, const struct st_tensor *t)
{
    struct adapter_part *to = a->parts + m * a->n_experts + first;
    const char *data = st_data(st, t);

    for (size_t e = 0; e < n; e++)
        to[e] =
            (struct adapter_part){ data + e * (t->nbytes / n), st, t->dtype };
    a->dtype =
        a->dtype < 0 || a->dtype == (int)t->dtype ? (int)t->dtype : (int)DT_F32;
}

void
adapter_f32(const struct expert_adapter *a, enum moe_lora_matrix m,
            size_t expert, float *to)
{
    const struct adapter_part *from = a->parts + m * a->n_experts + expert;
    size_t n = adapter_size(a, m);

    if (from->data)
        cvt_to_f32(to, from->data, from->dtype, n);
    else
        memset(to, 0, n * sizeof(*to));
}

int
adapter_unchanged(const struct expert_adapter *a, struct err *err)
{
    const struct st *last = NULL;

    for (size_t i = 0; a->parts && i < MOE_N_LORA * a->n_experts; i++) {
        const struct st *st = a->parts[i].st;

        if (st && st != last && st_unchanged(st, err) < 0)
            return -1;
        last = st ? st : last;
    }
    return 0;
}

int
adapter_map(struct expert_adapter *a, const char *path, const struct base *base,
            struct err *err)
{
    struct lora_stack s = { 0 };
    const struct st *st;

    *a = (struct expert_adapter){ .dtype = -1 };
    if (base) {
        s.n_experts = base->n_experts;
        s.hidden = base->hidden;
        s.intermediate = base->intermediate;
    }
    if (stdir_open(&a->dir, path, err) < 0)
        return -1;
    st = a->dir.files;
    if (stdir_map(&a->dir, err) == 0 && lora_stack_read(&s, st, err) == 0) {
        a->n_experts = s.n_experts;
        a->hidden = s.hidden;
        a->intermediate = s.intermediate;
        a->rank = s.rank;
        a->alpha = (float)s.alpha;
        a->layer = s.layer;
        if (adapter_parts(a, err) == 0) {
            for (int m = 0; m < MOE_N_LORA; m++)
                adapter_take(a, m, 0, a->n_experts, st, s.m[m]);
            if (base && base->layer >= 0 && a->layer >= 0 &&
                base->layer != a->layer)
                err_warn(
                    "%s: is for layer %lld, but the base weights are those of "
                    "layer %lld",
                    path, (long long)a->layer, (long long)base->layer);
            return 0;
        }
    }
    adapter_close(a);
    return -1;
}

int
adapter_open(struct expert_adapter *a, const char *path,
             const struct base *base, struct err *err)
{
    struct peft_files peft = { 0 };
    int rc = file_is_dir(path, err);

    if (rc == 0) {
        rc = adapter_map(a, path, base, err);
    } else if (rc > 0) {
        rc = peft_files_open(&peft, path, err);
        if (rc == 0)
            rc = adapter_map_layer(a, &peft, -1, base, err);
        if (rc == 0 &&
            (rc = peft_files_warn(&peft, base ? base->dir : NULL,
                                  base ? base->prefix : "", err)) < 0)
            adapter_close(a);
    }
    if (rc == 0 && (rc = alloc(a, err)) < 0)
        adapter_close(a);
    for (size_t i = 0; rc == 0 && i < MOE_N_LORA * a->n_experts; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i / a->n_experts);
        size_t n = adapter_size(a, m), e = i % a->n_experts;
        uint16_t *to = a->m[m] + e * n;
        unsigned bad = 0;

        if (!a->parts[i].data)
            continue;
        tensor_bf16(to, a->parts[i].data, a->parts[i].dtype, n);
        for (size_t k = 0; k < n; k++)
            bad |= (le16(&to[k]) & 0x7f80) == 0x7f80;
        if (bad) {
            rc = err_set(err, EX_DATAERR, "%s: %s of expert %zu has NaN or Inf",
                         path, moe_lora_names[m], e);
            adapter_close(a);
        }
    }
    if (rc == 0)
        unmap(a);
    peft_files_close(&peft);
    return rc;
}

int
adapter_layer(const char *path, int64_t *layer, struct err *err)
{
    struct st st;
    int rc;

    if (st_open(&st, path, err) < 0)
        return -1;
    rc = lora_stack_layer(&st, layer, err);
    st_close(&st);
    return rc;
}

void
adapter_meta(const struct expert_adapter *a, struct stw *w)
{
    const struct {
        const char *key;
        size_t size;
    } sizes[] = { { "lora_rank", a->rank },
                  { "expert_num", a->n_experts },
                  { "hidden_size", a->hidden },
                  { "intermediate_size", a->intermediate },
                  { "layer_idx", (size_t)a->layer } };
    struct str s = { 0 };

    stw_meta(w, "format", "pt");
    for (size_t i = 0; i < (a->layer >= 0 ? 5 : 4); i++) {
        str_clear(&s);
        str_addf(&s, "%zu", sizes[i].size);
        stw_meta(w, sizes[i].key, s.s);
    }
    str_clear(&s);
    peft_put_alpha(&s, (double)a->alpha);
    stw_meta(w, "lora_alpha", s.s);
    str_free(&s);
}

enum dtype
adapter_dtype(const struct expert_adapter *a)
{
    return a->parts ? (enum dtype)a->dtype : DT_BF16;
}

int
adapter_put(const struct expert_adapter *a, struct stw *w, int tensor,
            enum moe_lora_matrix m, int64_t expert, struct err *err)
{
    enum dtype dtype = adapter_dtype(a);
    size_t n = adapter_size(a, m), nbytes = n * dtype_table[dtype].bits / 8;
    size_t first = expert < 0 ? 0 : (size_t)expert;
    size_t end = expert < 0 ? a->n_experts : first + 1, at = 0;
    float *f32 = mem_try(n, sizeof(*f32), moe_lora_names[m], err);
    void *data = mem_try(n, sizeof(*f32), moe_lora_names[m], err);
    int rc = f32 && data ? 0 : -1;

    for (size_t e = first; rc == 0 && e < end; e++, at += nbytes) {
        const struct adapter_part *from =
            a->parts ? a->parts + m * a->n_experts + e : NULL;

        if (!from) {
            rc = stw_write(w, tensor, a->m[m] + e * n, nbytes, at, err);
        } else if (from->data && from->dtype == dtype) {
            rc = write_mapped(w, tensor, from->data, nbytes, at, err);
        } else {
            adapter_f32(a, m, e, f32);
            cvt_from_f32(data, dtype, f32, n);
            rc = stw_write(w, tensor, data, nbytes, at, err);
        }
    }
    free(data);
    free(f32);
    return rc;
}

int
adapter_write(const struct expert_adapter *a, const char *path, int flags,
              struct err *err)
{
    struct moe_config config = adapter_config(a, 1);
    struct stw *w = stw_new();
    int handle[MOE_N_LORA], rc = 0;

    adapter_meta(a, w);
    for (int m = 0; rc == 0 && m < MOE_N_LORA; m++) {
        uint64_t shape[3];

        moe_lora_shape(&config, m, shape);
        handle[m] =
            stw_add(w, moe_lora_names[m], adapter_dtype(a), 3, shape, err);
        rc = handle[m] < 0 ? -1 : 0;
    }
    if (rc == 0)
        rc = stw_open(w, path, flags, err);
    for (int m = 0; rc == 0 && m < MOE_N_LORA; m++)
        rc = adapter_put(a, w, handle[m], m, -1, err);
    if (rc == 0)
        rc = adapter_unchanged(a, err);
    if (rc == 0)
        rc = stw_commit(w, err);
    stw_free(w);
    return rc;
}
