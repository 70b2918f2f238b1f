/*
 * What gemm.h promises, over the inner loops of gemm_ISA.c.
 *
 * A call is cut into chunks: some rows of X by some of W.  A chunk works
 * through k in parts whose weights, widened or packed, stay in the cache while
 * the rows of X pass by; its sums stay in a tile of the thread's scratch, and
 * go from there to C.
 */
#include "core/kernel/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/gemm_pack.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

/*
 * Blocking, for an L2 cache of 2 MiB and 64 columns of C (rows of W) at a time.
 * A part of k takes 256 KiB there in the exact class, GEMM_PANEL x EXACT_PART
 * f32, which the rows of X pass; 128 KiB in the packed ones: pack_layout().
 */
#define TILE_ROWS  512
#define EXACT_ROWS 258 /* of X, 1 MiB of a part; a multiple of GEMM_X */
#define GEMV_ROWS  48  /* up to here weights are read, not widened first */
/* Of W in a chunk then: reading them takes about 12 us at 20 GB/s, taking the
 * chunk some 0.1 us. */
#define GEMV_BYTES (256u << 10)
/* Of C, 4 MiB: two L2 caches; test_streamed() relies on it. */
#define STREAM_FLOATS (1u << 20)
#define CHUNKS        4 /* of each thread, if the work is enough */
#define TILE_FLOATS   (TILE_ROWS * GEMM_PANEL)
#define BLOCK_BYTES   (256u << 10)
#define STAGE_BYTES   (384u << 10)
#define STAY_BYTES    (13u << 17) /* four fifths of an L2 cache */
#define THREAD_BYTES  (TILE_FLOATS * 4 + BLOCK_BYTES + STAGE_BYTES)

_Static_assert(GEMM_PANEL *EXACT_PART * 4 <= BLOCK_BYTES, "w");
_Static_assert(PACK_BLOCK <= BLOCK_BYTES, "panel");
_Static_assert(PACK_STAGE + TILE_FLOATS * 4 <= STAGE_BYTES, "stage, sums");

struct gemm {
    struct par *par;
    char *scratch; /* [threads, THREAD_BYTES] */
};

/* One thread's scratch. */
struct scratch {
    float *tile; /* [rows, ld] */
    void *block; /* weights of a part of k, as the kernel wants them */
    char *stage; /* weights on their way there, int8's sums */
};

struct call {
    struct gemm *gemm;
    const struct gemm_ops *ops;
    const struct gemm_bf16_ops *bf16;
    const struct gemm_int8_ops *int8;
    const struct gemm_job *jobs;
    size_t n_jobs;
    const void *x;
    const uint16_t *lo;   /* bf16 */
    const float *x_scale; /* int8 */
    size_t ldx, m;
    size_t rows; /* of a chunk, and its columns; NULL: GEMM_PANEL */
    size_t (*cols)(const struct call *call, const struct gemm_job *job);
    void (*chunk)(const struct call *call, const struct gemm_job *job,
                  const struct area *a, int thread);
};

int
gemm_open(struct gemm **gemm, struct par *par, struct err *err)
{
    struct gemm *g = xcalloc(1, sizeof(*g));

    *gemm = NULL;
    g->par = par;
    g->scratch = mem_big((size_t)par_threads(par), THREAD_BYTES,
                         "the workspace of matrix products", err);
    if (!g->scratch) {
        free(g);
        return -1;
    }
    *gemm = g;
    return 0;
}

void
gemm_close(struct gemm *g)
{
    if (!g)
        return;
    mem_big_free(g->scratch, (size_t)par_threads(g->par), THREAD_BYTES);
    free(g);
}

size_t
gemm_workspace(int n_threads)
{
    return (size_t)(n_threads < 1 ? 1 : n_threads) * THREAD_BYTES;
}

struct par *
gemm_par(const struct gemm *g)
{
    return g->par;
}

static struct scratch
scratch_of(const struct gemm *g, int thread)
{
    char *p = g->scratch + (size_t)thread * THREAD_BYTES;

    return (struct scratch){ .tile = (float *)(void *)p,
                             .block = p + TILE_FLOATS * 4,
                             .stage = p + TILE_FLOATS * 4 + BLOCK_BYTES };
}

/* Sums that go to C as they are may be stored there at once: waiting for C's
 * lines then overlaps with the sums, where a copy from the tile would wait. */
static bool
is_plain(const struct gemm_job *job)
{
    const struct gemm_end *e = &job->end;

    return job->c && !e->bias && !e->accumulate && !e->hook;
}

