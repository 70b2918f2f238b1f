/*
 * The bound.  u = 2^-24; E is a row of W, F the same row in bf16, b is x in
 * bf16, |.| the Euclidean norm; s is the sum F b as the bf16 class computes it,
 * q the sum E x of the exact class, p = fl(q + bias) what is wanted and
 * p' = fl(s + bias) what is known.
 *
 *   q - s = (q - E x) + (E - F) x + F (x - b) + (F b - s)
 *
 * A sum of products in f32, in any order, by FMA or of products that are exact
 * (those of bf16 are), errs by at most h u / (1 - h u) times the sum of the
 * products' magnitudes, h being the roundings that a product passes through
 * (Higham, Accuracy and Stability, 4.2); and the sum of |E_j x_j| is at most
 * |E||x| (Cauchy).  h is at most in + 31 for the lanes of both classes
 * together with what fills them up, or less, and less than in / 256 + 200 for
 * all that adds lanes and parts.  With |E - F| <= r |F|, and |b| <= (1 + 2^-8)
 * |x|:
 *
 *   |q - s| <= |F| (|x - b| + (r + h u (1 + 2^-6)) |x|) + T
 *
 * T is what is lost to denormals, which hardware may take for 0 on the way in
 * and out: less than 2^-126 (256 (|b| + |F|) + 2^18).  HEADROOM roundings more
 * than there are give more than T where |x| is 2^-40 or more, and |F| is taken
 * for 2^-40 or more.  Nothing overflows up to 2^60, with biases up to 2^100.
 * a(x) |F|, where a is the parenthesis times 1 + MARGIN, hence bounds |q - s|
 * by a wide margin for what the norms, which are f32 sums, lose (2^-17), and
 * for u |p'| where |p'| < a |F|.
 *
 * What is kept is U = fl(p' + a |F|), by one FMA.  Rounding is monotonic, so
 *
 *   U <= 0:  p <= 0, as then p' (1 - u) + |q - s| <= 0
 *   U > 0:   p <= U (1 + 4 u), and p >= U (1 - 8 u) - a |F| (2 + 4 u)
 *
 * The rows of W with the largest U are kept.  The k-th largest of their lower
 * bounds is at most the k-th largest p.  No row that was dropped is among the
 * k largest if the smallest U that was kept is under that, by its own upper
 * bound; and of the kept ones only those can be that reach it.
 * test/unit/screen.c hunts for violations.
 */
#include "core/kernel/screen.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/kernel/cvt.h"
#include "core/kernel/ops.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "core/mem.h"

#define MAX_IN   65536
#define HEADROOM 256
#define MARGIN   0x1p-10
#define MIN_NORM 0x1p-40
#define MAX_NORM 0x1p60
#define MAX_BIAS 0x1p100
#define MAX_LOSS 0x1p-7 /* r; bf16 loses half of it */

#define ROWS     512 /* of x at once: gemm_bf16() reads W once for as many */
#define FEW_ROWS 8   /* read W once by gemm_exact(), too */
#define PART     1024

struct screen {
    struct gemm_matrix w;
    const float *bias;
    struct gemm_panels panels;
    float *norm; /* [n] |F|, rounded up; MIN_NORM at least */
    float *lost; /* [n] |E - F| / |F| */
    double loss; /* r */
    bool ready, usable;
    struct screen_counts counts;
    void *memory;
    size_t nbytes;
};

/* ---- a matrix ---- */

static void
arrays_of(struct mem_array *arrays, struct screen *s,
          const struct gemm_matrix *w)
{
    arrays[0] =
        (struct mem_array){ &s->panels.data, 1,
                            gemm_packed_nbytes(GEMM_BF16, w->n, w->k), 1 };
    arrays[1] = (struct mem_array){ &s->norm, w->n, 1, sizeof(*s->norm) };
    arrays[2] = (struct mem_array){ &s->lost, w->n, 1, sizeof(*s->lost) };
}

