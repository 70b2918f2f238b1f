/* SPDX-License-Identifier: ISC */
/*
 * Digests of a file and its tensors in one pass.
 */
#ifndef ST_INSPECT_HASH_H
#define ST_INSPECT_HASH_H

#include <stdbool.h>

#include "core/format/st.h"
#include "core/hash.h"
#include "core/par.h"

struct file_hash {
    char whole[HASH_MAX_HEX];
    char (*tensors)[HASH_MAX_HEX]; /* [st->n_tensors]; NULL: not wanted */
};

/* hash_st() reads all of an open file, with all threads of par (or NULL).  -1
 * with 'err' set: EX_IOERR, or EX_SOFTWARE, no memory.  Owner: the caller,
 * until file_hash_free(), after an error as well. */
int hash_st(struct file_hash *fh, const struct st *st, enum hash_kind kind,
            bool tensors, struct par *par, struct err *err);
void file_hash_free(struct file_hash *fh); /* a zeroed struct is fine */

#endif
