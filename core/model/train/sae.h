/* SPDX-License-Identifier: ISC */
/*
 * Training of sparse autoencoders on rows of activations, x [rows, d]:
 *
 *   h   = relu((x - b_dec) W_enc^T + b_enc), of which the k largest of a row
 *         are kept (topk), or the k * rows largest of a batch (batchtopk); of
 *         equals the lower row, then the lower latent
 *   x^  = b_dec + sum of h_i W_dec[i]
 *   loss = sum |x - x^|^2 / sum |x - mean of the batch|^2 + aux_coef * aux
 *
 * The denominator is a constant to the gradients.  A latent is dead that was
 * not active, that is kept and over 0, for 'dead_after' rows.  Where there are
 * some, aux is how badly they alone predict e = x - x^, a constant too: of each
 * row the aux_k largest of their relu(pre-activations) give e^ = sum of h_i
 * W_dec[i]; aux = sum |e - e^|^2 / sum |e - mean e|^2, or 0 if that is not
 * finite.
 *
 * Adam moves all four.  With 'normalize' the part of each row's gradient of
 * W_dec that is parallel to the row is removed before, and rows have the norm 1
 * after it.
 *
 * A step's bits depend on the settings and the rows alone: not on threads, on
 * what else is trained in the same pass, nor, but for bf16, on the CPU.
 * Sources: Gao et al. 2024 (TopK, aux); Bussmann et al. 2024 (BatchTopK);
 * EleutherAI sparsify, dictionary_learning, SAELens.
 */
#ifndef CORE_MODEL_TRAIN_SAE_H
#define CORE_MODEL_TRAIN_SAE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/model/train/adamw.h"

/* A batch of no more pairs of row and latent than this: batchtopk's. */
#define SAE_MAX_BATCH_PAIRS ((uint64_t)1 << 32)

/* Rows that b_dec begins as the geometric median of, at most. */
#define SAE_MEDIAN_ROWS ((size_t)32768)

struct sae_settings {
    size_t d, n, k; /* 1 <= k <= n latents */
    bool batchtopk;
    bool bf16; /* of the encoder's product: operands are rounded to bf16 */
    bool normalize;
    double aux_coef;
    size_t aux_k;
    uint64_t dead_after; /* rows */
    double lr, clip;     /* clip: of the gradient's norm; 0: none */
    uint64_t warmup;     /* step t, from 1 on, has lr * min(1, t / warmup) */
    double decay;        /* the last part of 'total' steps falls to 0 */
    uint64_t total;      /* 0: not known, no decay; nor after it */
    uint64_t seed;
};

/* What a step was like; all are F64 in files. */
struct sae_record {
    double rows; /* so far */
    double loss, fvu, aux, l0;
    double dead; /* latents, when the step began */
    double lr, grad_norm;
};

/* One autoencoder, and all that another process needs to go on with it.  The
 * optimizer's arrays are W_enc [n, d], W_dec [n, d], b_enc [n], b_dec [d]. */
struct sae_trainer {
    struct sae_settings set;
    struct adamw adamw;
    double *idle;     /* [n] rows since a latent was active */
    double threshold; /* of batchtopk: 0 at first, then 0.99 of what it was plus
                       * 0.01 of a step's least value kept */
    uint64_t averaged; /* steps in it: those with an active latent */
    uint64_t step, rows;
    /* private */
    float *grad;   /* [n_params] with 'clip', or NULL */
    float *stored; /* the parameters as files have them: adamw.master, or a
                    * copy where the machine's order is another */
};

/* sae_trainer_open() makes room for one: all 0.  -1 with 'err' set
 * (EX_SOFTWARE).  Owner: the caller, until sae_trainer_close(). */
int sae_trainer_open(struct sae_trainer *t, const struct sae_settings *set,
                     struct err *err);
void sae_trainer_close(struct sae_trainer *t); /* a zeroed struct is fine */

/* sae_tensors(): where its tensors are in an array of the optimizer. */
struct sae_tensors {
    float *encoder, *decoder; /* [n, d] */
    float *encoder_bias;      /* [n] */
    float *decoder_bias;      /* [d] */
};
struct sae_tensors sae_tensors(const struct sae_trainer *t, float *array);

/*
 * A workspace for autoencoders of up to n latents and k active ones a row, and
 * batches of up to 'rows' rows of d numbers: a second batch, and some MiB;
 * while latents are dead two batches more.  'gemm' is borrowed.
 * 0, or -1 with 'err' set (EX_SOFTWARE).  One thread at a time may use it.
 */
struct sae_work;
struct sae_sizes {
    size_t d, rows;
    size_t n, k, aux_k; /* the largest of them */
    bool bf16, batchtopk;
};
int sae_work_open(struct sae_work **work, struct gemm *gemm,
                  const struct sae_sizes *sizes, struct err *err);
void sae_work_close(struct sae_work *work); /* NULL is fine */

/* sae_batch() looks at the rows that the next steps are for, which are
 * borrowed: their mean and variance. */
void sae_batch(struct sae_work *work, const float *x, size_t n_rows);

/*
 * sae_init() gives an autoencoder its first weights: rows of W_dec are random
 * directions, W_enc = W_dec, b_enc = 0, b_dec = the geometric median of the
 * batch's first rows (Weiszfeld's method, 100 rounds at most).
 */
void sae_init(struct sae_work *work, struct sae_trainer *t);

/* sae_step() is a step on the batch, or none where the loss is not finite: 0,
 * or -1 with 'err' set (EX_SOFTWARE: memory for dead latents). */
int sae_step(struct sae_work *work, struct sae_trainer *t,
             struct sae_record *record, struct err *err);

/* The mean that batchtopk's 'threshold' is, without the 0 that it began with:
 * what encodes rows that do not depend on each other. 0 before a step. */
double sae_threshold(const struct sae_trainer *t);

#endif
