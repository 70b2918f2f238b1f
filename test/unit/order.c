/* SPDX-License-Identifier: ISC */
/*
 * The exact class has one answer on every CPU: each sum has the bits of the
 * order that gemm.h and vec.h promise, computed here by fmaf() alone, for every
 * instruction set that runs here.  Numbers are of sizes from 2^-150, where
 * products are denormal or 0, to 2^50; NaN is not promised, and left out.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/gemm.h"
#include "core/kernel/sums.h"
#include "core/kernel/vec.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { MAX_K = 3000, PART = 1024, ROWS = 19, N_X = 13, MANY = 49 };

static float w[ROWS * MAX_K], x[N_X * MAX_K];
static uint16_t half[ROWS * MAX_K];

/* Products of two numbers are -0, in all lanes: a sum is +0 only where zeros
 * fill up its last columns. */
static bool underflows;

/* A number of any size, some of them 0, -0, or denormal. */
static float
any(void)
{
    float v = rnd();
    int size = (int)(rnd() * 100) - 50; /* 2^-150 .. 2^50 */

    if (underflows)
        return 0x1p-100f;
    if (rnd() > 0.9f)
        return rnd() > 0 ? 0.0f : -0.0f;
    return rnd() > 0 ? v : ldexpf(v, size);
}

static float
in_halves(float *lane, size_t n)
{
    for (; n > 1; n /= 2)
        for (size_t i = 0; i < n / 2; i++)
            lane[i] = lane[i] + lane[i + n / 2];
    return lane[0];
}

/* n columns in 'lanes' lanes; the last are filled up with zeros. */
static float
lanes_sum(const float *a, const float *b, size_t n, size_t lanes)
{
    float lane[64] = { 0 };

    for (size_t c = 0; c < (n + lanes - 1) / lanes * lanes; c++)
        lane[c % lanes] =
            fmaf(c < n ? a[c] : 0, c < n ? b[c] : 0, lane[c % lanes]);
    return in_halves(lane, lanes);
}

static float
exact_sum(const float *a, const float *b, size_t k)
{
    float sum = 0;

    for (size_t c = 0; c < k; c += PART) {
        float part = lanes_sum(a + c, b + c, k - c < PART ? k - c : PART, 8);

        sum = c == 0 ? part : sum + part;
    }
    return sum;
}

static bool
same(float a, float b)
{
    return f32_bits(a) == f32_bits(b);
}

/* Weights as f32, bf16 or f16; w[] gets their values. */
static const void *
weights(enum dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        w[i] = any();
        if (dtype == DT_BF16) {
            half[i] = f32_to_bf16(w[i]);
            w[i] = bf16_to_f32(half[i]);
        } else if (dtype == DT_F16) {
            half[i] = f32_to_f16(rnd());
            w[i] = f16_to_f32(half[i]);
        }
    }
    return dtype == DT_F32 ? (const void *)w : half;
}

/* n elements, 'step' apart in 'to', little-endian as weights are. */
static void
put_little(char *to, const char *from, size_t size, size_t n, size_t step)
{
    const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;

    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < size; b++)
            to[i * step * size + b] = from[i * size + (big ? size - 1 - b : b)];
}

/* gemm_exact() takes gemv's way for rows that follow each other or are by k,
 * and the blocks' for those with a gap, and for MANY rows of X. */
