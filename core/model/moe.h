/* SPDX-License-Identifier: ISC */
/*
 * LoRA fine-tuning of one layer's experts: forward, backward, nothing else.
 * (Inference has experts.h: f32 rows, weights where a model's files have them.
 * Both get a token's experts and the order of rows from router.h.)
 *
 * For token i and slot j with expert e = expert_ids[i][j], weight w = w[i][j]:
 *   y = x W^T + s (x A^T) B^T,  s = lora_alpha / lora_rank;  gate, up, down
 *   h = silu(gate(x)) * up(x);  output[i] = sum over j of w * down(h)
 * or y has a bias too, and h is another of vec.h's activations.
 * The base weights W are frozen; A and B are trained.
 *
 * BF16: operands of the base products are bf16, sums f32; gate(x), up(x) and h
 * are rounded to bf16 once, base and LoRA summed.  INT8: base weights are
 * symmetric int8 with a scale for each output row, activations and gradients
 * with one for each token; LoRA stays as it is.  What LoRA puts between A and
 * B is f32 in both.
 *
 * Every result's bits depend on the operands, the mode and the instruction set
 * alone: not on threads, nor on addresses.  Tensor parallelism over
 * n_parts sums in another order, so its results agree, but not bit for bit
 * (the cache of one is right for another).
 *
 * Arrays are in C order and belong to the caller.  bf16 is little-endian at any
 * address; int64 and f32 are the machine's, aligned.
 * Source: the interface of kvcache-ai/ktransformers' moe_sft_amx.
 */
#ifndef CORE_MODEL_MOE_H
#define CORE_MODEL_MOE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/kernel/vec.h"

/* Limits for files: each expert takes about 12 KiB however small it is, and
 * each slot is compared with those before it.  Models have 512 experts and 10
 * slots. */
#define MOE_MAX_EXPERTS 4096
#define MOE_MAX_TOP_K   1024

enum moe_mode { MOE_BF16, MOE_INT8 };

struct moe_config {
    size_t n_experts, top_k; /* top_k: slots of a token */
    size_t hidden, intermediate;
    size_t lora_rank; /* 1 or more */
    float lora_alpha;
    size_t max_len;         /* tokens of a batch, at most */
    size_t max_cache_depth; /* forwards kept for backwards, at most */
    size_t n_parts;         /* of 'intermediate': tensor parallelism; 1: none */
    enum moe_mode mode;
    enum act act;    /* of gate and up; 0: silu */
    bool strict_ids; /* an id outside [0, n_experts) is an error, not a skip */
    bool
        backward_only; /* of pushed caches: no weights are packed for forward */
};

/*
 * The base weights, each expert's by itself, BF16, F16 or F32 (rounded to
 * bf16): gate and up [intermediate, hidden], down [hidden, intermediate]; and
 * the biases of all experts' gates, then up and down, which stay f32.
 * For MOE_INT8 they may be I8 with scales; the operator has the rows as they
 * are, and quantizes the columns that backward needs.
 */
struct moe_base {
    const struct weight *gate, *up, *down; /* [n_experts] */
    const float *const *bias; /* [3 n_experts]; NULL: there are none */
};

/* The six matrices of an adapter, in the order of everything that lists them.
 * A is [n_experts, rank, in], B is [n_experts, out, rank]. */
enum moe_lora_matrix {
    MOE_GATE_A,
    MOE_GATE_B,
    MOE_UP_A,
    MOE_UP_B,
    MOE_DOWN_A,
    MOE_DOWN_B,
    MOE_N_LORA
};

extern const char *const moe_lora_names[MOE_N_LORA]; /* "gate_lora_a", .. */

/* moe_lora_shape() is a matrix's [n_experts, rows, cols]. */
void moe_lora_shape(const struct moe_config *config, enum moe_lora_matrix m,
                    uint64_t shape[3]);

/* moe_lora_numbers() is how many it has; 0 if they leave 64 bits: the
 * caller refuses. */
size_t moe_lora_numbers(const struct moe_config *config,
                        enum moe_lora_matrix m);

struct moe_lora {
    const uint16_t *m[MOE_N_LORA]; /* bf16; not copied */
};

