/* SPDX-License-Identifier: ISC */
/* The queries of a call are cut into tiles: some queries of one KV head, which
 * pass over its keys and values block by block, exactly or with bf16 operands.
 */
#include "core/model/attention.h"

#include <math.h>
#include <string.h>

#include "core/kernel/f64.h"
#include "core/kernel/gemm.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"
#include "core/model/engine.h"

/* Rows of queries that share a pass over the keys: those of one KV head, of
 * as many positions as fit.  In bf16 there may be more. */
#define TILE_ROWS 64
#define TASKS     4 /* of each thread, if there are rows enough */

/* One thread's memory, and what is in it. */
struct tile {
    const struct span *span;
    size_t n_rows;               /* group rows for each position */
    size_t first;                /* slot of its first row */
    size_t group, head, kv_head; /* query heads: head .. head + group - 1 */
    float *max, *total;          /* [rows] of the scores so far */
    float *sum;                  /* [rows, v_head_dim]: softmax numerator; in
                                  * bf16 [v_head_dim / 64, rows, 64] */
    float *score; /* [rows, KV_BLOCK], then weights; in bf16 of 64 rows */
    float *q;     /* [rows, head_dim], scaled */

    /* of bf16 */
    size_t ld_sum;           /* floats from one part of 'sum' to the next */
    uint16_t *rounded_q;     /* [rows, gemm_ld_bf16(head_dim)], scaled */
    uint16_t *weights;       /* [64, KV_BLOCK] */
    uint16_t *keys, *values; /* a block of them, in panels */
    float *by;               /* [64] */
};

/* Rows and keys of a block that see each other: rows [first, end) all see some
 * of the keys [oldest, n_keys), and no other row or key does. */
struct seen {
    size_t first, end, oldest, n_keys;
};

/* The keys [*begin, *end) of block b that row r of a tile sees. */
static bool
visible(const struct attention *a, const struct tile *t, size_t r, size_t b,
        size_t *begin, size_t *end)
{
    size_t p =
        a->both_ways ? t->span->slot + t->span->n - 1 : t->first + r / t->group;
    size_t oldest = a->window && p >= a->window ? p - a->window + 1 : 0;
    size_t start = b * KV_BLOCK;

    if (p < start || oldest >= start + KV_BLOCK)
        return false;
    *begin = oldest > start ? oldest - start : 0;
    *end = p - start < KV_BLOCK ? p - start + 1 : KV_BLOCK;
    return true;
}

/* ---- bf16 ---- */

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

/* How many rows a tile has at most, for a group of query heads. */
static size_t
bf16_rows(size_t v_head_dim, size_t group)
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

/* Floats of a tile of so many rows, but for its max and total. */
static size_t
bf16_scratch(size_t head_dim, size_t v_head_dim, size_t rows)
{
    size_t n = n_panels(v_head_dim), lines = lines_of(rows);
    size_t halves = lines * gemm_ld_bf16(head_dim) + STRIP * KV_BLOCK +
                    gemm_bf16_panel_size(head_dim) +
                    n * gemm_bf16_panel_size(KV_BLOCK);

    return n * lines * GEMM_PANEL + STRIP * KV_BLOCK + STRIP + halves / 2;
}

static void
bf16_lay(struct tile *t, float *scratch, size_t head_dim, size_t v_head_dim,
         size_t rows)
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

static void
bf16_start(struct tile *t, size_t v_head_dim)
{
    for (size_t j = 0; j < n_panels(v_head_dim); j++)
        memset(t->sum + j * t->ld_sum, 0,
               t->n_rows * GEMM_PANEL * sizeof(*t->sum));
}

