/* SPDX-License-Identifier: ISC */
/*
 * The arithmetic that forward and backward share: a part's products for a
 * block, what LoRA adds to them, and sums over parts.
 */
#ifndef CORE_MODEL_MOE_PART_H
#define CORE_MODEL_MOE_PART_H

#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/kernel/gemm.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* moe_lora_at() is an expert's matrix of the adapter. */
const uint16_t *moe_lora_at(const struct moe *moe, enum moe_lora_matrix m,
                            size_t expert);

/* moe_gather() copies the rows of a block's tokens from 'from' [qlen, hidden]
 * to 'to', a part's x or dy. */
void moe_gather(const struct moe *moe, struct moe_part *part,
                const struct moe_block *block, uint16_t *to,
                const uint16_t *from);

/* moe_base_products() makes some of x [n_rows, k], which int8 quantizes. */
void moe_base_products(const struct moe *moe, struct moe_part *part,
                       const struct gemm_job *jobs, size_t n_jobs, uint16_t *x,
                       size_t n_rows);

/* moe_lora_product(): c [n_rows, w->n] = s x w^T, what LoRA puts between A and
 * B.  moe_lora_gate_up(): xa [block, 2 rank] of x and both A; moe_lora_down():
 * ha [block, rank] of h and the part's columns of A. */
void moe_lora_product(const struct moe *moe, struct moe_part *part, float *c,
                      const struct gemm_matrix *w, uint16_t *x, size_t n_rows);
void moe_lora_gate_up(const struct moe *moe, struct moe_part *part, float *xa,
                      uint16_t *x, const struct moe_block *block);
void moe_lora_down(const struct moe *moe, struct moe_part *part, float *ha,
                   uint16_t *h, const struct moe_block *block);

/* Some of a base product's sums, as a hook of struct gemm_end gets them. */
struct moe_tile {
    float *t; /* [n_rows, n_cols], rows ld apart: from (row, col) on */
    size_t ld, row, n_rows, col, n_cols;
};

/* moe_add_lora() adds p w to it: p [block, rank], w [rank, ldw] of F32 or BF16,
 * rows ldp and ldw apart. */
void moe_add_lora(const struct moe_tile *tile, size_t rank, const float *p,
                  size_t ldp, const void *w, enum dtype w_dtype, size_t ldw);

/* moe_fetch() prefetches into the second cache a row that a hook is about to
 * read or write: rows lie too far apart for the CPU's own prefetcher. */
static inline void
moe_fetch(const void *row, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i += 64)
        __builtin_prefetch((const char *)row + i, 0, 2);
}

/* moe_add_partials(): sum[token] += weight * partial of each part, in their
 * order, where there are several; weights [qlen, top_k], or NULL: 1. */
void moe_add_partials(const struct moe *moe, const struct moe_block *block,
                      float *sum, const float *weights);

#endif
