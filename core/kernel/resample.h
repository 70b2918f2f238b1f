/* SPDX-License-Identifier: ISC */
/*
 * Lines of numbers, such as an image's rows and columns, in another length: of
 * which old ones, with what weights, each new one is made.
 */
#ifndef CORE_KERNEL_RESAMPLE_H
#define CORE_KERNEL_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

/* By PIL's numbers: as much wider as the line becomes shorter, as torch's with
 * antialias.  The last one is torch's bicubic without: four numbers, and beyond
 * the line its ends, where PIL's have no weights. */
enum resample {
    RESAMPLE_NEAREST,
    RESAMPLE_LANCZOS,
    RESAMPLE_BILINEAR,
    RESAMPLE_BICUBIC,
    RESAMPLE_BOX,
    RESAMPLE_HAMMING,
    RESAMPLE_FOUR
};

struct resampling {
    size_t most;        /* room for weights of each */
    uint32_t *from, *n; /* new number i is made of n[i] old ones from there */
    double *weight;     /* [n, most] */
};

/*
 * resampling_open() is for n new numbers from 'first' on, where 'in' become
 * 'out', 1 .. 2^30.  0, or -1 with 'err' set (EX_SOFTWARE: memory).
 * Owner: the caller, until resampling_close(), after an error, too.
 * Source: Pillow's Resample.c and, for nearest, Geometry.c; torch's
 * UpSampleBicubic2d.
 */
int resampling_open(struct resampling *r, enum resample filter, size_t in,
                    size_t out, size_t first, size_t n, struct err *err);
void resampling_close(struct resampling *r); /* a zeroed struct is fine */

#endif
