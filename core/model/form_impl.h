/* SPDX-License-Identifier: ISC */
/*
 * What form.c has from quantization.c and form_lay.c.
 */
#ifndef CORE_MODEL_FORM_IMPL_H
#define CORE_MODEL_FORM_IMPL_H

#include "core/model/form.h"

/* quantization_group() finds the group that a module, by its name in the file,
 * is a target of: 1; 0: of none.  quantization_ignores(): is it one that is
 * left as it was?  1 or 0.  -1 with 'err' set: a pattern takes too long. */
int quantization_group(const struct quantized_group **group,
                       const struct quantization *q, const char *module,
                       struct err *err);
int quantization_ignores(const struct quantization *q, const char *module,
                         struct err *err);

/* form_is_transposed(): are tensors of numbers and scales [in, out]? */
static inline bool
form_is_transposed(enum form_layout layout)
{
    return layout == LAYOUT_AWQ || layout == LAYOUT_GPTQ;
}

/*
 * form_lay() makes *l, whose w is of the file, run by a copy of 'code', which
 * has the kind, blocks and scales of numbers in bytes, or of MXFP4: all else
 * that the form has is found here, and laid out in 'memory'.  -1 with 'err'
 * set: EX_DATAERR (an index out of range), EX_SOFTWARE.
 */
int form_lay(struct linear *l, const struct form_tensors *t,
             const struct weight_code *code, struct form_memory *memory,
             struct err *err);

#endif
