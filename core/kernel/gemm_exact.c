/* SPDX-License-Identifier: ISC */
/* The exact class: see gemm.h. */
#include <string.h>

#include "core/kernel/gemm_call.h"
#include "core/kernel/vec.h"
#include "core/le.h"
#include "core/mem.h"

#define EXACT_ROWS 264 /* of X, 1 MiB of a part; a multiple of GEMM_X */
#define GEMV_ROWS  48  /* up to here weights are read, not widened first */
/* Of W in a chunk then: reading them takes about 12 us at 20 GB/s, taking the
 * chunk some 0.1 us. */
#define GEMV_BYTES (256u << 10)

static size_t
group_of(const struct gemm_call *call, const struct gemm_job *job)
{
    return job->w.by_k ? call->ops->group_by_k : call->ops->group;
}

/* As many groups as a tile of sums has room for. */
static size_t
exact_cols(const struct gemm_call *call, const struct gemm_job *job)
{
    size_t cols = GEMM_PANEL;

    while (cols % group_of(call, job))
        cols -= 16;
    return cols;
}

/* The numbers of n rows' codes, as files have them. */
static void
stage(char *to, const struct weight *w, size_t row, size_t n, size_t col,
      size_t n_cols)
{
    float *f = (float *)(void *)to;

    for (size_t i = 0; i < n; i++)
        weight_read(f + i * n_cols, w, row + i, col, n_cols);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    for (size_t i = 0; i < n * n_cols; i++)
        put_le32(to + 4 * i, f32_bits(f[i]));
#endif
}

/* Where a block's weights are stored, and as what. */
static void
find_stored(struct gemm_block *b, const struct gemm_job *job,
            const struct area *a, size_t k0, char *to)
{
    const struct gemm_matrix *w = &job->w;

    b->from = element(w, a->col, k0);
    b->ld = w->weight.ld * dtype_size(w->weight.dtype);
    b->w_dtype = w->weight.dtype;
    if (!w->weight.code)
        return;
    if (w->by_k)
        stage(to, &w->weight, k0, b->k, a->col, b->rows);
    else
        stage(to, &w->weight, a->col, b->rows, k0, b->k);
    b->from = to;
    b->ld = (w->by_k ? b->rows : b->k) * sizeof(float);
    b->w_dtype = DT_F32;
}

static void
exact_chunk(const struct gemm_call *call, const struct gemm_job *job,
            const struct area *a, int thread)
{
    struct gemm_scratch s = scratch_of(call->gemm, thread);
    const float *x = (const float *)call->x + gemm_row(job, a) * call->ldx;
    size_t k = job->w.k;
    /* C plus a sum of parts is not C plus each of them. */
    bool added = is_added(job) && k <= EXACT_PART;
    bool direct = (added || is_plain(job)) &&
                  a->n_cols % group_of(call, job) == 0 && k > 0;
    float *t = direct ? job->c + a->row * job->ldc + a->col : s.tile;
    size_t ldt = direct ? job->ldc : GEMM_PANEL;

    if (k == 0)
        memset(s.tile, 0, a->n_rows * GEMM_PANEL * sizeof(float));
    for (size_t k0 = 0; k0 < k; k0 += EXACT_PART) {
        size_t n_k = smaller(EXACT_PART, k - k0);
        struct gemm_block b = {
            .t = t,
            .ldt = ldt,
            .w = s.block,
            .rows = a->n_cols,
            .x = x + k0,
            .ldx = call->ldx,
            .m = a->n_rows,
            .k = n_k,
            .add = k0 > 0 || (direct && added),
        };

        find_stored(&b, job, a, k0, s.stage);
        if (job->w.by_k)
            call->ops->exact_by_k(&b);
        else
            call->ops->exact(&b);
    }
    if (!direct)
        gemm_finish(job, a, s.tile, GEMM_PANEL, thread);
}

/* Few rows of X: reading W is the work, and gemv's kernels are made for it. */
static size_t
gemv_cols(const struct gemm_job *job)
{
    size_t nbytes = job->w.k * weight_bits(&job->w.weight) / 8 + 1;
    size_t cols = GEMV_BYTES / nbytes / 16 * 16;

    return cols < 16 ? 16 : smaller(cols, TILE_FLOATS / GEMV_ROWS);
}

/* From four rows of X on products are the work: on a Zen 4 five are 5 % faster
 * with 2048 bytes than with 512. */
static size_t
gemv_ahead(size_t n_x)
{
    return n_x <= 3 ? cpu_ahead() : 2048;
}

/* Codes whose kernels do not suit: some rows' numbers, while the first cache
 * has them, a part after the other. */
