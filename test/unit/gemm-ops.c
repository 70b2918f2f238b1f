/* SPDX-License-Identifier: ISC */
/*
 * The inner loops of core/kernel/gemm on every instruction set that runs here:
 * each result is a formula of core/kernel/ops.h computed another way, and what
 * is read or written ends at a page that is neither.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/kernel/gemm.h"
#include "core/kernel/ops.h"
#include "test/unit/edge.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROOM = 1 << 20, ROOMS = 4, COLS = 64, MAX_K = 2112, MAX_M = 14 };

/* Memory that ends at an unreadable page. */
static char *room_end[ROOMS];

static void
open_rooms(void)
{
    for (int i = 0; i < ROOMS; i++)
        room_end[i] = edge_make(ROOM);
}

static void *
room(int i, size_t nbytes)
{
    return room_end[i] - nbytes;
}

static uint16_t
rnd_bf16(void)
{
    return f32_to_bf16(rnd());
}

static int8_t
rnd_int8(void)
{
    return (int8_t)(int)(rnd() * 128.99f); /* -128 .. 127 */
}

/* ---- bf16 ---- */

struct product {
    size_t m, k, lda;
    bool add;
    uint16_t *a, *b;
    float *t, old[MAX_M * COLS];
};

/* lda = k: a ends at the page; else rows lie at odd multiples of 2 bytes. */
static void
product_fill(struct product *p)
{
    size_t n_a = p->m ? (p->m - 1) * p->lda + p->k : 0;

    p->a = room(0, 2 * n_a);
    p->b = room(1, 2 * p->k * COLS);
    p->t = room(2, p->m * COLS * sizeof(float));
    for (size_t i = 0; i < n_a; i++)
        p->a[i] = rnd_bf16();
    for (size_t i = 0; i < p->k * COLS; i++)
        p->b[i] = rnd_bf16();
    for (size_t i = 0; i < p->m * COLS; i++)
        p->t[i] = p->old[i] = rnd();
}

static float
value(const uint16_t *v, size_t i)
{
    return bf16_to_f32(v[i]);
}

static bool
near_f64(const struct product *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < COLS; j++) {
            double sum = p->add ? (double)p->old[i * COLS + j] : 0;
            double abs = fabs(sum);

            for (size_t c = 0; c < p->k; c++) {
                double x =
                    (double)value(p->a, i * p->lda + c) *
                    (double)value(p->b, c / 2 * 2 * COLS + 2 * j + c % 2);

                sum += x;
                abs += fabs(x);
            }
            if (!(fabs((double)p->t[i * COLS + j] - sum) <=
                  abs * (double)(p->k + 1) * 0x1p-24))
                return false;
        }
    return true;
}

/* Intel's SDM, VDPBF16PS: the high half of a pair first, each an FMA. */
static bool
in_order(const struct product *p)
{
    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < COLS; j++) {
            float sum = p->add ? p->old[i * COLS + j] : 0;

            for (size_t c = 0; c < p->k; c += 2) {
                size_t a = i * p->lda + c, b = c * COLS + 2 * j;

                sum = fmaf(value(p->a, a + 1), value(p->b, b + 1), sum);
                sum = fmaf(value(p->a, a), value(p->b, b), sum);
            }
            if (f32_bits(sum) != f32_bits(p->t[i * COLS + j]))
                return false;
        }
    return true;
}

/* Each row by itself has the bits that it has among others. */
static bool
rows_alone(const struct gemm_bf16_ops *ops, const struct product *p)
{
    float t[COLS];

    for (size_t i = 0; i < p->m; i++) {
        memcpy(t, p->old + i * COLS, sizeof(t));
        ops->product(t, p->a + i * p->lda, p->lda, p->b, 1, COLS, p->k, p->add);
        if (memcmp(t, p->t + i * COLS, sizeof(t)))
            return false;
    }
    return true;
}

/* Of a product of fewer columns, too; the others hold what they held, or their
 * sums: no kernel computes with what nobody has written. */