/* The same of sums that are added to what C holds, and are nothing else. */
static bool
is_added(const struct gemm_job *job)
{
    const struct gemm_end *e = &job->end;

    return job->c && !e->bias && e->accumulate && !e->hook;
}

/*
 * Is C written by streaming stores?  An ordinary store first reads its line,
 * from memory if C is large: without that, products by AMX take half the time
 * to two thirds, by VNNI 5 % less; others do not gain.  All lines but those of
 * int8's last panel are whole.
 */
static bool
is_streamed(const struct call *call, const struct gemm_job *job)
{
    return is_plain(job) && call->m * job->w.n >= STREAM_FLOATS &&
           job->ldc % 16 == 0 && (uintptr_t)job->c % 64 == 0;
}

/* From a tile of sums to C: see struct gemm_end. */
static void
finish(const struct gemm_job *job, const struct area *a, float *t, size_t ldt,
       int thread)
{
    const struct gemm_end *e = &job->end;
    float *c = job->c ? job->c + a->row * job->ldc + a->col : NULL;

    for (size_t i = 0; i < a->n_rows && (e->bias || e->accumulate); i++) {
        if (e->bias)
            vec_add(t + i * ldt, e->bias + a->col, a->n_cols);
        if (e->accumulate)
            vec_add(t + i * ldt, c + i * job->ldc, a->n_cols);
    }
    if (e->hook)
        e->hook(e->ctx, t, ldt, a->row, a->n_rows, a->col, a->n_cols, thread);
    for (size_t i = 0; i < a->n_rows && c; i++)
        memcpy(c + i * job->ldc, t + i * ldt, a->n_cols * sizeof(*c));
}

static size_t
cols_of(const struct call *call, const struct gemm_job *job)
{
    return call->cols ? call->cols(call, job) : GEMM_PANEL;
}

static size_t
n_chunks(const struct call *call, const struct gemm_job *job)
{
    size_t cols = cols_of(call, job);

    return (job->w.n + cols - 1) / cols *
           ((call->m + call->rows - 1) / call->rows);
}

static void
run_chunks(void *ctx, size_t begin, size_t end, int thread)
{
    const struct call *call = ctx;

    for (size_t i = begin; i < end; i++) {
        const struct gemm_job *job = call->jobs;
        size_t at = i, cols, across;
        struct area a;

        for (; at >= n_chunks(call, job); job++)
            at -= n_chunks(call, job);
        cols = cols_of(call, job);
        across = (job->w.n + cols - 1) / cols;
        a.row = at / across * call->rows;
        a.col = at % across * cols;
        a.n_rows = smaller(call->rows, call->m - a.row);
        a.n_cols = smaller(cols, job->w.n - a.col);
        call->chunk(call, job, &a, thread);
    }
}

/* Chunks of at most 'max' rows, a multiple of 'unit': as equal as that goes,
 * and enough of them for all threads. */
static void
run(struct call *call, size_t max, size_t unit)
{
    size_t want = CHUNKS * (size_t)par_threads(call->gemm->par);
    size_t n = 0, cuts;

    if (call->m == 0)
        return;
    call->ops = gemm_ops_of(cpu_isa());
    call->bf16 = gemm_bf16_ops_of(cpu_isa());
    call->int8 = gemm_int8_ops_of(cpu_isa());
    call->rows = call->m;
    for (size_t i = 0; i < call->n_jobs; i++)
        n += n_chunks(call, &call->jobs[i]);
    cuts = (call->m + max - 1) / max;
    if (n > 0 && n * cuts < want)
        cuts = (want + n - 1) / n;
    call->rows = round_up((call->m + cuts - 1) / cuts, unit);
    n = 0;
    for (size_t i = 0; i < call->n_jobs; i++)
        n += n_chunks(call, &call->jobs[i]);
    par_for(call->gemm->par, n, 1, run_chunks, call);
}

/* ---- exact ---- */

#define FILL_AHEAD 16 /* columns */

/* The area's rows of W, which are a matrix by k, columns [k0, k0 + n_k), in a
 * block: see struct gemm_block. */
