/* SPDX-License-Identifier: ISC */
/* Batches: the input of a layer's experts, from a file or a stream. */
#ifndef MOE_SFT_BATCH_H
#define MOE_SFT_BATCH_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/base.h"
#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/model/moe.h"

/*
 * A batch.  batch_open() reads those of these tensors that the file has:
 * 'input' [qlen, H] (BF16, F16 or F32, rounded), expert_ids [qlen, k] (I64; I32
 * is widened), weights [qlen, k] (F32), grad_output [qlen, H] and target [qlen,
 * H]; those that 'need' names must be there, and fit 'hidden' (0: any).
 * batch_next() reads the next of safetensors files that follow each other in
 * a stream: 1, 0 at its end, or -1 with 'err' set.
 * Owner: the caller, until batch_close().
 */
enum {
    BATCH_INPUT = 1,
    BATCH_ROUTING = 2, /* expert_ids and weights */
    BATCH_GRAD_OUTPUT = 4,
    BATCH_TARGET = 8
};
struct batch {
    char *name; /* for messages */
    size_t qlen, top_k, hidden;
    int64_t *expert_ids;
    float *weights;
    uint16_t *input, *grad_output; /* bf16; NULL: not there */
    float *target;
};
int batch_open(struct batch *b, const char *path, unsigned need, size_t hidden,
               struct err *err);
int batch_next(struct batch *b, int fd, const char *name, unsigned need,
               size_t hidden, struct err *err);
void batch_close(struct batch *b); /* a zeroed struct is fine */
struct moe_batch batch_of(const struct batch *b);

/* batch_parse() is batch_open() of a file in memory: for streams, fuzzers. */
int batch_parse(struct batch *b, const void *file, size_t nbytes,
                const char *name, unsigned need, size_t hidden,
                struct err *err);

/*
 * batch_route() fills expert_ids and weights as the model does, where a batch
 * has none: by x router^T (f32), as router.h says of this kind of router.
 */
int batch_route(struct batch *b, const struct base *base, struct gemm *gemm,
                struct err *err);

#endif
