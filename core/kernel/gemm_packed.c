/* SPDX-License-Identifier: ISC */
/* The packed classes, bf16 and int8: see gemm.h. */
#include <string.h>

#include "core/kernel/gemm_call.h"
#include "core/mem.h"

/* Of C, 4 MiB: two L2 caches; test_streamed() relies on it. */
#define STREAM_FLOATS (1u << 20)
#define STAY_BYTES    (13u << 17) /* four fifths of an L2 cache */

/*
 * Is C written by streaming stores?  An ordinary store first reads its line,
 * from memory if C is large: without that, products by AMX take half the time
 * to two thirds, by VNNI 5 % less; others do not gain.  All lines but those of
 * int8's last panel are whole.
 */
static bool
is_streamed(const struct gemm_call *call, const struct gemm_job *job)
{
    return is_plain(job) && gemm_rows(call, job) * job->w.n >= STREAM_FLOATS &&
           job->ldc % 16 == 0 && (uintptr_t)job->c % 64 == 0;
}

struct pack_task {
    const struct gemm *gemm;
    const struct gemm_panels *panels;
    const struct gemm_matrix *w;
};

static void
pack_panels(void *ctx, size_t begin, size_t end, int thread)
{
    const struct pack_task *t = ctx;
    size_t part = pack_layout(t->panels->class).part;

    for (size_t i = begin; i < end; i++) {
        struct area a = { .col = i * GEMM_PANEL };

        a.n_cols = smaller(GEMM_PANEL, t->w->n - a.col);
        for (size_t k0 = 0; k0 < t->w->k; k0 += part) {
            int32_t *comp;
            char *to = pack_find(t->panels, a.col, k0, &comp);

            pack_part(gemm_ops_of(cpu_isa()), to, comp,
                      scratch_of(t->gemm, thread).stage, t->w, t->panels->class,
                      &a, k0);
        }
    }
}

void
gemm_pack(struct gemm *g, struct gemm_panels *panels,
          const struct gemm_matrix *w)
{
    struct pack_task t = { g, panels, w };

    panels->n = w->n;
    panels->k = w->k;
    par_for_thread(g->par, (w->n + GEMM_PANEL - 1) / GEMM_PANEL, 1, pack_panels,
                   &t);
}

/* A job's part, packed before or now. */
static const void *
part_of(const struct gemm_call *call, const struct gemm_job *job,
        enum gemm_class class, const struct area *a, size_t k0,
        struct gemm_scratch *s, int32_t **comp)
{
    if (job->panels)
        return pack_find(job->panels, a->col, k0, comp);
    *comp =
        pack_part(call->ops, s->block, NULL, s->stage, &job->w, class, a, k0);
    return s->block;
}

/* What the thread reads after part k0 of an area: the next part, or the next
 * panel that no other thread has taken, if all are equally fast. */
static struct gemm_ahead
ahead_of(const struct gemm_call *call, const struct gemm_job *job,
         enum gemm_class class, const struct area *a, size_t k0)
{
    const struct pack_layout l = pack_layout(class);
    const struct gemm_matrix *w = &job->w;
    bool more = l.part < w->k - k0;
    size_t k = more ? k0 + l.part : 0, col = a->col;
    int32_t *comp;

    if (!more)
        col += GEMM_PANEL * (size_t)par_threads(call->gemm->par);
    if (col >= w->n)
        return (struct gemm_ahead){ 0 };
    if (job->panels)
        return (struct gemm_ahead){
            pack_find(job->panels, col, k, &comp),
            round_up(smaller(l.part, w->k - k0), l.unit) * l.size
        };
    if (w->by_k || dtype_size(w->weight.dtype) != l.size)
        return (struct gemm_ahead){ 0 };
    return (struct gemm_ahead){ element(w, col, k), w->weight.ld * l.size };
}

/* C's lines, before their sums are computed: its rows are pages apart, which
 * no hardware prefetcher follows. */
static void
prefetch_c(const struct gemm_job *job, const struct area *a)
{
    const float *c = job->c + a->row * job->ldc + a->col;

    for (size_t i = 0; i < a->n_rows; i++)
        for (size_t j = 0; j < a->n_cols; j += 64 / sizeof(*c))
            __builtin_prefetch(c + i * job->ldc + j, 1);
}

