/* SPDX-License-Identifier: ISC */
/* Products against sums in float64, on every instruction set. */
#include "core/kernel/gemm.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/ops.h"
#include "core/le.h"
#include "core/mem.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

/* Sizes about the kernels' edges: panels of 64, tiles of 4, 6, 16, 32 rows,
 * parts of k, gemm_exact()'s 48 rows of X, and 6144 outputs by k at once,
 * gemm_int8()'s panels at once. */
static const struct shape {
    size_t m, n, k;
} shapes[] = {
    { 1, 1, 1 },      { 0, 5, 7 },      { 5, 0, 7 },      { 3, 5, 0 },
    { 2, 3, 2 },      { 4, 64, 32 },    { 5, 65, 33 },    { 6, 63, 31 },
    { 7, 4, 15 },     { 8, 31, 16 },    { 9, 33, 17 },    { 11, 7, 48 },
    { 12, 2, 1023 },  { 13, 3, 1024 },  { 15, 66, 1025 }, { 16, 16, 2048 },
    { 17, 5, 2111 },  { 31, 67, 64 },   { 32, 128, 96 },  { 33, 129, 63 },
    { 63, 10, 65 },   { 64, 100, 128 }, { 70, 70, 70 },   { 530, 9, 40 },
    { 3, 1400, 4 },   { 48, 700, 3 },   { 49, 70, 3 },    { 50, 69, 3100 },
    { 29, 1100, 68 }, { 4, 6160, 9 },
};
#define N_EDGES (sizeof(shapes) / sizeof(*shapes))

/* Then rows of every k and every n up to 70: what is left of them after whole
 * vectors takes every value.  A few, or as many as are not read like one. */
enum { RAMP = 71, N_SHAPES = N_EDGES + RAMP };

static struct shape
shape_of(size_t i)
{
    size_t k = i - N_EDGES;

    return i < N_EDGES
               ? shapes[i]
               : (struct shape){ k % 9 ? k % 3 + 1 : 49, 29 * k % RAMP, k };
}

static bool
too_long(struct shape s)
{
    return tap_slow() && s.m * s.n * s.k > 100000;
}

/* What is done to the sums. */
enum { NOTHING, BIAS, ACCUMULATE, BOTH };

static int
end_of(size_t i)
{
    return i < N_EDGES ? BOTH : BIAS + (int)(i % 3);
}

struct data {
    struct shape s;
    enum dtype dtype;
    bool by_k;
    char *w;    /* at an odd address */
    double *wv; /* [n, k] what it says */
    float *x, *bias;
    size_t ldw, ldx;
    float *c, *old;
    double *sum, *abs; /* [m, n] of the exact numbers, and of their sizes */
};

static size_t
size_of(enum dtype dtype)
{
    return dtype_size(dtype);
}

static void
put(char *p, enum dtype dtype, float f)
{
    if (dtype == DT_F32)
        put_le32(p, f32_bits(f));
    else if (dtype == DT_I8)
        *p = (char)(int)(f * 127);
    else
        put_le16(p, dtype == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f));
}

static void *
make(size_t n, size_t size)
{
    return xcalloc(n + 1, size);
}

/* gap: how far W's rows are apart. */
static struct data
data_new(struct shape s, enum dtype dtype, bool by_k, size_t gap)
{
    struct data d = { .s = s, .dtype = dtype, .by_k = by_k };
    size_t rows = by_k ? s.k : s.n;

    d.ldw = (by_k ? s.n : s.k) + gap;
    d.ldx = s.k + 5;
    d.w = make(rows * d.ldw * size_of(dtype) + 1, 1);
    d.wv = make(s.n * s.k, sizeof(double));
    d.x = make(s.m * d.ldx, sizeof(float));
    d.bias = make(s.n, sizeof(float));
    d.c = make(s.m * (s.n + 1), sizeof(float));
    d.old = make(s.m * (s.n + 1), sizeof(float));
    for (size_t i = 0; i < rows * d.ldw; i++)
        put(d.w + 1 + i * size_of(dtype), dtype, rnd());
    for (size_t r = 0; r < s.n; r++) {
        d.bias[r] = rnd();
        for (size_t c = 0; c < s.k; c++)
            d.wv[r * s.k + c] =
                dtype_get(dtype, d.w + 1, by_k ? c * d.ldw + r : r * d.ldw + c);
    }
    for (size_t i = 0; i < s.m * d.ldx; i++)
        d.x[i] = rnd();
    for (size_t i = 0; i < s.m * (s.n + 1); i++)
        d.c[i] = d.old[i] = rnd();
    d.sum = make(s.m * s.n, sizeof(double));
    d.abs = make(s.m * s.n, sizeof(double));
    return d;
}

