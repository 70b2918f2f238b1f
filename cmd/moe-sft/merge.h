/* SPDX-License-Identifier: ISC */
/* What merges share: the numbers, and the directory that they go to. */
#ifndef MOE_SFT_MERGE_H
#define MOE_SFT_MERGE_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/moe-sft/verbs.h"
#include "core/err.h"
#include "core/kernel/gemm.h"
#include "core/par.h"

/* Room for one matrix. */
struct merge_work {
    struct par *par;
    size_t longest; /* numbers of the longest row */
    void *merged;   /* [largest] numbers of up to 4 bytes */
    float *a, *b;   /* [low], of the adapter: [rank, k], [n, rank] */
    double *sums;   /* [threads, longest] */
    float *rounded; /* [threads, longest] */
};

/* merge_work_open() is for matrices of that many numbers, with rows of
 * 'longest', and A or B of 'low'.  -1 with 'err' set (EX_SOFTWARE).  Owner: the
 * caller, until merge_work_close(), in either case. */
int merge_work_open(struct merge_work *work, struct par *par, int n_threads,
                    size_t largest, size_t longest, size_t low,
                    struct err *err);
void merge_work_close(struct merge_work *work); /* a zeroed struct is fine */

/* merge_matrix() makes work->merged of w + scale * b a, summed in f64 and
 * rounded once to the type of w.  False: a or b has NaN or Inf. */
bool merge_matrix(struct merge_work *work, const struct gemm_matrix *w,
                  size_t rank, double scale);

/* merge_refuse_packed(): what is written has numbers, and packed tensors would
 * stay next to them: EX_DATAERR where the base has such. */
struct quantization;
int merge_refuse_packed(const struct quantization *packed, const char *path,
                        struct err *err);

/* merge_model() merges all of --lora into a copy of the model --base. */
int merge_model(const struct cmd *cmd, struct err *err);

#endif
