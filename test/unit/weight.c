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
#include "test/unit/edge.h"
#include "test/unit/tap.h"

enum { N = 70, K = 1102, LD = 1104, MAX_M = 61, N_BLOCKS = N * K };

/* One matrix of codes, and what its numbers are. */
struct data {
    struct weight w;
    struct weight_code code;
    uint8_t *codes; /* [N, LD], to the end of what may be read */
    uint8_t scale[4 * N_BLOCKS + 1], zero[N_BLOCKS];
    uint32_t block[K];
    float numbers[N * K];
};

static struct data d;
static char *edge;
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
    const bool halves = d.code.kind == CODE_U4 || d.code.kind == CODE_F4;
    unsigned u = d.codes[(row * LD + c) / (halves ? 2 : 1)];

    if (halves)
        u = c % 2 ? u / 16 : u % 16;
    switch (d.code.kind) {
    case CODE_I8:
        return u < 128 ? u : (double)u - 256;
    case CODE_F8:
        return u % 128 == 127 ? NAN : small_float(u, 4, 3, 7);
    case CODE_F4:
        return small_float(u, 2, 1, 1);
    default:
        return u;
    }
}

/* A few are 0, negative, denormal or so large that numbers become infinite. */
static void
put_scale(size_t i, float *value)
{
    static const float rare[] = { 0, -1, 0x1p-126f, 0x1p-133f, 0x1p120f };
    uint8_t *to = d.scale + 1;
    int e = i % 40 == 7 ? (int)(i % 3) * 127 : 120 + rnd_byte() % 12;

    *value = fabsf(rnd()) + 0.01f;
    if (i % 40 == 7)
        *value *= rare[i / 40 % 5];
    switch (d.code.scale_dtype) {
    case DT_F8_E8M0:
        to[i] = (uint8_t)e;
        *value = ldexpf(1, e - 127);
        break;
    case DT_F16:
        put_le16(to + 2 * i, f32_to_f16(*value));
        *value = f16_to_f32(f32_to_f16(*value));
        break;
    case DT_BF16:
        put_le16(to + 2 * i, f32_to_bf16(*value));
        *value = bf16_to_f32(f32_to_bf16(*value));
        break;
    default:
        put_le32(to + 4 * i, f32_bits(*value));
    }
}

static void
make(enum code_kind kind, size_t rows, size_t cols, enum dtype scale, bool zero,
     bool shuffled)
{
    static float scales[N_BLOCKS];
    const size_t ld = (K + cols - 1) / cols;
    const size_t n = (N - 1) * LD + K;
    const size_t nbytes = kind == CODE_U4 || kind == CODE_F4 ? n / 2 : n;

    d.codes = (uint8_t *)edge - nbytes;
    d.code = (struct weight_code){ .kind = kind,
                                   .rows = rows,
                                   .cols = cols,
                                   .scale = d.scale + 1,
                                   .scale_dtype = scale,
                                   .ld = ld };
    d.w = (struct weight){ d.codes, DT_U8, LD, .code = &d.code };
    if (zero)
        d.code.zero = d.zero;
    else
        d.code.zero_all = kind == CODE_U8 ? 128 : kind == CODE_U4 ? 8 : 0;
    if (shuffled)
        d.code.block = d.block;
    for (size_t i = 0; i < nbytes; i++) {
        d.codes[i] = rnd_byte();
        if (kind == CODE_F8 && i % 20011 && (d.codes[i] & 127) == 127)
            d.codes[i] = 126; /* few NaNs */
    }
    if (kind == CODE_F8)
        d.codes[K / 2] = 255;
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

/* Which bits a NaN has is not promised. */
static bool
same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof(*a)) && !(isnan(a[i]) && isnan(b[i])))
            return false;
    return true;
}

