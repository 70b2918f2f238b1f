/* SPDX-License-Identifier: ISC */
/*
 * Rows of a table, as TSV or as the objects of a JSON array, from one
 * description of them.
 */
#ifndef CORE_RECORD_H
#define CORE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/str.h"

/* Starts with 'to' and 'json' set; the table's header and what is around the
 * objects is the caller's. */
struct record {
    struct str *to;
    bool json;
    size_t n_rows;    /* begun */
    size_t n_fields;  /* of the row that is being written */
    const char *name; /* its last column, or NULL */
    size_t name_n;
};

/* record_begin(), the fields in their order, record_end(). */
void record_begin(struct record *r);
void record_end(struct record *r);

/* record_key(): a field comes next, whose value the caller appends; TSV has no
 * key.  The others have a value: a text, escaped, of which NULL is not known, a
 * count, a number of six digits in TSV (NaN and infinities are null in JSON),
 * or none: "-", null. */
void record_key(struct record *r, const char *key);
void record_text(struct record *r, const char *key, const char *s,
                 size_t nbytes);
/* record_name(): as record_text(), which TSV has as its last column, wherever
 * JSON has it; the text stays the caller's until record_end(). */
void record_name(struct record *r, const char *key, const char *s,
                 size_t nbytes);
void record_string(struct record *r, const char *key, const char *s);
void record_u64(struct record *r, const char *key, uint64_t v);
void record_f64(struct record *r, const char *key, double v);
void record_none(struct record *r, const char *key);

#endif
