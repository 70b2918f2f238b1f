/* SPDX-License-Identifier: ISC */
/* Outputs: checks before the work, tensors, text, directories. */
#ifndef MOE_SFT_WRITE_H
#define MOE_SFT_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/verbs.h"
#include "core/dtype.h"
#include "core/err.h"
#include "core/format/stw.h"
#include "core/outdir.h"
#include "core/str.h"

/* can_write(): EX_CANTCREAT for a file that exists and is not to be replaced,
 * before the work is done. */
int can_write(const struct cmd *cmd, const char *path, struct err *err);

/* A tensor of an output: BF16 as files have it, F32 and I64 in this machine's
 * order. */
struct output_tensor {
    const char *name;
    enum dtype dtype;
    size_t n_dims;
    uint64_t shape[3]; /* n_dims of them */
    const void *data;
};

/* write_tensors() announces, opens and fills a file, which its caller commits.
 * 0, or -1 with 'err' set. */
int write_tensors(struct stw *w, const struct output_tensor *tensors, size_t n,
                  const char *path, int flags, struct err *err);

#endif
