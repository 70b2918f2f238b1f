/*
 * A lookup table of a folder, bound to the linear layers that it stands for:
 * their own weights, for compensation and comparison, and their biases.
 */
#ifndef CORE_MODEL_TABLE_BIND_H
#define CORE_MODEL_TABLE_BIND_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/format/lut.h"
#include "core/model/linear.h"
#include "core/model/table.h"

struct bound_table {
    struct lut_table file;
    struct table table; /* of the file, and of the parts that are bound */
    float *bias;    /* [table.out] of the layers, zeros where they have none */
    size_t n_bound; /* outputs of the parts so far */
};

/*
 * table_bind_open() opens a layer's file as lut_table_open() does; no part is
 * bound.  Owner: the caller, until table_bind_close(); the lut lives longer.
 */
int table_bind_open(struct bound_table *b, const struct lut *lut,
                    const struct lut_layer *layer, struct err *err);
void table_bind_close(struct bound_table *b); /* a zeroed struct is fine */

/*
 * table_bind_part() adds the next of the layers that the table stands for, in
 * their order.  Its weights are borrowed.  false where it does not fit: other
 * inputs, or more outputs than are left.
 * table_bind_end() follows the last one: false where outputs are left.  Biases
 * join bias_product where its exporter forgot them.
 */
bool table_bind_part(struct bound_table *b, const struct linear *part);
bool table_bind_end(struct bound_table *b);

#endif
