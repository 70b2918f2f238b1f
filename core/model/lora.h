/* SPDX-License-Identifier: ISC */
/*
 * Low-rank adapters, --lora: what they add to linear layers, and moe-sft's
 * files of them.
 */
#ifndef CORE_MODEL_LORA_H
#define CORE_MODEL_LORA_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/stdir.h"
#include "core/model/linear.h"
#include "core/model/lora_file.h"

struct model;

/* An adapter's part for one linear layer: y += scale * b (a x), all in f32. */
struct lora {
    struct linear a, b; /* [rank, in], [out, rank] */
    float scale;
    struct lora *next; /* of the same layer */
};

/* An open adapter.  Parts stay where they are: layers point at them. */
struct adapter {
    struct lora_file file;
    struct lora *parts; /* [n_parts] */
    size_t n_parts;
    struct adapter *next;
};

/*
 * lora_open() adds a low-rank adapter to linear layers of the model,
 * y += s (x A^T) B^T: a PEFT directory, or FILE, FILE@LAYER with the stacked
 * experts of a layer, as moe-sft has them.  Some may be opened; engines are
 * opened after them.
 * -1 with 'err' set, as stdir_open() does; EX_DATAERR for a tensor that is of
 * no linear layer or does not fit it, for an adapter without tensors, and for
 * what PEFT can do but this cannot, by name.
 * Owner: the model.
 */
int lora_open(struct model *model, const char *path, struct err *err);

/* lora_count() is the number of linear layers' parts in all adapters. */
size_t lora_count(const struct model *model);

/* lora_not_finite() is the first tensor of the adapters that has a NaN or an
 * infinity, or NULL: all of them are read. */
const struct stdir_tensor *lora_not_finite(const struct model *model);

/* lora_apply() adds what adapters say of rows x [n_rows], before anything else
 * is added to them: to->add is false. */
void lora_apply(struct engine *engine, const struct apply *to, const float *x,
                size_t n_rows);

/* lora_bind() makes the adapter's next part that of a linear layer. */
void lora_bind(struct model *model, struct adapter *adapter, struct linear *to,
               const struct lora *part);

/* lora_close() closes all of a model's adapters. */
void lora_close(struct model *model);

#endif