static bool
cols_alone(const struct gemm_bf16_ops *ops, const struct product *p)
{
    static const size_t wanted[] = { 1, 15, 16, 17, 32, 33, 48, 63 };
    float t[MAX_M * COLS];

    for (size_t w = 0; w < sizeof(wanted) / sizeof(*wanted); w++) {
        memcpy(t, p->old, p->m * COLS * sizeof(float));
        ops->product(t, p->a, p->lda, p->b, p->m, wanted[w], p->k, p->add);
        for (size_t i = 0; i < p->m * COLS; i++)
            if (memcmp(t + i, p->t + i, sizeof(*t)) &&
                (i % COLS < wanted[w] || memcmp(t + i, p->old + i, sizeof(*t))))
                return false;
    }
    return true;
}

static void
test_bf16(enum isa isa)
{
    const struct gemm_bf16_ops *ops = gemm_bf16_ops_of(isa);
    static const size_t ks[] = { 32, 64, 96, 128, 1056, MAX_K };
    bool right = true, same = true, cols = true, order = true;

    for (size_t n = 0; n < sizeof(ks) / sizeof(*ks); n++)
        for (size_t m = 0; m < (ks[n] < 1000 ? MAX_M : 8); m++) {
            static struct product p;

            p.m = m;
            p.k = ks[n];
            p.lda = p.k + (m % 2 ? 0 : 7);
            p.add = m % 3 == 1;
            product_fill(&p);
            ops->product(p.t, p.a, p.lda, p.b, p.m, COLS, p.k, p.add);
            right &= near_f64(&p);
            same &= rows_alone(ops, &p);
            cols &= cols_alone(ops, &p);
            order &= in_order(&p);
        }
    tap_ok(right, "gemm %s bf16: m 0..13 near the f64 sums", isa_name(isa));
    tap_ok(same, "gemm %s bf16: a row alone has the same bits", isa_name(isa));
    tap_ok(cols, "gemm %s bf16: so have the first columns", isa_name(isa));
    if (isa != ISA_SCALAR && isa != ISA_AMX)
        tap_ok(order, "gemm %s bf16: VDPBF16PS's order, bit for bit",
               isa_name(isa));
}

/* VDPBF16PS takes denormals as 0 and has none as a sum. */
static void
test_denormals(enum isa isa)
{
    const struct gemm_bf16_ops *ops = gemm_bf16_ops_of(isa);
    bool flushes = isa == ISA_AVX512BF16 || isa == ISA_AMX;
    uint16_t *a = room(0, 64), *b = room(1, 32 * COLS * 2);
    float *t = room(2, COLS * sizeof(float));

    memset(a, 0, 64);
    memset(b, 0, 32 * COLS * 2);
    a[4] = f32_to_bf16(0x1p-130f);
    b[4 * COLS] = f32_to_bf16(0x1p10f);
    a[6] = b[6 * COLS + 2] = f32_to_bf16(0x1p-65f);
    ops->product(t, a, 32, b, 1, COLS, 32, false);
    tap_ok(t[0] == (flushes ? 0 : 0x1p-120f) &&
               t[1] == (flushes ? 0 : 0x1p-130f),
           "gemm %s bf16: denormals are %s", isa_name(isa),
           flushes ? "zeros" : "kept");
}

/* ---- int8 ---- */

static bool
int8_case(enum isa isa, size_t m, size_t k, size_t lda, bool add)
{
    const struct gemm_int8_ops *ops = gemm_int8_ops_of(isa);
    size_t n_a = m ? (m - 1) * lda + k : 0;
    int8_t *a = room(0, n_a), *b = room(1, k * COLS);
    int32_t *t = room(2, m * COLS * sizeof(*t)), comp[COLS];
    static int32_t old[MAX_M * COLS];
    bool good = true;

    for (size_t i = 0; i < n_a; i++)
        a[i] = i % 64 < 2 ? -128 : rnd_int8();
    for (size_t i = 0; i < k * COLS; i++)
        b[i] = i % 256 < 4 ? -128 : rnd_int8();
    for (size_t i = 0; i < m * COLS; i++)
        t[i] = old[i] = (int32_t)i * 1000003;
    gemm_ops_of(isa)->sums(comp, b, k);
    for (size_t j = 0; j < COLS; j++) {
        int32_t sum = 0;

        for (size_t c = 0; c < k; c++)
            sum += b[c / 4 * 4 * COLS + 4 * j + c % 4];
        good &= comp[j] == 128 * sum;
    }
    if (ops->ready) {
        size_t n = (n_a + 63) / 64 * 64;
        int8_t *whole = calloc(n + 1, 1), *ready = room(3, n_a);

        memcpy(whole, a, n_a);
        ops->ready(whole, n);
        memcpy(ready, whole, n_a);
        free(whole);
        ops->product(t, ready, lda, b, comp, m, k, add);
    } else {
        ops->product(t, a, lda, b, comp, m, k, add);
    }
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < COLS; j++) {
            int32_t sum = add ? old[i * COLS + j] : 0;

            for (size_t c = 0; c < k; c++)
                sum += a[i * lda + c] * b[c / 4 * 4 * COLS + 4 * j + c % 4];
            good &= t[i * COLS + j] == sum;
        }
    return good;
}

