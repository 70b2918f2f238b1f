/* SPDX-License-Identifier: ISC */
/*
 * numpy's .npy, format versions 1 to 3: little-endian, C order.
 * Source: numpy.lib.format.
 */
#ifndef CORE_FORMAT_NPY_H
#define CORE_FORMAT_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/str.h"

#define NPY_MAX_DIMS   32    /* numpy's own limit before 2.0; 64 since */
#define NPY_MAX_HEADER 65536 /* bytes; more is refused */
#define NPY_MAX_HEAD   (12 + NPY_MAX_HEADER) /* with the fixed part */

struct npy {
    enum dtype dtype;
    size_t n_dims; /* 0: a scalar */
    uint64_t shape[NPY_MAX_DIMS];
    uint64_t n_elements;
    size_t nbytes;      /* of the data */
    size_t data_offset; /* bytes before them */
    size_t note_offset; /* of a comment after the dict, without its "#" */
    size_t note_nbytes; /* 0: none */
};

/*
 * npy_parse() reads the header in the first 'nbytes' of a file, 'head' (at most
 * NPY_MAX_HEAD are needed).
 * 0, or -1 with 'err' set (EX_DATAERR): not .npy, Fortran order, big-endian,
 * objects, a dtype without a name here, sizes that overflow, cut short.
 */
int npy_parse(struct npy *npy, const void *head, size_t nbytes,
              const char *path, struct err *err);

/* npy_fits() is 0 if a file of 'size' bytes has exactly the data that its
 * header promises, or -1 with 'err' set (EX_DATAERR). */
int npy_fits(const struct npy *npy, size_t size, const char *path,
             struct err *err);

/*
 * npy_read() reads a header from 'fd' and not a byte more; 'head'
 * [NPY_MAX_HEAD] has its first 'n' bytes already.  0, or -1 with 'err' set, as
 * npy_parse().
 *
 * npy_more() goes on to the array that follows the one of *npy on a stream,
 * whose dtype and last 'n_last' dims, of which none is 0, must be the same: 1,
 * 0 at the end of the input, or -1 with 'err' set (EX_DATAERR: another array,
 * or none).
 */
int npy_read(struct npy *npy, int fd, const char *path, void *head, size_t n,
             struct err *err);
int npy_more(struct npy *npy, int fd, const char *path, size_t n_last,
             struct err *err);

/* npy_sniff(): do these bytes begin a .npy file? */
bool npy_sniff(const void *head, size_t nbytes);

/* npy_is_raw() is 0 if these first bytes can be raw numbers, as the user says,
 * or -1 with 'err' set (EX_DATAERR): they are a .npy header, which would become
 * rows. */
int npy_is_raw(const void *head, size_t nbytes, const char *path,
               struct err *err);

/*
 * npy_header() appends the header that numpy.save() would write (version 1,
 * padded to 64 bytes).  A dtype that numpy does not have (BF16, F8) and more
 * than NPY_MAX_DIMS dims cannot be said in .npy: -1 with 'err' set
 * (EX_DATAERR), which names no file.
 */
int npy_header(struct str *out, enum dtype dtype, size_t n_dims,
               const uint64_t *shape, struct err *err);

/*
 * npy_note() adds a comment, one line, to a header that is all of 'header':
 * numpy's reader, which is Python's, passes over it.  false: it is too long, as
 * numpy refuses a header of over 10000 characters, and nothing was added.
 */
bool npy_note(struct str *header, const char *note);

#endif
