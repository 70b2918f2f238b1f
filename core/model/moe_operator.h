/*
 * The operator's own memory: its parts, their scratch, the forwards that it
 * keeps.
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

struct moe_weight {
    struct gemm_panels panels; /* data NULL: taken from the caller's */
    float *scale;              /* int8: [n] */
};

/* A part works on columns [first, first + n) of 'intermediate'.
 * bf16 is little-endian, with rows of gemm's length and zeros behind. */
struct moe_part {
    size_t index, first, n;
    struct gemm *gemm;
    struct moe_weight *weights[N_KINDS]; /* [n_experts] */
    void *packed, *scratch;
    size_t packed_nbytes, scratch_nbytes;

    uint16_t *x, *dy;        /* [block, hidden] */
    uint16_t *h, *dg, *du;   /* [block, n] */
    uint16_t *gate, *up;     /* [block, n], without padding: not saved */
    uint16_t *a_gate_up;     /* [2 rank, hidden]: gate's A, up's A */
    float *xa;               /* [block, 2 rank]: s x A^T of gate, up */
    float *ha;               /* [block, rank]: s h A^T of down */
    float *dyb, *dgb, *dub;  /* [block, rank]: s dy B, s dg B, s du B */
    float *b_t;              /* [2, rank, max(n, hidden)]: B^T */
    float *outer_t;          /* [6, rank, block]: transposed, for mix() */
    float *dw;               /* [block, panels of n]: of <da0, h> */
    float *partial;          /* [block, hidden]; n_parts > 1 */
    float *grad[MOE_N_LORA]; /* [rank, in], of B transposed [rank, out] */
    int8_t *x8;              /* int8: [block, max(hidden, n)] */
    float *x8_scale, *wide;
};

/* A forward that waits for its backward. */
struct moe_saved {
    void *data; /* NULL: not yet */
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

/* Threads that work on some of the parts, beside other teams. */
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
    struct gemm_matrix *base[3]; /* gate, up, down: [n_experts] */
    const float *base_scale[3];  /* of I8: [n_experts, rows] */
    struct moe_lora lora;
    bool has_base, has_lora;
    struct moe_route route;
    float *dx; /* [max_len, hidden] */
    void *scratch;
    size_t scratch_nbytes, saved_nbytes;
    struct moe_saved *saved; /* [max_cache_depth] */
    size_t depth;            /* of them are in use */
    size_t skipped;
    size_t allocated, peak; /* bytes, and the most there were */
};

/* Rows that are done together: row .. row + n - 1, each of another token. */
struct moe_block {
    size_t expert, row, n;
    const uint32_t *slots; /* [n] */
};

#endif
