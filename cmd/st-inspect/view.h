/*
 * A tensor's bytes in some file, for the verbs that read values.
 */
#ifndef ST_INSPECT_VIEW_H
#define ST_INSPECT_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/stdir.h"

#define PIECE_NBYTES ((size_t)256 << 10) /* of a read: stays in the cache */
#define CHUNK        ((size_t)32768)     /* elements summed at a time */

struct view {
    const char *path;
    int fd;
    size_t offset; /* in the file */
    enum dtype dtype;
    size_t n_dims;
    const uint64_t *shape;
    uint64_t n; /* elements */
    size_t nbytes;
};

/* view_of() is a view of a tensor: valid as long as its file is open. */
struct view view_of(const struct stdir_tensor *t);

/* view_read() reads elements [first, first + n), of a type of whole bytes, as
 * they lie in the file.  -1 with 'err' set, as file_pread(). */
int view_read(const struct view *v, void *buf, uint64_t first, size_t n,
              struct err *err);

/* widen() makes doubles of n elements; exact but for 64-bit integers. */
void widen(double *to, const void *from, enum dtype dtype, size_t n);
bool widens(enum dtype dtype); /* has elements that are real numbers */

#endif