static bool
products(enum dtype dtype, size_t k, size_t n, size_t m, int form)
{
    size_t ld = form == 2 ? n : k + (form == 1);
    static float c[MANY * ROWS], first[MANY * ROWS];
    static char data[ROWS * (MAX_K + 1) * 4];
    size_t size = dtype == DT_F32 ? 4 : 2;
    const char *rows = weights(dtype, n * k);
    struct gemm_job job = {
        .w = { .weight = { .data = data, .dtype = dtype, .ld = ld },
               .n = n,
               .k = k,
               .by_k = form == 2 },
        .c = c,
        .ldc = n
    };
    struct gemm *gemm;
    struct err err;
    bool good = true;

    for (size_t r = 0; r < n; r++)
        put_little(data + (form == 2 ? r : r * ld) * size, rows + r * k * size,
                   size, k, form == 2 ? n : 1);
    for (size_t i = 0; i < m * k; i++)
        x[i] = underflows ? -any() : any();
    if (gemm_open(&gemm, NULL, &err) < 0)
        return false;
    gemm_exact(gemm, &job, 1, x, k, m);
    memcpy(first, c, sizeof(c));
    job.end.accumulate = true; /* C and the whole sum, not part by part */
    gemm_exact(gemm, &job, 1, x, k, m);
    gemm_close(gemm);
    for (size_t i = 0; i < m; i++)
        for (size_t r = 0; r < n; r++) {
            float sum = exact_sum(w + r * k, x + i * k, k);

            good &= same(first[i * n + r], sum);
            good &= same(c[i * n + r], sum + sum);
        }
    return good;
}

static void
test_products(const char *isa)
{
    static const enum dtype dtypes[] = { DT_F32, DT_BF16, DT_F16 };
    static const char *const forms[] = { "few rows", "blocks", "by k" };

    for (int form = 0; form < 3; form++)
        for (int t = 0; t < 3; t++) {
            bool good = true;

            for (size_t k = 0; k <= 64; k++) {
                good &= products(dtypes[t], k, 1 + k % ROWS, 1 + k % N_X, form);
                good &= products(dtypes[t], k, 1 + k % ROWS, MANY, form);
            }
            for (size_t k = 65; k <= MAX_K; k += k % 1024 < 6 ? 1 : 173)
                good &= products(dtypes[t], k, 1 + k % 11, 1 + k % 8, form);
            tap_ok(good, "%s: products, %s of %s: fmaf()'s bits, k 0 to %d",
                   isa, forms[form], dtype_table[dtypes[t]].name, MAX_K);
        }
}

static void
test_underflow(const char *isa)
{
    static const enum dtype dtypes[] = { DT_F32, DT_BF16 };
    bool good = true, dots = true;

    underflows = true;
    for (int form = 0; form < 3; form++)
        for (int t = 0; t < 2; t++)
            for (size_t k = 0; k <= 24; k++) {
                good &= products(dtypes[t], k, ROWS, N_X, form);
                good &= products(dtypes[t], k, ROWS, MANY, form);
                good &= products(dtypes[t], PART + k, ROWS, 1, form);
            }
    for (size_t n = 0; n <= 200; n++) {
        for (size_t i = 0; i < n; i++) {
            w[i] = any();
            x[i] = -any();
        }
        dots &= same(vec_dot(w, x, n), lanes_sum(w, x, n, 64));
    }
    underflows = false;
    tap_ok(good && dots, "%s: zeros fill up the lanes of -0", isa);
}

static void
test_vectors(const char *isa)
{
    bool dots = true, exps = true, sums = true, axpys = true, zero = true;
    float y[200], e[200];

    for (size_t n = 0; n <= 200; n++)
        for (int i = 0; i < 20; i++) {
            float lane[16] = { 0 }, s = any(), total, max, top = -INFINITY;

            weights(DT_F32, n);
            for (size_t j = 0; j < n; j++) {
                x[j] = any();
                y[j] = any();
                e[j] = fmaf(s, x[j], y[j]);
            }
            dots &= same(vec_dot(w, x, n), lanes_sum(w, x, n, 64));
            vec_axpy(y, s, x, n);
            axpys &= !memcmp(y, e, n * sizeof(*y));
            for (size_t j = 0; j < n; j++)
                e[j] = fmaf(s, x[j] - w[j], y[j]);
            vec_axpy_diff(y, s, x, w, n);
            axpys &= !memcmp(y, e, n * sizeof(*y));
            /* exp itself is held against f64 by unit/vec: here its sum */
            for (size_t j = 0; j < n; j++) {
                y[j] = 20 * rnd();
                top = y[j] > top ? y[j] : top;
            }
            max = n ? vec_max(y, n) : 0;
            exps &= n == 0 || same(max, top);
            total = vec_exp_sum(y, max, n);
            for (size_t j = 0; j < n; j++)
                lane[j % 16] += y[j];
            sums &= same(total, in_halves(lane, 16));
            if (n > 0) { /* zeros of both signs: +0 */
                for (size_t j = 0; j < n; j++)
                    y[j] = rnd() > 0 ? 0.0f : -0.0f;
                zero &= same(vec_max(y, n), 0);
            }
        }
    tap_ok(dots, "%s: dot in 64 lanes, 0 to 200 numbers", isa);
    tap_ok(axpys, "%s: axpy is fmaf(), of a difference, too", isa);
    tap_ok(exps && sums, "%s: sums of exponentials in 16 lanes", isa);
    tap_ok(zero, "%s: the largest of zeros is +0", isa);
}