size_t
screen_nbytes(const struct gemm_matrix *w)
{
    struct screen s = { 0 };
    struct mem_array arrays[3];
    size_t nbytes;

    arrays_of(arrays, &s, w);
    return mem_arrays_nbytes(arrays, 3, &nbytes) ? nbytes : SIZE_MAX;
}

int
screen_open(struct screen **screen, const struct gemm_matrix *w,
            const float *bias, struct err *err)
{
    struct screen *s = xcalloc(1, sizeof(*s));
    struct mem_array arrays[3];

    *screen = NULL;
    s->w = *w;
    s->bias = bias;
    s->panels.class = GEMM_BF16;
    arrays_of(arrays, s, w);
    s->memory = mem_arrays(arrays, 3, &s->nbytes, "a packed encoder", err);
    if (!s->memory) {
        free(s);
        return -1;
    }
    *screen = s;
    return 0;
}

void
screen_close(struct screen *s)
{
    if (!s)
        return;
    mem_big_free(s->memory, s->nbytes, 1);
    free(s);
}

static void
find_norms(void *ctx, size_t begin, size_t end, int thread)
{
    struct screen *s = ctx;
    const struct gemm_matrix *w = &s->w;
    float e[PART], f[PART];
    uint16_t half[PART];

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        double all = 0, lost = 0, norm;

        for (size_t c = 0, n; c < w->k; c += n) {
            n = smaller(w->k - c, PART);
            cvt_to_f32(e,
                       (const char *)w->data +
                           (i * w->k + c) * weight_nbytes(w->dtype),
                       w->dtype, n);
            if (w->dtype != DT_BF16) {
                cvt_from_f32(half, DT_BF16, e, n);
                cvt_to_f32(f, half, DT_BF16, n);
                for (size_t j = 0; j < n; j++)
                    e[j] -= f[j]; /* exact */
                lost += (double)vec_dot(e, e, n);
                memcpy(e, f, sizeof(e));
            }
            all += (double)vec_dot(e, e, n);
        }
        norm = fmax(sqrt(all) * (1 + 0x1p-16), MIN_NORM);
        norm = isnan(all) ? INFINITY : norm;
        s->norm[i] = (float)(norm * (1 + 0x1p-20));
        s->lost[i] = (float)(sqrt(lost) / norm);
    }
}

/* The packed copy, the norms, and whether the bound holds for them. */
static void
prepare(struct screen *s, struct gemm *gemm)
{
    s->ready = true;
    s->usable = true;
    par_for(gemm_par(gemm), s->w.n, 64, find_norms, s);
    for (size_t i = 0; i < s->w.n; i++) {
        s->usable &= s->norm[i] <= MAX_NORM && s->lost[i] <= MAX_LOSS &&
                     fabsf(s->bias[i]) <= MAX_BIAS;
        s->loss = fmax(s->loss, (double)s->lost[i] * (1 + 0x1p-10));
    }
    if (s->usable)
        gemm_pack(gemm, &s->panels, &s->w);
}

/* ---- does it pay? ---- */

enum { PROBE_M = 32, PROBE_K = 256, PROBE_RUNS = 4 };

/*
 * Is this CPU's bf16 product of a panel, which stays in the cache, faster than
 * the exact one by enough for all that comes after it?  AMX is 10 times, and
 * AVX512-BF16 from 0.5 (Sapphire Rapids) to 2 times (Zen).
 */
