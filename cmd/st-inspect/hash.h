/* SPDX-License-Identifier: ISC */
/*
 * Digests of parts of a file, which may overlap, in one pass.
 */
#ifndef ST_INSPECT_HASH_H
#define ST_INSPECT_HASH_H

#include "core/format/st.h"
#include "core/hash.h"
#include "core/par.h"

/* Bytes begin .. end - 1 of a file, and their digest. */
struct hash_range {
    size_t begin, end;
    struct hash *open; /* begun and not ended: NULL before and after */
    char hex[HASH_MAX_HEX];
};

/* hash_part() is the range of a tensor; of NULL, of the whole file. */
struct hash_range hash_part(const struct st *st, const struct st_tensor *t);

/* hash_st() reads n ranges of an open file, with all threads of par.  -1 with
 * 'err' set: EX_IOERR, or EX_SOFTWARE, no memory. */
int hash_st(struct hash_range *ranges, size_t n, const struct st *st,
            enum hash_kind kind, struct par *par, struct err *err);

#endif
