/*
 * The operator's own: its parts, their scratch, and a pass over a batch.
 *
 * Rows are slots (token, j) ordered by expert, then occurrence of the expert
 * in its token, then token.  A segment is what has the first two in common, so
 * no token is twice in it; a block is up to MOE_BLOCK rows of one.  Blocks are
 * done one after the other, the threads inside each product: an output's sum
 * over its slots has one order.
 */
#ifndef CORE_MODEL_MOE_IMPL_H
#define CORE_MODEL_MOE_IMPL_H

#include "core/mem.h"
#include "core/model/moe.h"
#include "core/par.h"

#define MOE_BLOCK 512 /* rows: gemm packs on the fly once for as many */

/* Sizes and addresses of what lies in one allocation; base NULL: sizes. */
struct plan {
    char *base;
    size_t nbytes;
    bool overflow;
};

/* The base products: x W^T, and with the transposed W of backward. */
enum kind { K_GATE, K_UP, K_DOWN, K_GATE_T, K_UP_T, K_DOWN_T, N_KINDS };

struct weight {
    struct gemm_panels panels; /* data NULL: taken from the caller's */
    float *scale;              /* int8: [n] */
};

/* A part works on columns [first, first + n) of 'intermediate'.
 * bf16 is little-endian, with rows of gemm's length and zeros behind. */
struct part {
    size_t index, first, n;
    struct gemm *gemm;
    struct weight *weights[N_KINDS]; /* [n_experts] */
    void *packed, *scratch;
    size_t packed_nbytes, scratch_nbytes;

    uint16_t *x, *dy;        /* [block, hidden] */
    uint16_t *h, *dg, *du;   /* [block, n] */
    uint16_t *gate, *up;     /* [block, n], without padding: not saved */
    uint16_t *a2;            /* [2 rank, hidden]: gate's A, up's A */
    float *ug;               /* [block, 2 rank]: s x A^T of gate, up */
    float *ud, *qd;          /* [block, rank]: s h A^T, s dy B of down */
    float *pg, *pu;          /* [block, rank]: s dg B, s du B */
    float *bt;               /* [2, rank, max(n, hidden)]: B^T */
    float *pt;               /* [6, rank, block]: transposed, for mix() */
    float *gw;               /* [block, panels of n]: of <da0, h> */
    float *partial;          /* [block, hidden]; n_parts > 1 */
    float *grad[MOE_N_LORA]; /* [rank, in], of B transposed [rank, out] */
    int8_t *x8;              /* int8: [block, max(hidden, n)] */
    float *x8_scale, *wide;
};

struct slot {
    void *data; /* NULL: not yet */
    size_t qlen;
    int64_t *ids;
    float *weights;
    uint16_t *input, *gate, *up;
};

/* Where the rows are: row r is slot slots[r]; segment i of expert i / top_k
 * is rows begin[i] .. begin[i + 1]. */
struct route {
    uint32_t *slots; /* [max_len * top_k] */
    size_t *begin;   /* [n_experts * top_k + 1] */
    size_t n_rows, skipped;
};

/* Threads that work on some of the parts, beside other teams. */
struct team {
    struct moe *moe;
    size_t index;
    struct par_worker *worker; /* NULL: the caller */
    struct par *par;
    struct gemm *gemm;
    int node; /* -1: any */
    int n_threads;
    bool failed; /* to open: err */
    struct err err;
    void (*fn)(void *ctx, struct part *part);
    void *ctx;
};

struct moe {
    struct moe_config config;
    float s;
    struct par *par;
    struct team *teams;
    size_t n_teams;
    struct part *parts;
    struct gemm_matrix *base[3]; /* gate, up, down: [n_experts] */
    const float *base_scale[3];  /* of I8: [n_experts, rows] */
    struct moe_lora lora;
    bool has_base, has_lora;
    struct route route;
    float *dx; /* [max_len, hidden] */
    void *scratch;
    size_t scratch_nbytes, slot_nbytes;
    struct slot *slots; /* [max_cache_depth] */
    size_t depth;
    size_t skipped;
    size_t allocated, peak; /* bytes, and the most there were */
};

struct block {
    size_t expert, row, n;
};

/* One call of forward or backward. */
struct pass {
    struct moe *moe;
    struct moe_batch batch;
    uint16_t *gate, *up; /* [n_rows, intermediate]; NULL: not kept */
    float *output;
    const uint16_t *grad_output;
    const struct moe_grads *grads;
    struct block block;
};

/* ---- memory.c ---- */
void part_slice(const struct moe_config *c, size_t i, size_t *first, size_t *n);
void plan_weights(struct plan *plan, const struct moe_config *c,
                  struct part *part);
void plan_part(struct plan *plan, const struct moe_config *c,
               struct part *part);
void plan_shared(struct plan *plan, struct moe *moe);
void plan_slot(struct plan *plan, const struct moe_config *c,
               struct slot *slot);
size_t moe_allocated(const struct moe *moe);
size_t moe_peak(const struct moe *moe);
static inline void
note_allocated(struct moe *moe, size_t nbytes)
{
    moe->allocated += nbytes;
    moe->peak = larger(moe->peak, moe->allocated);
}

/* ---- route.c ---- */
int route_rows(struct moe *moe, const int64_t *ids, size_t qlen,
               struct err *err);
static inline size_t
row_token(const struct pass *p, size_t i)
{
    return p->moe->route.slots[p->block.row + i] / p->moe->config.top_k;
}

static inline float
row_weight(const struct pass *p, size_t i)
{
    return p->batch.weights[p->moe->route.slots[p->block.row + i]];
}

/* for_each_block() calls fn for the blocks in their order. */
void for_each_block(struct pass *pass, void (*fn)(struct pass *pass));

/* ---- weights.c ---- */
int weights_load(struct moe *moe, struct err *err);

/* What a team needs to quantize a matrix, in bytes. */
size_t weights_temp(const struct moe_config *c);

/* ---- team.c ---- */
size_t team_count(const struct moe_config *c, int n_threads);
int teams_open(struct moe *moe, int n_threads, struct err *err);
void teams_close(struct moe *moe);

/* run_parts() calls fn for every part, each team's one after the other. */
void run_parts(struct moe *moe, void (*fn)(void *ctx, struct part *part),
               void *ctx);

/* ---- part.c ---- */

/* Rows of 'from' [qlen, hidden] that the block's tokens have. */
void gather(struct pass *pass, struct part *part, uint16_t *to,
            const uint16_t *from);

/* base_job() is the product with a base matrix of the block's expert;
 * base_products() makes some of one input, by way of 'x'. */
struct gemm_job base_job(const struct pass *pass, const struct part *part,
                         enum kind kind);
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

/* ---- forward.c, backward.c ---- */
void forward_block(struct pass *pass);
void backward_pass(struct pass *pass);

#endif
