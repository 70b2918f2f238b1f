/* SPDX-License-Identifier: ISC */
/*
 * Numbers from a file or pipe, whatever their form there: .npy or raw, any
 * dtype.
 */
#ifndef SAEV_WRITE_INPUT_H
#define SAEV_WRITE_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/format/saev.h"
#include "core/out.h"

struct float_input {
    const char *name; /* for messages */
    int fd;
    enum dtype dtype;
    unsigned char *head; /* [INPUT_HEAD] read, not taken yet: */
    size_t head_at, head_n;
    uint64_t n_taken; /* bytes of numbers, in the input's own dtype */
    float *native;    /* for conversion */
};

/* input_open() opens 'path', or standard input for "-"; 'dtype' is that of raw
 * numbers.  -1 with 'err' set, EX_NOINPUT: it cannot be opened.  Owner: the
 * caller, until input_close(). */
int input_open(struct float_input *in, const char *path, enum dtype dtype,
               struct err *err);
void input_close(struct float_input *in); /* a zeroed struct is fine */

/* input_left() is how many bytes of f32 a file still has; SIZE_MAX if
 * it is not a file, as the end is unknown then. */
size_t input_left(const struct float_input *in);

/* input_more() waits until there is a byte: 1, or 0 at the end; -1 with 'err'
 * set, EX_TEMPFAIL when asked to stop, as all that wait here. */
int input_more(struct float_input *in, struct err *err);

/* input_header() takes a .npy header: 1 with the number of images it
 * promises, or 0 if there is none. */
int input_header(struct float_input *in, const struct saev *saev,
                 size_t *n_imgs, struct err *err);

/* input_read() fills 'to' with f32 numbers, little-endian, until n or the
 * end: how many, or -1.  input_move() copies f32 input to 'out': how many
 * bytes, 0 at the end. */
#define INPUT_FLOATS ((size_t)256 << 10) /* at most, in one input_read() */
ssize_t input_read(struct float_input *in, void *to, size_t n, struct err *err);
ssize_t input_move(struct float_input *in, struct out *out, size_t nbytes,
                   struct err *err);

#endif