static void
data_free(struct data *d)
{
    free(d->w);
    free(d->wv);
    free(d->x);
    free(d->bias);
    free(d->c);
    free(d->old);
    free(d->sum);
    free(d->abs);
}

/* What C should be, of x as it is or in bf16. */
static void
reference(struct data *d, bool exact)
{
    double *x = make(d->s.k, sizeof(*x));

    for (size_t i = 0; i < d->s.m; i++) {
        const float *row = d->x + i * d->ldx;

        for (size_t c = 0; c < d->s.k; c++)
            x[c] = (double)(exact ? row[c] : bf16_to_f32(f32_to_bf16(row[c])));
        for (size_t r = 0; r < d->s.n; r++) {
            double sum = 0, abs = 0;

            for (size_t c = 0; c < d->s.k; c++) {
                double p = d->wv[r * d->s.k + c] * x[c];

                sum += p;
                abs += fabs(p);
            }
            d->sum[i * d->s.n + r] = sum;
            d->abs[i * d->s.n + r] = abs;
        }
    }
    free(x);
}

static struct gemm_job
job_of(const struct data *d, int end)
{
    return (struct gemm_job){
        .w = { .weight = { .data = d->w + 1, .dtype = d->dtype, .ld = d->ldw },
               .n = d->s.n,
               .k = d->s.k,
               .by_k = d->by_k },
        .c = d->c,
        .ldc = d->s.n + 1,
        .end = { .bias = end & BIAS ? d->bias : NULL,
                 .accumulate = (end & ACCUMULATE) != 0 },
    };
}

/* Is C the reference within 'per_term' of the sum of sizes, and nothing
 * beside it touched? */
static bool
near(const struct data *d, int end, double per_term)
{
    size_t n = d->s.n, ldc = n + 1;

    for (size_t i = 0; i < d->s.m; i++) {
        for (size_t r = 0; r < n; r++) {
            double want = d->sum[i * n + r], got = (double)d->c[i * ldc + r];
            double bound = per_term * d->abs[i * n + r];

            if (end) {
                want += end & BIAS ? (double)d->bias[r] : 0;
                want += end & ACCUMULATE ? (double)d->old[i * ldc + r] : 0;
                bound += 4 * 0x1p-23;
            }
            if (!(fabs(got - want) <= bound))
                return false;
        }
        if (f32_bits(d->c[i * ldc + n]) != f32_bits(d->old[i * ldc + n]))
            return false;
    }
    return true;
}

static void
restore(struct data *d)
{
    memcpy(d->c, d->old, d->s.m * (d->s.n + 1) * sizeof(float));
}

/* Every output has the gemv kernels' bits for its two rows. */
static bool
as_gemv(const struct data *d)
{
    const struct gemv_ops *ops = gemv_ops_of(cpu_isa());
    size_t size = size_of(d->dtype), by_k = d->by_k;
    char *row = make(d->s.k, size);
    bool good = true;

    for (size_t r = 0; r < d->s.n; r++) {
        for (size_t c = 0; c < d->s.k; c++)
            memcpy(row + c * size,
                   d->w + 1 + (by_k ? c * d->ldw + r : r * d->ldw + c) * size,
                   size);
        for (size_t i = 0; i < d->s.m; i++) {
            float y;

            ops->gemv(&(struct gemv_args){ &y, row, d->x + i * d->ldx, 1,
                                           d->ldx, 1, d->s.k, 1, d->dtype,
                                           false, 0 });
            good &= f32_bits(y) == f32_bits(d->c[i * (d->s.n + 1) + r]);
        }
    }
    free(row);
    return good;
}

