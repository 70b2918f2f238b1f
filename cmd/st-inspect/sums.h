/* SPDX-License-Identifier: ISC */
/*
 * The list of hash --check.
 */
#ifndef ST_INSPECT_SUMS_H
#define ST_INSPECT_SUMS_H

#include <stddef.h>

#include "core/err.h"
#include "core/hash.h"
#include "core/str.h"

struct sums_line {
    enum hash_kind kind;
    char digest[HASH_MAX_HEX];
    struct str file, tensor; /* tensor.s NULL: the whole file */
    size_t first;            /* of its file's lines, in their order by file */
    const char *result;      /* NULL: not known yet */
};

struct sums_list {
    struct sums_line *v; /* [n], in the list's order */
    size_t n, cap;
};

/*
 * sums_parse() reads text[0, nbytes), which a NUL follows, into a zeroed
 * struct: lines of hash.  -1 with 'err' set (EX_DATAERR): a line is none of
 * these, or there is no line.  Owner: the caller, until sums_free(), after an
 * error as well.
 */
int sums_parse(struct sums_list *sums, const char *text, size_t nbytes,
               const char *name, struct err *err);
void sums_free(struct sums_list *sums);

#endif
