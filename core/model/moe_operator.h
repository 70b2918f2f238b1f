/* SPDX-License-Identifier: ISC */
/*
 * The operator from inside: its memory, and the functions that its files share
 * (but for the arithmetic of a block, which is moe_part.h).
 *
 * Rows are slots (token, j) ordered by expert, then occurrence of the expert
 * in its token, then token.  A segment is what has the first two in common, so
 * no token is twice in it; a block is up to MOE_BLOCK rows of one.  Blocks are
 * done one after the other, the threads inside each product: an output's sum
 * over its slots has one order.
 */
#ifndef CORE_MODEL_MOE_OPERATOR_H
#define CORE_MODEL_MOE_OPERATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/model/moe.h"
#include "core/par.h"

#define MOE_BLOCK 512 /* rows: gemm packs on the fly once for as many */

/* The base products: x W^T, and with the transposed W of backward. */
enum moe_kind { K_GATE, K_UP, K_DOWN, K_GATE_T, K_UP_T, K_DOWN_T, N_KINDS };

/* One allocation for several arrays. */
struct moe_region {
    void *data;
    size_t nbytes;
};

/* A part works on columns [first, first + n) of 'intermediate'.
 * bf16 is little-endian, in rows of gemm's length, padded with zeros. */
struct moe_part {
    size_t index, first, n;
    struct gemm *gemm;
    struct gemm_panels *packed[N_KINDS]; /* [n_experts]; data NULL: bf16, read
                                          * from the caller's */
    struct moe_region *weights; /* memory of an expert's, once it is packed */
    struct moe_region scratch;  /* of the pointers below */

    uint16_t *x, *dy;       /* [block, hidden] */
    uint16_t *h, *dg, *du;  /* [block, n] */
    uint16_t *gate, *up;    /* [block, n], without padding: not saved */
    uint16_t *a_gate_up;    /* [2 rank, hidden]: gate's A, up's A */
    float *xa;              /* [block, 2 rank]: s x A^T of gate, up */
    float *ha;              /* [block, rank]: s h A^T of down */
    float *dyb, *dgb, *dub; /* [block, rank]: s dy B, s dg B, s du B */
    float *b_t;             /* [2, rank, max(n, hidden)]: B^T */
    float *outer_t; /* [6, rank, block]: transposed, for weighted_sum() */
    float *dw;      /* [block, panels of n]: of <da0, h> */
    float *partial; /* [block, hidden]; n_parts > 1 */
    float *grad[MOE_N_LORA]; /* [rank, in], of B transposed [rank, out] */
    int8_t *x8;              /* int8: [block, max(hidden, n)] */
    float *x8_scale;         /* [block] */
};

/* A forward that waits for its backward. */
struct moe_saved {
    struct moe_region memory; /* data NULL: not allocated yet */
    size_t qlen;
    int64_t *ids;
    float *weights;
    uint16_t *input;
    uint16_t *gate, *up; /* [rows, intermediate] */
};

/* Where the rows are: row r is slot slots[r]; segment i of expert i / top_k
 * is rows begin[i] .. begin[i + 1]. */
struct moe_route {
    uint32_t *keys;  /* [max_len * top_k] segments of slots */
    uint32_t *slots; /* [max_len * top_k] */
    size_t *begin;   /* [n_experts * top_k + 1] */
    size_t n_rows, skipped;
};

/* Threads that work on some of the parts, while other teams do others. */
struct moe_team {
    struct moe *moe;
    size_t index;
    struct par_worker *worker; /* NULL: the caller */
    struct par *par;
    struct gemm *gemm;
    int node; /* -1: any */
    int n_threads;
    bool failed; /* to open: err */
    struct err err;
    void (*fn)(void *ctx, struct moe_part *part);
    void *ctx;
};

struct moe {
    struct moe_config config;
    float s;
    struct par *par;
    struct moe_team *teams;
    size_t n_teams;
    struct moe_part *parts;
    struct weight *base[3]; /* gate, up, down: [n_experts] */
    const float **bias;     /* [3 n_experts], NULL: none */
    struct moe_lora lora;
    bool *is_packed; /* [n_experts] */
    bool has_base, has_lora;
    struct moe_route route;
    float *dx;                 /* [max_len, hidden] */
    struct moe_region scratch; /* of dx and route */
    struct moe_saved *saved;   /* [max_cache_depth] */
    size_t depth;              /* of them are in use */
    size_t skipped;
};

