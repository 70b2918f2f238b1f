/* SPDX-License-Identifier: ISC */
/*
 * Screening's bound, hunted on pairs of rows that come near it, and its k
 * largest against those of the exact products.
 *   screen [PAIRS]  default 2 million; if given, large encoders, too
 */
#include "core/kernel/screen_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/vec.h"
#include "core/le.h"
#include "test/unit/screen-set.h"
#include "test/unit/tap.h"

enum { MAX_K = 256 };

static struct par *par;
static struct gemm *gemm;

struct found {
    uint32_t idx[M * MAX_K];
    float v[M * MAX_K];
    size_t n[M];
    bool proved[M], bad[M];
};

/* ---- the bound ---- */

/* What the exact sum q is off from the known one, in parts of the slack;
 * infinite where what follows from U is not so. */
static double
off(double q, double known, float bias, float u, double slack)
{
    double exact = (double)((float)q + bias);

    if (isnan(u) || (u <= 0 && exact > 0) ||
        (u > 0 && (exact > screen_most(u) || exact < screen_least(u, slack))))
        return INFINITY;
    return bias != 0 ? 0 : fabs(q - known) / slack;
}

static double
slack_at(struct screen_slack slack, const struct screen_form *f, size_t i)
{
    return (double)slack.a * (double)f->norm[i] +
           (double)slack.b * (double)f->lost[i];
}

/* The worst of all pairs, q being the exact sums [M, n]. */
static double
worst_by_half(const struct set *s, const float *q)
{
    const size_t ld = gemm_ld_bf16(s->in);
    float *p = malloc(M * s->n * sizeof(*p));
    uint16_t *half = malloc(M * ld * sizeof(*half));
    struct gemm_job job = { .w = matrix_of(s), .c = p, .ldc = s->n };
    struct screen *screen;
    double worst = 0;
    struct err err;

    if (screen_open_by(&screen, &job.w, s->bias, NULL, SCREEN_HALF, &err) < 0)
        exit(1);
    screen_prepare_half(screen, gemm);
    gemm_to_bf16(gemm, half, s->x, s->in, M, s->in);
    job.panels = &screen->panels;
    if (screen->half.usable)
        gemm_bf16(gemm, &job, 1, half, NULL, ld, M);
    for (size_t r = 0; r < M && screen->half.usable; r++) {
        struct screen_slack slack =
            screen_half_slack(screen, s->x + r * s->in, half + r * ld);

        for (size_t i = 0; i < s->n && slack.a > 0; i++) {
            float known = p[r * s->n + i], u = known + s->bias[i];

            vec_axpy(&u, slack.a, &screen->half.norm[i], 1);
            vec_axpy(&u, slack.b, &screen->half.lost[i], 1);
            worst = fmax(worst,
                         off((double)q[r * s->n + i], (double)known, s->bias[i],
                             u, slack_at(slack, &screen->half, i)));
        }
    }
    screen_close(screen);
    free(half);
    free(p);
    return worst;
}

static struct screen_found
found_in(struct found *f)
{
    return (struct screen_found){ f->idx, f->v, f->n, f->proved, MAX_K };
}

/* U is what the workspace holds afterwards. */
static double
worst_by_shadow(const struct set *s, const float *q)
{
    static struct found found;
    const struct screen_found to = found_in(&found);
    const struct gemm_matrix w = matrix_of(s);
    struct screen_work *work;
    struct screen *screen;
    double worst = 0;
    struct err err;

    if (screen_open_by(&screen, &w, s->bias, NULL, SCREEN_SHADOW, &err) < 0 ||
        screen_work_open(&work, gemm, s->in, s->n, 8, &err) < 0)
        exit(1);
    for (size_t r0 = 0; r0 < M; r0 += SHADOW_ROWS) {
        screen_rows_by(work, screen, SCREEN_SHADOW, 8, NULL, s->x + r0 * s->in,
                       s->in, SHADOW_ROWS, &to);
        for (size_t r = 0; r < SHADOW_ROWS && screen->shadow.usable; r++)
            for (size_t i = 0; i < s->n && work->slack[r].a > 0; i++) {
                double slack = slack_at(work->slack[r], &screen->shadow, i);
                float u = work->u[r * screen_ld(s->n) + i];

                worst =
                    fmax(worst, off((double)q[(r0 + r) * s->n + i],
                                    (double)u - slack, s->bias[i], u, slack));
            }
    }
    screen_work_close(work);
    screen_close(screen);
    return worst;
}

