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
    struct gemm_matrix w = moe->base[kind % K_GATE_T][e];
    bool down = kind % K_GATE_T == K_DOWN;
    size_t at = down ? part->first : part->first * w.ld;

    w.data = (const char *)w.data + at * dtype_size(w.dtype);
    w.by_k = kind >= K_GATE_T;
    w.n = down != w.by_k ? c->hidden : part->n;
    w.k = down != w.by_k ? part->n : c->hidden;
    return w;
}

struct gemm_job
moe_base_job(const struct moe *moe, const struct moe_part *part,
             enum moe_kind kind, size_t expert, float *c, size_t ldc,
             struct gemm_end end)
{
    const struct moe_weight *w = &part->weights[kind][expert];
    bool packed = w->panels.data != NULL;

    return (struct gemm_job){
        .w = slice(moe, part, kind, expert),
        .panels = packed ? &w->panels : NULL,
        .scale = packed ? w->scale : NULL,
        .c = c,
        .ldc = ldc,
        .end = end,
    };
}

/* ---- int8 ---- */

struct quantizing {
    const struct gemm_matrix *w;
    const float *scale; /* of w's rows, if it is I8 */
    float *f32;         /* [n, k] */
};

/* A row, rounded to bf16 as all base weights are but those of I8. */
static void
widen_row(float *to, const void *from, enum dtype dtype, size_t n)
{
    uint16_t half[256];

    if (dtype == DT_I8) {
        for (size_t i = 0; i < n; i++)
            to[i] = ((const int8_t *)from)[i];
        return;
    }
    cvt_to_f32(to, from, dtype, n);
    for (size_t i = 0, some; i < n && dtype != DT_BF16; i += some) {
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
        widen_row(q->f32 + i * w->k,
                  (const char *)w->data + i * w->ld * dtype_size(w->dtype),
                  w->dtype, w->k);
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
        widen_row(row,
                  (const char *)w->data +
                      (c * w->ld + begin) * dtype_size(w->dtype),
                  w->dtype, n);
        for (size_t i = 0; i < n; i++)
            q->f32[(begin + i) * w->k + c] =
                q->scale ? row[i] * q->scale[c] : row[i];
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
    const struct moe_config *c = &moe->config;
    struct moe_weight *to = &part->weights[kind][e];
    const struct gemm_matrix w = slice(moe, part, kind, e);
    const float *scale = moe->base_scale[kind % K_GATE_T];
    size_t ld = gemm_ld_int8(w.k);
    struct quantizing q = { .w = &w };

    if (scale)
        q.scale = kind % K_GATE_T == K_DOWN
                      ? scale + e * c->hidden
                      : scale + e * c->intermediate + part->first;
    if (to->panels.class != GEMM_INT8) {
        gemm_pack(part->gemm, &to->panels, &w);
    } else if (w.dtype == DT_I8 && !w.by_k) {
        memcpy(to->scale, q.scale, w.n * sizeof(*scale));
        gemm_pack(part->gemm, &to->panels, &w);
    } else {
        const struct gemm_matrix rows = {
            .data = temp, .dtype = DT_I8, .n = w.n, .k = w.k, .ld = ld
        };

        q.f32 = (float *)(void *)(temp + (w.n * ld + 63) / 64 * 64);
        par_for(gemm_par(part->gemm), w.n, w.by_k ? 64 : 4,
                w.by_k ? widen_columns : widen_rows, &q);
        gemm_to_int8(part->gemm, (int8_t *)temp, to->scale, q.f32, w.k, w.n,
                     w.k);
        gemm_pack(part->gemm, &to->panels, &rows);
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

/* Room for quantizing: one for each team. */
struct loading {
    struct moe *moe;
    char *temp;
    size_t nbytes;
};

static void
load_part(void *ctx, struct moe_part *part)
{
    const struct loading *l = ctx;
    const struct moe *moe = l->moe;
    char *temp = l->temp + part->index % moe->n_teams * l->nbytes;

    for (enum moe_kind kind = 0; kind < N_KINDS; kind++)
        for (size_t e = 0; e < moe->config.n_experts; e++)
            if (part->weights[kind][e].panels.data)
                load_matrix(moe, part, kind, e, temp);
}

int
moe_load(struct moe *moe, const struct moe_base *base, struct err *err)
{
    const struct gemm_matrix *from[3] = { base->gate, base->up, base->down };
    struct loading l = { .moe = moe, .nbytes = moe_weights_temp(&moe->config) };

    for (size_t i = 0; i < 3; i++)
        for (size_t e = 0; e < moe->config.n_experts; e++) {
            enum dtype dtype = from[i][e].dtype;
            bool int8 = moe->config.mode == MOE_INT8 && base->scale[i];

            if (!dtype_computes(dtype) && !(int8 && dtype == DT_I8))
                return err_set(err, EX_DATAERR,
                               "base weights of expert %zu are %s, not BF16, "
                               "F16 or F32",
                               e, dtype_table[dtype].name);
            moe->base[i][e] = from[i][e];
        }
    memcpy(moe->base_scale, base->scale, sizeof(moe->base_scale));
    l.temp = mem_big(moe->n_teams, l.nbytes, "base weights", err);
    if (!l.temp)
        return -1;
    moe_for_parts(moe, load_part, &l);
    mem_big_free(l.temp, moe->n_teams, l.nbytes);
    moe->has_base = true;
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
