/* SPDX-License-Identifier: ISC */
/* sparse_sum() and topk against plain loops, on every instruction set. */
#include "core/kernel/sums.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/le.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 40, COLS = 150, MAX_N = 3000 };

static const enum dtype dtypes[] = { DT_BF16, DT_F16, DT_F32 };

/* Is each sum near its f64, the same bits alone, and nothing else touched? */
static bool
check_sum(const struct sums_ops *ops, enum dtype dtype, size_t cols, size_t n)
{
    size_t size = dtype == DT_F32 ? 4 : 2;
    uint8_t *w = malloc(ROWS * cols * size + 1);
    float y[COLS + 4], before[COLS + 4], v[ROWS];
    uint32_t idx[ROWS];
    struct sparse_sum s = { .y = y,
                            .w = w + 1,
                            .idx = idx,
                            .v = v,
                            .ldw = cols,
                            .cols = cols,
                            .n = n,
                            .w_dtype = dtype };
    bool good = true;

    for (size_t i = 0; i < ROWS * cols; i++) {
        float f = rnd();

        if (dtype == DT_F32)
            put_le32(w + 1 + 4 * i, f32_bits(f));
        else
            put_le16(w + 1 + 2 * i,
                     dtype == DT_BF16 ? f32_to_bf16(f) : f32_to_f16(f));
    }
    for (size_t i = 0; i < n; i++) {
        idx[i] = (uint32_t)(i * 7 % ROWS);
        v[i] = rnd();
    }
    for (size_t c = 0; c < COLS + 4; c++)
        before[c] = y[c] = rnd();
    ops->sparse(&s);
    for (size_t c = 0; c < COLS + 4; c++) {
        double sum = (double)before[c], abs = fabs(sum);
        float alone = before[c];

        if (c >= cols) {
            good &= memcmp(&y[c], &before[c], sizeof(float)) == 0;
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            double term =
                (double)v[i] * dtype_get(dtype, w + 1, idx[i] * cols + c);

            sum += term;
            abs += fabs(term);
        }
        s.y = &alone;
        s.w = w + 1 + c * size;
        s.cols = 1;
        ops->sparse(&s);
        good &= fabs((double)y[c] - sum) <= abs * 0x1p-18 &&
                memcmp(&alone, &y[c], sizeof(alone)) == 0;
    }
    free(w);
    return good;
}

static void
test_sums(enum isa isa)
{
    for (size_t k = 0; k < 3; k++) {
        size_t n_bad = 0, bad_cols = 0, bad_n = 0;

        for (size_t cols = 0; cols <= COLS; cols += cols < 70 ? 1 : 20)
            for (size_t n = 0; n <= ROWS; n += n < 19 ? 1 : 7)
                if (!check_sum(sums_ops_of(isa), dtypes[k], cols, n)) {
                    n_bad++;
                    bad_cols = cols;
                    bad_n = n;
                }
        tap_ok(
            n_bad == 0,
            "sparse_sum %s: %s: within 2^-18 of f64, each alone has its bits, "
            "nothing else is touched (cols %zu, n %zu)",
            isa_name(isa), dtype_table[dtypes[k]].name, bad_cols, bad_n);
    }
}

static void
test_outside(enum isa isa)
{
    const float odd[] = { 0,        -0.0f,     1,         -1,     NAN,
                          INFINITY, -INFINITY, 0x1p-149f, -3e38f, 3e38f };
    bool good = true;
    float x[64];

    for (size_t n = 0; n <= 64; n++)
        for (size_t at = 0; at < 10; at++) {
            float hi = at % 3 == 0 ? 0 : at % 3 == 1 ? 0.5f : 1;
            uint64_t want = 0;

            for (size_t i = 0; i < n; i++) {
                x[i] = (i + at) % 4 ? rnd() : odd[(i + at) % 10];
                want |= (uint64_t) !(x[i] >= -1 && x[i] <= hi) << i;
            }
            good &= sums_ops_of(isa)->outside(x, n, -1, hi) == want;
        }
    tap_ok(good, "topk %s: outside: the comparison of each number, 0..64",
           isa_name(isa));
}

