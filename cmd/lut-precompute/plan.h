/*
 * Which layers are made, each from which SAE.
 */
#ifndef LUT_PRECOMPUTE_PLAN_H
#define LUT_PRECOMPUTE_PLAN_H

#include <stddef.h>

#include "cmd/lut-precompute/cmd.h"
#include "cmd/lut-precompute/target.h"

struct planned_table {
    char *layer, *sae; /* full name; path of a checkpoint */
};

struct table_plan {
    size_t n;
    struct planned_table *work; /* [n], in the order of the model */
};

/* plan_make() lists the layers that have an SAE and are asked for.  -1 with
 * 'err' set: EX_NOINPUT, EX_DATAERR, TU_USAGE (--layers).  Owner: the caller,
 * until plan_free(). */
int plan_make(struct table_plan *plan, const struct precompute_cmd *cmd,
              const struct target_model *m, struct err *err);
void plan_free(struct table_plan *plan);

#endif
