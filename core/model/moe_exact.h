/* SPDX-License-Identifier: ISC */
/*
 * The maths of moe.h once more, in float64 and without a rounding after the
 * operands': its output, and differences of a loss, which the operator's
 * results are measured against.  Only the forward is here, of the activations
 * silu and clamped.  Slow.
 */
#ifndef CORE_MODEL_MOE_EXACT_H
#define CORE_MODEL_MOE_EXACT_H

#include "core/err.h"
#include "core/model/moe.h"
#include "core/par.h"

/* Tensors of a gradient, after the adapter's matrices. */
enum { EXACT_INPUT = MOE_N_LORA, EXACT_WEIGHTS, EXACT_N };

/*
 * A tensor's elements are divided at random into n_samples parts, tokens of the
 * input as a whole.  A slope is the central difference of the loss,
 * L = sum of grad_output * output, if all elements of a part move at once, each
 * up or down at random: by the gradient it is sum of sign * gradient.  So no
 * element is left out, and the slopes' errors are as large, compared with the
 * slopes, as the gradient's are compared with it.
 *
 * size: how large the mean of |slope| is at least, but for cancellation in
 * sums that a gradient is made of: x A^T and B^T dy of LoRA, <da0, h> of a
 * weight.  Rounding before such a sum leaves an error of this size, however
 * small the sum is.  It is the root of the sum of squares, times sqrt(2 / pi),
 * the mean of a normal sum, times 1/2 + 2 / sqrt(n) for n sums, rows times
 * rank: of few, all may cancel; of many, the mean itself is larger.
 *
 * The adapter's matrices have slopes and sizes for each expert, those of one
 * without rows 0; input and weights are one.
 */
struct exact {
    uint64_t seed;
    size_t n_samples;
    size_t hidden, n_output;
    double *output;         /* [n_output] */
    double *slope[EXACT_N]; /* [n_experts, or 1; n_samples] */
    double *size[EXACT_N];  /* [n_experts, or 1]; input: 0 */
};

struct exact_problem {
    const struct moe_config *config;
    const struct moe_base *base;
    const struct moe_lora *lora;
    const struct moe_batch *batch;
    const uint16_t *grad_output; /* [qlen, hidden], bf16 */
};

/*
 * exact_run() computes all of it.  Ids that are no expert's are skipped.  0, or
 * -1 with 'err' set (EX_SOFTWARE: memory).
 * Owner: the caller, until exact_close().
 * exact_sign() is where element i of a tensor moves, 1 or -1, and in which
 * sample.
 */
int exact_run(struct exact *exact, const struct exact_problem *problem,
              uint64_t seed, size_t n_samples, struct par *par,
              struct err *err);
int exact_sign(const struct exact *exact, int tensor, size_t i, size_t *sample);
void exact_close(struct exact *exact); /* a zeroed struct is fine */

#endif
