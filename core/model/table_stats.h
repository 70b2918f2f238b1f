/*
 * How well tables stand for their layers: sums over all rows in f64, never
 * means of batches' means, so that no cut of the rows changes them.
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
 * table_stats_add() takes the rows that the workspace's last table_apply() made
 * with TABLE_ERROR and TABLE_COUNT, and what the layer itself makes of them,
 * bias included.  Rows with a number that is not finite are counted as bad and
 * are in no other sum.
 */
void table_stats_add(struct table_stats *s, const struct table_work *work,
                     const float *y, size_t ldy, const float *dense, size_t ldd,
                     const float *x, size_t ldx, size_t n);

/* Where nothing can be said, 0 by 0, a number is NaN. */
struct table_report {
    uint64_t rows, bad_rows;
    double active_mean;    /* directions of a row */
    double positives_mean; /* of its pre-activations */
    uint64_t dead;         /* directions that no row has */
    double fvu_input;      /* sum |x - x^|^2 / sum |x - mean x|^2 */
    double exceed;         /* share of all |x - x^| over the threshold */
    double fixed_mean;     /* dims of C of a row */
    double fvu_output;     /* sum |y - Y|^2 / sum |Y - mean Y|^2 */
    double rel_l2;         /* sqrt(sum |y - Y|^2 / sum |Y|^2) */
    double row_p99;        /* of the rows' own rel_l2, to 2^-9 of itself */
    double row_max;
    double cosine_mean, cosine_min; /* of y and Y, of the rows */
    double max_abs;                 /* |y - Y| of any number */
};
void table_stats_get(const struct table_stats *s, struct table_report *r);

/* table_stats_fixed() is how often each dim was in C.  [in], of the stats. */
const uint64_t *table_stats_fixed(const struct table_stats *s);

#endif
