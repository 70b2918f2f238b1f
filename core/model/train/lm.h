/* SPDX-License-Identifier: ISC */
/*
 * A whole model's loss on text, and the gradient of it in low-rank adapters of
 * its linear layers: what moe-sft tune trains.  The base weights are frozen,
 * mapped and never copied whole.
 *
 * The loss of a step is the sum of its tokens' cross-entropies, by f32 logits,
 * over the number of targets in the whole step.  A linear layer computes
 *   y = W x + bias + s B (A x),  s = alpha / rank, or alpha / sqrt(rank)
 *
 * COMPUTE_F32: all products are gemm_exact()'s: the loss has the bits that
 * hf-infer's logits give, and all is the same on every CPU.
 * COMPUTE_BF16: operands of products with base weights are rounded to bf16, and
 * those of attention's where attention_takes_bf16(): the loss is what
 * hf-infer's logits in bf16 give.  Forward goes by the products that engine.h
 * says, the way back and the head by gemm_bf16().  Adapters and what is between
 * products stay f32.  Bits depend on the instruction set.
 * The router of experts is f32 and frozen, and gradients flow through it.
 * int8: COMPUTE_BF16 whose experts' weights are I8 with a scale for each row,
 * as moe-sft quantize writes them; inputs, and gradients times the scales, are
 * rounded to int8 with a scale for each token.
 * No bit depends on the number of threads, or on how a step is cut into chunks.
 * Examples that share a window also share its slice: only the order of sums
 * tells their gradient from that of examples apart.
 *
 * The forward keeps the input of each layer alone; the backward computes the
 * rest of the layer's forward anew.
 */
#ifndef CORE_MODEL_TRAIN_LM_H
#define CORE_MODEL_TRAIN_LM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/engine.h"
#include "core/model/model.h"
#include "core/model/train/lm_target.h"
#include "core/model/train/ranks.h"
#include "core/par.h"

/* What an adapter is. */
struct lm_lora {
    unsigned targets; /* a set of enum lm_target */
    size_t rank;      /* 1 or more */
    double alpha;
    bool rslora; /* s = alpha / sqrt(rank) */
};

struct lm_options {
    struct lm_lora lora; /* of a new adapter */
    uint64_t seed;       /* of its A */
    const char *init; /* a PEFT directory to go on from: 'lora' and 'seed' are
                       * not read then; or NULL */
    enum compute compute;
    size_t max_tokens;   /* of an example (not of a window), 1 or more */
    size_t chunk;        /* tokens that go through the layers together, if that
                          * many are there: more take more memory, and read the
                          * weights less often; 0: LM_CHUNK, of a model with
                          * experts LM_CHUNK_EXPERTS.  At least max_tokens. */
    bool int8;           /* COMPUTE_BF16: experts' weights are int8 */
    size_t n_slices;     /* of a step, 1 to LM_MAX_SLICES */
    struct ranks *ranks; /* that share the work; or NULL */
};

#define LM_CHUNK         1024
#define LM_CHUNK_EXPERTS 4096 /* of which each gets few */
#define LM_MAX_SLICES    4096

/* A matrix of the adapter: A [rank, in] or B [out, rank], in C order, in all
 * arrays of n_params numbers. */
struct lm_tensor {
    char *name; /* PEFT's: "base_model.model.model.layers.0.self_attn.q_proj"
                 * ".lora_A.weight" */
    size_t rows, cols;
    size_t first; /* at which number it begins */
    enum lm_target target;
    struct part_at at;
};

/* The fields are read-only for others. */
struct lm {
    struct model *model;
    struct lm_lora lora;       /* as asked for, or init's */
    struct lm_tensor *tensors; /* [n_tensors]: by layer, then targets, of
                                * experts each expert's last, and then the
                                * shared one's; A, then B; no gaps */
    size_t n_tensors, n_params;
    const float *grad;    /* [n_params] of the last lm_grad() */
    struct lm_work *work; /* private */
};

