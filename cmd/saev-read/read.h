/*
 * saev-read's own parts: the parsed command line, the verbs, and what they
 * share.  A verb returns the exit status of its answer (0, or TU_NEGATIVE),
 * or -1 with 'err' set; only main.c prints errors and exits.
 */
#ifndef SAEV_READ_H
#define SAEV_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/saevdir.h"
#include "core/out.h"

struct cmd {
    const char *verb;
    char **args; /* operands after the verb */
    int n_args;
    enum saev_tokens tokens; /* --view */
    int64_t layer;           /* --layer; SAEV_ALL_LAYERS */
    enum dtype dtype;        /* of the rows written: F32, F16, BF16 */
    bool raw;                /* no .npy header */
    bool quiet, verbose;
    const char *out_path;
    int out_flags; /* OUT_FORCE or 0 */

    struct out *out;
};

int rows_main(struct cmd *cmd, struct err *err); /* the default verb */

/*
 * emit.c: rows on their way out, as .npy or raw, of any of the dtypes.
 * emit_open() writes the header of [n_rows, d]; then come n_rows rows, as
 * f32 little-endian, in any number of calls.  -1 with 'err' set.
 */
struct emit {
    struct out *out;
    enum dtype dtype;
    size_t d;
    float *native;   /* [EMIT_FLOATS] in this machine's order */
    void *converted; /* [EMIT_FLOATS] of dtype; both NULL for F32 */
};

int emit_open(struct emit *emit, const struct cmd *cmd, size_t n_rows, size_t d,
              struct err *err);
int emit_rows(struct emit *emit, const void *rows, size_t n_rows,
              struct err *err);
void emit_close(struct emit *emit); /* a zeroed struct is fine */

#endif
