/* SPDX-License-Identifier: ISC */
/* Base weights in the form that the products read, and the adapter. */
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/mem.h"
#include "core/model/moe_operator.h"
#include "core/par.h"

/* The part's slice of an expert's matrix, as the kind wants it. */
static struct gemm_matrix
slice(const struct moe *moe, const struct moe_part *part, enum moe_kind kind,
      size_t e)
{
    const struct moe_config *c = &moe->config;
    struct gemm_matrix w = { .weight = moe->base[kind % K_GATE_T][e],
                             .by_k = kind >= K_GATE_T };
    bool down = kind % K_GATE_T == K_DOWN;

    *(down ? &w.weight.col : &w.weight.row) += part->first;
    w.n = down != w.by_k ? c->hidden : part->n;
    w.k = down != w.by_k ? part->n : c->hidden;
    return w;
}

struct gemm_job
moe_base_job(const struct moe *moe, const struct moe_part *part,
             enum moe_kind kind, size_t expert, float *c, size_t ldc,
             struct gemm_end end)
{
    const struct gemm_panels *packed = &part->packed[kind][expert];
    const float *bias = kind < K_GATE_T
                            ? moe->bias[kind * moe->config.n_experts + expert]
                            : NULL;

    /* parts' sums of down are added: one of them has its bias */
    if (bias && (kind != K_DOWN || part->index == 0))
        end.bias = bias + (kind == K_DOWN ? 0 : part->first);
    return (struct gemm_job){
        .w = slice(moe, part, kind, expert),
        .panels = packed->data ? packed : NULL,
        .c = c,
        .ldc = ldc,
        .end = end,
    };
}

/* ---- int8 ---- */

struct quantizing {
    const struct gemm_matrix *w;
    float *f32; /* [n, k] */
};

/* Part of a row, rounded to bf16 as all base weights are but those of I8. */
static void
widen_row(float *to, const struct weight *w, size_t row, size_t col, size_t n)
{
    bool rounds = w->dtype != DT_BF16 && w->dtype != DT_I8;
    uint16_t half[256];

    weight_read(to, w, row, col, n);
    for (size_t i = 0, some; i < n && rounds; i += some) {
        some = smaller(n - i, 256);
        cvt_from_f32(half, DT_BF16, to + i, some);
        cvt_to_f32(to + i, half, DT_BF16, some);
    }
}

static void
widen_rows(void *ctx, size_t begin, size_t end)
{
    const struct quantizing *q = ctx;
    const struct gemm_matrix *w = q->w;

    for (size_t i = begin; i < end; i++)
        widen_row(q->f32 + i * w->k, &w->weight, i, 0, w->k);
}

/* Columns of the matrix are rows here: 64 of them at a time. */
static void
widen_columns(void *ctx, size_t begin, size_t end)
{
    const struct quantizing *q = ctx;
    const struct gemm_matrix *w = q->w;
    size_t n = end - begin;
    float row[64];

    for (size_t c = 0; c < w->k; c++) {
        widen_row(row, &w->weight, c, begin, n);
        for (size_t i = 0; i < n; i++)
            q->f32[(begin + i) * w->k + c] = row[i];
    }
}

/*
 * Packs the part's slice of an expert's matrix.  INT8: quantized in 'temp',
 * moe_weights_temp() bytes; rows that are I8 already stay as they are.
 */
static void
load_matrix(const struct moe *moe, const struct moe_part *part,
            enum moe_kind kind, size_t e, char *temp)
{
    struct gemm_panels *to = &part->packed[kind][e];
    const struct gemm_matrix w = slice(moe, part, kind, e);
    size_t ld = gemm_ld_int8(w.k);
    struct quantizing q = { .w = &w };

    if (to->class != GEMM_INT8) {
        gemm_pack(part->gemm, to, &w);
    } else if (w.weight.dtype == DT_I8 && !w.by_k) {
        memcpy(to->scale, w.weight.scale + w.weight.row,
               w.n * sizeof(*to->scale));
        gemm_pack(part->gemm, to, &w);
    } else {
        const struct gemm_matrix rows = {
            .weight = { .data = temp, .dtype = DT_I8, .ld = ld },
            .n = w.n,
            .k = w.k
        };

        q.f32 = (float *)(void *)(temp + (w.n * ld + 63) / 64 * 64);
        par_for(gemm_par(part->gemm), w.n, w.by_k ? 64 : 4,
                w.by_k ? widen_columns : widen_rows, &q);
        gemm_to_int8(part->gemm, (int8_t *)temp, to->scale, q.f32, w.k, w.n,
                     w.k);
        gemm_pack(part->gemm, to, &rows);
    }
}