static void
test_bound(size_t pairs)
{
    static const size_t ins[] = { 1, 3, 31, 64, 65, 200, 1024, 1111, 2500 };
    static const enum dtype dtypes[] = { DT_BF16, DT_BF16, DT_F16, DT_F32 };
    double worst[4][2] = { 0 };
    size_t done = 0;

    for (size_t i = 0; done < pairs; i++, done += M * MAX_N) {
        struct set s;
        float *q = malloc(M * MAX_N * sizeof(*q));
        struct gemm_job job = { .c = q, .ldc = MAX_N };
        size_t d = i % 4 ? i % 4 : 1;

        make_set(&s, MAX_N, ins[i % 9], dtypes[d], i % 5 > 0);
        job.w = matrix_of(&s);
        gemm_exact(gemm, &job, 1, s.x, s.in, M);
        worst[d][0] = fmax(worst[d][0], worst_by_half(&s, q));
        worst[d][1] = fmax(worst[d][1], worst_by_shadow(&s, q));
        free_set(&s);
        free(q);
    }
    for (size_t i = 1; i < 4; i++)
        for (size_t by = 0; by < 2; by++)
            tap_ok(worst[i][by] < 1 &&
                       (done < 1000000 || worst[i][by] > (by ? 0.2 : 0.5)),
                   "screen %s by %s: no sum of %zu leaves the bound; the worst "
                   "is %.3f of it",
                   dtype_table[dtypes[i]].name, by ? "int8" : "bf16",
                   done * (i == 1 ? 2 : 1) / 4, worst[i][by]);
}

/* ---- the k largest ---- */

static void
find_exact(struct found *f, const struct set *s, size_t k)
{
    float *p = malloc(M * s->n * sizeof(*p));
    uint64_t *key = malloc(2 * topk_cap(k) * sizeof(*key));
    const struct gemm_job job = {
        .w = matrix_of(s), .c = p, .ldc = s->n, .end = { .bias = s->bias }
    };
    struct topk top;

    gemm_exact(gemm, &job, 1, s->x, s->in, M);
    for (size_t i = 0; i < M; i++) {
        topk_start(&top, key, key + topk_cap(k), k);
        topk_put(&top, p + i * s->n, 0, s->n);
        f->n[i] = topk_take(&top, f->idx + i * MAX_K, f->v + i * MAX_K);
        f->bad[i] = top.bad;
    }
    free(key);
    free(p);
}

/* How many rows were proved; over M if one of them is wrong. */
static size_t
proved_by(const struct set *s, size_t k, enum screen_way way,
          const struct found *exact)
{
    static struct found quick;
    const struct screen_found to = found_in(&quick);
    struct screen_counts counts = { 0 };
    const struct gemm_matrix w = matrix_of(s);
    struct screen_work *work;
    struct screen *screen;
    struct err err;
    size_t n = 0;

    if (screen_open_by(&screen, &w, s->bias, NULL, way, &err) < 0 ||
        screen_work_open(&work, gemm, s->in + 7, s->n + 3, k + 5, &err) < 0)
        exit(1);
    screen_rows_by(work, screen, way, k, NULL, s->x, s->in, M, &to);
    for (size_t i = 0; i < M; i++) {
        size_t at = i * MAX_K;

        n += quick.proved[i];
        if (quick.proved[i] &&
            (exact->bad[i] || exact->n[i] != quick.n[i] ||
             memcmp(exact->idx + at, quick.idx + at, exact->n[i] * 4) != 0 ||
             memcmp(exact->v + at, quick.v + at, exact->n[i] * 4) != 0))
            n = SIZE_MAX / 2;
    }
    screen_count(screen, &counts);
    if (counts.rows != M || counts.unproved != M - n)
        n = SIZE_MAX;
    screen_work_close(work);
    screen_close(screen);
    return n;
}

