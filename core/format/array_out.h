/* SPDX-License-Identifier: ISC */
/*
 * Arrays of 4-byte numbers that are written as they come: how many is known at
 * the end.
 */
#ifndef CORE_FORMAT_ARRAY_OUT_H
#define CORE_FORMAT_ARRAY_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/out.h"

struct array_out {
    struct out *out;
    bool npy; /* else no header */
    enum dtype dtype;
    size_t n_dims;
    uint64_t shape[4];          /* [items written, ..] */
    size_t head_nbytes, nbytes; /* of the header; of what is after it */
    uint8_t last[4];            /* of a stream's bytes, until its end */
};

/* array_out_open() starts the file of a .npy, which 'option' names.  0, or -1
 * with 'err' set (TU_USAGE: a stream). */
int array_out_open(struct array_out *x, const char *option, const char *path,
                   int flags, struct err *err);

/*
 * array_out_write() appends so many items; array_out_end() ends them: the
 * header of a .npy, once all are counted, or the last number of a stream, which
 * has waited for it: a run that fails, or is killed, ends in the middle of an
 * item, and no reader of a pipe takes it for the whole.
 * array_out_reserve() asks for room for all items on the disk.
 * 0, or -1 with 'err' set.
 */
int array_out_write(struct array_out *x, size_t n_items, const void *data,
                    size_t nbytes, struct err *err);
int array_out_end(struct array_out *x, struct err *err);
int array_out_reserve(const struct array_out *x, size_t n_items,
                      struct err *err);

#endif