size_t
moe_weights_temp(const struct moe_config *c)
{
    size_t in = c->hidden, out = c->intermediate;
    size_t rows = larger(in * gemm_ld_int8(out), out * gemm_ld_int8(in));

    return c->mode == MOE_INT8 ? (rows + 127) / 64 * 64 +
                                     (in * out * sizeof(float) + 63) / 64 * 64
                               : 0;
}

/* Experts of a batch, or all, and room for quantizing: one for each team. */
struct loading {
    struct moe *moe;
    bool all;
    char *temp;
    size_t nbytes;
};

static bool
is_wanted(const struct loading *l, size_t e)
{
    return !l->moe->is_packed[e] &&
           (l->all || moe_first_row(l->moe, e) < moe_first_row(l->moe, e + 1));
}

static void
load_part(void *ctx, struct moe_part *part)
{
    const struct loading *l = ctx;
    const struct moe *moe = l->moe;
    char *temp = l->temp + part->index % moe->n_teams * l->nbytes;

    for (enum moe_kind kind = 0; kind < N_KINDS; kind++)
        for (size_t e = 0; e < moe->config.n_experts; e++)
            if (part->packed[kind][e].data && is_wanted(l, e))
                load_matrix(moe, part, kind, e, temp);
}

int
moe_load(struct moe *moe, const struct moe_base *base, struct err *err)
{
    const struct weight *from[3] = { base->gate, base->up, base->down };

    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0; e < moe->config.n_experts; e++) {
            enum dtype dtype = from[i][e].dtype;
            bool int8 = moe->config.mode == MOE_INT8 && from[i][e].scale;
            bool odd = false;

            if (!dtype_computes(dtype) && !(int8 && dtype == DT_I8) &&
                !from[i][e].code)
                return err_set(err, EX_DATAERR,
                               "base weights of expert %zu are %s, not BF16, "
                               "F16 or F32",
                               e, dtype_table[dtype].name);
            for (size_t p = 0; p < moe->config.n_parts; p++)
                odd |= moe->parts[p].first % 2;
            if (from[i][e].code && odd)
                return err_set(err, EX_DATAERR,
                               "packed base weights cannot be cut in %zu parts "
                               "of odd sizes",
                               moe->config.n_parts);
            moe->base[i][e] = from[i][e];
            moe->bias[i * moe->config.n_experts + e] =
                base->bias ? base->bias[i * moe->config.n_experts + e] : NULL;
        }
    memset(moe->is_packed, 0, moe->config.n_experts);
    moe->has_base = true;
    return 0;
}

int
moe_pack(struct moe *moe, bool all, struct err *err)
{
    struct loading l = { moe, all, NULL, moe_weights_temp(&moe->config) };
    size_t n_experts = moe->config.n_experts, first = 0;

    while (first < n_experts && !is_wanted(&l, first))
        first++;
    if (first == n_experts)
        return 0;
    for (size_t e = first; e < n_experts; e++)
        for (size_t p = 0; p < moe->config.n_parts && is_wanted(&l, e); p++)
            if (moe_allocate_expert(moe, &moe->parts[p], e, err) < 0)
                return -1;
    l.temp = mem_big(moe->n_teams, l.nbytes, "base weights", err);
    if (!l.temp)
        return -1;
    moe_for_parts(moe, load_part, &l);
    mem_big_free(l.temp, moe->n_teams, l.nbytes);
    for (size_t e = first; e < n_experts; e++)
        moe->is_packed[e] |= is_wanted(&l, e);
    return 0;
}

int
moe_update_lora(struct moe *moe, const struct moe_lora *lora, struct err *err)
{
    for (size_t m = 0; m < MOE_N_LORA; m++)
        if (!lora->m[m])
            return err_set(err, EX_DATAERR, "the adapter has no %s",
                           moe_lora_names[m]);
    moe->lora = *lora;
    moe->has_lora = true;
    return 0;
}

int
moe_check_weights(const struct moe *moe, struct err *err)
{
    if (!moe->has_base)
        return err_set(err, EX_DATAERR, "no base weights are loaded");
    if (!moe->has_lora)
        return err_set(err, EX_DATAERR, "there is no adapter");
    return 0;
}
