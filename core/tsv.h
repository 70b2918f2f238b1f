/* SPDX-License-Identifier: ISC */
/*
 * TSV for people: columns of spaces, counts with separators.
 *
 * A table may be endless, so it is aligned by blocks of some 64 KiB, and none
 * is narrower than those before it.  Lines without a tab (JSON, pictures) stay
 * as they are; the table after them has columns of its own.
 */
#ifndef CORE_TSV_H
#define CORE_TSV_H

#include <stdbool.h>

#include "core/str.h"

#define TSV_MAX_COLUMNS 40 /* those after it are not aligned */

/* Starts as { 0 }, or with 'counts' set: then counts of five digits and more
 * are written as 12,345: whole numbers whose header, or in "name value" lines
 * whose name, has a word for things that are counted. */
struct tsv {
    bool counts;
    struct str held; /* not aligned yet */
    size_t n_lines;  /* of this table so far */
    struct tsv_column {
        size_t width;
        bool text;   /* something under the header is not a number */
        bool counts; /* says the header */
    } column[TSV_MAX_COLUMNS];
};

enum tsv_when {
    TSV_BLOCK, /* once there is a block */
    TSV_NOW,   /* but not yet a header alone */
    TSV_END    /* all, and no memory is kept */
};

/* tsv_add() takes 'nbytes' of TSV, and appends to 'to' what is aligned. */
void tsv_add(struct tsv *t, const void *tsv, size_t nbytes, enum tsv_when when,
             struct str *to);

#endif
