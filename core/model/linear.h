/*
 * Linear layers: weights as they lie in the mapped file, and a chunk's rows
 * through them in the class of exactness that is asked for.
 */
#ifndef CORE_MODEL_LINEAR_H
#define CORE_MODEL_LINEAR_H

#include <stdbool.h>
#include <stddef.h>

#include "core/dtype.h"

struct engine;
struct lora;
struct tabled;

/* A linear layer: y = w x + bias, and what its adapters add. */
struct linear {
    const void *w; /* [rows, cols] in the mapped file, at any address */
    enum dtype dtype;
    size_t rows, cols;
    const float *bias;          /* [rows], or NULL */
    const struct tabled *table; /* instead of w, from this column of its
                                 * outputs on; or NULL */
    size_t table_col;
    struct lora *lora; /* the first of its adapters' parts, or NULL */
};

/* One of the linear layers that share an input, and where it goes. */
struct apply {
    const struct linear *linear;
    float *y; /* [rows, linear->rows] */
    bool add; /* to what is there: the residual stream */
};

#define MAX_APPLY 3

/* linear_apply() puts all rows of the chunk through n layers;
 * linear_rows() puts rows x [n_rows] through them, prompts' or not;
 * router_rows() puts all rows of the chunk through one, exactly;
 * linear_logits() puts the normalized rows x [n_rows] through the last one. */
void linear_apply(struct engine *engine, const struct apply *to, size_t n,
                  const float *x);
void linear_rows(struct engine *engine, const struct apply *to, size_t n,
                 const float *x, size_t n_rows);
void router_rows(struct engine *engine, const struct apply *to, const float *x);
void linear_logits(struct engine *engine, float *logits, const float *x,
                   size_t n_rows);

#endif
