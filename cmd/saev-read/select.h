/* SPDX-License-Identifier: ISC */
/*
 * Which rows: a view of a dump, of all images or some, and the rows of it that
 * operands and --rows FILE name.
 */
#ifndef SAEV_READ_SELECT_H
#define SAEV_READ_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cmd/saev-read/cmd.h"
#include "core/format/npy.h"
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
    const struct dump_target *t;
    struct list_layer *layers;  /* of the dump, by their numbers */
    size_t n_rows;              /* of all ranges */
    size_t n_left;              /* of them, not given yet */
    struct index_range *ranges; /* [n_ranges], of the operands */
    size_t n_ranges, next;
    FILE *file; /* NULL: none */
    const char *name;
    bool is_npy, reading; /* 'reading': from 'file', not from 'ranges' */
    struct npy npy;
    size_t line; /* lines or elements read */
    char *text;
    size_t text_cap;
    struct str kept;
};

/* list_open() checks every index.  list_next() is the next range: 1, or 0 at
 * the end.  -1 with 'err' set: a word, a line or a file does not name rows.
 * Owner: the caller, until list_close(); 't' stays open meanwhile. */
int list_open(struct row_list *l, const struct dump_target *t, char **words,
              int n_words, const char *path, struct err *err);
int list_next(struct row_list *l, struct index_range *r, struct err *err);
void list_close(struct row_list *l);

#endif
