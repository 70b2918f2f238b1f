/* SPDX-License-Identifier: ISC */
/*
 * Packing for gemm_packed.c: weights into panels.  Private to gemm's files.
 */
#ifndef CORE_KERNEL_GEMM_PACK_H
#define CORE_KERNEL_GEMM_PACK_H

#include "core/kernel/gemm.h"
#include "core/kernel/ops.h"

/* A block of C = X W^T: row and n_rows are of X, col and n_cols rows of W. */
struct area {
    size_t row, n_rows, col, n_cols;
};

/* A class's panels; k is worked through in parts. */
struct pack_layout {
    size_t part;
    size_t unit; /* k is rounded up to */
    size_t size; /* of an element */
    size_t word; /* neighbours in k that are stored together: 4 bytes */
};

#define PACK_STAGE (128u << 10) /* 64 rows of a part: 64 x 1024 x 2 bytes */
#define PACK_BLOCK (PACK_STAGE + 64u * 4u) /* a packed part and its comp */

static inline size_t
round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Element (r, c) of W, as it is stored. */
static inline const char *
element(const struct gemm_matrix *w, size_t r, size_t c)
{
    return weight_at(&w->weight, w->by_k ? c : r, w->by_k ? r : c);
}

/* pack_layout() is how a class's panels are stored. */
struct pack_layout pack_layout(enum gemm_class class);

/*
 * pack_part() packs the part of k from k0 on of the panel of a's columns.
 * comp [64]: where int8's compensation goes (see ops.h); NULL: after the part,
 * at to[PACK_STAGE].  stage [PACK_STAGE].  Returns comp.
 */
int32_t *pack_part(const struct gemm_ops *ops, void *to, int32_t *comp,
                   char *stage, const struct gemm_matrix *w,
                   enum gemm_class class, const struct area *a, size_t k0);

/* pack_find(): where that part is in a packed matrix, and its comp. */
char *pack_find(const struct gemm_panels *panels, size_t col, size_t k0,
                int32_t **comp);

#endif