/* Rows that are done together: row .. row + n - 1, each of another token. */
struct moe_block {
    size_t expert, row, n;
    const uint32_t *slots; /* [n] */
};

/*
 * moe_memory.c.  moe_slice() says which columns of 'intermediate' part i works
 * on.  The others allocate what the struct points at: a part's scratch, its
 * packed weights of an expert, if that has none yet, the scratch that the parts
 * share, a saved forward.
 * 0, or -1 with 'err' set: EX_DATAERR (too many bytes), EX_SOFTWARE.
 */
void moe_slice(const struct moe_config *c, size_t i, size_t *first, size_t *n);
int moe_allocate_part(const struct moe *moe, struct moe_part *part,
                      struct err *err);
int moe_allocate_expert(const struct moe *moe, struct moe_part *part, size_t e,
                        struct err *err);
int moe_allocate_shared(struct moe *moe, struct err *err);
int moe_allocate_saved(const struct moe *moe, struct moe_saved *saved,
                       struct err *err);

/*
 * moe_team.c: teams of threads, side by side, each on a NUMA node.  A part's
 * memory is touched first, and so allocated, on its team's node.
 * moe_teams() is how many teams n_threads make; moe_teams_open() starts them,
 * -1 with 'err' set (EX_SOFTWARE).  moe_for_parts() calls fn for every part,
 * each team's one after the other, and returns when all are done.
 */
size_t moe_teams(const struct moe_config *c, int n_threads);
int moe_teams_open(struct moe *moe, int n_threads, struct err *err);
void moe_teams_close(struct moe *moe);
void moe_for_parts(struct moe *moe,
                   void (*fn)(void *ctx, struct moe_part *part), void *ctx);

/*
 * moe_weights.c.  moe_check_weights(): -1 with 'err' set (EX_DATAERR) before
 * base weights and adapter are there.  moe_weights_temp() is what a team needs
 * to quantize a matrix, in bytes.  moe_pack() packs the weights of experts that
 * have rows in moe->route, or 'all', where they are not yet: -1 with 'err' set
 * (EX_SOFTWARE).  moe_base_job() is the product with an
 * expert's base matrix, whose sums 'end' sees before they go to c
 * [n_rows, ldc], or NULL.
 */
int moe_check_weights(const struct moe *moe, struct err *err);
size_t moe_weights_temp(const struct moe_config *c);
int moe_pack(struct moe *moe, bool all, struct err *err);
struct gemm_job moe_base_job(const struct moe *moe, const struct moe_part *part,
                             enum moe_kind kind, size_t expert, float *c,
                             size_t ldc, struct gemm_end end);

/*
 * moe_route.c.  moe_route_rows() fills moe->route by ids [qlen, top_k]; -1 with
 * 'err' set (EX_DATAERR) for more than max_len tokens or, with strict_ids, an
 * id that names no expert.  moe_block_at() is the block that begins at a row of
 * an expert, whose rows are moe_first_row(e) .. moe_first_row(e + 1);
 * moe_token() is the token of a block's row i.
 */
int moe_route_rows(struct moe *moe, const int64_t *ids, size_t qlen,
                   struct err *err);
struct moe_block moe_block_at(const struct moe *moe, size_t expert, size_t row);

static inline size_t
moe_first_row(const struct moe *moe, size_t expert)
{
    return moe->route.begin[expert * moe->config.top_k];
}

static inline size_t
moe_token(const struct moe *moe, const struct moe_block *block, size_t i)
{
    return block->slots[i] / moe->config.top_k;
}

/*
 * moe_cache.c: the stack of saved forwards.  moe_saved_next() is the place of
 * the next one, which counts once moe->depth does; moe_saved_batch() copies its
 * batch there.  -1 with 'err' set: EX_DATAERR (the stack is full), EX_SOFTWARE.
 */
int moe_saved_next(struct moe *moe, struct moe_saved **saved, struct err *err);
void moe_saved_batch(const struct moe_config *c, struct moe_saved *saved,
                     const struct moe_batch *batch);

#endif
