/* SPDX-License-Identifier: ISC */
#include "cmd/moe-sft/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/moe-sft/peft.h"
#include "cmd/moe-sft/write.h"
#include "core/format/st.h"
#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/map.h"
#include "core/mem.h"
#include "core/model/lora_file.h"
#include "core/pyjson.h"
#include "core/tty.h"

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

void
adapter_close(struct expert_adapter *a)
{
    for (int m = 0; m < MOE_N_LORA; m++)
        mem_big_free(a->m[m], n_numbers(a, m), sizeof(*a->m[m]));
    free(a->pairs);
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

/* Where an expert's matrix is, as one row if it is our own; w.data NULL: it is
 * zeros. */
static struct linear
matrix_at(const struct expert_adapter *a, enum moe_lora_matrix m, size_t expert)
{
    const struct lora_pair *p =
        a->pairs ? a->pairs[expert * BASE_N + m / 2] : NULL;
    size_t n = adapter_size(a, m);

    if (a->pairs)
        return !p ? (struct linear){ 0 } : m % 2 ? p->b : p->a;
    return (struct linear){ .w = { a->m[m], DT_BF16, n, .row = expert },
                            .in = n,
                            .out = 1 };
}

void
adapter_f32(const struct expert_adapter *a, enum moe_lora_matrix m,
            size_t expert, float *to)
{
    const struct linear from = matrix_at(a, m, expert);

    if (from.w.data)
        weight_rows(to, &from.w, 0, from.out, from.in);
    else
        memset(to, 0, adapter_size(a, m) * sizeof(*to));
}

int
adapter_unchanged(const struct expert_adapter *a, struct err *err)
{
    return a->pairs ? stdir_unchanged(&a->file->dir, err) : 0;
}

/* Is a pair one of the experts of the layer, -1: of any? */
static bool
is_of(const struct lora_pair *p, int64_t layer)
{
    return p->of.expert >= 0 && (layer < 0 || p->of.layer == layer);
}

/* Finds the layer of a PEFT directory, and its sizes: those of the base, or
 * else of its tensors. */
static int
find_layer(struct expert_adapter *a, int64_t layer, const struct base *base,
           struct err *err)
{
    const struct lora_file *f = a->file;
    const struct lora_pair *first = NULL;
    int64_t low = -1, high = -1, last = -1;
    int64_t most = base ? (int64_t)base->n_experts : MOE_MAX_EXPERTS;
    bool two = false;

    for (size_t i = 0; i < f->n_pairs; i++) {
        const struct lora_pair *p = &f->pairs[i];
        const struct st_tensor *t = p->tensor[0]->t, *b = p->tensor[1]->t;
        bool down = p->projection == BASE_DOWN;

        if (!is_of(p, -1))
            continue;
        low = low < 0 || p->of.layer < low ? p->of.layer : low;
        high = p->of.layer > high ? p->of.layer : high;
        if (!is_of(p, layer))
            continue;
        first = first ? first : p;
        a->layer = p->of.layer;
        if (first->of.prefix_n != p->of.prefix_n ||
            memcmp(first->tensor[0]->t->name, t->name, p->of.prefix_n) != 0) {
            two = true;
            continue;
        }
        last = p->of.expert > last ? p->of.expert : last;
        if (t->n_dims == 2)
            *(down ? &a->intermediate : &a->hidden) = t->shape[1];
        if (b->n_dims == 2)
            *(down ? &a->hidden : &a->intermediate) = b->shape[0];
    }
    if (layer < 0 && low != high)
        return err_set(err, TU_USAGE,
                       "%s: has adapters of layers %lld to %lld: --layer N "
                       "names one",
                       f->dir.path, (long long)low, (long long)high);
    if (!first || two)
        return err_set(err, EX_DATAERR, "%s: has %s of experts%s", f->dir.path,
                       two ? "two adapters" : "no adapter",
                       layer < 0 ? "" : " of that layer");
    if (last >= most)
        return err_set(err, EX_DATAERR,
                       "%s: has an adapter of expert %lld (expected %lld "
                       "expert%s%s)",
                       f->dir.path, (long long)last, (long long)most,
                       plural(most), base ? "" : " at most");
    a->n_experts = (size_t)last + 1;
    if (base) {
        a->n_experts = base->n_experts;
        a->hidden = base->hidden;
        a->intermediate = base->intermediate;
    }
    if (a->hidden && a->intermediate)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: does not show the experts' sizes (-b BASE does)",
                   f->dir.path);
}

