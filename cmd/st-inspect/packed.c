/* SPDX-License-Identifier: ISC */
#include "cmd/st-inspect/packed.h"

#include "core/tool.h"

const char *const packed_roles[FORM_N_ROLES] = {
    [FORM_CODES] = "codes",       [FORM_SCALE] = "scales",
    [FORM_ZERO] = "zero points",  [FORM_SHAPE] = "shape",
    [FORM_INDEX] = "group index", [FORM_INPUT] = "input scale",
};

int
packed_part(struct packed_part *p, const struct quantization *q,
            const struct stdir *dir, const struct stdir_tensor *t,
            struct err *err)
{
    const struct form_tensors *l = &p->layer;
    int rc;

    *p = (struct packed_part){ 0 };
    rc = form_of(&p->layer, &p->role, &p->module_n, q, dir, t, err);
    if (rc <= 0)
        p->layer.group = NULL;
    else if (l->n > 1)
        p->shape[p->n_dims++] = l->n;
    p->shape[p->n_dims++] = l->out;
    p->shape[p->n_dims++] = l->in;
    p->n_elements = (uint64_t)l->n * l->out * l->in;
    return rc;
}

void
packed_load(struct quantization *q, struct stdir *dir, bool say)
{
    struct err err;

    if (quantization_load(q, dir->path, &err) == 0 &&
        (q->n_groups == 0 || stdir_map(dir, &err) == 0))
        return;
    if (say)
        tool_say("%s", err.what);
    quantization_free(q);
}
