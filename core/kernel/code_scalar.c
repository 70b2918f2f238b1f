/* SPDX-License-Identifier: ISC */
/* The reference. */
#include "core/kernel/code.h"

static void
read_codes(float *to, const struct weight *w, size_t row, size_t col, size_t n)
{
#define READ(kind) code_row(to, w, row, col, n, kind, code_some)
    BY_CODE(w->code->kind, READ);
#undef READ
}

const struct code_ops code_scalar = { .read = read_codes };