static void
bf16_chunk(const struct gemm_call *call, const struct gemm_job *job,
           const struct area *a, int thread)
{
    const struct gemm_bf16_ops *ops = call->bf16;
    struct gemm_scratch s = scratch_of(call->gemm, thread);
    const size_t part = pack_layout(GEMM_BF16).part;
    const bool added = is_added(job);
    const bool direct =
        ops->product_to && (added || is_plain(job)) && a->n_cols == GEMM_PANEL;
    const enum gemm_to how = added                    ? TO_ADD
                             : is_streamed(call, job) ? TO_STREAM
                                                      : TO_STORE;
    size_t k = job->w.k;
    int32_t *comp;

    if (k == 0) {
        memset(s.tile, 0, a->n_rows * GEMM_PANEL * sizeof(float));
        gemm_finish(job, a, s.tile, GEMM_PANEL, thread);
    }
    for (size_t k0 = 0; k0 < k; k0 += part) {
        size_t n_k = round_up(smaller(part, k - k0), 32);
        const uint16_t *b = part_of(call, job, GEMM_BF16, a, k0, &s, &comp);
        struct gemm_ahead ahead = ahead_of(call, job, GEMM_BF16, a, k0);
        bool last = k0 + n_k >= k;
        /* The last part goes tile by tile if the kernel allows: C's lines are
         * then waited for during the next sums. */
        size_t step = last && ops->tile > 0 ? ops->tile : a->n_rows;

        for (size_t i = 0; i < a->n_rows; i += step) {
            struct area rows = { a->row + i, smaller(step, a->n_rows - i),
                                 a->col, a->n_cols };
            size_t at = gemm_row(job, &rows) * call->ldx + k0, m = rows.n_rows;
            const uint16_t *x = (const uint16_t *)call->x + at;
            const uint16_t *lo = call->lo ? call->lo + at : NULL;
            float *t = s.tile + (k <= part ? 0 : i * GEMM_PANEL);
            float *c =
                last && direct ? job->c + rows.row * job->ldc + a->col : NULL;

            if (ops->product_to) {
                ops->product_to(t, c, job->ldc, how, x, lo, call->ldx, b, m,
                                a->n_cols, n_k, k0 > 0, &ahead);
            } else {
                ops->product(t, x, call->ldx, b, m, a->n_cols, n_k, k0 > 0);
                if (lo)
                    ops->product(t, lo, call->ldx, b, m, a->n_cols, n_k, true);
            }
            if (last && !c)
                gemm_finish(job, &rows, t, GEMM_PANEL, thread);
        }
    }
}

/* Rows of X that stay in the second cache while all of W passes by: from the
 * third they would come again for each panel.  W that is not packed is, once
 * for each cut, which pays over 192 rows and more. */
static size_t
rows_that_stay(const struct gemm_call *call)
{
    size_t nbytes = call->ldx * sizeof(uint16_t) * (call->lo ? 2 : 1);
    size_t n = STAY_BYTES / (nbytes + 1) / 32 * 32;

    for (size_t i = 0; i < call->n_jobs && n < 192; i++)
        if (!call->jobs[i].panels)
            return TILE_ROWS;
    return n < 32 ? 32 : smaller(n, TILE_ROWS);
}

bool
gemm_bf16_is_native(void)
{
    const struct gemm_bf16_ops *ops = gemm_bf16_ops_of(cpu_isa());

    return ops->tile > 0 || ops->product_to; /* AVX512-BF16's, AMX's */
}

void
gemm_bf16(struct gemm *g, const struct gemm_job *jobs, size_t n_jobs,
          const uint16_t *x, const uint16_t *lo, size_t ldx, size_t m)
{
    struct gemm_call call = {
        .gemm = g,
        .jobs = jobs,
        .n_jobs = n_jobs,
        .x = x,
        .lo = lo,
        .ldx = ldx,
        .m = m,
        .chunk = bf16_chunk,
    };

    gemm_run(&call, rows_that_stay(&call), 32);
}

