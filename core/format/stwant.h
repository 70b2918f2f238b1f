/* SPDX-License-Identifier: ISC */
/*
 * Checks of tensors' types and shapes, with messages of one form:
 * "FILE: NAME is FOUND (expected WANTED)".  'path' is the file or the
 * directory.
 */
#ifndef CORE_FORMAT_STWANT_H
#define CORE_FORMAT_STWANT_H

#include "core/format/st.h"

#define ST_OPEN      UINT64_MAX /* a size that may be anything */
#define ST_WANT_DIMS 4

struct st_want {
    size_t n_dims; /* up to ST_WANT_DIMS */
    uint64_t shape[ST_WANT_DIMS];
    const char *open; /* what open sizes are called, those that are known in
                         their places: "experts, rank, hidden" */
    const char *by;   /* what says so, " by config.json", or NULL */
};

/*
 * st_want() checks a tensor's type, one that dtype_computes(), and its shape;
 * st_want_shape() the shape alone.  0, or -1 with 'err' set (EX_DATAERR).
 * st_want_data() is the data of a mapped file's tensor of that type and shape;
 * NULL with 'err' set: it is missing, too.
 */
int st_want(const char *path, const struct st_tensor *t,
            const struct st_want *want, struct err *err);
int st_want_shape(const char *path, const struct st_tensor *t,
                  const struct st_want *want, struct err *err);

const void *st_want_data(const struct st *st, const char *name,
                         enum dtype dtype, const struct st_want *want,
                         struct err *err);

/* st_missing(): -1 and EX_DATAERR "PATH: tensor NAME is missing". */
int st_missing(const char *path, const char *name, struct err *err);

#endif
