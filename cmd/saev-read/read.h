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
#include "core/tty.h"

struct range {
    size_t first, last; /* both counted */
};

/* range_parse(): "A-B" or "A" in 'n' bytes; -1 if it is not that, or B < A. */
int range_parse(struct range *range, const char *s, size_t n);

struct cmd {
    const char *verb;
    char **args; /* operands after the verb */
    int n_args;
    enum saev_tokens tokens; /* --view */
    int64_t layer;           /* --layer; SAEV_ALL_LAYERS */
    struct range imgs;       /* --imgs; 0 .. SIZE_MAX: all */
    enum dtype dtype;        /* of the rows written: F32, F16, BF16 */
    bool raw;                /* no .npy header */
    uint64_t batch;          /* rows of an array; 0: all in one */
    uint64_t max_patches;    /* --max-patches; 0: as it is */
    bool quiet, verbose;
    const char *out_path;
    int out_flags; /* OUT_FORCE or 0 */

    struct out *out;
};

int rows_main(struct cmd *cmd, struct err *err); /* the default verb */
int meta_main(struct cmd *cmd, struct err *err);

/*
 * target.c: what --view, --layer and --imgs choose of a dump: n_rows rows,
 * which are first .. first + n_rows - 1 of 'view'.  Row numbers that users
 * see and that other functions here take count from 'first'.
 * Stays where it is: 'view' points into 'dir'.
 */
struct target {
    struct saevdir dir;
    struct saev_view view;
    size_t first, n_rows;
};

int target_open(struct target *t, const struct cmd *cmd, const char *path,
                struct err *err);
void target_close(struct target *t); /* a zeroed struct is fine */

static inline struct saev_place
target_at(const struct target *t, size_t row)
{
    return saev_view_at(&t->view, t->first + row);
}

/*
 * emit.c: rows on their way out, as .npy, a sequence of .npy arrays (--batch)
 * or raw, of any of the dtypes, with progress.  emit_open() is told how many
 * rows there will be; then they come as f32 little-endian, in any number of
 * calls.  emit_say() is the line of -v.  -1 with 'err' set.
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

int emit_open(struct emit *emit, const struct cmd *cmd, size_t n_rows, size_t d,
              struct err *err);
int emit_rows(struct emit *emit, const void *rows, size_t n_rows,
              struct err *err);
void emit_say(struct emit *emit, const struct cmd *cmd);
void emit_close(struct emit *emit); /* a zeroed struct is fine */

#endif
