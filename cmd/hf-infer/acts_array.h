/* SPDX-License-Identifier: ISC */
/*
 * Arrays that --acts writes as they come: activations and ids.
 */
#ifndef HF_INFER_ACTS_ARRAY_H
#define HF_INFER_ACTS_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/out.h"

/* An output with 4 bytes for each number of each window. */
struct acts_array {
    struct out *out;
    bool npy; /* else no header */
    enum dtype dtype;
    size_t n_dims;
    uint64_t shape[4];          /* [windows written, ..] */
    size_t head_nbytes, nbytes; /* of the header; of what is after it */
    uint8_t last[4];            /* of a stream's bytes, until its end */
};

/* acts_open_npy() starts the file of a .npy, which 'option' names.  0, or -1
 * with 'err' set (TU_USAGE: a stream). */
int acts_open_npy(struct acts_array *x, const char *option, const char *path,
                  int flags, struct err *err);

/*
 * acts_write_array() appends so many windows; acts_end_array() ends them: the
 * header of a .npy, once all are counted, or the last number of a stream, which
 * has waited for it: a run that fails, or is killed, ends in the middle of a
 * window, and no reader of a pipe takes it for the whole.
 * acts_reserve() asks for room for all windows on the disk.
 * 0, or -1 with 'err' set.
 */
int acts_write_array(struct acts_array *x, size_t n_windows, const void *data,
                     size_t nbytes, struct err *err);
int acts_end_array(struct acts_array *x, struct err *err);
int acts_reserve(const struct acts_array *x, size_t n_windows, struct err *err);

#endif