/* By every instruction set, from even and odd columns on, some and none. */
static bool
reads(void)
{
    struct weight part = d.w;
    float row[K];
    bool good = true;

    part.row = 3;
    part.col = 2;
    FOR_EACH_TABLE(code, isa)
    for (size_t r = 0; r + 3 < N; r++)
        for (size_t c = r % 2 ? 0 : 13; c + 2 < K; c += 400 + r) {
            size_t n = r % 3 ? K - 2 - c : smaller(r % 40, K - 2 - c);

            code_ops_of(isa)->read(row, &part, r, c, n);
            good &= same(row, d.numbers + (r + 3) * K + 2 + c, n);
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
    const size_t k = jobs->w.k, n = jobs->w.n, n_y = m * LD;
    bool good;

    cvt_from_f32(stored, DT_F32, d.numbers, N * K);
    memset(y, 0, sizeof(y));
    for (int i = 0; i < 2; i++)
        gemm_exact(g, &jobs[i], 1, x, K, m);
    good = same(y[0], y[1], n_y);
    gemm_exact(g, jobs, 1, x + (m - 1) * K, K, 1);
    good &= same(y[0], y[1] + (m - 1) * LD, n);
    gemm_to_bf16(g, rounded, x, K, m, k);
    for (int i = 0; i < 2; i++)
        gemm_bf16(g, &jobs[i], 1, rounded, NULL, gemm_ld_bf16(k), m);
    return good && same(y[0], y[1], n_y);
}

/* Of 5 rows from row 6 on, in blocks of 4 x 100: of rows 4 .. 7 and 8 .. 11,
 * and all of their columns. */
static bool
pieces(bool shuffled)
{
    struct weight_piece p[WEIGHT_PIECES];
    struct weight w;
    size_t n;

    make(CODE_U4, 4, 100, DT_F16, true, shuffled);
    w = d.w;
    w.row = 6;
    w.col = 32;
    n = weight_pieces(p, &w, 5, K);
    return n == (shuffled ? 4 : 3) && p[0].data == d.codes + 6 * LD / 2 &&
           p[0].nbytes == 5 * LD / 2 && p[1].data == d.scale + 1 + 2 * 12 &&
           p[1].nbytes == 2 * 24 && p[2].data == d.zero + 12 &&
           p[2].nbytes == 24 &&
           (!shuffled || (p[3].data == d.block && p[3].nbytes == 4 * K));
}

int
main(void)
{
    static const char *const names[] = { "I8", "U8", "U4", "F8", "F4" };
    static const enum dtype scales[] = { DT_F32, DT_BF16, DT_F16, DT_F8_E8M0 };
    static const size_t blocks[][2] = { { 1, 32 },  { 1, 128 }, { 1, K },
                                        { 8, 128 }, { 5, 7 },   { N, K } };
    static const size_t ms[] = { 1, 2, 4, 3, 5, 6, 17, MAX_M };
    struct gemm *one, *many;
    struct par *par;
    struct err err;

    if (par_open(&par, 3, &err) < 0 || gemm_open(&one, NULL, &err) < 0 ||
        gemm_open(&many, par, &err) < 0)
        return 1;
    edge = edge_make(32 * 4096);
    for (size_t i = 0; i < MAX_M * K; i++)
        x[i] = rnd();
    for (int kind = 0; kind < 5; kind++) {
        bool read = true, products = true;

        for (size_t b = 0; b < 6 * 3; b++) {
            bool zero = b % 3 == 1 && kind <= CODE_U4, shuffled = b % 3 == 2;

            make((enum code_kind)kind, blocks[b / 3][0], blocks[b / 3][1],
                 scales[(b + (size_t)kind) % 4], zero, shuffled);
            read &= reads();
            products &= same_products(one, false, ms[b % 8]) &&
                        same_products(many, false, ms[(b + 2) % 8]) &&
                        same_products(b % 2 ? one : many, true, ms[b % 8]);
        }
        tap_ok(read, "%s: numbers by their definition", names[kind]);
        tap_ok(products, "%s: products have the bits of those of the numbers",
               names[kind]);
    }
    tap_ok(pieces(false) && pieces(true), "pieces: what rows are made of");
    gemm_close(one);
    gemm_close(many);
    par_close(par);
    return tap_done();
}