static void
test_int8(enum isa isa)
{
    static const size_t ks[] = { 64, 128, 192, 576, MAX_K };
    bool good = true;

    for (size_t n = 0; n < sizeof(ks) / sizeof(*ks); n++)
        for (size_t m = 0; m < (ks[n] < 1000 ? MAX_M : 8); m++)
            good &=
                int8_case(isa, m, ks[n], ks[n] + (m % 2 ? 0 : 5), m % 3 == 1);
    tap_ok(good, "gemm %s int8, sums: exact, with -128, m 0..13",
           isa_name(isa));
}

/* ---- what goes on around them ---- */

/* Columns from 'cols' on hold the sevens that they held. */
static bool
others_stay(const uint32_t *to, size_t cols, size_t n)
{
    for (size_t i = 0; i < n * COLS; i++)
        if (i % COLS >= cols && to[i] != 0x07070707)
            return false;
    return true;
}

static void
test_transpose(const struct gemm_ops *ops, enum isa isa)
{
    bool good = true;

    for (size_t n = 0; n < 70; n++) {
        size_t rows = 16 * (1 + n / 2 % 4);
        size_t ld = 4 * n + n % 9, nbytes = (rows - 1) * ld + 4 * n;
        unsigned char *from = room(0, nbytes);
        uint32_t *to = room(1, n * COLS * 4), word;

        for (size_t i = 0; i < nbytes; i++)
            from[i] = (unsigned char)(i * 167 >> 3);
        memset(to, 7, n * COLS * 4);
        ops->transpose(to, from, ld, rows, n);
        good &= others_stay(to, rows, n);
        for (size_t r = 0; r < rows; r++)
            for (size_t i = 0; i < n; i++) {
                memcpy(&word, from + r * ld + 4 * i, 4);
                good &= to[i * COLS + r] == word;
            }
    }
    tap_ok(good, "gemm %s transpose: 0..69 words of 16..64 rows at any address",
           isa_name(isa));
}

static void
test_interleave(const struct gemm_ops *ops, enum isa isa)
{
    bool good = true;

    for (size_t n = 0; n < 40; n++) {
        size_t cols = 16 * (1 + n / 2 % 4), ld = 2 * cols + n % 9;
        size_t nbytes = n ? (2 * n - 1) * ld + 2 * cols : 0;
        unsigned char *from = room(0, nbytes);
        uint32_t *to = room(1, n * COLS * 4);
        uint16_t word[2];

        for (size_t i = 0; i < nbytes; i++)
            from[i] = (unsigned char)(i * 167 >> 3);
        memset(to, 7, n * COLS * 4);
        ops->interleave(to, from, ld, cols, n);
        good &= others_stay(to, cols, n);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < cols; j++) {
                memcpy(word, from + 2 * i * ld + 2 * j, 2);
                memcpy(word + 1, from + (2 * i + 1) * ld + 2 * j, 2);
                good &= !memcmp(&to[i * COLS + j], word, 4);
            }
    }
    tap_ok(good, "gemm %s interleave: 0..39 pairs of 16..64 columns, anywhere",
           isa_name(isa));
}

