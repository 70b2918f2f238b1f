/* SPDX-License-Identifier: ISC */
/*
 * Codes that stand for numbers: each against the number formats' definitions,
 * and products of codes against those of the numbers, bit by bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/cvt.h"
#include "core/kernel/gemm.h"
#include "core/le.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { N = 70, K = 1102, LD = 1104, MAX_M = 61, N_BLOCKS = N * K };

/* One matrix of codes, and what its numbers are. */
struct data {
    struct weight w;
    struct weight_code code;
    uint8_t codes[N * LD], scale[4 * N_BLOCKS], zero[N_BLOCKS];
    uint32_t block[K];
    float numbers[N * K];
};

static struct data d;
static float x[MAX_M * K], y[2][MAX_M * LD];

static uint8_t
rnd_byte(void)
{
    return (uint8_t)(int)(rnd() * 127.99f);
}

/* A float of 1 + e + m bits with this bias and no infinity. */
static double
small_float(unsigned bits, int e, int m, int bias)
{
    int exponent = (int)(bits >> m & ((1u << e) - 1));
    double mantissa = bits & ((1u << m) - 1);
    double v = exponent ? ldexp(ldexp(1, m) + mantissa, exponent - bias - m)
                        : ldexp(mantissa, 1 - bias - m);

    return bits >> (e + m) & 1 ? -v : v;
}

static double
code_of(size_t row, size_t c)
{
    unsigned byte = d.codes[row * LD + c], half;

    switch (d.code.kind) {
    case CODE_I8:
        return byte < 128 ? byte : (double)byte - 256;
    case CODE_U8:
        return byte;
    case CODE_F8:
        return small_float(byte, 4, 3, 7);
    default:
        byte = d.codes[(row * LD + c) / 2];
        half = c % 2 ? byte / 16 : byte % 16;
        return d.code.kind == CODE_U4 ? half : small_float(half, 2, 1, 1);
    }
}

static void
put_scale(size_t i, float *value)
{
    int e = 120 + rnd_byte() % 12;

    *value = fabsf(rnd()) + 0.01f;
    switch (d.code.scale_dtype) {
    case DT_F8_E8M0:
        d.scale[i] = (uint8_t)e;
        *value = ldexpf(1, e - 127);
        break;
    case DT_F16:
        put_le16(d.scale + 2 * i, f32_to_f16(*value));
        *value = f16_to_f32(f32_to_f16(*value));
        break;
    case DT_BF16:
        put_le16(d.scale + 2 * i, f32_to_bf16(*value));
        *value = bf16_to_f32(f32_to_bf16(*value));
        break;
    default:
        put_le32(d.scale + 4 * i, f32_bits(*value));
    }
}

static void
make(enum code_kind kind, size_t rows, size_t cols, enum dtype scale, bool zero,
     bool shuffled)
{
    static float scales[N_BLOCKS];
    const size_t ld = (K + cols - 1) / cols;

    d.code = (struct weight_code){ .kind = kind,
                                   .rows = rows,
                                   .cols = cols,
                                   .scale = d.scale,
                                   .scale_dtype = scale,
                                   .ld = ld };
    d.w = (struct weight){ d.codes, DT_U8, LD, .code = &d.code };
    if (zero)
        d.code.zero = d.zero;
    else
        d.code.zero_all = kind == CODE_U8 ? 128 : kind == CODE_U4 ? 8 : 0;
    if (shuffled)
        d.code.block = d.block;
    for (size_t i = 0; i < sizeof(d.codes); i++) {
        d.codes[i] = rnd_byte();
        if (kind == CODE_F8 && (d.codes[i] & 127) == 127)
            d.codes[i] = 126; /* no NaN */
    }
    for (size_t i = 0; i < (N + rows - 1) / rows * ld; i++) {
        put_scale(i, &scales[i]);
        d.zero[i] = kind == CODE_U4 ? rnd_byte() & 15 : rnd_byte();
    }
    for (size_t c = 0; c < K; c++)
        d.block[c] = (uint32_t)(shuffled ? (c * 7 + 3) % ld : c / cols);
    for (size_t r = 0; r < N; r++)
        for (size_t c = 0; c < K; c++) {
            size_t at = r / rows * ld + d.block[c];
            int z = !zero             ? d.code.zero_all
                    : kind == CODE_I8 ? d.zero[at] - 128
                                      : d.zero[at];

            d.numbers[r * K + c] =
                (float)((code_of(r, c) - z) * (double)scales[at]);
        }
}