/* The fewer of both ways, or the wrong one. */
static size_t
proved(const struct set *s, size_t k)
{
    static struct found exact;
    size_t half, shadow;

    find_exact(&exact, s, k);
    half = proved_by(s, k, SCREEN_HALF, &exact);
    shadow = proved_by(s, k, SCREEN_SHADOW, &exact);
    return half > M || shadow > M ? SIZE_MAX : smaller(half, shadow);
}

static const size_t ks[] = { 1, 2, 8, 32, 128, MAX_K };

/* 'step' has no divisor that 3, 4 or 6 has. */
static void
test_equal(size_t step)
{
    size_t wrong = 0, n_proved = 0, n_hard = 0, n_plain = 0, n_sets = 0;
    struct set s;

    for (size_t i = 0; i < 36; i += step) {
        bool hard = i % 3 > 0;
        size_t n;

        make_set(&s, MAX_N - i, 16 + 37 * i, i % 4 ? DT_BF16 : DT_F16, hard);
        n = proved(&s, ks[i % 6]);
        wrong += n > M;
        n_proved += hard ? 0 : n;
        n_hard += hard ? n : 0;
        n_plain += !hard;
        n_sets++;
        free_set(&s);
    }
    tap_ok(!wrong && n_proved * 12 > 11 * M * n_plain &&
               n_hard * 4 > M * (n_sets - n_plain),
           "screen: the k largest, ties and bits are the exact ones: %zu of "
           "%zu plain rows, %zu of %zu hard ones",
           n_proved, n_plain * M, n_hard, (n_sets - n_plain) * M);
}

/* Encoders of the size that models have. */
static void
test_large(void)
{
    static const size_t shapes[][3] = { { 8192, 1024, 1 },
                                        { 8192, 1024, 32 },
                                        { 16384, 2048, 128 },
                                        { 32768, 4096, MAX_K } };
    struct set s;

    for (size_t i = 0; i < 8; i++) {
        const size_t *shape = shapes[i / 2];
        bool hard = i % 2;
        size_t n;

        make_set(&s, shape[0], shape[1], DT_BF16, hard);
        n = proved(&s, shape[2]);
        tap_ok(n <= M && (hard || n > M / 2),
               "screen: the exact k largest of %zu x %zu, k %zu: %zu of %d "
               "rows%s",
               shape[0], shape[1], shape[2], n, M, hard ? ", hard ones" : "");
        free_set(&s);
    }
}

/* ---- a shadow's kernels ---- */

/* Integers, by all instruction sets; w ends where its memory does. */
static bool
products_agree(size_t cols, size_t rows, size_t n_x)
{
    const size_t ld = (cols + 2 * SHADOW_STEP) / SHADOW_STEP * SHADOW_STEP;
    int8_t *w = malloc(rows * cols);
    int16_t *x = calloc(n_x * ld, sizeof(*x));
    float *want = malloc(n_x * rows * sizeof(*want));
    float *t = malloc(n_x * rows * sizeof(*t));
    const bool largest = cols % 3 == 0 && cols < 500;
    bool same = true;

    for (size_t i = 0; i < rows * cols; i++)
        w[i] = (int8_t)(largest ? -127 : (int)below(255) - 127);
    for (size_t i = 0; i < n_x; i++)
        for (size_t c = 0; c < cols; c++)
            x[i * ld + c] =
                (int16_t)(largest ? 32767 : (int)below(65535) - 32767);
    for (size_t i = 0; i < n_x; i++)
        for (size_t r = 0; r < rows; r++) {
            int64_t sum = 0;

            for (size_t c = 0; c < cols; c++)
                sum += (int64_t)w[r * cols + c] * x[i * ld + c];
            want[i * rows + r] = (float)sum;
        }
    FOR_EACH_TABLE(shadow, isa)
    {
        memset(t, 0, n_x * rows * sizeof(*t));
        shadow_ops_of(isa)->products(
            &(struct shadow_args){ t, w, x, rows, ld, rows, cols, n_x, 0 });
        same &= !memcmp(t, want, n_x * rows * sizeof(*t));
    }
    free(w);
    free(x);
    free(want);
    free(t);
    return same;
}

