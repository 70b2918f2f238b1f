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
    *nbytes = rows * w->ld * weight_bits(w) / 8;
    return weight_at(w, 0, 0);
}
