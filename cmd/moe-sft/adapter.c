#include "cmd/moe-sft/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/tensor.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/format/stwant.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
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

/* ---- our file ---- */

/* Sizes as the metadata have them. */
enum { N_SIZES = 4 };
struct named_size {
    const char *key;
    size_t size;
};

static void
list_sizes(struct named_size sizes[N_SIZES], const struct expert_adapter *a)
{
    sizes[0] = (struct named_size){ "lora_rank", a->rank };
    sizes[1] = (struct named_size){ "expert_num", a->n_experts };
    sizes[2] = (struct named_size){ "hidden_size", a->hidden };
    sizes[3] = (struct named_size){ "intermediate_size", a->intermediate };
}

static int
read_layer(const struct st *st, int64_t *layer, struct err *err)
{
    double v;
    int rc = st_meta_f64(st, "layer_idx", &v, err);

    *layer = rc > 0 && v >= 0 && v < INT32_MAX ? (int64_t)v : -1;
    return rc < 0 ? -1 : 0;
}

/* Sizes that the metadata have must be those of the tensors. */
static int
check_meta(struct expert_adapter *a, const struct st *st, struct err *err)
{
    struct named_size sizes[N_SIZES];
    double v;
    int rc;

    list_sizes(sizes, a);
    for (size_t i = 0; i < N_SIZES; i++) {
        if ((rc = st_meta_f64(st, sizes[i].key, &v, err)) < 0)
            return -1;
        if (rc > 0 && v != (double)sizes[i].size)
            return err_set(err, EX_DATAERR,
                           "%s: __metadata__ %s is \"%s\", but the tensors "
                           "have %zu",
                           st->path, sizes[i].key, st_meta(st, sizes[i].key),
                           sizes[i].size);
    }
    if (read_layer(st, &a->layer, err) < 0)
        return -1;
    if ((rc = st_meta_f64(st, "lora_alpha", &v, err)) < 0)
        return -1;
    if (rc == 0)
        return err_set(err, EX_DATAERR, "%s: __metadata__ has no lora_alpha",
                       st->path);
    a->alpha = (float)v;
    if (!isfinite(a->alpha))
        return err_set(err, EX_DATAERR,
                       "%s: __metadata__ lora_alpha is \"%s\", more than F32 "
                       "holds",
                       st->path, st_meta(st, "lora_alpha"));
    return 0;
}

static const struct st_tensor *
find(const struct st *st, enum moe_lora_matrix m, struct err *err)
{
    const struct st_tensor *t = st_find(st, moe_lora_names[m]);

    if (!t)
        st_missing(st->path, moe_lora_names[m], err);
    return t;
}

/* Sizes: the base's if there is one, else those of the gate's tensors. */
static int
take_sizes(struct expert_adapter *a, const struct st *st,
           const struct base *base, struct err *err)
{
    const struct st_tensor *ga = find(st, MOE_GATE_A, err), *gb;
    struct st_want of_a = { .n_dims = 3,
                            .shape = { ST_OPEN, ST_OPEN, ST_OPEN },
                            .open = "experts, rank, hidden" };
    struct st_want of_b = { .n_dims = 3,
                            .open = "experts, intermediate, rank" };

    if (base) {
        of_a.shape[0] = base->n_experts;
        of_a.shape[2] = base->hidden;
    }
    if (!ga || st_want(st->path, ga, &of_a, err) < 0)
        return -1;
    gb = find(st, MOE_GATE_B, err);
    of_b.shape[0] = ga->shape[0];
    of_b.shape[1] = base ? base->intermediate : ST_OPEN;
    of_b.shape[2] = ga->shape[1];
    if (!gb || st_want(st->path, gb, &of_b, err) < 0)
        return -1;
    if (ga->n_elements == 0 || gb->n_elements == 0)
        return err_set(err, EX_DATAERR, "%s: %s is empty", st->path,
                       ga->n_elements ? gb->name : ga->name);
    if (ga->shape[0] > MOE_MAX_EXPERTS)
        return err_set(err, EX_DATAERR,
                       "%s: has %zu experts (expected at most %d)", st->path,
                       (size_t)ga->shape[0], MOE_MAX_EXPERTS);
    a->n_experts = ga->shape[0];
    a->rank = ga->shape[1];
    a->hidden = ga->shape[2];
    a->intermediate = gb->shape[1];
    return 0;
}

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

/* All six are checked before one is taken. */
static int
map_matrices(struct expert_adapter *a, const struct st *st, struct err *err)
{
    struct moe_config config = adapter_config(a, 1);
    const struct st_tensor *t[MOE_N_LORA];
    struct st_want want = { .n_dims = 3 };

    for (int m = 0; m < MOE_N_LORA; m++) {
        t[m] = find(st, m, err);
        moe_lora_shape(&config, m, want.shape);
        if (!t[m] || st_want(st->path, t[m], &want, err) < 0)
            return -1;
    }
    if (adapter_parts(a, err) < 0)
        return -1;
    for (int m = 0; m < MOE_N_LORA; m++)
        adapter_take(a, m, 0, a->n_experts, st, t[m]);
    return 0;
}

static int
map_file(struct expert_adapter *a, const char *path, const struct base *base,
         struct err *err)
{
    const struct st *st;