static bool
is_bf16_fast(void)
{
    const struct gemm_bf16_ops *bf16 = gemm_bf16_ops_of(cpu_isa());
    const size_t ld = gemm_ld_bf16(PROBE_K);
    double s[2] = { INFINITY, INFINITY };
    struct gemm_block b = { .ldt = GEMM_PANEL,
                            .w_dtype = DT_F32,
                            .rows = GEMM_PANEL,
                            .ldx = PROBE_K,
                            .m = PROBE_M,
                            .k = PROBE_K };
    uint16_t *half, *panel;
    float *x;
    struct mem_array arrays[] = {
        { &b.t, PROBE_M, GEMM_PANEL, sizeof(float) },
        { &b.w, GEMM_PANEL, PROBE_K, sizeof(float) },
        { &x, PROBE_M, PROBE_K, sizeof(float) },
        { &half, PROBE_M, ld, sizeof(*half) },
        { &panel, GEMM_PANEL, PROBE_K, sizeof(*panel) },
    };
    size_t nbytes;
    struct err err;
    void *memory = mem_arrays(arrays, sizeof(arrays) / sizeof(*arrays), &nbytes,
                              "a probe", &err);

    if (!memory)
        return false;
    b.x = x;
    for (int i = 0; i < 2 * PROBE_RUNS; i++) {
        double from = clock_s();

        if (i % 2 == 0)
            gemm_ops_of(cpu_isa())->exact(&b);
        else
            bf16->product(b.t, half, ld, panel, PROBE_M, PROBE_K, false);
        s[i % 2] = fmin(s[i % 2], clock_s() - from);
    }
    mem_big_free(memory, nbytes, 1);
    return s[0] > 1.5 * s[1];
}

static pthread_once_t probe_once = PTHREAD_ONCE_INIT;
static bool is_fast;

static void
probe(void)
{
    is_fast = gemm_bf16_is_native() && is_bf16_fast();
}

bool
screen_pays(const struct screen *s, size_t n)
{
    const struct screen_counts *c = &s->counts;

    if (n < FEW_ROWS || s->w.k > MAX_IN || (s->ready && !s->usable) ||
        (c->rows >= ROWS && c->unproved > c->rows / 2))
        return false;
    pthread_once(&probe_once, probe);
    return is_fast;
}

struct screen_counts
screen_counts(const struct screen *s)
{
    return s->counts;
}

/* ---- the workspace ---- */

struct screen_work {
    struct gemm *gemm;
    size_t in, k, threads;
    struct topk *top;  /* [threads, ROWS] of U */
    uint64_t *keys;    /* [threads, ROWS, topk_cap(n_kept(k))] */
    uint64_t *scratch; /* [threads, topk_cap(n_kept(k))] */
    uint64_t *key;     /* [threads, topk_cap(k)] */
    uint32_t *idx;     /* [threads, 2, n_kept(k)] */
    float *v;          /* [threads, 2, n_kept(k)] */
    uint16_t *half;    /* [ROWS, gemm_ld_bf16(in)] x in bf16 */
    float *slack;      /* [ROWS] a(x); 0: the row cannot be proved */
    void *memory;
    size_t nbytes;
};

/* What the threads share in one batch. */
struct screen_batch {
    struct screen_work *w;
    const struct screen *s;
    const struct vec_ops *ops;
    size_t k, kept, ldx, n;
    const float *x;
    struct screen_found found;
};

/* More rows of W than are wanted, so that the bound's width seldom matters:
 * trained and random encoders need 1.4 k, 2.1 k for k = 256 of 32768. */
static size_t
n_kept(size_t k)
{
    return 2 * k + 48;
}

