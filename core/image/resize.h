/* SPDX-License-Identifier: ISC */
/*
 * Pictures in another size, as PIL's Image.resize() makes them, byte for byte;
 * or in floats, unrounded, as torch's antialiased interpolation does.  The
 * same bits on every machine: integers, and floats summed in one order.
 */
#ifndef CORE_IMAGE_RESIZE_H
#define CORE_IMAGE_RESIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/image/picture.h"
#include "core/kernel/resample.h"

/* What to compute: a window of the resized picture. */
struct resize {
    enum resample filter;
    bool floats;          /* rows of floats, not rounded to bytes */
    size_t height, width; /* of the whole resized picture, 1 .. 2^30 */
    size_t top, left;     /* the window's first row and column in it */
    size_t n_rows, n_cols;
};

/* Of which old pixels each row, or column, of the window is made. */
struct resize_axis {
    struct resampling by;
    union {
        int32_t *q22; /* its weights, times 2^22 */
        float *f32;
    } w;
};

struct resizer {
    struct resize want;
    const struct picture *from;
    struct resize_axis rows, cols;
    size_t row;      /* the next one of the window */
    size_t have;     /* old rows before this one are in the ring, resized */
    size_t n_slots;  /* the ring's rows: old row y is in y % n_slots */
    size_t n_padded; /* elements of a row, 3 a column, and some of no meaning */
    void *ring, *to;
    uint64_t *pairs; /* two old rows */
};

/*
 * resize_open() prepares the window of a picture, which must stay until
 * resize_close(); resize_next() computes the next of its n_rows rows, and is
 * uint8_t [n_cols, 3], or float, valid until the next call.  The width is
 * resized first, then the height; a side that keeps its size is copied.
 *
 * Returns 0, or -1 with 'err' set (EX_SOFTWARE: memory).
 * Memory: the old rows of one new row, n_cols wide, and weights, some 6 for
 * each pixel of a side of the larger picture.
 * Threads: any number, each with a resizer of its own.
 * Source: Pillow's Resample.c.
 */
int resize_open(struct resizer *r, const struct picture *from,
                const struct resize *want, struct err *err);
const void *resize_next(struct resizer *r);
void resize_close(struct resizer *r);

#endif
