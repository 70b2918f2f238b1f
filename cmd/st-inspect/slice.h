/* SPDX-License-Identifier: ISC */
/*
 * numpy's basic indexing, "0:4,:,-1" of a shape.
 */
#ifndef ST_INSPECT_SLICE_H
#define ST_INSPECT_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

struct slice_axis {
    int64_t start, step; /* in elements of this axis */
    uint64_t count;
    bool keep; /* false: an integer index, which drops the axis */
};

struct slice {
    size_t n_dims;
    struct slice_axis *axis; /* [n_dims] of the tensor */
    uint64_t n;              /* elements selected */
};

/* slice_parse(): text NULL selects everything.  -1 with 'err' set (TU_USAGE).
 * Owner: the caller, until slice_free(). */
int slice_parse(struct slice *s, const char *text, size_t n_dims,
                const uint64_t *shape, struct err *err);
void slice_free(struct slice *s);

#endif