/* Sums of rows: an accumulator for each column, rows in their order. */
static bool
weighted(enum dtype dtype, size_t rows, size_t cols, size_t n, bool add)
{
    static float y[N_X * MAX_K], want[N_X * MAX_K];
    static char data[ROWS * MAX_K * 4];
    const struct weighted_sum sum = { .y = y,
                                      .w = data,
                                      .p = x,
                                      .ldy = cols,
                                      .ldw = cols,
                                      .ldp = rows,
                                      .rows = rows,
                                      .cols = cols,
                                      .n = n,
                                      .w_dtype = dtype,
                                      .add = add };
    size_t size = dtype == DT_F32 ? 4 : 2;

    put_little(data, weights(dtype, rows * cols), size, rows * cols, 1);
    for (size_t i = 0; i < n * rows; i++)
        x[i] = any();
    for (size_t i = 0; i < n * cols; i++) {
        y[i] = any();
        want[i] = add ? y[i] : 0;
        for (size_t r = 0; r < rows; r++)
            want[i] =
                fmaf(x[i / cols * rows + r], w[r * cols + i % cols], want[i]);
    }
    weighted_sum(&sum);
    return !memcmp(y, want, n * cols * sizeof(*y));
}

static bool
sparse(enum dtype dtype, size_t rows, size_t cols, size_t n)
{
    static char data[ROWS * MAX_K * 4];
    float y[MAX_K], want[MAX_K];
    uint32_t idx[N_X];
    const struct sparse_sum sum = { .y = y,
                                    .w = data,
                                    .idx = idx,
                                    .v = x,
                                    .ldw = cols,
                                    .cols = cols,
                                    .n = n,
                                    .w_dtype = dtype };
    size_t size = dtype == DT_F32 ? 4 : 2;

    put_little(data, weights(dtype, rows * cols), size, rows * cols, 1);
    for (size_t i = 0; i < n; i++) {
        x[i] = any();
        idx[i] = (uint32_t)((rnd() + 1) * 0.499f * (float)rows);
    }
    for (size_t c = 0; c < cols; c++) {
        y[c] = want[c] = any();
        for (size_t i = 0; i < n; i++)
            want[c] = fmaf(x[i], w[idx[i] * cols + c], want[c]);
    }
    sparse_sum(&sum);
    return !memcmp(y, want, cols * sizeof(*y));
}

static void
test_sums(const char *isa)
{
    static const enum dtype dtypes[] = { DT_F32, DT_BF16, DT_F16 };
    bool dense = true, few = true;

    for (int t = 0; t < 3; t++)
        for (size_t cols = 1; cols <= 300; cols += cols < 70 ? 1 : 46) {
            size_t rows = 1 + cols % 53, n = 1 + cols % N_X;

            dense &= weighted(dtypes[t], rows, cols, n, false);
            dense &= weighted(dtypes[t], rows, cols, n, true);
            few &= sparse(dtypes[t], rows, cols, n);
        }
    tap_ok(dense, "%s: weighted sums are fmaf(), row after row", isa);
    tap_ok(few, "%s: so are those of some rows", isa);
}

int
main(void)
{
    test_products(isa_name(cpu_isa()));
    test_underflow(isa_name(cpu_isa()));
    test_vectors(isa_name(cpu_isa()));
    test_sums(isa_name(cpu_isa()));
    return tap_done();
}
