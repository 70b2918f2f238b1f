/*
 * What the files of lut-apply share.
 */
#ifndef LUT_APPLY_APPLY_H
#define LUT_APPLY_APPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/err.h"
#include "core/format/lut.h"
#include "core/format/npy.h"
#include "core/format/stdir.h"
#include "core/model/table.h"
#include "core/model/table_bind.h"
#include "core/out.h"

struct cmd {
    const char *dir, *name; /* DIR LAYER */
    const char *model;      /* -m, or NULL */
    const char *input;      /* -i, "-": standard input */
    const char *out_path, *svg;
    int out_flags;
    double ratio, tau; /* NaN: not given */
    int64_t top;       /* -1: not given */
    bool absolute, weighted;
    int x_dtype; /* of a raw x, or -1 */
    enum dtype dtype;
    bool raw, json, verbose, quiet;
    int n_threads;
    int64_t batch;
    struct out *out;
};

/* A layer, ready to be applied: its table, its own weights if they are known,
 * and what compensation is asked for. */
struct layer {
    struct lut lut;
    struct bound_table bound;
    struct stdir model;
    struct table_fix fix;
    float *norms;     /* [in] --weighted */
    double threshold; /* of exceed and --tau; NaN: none */
};

/* All below: 0, or -1 with 'err' set. */

int layer_open(struct layer *l, const struct cmd *cmd, struct err *err);
void layer_close(struct layer *l); /* a zeroed struct is fine */

/* Rows of x from a file or a stream. */
struct input {
    const char *name;
    int fd;
    bool own_fd;
    struct st st; /* of a safetensors file */
    bool is_npy;
    enum dtype dtype;
    size_t width;  /* numbers of a row */
    size_t n_dims; /* of x; 0: a stream of unknown length */
    uint64_t shape[NPY_MAX_DIMS];
    uint64_t n_rows; /* all of them, if n_dims */
    uint64_t taken;  /* rows read */
    char *buf;       /* [batch, width] as they are in the file */
};

int input_open(struct input *in, const struct cmd *cmd, size_t width,
               struct err *err);
void input_close(struct input *in); /* a zeroed struct is fine */

/* input_rows() reads up to n rows; returns how many, 0 at the end, or -1. */
ssize_t input_rows(struct input *in, float *x, size_t n, struct err *err);

/* What is open while rows pass through. */
struct run {
    const struct cmd *cmd;
    struct layer layer;
    struct input input;
    struct par *par;
    struct gemm *gemm;
    struct table_work *work;
    size_t batch;
    float *x, *y, *dense; /* [batch, in], [batch, out] twice */
    char *bytes;          /* [batch, out] as they are written */
    uint64_t bad_rows;
};

/* run_open() opens table, layer and input, and takes the batch's memory. */
int run_open(struct run *run, const struct cmd *cmd, struct err *err);
void run_close(struct run *run);

/* The modes: 0, a status, or -1 with 'err' set. */
typedef int mode_main(struct run *run, struct err *err);
mode_main apply_main, report_main, bench_main;

/* The picture of --svg: NULL without it.  curve_add() takes the batch that
 * table_apply() has seen last, and changes the run's y. */
struct curve;
int curve_open(struct curve **curve, const struct run *run, struct err *err);
void curve_add(struct curve *curve, struct run *run, size_t n);
int curve_commit(struct curve *curve, const struct run *run, struct err *err);
void curve_close(struct curve *curve);

#endif