static void
test_products(void)
{
    static const size_t many[][3] = { { 1, 1, 48 },     { 16, 64, 70 },
                                      { 129, 66, 49 },  { 1024, 65, 66 },
                                      { 1027, 17, 64 }, { 2100, 130, 131 } };
    bool same = true;

    for (size_t cols = 1; cols <= 131; cols += cols < 20 ? 1 : 37)
        same &= products_agree(cols, 1 + cols % 11, 1 + cols % 9);
    for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
        same &= products_agree(many[i][0], many[i][1], many[i][2]);
    tap_ok(same, "screen: sums of int8 and int16, at their largest, too");
}

/* Against f64, which rounds last. */
static void
test_bounds(void)
{
    enum { N = 37 };
    float in[5][N], u[N], low[48];
    double worst = 0;

    for (size_t j = 0; j < 5; j++)
        for (size_t i = 0; i < N; i++)
            in[j][i] = gauss();
    FOR_EACH_TABLE(shadow, isa)
    {
        for (size_t n = 0; n <= N; n++) {
            const size_t width = n % 2 ? 16 : 48;
            double most[48];

            for (size_t j = 0; j < width; j++)
                most[j] = (double)-FLT_MAX;
            memcpy(u, in[0], sizeof(u));
            shadow_ops_of(isa)->bound(
                &(struct shadow_bound){ u, low, in[1], in[2], in[3], in[4], 3,
                                        5, 7, 0.5f, 2, n, width });
            for (size_t i = 0; i < N; i++) {
                double w = 5.0 * (double)in[3][i] + 7.0 * (double)in[4][i];
                double v = (double)in[0][i] * 3 * (double)in[1][i] +
                           (double)in[2][i] + w;

                v = i < n ? v : (double)in[0][i];
                worst = fmax(worst, fabs(v - (double)u[i]));
                if (i < n)
                    most[i % width] = fmax(most[i % width], v / 2 - 2 * w);
            }
            for (size_t j = 0; j < width; j++)
                worst = fmax(worst, fabs(most[j] - (double)low[j]));
        }
    }
    tap_ok(worst < 1e-4, "screen: bounds of the sums: %.1e off", worst);
}

/* Of E's rows: what a reader of the file relies on. */
static void
test_shadow_row(void)
{
    enum { IN = 300 };
    double worst = 0, widest = 0;
    struct set s;
    int8_t row[IN];

    make_set(&s, MAX_N, IN, DT_F16, true);
    for (size_t i = 0; i < MAX_N; i++) {
        const struct gemm_matrix w = matrix_of(&s);
        double sum = 0, all = 0;
        float scale, error;

        screen_shadow_row(&w, i, row, &scale, &error);
        for (size_t c = 0; c < IN; c++) {
            double e = (double)f16_to_f32(le16((char *)s.e + 2 * (i * IN + c)));
            double d = e - (double)scale * row[c];

            sum += d * d;
            all += e * e;
        }
        worst = fmax(worst, sqrt(sum) / (double)error);
        if (all > 0)
            widest = fmax(widest, (double)error / sqrt(all));
    }
    tap_ok(worst <= 1 && worst > 0.99 && widest < 0.2,
           "screen: a shadow's errors are bounds: %.5f of one", worst);
    free_set(&s);
}

static void
test_few(void)
{
    struct set s;
    size_t n[4];

    make_set(&s, MAX_N, 100, DT_BF16, false);
    for (size_t i = 0; i < s.n; i++)
        s.bias[i] = -22;
    n[0] = proved(&s, 32);
    for (size_t i = 0; i < s.n; i++)
        s.bias[i] = -1e6f;
    n[1] = proved(&s, 32);
    for (size_t i = 0; i < s.n; i++) /* differences lost to the bias */
        s.bias[i] = 1e9f;
    n[2] = proved(&s, 32);
    s.bias[5] = INFINITY;
    n[3] = proved(&s, 32);
    tap_ok(n[0] == M && n[1] == M && n[2] == 0 && n[3] == 0,
           "screen: few over 0, none, all equal, a bias that is infinite");
    free_set(&s);
}

