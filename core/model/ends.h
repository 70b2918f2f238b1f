/* SPDX-License-Identifier: ISC */
/*
 * The two ends of a model: what makes rows for its trunk, which is block.h's,
 * and what is made of the rows that come out.
 */
#ifndef CORE_MODEL_ENDS_H
#define CORE_MODEL_ENDS_H

#include <stddef.h>
#include <stdint.h>

struct chunk;
struct engine;

/* embed_ids() fills x [n_rows, hidden], a chunk's rows of the residual stream
 * before the first layer, of their tokens' ids [n_rows]. */
void embed_ids(struct engine *engine, const struct chunk *chunk,
               const int32_t *ids, float *x);

/* head_logits() writes the logits, [n, vocab_size], of rows from[i], or i where
 * 'from' is NULL, of the residual stream after the last layer. */
void head_logits(struct engine *engine, const float *x, const size_t *from,
                 size_t n, float *logits);

#endif