struct moe_batch {
    size_t qlen;               /* tokens, 0 .. max_len */
    const int64_t *expert_ids; /* [qlen, top_k] */
    const float *weights;      /* [qlen, top_k] */
    const uint16_t *input;     /* [qlen, hidden], bf16 */
};

/* Where backward writes, overwriting.  Any may be NULL. */
struct moe_grads {
    uint16_t *input;        /* [qlen, hidden], bf16 */
    void *lora[MOE_N_LORA]; /* as the matrices: f32 or bf16 */
    enum dtype lora_dtype;  /* DT_F32 or DT_BF16 */
    float *weights;         /* [qlen, top_k], f32; 0 of a skipped slot */
};

/*
 * The memory that a config needs, in bytes, before anything is allocated.  -1
 * with 'err' set (EX_DATAERR) if a number leaves 64 bits or makes no sense.
 */
struct moe_memory {
    size_t base;    /* all weights, packed or quantized, with transposed copies;
                     * experts that get no rows take none of it */
    size_t load;    /* int8: while weights are quantized */
    size_t slot;    /* one forward's cache, at most */
    size_t cache;   /* all of them */
    size_t scratch; /* what forward and backward need besides */
    size_t total;   /* base, load, cache and scratch */
    size_t origin_slot; /* max_len (hidden + 3 top_k intermediate) 2 bytes */
};
int moe_memory(const struct moe_config *config, int n_threads,
               struct moe_memory *memory, struct err *err);

/*
 * moe_open() makes an operator with n_threads threads, which its parts share:
 * parts run in parallel, each on a NUMA node where there are several, and
 * in turn where there are more of them than threads.
 * moe_load() says where the base weights are, which must stay: an expert's are
 * packed or quantized when a batch first has rows for it.  moe_update_lora()
 * sets where the adapter is, before the first forward and whenever its arrays
 * move; new numbers in the same arrays show in the next forward. moe_warm_up()
 * packs all and runs a batch of zeros where the stack has room for one; weights
 * and adapter must be there. 0, or -1 with 'err' set:
 * EX_SOFTWARE (memory), EX_DATAERR (the config). Owner: the caller, until
 * moe_close().  One thread at a time.
 */
struct moe;
int moe_open(struct moe **moe, const struct moe_config *config, int n_threads,
             struct err *err);
void moe_close(struct moe *moe); /* NULL is fine */
const struct moe_config *moe_config(const struct moe *moe);
int moe_load(struct moe *moe, const struct moe_base *base, struct err *err);
int moe_update_lora(struct moe *moe, const struct moe_lora *lora,
                    struct err *err);
int moe_warm_up(struct moe *moe, struct err *err);

/*
 * moe_forward() writes output [qlen, hidden], f32.  'save' pushes what a
 * backward needs on the cache stack; moe_backward() pops it.
 *   grad_output [qlen, hidden], bf16, qlen of that forward
 * -1 with 'err' set (EX_DATAERR): qlen > max_len, an id with strict_ids, a
 * stack that is full or empty, a forward with backward_only; EX_SOFTWARE
 * (memory).  Nothing is changed then.
 */
int moe_forward(struct moe *moe, const struct moe_batch *batch, float *output,
                bool save, struct err *err);
int moe_backward(struct moe *moe, const uint16_t *grad_output,
                 const struct moe_grads *grads, struct err *err);

/* moe_skipped() counts the slots of the last forward whose id names no expert.
 */
size_t moe_skipped(const struct moe *moe);

/*
 * The cache, for files.  'rows' are slots ordered by expert, then occurrence of
 * the expert in its token, then token; skipped slots have none. moe_cache_top()
 * shows the last saved forward, until the next call of any other function;
 * moe_cache_push() saves one from elsewhere, copied, checked (EX_DATAERR).
 */
struct moe_cache {
    struct moe_batch batch;
    size_t n_rows;
    const uint16_t *gate, *up; /* [n_rows, intermediate], bf16 */
};
int moe_cache_top(struct moe *moe, struct moe_cache *cache, struct err *err);
int moe_cache_push(struct moe *moe, const struct moe_cache *cache,
                   struct err *err);

/* moe_cache_depth() is how many forwards are saved; moe_cache_drop() forgets
 * the last of them. */
size_t moe_cache_depth(const struct moe *moe);
void moe_cache_drop(struct moe *moe);

#endif