/* The scales of the columns of an area. */
static const float *
scale_of(const struct gemm_job *job, const struct area *a)
{
#define ONES8 1, 1, 1, 1, 1, 1, 1, 1
    static const float ones[] = { ONES8, ONES8, ONES8, ONES8,
                                  ONES8, ONES8, ONES8, ONES8 };

    const struct weight *w = &job->w.weight;

    _Static_assert(sizeof(ones) == GEMM_PANEL * sizeof(*ones), "a panel");
    if (job->panels)
        return job->panels->scale ? job->panels->scale + a->col : ones;
    return w->scale && !job->w.by_k ? w->scale + w->row + a->col : ones;
}

static void
scale_to_c(const struct gemm_call *call, const struct gemm_job *job,
           const struct area *a, float *tile, const int32_t *sums, int thread)
{
    bool direct = is_plain(job);
    float *t = direct ? job->c + a->row * job->ldc + a->col : tile;
    size_t ldt = direct ? job->ldc : GEMM_PANEL;

    call->ops->rescale(t, ldt, sums, call->x_scale + gemm_row(job, a),
                       scale_of(job, a), a->n_rows, a->n_cols,
                       is_streamed(call, job));
    if (!direct)
        gemm_finish(job, a, t, ldt, thread);
}

static void
int8_chunk(const struct gemm_call *call, const struct gemm_job *job,
           const struct area *a, int thread)
{
    const struct gemm_int8_ops *ops = call->int8;
    struct gemm_scratch s = scratch_of(call->gemm, thread);
    int32_t *sums = (int32_t *)(void *)(s.stage + PACK_STAGE), *comp;
    const size_t part = pack_layout(GEMM_INT8).part, k = job->w.k;
    const bool direct = is_plain(job);
    const bool rescales = ops->product_to && a->n_cols == GEMM_PANEL;
    const size_t step = ops->tile > 0 ? ops->tile : a->n_rows;

    if (k == 0) {
        memset(sums, 0, a->n_rows * GEMM_PANEL * sizeof(*sums));
        scale_to_c(call, job, a, s.tile, sums, thread);
    }
    for (size_t k0 = 0; k0 < k; k0 += part) {
        size_t n_k = round_up(smaller(part, k - k0), 64);
        const int8_t *b = part_of(call, job, GEMM_INT8, a, k0, &s, &comp);
        struct gemm_ahead ahead = ahead_of(call, job, GEMM_INT8, a, k0);
        bool last = part >= k - k0;

        for (size_t i = 0; i < a->n_rows; i += step) {
            struct area rows = { a->row + i, smaller(step, a->n_rows - i),
                                 a->col, a->n_cols };
            const int8_t *x =
                (const int8_t *)call->x + gemm_row(job, &rows) * call->ldx + k0;
            int32_t *t = sums + (k <= part ? 0 : i * GEMM_PANEL);

            if (last && rescales) {
                float *c =
                    direct ? job->c + rows.row * job->ldc + rows.col : s.tile;

                ops->product_to(t, c, direct ? job->ldc : GEMM_PANEL,
                                is_streamed(call, job), x, call->ldx, b,
                                call->x_scale + gemm_row(job, &rows),
                                scale_of(job, &rows), rows.n_rows, n_k, k0 > 0,
                                &ahead);
                if (!direct)
                    gemm_finish(job, &rows, c, GEMM_PANEL, thread);
                continue;
            }
            if (last && job->c && ops->tile && !is_streamed(call, job))
                prefetch_c(job, &rows);
            ops->product(t, x, call->ldx, b, comp, rows.n_rows, n_k, k0 > 0);
            if (last)
                scale_to_c(call, job, &rows, s.tile, t, thread);
        }
    }
}

void
gemm_int8(struct gemm *g, const struct gemm_job *jobs, size_t n_jobs,
          const int8_t *x, const float *x_scale, size_t ldx, size_t m)
{
    struct gemm_call call = {
        .gemm = g,
        .jobs = jobs,
        .n_jobs = n_jobs,
        .x = x,
        .x_scale = x_scale,
        .ldx = ldx,
        .m = m,
        .chunk = int8_chunk,
    };

    gemm_run(&call, TILE_ROWS, 32);
}
