/*
 * The two big parts of tokenizer.json, which jansson would be slow at: JSON of
 * the vocabulary and merges, read without a tree of it.
 */
#ifndef CORE_TEXT_TOK_SCAN_H
#define CORE_TEXT_TOK_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/str.h"

struct hot {
    struct str slim;            /* the file with vocab and merges emptied */
    const char *vocab, *merges; /* where they start in the file; or NULL */
};

/* A reader of JSON text; every function is false at what is not JSON. */
struct json_scan {
    const char *p, *end;
};

bool scan_skip(struct json_scan *scan); /* one value of any kind */
bool scan_string(struct json_scan *scan, struct str *s); /* sets s, decoded */
bool scan_int(struct json_scan *scan, int64_t *v);
bool scan_char(struct json_scan *scan, char c); /* after white space */

/* scan_hot() finds both in a file's text; str_free(&hot->slim) afterwards. */
bool scan_hot(const char *json, size_t nbytes, struct hot *hot);

#endif