int
screen_work_open(struct screen_work **work, struct gemm *gemm, size_t in,
                 size_t k, struct err *err)
{
    struct screen_work *w = xcalloc(1, sizeof(*w));
    size_t threads = (size_t)par_threads(gemm_par(gemm));
    size_t cap = topk_cap(n_kept(k));
    const struct mem_array arrays[] = {
        { &w->top, threads, ROWS, sizeof(*w->top) },
        { &w->keys, threads * ROWS, cap, sizeof(*w->keys) },
        { &w->scratch, threads, cap, sizeof(*w->scratch) },
        { &w->key, threads, topk_cap(k), sizeof(*w->key) },
        { &w->idx, threads * 2, n_kept(k), sizeof(*w->idx) },
        { &w->v, threads * 2, n_kept(k), sizeof(*w->v) },
        { &w->half, ROWS, gemm_ld_bf16(in), sizeof(*w->half) },
        { &w->slack, ROWS, 1, sizeof(*w->slack) },
    };

    w->gemm = gemm;
    w->in = in;
    w->k = k;
    w->threads = threads;
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

/* a(x), or 0 where it is not known to be enough. */
static float
slack_of(const struct screen *s, const float *x, const uint16_t *half)
{
    const struct gemm_ops *ops = gemm_ops_of(cpu_isa());
    double all = 0, lost = 0, roundings;
    float rest[PART];

    for (size_t c = 0, n; c < s->w.k; c += n) {
        n = smaller(s->w.k - c, PART);
        ops->rest(rest, x + c, half + c, n);
        all += (double)vec_dot(x + c, x + c, n);
        lost += (double)vec_dot(rest, rest, n);
    }
    all = sqrt(all) * (1 + 0x1p-16);
    lost = sqrt(lost) * (1 + 0x1p-16);
    if (!(all >= 2 * MIN_NORM && all <= MAX_NORM))
        return 0; /* NaN, too */
    roundings = (double)s->w.k * (1 + 0x1p-8) + 231 + HEADROOM;
    return (
        float)((lost + (s->loss + roundings * 0x1p-24 * (1 + 0x1p-6)) * all) *
               (1 + MARGIN));
}

static void
start_rows(void *ctx, size_t begin, size_t end, int thread)
{
    const struct screen_batch *b = ctx;
    struct screen_work *w = b->w;
    size_t cap = topk_cap(n_kept(w->k));

    (void)thread;
    for (size_t i = begin; i < end; i++) {
        w->slack[i] = slack_of(b->s, b->x + i * b->ldx,
                               w->half + i * gemm_ld_bf16(b->s->w.k));
        for (size_t t = 0; t < w->threads; t++)
            topk_start(&w->top[t * ROWS + i], w->keys + (t * ROWS + i) * cap,
                       w->scratch + t * cap, b->kept);
    }
}

/* Offers U of a block: see struct gemm_end. */
static void
offer(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
      size_t n_cols, int thread)
{
    const struct screen_batch *b = ctx;
    const struct screen *s = b->s;
    const struct vec_ops *ops = b->ops;
    struct topk *top = b->w->top + (size_t)thread * ROWS + row;

    for (size_t i = 0; i < n_rows; i++) {
        if (b->w->slack[row + i] <= 0)
            continue;
        ops->add(t + i * ldt, s->bias + col, n_cols);
        ops->axpy(t + i * ldt, b->w->slack[row + i], s->norm + col, n_cols);
        topk_put(&top[i], t + i * ldt, (uint32_t)col, n_cols);
    }
}

/* What p is at most and at least, of a U over 0. */
static double
most_of(float u)
{
    return (double)u * (1 + 0x1p-22);
}

static double
least_of(float u, float a, float norm)
{
    return (double)u * (1 - 0x1p-20) - (double)a * (double)norm * (2 + 0x1p-10);
}

/*
 * The k-th largest of the lower bounds of n kept rows of W, or 0 if fewer are
 * over 0.  low, at [n] are scratch.
 */
static double
lower_kth(const struct screen_batch *b, float a, const uint32_t *idx,
          const float *u, size_t n, float *low, uint32_t *at, struct topk *top)
{
    double least = INFINITY;
    size_t n_low;

    for (size_t j = 0; j < n; j++)
        low[j] = (float)least_of(u[j], a, b->s->norm[idx[j]]);
    topk_put(top, low, 0, n);
    n_low = topk_take(top, at, low);
    for (size_t j = 0; j < n_low; j++)
        least = fmin(least, (double)low[j]);
    return n_low < b->k ? 0 : least;
}

static void
settle_row(struct screen_batch *b, size_t i, size_t thread)
{
    struct screen_work *w = b->w;
    const struct screen *s = b->s;
    size_t cap = topk_cap(n_kept(w->k)), n, m = 0;
    uint64_t *key = w->key + thread * topk_cap(w->k);
    uint64_t *room = w->scratch + thread * cap;
    uint32_t *idx = w->idx + thread * 2 * n_kept(w->k);
    float *u = w->v + thread * 2 * n_kept(w->k), *p = u + n_kept(w->k);
    uint32_t *to = b->found.idx + i * b->found.ld;
    struct topk *all = &w->top[i], top;
    double least = INFINITY, kth;

    b->found.proved[i] = false;
    if (w->slack[i] <= 0)
        return;
    all->room = room;
    for (size_t t = 1; t < w->threads; t++)
        topk_add(all, &w->top[t * ROWS + i]);
    n = topk_take(all, idx, u);
    topk_start(&top, key, room, b->k);
    kth = lower_kth(b, w->slack[i], idx, u, n, p, idx + n_kept(w->k), &top);
    for (size_t j = 0; j < n; j++) {
        double most = most_of(u[j]);

        least = fmin(least, most);
        if (most >= kth)
            idx[m++] = idx[j];
    }
    if (all->bad || (n == b->kept && n < s->w.n && !(least < kth)))
        return;
    gemv_ops_of(cpu_isa())->rows(&(struct gemv_rows){
        .y = p,
        .w = s->w.data,
        .idx = idx,
        .x = b->x + i * b->ldx,
        .n = m,
        .cols = s->w.k,
        .w_dtype = s->w.dtype,
    });
    for (size_t j = 0; j < m; j++)
        p[j] += s->bias[idx[j]];
    topk_start(&top, key, room, b->k);
    topk_put(&top, p, 0, m);
    b->found.n[i] = topk_take(&top, to, b->found.v + i * b->found.ld);
    for (size_t j = 0; j < b->found.n[i]; j++)
        to[j] = idx[to[j]];
    b->found.proved[i] = !top.bad;
}

static void
settle_rows(void *ctx, size_t begin, size_t end, int thread)
{
    for (size_t i = begin; i < end; i++)
        settle_row(ctx, i, (size_t)thread);
}

static void
top_of_batch(struct screen_batch *b)
{
    struct screen_work *w = b->w;
    const struct gemm_matrix *m = &b->s->w;
    const struct gemm_job job = {
        .w = *m,
        .panels = &b->s->panels,
        .end = { .hook = offer, .ctx = b },
    };
    struct par *par = gemm_par(w->gemm);

    gemm_to_bf16(w->gemm, w->half, b->x, b->ldx, b->n, m->k);
    par_for(par, b->n, 4, start_rows, b);
    gemm_bf16(w->gemm, &job, 1, w->half, NULL, gemm_ld_bf16(m->k), b->n);
    par_for(par, b->n, 1, settle_rows, b);
}

void
screen_top(struct screen_work *w, struct screen *s, size_t k, const float *x,
           size_t ldx, size_t n, const struct screen_found *found)
{
    if (!s->ready)
        prepare(s, w->gemm);
    for (size_t i = 0; i < n; i += ROWS) {
        struct screen_batch b = {
            .w = w,
            .s = s,
            .ops = vec_ops_of(cpu_isa()),
            .k = k,
            .kept = n_kept(k),
            .ldx = ldx,
            .n = smaller(n - i, ROWS),
            .x = x + i * ldx,
            .found = { found->idx + i * found->ld, found->v + i * found->ld,
                       found->n + i, found->proved + i, found->ld },
        };

        if (s->usable)
            top_of_batch(&b);
        for (size_t r = 0; r < b.n; r++) {
            b.found.proved[r] &= s->usable;
            s->counts.unproved += !b.found.proved[r];
        }
        s->counts.rows += b.n;
    }
}
