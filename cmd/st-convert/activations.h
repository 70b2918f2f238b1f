/* SPDX-License-Identifier: ISC */
/* What a layer reads, as hf-infer --acts in:.. -o DIR has it. */
#ifndef ST_CONVERT_ACTIVATIONS_H
#define ST_CONVERT_ACTIVATIONS_H

#include "cmd/st-convert/plan.h"

/* activations_find(): is there a file of the layer?  Appends its path. */
bool activations_find(struct str *path, const struct convert_plan *plan,
                      const struct st_tensor *t);

/*
 * activations_weight() is the mean square of each input of the layer that a
 * tensor NAME.weight [out, in] is of: of DIR/NAME.npy, without its root, or of
 * a layer that reads the same.  *weight is NULL where there is neither.
 * -1 with 'err' set: the file cannot be read (EX_NOINPUT, EX_IOERR), has
 * another width, or is not finite (EX_DATAERR).  Owner: the caller, free().
 */
int activations_weight(float **weight, const struct convert_plan *plan,
                       const struct st_tensor *t, struct err *err);

#endif
