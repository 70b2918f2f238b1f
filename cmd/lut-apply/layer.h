/*
 * A layer, ready to be applied: its table, its own weights if they are known,
 * and what compensation is asked for.
 */
#ifndef LUT_APPLY_LAYER_H
#define LUT_APPLY_LAYER_H

#include "cmd/lut-apply/cmd.h"
#include "core/format/lut.h"
#include "core/format/stdir.h"
#include "core/model/table.h"
#include "core/model/table_bind.h"

struct applied_layer {
    struct lut lut;
    struct bound_table bound;
    struct stdir model;
    struct table_fix fix;
    float *norms;     /* [in] --weighted */
    double threshold; /* of exceed and --tau; NaN: none */
};

/* layer_open(): -1 with 'err' set.  Owner: the caller, until layer_close(). */
int layer_open(struct applied_layer *l, const struct apply_cmd *cmd,
               struct err *err);
void layer_close(struct applied_layer *l); /* a zeroed struct is fine */

#endif
