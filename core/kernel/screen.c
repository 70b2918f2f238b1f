/* SPDX-License-Identifier: ISC */
#include "core/kernel/screen.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/kernel/ops.h"
#include "core/kernel/screen_impl.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

#define FEW_ROWS    8  /* read W once by gemm_exact(), too */
#define ENOUGH_ROWS 64 /* to see whether most fail */
#define FEW_MIB     1  /* of W: they stay in the caches, and bounds cost more */
#define FEW         ((size_t)1 << 20) /* numbers of W in f32: so do batches */
/* Bytes of bounds, before fewer rows are done at once. */
#define MAX_BOUNDS ((size_t)64 << 20)

/* Exact products of so many rows of a batch take about as long as to prepare W
 * in f32: of 16384 x 1024 30 to 70 ms on Zen 5, its shadow 20 to 40.  A few
 * rows alone, which read W for themselves, take as long as so many of a batch.
 */
#define WAITS 256
#define ALONE 16

/* ---- does it pay? ---- */

enum { PROBE_M = 64, PROBE_K = 1024, PROBE_RUNS = 4 };
enum { PROBE_EXACT, PROBE_HALF, PROBE_SHADOW, PROBE_N };

/* Products of 64 rows of W, which stay in the cache. */
struct probe {
    struct gemm_block exact;
    float *x;
    uint16_t *half, *panel;
    int8_t *int8;
    int16_t *int16;
};

static void
product(const struct probe *p, int way)
{
    const size_t ld = gemm_ld_bf16(PROBE_K);

    if (way == PROBE_EXACT)
        gemm_ops_of(cpu_isa())->exact(&p->exact);
    else if (way == PROBE_HALF)
        gemm_bf16_ops_of(cpu_isa())->product(p->exact.t, p->half, ld, p->panel,
                                             PROBE_M, GEMM_PANEL, PROBE_K,
                                             false);
    else
        shadow_ops_of(cpu_isa())->products(&(struct shadow_args){
            .t = p->exact.t,
            .ldt = GEMM_PANEL,
            .w = p->int8,
            .rows = GEMM_PANEL,
            .cols = PROBE_K,
            .x = p->int16,
            .ldx = PROBE_K,
            .n_x = PROBE_M,
            .ahead = cpu_ahead(),
        });
}

/* Seconds of each. */
static void
probe_ways(double s[PROBE_N])
{
    struct probe p = { .exact = { .ldt = GEMM_PANEL,
                                  .w_dtype = DT_F32,
                                  .rows = GEMM_PANEL,
                                  .ldx = PROBE_K,
                                  .m = PROBE_M,
                                  .k = PROBE_K } };
    struct mem_array arrays[] = {
        { &p.exact.t, PROBE_M, GEMM_PANEL, sizeof(float) },
        { &p.exact.w, GEMM_PANEL, PROBE_K, sizeof(float) },
        { &p.x, PROBE_M, PROBE_K, sizeof(*p.x) },
        { &p.half, PROBE_M, gemm_ld_bf16(PROBE_K), sizeof(*p.half) },
        { &p.panel, GEMM_PANEL, PROBE_K, sizeof(*p.panel) },
        { &p.int8, GEMM_PANEL, PROBE_K, sizeof(*p.int8) },
        { &p.int16, PROBE_M, PROBE_K, sizeof(*p.int16) },
    };
    size_t nbytes;
    struct err err;
    void *memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &nbytes,
                              "a probe", &err);

    p.exact.x = p.x;
    for (int i = 0; i < PROBE_N; i++)
        s[i] = INFINITY;
    for (int i = 0; memory && i < PROBE_N * PROBE_RUNS; i++) {
        double from = clock_s();

        product(&p, i % PROBE_N);
        s[i % PROBE_N] = fmin(s[i % PROBE_N], clock_s() - from);
    }
    mem_big_free(memory, nbytes, 1);
}

/*
 * Are they faster than exact products by enough for all that comes after them?
 * bf16 by AMX is 6 times here, by AVX512-BF16 from 0.5 (Sapphire Rapids) to 2
 * times (Zen); a shadow by AVX512-VNNI 1.3, by the scalar code 5 times
 * (Sapphire Rapids), by AVX2 1.8 (Zen 3).  With 1.3, 64 rows are 1.3 times
 * faster for k = 32 of 8192, and as fast for 128.
 */
#define ENOUGH        1.5
#define ENOUGH_SHADOW 1.15

static pthread_once_t probe_once = PTHREAD_ONCE_INIT;
static bool is_half_fast, is_shadow_fast;

static void
probe(void)
{
    double s[PROBE_N];

    probe_ways(s);
    is_half_fast =
        gemm_bf16_is_native() && s[PROBE_EXACT] > ENOUGH * s[PROBE_HALF];
    is_shadow_fast = s[PROBE_EXACT] > ENOUGH_SHADOW * s[PROBE_SHADOW];
}

