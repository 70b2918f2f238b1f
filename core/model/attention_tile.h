/* SPDX-License-Identifier: ISC */
/*
 * What attention.c and attention_bf16.c share: a tile is some queries of one KV
 * head, which pass over its keys and values block by block.  Private to them.
 */
#ifndef CORE_MODEL_ATTENTION_TILE_H
#define CORE_MODEL_ATTENTION_TILE_H

#include "core/model/attention.h"
#include "core/model/engine.h"

/* One thread's memory, and what is in it. */
struct tile {
    const struct span *span;
    size_t n_rows;               /* group rows for each position */
    size_t first;                /* slot of its first row */
    size_t group, head, kv_head; /* query heads: head .. head + group - 1 */
    float *max, *total;          /* [rows] of the scores so far */
    float *sum;                  /* [rows, v_head_dim]: softmax numerator; in
                                  * bf16 [v_head_dim / 64, rows, 64] */
    float *score; /* [rows, KV_BLOCK], then weights; in bf16 of 64 rows */
    float *q;     /* [rows, head_dim], scaled */

    /* of bf16 */
    size_t ld_sum;           /* floats from one part of 'sum' to the next */
    uint16_t *rounded_q;     /* [rows, gemm_ld_bf16(head_dim)], scaled */
    uint16_t *weights;       /* [64, KV_BLOCK] */
    uint16_t *keys, *values; /* a block of them, in panels */
    float *by;               /* [64] */
};

/* Rows and keys of a block that see each other: rows [first, end) all see some
 * of the keys [oldest, n_keys), and no other row or key does. */
struct seen {
    size_t first, end, oldest, n_keys;
};

/* The keys [*begin, *end) of block b that row r of a tile sees. */
bool attention_visible(const struct attention *a, const struct tile *t,
                       size_t r, size_t b, size_t *begin, size_t *end);

/* attention_bf16_rows() is how many rows a tile of bf16 has at most, for a
 * group of query heads; attention_bf16_scratch() the floats of all but its max
 * and total, and attention_bf16_lay() lays them out. */
size_t attention_bf16_rows(size_t v_head_dim, size_t group);
size_t attention_bf16_scratch(size_t head_dim, size_t v_head_dim, size_t rows);
void attention_bf16_lay(struct tile *t, float *scratch, size_t head_dim,
                        size_t v_head_dim, size_t rows);

/* The sums become 0; row r's query, scaled, is rounded; a block is added to the
 * sums; and row r's output, times its total, is read. */
void attention_bf16_start(struct tile *t, size_t v_head_dim);
void attention_bf16_query(struct tile *t, size_t r, const float *q,
                          size_t head_dim, float by);
void attention_bf16_block(const struct attention *a, struct tile *t, size_t b,
                          const struct seen *seen);
void attention_bf16_output(const struct tile *t, size_t r, float *out,
                           size_t v_head_dim);

#endif
