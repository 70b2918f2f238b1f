/* SPDX-License-Identifier: ISC */
/* gemm_bf16_block() has the bits of gemm_bf16(), and its sums go on; what
 * gemm_bf16() adds to a C is what it stores in one; the sign of exact sums;
 * jobs that have some rows of X have the bits of calls of these rows. */
#include "core/kernel/gemm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/le.h"
#include "core/mem.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { M = 70, N = 150, MAX_K = 140, LD_W = N + 3 };

static float x[M][MAX_K], c[M][N], got[M][N], want[M][N];
static float f32[MAX_K][LD_W];     /* in the machine's order */
static uint16_t bf16[MAX_K][LD_W]; /* little-endian, as in files */

/* All of k but begin .. end - 1 is 0. */
static void
fill(size_t k, size_t begin, size_t end)
{
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < LD_W; j++) {
            f32[i][j] = i < begin || i >= end ? 0 : rnd();
            cvt_from_f32(&bf16[i][j], DT_BF16, &f32[i][j], 1);
        }
}

/* Both ways; t is the last panel's sums, twice. */
static void
products(struct gemm *g, enum dtype dtype, size_t k, size_t begin, size_t end,
         float t[M][GEMM_PANEL])
{
    const struct gemm_matrix w = {
        .weight = { .data = dtype == DT_F32 ? (void *)f32 : bf16,
                    .dtype = dtype,
                    .ld = LD_W },
        .n = N,
        .k = k,
        .by_k = true,
        .native = dtype == DT_F32
    };
    const struct gemm_job job = { .w = w, .c = c[0], .ldc = N };
    size_t ld = gemm_ld_bf16(k);
    uint16_t *rounded = aligned_alloc(64, M * ld * sizeof(*rounded));
    size_t size = gemm_bf16_panel_size(k);
    uint16_t *b = aligned_alloc(64, 3 * size * sizeof(*b));

    for (size_t i = 0; i < M; i++)
        gemm_bf16_row(rounded + i * ld, x[i], k);
    gemm_bf16(g, &job, 1, rounded, NULL, ld, M);
    gemm_bf16_panels(b, &w, begin, end);
    for (size_t col = 0; col < N; col += GEMM_PANEL) {
        gemm_bf16_block(t[0], rounded, ld, b + col / GEMM_PANEL * size, M, k,
                        false);
        for (size_t i = 0; i < M; i++)
            memcpy(&got[i][col], t[i],
                   smaller(GEMM_PANEL, N - col) * sizeof(float));
    }
    gemm_bf16_block(t[0], rounded, ld, b + 2 * size, M, k, true);
    free(rounded);
    free(b);
}

static void
test(struct gemm *g, enum dtype dtype)
{
    static _Alignas(64) float t[M][GEMM_PANEL];
    bool same = true, twice = true, some = true, rounded = true;

    for (size_t k = 1; k <= MAX_K; k += 23) {
        fill(k, 0, k);
        products(g, dtype, k, 0, k, t);
        same &= !memcmp(c, got, sizeof(c));
        for (size_t i = 0; i < M; i++)
            for (size_t j = 128; j < N; j++)
                twice &= fabsf(t[i][j - 128] - 2 * c[i][j]) <= 1e-6f * (float)k;
        fill(k, k / 3, k - k / 4);
        products(g, DT_BF16, k, 0, k, t);
        memcpy(want, got, sizeof(want));
        products(g, dtype, k, 0, k, t);
        rounded &= !memcmp(want, got, sizeof(want));
        products(g, dtype, k, k / 3, k - k / 4, t);
        some &= !memcmp(want, got, sizeof(want));
    }
    tap_ok(same, "gemm_bf16_block %s: gemm_bf16's bits",
           dtype_table[dtype].name);
    tap_ok(twice, "gemm_bf16_block %s: added to what was there",
           dtype_table[dtype].name);
    tap_ok(some, "gemm_bf16_panels %s: of some of k", dtype_table[dtype].name);
    tap_ok(rounded, "gemm_bf16_panels %s: weights as in bf16's files",
           dtype_table[dtype].name);
}