static void
test_exact(struct gemm *g, enum dtype dtype, bool by_k, size_t gap)
{
    const char *how = by_k ? " by_k" : gap ? "" : " without gaps";
    bool good = true, same = true, ended = true;

    for (size_t i = 0; i < N_SHAPES; i++) {
        if (too_long(shape_of(i)))
            continue;

        struct data d = data_new(shape_of(i), dtype, by_k, gap);
        struct gemm_job plain = job_of(&d, NOTHING),
                        end = job_of(&d, end_of(i));
        double k = (double)d.s.k + 1;

        reference(&d, true);
        gemm_exact(g, &plain, 1, d.x, d.ldx, d.s.m);
        good &= near(&d, NOTHING, k * 0x1p-24);
        same &= as_gemv(&d);
        restore(&d);
        gemm_exact(g, &end, 1, d.x, d.ldx, d.s.m);
        ended &= near(&d, end_of(i), k * 0x1p-23);
        if (!good || !same || !ended)
            printf("# %zu x %zu x %zu\n", d.s.m, d.s.n, d.s.k);
        data_free(&d);
    }
    tap_ok(good, "gemm_exact %s%s: every shape within (k + 1) 2^-24",
           dtype_table[dtype].name, how);
    tap_ok(same, "gemm_exact %s%s: gemv's bits", dtype_table[dtype].name, how);
    tap_ok(ended, "gemm_exact %s%s: + bias + C", dtype_table[dtype].name, how);
}

static uint16_t *
rounded(struct gemm *g, const struct data *d, uint16_t **lo)
{
    size_t ld = gemm_ld_bf16(d->s.k);
    uint16_t *x = make(d->s.m * ld, 2);

    if (lo) {
        *lo = make(d->s.m * ld, 2);
        gemm_split(g, x, *lo, d->x, d->ldx, d->s.m, d->s.k);
    } else {
        gemm_to_bf16(g, x, d->x, d->ldx, d->s.m, d->s.k);
    }
    return x;
}

/* The weights as bf16 holds them. */
static void
round_weights(struct data *d)
{
    for (size_t i = 0; i < d->s.n * d->s.k; i++)
        d->wv[i] = (double)bf16_to_f32(f32_to_bf16((float)d->wv[i]));
}

static struct gemm_panels
packed(struct gemm *g, enum gemm_class class, const struct gemm_matrix *w)
{
    struct gemm_panels p = { .class = class };
    size_t nbytes = gemm_packed_nbytes(class, w->n, w->k);

    p.data = aligned_alloc(64, (nbytes + 127) / 64 * 64);
    gemm_pack(g, &p, w);
    return p;
}

/* Sums that are only looked at take another way to C. */
static void
look(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
     size_t n_cols, int thread)
{
    (void)ctx, (void)t, (void)ldt, (void)row, (void)n_rows, (void)col;
    (void)n_cols, (void)thread;
}

