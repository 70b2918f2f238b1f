/* SPDX-License-Identifier: ISC */
/*
 * What rows are read from: rows.c reads it.
 */
#ifndef CORE_MODEL_ROW_SOURCE_H
#define CORE_MODEL_ROW_SOURCE_H

#include "core/format/saev_ids.h"
#include "core/format/saevdir.h"
#include "core/model/rows.h"

#define UNKNOWN UINT64_MAX

/* A file, a shard of a dump, or what is read once. */
struct source {
    char *path;
    int fd;       /* -1: a file that is not open */
    bool is_file; /* it can be read again, from anywhere */
    bool is_copy; /* 'fd' is the stream's, and closed with it */
    bool is_raw;  /* numbers without a header, by --dim */
    enum dtype dtype;
    size_t offset;   /* of the rows, in bytes */
    uint64_t n_rows; /* of all layers; UNKNOWN */
    size_t last[3];  /* dims of its blocks: layers, tokens, d; 0: not known */

    /* a shard of which not all rows count: the view of its dump, its first row
     * there, and its images; or NULL */
    const struct saev_view *view;
    size_t first, first_img, end_img;
    const struct source_dump *dump; /* or NULL */

    /* what the .npy of saev-read says of itself */
    char *hook, *family; /* of the model; or NULL */
    struct saev_mask mask;
};

struct source_dump {
    struct saevdir dir;
    struct saev_view view;
    struct saev_kept *kept; /* of 'view', or NULL */
    struct saev_ids ids;    /* where they are asked for */
    struct source_dump *next;
};

/* source_add() appends what a path is: a file, standard input ("-"), or the
 * shards of a dump.  0, or -1 with 'err' set (TU_USAGE: a terminal). */
int source_add(struct row_stream *in, const char *path,
               const struct row_options *o, struct err *err);

/* source_more() goes on, at the end of a stream's array, to the next that has
 * rows: 's->n_rows' grows, if there is one.  0, or -1 with 'err' set. */
int source_more(struct source *s, bool by_layers, struct err *err);

/* source_close() closes a file that can be opened again. */
void source_close(struct source *s);

/* source_place() is where a row of a file is, in bytes, and how many are next
 * to each other there. */
size_t source_place(const struct source *s, uint64_t row, uint64_t *n_adjacent);

void source_free_dumps(struct source_dump *dumps); /* NULL is fine */

size_t source_item(const struct source *s); /* bytes of a number */

#endif
