/* SPDX-License-Identifier: ISC */
/*
 * Codes one by one, and by blocks: what the reference and the vectors share.
 * See struct weight_code.
 */
#ifndef CORE_KERNEL_CODE_H
#define CORE_KERNEL_CODE_H

#include <math.h>

#include "core/kernel/scalar.h"

/* How a block's codes become numbers. */
struct code_block {
    float scale, zero;
};

/* 2^(e - 127), also where that is denormal. */
INLINE float
code_power(uint8_t e)
{
    return e == 255 ? NAN : f32_from_bits(e ? (uint32_t)e << 23 : 1u << 22);
}

/* Block 'at', whose scale has this dtype. */
INLINE struct code_block
code_block_as(const struct weight_code *c, size_t at, enum dtype dtype)
{
    int zero = c->zero ? c->zero[at] : c->zero_all;

    if (c->zero && c->kind == CODE_I8)
        zero -= 128;
    return (struct code_block){
        .scale = dtype == DT_F8_E8M0
                     ? code_power(((const uint8_t *)c->scale)[at])
                     : weight(c->scale, dtype, at),
        .zero = (float)zero,
    };
}

INLINE struct code_block
code_block(const struct weight_code *c, size_t at)
{
    return code_block_as(c, at, c->scale_dtype);
}

/* Column c of a row of codes. */
INLINE float
code_at(enum code_kind kind, const uint8_t *row, size_t c)
{
    static const float e2m1[8] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6 };
    bool halves = kind == CODE_U4 || kind == CODE_F4;
    unsigned u = row[halves ? c / 2 : c];

    if (halves)
        u = c % 2 ? u >> 4 : u & 15;
    if (kind == CODE_I8)
        return (float)(int8_t)u;
    if (kind == CODE_F8) {
        float f = f32_from_bits((u & 127) << 20) * 0x1p120f;

        f = (u & 127) == 127 ? NAN : f;
        return u & 128 ? -f : f;
    }
    if (kind == CODE_F4)
        return u & 8 ? -e2m1[u & 7] : e2m1[u];
    return (float)u;
}

/* The columns 'col' to col + n - 1 of a block. */
INLINE void
code_some(float *to, enum code_kind kind, const uint8_t *row, size_t col,
          size_t n, struct code_block b)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (code_at(kind, row, col + i) - b.zero) * b.scale;
}

/* run() is code_some() or the like: for each block, or, if each column has its
 * own, for the codes alone. */
INLINE void
code_row(float *to, const struct weight *w, size_t row, size_t col, size_t n,
         enum code_kind kind, __typeof__(code_some) run)
{
    const struct weight_code *code = w->code;
    const size_t blocks = (w->row + row) / code->rows * code->ld;
    const size_t first = w->col + col;

    if (code->block) {
        run(to, kind, weight_at(w, row, 0), col, n,
            (struct code_block){ 1, 0 });
        for (size_t i = 0; i < n; i++) {
            struct code_block b =
                code_block(code, blocks + code->block[first + i]);

            to[i] = (to[i] - b.zero) * b.scale;
        }
        return;
    }
    for (size_t i = 0, some; i < n; i += some) {
        size_t at = (first + i) / code->cols;

        some = smaller(n - i, (at + 1) * code->cols - first - i);
        run(to + i, kind, weight_at(w, row, 0), col + i, some,
            code_block(code, blocks + at));
    }
}

/* A function's body of each kind: gcc inlines each for itself. */
#define BY_CODE(kind, call) \
    do {                    \
        switch (kind) {     \
        case CODE_I8:       \
            call(CODE_I8);  \
            break;          \
        case CODE_U8:       \
            call(CODE_U8);  \
            break;          \
        case CODE_U4:       \
            call(CODE_U4);  \
            break;          \
        case CODE_F8:       \
            call(CODE_F8);  \
            break;          \
        case CODE_F4:       \
            call(CODE_F4);  \
            break;          \
        }                   \
    } while (0)

#endif