static bool
reads(void)
{
    struct weight part = d.w;
    float row[K];
    bool good = true;

    part.row = 3;
    part.col = 2;
    for (size_t r = 0; r + 3 < N; r++)
        for (size_t c = 0; c < 40; c += 13) {
            weight_read(row, &part, r, c, K - 2 - c);
            good &= !memcmp(row, d.numbers + (r + 3) * K + 2 + c,
                            (K - 2 - c) * sizeof(*row));
        }
    return good;
}

static struct gemm_job
job_of(struct weight w, bool by_k, float *c)
{
    return (struct gemm_job){
        .w = { .weight = w,
               .n = by_k ? K : N,
               .k = by_k ? N : K,
               .by_k = by_k },
        .c = c,
        .ldc = LD,
    };
}

/* Both of all rows, and each of the last row alone. */
static bool
same_products(struct gemm *g, bool by_k, size_t m)
{
    static uint16_t rounded[MAX_M * LD * 2];
    static char stored[4 * N * K];
    const struct weight plain = { .data = stored, .dtype = DT_F32, .ld = K };
    struct gemm_job jobs[] = { job_of(d.w, by_k, y[0]),
                               job_of(plain, by_k, y[1]) };
    const size_t k = jobs->w.k, n = jobs->w.n, nbytes = m * LD * sizeof(float);
    bool good;

    cvt_from_f32(stored, DT_F32, d.numbers, N * K);
    memset(y, 0, sizeof(y));
    for (int i = 0; i < 2; i++)
        gemm_exact(g, &jobs[i], 1, x, K, m);
    good = !memcmp(y[0], y[1], nbytes);
    gemm_exact(g, jobs, 1, x + (m - 1) * K, K, 1);
    good &= !memcmp(y[0], y[1] + (m - 1) * LD, n * sizeof(float));
    gemm_to_bf16(g, rounded, x, K, m, k);
    for (int i = 0; i < 2; i++)
        gemm_bf16(g, &jobs[i], 1, rounded, NULL, gemm_ld_bf16(k), m);
    return good && !memcmp(y[0], y[1], nbytes);
}

int
main(void)
{
    static const char *const names[] = { "I8", "U8", "U4", "F8", "F4" };
    static const enum dtype scales[] = { DT_F32, DT_BF16, DT_F16, DT_F8_E8M0 };
    static const size_t blocks[][2] = { { 1, 32 },  { 1, 128 }, { 1, K },
                                        { 8, 128 }, { 5, 7 },   { N, K } };
    static const size_t ms[] = { 1, 2, 5, 17, MAX_M };
    struct gemm *one, *many;
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err) < 0 || gemm_open(&one, NULL, &err) < 0 ||
        gemm_open(&many, par, &err) < 0)
        return 1;
    for (size_t i = 0; i < MAX_M * K; i++)
        x[i] = rnd();
    for (int kind = 0; kind < 5; kind++) {
        bool read = true, products = true;

        for (size_t b = 0; b < 6 * 3; b++) {
            bool zero = b % 3 == 1 && kind <= CODE_U4, shuffled = b % 3 == 2;

            make((enum code_kind)kind, blocks[b / 3][0], blocks[b / 3][1],
                 scales[(b + (size_t)kind) % 4], zero, shuffled);
            read &= reads();
            products &= same_products(one, false, ms[b % 5]) &&
                        same_products(many, false, ms[(b + 2) % 5]) &&
                        same_products(b % 2 ? one : many, true, ms[b % 5]);
        }
        tap_ok(read, "%s: numbers by their definition", names[kind]);
        tap_ok(products, "%s: products have the bits of those of the numbers",
               names[kind]);
    }
    gemm_close(one);
    gemm_close(many);
    par_close(par);
    return tap_done();
}