/* Weights outside the part that is asked for are not read. */
static void
test_outside(void)
{
    const struct gemm_matrix w = {
        .weight = { .data = f32, .dtype = DT_F32, .ld = LD_W },
        .n = N,
        .k = 40,
        .by_k = true,
        .native = true,
    };
    static uint16_t b[3 * 64 * GEMM_PANEL];
    bool zero = true;

    fill(40, 0, 40);
    f32[3][70] = f32[35][70] = NAN;
    gemm_bf16_panels(b, &w, 4, 35);
    for (size_t i = 0; i < 3 * gemm_bf16_panel_size(40); i++)
        zero &= !isnan(bf16_to_f32(b[i]));
    tap_ok(zero, "gemm_bf16_panels: zeros outside");
}

/* A sum is rounded before it is added, wherever that happens. */
static void
test_added(struct gemm *g)
{
    enum { K = 2100 };
    static uint16_t w[N][K], all[M][K];
    static float to[M][N + 2], old[M][N + 2];
    bool same = true;

    for (size_t k = 0; k < K; k++) {
        for (size_t j = 0; j < N; j++)
            cvt_from_f32(&w[j][k], DT_BF16, &(float){ rnd() }, 1);
        for (size_t i = 0; i < M; i++)
            all[i][k] = f32_to_bf16(rnd());
    }
    for (size_t k = 40; k <= K; k += K - 40) {
        struct gemm_job stored = {
            .w = { .weight = { .data = w, .dtype = DT_BF16, .ld = K },
                   .n = N,
                   .k = k },
            .c = c[0],
            .ldc = N
        };
        struct gemm_job added = stored;
        size_t ld = gemm_ld_bf16(k);
        uint16_t *rounded = xcalloc(M * ld, sizeof(*rounded));

        for (size_t i = 0; i < M; i++) {
            memcpy(rounded + i * ld, all[i], k * sizeof(*rounded));
            for (size_t j = 0; j < N + 2; j++)
                old[i][j] = to[i][j] = 100 * rnd();
        }
        added.c = to[0];
        added.ldc = N + 2;
        added.end.accumulate = true;
        gemm_bf16(g, &stored, 1, rounded, NULL, ld, M);
        gemm_bf16(g, &added, 1, rounded, NULL, ld, M);
        for (size_t i = 0; i < M; i++)
            for (size_t j = 0; j < N + 2; j++)
                same &= to[i][j] == old[i][j] + (j < N ? c[i][j] : 0);
        free(rounded);
    }
    tap_ok(same, "gemm_bf16: added to C, and nothing beside it");
}

/* Products of -1e-60 are -0, and so are sums of 8 lanes that have some; but a
 * lane that has one fewer than others adds 0 * 0, and is +0. */
static void
test_zeros(struct gemm *g)
{
    static float rows[M][16], weights[16][N];
    const size_t m[] = { 1, M }, k[] = { 12, 16 };
    bool good = true;

    for (size_t i = 0; i < 16; i++) {
        for (size_t j = 0; j < M; j++)
            rows[j][i] = -1e-30f;
        for (size_t j = 0; j < N; j++)
            put_le32((char *)&weights[i][j], f32_bits(1e-30f));
    }
    for (size_t way = 0; way < 8; way++) {
        const bool by_k = way & 4;
        struct gemm_job job = { .w = { .weight = { weights, DT_F32,
                                                   by_k ? N : k[way & 1] },
                                       .n = N,
                                       .k = k[way & 1],
                                       .by_k = by_k },
                                .c = c[0],
                                .ldc = N };

        gemm_exact(g, &job, 1, rows[0], 16, m[way / 2 % 2]);
        for (size_t i = 0; i < m[way / 2 % 2] * N; i++)
            good &= f32_bits(c[i / N][i % N]) == (way & 1 ? 0x80000000u : 0);
    }
    tap_ok(good, "gemm_exact: the sign of sums of products that underflow");
}