static void
gemv_staged(const struct gemm_call *call, const struct gemm_job *job,
            const struct area *a, struct gemm_scratch s)
{
    const size_t most = a->n_rows <= 4 ? 4 : 32, k = job->w.k;

    for (size_t r = 0, n; r < a->n_cols; r += n) {
        n = smaller(most, a->n_cols - r);
        for (size_t k0 = 0; k0 == 0 || k0 < k; k0 += EXACT_PART) {
            struct gemv_args args = {
                .y = s.tile + r,
                .w = s.stage,
                .x = (const float *)call->x + gemm_row(job, a) * call->ldx + k0,
                .ldy = a->n_cols,
                .ldx = call->ldx,
                .rows = n,
                .cols = smaller(EXACT_PART, k - k0),
                .n_x = a->n_rows,
                .w_dtype = DT_F32,
                .add = k0 > 0,
            };

            stage(s.stage, &job->w.weight, a->col + r, n, k0, args.cols);
            gemv_ops_of(cpu_isa())->gemv(&args);
        }
    }
}

static bool
gemv_codes(const struct gemm_job *job, const struct gemv_args *g, size_t row)
{
    const struct code_ops *ops = code_ops_of(cpu_isa());

    return ops->gemv && ops->gemv(&(struct code_gemv){ .y = g->y,
                                                       .w = &job->w.weight,
                                                       .x = g->x,
                                                       .ldy = g->ldy,
                                                       .ldx = g->ldx,
                                                       .row = row,
                                                       .rows = g->rows,
                                                       .cols = g->cols,
                                                       .n_x = g->n_x,
                                                       .ahead = g->ahead });
}

static void
gemv_chunk(const struct gemm_call *call, const struct gemm_job *job,
           const struct area *a, int thread)
{
    struct gemm_scratch s = scratch_of(call->gemm, thread);
    struct gemv_args args = {
        .y = s.tile,
        .w = element(&job->w, a->col, 0),
        .x = (const float *)call->x + gemm_row(job, a) * call->ldx,
        .ldy = a->n_cols,
        .ldx = call->ldx,
        .rows = a->n_cols,
        .cols = job->w.k,
        .n_x = a->n_rows,
        .w_dtype = job->w.weight.dtype,
        .ahead = gemv_ahead(a->n_rows),
    };

    if (!job->w.weight.code)
        gemv_ops_of(cpu_isa())->gemv(&args);
    else if (!gemv_codes(job, &args, a->col))
        gemv_staged(call, job, a, s);
    gemm_finish(job, a, args.y, args.ldy, thread);
}

/* ---- weights by k, few rows of X ---- */

/*
 * Some columns of a product, of up to BY_K_X rows of X: more take several
 * passes over W, which are still faster than to pack it.  First each task has
 * some lanes of a part of k: whole rows of W, as no prefetcher of the CPU stops
 * at the end of a piece of one.  Then each adds the lanes, and the parts, of
 * some outputs.
 */
struct by_k {
    struct gemm *gemm;
    const struct gemm_job *job;
    const float *x;
    float *lanes; /* [parts, 8, m, ld] */
    size_t ldx, ld;
    size_t row, m; /* of X */
    size_t col, n_cols;
    size_t n_lanes; /* of a task, 1 to 8 */
};

static size_t
parts_of(size_t k)
{
    return (k + EXACT_PART - 1) / EXACT_PART;
}

static void
add_to_lanes(void *ctx, size_t begin, size_t end)
{
    const struct by_k *b = ctx;
    const struct gemm_matrix *w = &b->job->w;

    for (size_t i = begin; i < end; i++) {
        size_t first = i * b->n_lanes, k0 = first / 8 * EXACT_PART + first % 8;
        size_t part_end = smaller((first / 8 + 1) * EXACT_PART, w->k);
        const struct gemv_by_k args = {
            .lanes = b->lanes + first * b->m * b->ld,
            .w = element(w, b->col, k0),
            .x = b->x + b->row * b->ldx + k0,
            .ld = b->ld,
            .ldw = w->weight.ld * dtype_size(w->weight.dtype),
            .ldx = b->ldx,
            .n_lanes = b->n_lanes,
            .n_x = b->m,
            .n_k = part_end > k0 ? part_end - k0 : 0,
            .cols = b->n_cols,
            .w_dtype = w->weight.dtype,
            .ahead = cpu_ahead(),
        };

        memset(args.lanes, 0, b->n_lanes * b->m * b->ld * sizeof(float));
        gemv_ops_of(cpu_isa())->by_k(&args);
    }
}

/* Lanes that a part's last columns do not reach add 0 * 0. */
static void
add_part(const struct by_k *b, size_t part, size_t col, size_t n)
{
    size_t n_k = smaller(b->job->w.k - part * EXACT_PART, EXACT_PART);

    for (size_t i = 0; i < b->m; i++) {
        float *lane = b->lanes + (part * 8 * b->m + i) * b->ld + col;
        size_t step = b->m * b->ld;

        for (size_t l = n_k % 8; l % 8; l++)
            for (size_t j = 0; j < n; j++)
                lane[l * step + j] += 0;
        for (size_t h = 4; h > 0; h /= 2)
            for (size_t l = 0; l < h; l++)
                vec_add(lane + l * step, lane + (l + h) * step, n);
        if (part > 0)
            vec_add(b->lanes + i * b->ld + col, lane, n);
    }
}