/* Rows at any address; or by streaming stores, a multiple of 64 bytes apart. */
static void
test_rescale(const struct gemm_ops *ops, enum isa isa, bool stream)
{
    static _Alignas(64) float lines[3][80];
    bool good = true;

    for (size_t n = 0; n <= COLS; n++) {
        int32_t *s = room(0, 3 * COLS * 4);
        float *w = room(1, n * 4), x[3],
              *c = stream ? lines[0] : room(2, 240 * 4);

        for (size_t j = 0; j < 3 * COLS; j++)
            s[j] = (int32_t)(rnd() * 0x1p31f);
        for (size_t j = 0; j < n; j++)
            w[j] = rnd();
        for (size_t i = 0; i < 3; i++)
            x[i] = rnd();
        for (size_t j = 0; j < 240; j++)
            c[j] = 7;
        ops->rescale(c, 80, s, x, w, 3, n, stream);
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 80; j++) {
                float want = j < n ? (float)s[i * COLS + j] : 7;

                want *= j < n ? x[i] : 1;
                want *= j < n ? w[j] : 1;
                good &= f32_bits(c[i * 80 + j]) == f32_bits(want);
            }
    }
    tap_ok(good, "gemm %s rescale%s: 0..64 sums, rounded after each factor",
           isa_name(isa), stream ? " by streaming stores" : "");
}

/* x as its type has it, so that it ends at the page. */
static const void *
typed(enum dtype dtype, const float *x, size_t n)
{
    char *to = room(2, n * (dtype == DT_F32 ? 4 : 2));

    if (dtype == DT_F32)
        memcpy(to, x, n * 4);
    for (size_t i = 0; i < n && dtype == DT_BF16; i++)
        put_le16(to + 2 * i, f32_to_bf16(x[i]));
    return to;
}

static void
test_absmax(const struct gemm_ops *ops, enum isa isa, enum dtype dtype)
{
    const char *name = dtype_table[dtype].name;
    bool good = true, nan = true;

    for (size_t n = 0; n < 100; n++) {
        float *x = room(0, n * 4), max = 0;

        for (size_t i = 0; i < n; i++) {
            x[i] = bf16_to_f32(rnd_bf16());
            max = fmaxf(max, fabsf(x[i]));
        }
        good &= ops->absmax(typed(dtype, x, n), dtype, n) == max;
        for (size_t i = 0; i < n; i++) {
            float old = x[i];

            x[i] = -INFINITY;
            good &= ops->absmax(typed(dtype, x, n), dtype, n) == INFINITY;
            x[i] = i % 2 ? NAN : -NAN;
            nan &= isnan(ops->absmax(typed(dtype, x, n), dtype, n));
            x[n - 1 - i] = i == n - 1 - i ? x[i] : INFINITY;
            nan &= isnan(ops->absmax(typed(dtype, x, n), dtype, n));
            x[n - 1 - i] = x[i] = old;
        }
    }
    tap_ok(good, "gemm %s absmax: 0..99 numbers of %s, infinity at any place",
           isa_name(isa), name);
    tap_ok(nan, "gemm %s absmax: a NaN of %s at any place is not lost",
           isa_name(isa), name);
}

/* Halves go to the even neighbour; 127 is as far as it goes. */
static void
test_quantize(const struct gemm_ops *ops, enum isa isa, enum dtype dtype)
{
    static const float x[] = {
        0.25f, 0.75f, 1.25f, -0.25f,  -0.75f,   63.25f,
        63.5f, 64.5f, -64,   0x1p99f, INFINITY, -0x1p99f
    };
    static const int8_t q[] = {
        0, 2, 2, 0, -2, 126, 127, 127, -127, 127, 127, -127
    }; /* 2 x, by hand; bf16 has all of x */
    const char *name = dtype_table[dtype].name;
    bool good = true, tails = true;

    for (size_t n = 0; n < 100; n++) {
        float *from = room(0, n * 4);
        int8_t *to = room(1, n);

        for (size_t i = 0; i < n; i++)
            from[i] = x[(i * 5 + n) % 12];
        ops->quantize(to, typed(dtype, from, n), dtype, 2, n);
        for (size_t i = 0; i < n; i++)
            good &= to[i] == q[(i * 5 + n) % 12];
        for (size_t i = 0; i < n; i++)
            from[i] = bf16_to_f32(rnd_bf16());
        ops->quantize(to, typed(dtype, from, n), dtype, 127, n);
        for (size_t i = 0; i < n; i++)
            tails &= to[i] == (int8_t)lrintf(from[i] * 127);
    }
    tap_ok(good, "gemm %s quantize: halves of %s to even, within 127",
           isa_name(isa), name);
    tap_ok(tails, "gemm %s quantize: 0..99 numbers of %s", isa_name(isa), name);
}

