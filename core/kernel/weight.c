/* SPDX-License-Identifier: ISC */
#include "core/kernel/weight.h"

#include "core/kernel/cvt.h"
#include "core/kernel/ops.h"

void
weight_read(float *to, const struct weight *w, size_t row, size_t col, size_t n)
{
    const int8_t *from = weight_at(w, row, col);
    float scale = w->scale ? w->scale[w->row + row] : 1;

    if (w->code) {
        code_ops_of(cpu_isa())->read(to, w, row, col, n);
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
    struct weight whole = *w;

    whole.col = 0;
    *nbytes = rows * w->ld * weight_bits(w) / 8;
    return weight_at(&whole, 0, 0);
}

size_t
weight_pieces(struct weight_piece to[WEIGHT_PIECES], const struct weight *w,
              size_t rows, size_t k)
{
    const struct weight_code *c = w->code;
    size_t n = 1, first, blocks, item;

    to->data = weight_stored(w, rows, &to->nbytes);
    if (!c || rows == 0)
        return n;
    first = w->row / c->rows * c->ld;
    blocks = ((w->row + rows - 1) / c->rows + 1) * c->ld - first;
    item = dtype_table[c->scale_dtype].bits / 8;
    to[n++] = (struct weight_piece){ (const char *)c->scale + first * item,
                                     blocks * item };
    if (c->zero)
        to[n++] = (struct weight_piece){ c->zero + first, blocks };
    if (c->block)
        to[n++] = (struct weight_piece){ c->block, k * sizeof(*c->block) };
    return n;
}