/* Rounds row r's query, scaled. */
static void
bf16_query(struct tile *t, size_t r, const float *q, size_t head_dim, float by)
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
        visible(a, t, first + r, b, &begin, &end);
        for (m = 1; r + m < n; m++) {
            visible(a, t, first + r + m, b, &next_begin, &next_end);
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

static void
bf16_block(const struct attention *a, struct tile *t, size_t b,
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

/* Row r's output, times its total. */
static void
bf16_output(const struct tile *t, size_t r, float *out, size_t v_head_dim)
{
    for (size_t c = 0; c < v_head_dim; c += GEMM_PANEL)
        memcpy(out + c, t->sum + c / GEMM_PANEL * t->ld_sum + r * GEMM_PANEL,
               smaller(GEMM_PANEL, v_head_dim - c) * sizeof(*out));
}

/* ---- exact ---- */

/*
 * Turns a row's scores into weights against the largest so far, and scales
 * what was summed against an older one.  Keys it does not see weigh 0.
 */
static void
weigh_row(const struct attention *a, struct tile *t, size_t r, size_t begin,
          size_t end)
{
    float *s = t->score + r * KV_BLOCK, by = t->max[r], max;

    if (a->softcap > 0)
        vec_softcap(s + begin, a->softcap, end - begin);
    max = vec_max(s + begin, end - begin);
    if (!(max <= by)) {           /* larger, or NaN */
        vec_exp_sum(&by, max, 1); /* exp(old - new) */
        vec_scale(t->sum + r * a->v_head_dim, by, a->v_head_dim);
        t->total[r] *= by;
        t->max[r] = max;
    }
    t->total[r] += vec_exp_sum(s + begin, t->max[r], end - begin);
    memset(s, 0, begin * sizeof(*s));
    memset(s + end, 0, (KV_BLOCK - end) * sizeof(*s));
}

static void
exact_block(const struct attention *a, struct tile *t, size_t b,
            const struct seen *seen)
{
    const struct kv *kv = &t->span->session->kv;
    size_t d = a->head_dim, dv = a->v_head_dim, begin = 0, end = 0;
    const char *values = kv_values(kv, a->layer, t->kv_head, b);

    weighted_sum(&(struct weighted_sum){
        .y = t->score + seen->first * KV_BLOCK,
        .w = kv_keys(kv, a->layer, t->kv_head, b),
        .next = values,
        .p = t->q + seen->first * d,
        .ldy = KV_BLOCK,
        .ldw = KV_BLOCK,
        .ldp = d,
        .rows = d,
        .cols = seen->n_keys,
        .n = seen->end - seen->first,
        .w_dtype = kv->dtype,
    });
    for (size_t r = seen->first; r < seen->end; r++) {
        visible(a, t, r, b, &begin, &end);
        weigh_row(a, t, r, begin, end);
    }
    weighted_sum(&(struct weighted_sum){
        .y = t->sum + seen->first * dv,
        .w = values + seen->oldest * dv * dtype_size(kv->dtype),
        .next = b + 1 < kv->n_blocks ? kv_keys(kv, a->layer, t->kv_head, b + 1)
                                     : NULL,
        .p = t->score + seen->first * KV_BLOCK + seen->oldest,
        .ldy = dv,
        .ldw = dv,
        .ldp = KV_BLOCK,
        .rows = seen->n_keys - seen->oldest,
        .cols = dv,
        .n = seen->end - seen->first,
        .w_dtype = kv->dtype,
        .add = true,
    });
}

/* ---- tiles ---- */

static size_t
group_rows(size_t group)
{
    return group >= TILE_ROWS ? group : TILE_ROWS / group * group;
}

static size_t
max_rows(size_t v_head_dim, size_t group, bool bf16)
{
    return bf16 ? bf16_rows(v_head_dim, group) : group_rows(group);
}

/* Floats of a tile of that form. */
static size_t
tile_scratch(size_t head_dim, size_t v_head_dim, size_t group, bool bf16)
{
    size_t rows = max_rows(v_head_dim, group, bf16);
    size_t n = bf16 ? bf16_scratch(head_dim, v_head_dim, rows)
                    : rows * (head_dim + v_head_dim + KV_BLOCK);

    return (n + 2 * rows + 15) / 16 * 16;
}

/* A chunk may have spans of both forms. */
static size_t
scratch_of(size_t head_dim, size_t v_head_dim, size_t group, bool bf16)
{
    size_t n = tile_scratch(head_dim, v_head_dim, group, false);

    return bf16 ? larger(n, tile_scratch(head_dim, v_head_dim, group, true))
                : n;
}

size_t
attention_scratch(const struct config *config, bool bf16)
{
    return scratch_of((size_t)config->head_dim, (size_t)config->v_head_dim,
                      (size_t)(config->n_heads / config->n_kv_heads), bf16);
}

/* Row r of a tile is query head r % group at position r / group: among the
 * queries [rows, n_heads] that is this one. */
static size_t
query_of(const struct attention *a, const struct tile *t, size_t r)
{
    size_t i = t->span->row + t->first - t->span->slot + r / t->group;

    return i * a->n_heads + t->head + r % t->group;
}

/* Later rows see more keys of a block, until a window has passed it. */
static bool
find_seen(const struct attention *a, const struct tile *t, size_t b,
          struct seen *seen)
{
    size_t begin = 0;

    *seen = (struct seen){ 0 };
    while (seen->first < t->n_rows &&
           !visible(a, t, seen->first, b, &seen->oldest, &seen->n_keys))
        seen->first += t->group;
    for (seen->end = seen->first;
         seen->end < t->n_rows &&
         visible(a, t, seen->end, b, &begin, &seen->n_keys);)
        seen->end += t->group;
    return seen->first < seen->end;
}

static bool
is_bf16(const struct attention *a, const struct span *span)
{
    return a->bf16 && !span->generated;
}

static void
start(const struct attention *a, struct tile *t, bool bf16)
{
    size_t d = a->head_dim;

    for (size_t r = 0; r < t->n_rows; r++) {
        const float *q = a->q + query_of(a, t, r) * d;

        /* a sink is a score before all others */
        t->max[r] = a->sinks ? a->sinks[t->head + r % t->group] : -INFINITY;
        t->total[r] = a->sinks ? 1 : 0;
        if (bf16) {
            bf16_query(t, r, q, d, a->scale);
        } else {
            memcpy(t->q + r * d, q, d * sizeof(*q));
            vec_scale(t->q + r * d, a->scale, d);
        }
    }
    if (bf16)
        bf16_start(t, a->v_head_dim);
    else
        memset(t->sum, 0, t->n_rows * a->v_head_dim * sizeof(*t->sum));
}

/*
 * Row r's output.  False if it is NaN where its own scores are not: of a value
 * that another position alone may see.
 */
static bool
finish(const struct attention *a, const struct tile *t, size_t r, bool bf16)
{
    size_t query = query_of(a, t, r), d = a->v_head_dim;
    float *out = a->out + query * d, total = t->total[r];

    if (a->lse)
        a->lse[query] = (float)((double)t->max[r] + f64_log((double)total));
    if (isnan(total)) {
        for (size_t i = 0; i < d; i++)
            out[i] = NAN;
        return true;
    }
    if (bf16)
        bf16_output(t, r, out, d);
    else
        memcpy(out, t->sum + r * d, d * sizeof(*out));
    vec_scale(out, 1 / total, d);
    return !isnan(vec_max(out, d));
}

/* Has each row its own output? */
static bool
tile_run(const struct attention *a, struct tile *t)
{
    size_t last = a->both_ways ? t->span->slot + t->span->n - 1
                               : t->first + (t->n_rows - 1) / t->group;
    size_t oldest =
        a->window && t->first >= a->window ? t->first - a->window + 1 : 0;
    bool own = true, bf16 = is_bf16(a, t->span);
    struct seen seen;

    start(a, t, bf16);
    for (size_t b = oldest / KV_BLOCK; b <= last / KV_BLOCK; b++) {
        if (!find_seen(a, t, b, &seen))
            continue;
        if (bf16)
            bf16_block(a, t, b, &seen);
        else
            exact_block(a, t, b, &seen);
    }
    for (size_t r = 0; r < t->n_rows; r++)
        own &= finish(a, t, r, bf16);
    return own;
}

/* A call: a task is one KV head and some positions of a span. */
struct call {
    const struct attention *a;
    size_t group;   /* query heads of a KV head */
    size_t want;    /* tasks */
    size_t scratch; /* floats of a thread */
};

/* Positions of a task of a span. */
static size_t
step_of(const struct call *c, const struct span *span)
{
    size_t most = max_rows(c->a->v_head_dim, c->group, is_bf16(c->a, span));
    size_t least = group_rows(c->group);
    size_t even = span->n * c->a->n_kv_heads * c->group / c->want;

    return larger(smaller(most, even), smaller(most, least)) / c->group;
}

static size_t
n_tasks(const struct call *c, const struct span *span)
{
    size_t step = step_of(c, span);

    return (span->n + step - 1) / step * c->a->n_kv_heads;
}

static void
lay(const struct call *c, struct tile *t, float *scratch)
{
    size_t d = c->a->head_dim, dv = c->a->v_head_dim;
    bool bf16 = is_bf16(c->a, t->span);
    size_t rows = max_rows(dv, c->group, bf16);

    if (bf16) {
        bf16_lay(t, scratch, d, dv, rows);
        t->max = scratch + bf16_scratch(d, dv, rows);
    } else {
        t->q = scratch;
        t->sum = t->q + rows * d;
        t->score = t->sum + rows * dv;
        t->max = t->score + rows * KV_BLOCK;
    }
    t->total = t->max + rows;
}

static void
run_tasks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct call *c = ctx;
    const struct attention *a = c->a;

    for (size_t i = begin; i < end; i++) {
        struct tile t = { .group = c->group, .span = a->spans };
        size_t task = i, step, at, first, n;

        for (; task >= n_tasks(c, t.span); t.span++)
            task -= n_tasks(c, t.span);
        step = step_of(c, t.span);
        at = task / a->n_kv_heads * step;
        n = smaller(t.span->n - at, step);
        t.kv_head = task % a->n_kv_heads;
        t.head = t.kv_head * c->group;
        t.first = first = t.span->slot + at;
        t.n_rows = n * c->group;
        lay(c, &t, a->scratch + (size_t)thread * c->scratch);
        if (tile_run(a, &t) || n == 1 || a->both_ways)
            continue;
        /* A weight of 0 hides no infinity that another position alone sees:
         * the product is NaN.  Each position then sums what is its own. */
        t.n_rows = c->group;
        for (size_t k = 0; k < n; k++) {
            t.first = first + k;
            tile_run(a, &t);
        }
    }
}

void
attention_run(struct par *par, const struct attention *a)
{
    struct call c = { .a = a,
                      .group = a->n_heads / a->n_kv_heads,
                      .want = TASKS * (size_t)par_threads(par) };
    size_t tasks = 0;

    c.scratch = scratch_of(a->head_dim, a->v_head_dim, c.group, a->bf16);
    for (size_t i = 0; i < a->n_spans; i++)
        tasks += n_tasks(&c, &a->spans[i]);
    par_for_thread(par, tasks, 1, run_tasks, &c);
}
