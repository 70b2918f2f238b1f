/* SPDX-License-Identifier: ISC */
/*
 * Latents of whole numbers, of which every sum is exact in any order and class,
 * and many are equal: against sums of int and qsort().
 */
#include "core/model/latents.h"

#include <math.h>

#include "test/unit/tap.h"

enum { N = 5003, IN = 79, ROWS = 41, ODD = 5 };

static float x[ROWS * IN], shift[IN], bias[N], thresholds[N], weight[N * IN];
static int z[ROWS][N];
static int64_t order[N];
static size_t first;         /* row of the batch that 'see' is called for */
static bool hooked[ROWS][N]; /* seen, once, and right */

static int
whole(size_t i, int most)
{
    uint64_t s = (i + 1) * 0x9e3779b97f4a7c15u;

    return (int)((s >> 40) % (2 * (uint64_t)most + 1)) - most;
}

static void
fill(void)
{
    for (size_t i = 0; i < ROWS * IN; i++)
        x[i] = (float)whole(i, 9);
    for (size_t i = 0; i < IN; i++)
        shift[i] = (float)whole(i + 5, 4);
    for (size_t i = 0; i < N * IN; i++)
        weight[i] = (float)whole(i * 7, 5);
    for (size_t i = 0; i < N; i++) {
        bias[i] = (float)whole(i + 11, 20);
        thresholds[i] = (float)(500 + whole(i + 3, 200));
    }
}

static void
sums(bool shifted)
{
    for (size_t r = 0; r < ROWS; r++)
        for (size_t i = 0; i < N; i++) {
            z[r][i] = (int)bias[i];
            for (size_t c = 0; c < IN; c++)
                z[r][i] += (int)weight[i * IN + c] *
                           ((int)x[r * IN + c] - (shifted ? (int)shift[c] : 0));
        }
}

static int
descending(const void *a, const void *b)
{
    int64_t p = *(const int64_t *)a, q = *(const int64_t *)b;

    return p < q ? 1 : p > q ? -1 : 0;
}

static bool
is_right(const struct latents *l, const struct latents_row *row, size_t r)
{
    static bool active[N];
    size_t n = 0;

    for (size_t i = 0; i < N; i++) {
        order[i] = (int64_t)z[r][i] * N + (int64_t)(N - 1 - i);
        active[i] = l->thresholds && (float)z[r][i] > l->thresholds[i];
    }
    qsort(order, N, sizeof(*order), descending);
    for (size_t i = 0; i < l->k && order[i] >= N && !l->thresholds; i++)
        active[N - 1 - order[i] % N] = true;
    for (size_t i = 0; i < N; i++)
        if (active[i] &&
            (n == row->n || row->idx[n] != i || row->v[n++] != (float)z[r][i]))
            return false;
    return n == row->n && !row->bad;
}

static void
see(void *ctx, float *t, size_t ldt, size_t row, size_t n_rows, size_t col,
    size_t n_cols, int thread)
{
    (void)ctx;
    (void)thread;
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_cols; j++) {
            bool *is = &hooked[first + row + i][col + j];

            *is = !*is && t[i * ldt + j] == (float)z[first + row + i][col + j];
        }
}

/* Rows of which each ODD-th is not finite, or with the odd one 0: are the
 * others found, and these alone bad? */
static bool
are_right(struct latents *l, struct gemm *gemm, size_t batch, bool odd)
{
    static float rows[ROWS * IN];
    struct latents_sizes sizes = { 0 };
    struct latents_work *work;
    bool right = true;
    struct err err;

    memcpy(rows, x, sizeof(rows));
    for (size_t r = 0; odd && r < ROWS; r += ODD)
        rows[r * IN + r] = r % 2 ? INFINITY : NAN;
    memset(hooked, 0, sizeof(hooked));
    latents_size(&sizes, l);
    if (latents_work_open(&work, gemm, &sizes, batch, &err) < 0)
        return false;
    right &= latents_rows(work) == batch;
    for (first = 0; first < ROWS; first += batch) {
        size_t n = ROWS - first < batch ? ROWS - first : batch;

        latents_encode(work, l, rows + first * IN, IN, n);
        latents_select(work, l);
        for (size_t i = 0; i < n && (l->k || l->thresholds); i++) {
            const struct latents_row row = latents_row(work, i);

            right &= odd && (first + i) % ODD == 0
                         ? row.bad
                         : is_right(l, &row, first + i);
        }
    }
    for (size_t i = 0; l->hook && i < ROWS * N; i++)
        right &= hooked[i / N][i % N];
    latents_work_close(work);
    return right;
}

/* In batches, and a few at a time: by what this CPU screens these. */
static void
try_screened(struct latents *l, struct gemm *gemm, const char *what)
{
    static const size_t batches[] = { ROWS, 3, 1 };

    for (int waits = 0; waits < 2; waits++)
        for (size_t b = 0; b < 3; b++) {
            struct screen_counts counts = { 0 };

            l->screen = latents_screen(l, NULL, waits);
            tap_ok(are_right(l, gemm, batches[b], false) &&
                       are_right(l, gemm, batches[b], true),
                   "%s, screened%s, %zu at a time: the numbers' own", what,
                   waits ? " after a while" : "", batches[b]);
            screen_count(l->screen, &counts);
            if (batches[b] < 8)
                tap_ok(counts.nbytes > 0 && counts.rows > 0 &&
                           counts.rows <= (waits ? 2 * ROWS - 16 : 2 * ROWS) &&
                           counts.unproved < counts.rows,
                       "%s, %zu at a time: %zu rows are screened%s", what,
                       batches[b], (size_t)counts.rows,
                       waits ? ", but not the first" : "");
            screen_close(l->screen);
            l->screen = NULL;
        }
}

static void
try_all(struct gemm *gemm, int threads)
{
    for (int shifted = 0; shifted < 2; shifted++) {
        struct latents l = {
            .w = { .weight = { .data = weight, .dtype = DT_F32, .ld = IN },
                   .n = N,
                   .k = IN },
            .bias = bias,
            .shift = shifted ? shift : NULL,
        };
        const char *of = shifted ? "x - shift" : "x";

        sums(shifted);
        for (size_t k = 1; k <= N; k = k == 1 ? 30 : k == 30 ? N : N + 1) {
            l.k = k;
            tap_ok(are_right(&l, gemm, 16, false) &&
                       are_right(&l, gemm, 1, true),
                   "the %zu largest of %s, -j %d: of equals the lower", k, of,
                   threads);
        }
        l.k = 30;
        l.bf16 = true;
        l.hook = see;
        tap_ok(are_right(&l, gemm, 16, false),
               "bf16, and a hook, of %s: the same", of);
        l.bf16 = false;
        l.k = 0;
        tap_ok(are_right(&l, gemm, 7, false), "a hook alone sees each z of %s",
               of);
        l.hook = NULL;
        l.k = 30;
        try_screened(&l, gemm, of);
        l.thresholds = thresholds;
        tap_ok(are_right(&l, gemm, 16, false) && are_right(&l, gemm, 1, true),
               "%s over thresholds", of);
        try_screened(&l, gemm, "over thresholds");
    }
}

int
main(void)
{
    fill();
    for (int threads = tap_slow() ? 3 : 1; threads < 4; threads += 2) {
        struct gemm *gemm;
        struct par *par;
        struct err err;

        if (par_open(&par, threads, &err) < 0 ||
            gemm_open(&gemm, par, &err) < 0)
            return 1;
        try_all(gemm, threads);
        gemm_close(gemm);
        par_close(par);
    }
    return tap_done();
}
