/* SPDX-License-Identifier: ISC */
/* Decode's products against sums in float64, on every instruction set. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/kernel/ops.h"
#include "test/unit/edge.h"
#include "test/unit/isa.h"
#include "test/unit/tap.h"

enum { ROWS = 21, COLS = 2 * EXACT_PART + 1, N_X = 14, ROOM = 1 << 18 };

/* All of a vector's tails; then about the ends of EXACT_PART. */
static size_t
next_cols(size_t cols)
{
    if (cols == 67)
        return EXACT_PART - 1;
    return cols == EXACT_PART + 1 ? 2 * EXACT_PART - 1 : cols + 1;
}

static const enum dtype dtypes[] = { DT_BF16, DT_F16, DT_F32 };

static size_t
size_of(enum dtype dtype)
{
    return dtype == DT_F32 ? 4 : 2;
}

struct shape {
    size_t rows, cols, n_x;
};

/* Some rows, in any order, have gemv's bits: y is of all rows. */
static bool
check_rows(const struct gemv_args *all, const struct gemv_ops *ops)
{
    uint32_t idx[2 * ROWS];
    float y[2 * ROWS + 1];
    bool good = true;

    for (size_t n = 0; n <= 2 * all->rows; n++) {
        struct gemv_rows some = { y, all->w,    idx,         all->x,
                                  n, all->cols, all->w_dtype };

        for (size_t i = 0; i < n; i++)
            idx[i] = (uint32_t)((i * 5 + n) % all->rows);
        y[n] = 1234;
        ops->rows(&some);
        for (size_t i = 0; i < n; i++)
            good &= f32_bits(y[i]) == f32_bits(all->y[idx[i]]);
        good &= y[n] == 1234;
    }
    return good;
}

/* One shape: near the sum in f64, and every output alone has the same bits. */
static bool
check_shape(char *end, const struct gemv_ops *ops, enum dtype dtype,
            const struct shape *s)
{
    static double v[ROWS * COLS];
    static float x[N_X * (COLS + 3)], y[N_X * (ROWS + 2)];
    static char moved[ROWS * COLS * 4 + 1];
    size_t ldx = s->cols + 3, ldy = s->rows + 2, n = s->rows * s->cols;
    char *w = edge_weights(end, dtype, n, v);
    bool good = true;

    for (size_t i = 0; i < s->n_x * ldx; i++)
        x[i] = rnd();
    for (size_t i = 0; i < s->n_x * ldy; i++)
        y[i] = 1234;
    ops->gemv(&(struct gemv_args){ y, w, x, ldy, ldx, s->rows, s->cols, s->n_x,
                                   dtype, false, 0 });
    memcpy(moved + 1, w, n * size_of(dtype));
    good &= check_rows(&(struct gemv_args){ y, w, x, ldy, ldx, s->rows, s->cols,
                                            s->n_x, dtype, false, 0 },
                       ops);
    for (size_t i = 0; i < s->n_x; i++)
        for (size_t r = 0; r < ldy; r++) {
            double sum = 0, abs = 0;
            float alone;

            if (r >= s->rows) {
                good &= y[i * ldy + r] == 1234;
                continue;
            }
            for (size_t c = 0; c < s->cols; c++) {
                sum += v[r * s->cols + c] * (double)x[i * ldx + c];
                abs += fabs(v[r * s->cols + c] * (double)x[i * ldx + c]);
            }
            good &= fabs((double)y[i * ldy + r] - sum) <=
                    (double)s->cols * 0x1p-23 * abs;
            ops->gemv(&(struct gemv_args){
                &alone, moved + 1 + r * s->cols * size_of(dtype), x + i * ldx,
                1, ldx, 1, s->cols, 1, dtype, false, 0 });
            good &= f32_bits(alone) == f32_bits(y[i * ldy + r]);
        }
    return good;
}

static void
test_shapes(char *end, enum isa isa, enum dtype dtype)
{
    const struct gemv_ops *ops = gemv_ops_of(isa);
    struct shape bad = { 0 };

    for (size_t cols = 0; cols <= COLS && !bad.rows; cols = next_cols(cols))
        for (size_t rows = 1; rows <= (cols > 67 ? 5 : ROWS) && !bad.rows;
             rows += rows < 6 ? 1 : 5)
            for (size_t n_x = 1; n_x <= N_X && !bad.rows;
                 n_x += n_x < 7 ? 1 : 6) {
                struct shape s = { rows, cols, n_x };

                if (!check_shape(end, ops, dtype, &s))
                    bad = s;
            }
    tap_ok(!bad.rows,
           "gemv %s %s: the f64 sum within bounds, same bits alone, "
           "unaligned and as some rows, cols to %d",
           isa_name(isa), dtype_table[dtype].name, COLS);
    if (bad.rows)
        printf("# %zu x %zu, n_x %zu\n", bad.rows, bad.cols, bad.n_x);
}