static void
fill_block(const struct gemm_ops *ops, float *to, const struct gemm_matrix *w,
           const struct area *a, size_t k0, size_t n_k)
{
    const size_t group = ops->group, k8 = round_up(n_k, 8);
    float columns[8][GEMM_PANEL];

    if (a->n_cols % group)
        memset(to, 0, round_up(a->n_cols, group) * k8 * sizeof(*to));
    for (size_t c = 0; c < k8; c += 8) {
        for (size_t i = 0; i < 8; i++) {
            size_t k = k0 + c + i;

            if (c + i < n_k)
                cvt_to_f32(columns[i], element(w, a->col, k), w->dtype,
                           a->n_cols);
            else
                memset(columns[i], 0, a->n_cols * sizeof(float));
            /* another page each: no prefetcher of the CPU sees them coming */
            for (size_t r = 0; r < a->n_cols && k + FILL_AHEAD < w->k; r += 16)
                __builtin_prefetch(element(w, a->col + r, k + FILL_AHEAD));
        }
        for (size_t r = 0; r < a->n_cols; r++) {
            float *at = to + r / group * group * k8 + c * group + r % group * 8;

            for (size_t i = 0; i < 8; i++)
                at[i] = columns[i][r];
        }
    }
}

static void
exact_chunk(const struct call *call, const struct gemm_job *job,
            const struct area *a, int thread)
{
    struct scratch s = scratch_of(call->gemm, thread);
    const float *x = (const float *)call->x + a->row * call->ldx;
    size_t k = job->w.k;
    /* C plus a sum of parts is not C plus each of them. */
    bool added = is_added(job) && k <= EXACT_PART;
    bool direct =
        (added || is_plain(job)) && a->n_cols % call->ops->group == 0 && k > 0;
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
            .from = job->w.by_k ? NULL : element(&job->w, a->col, k0),
            .ld = job->w.ld * (dtype_table[job->w.dtype].bits / 8),
            .w_dtype = job->w.dtype,
            .rows = a->n_cols,
            .x = x + k0,
            .ldx = call->ldx,
            .m = a->n_rows,
            .k = n_k,
            .add = k0 > 0 || (direct && added),
        };

        if (job->w.by_k)
            fill_block(call->ops, s.block, &job->w, a, k0, n_k);
        call->ops->exact(&b);
    }
    if (!direct)
        finish(job, a, s.tile, GEMM_PANEL, thread);
}

/* Few rows of X: reading W is the work, and gemv's kernels are made for it. */
static size_t
gemv_cols(const struct call *call, const struct gemm_job *job)
{
    size_t nbytes = job->w.k * (dtype_table[job->w.dtype].bits / 8) + 1;
    size_t cols = GEMV_BYTES / nbytes / 16 * 16;

    (void)call;
    return cols < 16 ? 16 : smaller(cols, TILE_FLOATS / GEMV_ROWS);
}

/*
 * How many bytes ahead weights are prefetched.  A Xeon reads at 0.97 of
 * memory's rate with 2048.  One thread of Zen 4 reads for one row of X at 24
 * GB/s with 2048 and at 30 with 512, for two rows at 16.5 and at 21; from four
 * rows on products are the work, and five are 5 % faster with 2048.
 */
static size_t
gemv_ahead(size_t n_x)
{
    return n_x <= 3 && cpu_is_amd() ? 512 : 2048;
}

static void
gemv_chunk(const struct call *call, const struct gemm_job *job,
           const struct area *a, int thread)
{
    struct gemv_args args = {
        .y = scratch_of(call->gemm, thread).tile,
        .w = element(&job->w, a->col, 0),
        .x = (const float *)call->x + a->row * call->ldx,
        .ldy = a->n_cols,
        .ldx = call->ldx,
        .rows = a->n_cols,
        .cols = job->w.k,
        .n_x = a->n_rows,
        .w_dtype = job->w.dtype,
        .ahead = gemv_ahead(a->n_rows),
    };

    gemv_ops_of(cpu_isa())->gemv(&args);
    finish(job, a, args.y, args.ldy, thread);
}

static bool
suits_gemv(const struct gemm_job *jobs, size_t n_jobs, size_t m)
{
    for (size_t i = 0; i < n_jobs; i++)
        if (jobs[i].w.by_k || jobs[i].w.ld != jobs[i].w.k)
            return false;
    return m <= GEMV_ROWS;
}

void
gemm_exact(struct gemm *g, const struct gemm_job *jobs, size_t n_jobs,
           const float *x, size_t ldx, size_t m)
{
    struct call call = {
        .gemm = g,
        .jobs = jobs,
        .n_jobs = n_jobs,
        .x = x,
        .ldx = ldx,
        .m = m,
        .chunk = exact_chunk,
    };

    if (suits_gemv(jobs, n_jobs, m)) {
        call.cols = gemv_cols;
        call.chunk = gemv_chunk;
        run(&call, GEMV_ROWS, GEMV_ROWS); /* one cut: W is to be read once */
    } else {
        run(&call, EXACT_ROWS, GEMM_X);
    }
}

