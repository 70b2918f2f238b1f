/* SPDX-License-Identifier: ISC */
#include "core/kernel/weight.h"

#include "core/kernel/cvt.h"
#include "core/kernel/ops.h"

/* A scale as f32. */
static float
scale_at(const struct weight_code *c, size_t i)
{
    float f;

    if (c->scale_dtype == DT_F8_E8M0)
        return (float)dtype_get(DT_F8_E8M0, c->scale, i);
    cvt_to_f32(&f, (const char *)c->scale + i * dtype_size(c->scale_dtype),
               c->scale_dtype, 1);
    return f;
}

/* Column c of a row of codes. */
static float
code_at(enum code_kind kind, const uint8_t *row, size_t c)
{
    static const float e2m1[8] = { 0, .5f, 1, 1.5f, 2, 3, 4, 6 };
    unsigned half = row[kind == CODE_U4 || kind == CODE_F4 ? c / 2 : c];

    if (kind == CODE_F8)
        return (float)dtype_get(DT_F8_E4M3, row, c);
    if (kind == CODE_I8)
        return (float)(int8_t)row[c];
    if (kind == CODE_U8)
        return (float)row[c];
    half = c % 2 ? half >> 4 : half & 15;
    if (kind == CODE_U4)
        return (float)half;
    return half & 8 ? -e2m1[half & 7] : e2m1[half];
}

static void
read_codes(float *to, const struct weight *w, size_t row, size_t col, size_t n)
{
    const struct weight_code *code = w->code;
    const uint8_t *codes = weight_at(w, row, 0);
    const size_t blocks = (w->row + row) / code->rows * code->ld;

    for (size_t i = 0; i < n; i++) {
        size_t c = w->col + col + i;
        size_t at = blocks + (code->block ? code->block[c] : c / code->cols);
        int zero = code->zero ? code->zero[at] : code->zero_all;

        if (code->zero && code->kind == CODE_I8)
            zero -= 128;
        to[i] = (code_at(code->kind, codes, col + i) - (float)zero) *
                scale_at(code, at);
    }
}

void
weight_read(float *to, const struct weight *w, size_t row, size_t col, size_t n)
{
    const int8_t *from = weight_at(w, row, col);
    float scale = w->scale ? w->scale[w->row + row] : 1;

    if (w->code) {
        read_codes(to, w, row, col, n);
        return;
    }
    if (w->dtype != DT_I8)
        cvt_to_f32(to, from, w->dtype, n);
    for (size_t i = 0; w->dtype == DT_I8 && i < n; i++)
        to[i] = (float)from[i] * scale;
}

void
weight_rows(float *to, const struct weight *w, size_t row, size_t n_rows,
            size_t n_cols)
{
    for (size_t i = 0; i < n_rows; i++)
        weight_read(to + i * n_cols, w, row + i, 0, n_cols);
}

const void *
weight_stored(const struct weight *w, size_t rows, size_t *nbytes)
{
    *nbytes = rows * w->ld * weight_bits(w) / 8;
    return weight_at(w, 0, 0);
}