static void
test_rest(const struct gemm_ops *ops, enum isa isa)
{
    bool good = true;

    for (size_t n = 0; n < 70; n++) {
        float *x = room(0, n * 4), *to = room(1, n * 4);
        uint16_t *hi = room(2, n * 2);

        for (size_t i = 0; i < n; i++) {
            x[i] = rnd();
            hi[i] = f32_to_bf16(x[i]);
        }
        ops->rest(to, x, hi, n);
        for (size_t i = 0; i < n; i++)
            good &= (double)to[i] == (double)x[i] - (double)bf16_to_f32(hi[i]);
    }
    tap_ok(good, "gemm %s rest: 0..69 numbers, exact", isa_name(isa));
}

/* Rows of bf16 as files have them, longer than what is widened at a time: each
 * number rounded by hand, as the row's largest says. */
static void
test_x_int8(void)
{
    enum { ROWS = 4, K = 1100 };
    void (*ready)(int8_t *, size_t) = gemm_int8_ops_of(cpu_isa())->ready;
    size_t ld = gemm_ld_int8(K), ldx = K + 3;
    int8_t *q = room(0, ROWS * ld), *want = room(1, ld);
    char *x = room(2, 2 * ((ROWS - 1) * ldx + K));
    struct gemm *gemm;
    struct err err;
    float scale[ROWS];
    bool good = true;

    for (size_t i = 0; i < (ROWS - 1) * ldx + K; i++)
        put_le16(x + 2 * i, f32_to_bf16(rnd()));
    put_le16(x + 2 * 1099, f32_to_bf16(-3));
    put_le16(x + 2 * (ldx + 600), f32_to_bf16(5));
    put_le16(x + 2 * (2 * ldx + 520), f32_to_bf16(NAN)); /* others follow */
    put_le16(x + 2 * (3 * ldx + 2), f32_to_bf16(INFINITY));
    put_le16(x + 2 * (3 * ldx + 1099), f32_to_bf16(NAN));
    if (gemm_open(&gemm, NULL, &err) < 0)
        exit(1);
    gemm_x_int8(gemm, q, scale, x, DT_BF16, ldx, ROWS, K);
    gemm_close(gemm);
    for (size_t i = 0; i < 2; i++) {
        float max = i == 0 ? 3 : 5, by = 127 / max;

        memset(want, 0, ld);
        for (size_t c = 0; c < K; c++)
            want[c] =
                (int8_t)lrintf(by * bf16_to_f32(load16(x + 2 * i * ldx, c)));
        if (ready)
            ready(want, ld);
        good &= scale[i] == max / 127 && !memcmp(q + i * ld, want, ld);
    }
    tap_ok(good, "gemm_x_int8: a row of bf16, one scale");
    tap_ok(isnan(scale[2]) && isnan(scale[3]),
           "gemm_x_int8: a NaN of bf16 is not lost");
}

int
main(void)
{
    open_rooms();
    test_x_int8();
    FOR_EACH_ISA(isa)
    {
        const struct gemm_ops *ops = gemm_ops_of(isa);

        test_bf16(isa);
        test_denormals(isa);
        test_int8(isa);
        test_transpose(ops, isa);
        test_interleave(ops, isa);
        test_rescale(ops, isa, false);
        test_rescale(ops, isa, true);
        test_absmax(ops, isa, DT_F32);
        test_absmax(ops, isa, DT_BF16);
        test_quantize(ops, isa, DT_F32);
        test_quantize(ops, isa, DT_BF16);
        test_rest(ops, isa);
    }
    return tap_done();
}
