/*
 * Tensors that differ only in numbers between dots, of one dtype and shape, as
 * one row: "layers.{0..31}.mlp.up_proj.weight".
 */
#ifndef ST_INSPECT_FOLD_H
#define ST_INSPECT_FOLD_H

#include <stddef.h>
#include <stdint.h>

#include "cmd/st-inspect/select.h"

struct fold_row {
    const struct st_tensor *t; /* one of them */
    char *name;
    size_t name_n;
    uint64_t count; /* tensors */
};

struct folded {
    size_t n;
    struct fold_row *rows; /* [n], in the selection's order */
};

/* fold() needs memory in the number of tensors: -1 with 'err' set.  Owner: the
 * caller, until fold_free(); 'sel' stays open meanwhile. */
int fold(struct folded *folded, const struct selection *sel, struct err *err);
void fold_free(struct folded *folded);

#endif