/* ---- packed classes ---- */

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
    par_for(g->par, (w->n + GEMM_PANEL - 1) / GEMM_PANEL, 1, pack_panels, &t);
}

/* A job's part, packed before or now. */
static const void *
part_of(const struct call *call, const struct gemm_job *job,
        enum gemm_class class, const struct area *a, size_t k0,
        struct scratch *s, int32_t **comp)
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
ahead_of(const struct call *call, const struct gemm_job *job,
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
    if (w->by_k || dtype_table[w->dtype].bits / 8 != l.size)
        return (struct gemm_ahead){ 0 };
    return (struct gemm_ahead){ element(w, col, k), w->ld * l.size };
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
bf16_chunk(const struct call *call, const struct gemm_job *job,
           const struct area *a, int thread)
{
    const struct gemm_bf16_ops *ops = call->bf16;
    struct scratch s = scratch_of(call->gemm, thread);
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
        finish(job, a, s.tile, GEMM_PANEL, thread);
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
            size_t at = rows.row * call->ldx + k0, m = rows.n_rows;
            const uint16_t *x = (const uint16_t *)call->x + at;
            const uint16_t *lo = call->lo ? call->lo + at : NULL;
            float *t = s.tile + (k <= part ? 0 : i * GEMM_PANEL);
            float *c =
                last && direct ? job->c + rows.row * job->ldc + a->col : NULL;

            if (ops->product_to) {
                ops->product_to(t, c, job->ldc, how, x, lo, call->ldx, b, m,
                                n_k, k0 > 0, &ahead);
            } else {
                ops->product(t, x, call->ldx, b, m, n_k, k0 > 0);
                if (lo)
                    ops->product(t, lo, call->ldx, b, m, n_k, true);
            }
            if (last && !c)
                finish(job, &rows, t, GEMM_PANEL, thread);
        }
    }
}

/* Rows of X that stay in the second cache while all of W passes by: from the
 * third they would come again for each panel.  W that is not packed is, once
 * for each cut, which pays over 192 rows and more. */
static size_t
rows_that_stay(const struct call *call)
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
    struct call call = {
        .gemm = g,
        .jobs = jobs,
        .n_jobs = n_jobs,
        .x = x,
        .lo = lo,
        .ldx = ldx,
        .m = m,
        .chunk = bf16_chunk,
    };

    run(&call, rows_that_stay(&call), 32);
}

/* The scales of the columns of an area. */
static const float *
scale_of(const struct gemm_job *job, const struct area *a)
{
#define ONES8 1, 1, 1, 1, 1, 1, 1, 1
    static const float ones[] = { ONES8, ONES8, ONES8, ONES8,
                                  ONES8, ONES8, ONES8, ONES8 };

    _Static_assert(sizeof(ones) == GEMM_PANEL * sizeof(*ones), "a panel");
    return job->scale ? job->scale + a->col : ones;
}

static void
scale_to_c(const struct call *call, const struct gemm_job *job,
           const struct area *a, float *tile, const int32_t *sums, int thread)
{
    bool direct = is_plain(job);
    float *t = direct ? job->c + a->row * job->ldc + a->col : tile;
    size_t ldt = direct ? job->ldc : GEMM_PANEL;

    call->ops->rescale(t, ldt, sums, call->x_scale + a->row, scale_of(job, a),
                       a->n_rows, a->n_cols, is_streamed(call, job));
    if (!direct)
        finish(job, a, t, ldt, thread);
}

static void
int8_chunk(const struct call *call, const struct gemm_job *job,
           const struct area *a, int thread)
{
    const struct gemm_int8_ops *ops = call->int8;
    struct scratch s = scratch_of(call->gemm, thread);
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
                (const int8_t *)call->x + rows.row * call->ldx + k0;
            int32_t *t = sums + (k <= part ? 0 : i * GEMM_PANEL);

            if (last && rescales) {
                float *c =
                    direct ? job->c + rows.row * job->ldc + rows.col : s.tile;

                ops->product_to(t, c, direct ? job->ldc : GEMM_PANEL,
                                is_streamed(call, job), x, call->ldx, b,
                                call->x_scale + rows.row, scale_of(job, &rows),
                                rows.n_rows, n_k, k0 > 0, &ahead);
                if (!direct)
                    finish(job, &rows, c, GEMM_PANEL, thread);
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
    struct call call = {
        .gemm = g,
        .jobs = jobs,
        .n_jobs = n_jobs,
        .x = x,
        .x_scale = x_scale,
        .ldx = ldx,
        .m = m,
        .chunk = int8_chunk,
    };

    run(&call, TILE_ROWS, 32);
}