/* Lanes of weights by k, some at a time, have fmaf()'s bits. */
static bool
check_by_k(char *end, const struct gemv_ops *ops, enum dtype dtype,
           const struct shape *s, size_t n_lanes)
{
    enum { LD = 80 };
    static double v[LD * 80];
    static _Alignas(64) float lanes[8][BY_K_X * LD];
    const float *all = lanes[0]; /* of n_x rows each */
    float x[BY_K_X][LD];
    const char *w = edge_weights(end, dtype, s->rows * s->cols, v);
    bool good = true;

    memset(lanes, 0, sizeof(lanes));
    for (size_t i = 0; i < BY_K_X * LD; i++)
        x[i / LD][i % LD] = rnd();
    for (size_t l = 0; l < 8; l += n_lanes)
        ops->by_k(&(struct gemv_by_k){ .lanes = &lanes[0][0] + l * s->n_x * LD,
                                       .w = w + l * s->cols * size_of(dtype),
                                       .x = x[0] + l,
                                       .ld = LD,
                                       .ldw = s->cols * size_of(dtype),
                                       .ldx = LD,
                                       .n_lanes = n_lanes,
                                       .n_x = s->n_x,
                                       .n_k = s->rows > l ? s->rows - l : 0,
                                       .cols = s->cols,
                                       .w_dtype = dtype });
    for (size_t l = 0; l < 8; l++)
        for (size_t i = 0; i < s->n_x; i++)
            for (size_t r = 0; r < s->cols; r++) {
                float sum = 0;

                for (size_t c = l; c < s->rows; c += 8)
                    sum = fmaf((float)v[c * s->cols + r], x[i][c], sum);
                good &=
                    f32_bits(sum) == f32_bits(all[(l * s->n_x + i) * LD + r]);
            }
    return good;
}

static void
test_by_k(char *end, enum isa isa, enum dtype dtype)
{
    static const size_t rows[] = { 1, 7, 8, 9, 31, 32, 33, 64, 71 };
    bool good = true;

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t cols = 1; cols <= 70; cols++)
            for (size_t n_x = 1; n_x <= BY_K_X; n_x++)
                good &= check_by_k(end, gemv_ops_of(isa), dtype,
                                   &(struct shape){ rows[i], cols, n_x },
                                   (size_t)1 << (cols + i) % 4);
    tap_ok(good, "gemv %s %s: lanes of weights by k have fmaf()'s bits",
           isa_name(isa), dtype_table[dtype].name);
}

/* Infinity and NaN weights, and what is smaller than normal f16. */
static void
test_special(enum isa isa)
{
    static const uint16_t h[] = { 1, 0x3ff, 0x8001, 0x400, 0x7bff, 0x3c00 };
    const struct gemv_ops *ops = gemv_ops_of(isa);
    struct gemv_args a = { .ldy = 1, .ldx = 1, .rows = 1, .n_x = 1 };
    float x[40], y;
    uint16_t w[40];
    bool good = true;

    for (size_t i = 0; i < sizeof(h) / sizeof(*h); i++)
        for (size_t at = 0; at < 40; at++) {
            memset(w, 0, sizeof(w));
            memset(x, 0, sizeof(x));
            put_le16(&w[at], h[i]);
            x[at] = 3;
            a = (struct gemv_args){
                &y, w, x, 1, 40, 1, 40, 1, DT_F16, false, 0
            };
            ops->gemv(&a);
            good &= y == f16_to_f32(h[i]) * 3;
        }
    put_le16(&w[39], 0x7c00);
    ops->gemv(&a);
    good &= y == INFINITY;
    put_le16(&w[39], 0xfc01);
    ops->gemv(&a);
    good &= isnan(y);
    put_le16(&w[39], 0xff80); /* bf16 -inf */
    a.w_dtype = DT_BF16;
    ops->gemv(&a);
    good &= y == -INFINITY;
    tap_ok(good, "gemv %s: denormal, infinite and NaN weights", isa_name(isa));
}

int
main(void)
{
    char *end = edge_make(ROOM);

    FOR_EACH_ISA(isa)
    {
        for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
            test_shapes(end, isa, dtypes[i]);
            test_by_k(end, isa, dtypes[i]);
        }
        test_special(isa);
    }
    return tap_done();
}