/* PEFT's stacks become the experts'. */
static int
read_experts(struct lora_file *f, const struct base *base, struct err *err)
{
    const struct model_family *family = base ? base->family : NULL;
    const struct family_stack *stack = family ? family_stack(family) : NULL;
    struct lora_experts x = { 0 };

    if (base)
        x = (struct lora_experts){ .family = family,
                                   .n = base->n_experts,
                                   .hidden = base->hidden,
                                   .intermediate = base->intermediate,
                                   .take_turns = stack && stack->in_out };
    return lora_file_experts(f, &x, err);
}

static int
read_stack(struct expert_adapter *a, struct lora_file *f, int64_t layer,
           const struct base *base, struct err *err)
{
    struct lora_stack s = { 0 };

    if (base)
        s = (struct lora_stack){ .n_experts = base->n_experts,
                                 .hidden = base->hidden,
                                 .intermediate = base->intermediate };
    if (lora_file_stack(f, &s, f->layer, err) < 0)
        return -1;
    a->n_experts = s.n_experts;
    a->hidden = s.hidden;
    a->intermediate = s.intermediate;
    a->layer = layer >= 0 ? layer : f->layer;
    layer = layer < 0 && base ? base->layer : layer;
    if (base && layer >= 0 && f->layer >= 0 && layer != f->layer)
        err_warn("%s: is for layer %lld, but the base weights are those of "
                 "layer %lld",
                 f->dir.path, (long long)f->layer, (long long)layer);
    return 0;
}

/* Checks an expert's pair.  All have one rank and one alpha, whatever patterns
 * say it. */
static int
fit(struct expert_adapter *a, struct lora_file *f, struct lora_pair *p,
    struct err *err)
{
    bool down = p->projection == BASE_DOWN;
    size_t out = down ? a->hidden : a->intermediate;
    size_t in = down ? a->intermediate : a->hidden;

    if (lora_pair_fit(f, p, out, in, err) < 0)
        return -1;
    if (!a->rank) {
        a->rank = p->a.out;
        a->alpha = (float)p->config.alpha;
        a->dtype = (int)p->a.w.dtype;
    }
    if ((int)p->a.w.dtype != a->dtype || (int)p->b.w.dtype != a->dtype)
        a->dtype = DT_F32;
    if (a->rank == p->a.out && a->alpha == (float)p->config.alpha)
        return 0;
    return err_set(err, EX_DATAERR,
                   "%s: " PEFT_ROOT "%s has rank %zu and alpha %.9g, others "
                   "have %zu and %.9g: experts of different ones are not "
                   "supported",
                   f->config.path, p->module, p->a.out, p->config.alpha,
                   a->rank, (double)a->alpha);
}

int
adapter_map(struct expert_adapter *a, struct lora_file *f, int64_t layer,
            const struct base *base, struct err *err)
{
    struct lora_pair **pairs;
    int rc;

    *a = (struct expert_adapter){ .file = f, .layer = -1, .dtype = -1 };
    rc = f->is_stack ? read_stack(a, f, layer, base, err)
                     : read_experts(f, base, err);
    layer = f->is_stack ? -1 : layer < 0 && base ? base->layer : layer;
    if (rc == 0 && !f->is_stack)
        rc = find_layer(a, layer, base, err);
    a->pairs = pairs = xcalloc(a->n_experts * BASE_N, sizeof(*pairs));
    for (size_t i = 0; rc == 0 && i < f->n_pairs; i++) {
        struct lora_pair *p = &f->pairs[i];

        if (is_of(p, layer))
            pairs[(size_t)p->of.expert * BASE_N + (size_t)p->projection] = p;
    }
    for (size_t i = 0; rc == 0 && i < a->n_experts * BASE_N; i++)
        if (pairs[i])
            rc = fit(a, f, pairs[i], err);
    if (rc == 0)
        rc = check_sizes(a, err);
    if (rc < 0)
        adapter_close(a);
    return rc;
}

