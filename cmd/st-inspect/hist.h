/*
 * Histograms: their range and bins, and the drawing, as rows and as SVG.
 */
#ifndef ST_INSPECT_HIST_H
#define ST_INSPECT_HIST_H

#include <stddef.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/select.h"
#include "cmd/st-inspect/stats.h"

/* hist_range() sets lo and hi from min and max, hist_bin() is the bin of n_bins
 * that v in [lo, hi] falls into: both as numpy. */
void hist_range(struct tensor_stats *st);
size_t hist_bin(const struct tensor_stats *st, size_t n_bins, double v);

/* hist_rows() adds name, edges, count and bar of each bin; hist_svg() writes a
 * picture of all tensors of 'sel', stats [sel->n]: -1 with 'err' set if that
 * fails.  'out' is still the caller's. */
void hist_rows(struct str *to, const struct tensor_stats *st, size_t n_bins,
               const struct st_tensor *t);
int hist_svg(struct out *out, const struct inspect_cmd *cmd,
             const struct selection *sel, const struct tensor_stats *stats,
             struct err *err);

#endif