/*
 * lm_open() maps a model and lists the adapter's tensors; it allocates nothing
 * that grows with the model's sizes but their names.
 * -1 with 'err' set: as model_open() and lora_open() do; EX_DATAERR for an
 * adapter whose layers have not all the same targets, rank and scale, or that
 * has others than enum lm_target; for int8 of a model without experts, or with
 * some that are too wide, or [in, out].
 * Owner: the caller, until lm_close(); 'par' is borrowed and may be NULL.
 */
int lm_open(struct lm **lm, const char *dir, const struct lm_options *options,
            struct par *par, struct err *err);
void lm_close(struct lm *lm); /* NULL is fine */

/* The memory that lm_prepare() takes, by name, and of packed weights what
 * lm_open() has taken; and what it has mapped. */
struct lm_memory {
    struct {
        const char *name; /* "logits" */
        size_t nbytes;
    } item[13];
    size_t n_items;
    size_t total;  /* of them */
    size_t mapped; /* bytes of the model's files */
};

/* lm_memory() is -1 with 'err' set (EX_DATAERR) if a size leaves 64 bits. */
int lm_memory(const struct lm *lm, struct lm_memory *memory, struct err *err);

/*
 * lm_start() writes the adapter that training begins with to values [n_params]:
 * init's, or B zero and A uniform in +-1 / sqrt(in), number i of a layer's
 * target by rng_f64(seed, layer * LM_Q_B + target, i), an expert's stream
 * being 2^32 times its number further, a shared one's that of the next expert,
 * and LM_Q_B's and the following 2^63 + 2^32 (target - LM_Q_B) + layer.  It
 * ends early where sig_stop() is true.
 * lm_prepare() allocates; 'values' is what lm_grad() and lm_loss() read from
 * then on, the caller's, who may change them between calls. -1 with 'err' set
 * (EX_SOFTWARE, EX_DATAERR as lm_memory()).
 */
void lm_start(const struct lm *lm, float *values);
int lm_prepare(struct lm *lm, const float *values, struct err *err);

/* A window of examples that do not see each other: in each, positions begin at
 * 0, and its first token is not predicted. */
struct lm_seq {
    const int32_t *ids;    /* [n] */
    const int32_t *labels; /* [n] the target for the token at t, of the logits
                            * at t - 1; -100: none */
    size_t n;
    const size_t *starts; /* [n_starts] where examples begin, ascending, the
                           * first is 0; n_starts 0: it is one example */
    size_t n_starts;
};

#define LM_NO_LABEL (-100)

/* lm_n_targets() counts the labels that count: not those of first tokens. */
size_t lm_n_targets(const struct lm_seq *seqs, size_t n_seqs);

/*
 * lm_grad() is forward and backward of a step: *loss_sum is the sum of its
 * tokens' losses, lm->grad the gradient of loss_sum / lm_n_targets(seqs,
 * n_seqs); both 0 without a target.
 *
 * Sequence i belongs to slice i % n_slices; a slice's gradient is summed over
 * its tokens in their order, and slices' by a tree that halves their list: the
 * larger part, a power of two, first.  Ranks have slices of their own, and all
 * get the same gradient, loss and result.
 *
 * lm_loss() is the forward alone.  The loss is summed in order, in double.
 * It may be NaN or infinite: that is no error here.
 *
 * -1 with 'err' set (EX_DATAERR): an id or label outside the vocabulary, an
 * example of more than max_tokens; EX_TEMPFAIL: between two layers sig_stop()
 * was true, and the step is lost.
 */
int lm_grad(struct lm *lm, const struct lm_seq *seqs, size_t n_seqs,
            double *loss_sum, struct err *err);
int lm_loss(struct lm *lm, const struct lm_seq *seqs, size_t n_seqs,
            double *loss_sum, struct err *err);

#endif
