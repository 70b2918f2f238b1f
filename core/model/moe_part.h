/* What the passes share: products of a block, and sums over parts. */
#ifndef CORE_MODEL_MOE_PART_H
#define CORE_MODEL_MOE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/gemm.h"
#include "core/model/moe.h"
#include "core/model/moe_operator.h"

/* Rows of 'from' [qlen, hidden] that the block's tokens have. */
void gather(struct pass *pass, struct part *part, uint16_t *to,
            const uint16_t *from);

/* base_products() makes some of one input, by way of 'x'. */
void base_products(struct pass *pass, struct part *part,
                   const struct gemm_job *jobs, size_t n_jobs, uint16_t *x);

/* c [block, w->n] = s x w^T: what LoRA puts between A and B. */
void lora_product(struct pass *pass, struct part *part, float *c,
                  const struct gemm_matrix *w, uint16_t *x);

/* s x A^T of gate and up, in part->ug, and s h A^T of down, in part->ud. */
void lora_gate_up(struct pass *pass, struct part *part);
void lora_down(struct pass *pass, struct part *part);

/* sum[token] += weight * partial of each part, in their order; weights NULL: 1
 */
void add_partials(struct pass *pass, float *sum, bool weighted);

/* The adapter's matrix of the block's expert. */
const uint16_t *lora_of(const struct pass *pass, enum moe_lora_matrix m);

#endif