static void
test_bf16(struct gemm *g, enum dtype dtype, bool by_k, bool split, size_t from)
{
    bool good = true, ended = true, same = true;

    for (size_t i = from; i < N_SHAPES; i++) {
        if (too_long(shape_of(i)))
            continue;

        struct data d = data_new(shape_of(i), dtype, by_k, 3);
        struct gemm_job plain = job_of(&d, NOTHING),
                        end = job_of(&d, end_of(i));
        struct gemm_panels p = packed(g, GEMM_BF16, &plain.w);
        size_t ld = gemm_ld_bf16(d.s.k), n = d.s.m * (d.s.n + 1);
        uint16_t *lo = NULL, *x = rounded(g, &d, split ? &lo : NULL);
        float *first = make(n, sizeof(*first));
        double k = (double)d.s.k + 1;

        round_weights(&d);
        reference(&d, split);
        gemm_bf16(g, &plain, 1, x, lo, ld, d.s.m);
        good &= near(&d, NOTHING, k * 0x1p-24 + (split ? 0x1p-17 : 0));
        memcpy(first, d.c, n * sizeof(*first));
        restore(&d);
        plain.panels = &p;
        gemm_bf16(g, &plain, 1, x, lo, ld, d.s.m);
        same &= !memcmp(first, d.c, n * sizeof(*first));
        restore(&d);
        plain.end.hook = look;
        gemm_bf16(g, &plain, 1, x, lo, ld, d.s.m);
        same &= !memcmp(first, d.c, n * sizeof(*first));
        restore(&d);
        gemm_bf16(g, &end, 1, x, lo, ld, d.s.m);
        ended &= near(&d, end_of(i), k * 0x1p-23 + (split ? 0x1p-17 : 0));
        memcpy(first, d.c, n * sizeof(*first));
        end.panels = &p;
        if (i >= N_EDGES) {
            restore(&d);
            gemm_bf16(g, &end, 1, x, lo, ld, d.s.m);
        }
        same &= !memcmp(first, d.c, n * sizeof(*first));
        if (!good || !same || !ended)
            printf("# %zu x %zu x %zu\n", d.s.m, d.s.n, d.s.k);
        free(p.data);
        free(first);
        free(x);
        free(lo);
        data_free(&d);
    }
    tap_ok(good, "gemm_bf16 %s%s%s: every shape near the f64 sum",
           dtype_table[dtype].name, by_k ? " by_k" : "", split ? " split" : "");
    tap_ok(same, "gemm_bf16 %s%s%s: packed before or looked at, the same bits",
           dtype_table[dtype].name, by_k ? " by_k" : "", split ? " split" : "");
    tap_ok(ended, "gemm_bf16 %s%s%s: + bias + C", dtype_table[dtype].name,
           by_k ? " by_k" : "", split ? " split" : "");
}

/* Few rows of X by whole panels of weights: sums that go to C, or are added to
 * it, with no copy between. */
static void
test_few(struct gemm *g)
{
    static const struct shape few[] = {
        { 1, 64, 32 },     { 15, 64, 96 },  { 16, 128, 64 },  { 17, 64, 1056 },
        { 32, 192, 1024 }, { 33, 64, 512 }, { 48, 128, 544 }, { 63, 64, 2048 },
        { 64, 192, 1600 }, { 65, 64, 64 },
    };
    bool good = true, same = true;

    for (size_t i = 0; i < sizeof(few) / sizeof(*few); i++)
        for (int end = NOTHING; end <= ACCUMULATE; end += ACCUMULATE) {
            struct data d = data_new(few[i], DT_BF16, false, 3);
            struct gemm_job job = job_of(&d, end);
            struct gemm_panels p = packed(g, GEMM_BF16, &job.w);
            size_t ld = gemm_ld_bf16(d.s.k), n = d.s.m * (d.s.n + 1);
            uint16_t *x = rounded(g, &d, NULL);
            float *first = make(n, sizeof(*first));

            reference(&d, false);
            gemm_bf16(g, &job, 1, x, NULL, ld, d.s.m);
            good &= near(&d, end, (double)(d.s.k + 1) * 0x1p-23);
            memcpy(first, d.c, n * sizeof(*first));
            restore(&d);
            job.panels = &p;
            gemm_bf16(g, &job, 1, x, NULL, ld, d.s.m);
            same &= !memcmp(first, d.c, n * sizeof(*first));
            free(p.data);
            free(first);
            free(x);
            data_free(&d);
        }
    tap_ok(good, "gemm_bf16 of few rows: near the f64 sum, + C");
    tap_ok(same, "gemm_bf16 of few rows: packed before, the same bits");
}

/* int8: sums are exact, so C is what f64 makes of the same integers. */
static void
reference_int8(struct data *d, const int8_t *x, const float *x_scale,
               const float *scale)
{
    size_t ld = gemm_ld_int8(d->s.k);

    for (size_t i = 0; i < d->s.m; i++)
        for (size_t r = 0; r < d->s.n; r++) {
            double sum = 0;

            for (size_t c = 0; c < d->s.k; c++)
                sum += d->wv[r * d->s.k + c] * x[i * ld + c];
            sum *= (double)x_scale[i] * (double)scale[r];
            d->sum[i * d->s.n + r] = sum;
            d->abs[i * d->s.n + r] = fabs(sum);
        }
}