int
adapter_file_open(struct lora_file *f, const char *arg, int64_t asked,
                  struct err *err)
{
    char *path = xstrdup(arg);
    int64_t layer = file_cut_layer(&path);
    int rc;

    *f = (struct lora_file){ 0 };
    peft_enter(&path);
    rc = layer < 0 || asked < 0 || layer == asked
             ? lora_file_open(f, path, layer, err)
             : err_set(err, TU_USAGE, "-l %s: --layer asks for layer %lld", arg,
                       (long long)asked);
    free(path);
    return rc;
}

int
adapter_warn(struct lora_file *f, const struct stdir *base, const char *under,
             struct err *err)
{
    size_t n = f->dir.n_tensors;

    if (f->is_stack)
        return 0;
    for (size_t i = 0; i < f->n_pairs; i++)
        n -= f->pairs[i].used ? (size_t)f->pairs[i].n_tensors : 0;
    if (n)
        err_warn("%s: %zu tensor%s not of these experts, ignored", f->dir.path,
                 n, plural(n));
    return peft_warn(&f->config, &f->dir, base, NULL, under, err);
}

int
adapter_open(struct expert_adapter *a, const char *path,
             const struct base *base, struct err *err)
{
    struct lora_file f;
    int rc = adapter_file_open(&f, path, -1, err);

    *a = (struct expert_adapter){ 0 };
    if (rc == 0)
        rc = adapter_map(a, &f, -1, base, err);
    if (rc == 0)
        rc = adapter_warn(&f, base ? &base->dir : NULL,
                          base ? base->prefix : "", err);
    if (rc == 0)
        rc = alloc(a, err);
    for (size_t i = 0; rc == 0 && i < MOE_N_LORA * a->n_experts; i++) {
        enum moe_lora_matrix m = (enum moe_lora_matrix)(i / a->n_experts);
        size_t n = adapter_size(a, m), e = i % a->n_experts;
        const struct linear from = matrix_at(a, m, e);
        uint16_t *to = a->m[m] + e * n;
        unsigned bad = 0;
        size_t nbytes;

        if (!from.w.data)
            continue;
        cvt_to_bf16(to, weight_stored(&from.w, from.out, &nbytes), from.w.dtype,
                    n);
        for (size_t k = 0; k < n; k++)
            bad |= (le16(&to[k]) & 0x7f80) == 0x7f80;
        if (bad)
            rc = err_set(err, EX_DATAERR, "%s: %s of expert %zu has NaN or Inf",
                         path, moe_lora_names[m], e);
    }
    free(a->pairs);
    a->pairs = NULL;
    a->file = NULL;
    if (rc < 0)
        adapter_close(a);
    lora_file_close(&f);
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
    return a->pairs ? (enum dtype)a->dtype : DT_BF16;
}

int
adapter_put(const struct expert_adapter *a, struct stw *w, int tensor,
            enum moe_lora_matrix m, int64_t expert, struct err *err)
{
    enum dtype dtype = adapter_dtype(a);
    size_t n = adapter_size(a, m), nbytes = n * dtype_size(dtype);
    size_t first = expert < 0 ? 0 : (size_t)expert;
    size_t end = expert < 0 ? a->n_experts : first + 1, at = 0;
    float *f32 = mem_try(n, sizeof(*f32), moe_lora_names[m], err);
    void *data = mem_try(n, sizeof(*f32), moe_lora_names[m], err);
    int rc = f32 && data ? 0 : -1;

    for (size_t e = first; rc == 0 && e < end; e++, at += nbytes) {
        const struct linear from = matrix_at(a, m, e);

        if (from.w.data && from.w.dtype == dtype) {
            const void *stored = weight_stored(&from.w, from.out, &nbytes);

            rc = stw_write_mapped(w, tensor, stored, nbytes, at, err);
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