/* X of the three classes, [M, MAX_K]. */
struct inputs {
    uint16_t *rounded;
    int8_t *x8;
    float x_scale[M];
};

/* m rows from 'row' on through jobs of W by class 'way'. */
static void
run_jobs(struct gemm *g, const struct inputs *in, size_t way,
         const struct gemm_job *jobs, size_t n_jobs, size_t row, size_t m)
{
    size_t ld = gemm_ld_bf16(MAX_K), ld8 = gemm_ld_int8(MAX_K);

    if (way == 0)
        gemm_int8(g, jobs, n_jobs, in->x8 + row * ld8, in->x_scale + row, ld8,
                  m);
    else if (way == 1)
        gemm_bf16(g, jobs, n_jobs, in->rounded + row * ld, NULL, ld, m);
    else
        gemm_exact(g, jobs, n_jobs, x[row], MAX_K, m);
}

/* Rows 0 | 1 to 3 | 4 to 51 | 52 to 69, each by a matrix of its own, whose rows
 * lie together, or apart, or which is by k; C's rows are where X's are. */
static void
test_rows(struct gemm *g, const char *threads)
{
    static const size_t begin[] = { 0, 1, 4, 52, M }, n[] = { 150, 3, 64, 131 };
    static const char *const ways[] = { "int8", "bf16", "exact", "exact, gaps",
                                        "exact, by k" };
    struct inputs in = { .rounded =
                             aligned_alloc(64, M * gemm_ld_bf16(MAX_K) * 2),
                         .x8 = aligned_alloc(64, M * gemm_ld_int8(MAX_K)) };

    fill(MAX_K, 0, MAX_K);
    gemm_to_bf16(g, in.rounded, x[0], MAX_K, M, MAX_K);
    gemm_x_int8(g, in.x8, in.x_scale, x[0], DT_F32, MAX_K, M, MAX_K);
    for (size_t way = 0; way < 5; way++) {
        struct gemm_job jobs[4];

        memset(got, 0, sizeof(got));
        memset(want, 0, sizeof(want));
        for (size_t i = 0; i < 4; i++) {
            size_t ld = way == 4 ? LD_W : way == 3 ? MAX_K + 2 : MAX_K;

            jobs[i] = (struct gemm_job){
                .w = { .weight = { .data = &bf16[0][i],
                                   .dtype = way == 0 ? DT_I8 : DT_BF16,
                                   .ld = ld },
                       .n = n[i],
                       .k = MAX_K,
                       .by_k = way == 4 },
                .c = want[begin[i]],
                .ldc = N,
            };
            run_jobs(g, &in, way, &jobs[i], 1, begin[i],
                     begin[i + 1] - begin[i]);
            jobs[i].c = got[begin[i]];
            jobs[i].row = begin[i];
            jobs[i].m = begin[i + 1] - begin[i];
        }
        run_jobs(g, &in, way, jobs, 4, 0, M);
        tap_ok(!memcmp(got, want, sizeof(got)) && got[M - 1][130] != 0,
               "gemm, %s, %s: each job has its rows", ways[way], threads);
    }
    free(in.rounded);
    free(in.x8);
}

int
main(void)
{
    struct gemm *g, *many;
    struct par *par;
    struct err err;

    if (gemm_open(&g, NULL, &err) < 0 || par_open(&par, 3, &err) < 0 ||
        gemm_open(&many, par, &err) < 0)
        return 1;
    for (size_t i = 0; i < M; i++)
        for (size_t k = 0; k < MAX_K; k++)
            x[i][k] = rnd();
    test(g, DT_F32);
    test(g, DT_BF16);
    test_outside();
    test_added(g);
    test_zeros(g);
    test_rows(g, "1 thread");
    test_rows(many, "3 threads");
    gemm_close(g);
    gemm_close(many);
    par_close(par);
    return tap_done();
}
