/* SPDX-License-Identifier: ISC */
/*
 * Which rows: a view of a dump, of all images or some, and the rows of it that
 * operands and --rows FILE name.
 */
#ifndef SAEV_READ_SELECT_H
#define SAEV_READ_SELECT_H

#include <stdbool.h>
#include <stddef.h>

#include "cmd/saev-read/cmd.h"
#include "core/format/saevdir.h"

/*
 * n_rows rows, which are first .. first + n_rows - 1 of 'view'.  Row numbers
 * that users see and that functions take count from 'first'.  Where no row is
 * named, or in a random order, the view has only those that count.  The struct
 * must not move: 'view' points into 'dir'.
 */
struct dump_target {
    struct saevdir dir;
    struct saev_view view;
    size_t first, n_rows;
    struct saev_kept *kept; /* of 'view', or NULL: all rows count */
};

/* check_name() warns if a dump is not named by the hash of its metadata, which
 * were changed then, or with --strict: -1 with 'err' set (EX_DATAERR). */
int check_name(const struct saevdir *dir, const struct read_cmd *cmd,
               struct err *err);

/* target_open(): -1 with 'err' set, as saevdir_open(), or EX_DATAERR: the dump
 * has no such view, layer or images.  Owner: the caller, until target_close().
 */
int target_open(struct dump_target *t, const struct read_cmd *cmd,
                const char *path, struct err *err);
void target_close(struct dump_target *t); /* a zeroed struct is fine */

static inline struct saev_place
target_at(const struct dump_target *t, size_t row)
{
    return saev_view_at(&t->view, t->first + row);
}

/* The rows that were named, in their order, or all. */
struct row_list {
    struct index_range *ranges; /* [n_ranges] */
    size_t n_ranges, cap;
    size_t n_rows; /* of all of them */

    /* where they are read from; name NULL: operands */
    const struct dump_target *t;
    const char *name, *unit; /* "line" or "element" */
    size_t line;
};

/* list_open() reads the operands, then the file 'path', if it is not NULL.  -1
 * with 'err' set: a word, a line or a file does not name rows.  Owner: the
 * caller, until list_close(), after an error, too. */
int list_open(struct row_list *l, const struct dump_target *t, char **words,
              int n_words, const char *path, struct err *err);
void list_close(struct row_list *l);

#endif
