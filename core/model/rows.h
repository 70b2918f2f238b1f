/* SPDX-License-Identifier: ISC */
/*
 * Rows of activations: from standard input, from .npy files, or from dumps, one
 * after the other.  By layers, they come as [.., layers, tokens, d].
 */
#ifndef CORE_MODEL_ROWS_H
#define CORE_MODEL_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/dtype.h"
#include "core/err.h"
#include "core/format/saev_mask.h"
#include "core/par.h"
#include "core/spill.h"

struct source;

struct row_stream {
    size_t d, n_layers, tokens; /* of a layer, in a block */
    uint64_t n_rows; /* of each layer, from the beginning; 0: not known */
    bool is_stream;  /* more arrays of rows may follow these: */
    bool has_more;   /* they do */
    bool skip_bad, all;
    uint64_t n_bad;        /* rows left out so far */
    struct saev_mask mask; /* of dumps */

    /* private */
    struct source_dump *dumps;
    size_t *ends;    /* [n_blocks + 1] tokens before each block, where dumps
                      * with padding are read by layers; or NULL */
    size_t n_blocks; /* of 'ends' */
    size_t block;    /* that is read next */
    struct source *sources; /* [n_sources] */
    size_t n_sources, at;
    uint64_t row;   /* of the source, that is read next */
    uint64_t first; /* of the input, that the stream begins with */
    uint64_t taken; /* of each layer, before the batch */
    bool wraps, copies;
    bool is_whole; /* n_rows was promised: more arrays are an error */
    const char *const *layers; /* names for messages, or NULL */
    size_t batch, cap;         /* rows of a batch; of room */
    float *x;                  /* [n_layers, cap, d] */
    size_t fill;               /* rows there */
    size_t used;               /* of them, by the batch */
    uint64_t n_taken;          /* rows of the input that the batch took */
    uint64_t n_barren;         /* bad rows since the last that was kept */
    char *raw;                 /* rows as they are in a file */
    struct spill copy;         /* of what can be read once, as it is read */
    size_t n_copied;           /* bytes */

    /* rows that a thread reads while a batch is worked on */
    struct par_worker *reader;
    float *ahead; /* [n_room, d] */
    size_t n_room, n_ahead, n_used;
    bool reading;
    int ahead_rc;
    struct err ahead_err;
};

struct row_options {
    char **paths; /* [n_paths]; none: standard input */
    int n_paths;
    size_t dim;      /* of raw rows, or 0 */
    int dtype;       /* of raw rows, or -1 */
    uint64_t tokens; /* of raw rows by layers */
    size_t n_layers; /* 0: not by layers */
    const char *const *layers;
    char **hooks; /* [n_hooks] of the SAEs, each NULL, which a dump's becomes,
                   * or compared to it; the caller frees each */
    size_t n_hooks;
    uint64_t input_at; /* the input begins with that row */
    bool skip_bad;
    bool ids; /* all are dumps that have their tokens' ids */
    bool all; /* rows of dumps that do not count, and bad ones, come, too */
    bool is_whole;        /* more arrays of a stream are an error */
    const char *skip_ids; /* of dumps: --skip-ids LIST, or NULL, */
    uint64_t skip_positions;
    double max_norm; /* or 0 */
    int n_threads;   /* that look for padding */
};

/* rows_check_hook(): -1 with 'err' set if a dump says that its rows are of
 * another place than that hook. */
int rows_check_hook(const struct row_stream *rows, const char *hook,
                    struct err *err);

/* rows_family(): of which models are all rows, as hf-infer's dumps say?  NULL:
 * that is not known, or of several. */
struct model_family;
const struct model_family *rows_family(const struct row_stream *rows);

/*
 * rows_open() reads what the inputs say of themselves; rows_room() makes room
 * for batches, before anything else is called.  rows_wrap(): at the end of all
 * rows they begin again; those of a pipe are copied to a file in $TMPDIR that
 * has no name, as they are read, but not if more arrays follow the first: then
 * they end, or where 'is_whole' reading fails.  Not where 'input_at' says
 * that the first rows are missing.  rows_skip() passes over rows up to 'row' of
 * each layer, from the beginning.  0, or -1 with 'err' set.  Owner: the caller,
 * until rows_close(); a zeroed struct is fine.
 */
int rows_open(struct row_stream *rows, const struct row_options *o,
              struct err *err);
int rows_room(struct row_stream *rows, size_t batch, struct err *err);
int rows_wrap(struct row_stream *rows, struct err *err);
int rows_skip(struct row_stream *rows, uint64_t row, struct err *err);
void rows_close(struct row_stream *rows);

/*
 * rows_batch() reads the next batch: how many rows of each layer there are,
 * fewer than 'batch' at the end; -1 with 'err' set (EX_DATAERR: a row with NaN
 * or Inf, an input that ends within a row).  They are at rows_layer() until the
 * next call, and rows->taken counts what was before them.
 */
ssize_t rows_batch(struct row_stream *rows, struct err *err);

/* rows_ahead() lets a thread read what the next batch begins with, up to 8
 * MiB, until rows_batch() is called again: which must be, or rows_close(). */
void rows_ahead(struct row_stream *rows);
const float *rows_layer(const struct row_stream *rows, size_t layer);

/* rows_ids(): the token of each row of the batch, of dumps opened with 'ids',
 * not by layers and without 'skip_bad'.  rows_all_ids() are those of all tokens
 * that are no padding, [*n], in no order.  Owner: the caller, free(). */
void rows_ids(const struct row_stream *rows, int32_t *ids);
int32_t *rows_all_ids(const struct row_stream *rows, size_t *n);

/*
 * Of rows opened with 'all', not by layers: rows_padding() says of each row of
 * the batch whether it is padding of its dump.  rows_bad() is true if row i has
 * a NaN or Inf; rows_bad_error() names it: -1, EX_DATAERR.
 */
void rows_padding(const struct row_stream *rows, bool *padding);
bool rows_bad(const struct row_stream *rows, size_t i);
int rows_bad_error(const struct row_stream *rows, size_t i, struct err *err);

/* rows_after() is how many rows of each layer there were up to the end of the
 * batch. */
uint64_t rows_after(const struct row_stream *rows);

#endif
