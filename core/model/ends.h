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
struct tap;

/* embed_ids() fills x [n_rows, hidden], a chunk's rows of the residual stream
 * before the first layer, of their tokens' ids [n_rows]; 'tap' may be NULL. */
void embed_ids(struct engine *engine, const struct chunk *chunk,
               const int32_t *ids, float *x, const struct tap *tap);

/* head_end() is what is done to each of n logits after their product: times
 * logit_scale, capped.  head_end_back() goes back through it: d becomes the
 * gradient before, of logits that head_end() has left. */
struct config;
void head_end(const struct config *config, float *logits, size_t n);
void head_end_back(const struct config *config, float *d, const float *logits,
                   size_t n);

/* head_logits() writes the logits, [n, vocab_size], of rows from[i], or i where
 * 'from' is NULL, of the residual stream after the last layer. */
void head_logits(struct engine *engine, const float *x, const size_t *from,
                 size_t n, float *logits);

#endif