/* A key is the number's bits, then the complement of its index. */
static void
test_keys(enum isa isa)
{
    const struct sums_ops *ops = sums_ops_of(isa);
    uint64_t got[64], want[64];
    bool good = true;
    float x[64];

    for (int round = 0; round < 500; round++) {
        uint64_t bits = 0;
        size_t n = 0, n_got;

        for (uint32_t i = 0; i < 64; i++) {
            x[i] = fabsf(rnd());
            if (rnd() < (float)(round % 10) / 5 - 1)
                continue;
            bits |= (uint64_t)1 << i;
            want[n++] = (uint64_t)f32_bits(x[i]) << 32 | (uint32_t) ~(700 + i);
        }
        n_got = ops->keys(got, x, bits, 700);
        good &= n_got == n && memcmp(got, want, n * sizeof(*got)) == 0;
    }
    tap_ok(good, "topk %s: keys: of the bits that are set", isa_name(isa));
}

static void
test_between(enum isa isa)
{
    const struct sums_ops *ops = sums_ops_of(isa);
    uint64_t key[70], got[70], want[70];
    bool good = true;

    for (size_t n = 0; n <= 70; n++)
        for (int round = 0; round < 20; round++) {
            uint64_t lo = 1 + round % 3, hi = round % 2 ? 8 : INT64_MAX;
            size_t n_over = 0, n_want = 0;

            for (size_t i = 0; i < n; i++) {
                key[i] = (uint64_t)(fabsf(rnd()) * 10) << (round % 4 * 9);
                n_over += key[i] > lo;
                if (key[i] > lo && key[i] < hi)
                    want[n_want++] = key[i];
            }
            good &= ops->over(key, n, lo) == n_over &&
                    ops->between(got, key, n, lo, hi) == n_want &&
                    memcmp(got, want, n_want * sizeof(*got)) == 0 &&
                    ops->between(key, key, n, lo, hi) == n_want &&
                    memcmp(key, want, n_want * sizeof(*got)) == 0;
        }
    tap_ok(good, "topk %s: over, between: in their order, in place as well",
           isa_name(isa));
}

static const float *sorted_x;

static int
by_value(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    if (sorted_x[i] != sorted_x[j])
        return sorted_x[i] < sorted_x[j] ? 1 : -1;
    return i < j ? -1 : i > j;
}

static int
by_index(const void *a, const void *b)
{
    uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;

    return i < j ? -1 : i > j;
}

/* The k best by a whole sort, those over 0; returns how many. */
static size_t
naive(uint32_t *idx, const float *x, size_t n, size_t k)
{
    size_t m = 0;

    for (size_t i = 0; i < n; i++)
        if (x[i] > 0)
            idx[m++] = (uint32_t)i;
    sorted_x = x;
    qsort(idx, m, sizeof(*idx), by_value);
    m = m < k ? m : k;
    qsort(idx, m, sizeof(*idx), by_index);
    return m;
}

/* Numbers of one of some kinds: random, few values, rising, falling, equal. */
static float
number(int kind, size_t i)
{
    switch (kind) {
    case 0:
        return rnd();
    case 1:
        return (float)(int)(rnd() * 3);
    case 2:
        return (float)i;
    case 3:
        return (float)(MAX_N - i);
    case 4:
        return 1;
    default:
        return rnd() < 0.99f ? -1.0f : 0x1p-149f * (float)(1 + i % 3);
    }
}

/* In pieces, by two that are put together: as threads do it. */
static bool
check_topk(const float *x, size_t n, size_t k)
{
    static uint32_t want[MAX_N], got[MAX_N];
    static uint64_t key[3][4 * MAX_N + 64];
    static float v[MAX_N];
    size_t n_want = naive(want, x, n, k), n_got;
    struct topk t[2];

    topk_start(&t[0], key[0], key[2], k);
    topk_start(&t[1], key[1], key[2], k);
    for (size_t i = 0, step; i < n; i += step) {
        step = n - i < 100 ? n - i : 100;
        topk_put(&t[i / 100 % 2], x + i, (uint32_t)i, step);
    }
    topk_add(&t[1], &t[0]);
    n_got = topk_take(&t[1], got, v);
    if (n_got != n_want || memcmp(got, want, n_got * sizeof(*got)) || t[1].bad)
        return false;
    for (size_t i = 0; i < n_got; i++)
        if (v[i] != x[got[i]])
            return false;
    return true;
}

