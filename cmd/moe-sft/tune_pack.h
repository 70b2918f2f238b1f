/* SPDX-License-Identifier: ISC */
/* Windows of examples: what goes through the model as one sequence. */
#ifndef MOE_SFT_TUNE_PACK_H
#define MOE_SFT_TUNE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/moe-sft/tune_data.h"
#include "core/model/train/lm.h"

/* Each example alone, in order of the file; or as many as fit. */
struct tune_windows {
    struct lm_seq *seqs; /* [n] */
    size_t n, n_tokens, n_targets;
    size_t *order; /* [data->n] examples, window after window */
    size_t *first; /* [n + 1] which of order[] each begins with */
    /* of packed ones, in order[]: copies, and where examples begin */
    int32_t *ids, *labels;
    size_t *starts;
};

/*
 * tune_windows_open() makes a window of each example, or packs them into
 * windows of 'ctx' tokens: best fit decreasing.  The longest first, in order of
 * the file among equals, each goes where the least room is left that it fits
 * into, where that room was made first among equals, or into a new window.
 * 'data' must live as long.  Owner: the caller, until tune_windows_close().
 * Source: trl, data_utils._pack_bfd().
 */
void tune_windows_open(struct tune_windows *windows,
                       const struct tune_data *data, size_t ctx, bool pack);
void tune_windows_close(struct tune_windows *windows);

#endif