    *a = (struct expert_adapter){ .layer = -1, .dtype = -1 };
    if (stdir_open(&a->dir, path, err) < 0)
        return -1;
    st = a->dir.files;
    if (stdir_map(&a->dir, err) < 0 || take_sizes(a, st, base, err) < 0 ||
        check_meta(a, st, err) < 0 || map_matrices(a, st, err) < 0) {
        adapter_close(a);
        return -1;
    }
    if (base && base->layer >= 0 && a->layer >= 0 && base->layer != a->layer)
        err_warn("%s: is of layer %lld, the base weights of layer %lld", path,
                 (long long)a->layer, (long long)base->layer);
    return 0;
}

static int
map_folder(struct expert_adapter *a, const char *path, int64_t layer,
           const struct base *base, struct err *err)
{
    struct peft_files files;
    int rc = peft_files_open(&files, path, err);

    if (rc == 0)
        rc = adapter_map_layer(a, &files, layer, base, err);
    if (rc == 0) {
        peft_files_warn(&files);
        a->dir = files.dir;
        files.dir = (struct stdir){ 0 };
    }
    peft_files_close(&files);
    return rc;
}

int
adapter_map(struct expert_adapter *a, const char *path, int64_t layer,
            const struct base *base, struct err *err)
{
    int rc = file_is_dir(path, err);

    if (rc < 0)
        return -1;
    return rc ? map_folder(a, path, layer, base, err)
              : map_file(a, path, base, err);
}

/* From the file into memory. */
static int
load(struct expert_adapter *a, struct err *err)
{
    if (alloc(a, err) < 0)
        return -1;
    for (size_t i = 0; i < MOE_N_LORA * a->n_experts; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i / a->n_experts);
        size_t n = adapter_size(a, m), e = i % a->n_experts;

        if (a->parts[i].data)
            tensor_bf16(a->m[m] + e * n, a->parts[i].data, a->parts[i].dtype,
                        n);
    }
    unmap(a);
    return 0;
}

int
adapter_open(struct expert_adapter *a, const char *path,
             const struct base *base, struct err *err)
{
    if (adapter_map(a, path, -1, base, err) < 0)
        return -1;
    if (load(a, err) == 0)
        return 0;
    adapter_close(a);
    return -1;
}

int
adapter_layer(const char *path, int64_t *layer, struct err *err)
{
    struct st st;
    int rc;

    if (st_open(&st, path, err) < 0)
        return -1;
    rc = read_layer(&st, layer, err);
    st_close(&st);
    return rc;
}

void
adapter_put_alpha(const struct expert_adapter *a, struct str *text)
{
    double v = (double)a->alpha;

    if (v == floor(v) && fabs(v) < 1e9)
        str_addf(text, "%.0f", v);
    else
        py_float_repr(text, v);
}

static void
put_size(struct stw *w, const char *key, size_t size)
{
    struct str s = { 0 };

    str_addf(&s, "%zu", size);
    stw_meta(w, key, s.s);
    str_free(&s);
}

void
adapter_meta(const struct expert_adapter *a, struct stw *w)
{
    struct named_size sizes[N_SIZES];
    struct str s = { 0 };

    list_sizes(sizes, a);
    stw_meta(w, "format", "pt");
    for (size_t i = 0; i < N_SIZES; i++)
        put_size(w, sizes[i].key, sizes[i].size);
    if (a->layer >= 0)
        put_size(w, "layer_idx", (size_t)a->layer);
    adapter_put_alpha(a, &s);
    stw_meta(w, "lora_alpha", s.s);
    str_free(&s);
}

enum dtype
adapter_dtype(const struct expert_adapter *a)
{
    return a->parts ? (enum dtype)a->dtype : DT_BF16;
}

/* One expert's matrix, to an offset in bytes. */
static int
put_part(const struct expert_adapter *a, struct stw *w, int tensor,
         enum moe_lora_matrix m, size_t expert, size_t offset, struct err *err)
{
    enum dtype dtype = adapter_dtype(a);
    size_t n = adapter_size(a, m), nbytes = n * dtype_table[dtype].bits / 8;
    const struct adapter_part *from;
    float *wide;
    void *data;
    int rc = -1;

    if (!a->parts)
        return stw_write(w, tensor, a->m[m] + expert * n, nbytes, offset, err);
    from = a->parts + m * a->n_experts + expert;
    if (from->data && from->dtype == dtype)
        return write_mapped(w, tensor, from->data, nbytes, offset, err);
    wide = mem_try(n, sizeof(*wide), moe_lora_names[m], err);
    data = wide ? mem_try(nbytes, 1, moe_lora_names[m], err) : NULL;
    if (data) {
        adapter_f32(a, m, expert, wide);
        cvt_from_f32(data, dtype, wide, n);
        rc = stw_write(w, tensor, data, nbytes, offset, err);
    }
    free(data);
    free(wide);
    return rc;
}

int
adapter_put(const struct expert_adapter *a, struct stw *w, int tensor,
            enum moe_lora_matrix m, int64_t expert, struct err *err)
{
    size_t nbytes = adapter_size(a, m) * dtype_table[adapter_dtype(a)].bits / 8;

    if (expert >= 0)
        return put_part(a, w, tensor, m, (size_t)expert, 0, err);
    for (size_t e = 0; e < a->n_experts; e++)
        if (put_part(a, w, tensor, m, e, e * nbytes, err) < 0)
            return -1;
    return 0;
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
