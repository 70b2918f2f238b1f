/* SPDX-License-Identifier: ISC */
/*
 * lut-apply: its command line as parsed, what is open while rows pass through,
 * and its modes.  Only main.c prints errors and exits.
 */
#ifndef LUT_APPLY_APPLY_H
#define LUT_APPLY_APPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/format/lut.h"
#include "core/format/stdir.h"
#include "core/model/row_input.h"
#include "core/model/table.h"
#include "core/out.h"
#include "core/par.h"

/* --codes, --values, --xhat, in this order. */
enum { N_ARRAYS = 3 };

struct apply_cmd {
    const char *dir, *name; /* DIR LAYER */
    const char *model;      /* -m, or NULL */
    const char *input;      /* -i, "-": standard input */
    const char *out_path, *svg;
    const char *arrays[N_ARRAYS]; /* NULL: not given */
    int out_flags;
    double ratio, tau; /* NaN: not given */
    int64_t top;       /* -1: not given */
    const char *dims;  /* --dims, or NULL */
    bool absolute, weighted;
    int x_dtype; /* of a raw x, or -1 */
    enum dtype dtype;
    bool raw, json, plot, no_screen, verbose, quiet;
    int n_threads;
    int64_t batch;
    struct out *out;
};

struct apply_run {
    const struct apply_cmd *cmd;
    struct lut lut;
    struct table table;
    struct stdir model;
    struct table_fix fix;
    float *norms;     /* [in] --weighted */
    uint32_t *dims;   /* [in] --dims */
    double threshold; /* of exceed and --tau; NaN: none */
    struct row_input input;
    struct par *par;
    struct gemm *gemm;
    struct table_work *work;
    size_t batch;
    float *x, *y, *dense; /* [batch, in], [batch, out] twice */
    char *bytes;          /* [batch, out] as they are written */
    struct row_arrays *arrays;
};

/* run_open() opens table, model and input, and allocates the batch's memory: -1
 * with 'err' set.  Owner: the caller, until run_close(). */
int run_open(struct apply_run *run, const struct apply_cmd *cmd,
             struct err *err);
void run_close(struct apply_run *run);

/*
 * arrays_open() begins the files of --codes, --values and --xhat,
 * arrays_write() adds the n rows last applied, and arrays_commit() publishes
 * them.  -1 with 'err' set.  arrays_close() removes what is not published.
 */
int arrays_open(struct apply_run *run, struct err *err);
int arrays_write(struct apply_run *run, size_t n, struct err *err);
int arrays_commit(struct apply_run *run, struct err *err);
void arrays_close(struct apply_run *run);

/* The modes: 0, or -1 with 'err' set. */
typedef int mode_main(struct apply_run *run, struct err *err);
mode_main apply_main, report_main, bench_main;

#endif
