/*
 * Rows on their way out: as .npy, a sequence of .npy arrays (--batch) or raw,
 * of any of the dtypes, with progress; or, with --index, where they lie.
 */
#ifndef SAEV_READ_EMIT_H
#define SAEV_READ_EMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/uio.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/target.h"
#include "core/str.h"
#include "core/tty.h"

/*
 * emit_open() gets the number of rows there will be; then they come as f32
 * little-endian, in any number of calls.  emit_say() is the line of -v.  -1
 * with 'err' set: the output cannot be written, or no memory.
 */
struct emit {
    struct out *out;
    enum dtype dtype;
    size_t d;
    bool raw;
    size_t array_rows;     /* of a full array; 0: one for all */
    size_t n_rows, n_done; /* of all; handed to 'out' */
    size_t array_left;     /* of the array that is being written */
    float *native;         /* [EMIT_FLOATS] in this machine's order */
    void *converted;       /* [EMIT_FLOATS] of dtype; both NULL for F32 */
    struct progress progress;
};

int emit_open(struct emit *emit, const struct read_cmd *cmd, size_t n_rows,
              size_t d, struct err *err);
int emit_rows(struct emit *emit, const void *rows, size_t n_rows,
              struct err *err);

/* emit_pieces(): row v[i] as it is in memory (F32), by out_writev(). */
int emit_pieces(struct emit *emit, struct iovec *v, size_t n_rows, bool lend,
                struct err *err);

/* emit_copy(): n_rows that are in a file as they shall be (F32), by the
 * kernel. */
int emit_copy(struct emit *emit, int fd, const char *name, size_t offset,
              size_t n_rows, struct err *err);
void emit_say(struct emit *emit, const struct read_cmd *cmd);
void emit_close(struct emit *emit); /* a zeroed struct is fine */

/* --index, as TSV or JSON. */
struct places {
    struct out *out;
    const struct dump_target *t;
    bool json;
    size_t n;
    struct str text;
};

/* places_open() begins an answer, places_put() adds a row's place, and
 * places_end() writes what is left. */
void places_open(struct places *p, const struct read_cmd *cmd,
                 const struct dump_target *t);
int places_put(struct places *p, size_t row, struct err *err);
int places_end(struct places *p, struct err *err);
void places_close(struct places *p);

#endif
