/*
 * What is open while rows pass through, and the modes that let them.
 */
#ifndef LUT_APPLY_RUN_H
#define LUT_APPLY_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/lut-apply/cmd.h"
#include "cmd/lut-apply/input.h"
#include "cmd/lut-apply/layer.h"
#include "core/par.h"

struct apply_run {
    const struct apply_cmd *cmd;
    struct applied_layer layer;
    struct row_input input;
    struct par *par;
    struct gemm *gemm;
    struct table_work *work;
    size_t batch;
    float *x, *y, *dense; /* [batch, in], [batch, out] twice */
    char *bytes;          /* [batch, out] as they are written */
    uint64_t bad_rows;
};

/* run_open() opens table, layer and input, and takes the batch's memory: -1
 * with 'err' set.  Owner: the caller, until run_close(). */
int run_open(struct apply_run *run, const struct apply_cmd *cmd,
             struct err *err);
void run_close(struct apply_run *run);

/* The modes: 0, a status, or -1 with 'err' set. */
typedef int mode_main(struct apply_run *run, struct err *err);
mode_main apply_main, report_main, bench_main;

#endif
