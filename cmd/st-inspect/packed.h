/* SPDX-License-Identifier: ISC */
/*
 * What lies behind packed tensors, as the quantization_config of a model's
 * config.json says: which layer's weights each is a part of.
 */
#ifndef ST_INSPECT_PACKED_H
#define ST_INSPECT_PACKED_H

#include "core/format/stdir.h"
#include "core/model/form.h"

extern const char *const packed_roles[FORM_N_ROLES]; /* "codes", .. */

struct packed_part {
    struct form_tensors layer; /* group NULL: the tensor is of none */
    enum form_role role;
    size_t module_n; /* bytes of the tensor's name */
    size_t n_dims;   /* of the layer's weights: [out, in] or [n, out, in] */
    uint64_t shape[3], n_elements;
};

/* packed_part(): 1; 0: the tensor is part of no packed layer; -1 with 'err'
 * set, as form_of(). */
int packed_part(struct packed_part *p, const struct quantization *q,
                const struct stdir *dir, const struct stdir_tensor *t,
                struct err *err);

/* packed_load() is quantization_load(), and maps the files; but if that fails,
 * none of the tensors are packed, and a line on stderr says why with 'say'. */
void packed_load(struct quantization *q, struct stdir *dir, bool say);

#endif
