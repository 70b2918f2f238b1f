/* SPDX-License-Identifier: ISC */
/*
 * Rows of a linear layer's inputs, x, from a file or a stream.
 */
#ifndef CORE_MODEL_ROW_INPUT_H
#define CORE_MODEL_ROW_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/dtype.h"
#include "core/format/npy.h"
#include "core/format/st.h"

struct row_input {
    const char *name;
    int fd;
    bool close_fd;
    struct st st; /* of a safetensors file */
    bool is_npy, is_raw;
    bool takes_many; /* of a stream also the arrays that follow */
    enum dtype dtype;
    size_t width;  /* numbers in a row */
    size_t n_dims; /* of x; 0: a stream of unknown length */
    uint64_t shape[NPY_MAX_DIMS];
    uint64_t n_rows; /* all of them, if n_dims */
    uint64_t n_read;
    char *buf; /* [batch, width] as they are in the file */
};

/* row_input_open(): x has rows of 'width' numbers, is at 'path', "-" being
 * standard input, and is raw numbers of type 'dtype' unless that is -1.  -1
 * with 'err' set.  Owner: the caller, until row_input_close(). */
int row_input_open(struct row_input *in, const char *path, int dtype,
                   size_t width, size_t batch, struct err *err);
void row_input_close(struct row_input *in); /* a zeroed struct is fine */

/* row_input_rows() reads up to n <= batch rows; returns how many, 0 at the end,
 * or -1. */
ssize_t row_input_rows(struct row_input *in, float *x, size_t n,
                       struct err *err);

#endif