static void
test_ties(void)
{
    struct set s;
    size_t n[2];

    /* each row of E four times: the border cuts through equals */
    make_set(&s, MAX_N, 64, DT_BF16, false);
    for (size_t i = 0; i < s.n * s.in; i++)
        memcpy((char *)s.e + 2 * i, (char *)s.e + 2 * (i % (s.n / 4 * s.in)),
               2);
    n[0] = proved(&s, 30);
    for (size_t i = s.in; i < s.n * s.in; i++)
        memcpy((char *)s.e + 2 * i, (char *)s.e + 2 * (i % s.in), 2);
    n[1] = proved(&s, 30);
    tap_ok(n[0] > M / 2 && n[0] <= M && n[1] < M,
           "screen: equals at the border, and more of them than are kept");
    free_set(&s);
}

static void
test_rows(void)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY, 1e30f, 1e-30f };
    struct set s;
    size_t n;

    make_set(&s, MAX_N, 80, DT_BF16, false);
    for (size_t i = 0; i < 5; i++)
        for (size_t c = 0; c < (i < 3 ? 1 : s.in); c++)
            s.x[i * s.in + c] = odd[i];
    memset(s.x + 5 * s.in, 0, s.in * sizeof(float));
    n = proved(&s, 8);
    tap_ok(n == M - 6, "screen: rows that are NaN, infinite, too large, too "
                       "small, or 0 are not proved, and harm no other");
    put(&s, 77, NAN);
    n = proved(&s, 8);
    tap_ok(n == 0, "screen: a row of W that is NaN leaves none proved");
    free_set(&s);
}

/* Sums of int8 and int16 as large as x and W can make them: were x in 16 bits
 * whatever its number of columns, they would leave int32. */
static void
test_full(void)
{
    struct set s;
    size_t n;

    make_set(&s, MAX_N, 2500, DT_BF16, false);
    memset(s.bias, 0, s.n * sizeof(*s.bias));
    for (size_t i = 0; i < s.n * s.in; i++)
        put(&s, i, i % s.in < s.in - 2 * (i / s.in) ? 1 : 0);
    for (size_t i = 0; i < M * s.in; i++)
        s.x[i] = i / s.in % 2 ? 0.37f : 1;
    n = proved(&s, 8);
    tap_ok(n == M, "screen: the largest sums of int8 and int16: %zu of %d rows",
           n, M);
    free_set(&s);
}

/* Rows whose bounds are wide leave no room for one that is among the k largest:
 * the smallest bound that was kept is 3 % over the k-th lower bound. */
static void
test_wide(void)
{
    enum { K = 8, WIDE = 60 };
    struct set s;
    size_t n;

    make_set(&s, MAX_N, 128, DT_BF16, false);
    memset(s.bias, 0, s.n * sizeof(*s.bias));
    for (size_t i = 0; i < M * s.in; i++)
        s.x[i] = 1 + 0x1.fp-9f; /* 1 in bf16 */
    for (size_t i = 0; i < s.n * s.in; i++) {
        size_t row = i / s.in;
        float sign = i % 2 ? 1 : -1;

        put(&s, i,
            row < K          ? 1 + 7.5f * sign
            : row < K + WIDE ? 0.875f + 37.875f * sign
            : row == s.n - 1 ? 1 + 0x1p-6f
                             : 0);
    }
    n = proved(&s, K);
    tap_ok(n == 0,
           "screen: one of the k largest that was not kept: not proved");
    free_set(&s);
}

int
main(int argc, char **argv)
{
    size_t pairs = argc > 1 ? strtoull(argv[1], NULL, 10) : 2000000;
    struct err err;

    for (int j = 1; j <= 3; j += tap_few() ? 2 : 1) {
        if (par_open(&par, j, &err) < 0 || gemm_open(&gemm, par, &err) < 0)
            return 1;
        if (j == 1)
            test_bound(tap_slow() ? 100000 : tap_few() ? pairs / 4 : pairs);
        if (j == 1) {
            test_products();
            test_bounds();
            test_shadow_row();
        }
        test_equal(j == 1 && !tap_few() ? 1 : 5);
        test_few();
        test_ties();
        test_rows();
        test_full();
        test_wide();
        if (argc > 1 && j == 2)
            test_large();
        gemm_close(gemm);
        par_close(par);
    }
    return tap_done();
}
