/* The run over all layers of the command line. */
#ifndef LUT_PRECOMPUTE_RUN_H
#define LUT_PRECOMPUTE_RUN_H

#include "cmd/lut-precompute/cmd.h"
#include "core/err.h"

/* run_all() makes all tables of the command line, or prints what --dry-run
 * does: 0, TU_NEGATIVE where --verify finds a difference, or -1 with 'err' set.
 */
int run_all(const struct precompute_cmd *cmd, struct err *err);

#endif
