/* SPDX-License-Identifier: ISC */
/*
 * How close tables are to their layers: sums over all rows in f64, never means
 * of batches' means, so that they do not depend on the batches.
 */
#ifndef CORE_MODEL_TABLE_STATS_H
#define CORE_MODEL_TABLE_STATS_H

#include "core/model/table.h"

/*
 * table_stats_new() starts; 'threshold' is that of exceed, NaN: none.  Memory
 * of some doubles for each dim, and 1 MiB, whatever the number of rows.
 * Owner: the caller, until table_stats_free().
 */
struct table_stats;
struct table_stats *table_stats_new(const struct table *t, double threshold);
void table_stats_free(struct table_stats *s); /* NULL is fine */

/*
 * table_stats_add() compares the rows of the workspace's last table_apply(),
 * with TABLE_ERROR and TABLE_COUNT, with the layer's own outputs, bias
 * included.  Rows with a number that is not finite are counted as bad and
 * are in no other sum.
 */
void table_stats_add(struct table_stats *s, const struct table_work *work,
                     const float *y, size_t ldy, const float *dense, size_t ldd,
                     const float *x, size_t ldx, size_t n);

/* The numbers of a report, by the names and in the order of its columns. */
enum table_metric {
    TABLE_ROWS,
    TABLE_BAD_ROWS,
    TABLE_ACTIVE,     /* directions of a row, mean */
    TABLE_POSITIVES,  /* of its pre-activations, mean */
    TABLE_DEAD,       /* directions that no row has */
    TABLE_FVU_INPUT,  /* sum |x - x^|^2 / sum |x - mean x|^2 */
    TABLE_THRESHOLD,  /* of the next */
    TABLE_EXCEED,     /* share of all |x - x^| over the threshold */
    TABLE_FIXED,      /* dims in C of a row, mean */
    TABLE_FVU_OUTPUT, /* sum |y - Y|^2 / sum |Y - mean Y|^2 */
    TABLE_REL_L2,     /* sqrt(sum |y - Y|^2 / sum |Y|^2) */
    TABLE_ROW_P99,    /* of the rows' own rel_l2, to 2^-9 of itself */
    TABLE_ROW_MAX,
    TABLE_COSINE_MEAN, /* of y and Y, of the rows */
    TABLE_COSINE_MIN,
    TABLE_MAX_ABS, /* |y - Y| of any number */
    TABLE_N_METRICS
};
extern const char *const table_metric_names[TABLE_N_METRICS];

/* table_stats_get(): 0 / 0 is NaN. */
void table_stats_get(const struct table_stats *s, double v[TABLE_N_METRICS]);

/* table_stats_fixed() is how often each dim was in C.  [in], of the stats. */
const uint64_t *table_stats_fixed(const struct table_stats *s);

#endif
