/*
 * How far B's numbers are from A's.  NaN in both is no difference; NaN in one
 * makes max_abs, relative and cosine NaN.
 */
#ifndef ST_INSPECT_COMPARE_H
#define ST_INSPECT_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "cmd/st-inspect/cmd.h"
#include "cmd/st-inspect/view.h"

struct tensor_distance {
    bool other_bytes;
    bool measured;     /* false: the same, or not of real numbers */
    uint64_t n_differ; /* |a - b| > atol + rtol |a| */
    double max_abs;
    double relative; /* norm of B - A, by the norm of A */
    double cosine;
    uint64_t max_ulp; /* only between floats of one type */
};

/* compare_open() takes the memory that all comparisons share: NULL with 'err'
 * set if there is none.  cmd->par must be open. */
struct comparer;
struct comparer *compare_open(const struct inspect_cmd *cmd, struct err *err);
void compare_close(struct comparer *c); /* NULL is fine */

/* compare() reads a and b, of as many elements, once or more; -1 with 'err' set
 * as view_read(). */
int compare(struct comparer *c, struct tensor_distance *d, const struct view *a,
            const struct view *b, struct err *err);

#endif
