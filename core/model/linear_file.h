/* SPDX-License-Identifier: ISC */
/*
 * Linear layers of a directory: from tensors of known shape, or by names alone,
 * single or fused, without a config.json.
 */
#ifndef CORE_MODEL_LINEAR_FILE_H
#define CORE_MODEL_LINEAR_FILE_H

#include <stddef.h>

#include "core/err.h"
#include "core/format/lut.h"
#include "core/format/stdir.h"
#include "core/model/family.h"
#include "core/model/form.h"
#include "core/model/linear.h"

/*
 * linear_file_bind() makes the layer of a tensor that must be [out, in] of
 * numbers, or with l->by_k [in, out]; 'by' is what says so, " by config.json",
 * or NULL.  l->bias is not set.  -1 with 'err' set (EX_DATAERR).
 */
int linear_file_bind(struct linear *l, const struct stdir_tensor *t, size_t out,
                     size_t in, const char *by, struct err *err);

/*
 * linear_file_parts() lists the layers that a name stands for in this
 * directory: itself, also if it is a fused one whose weights are stored fused;
 * else the parts of a fused one.  Returns how many.  free() each.
 */
size_t linear_file_parts(const struct stdir *dir, const struct quantization *q,
                         const char *name, char *parts[LUT_MAX_PARTS]);

/* Where layers are found. */
struct linear_dir {
    const struct stdir *dir;
    const struct model_family *family; /* NULL: it is not known */
    const struct quantization *packed; /* NULL: nothing is */
    struct form_memory *memory;        /* of packed ones; see form.h */
};

/*
 * linear_file_find() finds NAME.weight [out, in], packed or not, and NAME.bias
 * [out], with or without the root.  The family says whether the weight is [in,
 * out]: l->by_k.  'bias' is NULL where there is none; l->bias, which is f32, is
 * not set.
 * 1; 0: there is no such weight; -1 with 'err' set (EX_DATAERR): of another
 * type or shape, or empty; or it may be [in, out], and nothing says so.
 */
int linear_file_find(struct linear *l, const struct stdir_tensor **bias,
                     const struct linear_dir *in, const char *name,
                     struct err *err);

#endif
