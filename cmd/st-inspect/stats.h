/*
 * What stats says of a tensor.  NaN and infinities are counted; everything else
 * is over the finite elements.  stats.c drives; counts.c, moments.c and ranks.c
 * compute, hist.c draws.
 */
#ifndef ST_INSPECT_STATS_H
#define ST_INSPECT_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/scratch.h"
#include "cmd/st-inspect/view.h"

struct tensor_stats {
    uint64_t n, n_finite, n_nan, n_inf, n_zero;
    double min, max, mean, std; /* NaN when n_finite is 0; std is over n */
    double quantiles[MAX_QUANTILES];
    bool known; /* false: a type without numbers, and nothing else is set */
    bool has_quantiles;
    double lo, hi;  /* outer edges of the histogram */
    uint64_t *hist; /* [cmd->n_bins]; NULL: none wanted */
};

/*
 * stats_of() fills 'st', whose hist the caller has set.  par NULL: in this
 * thread, which is 'thread'.  The result depends on neither.  Errors go to
 * the scratch memory of the threads.
 */
void stats_of(struct tensor_stats *st, const struct view *v,
              const struct inspect_cmd *cmd, struct stats_scratch *s,
              struct par *par, int thread);

#endif
