/* SPDX-License-Identifier: ISC */
/*
 * The answer of the default verb: rows as .npy, a sequence of .npy arrays
 * (--batch) or raw, of any of the dtypes, with progress; or, with --index,
 * where they are, as TSV or JSON.
 */
#ifndef SAEV_READ_EMIT_H
#define SAEV_READ_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/select.h"
#include "core/str.h"
#include "core/tty.h"

struct emit {
    const struct read_cmd *cmd;
    const struct dump_target *t;
    size_t d;
    size_t n_rows, n_done; /* of all; handed to the output */
    size_t array_left;     /* of the array that is being written */
    float *native;         /* [EMIT_FLOATS] in this machine's order */
    void *converted;       /* [EMIT_FLOATS] of dtype; both NULL for F32 */
    struct str text;       /* of --index, not written yet */
    struct str note;       /* of .npy: the rows' hook, and which are left out */
    struct progress progress;
};

/*
 * emit_open() gets the number of rows there will be; then they come in any
 * number of calls, or their places one by one.  emit_end() writes what is left
 * and, with -v, a line on stderr.  -1 with 'err' set: the output cannot be
 * written, or no memory.  Owner: the caller, until emit_close().
 */
int emit_open(struct emit *emit, const struct read_cmd *cmd,
              const struct dump_target *t, size_t n_rows, struct err *err);
int emit_end(struct emit *emit, struct err *err);
void emit_close(struct emit *emit); /* a zeroed struct is fine */

/* emit_rows(): f32, little-endian.  emit_pieces(): row v[i] as it is in memory
 * (F32), by out_writev().  emit_copy(): rows of a file as they are there (F32),
 * by the kernel. */
int emit_rows(struct emit *emit, const void *rows, size_t n_rows,
              struct err *err);
int emit_pieces(struct emit *emit, struct iovec *v, size_t n_rows, bool lend,
                struct err *err);
int emit_copy(struct emit *emit, int fd, const char *name, size_t offset,
              size_t n_rows, struct err *err);

/* emit_place(): where a row is, for --index. */
int emit_place(struct emit *emit, size_t row, struct err *err);

#endif
