/*
 * The rows that operands and --rows FILE name, in their order, or all.
 */
#ifndef SAEV_READ_LIST_H
#define SAEV_READ_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "cmd/saev-read/cmd.h"
#include "cmd/saev-read/target.h"
#include "core/format/npy.h"

struct row_list {
    const struct dump_target *t;
    struct list_layer *layers;  /* of the dump, by their numbers */
    size_t n_rows;              /* of all ranges */
    size_t n_left;              /* of them, not given yet */
    struct index_range *ranges; /* [n_ranges], of the operands */
    size_t n_ranges, next;
    FILE *file; /* NULL: none */
    const char *name;
    bool is_npy, reading; /* 'reading': now, and not in 'ranges' */
    struct npy npy;
    size_t line; /* lines or elements read */
    char *text;
    size_t text_cap;
    struct str kept;
};

/* list_open() has looked at every one.  list_next() is the next range: 1, or 0
 * at the end.  -1 with 'err' set: a word, a line or a file is none of rows.
 * Owner: the caller, until list_close(); 't' stays open meanwhile. */
int list_open(struct row_list *l, const struct dump_target *t, char **words,
              int n_words, const char *path, struct err *err);
int list_next(struct row_list *l, struct index_range *r, struct err *err);
void list_close(struct row_list *l);

#endif
