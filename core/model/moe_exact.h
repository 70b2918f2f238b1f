/*
 * The maths of moe.h once more, in float64 and without a rounding after the
 * operands': what the operator's results are measured against.  Slow.
 */
#ifndef CORE_MODEL_MOE_EXACT_H
#define CORE_MODEL_MOE_EXACT_H

#include "core/err.h"
#include "core/model/moe.h"
#include "core/par.h"

/* Tensors of a gradient, after the adapter's matrices. */
enum { EXACT_INPUT = MOE_N_LORA, EXACT_WEIGHTS, EXACT_N };

/*
 * Results, for L = sum of grad_output * output: the output, and the gradients
 * of L, shaped as the tensors they are of.
 */
/*
 * size: how large the mean of |gradient| is at least, but for cancellation in
 * sums that it is made of: x A^T and B^T dy of LoRA, <da0, h> of a weight.
 * Rounding before such a sum leaves an error of this size, however small the
 * sum is.  It is the root of the sum of squares, times sqrt(2 / pi), the mean
 * of a normal sum, times 1/2 + 2 / sqrt(n) for n sums, rows times rank: of few,
 * all may cancel; of many, the mean of |gradient| itself is larger.
 */
struct exact {
    double *output;
    double *grad[EXACT_N];
    double *size[EXACT_N]; /* [n_experts]; of weights the first; input: 0 */
    size_t n_output, n[EXACT_N]; /* elements */
};

/*
 * One element, and what a central difference says that L's derivative by it
 * is: (L(p + d) - L(p - d)) / 2 d.
 */
struct exact_sample {
    int tensor;
    size_t i; /* within the tensor */
    double difference;
};

struct exact_problem {
    const struct moe_config *config;
    const struct moe_base *base;
    const struct moe_lora *lora;
    const struct moe_batch *batch;
    const uint16_t *grad_output; /* [qlen, hidden], bf16 */
};

/*
 * exact_run() computes all results and the samples' differences, which share
 * only the forward pass with the gradients.  Ids that are no expert's are
 * skipped.  0, or -1 with 'err' set (EX_SOFTWARE: memory).
 * Owner: the caller, until exact_close().
 */
int exact_run(struct exact *exact, const struct exact_problem *problem,
              struct exact_sample *samples, size_t n_samples, struct par *par,
              struct err *err);
void exact_close(struct exact *exact); /* a zeroed struct is fine */

#endif
