/* SPDX-License-Identifier: ISC */
/* A tile whose products have bf16 operands. */
#include "core/model/attention_tile.h"

#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

/* Rows whose scores and weights are in the first cache at once, and bytes of a
 * tile's sums, which are in the second one. */
enum { STRIP = 64, SUM_BYTES = 256 << 10 };

static size_t
n_panels(size_t head_dim)
{
    return (head_dim + GEMM_PANEL - 1) / GEMM_PANEL;
}

bool
attention_takes_bf16(const struct config *c)
{
    /* wider heads, which no model has, are not worth a tile's memory */
    return gemm_bf16_is_native() && c->head_dim <= 1024 &&
           c->v_head_dim <= 1024 && c->attn_softcap <= 0;
}

size_t
attention_bf16_rows(size_t v_head_dim, size_t group)
{
    size_t rows =
        SUM_BYTES / (n_panels(v_head_dim) * GEMM_PANEL * sizeof(float));

    return rows < group ? group : rows / group * group;
}

/* What a tile's rows take of each array, a multiple of 64 bytes. */
static size_t
lines_of(size_t rows)
{
    return (rows + 15) / 16 * 16;
}

size_t
attention_bf16_scratch(size_t head_dim, size_t v_head_dim, size_t rows)
{
    size_t n = n_panels(v_head_dim), lines = lines_of(rows);
    size_t halves = lines * gemm_ld_bf16(head_dim) + STRIP * KV_BLOCK +
                    gemm_bf16_panel_size(head_dim) +
                    n * gemm_bf16_panel_size(KV_BLOCK);

    return n * lines * GEMM_PANEL + STRIP * KV_BLOCK + STRIP + halves / 2;
}

void
attention_bf16_lay(struct tile *t, float *scratch, size_t head_dim,
                   size_t v_head_dim, size_t rows)
{
    size_t lines = lines_of(rows);

    t->ld_sum = lines * GEMM_PANEL;
    t->sum = scratch;
    t->score = t->sum + n_panels(v_head_dim) * t->ld_sum;
    t->by = t->score + STRIP * KV_BLOCK;
    t->rounded_q = (uint16_t *)(void *)(t->by + STRIP);
    t->weights = t->rounded_q + lines * gemm_ld_bf16(head_dim);
    t->keys = t->weights + STRIP * KV_BLOCK;
    t->values = t->keys + gemm_bf16_panel_size(head_dim);
}

void
attention_bf16_start(struct tile *t, size_t v_head_dim)
{
    for (size_t j = 0; j < n_panels(v_head_dim); j++)
        memset(t->sum + j * t->ld_sum, 0,
               t->n_rows * GEMM_PANEL * sizeof(*t->sum));
}

void
attention_bf16_query(struct tile *t, size_t r, const float *q, size_t head_dim,
                     float by)
{
    float *scaled = t->score; /* not yet used */

    memcpy(scaled, q, head_dim * sizeof(*q));
    vec_scale(scaled, by, head_dim);
    gemm_bf16_row(t->rounded_q + r * gemm_ld_bf16(head_dim), scaled, head_dim);
}

/* The block's keys and values.  Those that no row sees may never have been put:
 * such a value is 0, since no weight hides a NaN; such a key's scores are not
 * read. */
static void
pack(const struct attention *a, struct tile *t, size_t b,
     const struct seen *seen)
{
    const struct kv *kv = &t->span->session->kv;
    size_t d = a->head_dim, dv = a->v_head_dim;
    const struct gemm_matrix keys = {
        .weight = { .data = kv_keys(kv, a->layer, t->kv_head, b),
                    .dtype = kv->dtype,
                    .ld = KV_BLOCK },
        .n = KV_BLOCK,
        .k = d,
        .by_k = true,
    };
    const struct gemm_matrix values = {
        .weight = { .data = kv_values(kv, a->layer, t->kv_head, b),
                    .dtype = kv->dtype,
                    .ld = dv },
        .n = dv,
        .k = KV_BLOCK,
        .by_k = true,
    };

    gemm_bf16_panels(t->keys, &keys, 0, d);
    gemm_bf16_panels(t->values, &values, seen->oldest, seen->n_keys);
}

/* The scores of rows [first, first + n) become weights, and their sums are
 * scaled to these. */
static void
weigh(const struct attention *a, struct tile *t, size_t b, size_t first,
      size_t n)
{
    size_t begin = 0, end = 0, next_begin, next_end;

    for (size_t r = 0, m; r < n; r += m) {
        attention_visible(a, t, first + r, b, &begin, &end);
        for (m = 1; r + m < n; m++) {
            attention_visible(a, t, first + r + m, b, &next_begin, &next_end);
            if (next_begin != begin || next_end != end)
                break;
        }
        vec_softmax_block(&(struct softmax_block){
            .weights = t->weights + r * KV_BLOCK,
            .scores = t->score + r * KV_BLOCK,
            .n = m,
            .begin = begin,
            .end = end,
            .max = t->max + first + r,
            .total = t->total + first + r,
            .by = t->by + r,
        });
    }
    for (size_t r = 0; r < n; r++)
        for (size_t j = 0; j < n_panels(a->v_head_dim) && t->by[r] != 1; j++)
            vec_scale(t->sum + j * t->ld_sum + (first + r) * GEMM_PANEL,
                      t->by[r], GEMM_PANEL);
}

void
attention_bf16_block(const struct attention *a, struct tile *t, size_t b,
                     const struct seen *seen)
{
    size_t d = a->head_dim, ldq = gemm_ld_bf16(d);

    pack(a, t, b, seen);
    for (size_t r = seen->first, n; r < seen->end; r += n) {
        n = smaller(STRIP, seen->end - r);
        gemm_bf16_block(t->score, t->rounded_q + r * ldq, ldq, t->keys, n, d,
                        false);
        weigh(a, t, b, r, n);
        for (size_t j = 0; j < n_panels(a->v_head_dim); j++)
            gemm_bf16_block(t->sum + j * t->ld_sum + r * GEMM_PANEL, t->weights,
                            KV_BLOCK,
                            t->values + j * gemm_bf16_panel_size(KV_BLOCK), n,
                            KV_BLOCK, true);
    }
}

void
attention_bf16_output(const struct tile *t, size_t r, float *out,
                      size_t v_head_dim)
{
    for (size_t c = 0; c < v_head_dim; c += GEMM_PANEL)
        memcpy(out + c, t->sum + c / GEMM_PANEL * t->ld_sum + r * GEMM_PANEL,
               smaller(GEMM_PANEL, v_head_dim - c) * sizeof(*out));
}
