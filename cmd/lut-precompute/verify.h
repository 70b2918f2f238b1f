/*
 * A layer's file against a sample of it in f64.
 */
#ifndef LUT_PRECOMPUTE_VERIFY_H
#define LUT_PRECOMPUTE_VERIFY_H

#include <stdbool.h>

#include "cmd/lut-precompute/job.h"
#include "core/par.h"

/*
 * job_verify(): 0, 1 if the file differs from a sample in f64; -1 with 'err'.
 * Prints a line of a table, whose header comes first unless '*header'.
 */
int job_verify(const struct layer_job *job, struct par *par, bool *header,
               struct err *err);

#endif