static bool
holds(const struct screen_form *f)
{
    const struct screen_counts *c = &f->counts;

    return !(f->ready && !f->usable) &&
           (c->rows < ENOUGH_ROWS || c->unproved <= c->rows / 2);
}

static enum screen_way
way_of(const struct screen *s, size_t n)
{
    size_t all = s->w.n * s->w.k;
    bool few = all * weight_nbytes(s->w.weight.dtype) < (size_t)FEW_MIB << 20;

    if (s->w.k > SCREEN_MAX_IN)
        return SCREEN_NOT;
    pthread_once(&probe_once, probe);
    if (n >= FEW_ROWS && is_half_fast && !(s->waits && all < FEW) &&
        holds(&s->half))
        return SCREEN_HALF;
    return !few && holds(&s->shadow) && (n < FEW_ROWS || is_shadow_fast)
               ? SCREEN_SHADOW
               : SCREEN_NOT;
}

/* ---- a matrix ---- */

int
screen_open_by(struct screen **screen, const struct gemm_matrix *w,
               const float *bias, const struct screen_stored *stored,
               unsigned ways, struct err *err)
{
    const bool half = ways & SCREEN_HALF, shadow = ways & SCREEN_SHADOW;
    const bool made = shadow && !(stored && stored->int8);
    struct screen *s = xcalloc(1, sizeof(*s));
    const struct mem_array arrays[] = {
        { &s->panels.data, half, gemm_packed_nbytes(GEMM_BF16, w->n, w->k), 1 },
        { &s->half.norm, half, w->n, sizeof(*s->half.norm) },
        { &s->half.lost, half, w->n, sizeof(*s->half.lost) },
        { &s->made, made, w->n, w->k },
        { &s->shadow.norm, shadow, w->n, sizeof(*s->shadow.norm) },
        { &s->shadow.lost, shadow, w->n, sizeof(*s->shadow.lost) },
        { &s->scale, shadow, w->n, sizeof(*s->scale) },
    };

    *screen = NULL;
    s->w = *w;
    s->bias = bias;
    s->panels.class = GEMM_BF16;
    if (stored)
        s->stored = *stored;
    if (half || shadow)
        s->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays),
                               &s->nbytes, "a packed encoder", err);
    if ((half || shadow) && !s->memory) {
        free(s);
        return -1;
    }
    if (!made)
        s->made = NULL;
    s->int8 = made ? s->made : s->stored.int8;
    *screen = s;
    return 0;
}

int
screen_open(struct screen **screen, const struct gemm_matrix *w,
            const float *bias, const struct screen_stored *stored, bool waits,
            struct err *err)
{
    const struct screen s = { .w = *w, .waits = waits };
    int rc = screen_open_by(screen, w, bias, stored,
                            way_of(&s, 1) | way_of(&s, SCREEN_ROWS), err);

    if (rc == 0)
        (*screen)->waits = waits;
    return rc;
}

void
screen_close(struct screen *s)
{
    if (!s)
        return;
    mem_big_free(s->memory, s->nbytes, 1);
    free(s);
}

void
screen_count(const struct screen *s, struct screen_counts *to)
{
    if (!s)
        return;
    to->nbytes += s->nbytes;
    to->rows += s->half.counts.rows + s->shadow.counts.rows;
    to->unproved += s->half.counts.unproved + s->shadow.counts.unproved;
}

/* ---- the workspace ---- */

int
screen_work_open(struct screen_work **work, struct gemm *gemm, size_t in,
                 size_t n, size_t k, struct err *err)
{
    struct screen_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm));
    size_t kept = screen_kept(k), cap = topk_cap(kept), near = screen_near(n);
    size_t most = MAX_BOUNDS / (screen_ld(n) * sizeof(float));
    size_t rows = smaller(SHADOW_ROWS, larger(most, 1));
    const struct mem_array arrays[] = {
        { &w->top, threads, SCREEN_ROWS, sizeof(*w->top) },
        { &w->keys, threads * SCREEN_ROWS, cap, sizeof(*w->keys) },
        { &w->scratch, threads, cap, sizeof(*w->scratch) },
        { &w->key, threads, topk_cap(k), sizeof(*w->key) },
        { &w->idx, threads * 2, kept, sizeof(*w->idx) },
        { &w->v, threads * 2, kept, sizeof(*w->v) },
        { &w->slack, SCREEN_ROWS, 1, sizeof(*w->slack) },
        { &w->half, SCREEN_ROWS, gemm_ld_bf16(in), sizeof(*w->half) },
        { &w->bits, SCREEN_ROWS, screen_words(n), sizeof(*w->bits) },
        { &w->x, rows, in + SHADOW_STEP, sizeof(*w->x) },
        { &w->x_scale, rows, 1, sizeof(*w->x_scale) },
        { &w->u, rows, screen_ld(n), sizeof(*w->u) },
        { &w->low, rows, screen_units(n), sizeof(*w->low) },
        { &w->near, rows, near, sizeof(*w->near) },
        { &w->p, rows, near, sizeof(*w->p) },
        { &w->n_near, rows, 1, sizeof(*w->n_near) },
    };

    w->gemm = gemm;
    w->in = in;
    w->k = k;
    w->n = n;
    w->threads = threads;
    w->n_rows = rows;
    w->memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &w->nbytes,
                           "the workspace of screening", err);
    *work = w->memory ? w : NULL;
    if (!w->memory)
        free(w);
    return *work ? 0 : -1;
}

