/* SPDX-License-Identifier: ISC */
/*
 * struct lm from inside: what its files share.
 */
#ifndef CORE_MODEL_TRAIN_LM_IMPL_H
#define CORE_MODEL_TRAIN_LM_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/model/block_backward.h"
#include "core/model/engine.h"
#include "core/model/lora.h"
#include "core/model/parts.h"
#include "core/model/train/lm.h"

/* A linear layer with an adapter, whose A is lm->tensors[tensor], B the next
 * one. */
struct lm_adapted {
    struct linear *linear;
    struct part_at at;
    enum lm_target target;
    size_t tensor;
    const struct lora *init; /* or NULL */
};

/* Rows of a chunk that belong to one slice, and which of the rows of the linear
 * layer that is summed these are. */
struct lm_segment {
    size_t slice, row, n, at, n_at;
    bool is_first, is_last; /* of the slice's */
};

/* The rows whose logits are asked for, as many as engine->chunk.wanted. */
struct lm_wanted {
    int32_t target;
    size_t seq;
    double loss;
};

#define LM_MAX_ARRAYS 32

/* Rows of the head's w that a product back takes; of the exact class's parts
 * of k. */
#define LM_HEAD_PART 1024

/* One allocation, and its name in lm_memory(). */
struct lm_region {
    const char *name;
    struct mem_array array[LM_MAX_ARRAYS];
    size_t n_arrays;
    void *data;
    size_t nbytes;
};

#define LM_MAX_REGIONS 8

/* lm_head.c's: of so many rows at once. */
struct lm_head_work {
    size_t rows;
    float *logits;     /* [rows, vocab], then their gradient */
    float *x, *in;     /* [rows, hidden]; 'in' also its gradient, x gathered */
    uint16_t *rounded; /* COMPUTE_BF16: [rows, a part] */
};

/* lm_sums.c's. */
struct lm_sums_work {
    size_t n_copies;
    float *copies; /* [n_copies, n_params], B's transposed: of the blocks of
                    * this rank's slices, which begin at first_slice */
    size_t first_slice;
    float *high;           /* [rows, rank]: scale a x */
    float *high_t, *low_t; /* [rank, rows] */
    size_t widest;         /* out of all adapted layers */
    float *b_t;            /* [threads, rank, widest] */
};

/* lm_ranks.c's. */
struct lm_exchange {
    size_t n_received; /* blocks of all ranks */
    size_t n_window;   /* numbers of a block that are exchanged at once */
    size_t n_part;     /* of which a rank adds so many; 0, 0: one rank */
    float *sent;       /* [n_copies, n_window] */
    float *received;   /* [n_received, n_part] */
};

/* Weights are little-endian, as in files: are values not? */
#define LM_SWAPS (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

struct lm_work {
    struct lm_options options;
    struct par *par;
    struct lm_adapted *adapted; /* [n_adapted] */
    size_t n_adapted;
    size_t rows;     /* of a chunk, at most */
    size_t n_blocks; /* of KV_BLOCK rows of an example, at most */

    /* from here on by lm_prepare() */
    struct engine *engine; /* whose chunk is filled and run */
    struct lora *parts;    /* [n_adapted] that the engine applies */
    const float *values;   /* [n_params] the caller's */
    float *swapped;        /* LM_SWAPS: [n_params] they, in files' order */
    struct lm_region region[LM_MAX_REGIONS];
    size_t n_regions;

    /* options.int8: of each expert gate, up, down, by lm_int8.c */
    int8_t *int8;      /* [mlps, 3 intermediate hidden] */
    float *int8_scale; /* [mlps, 2 intermediate + hidden] */

    float *kept; /* [n_layers + 1, rows, hidden]: a layer's x; the last's out */
    struct activations acts;
    struct block_grads grads;
    struct session *sessions;    /* [rows] */
    char **blocks;               /* [n_blocks] of their caches */
    char *kv;                    /* [n_blocks, kv_block_nbytes()] */
    struct lm_segment *segments; /* [n_slices] */
    size_t n_segments;
    struct lm_wanted *wanted; /* [rows] */

    struct lm_head_work head;
    struct lm_sums_work sums;
    struct lm_exchange exchange;
};

/* lm_memory.c: the sizes that follow from the options, without n_params. */
void lm_sizes(struct lm *lm);
void lm_free(struct lm *lm);

/*
 * lm_ranks.c: the slices [begin, end) of a rank; blocks that a range of slices
 * has; sizes.  lm_ranks_add() makes copies[0] the sum of all ranks' blocks.
 */
void lm_own_slices(const struct lm_work *work, size_t n_slices, size_t rank,
                   size_t *begin, size_t *end);
size_t lm_n_blocks(size_t begin, size_t end);
void lm_ranks_sizes(struct lm *lm);
void lm_ranks_add(struct lm *lm, size_t n_slices);

/* lm_int8.c: experts' weights are from now on int8, in w->int8.  -1 with 'err'
 * set (EX_TEMPFAIL): sig_stop() was true. */
int lm_quantize(struct lm *lm, struct err *err);

/*
 * lm_head.c: the loss of the wanted rows of x [rows, hidden], and where 'resid'
 * is given its gradient times 'by' in all rows of that.
 */
void lm_head(struct lm *lm, const float *x, float *resid, double by);

/* lm_sums.c: a layer's part of the gradient, block_grads.linear; and what is
 * left to do when all chunks of this rank's slices of n_slices are done. */
void lm_sums_add(void *lm, const struct linear_grads *grads);
void lm_sums_finish(struct lm *lm, size_t n_slices);

#endif