static void
add_lanes(void *ctx, size_t begin, size_t end, int thread)
{
    const struct by_k *b = ctx;

    for (size_t i = begin; i < end; i++) {
        size_t col = i * GEMM_PANEL, n = smaller(GEMM_PANEL, b->n_cols - col);
        struct area a = { b->row, b->m, b->col + col, n };

        for (size_t part = 0; part < parts_of(b->job->w.k); part++)
            add_part(b, part, col, n);
        gemm_finish(b->job, &a, b->lanes + col, b->ld, thread);
    }
}

/* Outputs whose lanes have room. */
static size_t
by_k_most(const struct gemm *g, const struct gemm_job *job, size_t m)
{
    size_t floats = (size_t)par_threads(g->par) * (THREAD_BYTES / 4);

    return floats / (parts_of(job->w.k) * 8 * m) / 16 * 16;
}

static void
run_by_k(struct by_k *b)
{
    size_t most = by_k_most(b->gemm, b->job, b->m), n = b->job->w.n;
    size_t lanes = 8 * parts_of(b->job->w.k);

    /* as many as give each thread a task: 4 rows of W that follow each other
     * are read at 0.93 of gemv's rate by two threads, 2 at 0.83 */
    while (b->n_lanes > 1 &&
           lanes / b->n_lanes < (size_t)par_threads(b->gemm->par))
        b->n_lanes /= 2;
    for (b->col = 0; b->col < n; b->col += b->n_cols) {
        b->n_cols = smaller(most, n - b->col);
        b->ld = round_up(b->n_cols, 16);
        par_for(b->gemm->par, lanes / b->n_lanes, 1, add_to_lanes, b);
        par_for_thread(b->gemm->par, (b->n_cols + GEMM_PANEL - 1) / GEMM_PANEL,
                       1, add_lanes, b);
    }
}

/* None of them has its own rows. */
static bool
suits_by_k(const struct gemm *g, const struct gemm_job *jobs, size_t n_jobs,
           size_t m)
{
    for (size_t i = 0; i < n_jobs; i++)
        if (!jobs[i].w.by_k || jobs[i].w.weight.code || jobs[i].w.k == 0 ||
            m == 0 || m > GEMV_ROWS ||
            by_k_most(g, &jobs[i], smaller(m, BY_K_X)) == 0)
            return false;
    return true;
}

/* ---- both ---- */

static bool
suits_gemv(const struct gemm_call *call, const struct gemm_job *job)
{
    const struct weight *w = &job->w.weight;

    return gemm_rows(call, job) <= GEMV_ROWS && !job->w.by_k &&
           (w->code || w->ld == job->w.k);
}

static struct gemm_cut
cut(const struct gemm_call *call, const struct gemm_job *job)
{
    if (suits_gemv(call, job)) /* one cut: W is to be read once */
        return (struct gemm_cut){ GEMV_ROWS, gemv_cols(job) };
    return (struct gemm_cut){ call->rows, exact_cols(call, job) };
}

static void
chunk(const struct gemm_call *call, const struct gemm_job *job,
      const struct area *a, int thread)
{
    (suits_gemv(call, job) ? gemv_chunk : exact_chunk)(call, job, a, thread);
}

void
gemm_exact(struct gemm *g, const struct gemm_job *jobs, size_t n_jobs,
           const float *x, size_t ldx, size_t m)
{
    struct gemm_call call = {
        .gemm = g,
        .jobs = jobs,
        .n_jobs = n_jobs,
        .x = x,
        .ldx = ldx,
        .m = m,
        .cut = cut,
        .chunk = chunk,
    };

    if (n_jobs > 0 && jobs->w.by_k && jobs->m) {
        for (size_t i = 0; i < n_jobs; i++) {
            struct gemm_job job = jobs[i];

            job.row = job.m = 0;
            gemm_exact(g, &job, 1, x + jobs[i].row * ldx, ldx, jobs[i].m);
        }
    } else if (suits_by_k(g, jobs, n_jobs, m)) {
        size_t passes = (m + BY_K_X - 1) / BY_K_X;

        for (size_t i = 0; i < n_jobs * passes; i++) {
            size_t row = m * (i % passes) / passes;

            run_by_k(&(struct by_k){ .gemm = g,
                                     .job = &jobs[i / passes],
                                     .x = x,
                                     .lanes = scratch_of(g, 0).tile,
                                     .ldx = ldx,
                                     .row = row,
                                     .m = m * (i % passes + 1) / passes - row,
                                     .n_lanes = 8 });
        }
    } else {
        gemm_run(&call, EXACT_ROWS, GEMM_X);
    }
}
