/* SPDX-License-Identifier: ISC */
/*
 * Screening against thresholds: what is proved, and the bits, against
 * select_over() of the exact products, whose numbers the thresholds are made
 * of.
 *   screen_over [large]  large encoders, too
 */
#include "core/kernel/screen_impl.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "test/unit/screen-set.h"
#include "test/unit/tap.h"

static struct par *par;
static struct gemm *gemm;

/* Each the largest of M rows' p, over which there is none, or the number before
 * it; some far from them. */
static void
make_thresholds(float *thresholds, const float *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float max = 0;

        for (size_t r = 0; r < M; r++)
            max = fmaxf(max, p[r * n + i] <= FLT_MAX ? p[r * n + i] : 0);
        thresholds[i] = i % 5 == 0   ? max / 2
                        : i % 5 == 1 ? max * 2
                        : i % 2      ? max
                                     : nextafterf(max, 0);
    }
}

/* How many rows were proved; over M if one of them is wrong. */
static size_t
over_by(const struct set *s, const float *thresholds, enum screen_way way,
        const float *p)
{
    uint32_t *idx[2] = { malloc(M * s->n * 4), malloc(s->n * 4) };
    float *v[2] = { malloc(M * s->n * 4), malloc(s->n * 4) };
    size_t n[M], n_proved = 0;
    bool proved[M];
    const struct screen_found to = { idx[0], v[0], n, proved, s->n };
    const struct gemm_matrix w = matrix_of(s);
    struct screen_work *work;
    struct screen *screen;
    struct err err;

    if (screen_open_by(&screen, &w, s->bias, NULL, way, &err) < 0 ||
        screen_work_open(&work, gemm, s->in, s->n + 70, 0, &err) < 0)
        exit(1);
    screen_rows_by(work, screen, way, 0, thresholds, s->x, s->in, M, &to);
    for (size_t i = 0; i < M; i++) {
        bool bad = false;
        size_t m =
            select_over(idx[1], v[1], p + i * s->n, thresholds, s->n, &bad);

        n_proved += proved[i];
        if (proved[i] && (bad || n[i] != m ||
                          memcmp(idx[0] + i * s->n, idx[1], m * 4) != 0 ||
                          memcmp(v[0] + i * s->n, v[1], m * 4) != 0))
            n_proved = SIZE_MAX / 2;
    }
    screen_work_close(work);
    screen_close(screen);
    for (size_t i = 0; i < 2; i++) {
        free(idx[i]);
        free(v[i]);
    }
    return n_proved;
}

/* Of a set's thresholds how many rows each way proves; 'dense': all are 0. */
static void
count_proved(const struct set *s, bool dense, size_t n_proved[2])
{
    float *p = malloc(M * s->n * sizeof(*p));
    float *thresholds = calloc(s->n, sizeof(*thresholds));
    const struct gemm_job job = {
        .w = matrix_of(s), .c = p, .ldc = s->n, .end = { .bias = s->bias }
    };

    gemm_exact(gemm, &job, 1, s->x, s->in, M);
    if (!dense)
        make_thresholds(thresholds, p, s->n);
    n_proved[0] = over_by(s, thresholds, SCREEN_HALF, p);
    n_proved[1] = over_by(s, thresholds, SCREEN_SHADOW, p);
    free(p);
    free(thresholds);
}

/* 'step' has no divisor that 3, 4 or 6 has; of hard rows, many are proved where
 * it is 1. */
static void
test_over(size_t step)
{
    size_t wrong = 0, n_proved[2][2] = { 0 }, n_sets[2] = { 0 };
    bool enough = true;

    for (size_t i = 0; i < 36; i += step) {
        bool hard = i % 3 > 0;
        struct set s;
        size_t n[2];

        make_set(&s, MAX_N - i, 16 + 37 * i, i % 4 ? DT_BF16 : DT_F16, hard);
        count_proved(&s, i % 6 == 5, n);
        for (size_t way = 0; way < 2; way++) {
            wrong += n[way] > M;
            n_proved[way][hard] += n[way];
        }
        n_sets[hard]++;
        free_set(&s);
    }
    for (size_t way = 0; way < 2; way++)
        enough &= n_proved[way][0] * 2 > M * n_sets[0] &&
                  (step > 1 || n_proved[way][1] * 8 > M * n_sets[1]);
    tap_ok(!wrong && enough,
           "screen: all over thresholds, which exact sums just reach or not: "
           "%zu and %zu of %zu plain rows, %zu and %zu of %zu hard ones",
           n_proved[0][0], n_proved[1][0], M * n_sets[0], n_proved[0][1],
           n_proved[1][1], M * n_sets[1]);
}

/* Encoders of the size that models have. */
static void
test_large(void)
{
    static const size_t shapes[][2] = { { 8192, 1024 }, { 32768, 4096 } };

    for (size_t i = 0; i < 4; i++) {
        const size_t *shape = shapes[i / 2];
        bool hard = i % 2;
        struct set s;
        size_t n[2];

        make_set(&s, shape[0], shape[1], DT_BF16, hard);
        count_proved(&s, false, n);
        tap_ok(n[0] <= M && n[1] <= M && (hard || n[0] + n[1] == 2 * M),
               "screen: all over thresholds of %zu x %zu: %zu and %zu of %d "
               "rows%s",
               shape[0], shape[1], n[0], n[1], M, hard ? ", hard ones" : "");
        free_set(&s);
    }
}

/* Nothing over its threshold, and a W or x that is not finite. */
static void
test_over_odd(void)
{
    static float p[M * MAX_N], thresholds[MAX_N];
    struct set s;
    struct gemm_job job;
    size_t n[3];

    make_set(&s, MAX_N, 80, DT_BF16, false);
    job = (struct gemm_job){
        .w = matrix_of(&s), .c = p, .ldc = s.n, .end = { .bias = s.bias }
    };
    for (size_t i = 0; i < s.n; i++)
        thresholds[i] = i % 2 ? FLT_MAX : 1e6f;
    for (size_t i = 0; i < 3; i++) {
        s.x[5 * s.in] = i == 1 ? NAN : 1;
        if (i == 2)
            put(&s, 77, NAN);
        gemm_exact(gemm, &job, 1, s.x, s.in, M);
        n[i] = over_by(&s, thresholds, SCREEN_HALF, p) +
               over_by(&s, thresholds, SCREEN_SHADOW, p);
    }
    tap_ok(n[0] == 2 * M && n[1] == 2 * M - 2 && n[2] == 0,
           "screen: none over its threshold; NaNs are not proved");
    free_set(&s);
}

int
main(int argc, char **argv)
{
    struct err err;

    (void)argv;
    for (int j = 1; j <= 3; j += tap_few() ? 2 : 1) {
        if (par_open(&par, j, &err) < 0 || gemm_open(&gemm, par, &err) < 0)
            return 1;
        test_over(j == 1 && !tap_few() ? 1 : 5);
        test_over_odd();
        if (argc > 1 && j == 2)
            test_large();
        gemm_close(gemm);
        par_close(par);
    }
    return tap_done();
}
