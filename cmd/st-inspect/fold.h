/* SPDX-License-Identifier: ISC */
/*
 * Rows of tensors: those that differ only in numbers between dots, of one dtype
 * and shape, can be one row, "layers.{0..31}.mlp.up_proj.weight".
 */
#ifndef ST_INSPECT_FOLD_H
#define ST_INSPECT_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/st-inspect/select.h"

struct fold_row {
    const struct stdir_tensor *t; /* one of them */
    const char *name;             /* t's own, or that of several */
    size_t name_n;
    uint64_t count; /* tensors */
};

struct folded {
    size_t n;
    struct fold_row *rows; /* [n], in the selection's order */
};

/* fold() makes rows of a selection, one for each tensor unless 'join' is set.
 * -1 with 'err' set: no memory.  Owner: the caller, until fold_free(), before
 * 'sel' is closed. */
int fold(struct folded *folded, const struct selection *sel, bool join,
         struct err *err);
void fold_free(struct folded *folded);

#endif
