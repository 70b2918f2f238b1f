/* SPDX-License-Identifier: ISC */
/*
 * What model.c binds a model's parts to its tensors with.
 */
#ifndef CORE_MODEL_BIND_H
#define CORE_MODEL_BIND_H

#include <stdbool.h>
#include <stddef.h>

#include "core/err.h"
#include "core/format/stdir.h"
#include "core/model/linear.h"
#include "core/model/parts.h"
#include "core/str.h"

#define BIND_BY " by config.json" /* what expects a shape */

/* The tensors of a model that is being opened, and which were asked for. */
struct binder {
    struct model *model;
    const char *root; /* of names in this directory; "": none */
    const char *more; /* one that some of a vision encoder's have, or NULL */
    const struct stdir_tensor *twice[2]; /* two of one name, but for that */
    bool *used;                          /* [dir.n_tensors] */
    bool by_rows; /* stacks [in, out] are transposed, not read by columns */
    struct str name;
    struct err *err;
};

/* bind_find() is the tensor of a name, which is used then, or NULL: for
 * bind_missing(), which returns -1 with 'err' set (EX_DATAERR).  Where there
 * are two, bind_refuse_twice() names them. */
const struct stdir_tensor *bind_find(struct binder *b, const char *name);
int bind_missing(struct binder *b, const char *name, const char *why);
int bind_refuse_twice(struct binder *b);

/* bind_name() is a part's name in this directory and 'tail': b->name, until the
 * next one's. */
const char *bind_name(struct binder *b, struct part_at at, const char *tail);

/* bind_bias() is a vector [n] that b->name is, in f32: 1; 0: there is none, and
 * *to is NULL; -1 with 'err' set. */
int bind_bias(struct binder *b, size_t n, const float **to);

/*
 * bind_weights() binds the weights b->name + tail, packed or not: 1; 0: there
 * are none.  out 0: any number.  bind_linear() is a part with its bias,
 * bind_norm() a norm, bind_layer() all of a layer; bind_stacks() its experts,
 * where a tensor has those of all: 1; 0: none has; bind_vision() all that a
 * vision encoder has before and after its layers.  -1 with 'err' set.
 */
int bind_weights(struct binder *b, const char *tail, struct linear *to,
                 size_t out, size_t in);
int bind_linear(struct binder *b, struct part_at at);
int bind_norm(struct binder *b, struct part_at at);
int bind_layer(struct binder *b, size_t layer);
int bind_stacks(struct binder *b, size_t layer);
int bind_vision(struct binder *b);

#endif