static void
test_int8(struct gemm *g, bool by_k)
{
    bool good = true, same = true, ended = true;

    for (size_t i = 0; i < N_SHAPES; i++) {
        if (too_long(shape_of(i)))
            continue;

        struct data d = data_new(shape_of(i), DT_I8, by_k, 3);
        struct gemm_job plain = job_of(&d, NOTHING),
                        end = job_of(&d, end_of(i));
        struct gemm_panels p = packed(g, GEMM_INT8, &plain.w);
        size_t n = d.s.m * (d.s.n + 1), ld = gemm_ld_int8(d.s.k);
        int8_t *x = make(d.s.m * ld, 1);
        float *x_scale = make(d.s.m, sizeof(float));
        float *scale = make(d.s.n, sizeof(float));
        float *first = make(n, sizeof(*first));

        for (size_t r = 0; r < d.s.n; r++)
            scale[r] = by_k ? 1 : rnd();
        plain.w.weight.scale = end.w.weight.scale = p.scale = scale;
        gemm_to_int8(g, x, x_scale, d.x, d.ldx, d.s.m, d.s.k);
        reference_int8(&d, x, x_scale, scale);
        gemm_x_int8(g, x, x_scale, d.x, DT_F32, d.ldx, d.s.m, d.s.k);
        gemm_int8(g, &plain, 1, x, x_scale, ld, d.s.m);
        good &= near(&d, NOTHING, 0x1p-22);
        memcpy(first, d.c, n * sizeof(*first));
        restore(&d);
        plain.panels = &p;
        gemm_int8(g, &plain, 1, x, x_scale, ld, d.s.m);
        same &= !memcmp(first, d.c, n * sizeof(*first));
        restore(&d);
        gemm_int8(g, &end, 1, x, x_scale, ld, d.s.m);
        ended &= near(&d, end_of(i), 0x1p-22);
        memcpy(first, d.c, n * sizeof(*first));
        end.panels = &p;
        if (i >= N_EDGES) {
            restore(&d);
            gemm_int8(g, &end, 1, x, x_scale, ld, d.s.m);
        }
        same &= !memcmp(first, d.c, n * sizeof(*first));
        if (!good || !same || !ended)
            printf("# %zu x %zu x %zu\n", d.s.m, d.s.n, d.s.k);
        free(p.data);
        free(x);
        free(x_scale);
        free(scale);
        free(first);
        data_free(&d);
    }
    tap_ok(good, "gemm_int8%s: every shape is the exact sum, rescaled",
           by_k ? " by_k" : "");
    tap_ok(same, "gemm_int8%s: packed before, the same bits",
           by_k ? " by_k" : "");
    tap_ok(ended, "gemm_int8%s: + bias + C", by_k ? " by_k" : "");
}

/* Each row by itself: scale absmax / 127, every value within half a step. */
static void
test_quantize(struct gemm *g)
{
    float x[4][70], scale[4];
    int8_t q[4][192]; /* gemm_ld_int8(70) */
    bool good = true;

    for (size_t i = 0; i < 70; i++) {
        x[0][i] = rnd();
        x[1][i] = 0;
        x[2][i] = i == 69 ? NAN : 1;
        x[3][i] = i == 69 ? 1e-40f : 0;
    }
    x[0][5] = -3;
    gemm_to_int8(g, q[0], scale, x[0], 70, 4, 70);
    for (size_t i = 0; i < 70; i++)
        good &=
            fabsf((float)q[0][i] * scale[0] - x[0][i]) <= scale[0] * 0.5001f;
    tap_ok(good && scale[0] == 3.f / 127 && q[0][5] == -127,
           "gemm_to_int8: nearest, absmax / 127");
    tap_ok(scale[1] == 0 && q[1][3] == 0 && q[0][70] == 0,
           "gemm_to_int8: a row of zeros, and zeros behind a row");
    tap_ok(isnan(scale[2]), "gemm_to_int8: a NaN is not lost");
    /* 127 / absmax is infinite, and infinity * 0 is no number */
    tap_ok(q[3][0] == 0 && q[3][69] == 0,
           "gemm_to_int8: a row of numbers under 2^-121 is zeros");
}

