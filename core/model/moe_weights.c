#include "core/model/moe_weights.h"

#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/mem.h"
#include "core/model/moe_memory.h"
#include "core/model/moe_operator.h"
#include "core/model/moe_team.h"
#include "core/par.h"

/* The part's slice of an expert's matrix, as the kind wants it. */
static struct gemm_matrix
slice(const struct moe *moe, const struct part *part, enum kind kind, size_t e)
{
    const struct moe_config *c = &moe->config;
    struct gemm_matrix w = moe->base[kind % K_GATE_T][e];
    bool down = kind % K_GATE_T == K_DOWN;
    size_t at = down ? part->first : part->first * w.ld;

    w.data = (const char *)w.data + at * (dtype_table[w.dtype].bits / 8);
    w.by_k = kind >= K_GATE_T;
    w.n = down != w.by_k ? c->hidden : part->n;
    w.k = down != w.by_k ? part->n : c->hidden;
    return w;
}

struct gemm_job
base_job(const struct pass *pass, const struct part *part, enum kind kind)
{
    size_t e = pass->block.expert;
    const struct weight *w = &part->weights[kind][e];
    struct gemm_job job = { .w = slice(pass->moe, part, kind, e) };

    if (w->panels.data) {
        job.panels = &w->panels;
        job.scale = w->scale;
    }
    return job;
}

/* ---- int8 ---- */

struct quantizing {
    const struct gemm_matrix *w;
    const float *scale; /* of w's rows, if it is I8 */
    float *wide;        /* [n, k] */
};

/* The slice's rows' scales, where the base weights are I8; else NULL. */
static const float *
row_scales(const struct moe *moe, const struct part *part, enum kind kind,
           size_t e)
{
    enum kind of = kind % K_GATE_T;
    const float *scale = moe->base_scale[of];

    if (!scale)
        return NULL;
    return of == K_DOWN ? scale + e * moe->config.hidden
                        : scale + e * moe->config.intermediate + part->first;
}

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
widen_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct quantizing *q = ctx;
    const struct gemm_matrix *w = q->w;

    (void)thread;
    for (size_t i = begin; i < end; i++)
        widen_row(q->wide + i * w->k,
                  (const char *)w->data +
                      i * w->ld * (dtype_table[w->dtype].bits / 8),
                  w->dtype, w->k);
}

/* Columns of the matrix are rows here: 64 of them at a time. */
static void
widen_columns(void *ctx, size_t begin, size_t end, int thread)
{
    const struct quantizing *q = ctx;
    const struct gemm_matrix *w = q->w;
    size_t n = end - begin;
    float row[64];

    (void)thread;
    for (size_t c = 0; c < w->k; c++) {
        widen_row(row,
                  (const char *)w->data +
                      (c * w->ld + begin) * (dtype_table[w->dtype].bits / 8),
                  w->dtype, n);
        for (size_t i = 0; i < n; i++)
            q->wide[(begin + i) * w->k + c] =
                q->scale ? row[i] * q->scale[c] : row[i];
    }
}

/* 'scale': of w's rows, if it is I8; such rows are taken as they are. */
static void
quantize(const struct part *part, struct weight *to,
         const struct gemm_matrix *w, const float *scale, void *temp)
{
    struct gemm_matrix rows = {
        .data = temp, .dtype = DT_I8, .n = w->n, .k = w->k
    };
    struct quantizing q = { .w = w, .scale = scale };

    if (w->dtype == DT_I8 && !w->by_k) {
        memcpy(to->scale, scale, w->n * sizeof(*scale));
        gemm_pack(part->gemm, &to->panels, w);
        return;
    }
    rows.ld = gemm_ld_int8(w->k);
    q.wide = (float *)(void *)((char *)temp + (w->n * rows.ld + 63) / 64 * 64);
    par_for(gemm_par(part->gemm), w->n, w->by_k ? 64 : 4,
            w->by_k ? widen_columns : widen_rows, &q);
    gemm_to_int8(part->gemm, temp, to->scale, q.wide, w->k, w->n, w->k);
    gemm_pack(part->gemm, &to->panels, &rows);
}

size_t
weights_temp(const struct moe_config *c)
{
    size_t in = c->hidden, out = c->intermediate;
    size_t rows = larger(in * gemm_ld_int8(out), out * gemm_ld_int8(in));

    return c->mode == MOE_INT8 ? (rows + 127) / 64 * 64 +
                                     (in * out * sizeof(float) + 63) / 64 * 64
                               : 0;
}

/* Room for what quantizing needs: one for each team. */
struct loading {
    struct moe *moe;
    char *temp;
    size_t nbytes;
};

static void
load_part(void *ctx, struct part *part)
{
    const struct loading *l = ctx;
    const struct moe *moe = l->moe;
    void *temp = l->temp + part->index % moe->n_teams * l->nbytes;

    for (enum kind kind = 0; kind < N_KINDS; kind++)
        for (size_t e = 0; e < moe->config.n_experts; e++) {
            struct weight *to = &part->weights[kind][e];
            struct gemm_matrix w = slice(moe, part, kind, e);

            if (!to->panels.data)
                continue;
            if (to->panels.class == GEMM_INT8)
                quantize(part, to, &w, row_scales(moe, part, kind, e), temp);
            else
                gemm_pack(part->gemm, &to->panels, &w);
        }
}

int
weights_load(struct moe *moe, struct err *err)
{
    struct loading l = { .moe = moe, .nbytes = weights_temp(&moe->config) };

    if (l.nbytes > 0) {
        l.temp = mem_big(moe->n_teams, l.nbytes, "base weights", err);
        if (!l.temp)
            return -1;
    }
    note_allocated(moe, moe->n_teams * l.nbytes);
    run_parts(moe, load_part, &l);
    moe->allocated -= moe->n_teams * l.nbytes;
    mem_big_free(l.temp, moe->n_teams, l.nbytes);
    return 0;
}
