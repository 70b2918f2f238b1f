/*
 * Rows of x from a file or a stream.
 */
#ifndef LUT_APPLY_INPUT_H
#define LUT_APPLY_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cmd/lut-apply/cmd.h"
#include "core/format/npy.h"
#include "core/format/st.h"

struct row_input {
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

/* input_open(): -1 with 'err' set; x has rows of 'width' numbers.  Owner: the
 * caller, until input_close(). */
int input_open(struct row_input *in, const struct apply_cmd *cmd, size_t width,
               struct err *err);
void input_close(struct row_input *in); /* a zeroed struct is fine */

/* input_rows() reads up to n rows; returns how many, 0 at the end, or -1. */
ssize_t input_rows(struct row_input *in, float *x, size_t n, struct err *err);

#endif