static void
count(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
      size_t n_cols, int thread)
{
    atomic_uchar *seen = ctx; /* two matrices', at once */

    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_cols; j++) {
            seen[(row + i) * 130 + col + j]++;
            t[i * ldt + j] = -t[i * ldt + j];
        }
}

/* Several matrices a call, a hook, no C, and any number of threads. */
static void
test_jobs(struct gemm *g, const char *threads, size_t gap)
{
    struct data a =
        data_new((struct shape){ 37, 130, 70 }, DT_BF16, false, gap);
    struct data b = data_new((struct shape){ 37, 3, 70 }, DT_F16, false, gap);
    struct gemm_job jobs[3] = { job_of(&a, NOTHING), job_of(&b, BOTH),
                                job_of(&a, NOTHING) };
    static atomic_uchar seen[37 * 130];
    bool once = true;

    for (size_t i = 0; i < 37 * 130; i++)
        seen[i] = 0;
    jobs[0].end.hook = jobs[2].end.hook = count;
    jobs[0].end.ctx = jobs[2].end.ctx = seen;
    jobs[2].c = NULL;
    reference(&a, true);
    memcpy(b.x, a.x, 37 * a.ldx * sizeof(float));
    reference(&b, true);
    gemm_exact(g, jobs, 3, a.x, a.ldx, 37);
    for (size_t i = 0; i < 37 * 130; i++)
        once &= seen[i] == 2;
    for (size_t i = 0; i < 37 * 130; i++)
        a.sum[i] = -a.sum[i];
    tap_ok(once,
           "gemm, %s threads, gaps of %zu: the hook sees every output once",
           threads, gap);
    tap_ok(near(&a, NOTHING, 71 * 0x1p-24) && near(&b, BOTH, 71 * 0x1p-23),
           "gemm, %s threads, gaps of %zu: three matrices in a call", threads,
           gap);
    data_free(&a);
    data_free(&b);
}

static void
test_threads(struct gemm *one, struct gemm *many, size_t gap)
{
    struct shape s = tap_slow() ? (struct shape){ 130, 20, 90 }
                                : (struct shape){ 530, 200, 1100 };
    struct data d = data_new(s, DT_BF16, false, gap);
    struct gemm_job job = job_of(&d, NOTHING);
    size_t n = d.s.m * (d.s.n + 1), ld = gemm_ld_bf16(d.s.k);
    float *first = make(n, sizeof(*first));
    uint16_t *x = rounded(one, &d, NULL);

    gemm_exact(one, &job, 1, d.x, d.ldx, d.s.m);
    memcpy(first, d.c, n * sizeof(*first));
    restore(&d);
    gemm_exact(many, &job, 1, d.x, d.ldx, d.s.m);
    tap_ok(!memcmp(first, d.c, n * sizeof(*first)),
           "gemm_exact, gap %zu: the same bits for 1 and 3 threads", gap);
    restore(&d);
    for (size_t i = 0, m; i < d.s.m; i += m) {
        m = i % 50 + 1 < d.s.m - i ? i % 50 + 1 : d.s.m - i;
        job.c = d.c + i * job.ldc;
        gemm_exact(many, &job, 1, d.x + i * d.ldx, d.ldx, m);
    }
    tap_ok(!memcmp(first, d.c, n * sizeof(*first)),
           "gemm_exact, gap %zu: the same bits for any cut of X", gap);
    job.c = d.c;
    gemm_bf16(one, &job, 1, x, NULL, ld, d.s.m);
    memcpy(first, d.c, n * sizeof(*first));
    restore(&d);
    for (size_t i = 0, m; i < d.s.m; i += m) {
        m = i % 50 + 1 < d.s.m - i ? i % 50 + 1 : d.s.m - i;
        job.c = d.c + i * job.ldc;
        gemm_bf16(many, &job, 1, x + i * ld, NULL, ld, m);
    }
    tap_ok(!memcmp(first, d.c, n * sizeof(*first)),
           "gemm_bf16: the same bits for any cut of X and 3 threads");
    free(first);
    free(x);
    data_free(&d);
}