void
screen_work_close(struct screen_work *w)
{
    if (w)
        mem_big_free(w->memory, w->nbytes, 1);
    free(w);
}

/* ---- rows of x ---- */

static void
make_ready(struct screen *s, struct gemm *gemm, enum screen_way way)
{
    if (way == SCREEN_HALF && !s->half.ready)
        screen_prepare_half(s, gemm);
    if (way == SCREEN_SHADOW && !s->shadow.ready)
        screen_prepare_shadow(s, gemm);
}

void
screen_ready(struct screen *s, struct gemm *gemm, size_t n)
{
    make_ready(s, gemm, way_of(s, n));
}

void
screen_rescore(const struct screen_batch *b, size_t i, const uint32_t *idx,
               float *p, size_t n)
{
    gemv_ops_of(cpu_isa())->rows(&(struct gemv_rows){
        .y = p,
        .w = weight_at(&b->s->w.weight, 0, 0),
        .idx = idx,
        .x = b->x + i * b->ldx,
        .n = n,
        .cols = b->s->w.k,
        .w_dtype = b->s->w.weight.dtype,
    });
}

/* Row i's p that are over their thresholds. */
static void
take_over(struct screen_batch *b, size_t i, const uint32_t *idx, const float *p,
          size_t n)
{
    uint32_t *to = b->found.idx + i * b->found.ld;
    float *v = b->found.v + i * b->found.ld;
    bool good = true;
    size_t m = 0;

    for (size_t j = 0; j < n; j++) {
        good &= fabsf(p[j]) <= FLT_MAX;
        if (p[j] > b->thresholds[idx[j]]) {
            to[m] = idx[j];
            v[m++] = p[j];
        }
    }
    b->found.n[i] = m;
    b->found.proved[i] = good;
}

void
screen_finish(struct screen_batch *b, size_t i, size_t thread,
              const uint32_t *idx, float *p, size_t n)
{
    struct screen_work *w = b->w;
    uint32_t *to = b->found.idx + i * b->found.ld;
    struct topk top;

    for (size_t j = 0; j < n; j++)
        p[j] += b->s->bias[idx[j]];
    if (b->thresholds) {
        take_over(b, i, idx, p, n);
        return;
    }
    topk_start(&top, w->key + thread * topk_cap(w->k),
               w->scratch + thread * topk_cap(screen_kept(w->k)), b->k);
    topk_put(&top, p, 0, n);
    b->found.n[i] = topk_take(&top, to, b->found.v + i * b->found.ld);
    for (size_t j = 0; j < b->found.n[i]; j++)
        to[j] = idx[to[j]];
    b->found.proved[i] = !top.bad;
}

void
screen_rows_by(struct screen_work *w, struct screen *s, enum screen_way way,
               size_t k, const float *thresholds, const float *x, size_t ldx,
               size_t n, const struct screen_found *found)
{
    bool by_half = way == SCREEN_HALF;
    struct screen_form *form = by_half ? &s->half : &s->shadow;
    size_t rows = by_half ? SCREEN_ROWS : w->n_rows;

    make_ready(s, w->gemm, way);
    for (size_t i = 0; i < n; i += rows) {
        struct screen_batch b = {
            .w = w,
            .s = s,
            .ops = vec_ops_of(cpu_isa()),
            .k = k,
            .thresholds = thresholds,
            .x = x + i * ldx,
            .ldx = ldx,
            .n = smaller(n - i, rows),
            .found = { found->idx + i * found->ld, found->v + i * found->ld,
                       found->n + i, found->proved + i, found->ld },
        };

        if (form->usable && by_half)
            screen_by_half(&b);
        else if (form->usable)
            screen_by_shadow(&b);
        for (size_t r = 0; r < b.n; r++) {
            if (!form->usable)
                b.found.proved[r] = false;
            form->counts.unproved += !b.found.proved[r];
        }
        form->counts.rows += b.n;
    }
}

/* Are n rows left to the exact products? */
static bool
still_waits(struct screen *s, enum screen_way way, size_t n)
{
    struct screen_form *form = way == SCREEN_HALF ? &s->half : &s->shadow;

    if (!s->waits || form->ready || form->waited >= WAITS)
        return false;
    form->waited += n < FEW_ROWS ? ALONE : n;
    return true;
}

bool
screen_rows(struct screen_work *w, struct screen *s, size_t k,
            const float *thresholds, const float *x, size_t ldx, size_t n,
            const struct screen_found *found)
{
    enum screen_way way = way_of(s, n);

    if (way == SCREEN_NOT || still_waits(s, way, n))
        return false;
    screen_rows_by(w, s, way, k, thresholds, x, ldx, n, found);
    return true;
}