static void
test_topk(void)
{
    static const size_t ks[] = { 1, 2, 13, 64, 256, 2999, 3000 };
    static float x[MAX_N];

    for (int kind = 0; kind < 6; kind++) {
        bool good = true;

        for (size_t n = 1; n <= MAX_N; n += n < 130 ? 1 : 410)
            for (size_t j = 0; j < 7; j++) {
                for (size_t i = 0; i < n; i++)
                    x[i] = number(kind, i);
                if (ks[j] <= n)
                    good &= check_topk(x, n, ks[j]);
            }
        tap_ok(good, "topk: a whole sort's, numbers of kind %d", kind);
    }
}

static void
test_bad(void)
{
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    uint64_t key[2][4 * 3 + 64];
    bool good = true;

    for (size_t at = 0; at < 200; at++)
        for (size_t j = 0; j < 3; j++) {
            struct topk t;
            float x[200];

            for (size_t i = 0; i < 200; i++)
                x[i] = rnd();
            topk_start(&t, key[0], key[1], 3);
            topk_put(&t, x, 0, 200);
            good &= !t.bad;
            x[at] = odd[j];
            topk_put(&t, x, 200, 200);
            good &= t.bad;
        }
    tap_ok(good,
           "topk: a NaN or an infinity of either sign, anywhere, is told");
}

/* Against a plain loop, in place, and with thresholds that equal a number. */
static void
test_over(void)
{
    static float x[MAX_N], threshold[MAX_N], v[MAX_N];
    static uint32_t idx[2][MAX_N];
    bool good = true;

    for (size_t n = 0; n <= MAX_N; n += n < 130 ? 1 : 410)
        for (size_t odd = 0; odd < 5; odd++) {
            size_t n_over = 0;
            bool bad = false, is_odd = odd < 3 && n > 0;

            for (size_t i = 0; i < n; i++) {
                x[i] = rnd();
                threshold[i] = i % 7 == 2 ? fabsf(x[i]) : fabsf(rnd());
            }
            if (is_odd)
                x[n * odd / 3] = odd == 0   ? NAN
                                 : odd == 1 ? INFINITY
                                            : -INFINITY;
            for (size_t i = 0; i < n; i++)
                if (x[i] > threshold[i])
                    idx[0][n_over++] = (uint32_t)i;
            good &= select_over(idx[1], v, x, threshold, n, &bad) == n_over &&
                    bad == is_odd &&
                    memcmp(idx[0], idx[1], n_over * sizeof(**idx)) == 0;
            for (size_t i = 0; i < n_over; i++)
                good &= v[i] == x[idx[0][i]];
            select_over(idx[1], x, x, threshold, n, &bad);
            good &= memcmp(x, v, n_over * sizeof(*v)) == 0;
        }
    tap_ok(good, "select_over: a plain loop's, also in place");
}

static void
test_magnitudes(void)
{
    static const float x[] = { -3, 1, 3, 0, -1, 2 };
    static const float by[] = { 1, 9, 1, 1, 1, 1 };
    const float odd[] = {
        INFINITY, 1, -NAN, f32_from_bits(0x7fffffff), 0, NAN
    };
    uint64_t key[12];
    uint32_t idx[6];

    topk_magnitudes(idx, 3, x, NULL, 6, key);
    tap_ok(idx[0] == 0 && idx[1] == 2 && idx[2] == 5, "magnitudes: 3, 3, 2");
    topk_magnitudes(idx, 1, x, NULL, 6, key);
    tap_ok(idx[0] == 0, "magnitudes: of equals the lower");
    topk_magnitudes(idx, 2, x, by, 6, key);
    tap_ok(idx[0] == 0 && idx[1] == 1, "magnitudes: weighted");
    topk_magnitudes(idx, 6, x, NULL, 6, key);
    tap_ok(idx[0] == 0 && idx[5] == 5, "magnitudes: all of them");
    topk_magnitudes(idx, 2, odd, NULL, 6, key);
    tap_ok(idx[0] == 2 && idx[1] == 3,
           "magnitudes: NaNs are largest, of either sign and payload");
}

int
main(void)
{
    FOR_EACH_TABLE(sums, isa)
    {
        test_sums(isa);
        test_outside(isa);
        test_keys(isa);
        test_between(isa);
    }
    test_topk();
    test_bad();
    test_over();
    test_magnitudes();
    return tap_done();
}