/* A C of more than gemm_packed.c's STREAM_FLOATS, and by a few rows at a time.
 */
static void
test_streamed(struct gemm *g)
{
    const struct shape s = { 520, 2027, 20 };
    const size_t ldc = 2048, ld = gemm_ld_bf16(s.k), ld8 = gemm_ld_int8(s.k);
    struct data d = data_new(s, DT_BF16, false, 0);
    struct data d8 = data_new(s, DT_I8, false, 0);
    struct gemm_job job = job_of(&d, NOTHING), job8 = job_of(&d8, NOTHING);
    uint16_t *x = make(s.m * ld, sizeof(*x));
    int8_t *x8 = make(s.m * ld8, sizeof(*x8));
    float *x_scale = make(s.m, sizeof(*x_scale));
    float *c[4];
    struct err err;

    job8.w.weight.scale = d8.bias;
    gemm_to_bf16(g, x, d.x, d.ldx, s.m, s.k);
    gemm_x_int8(g, x8, x_scale, d.x, DT_F32, d.ldx, s.m, s.k);
    for (int i = 0; i < 4; i++)
        c[i] = mem_big(s.m * ldc, sizeof(float), "C", &err);
    job.ldc = job8.ldc = ldc;
    job.c = c[0];
    gemm_bf16(g, &job, 1, x, NULL, ld, s.m);
    job8.c = c[1];
    gemm_int8(g, &job8, 1, x8, x_scale, ld8, s.m);
    for (size_t i = 0; i < s.m; i += 40) {
        job.c = c[2] + i * ldc;
        gemm_bf16(g, &job, 1, x + i * ld, NULL, ld, 40);
        job8.c = c[3] + i * ldc;
        gemm_int8(g, &job8, 1, x8 + i * ld8, x_scale + i, ld8, 40);
    }
    if (gemm_bf16_ops_of(cpu_isa())->product_to)
        tap_ok(!memcmp(c[0], c[2], s.m * ldc * sizeof(float)) &&
                   c[0][2026] != 0,
               "gemm_bf16: a C of streaming stores has the same bits");
    else
        tap_skip("gemm_bf16: a C of streaming stores", "none does");
    tap_ok(!memcmp(c[1], c[3], s.m * ldc * sizeof(float)) && c[1][2026] != 0,
           "gemm_int8: a C of streaming stores has the same bits");
    for (int i = 0; i < 4; i++)
        mem_big_free(c[i], s.m * ldc, sizeof(float));
    free(x);
    free(x8);
    free(x_scale);
    data_free(&d);
    data_free(&d8);
}

int
main(void)
{
    struct gemm *one, *many;
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err) < 0 || gemm_open(&one, NULL, &err) < 0 ||
        gemm_open(&many, par, &err) < 0)
        return 1;
    printf("# %s\n", isa_name(cpu_isa()));
    test_few(one);
    test_few(many);
    for (int by_k = 0; by_k < 2; by_k++) {
        test_exact(one, DT_BF16, by_k, 3);
        test_exact(one, DT_F16, by_k, 3);
        test_exact(many, DT_F32, by_k, 3);
        test_bf16(one, DT_BF16, by_k, false, 0);
        test_bf16(one, DT_F16, by_k, false, N_EDGES);
        test_bf16(many, DT_F32, by_k, false, 0);
        test_bf16(one, DT_BF16, by_k, true, 0);
        test_int8(one, by_k);
    }
    test_exact(many, DT_BF16, false, 0);
    test_exact(one, DT_F16, false, 0);
    test_exact(many, DT_F32, false, 0);
    test_quantize(one);
    test_jobs(one, "1", 3);
    test_jobs(many, "3", 3);
    test_jobs(many, "3", 0);
    test_threads(one, many, 3);
    test_threads(one, many, 0);
    test_streamed(many);
    gemm_close(one);
    gemm_close(many);
    par_close(par);
    return tap_done();
}
