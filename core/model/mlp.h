/* SPDX-License-Identifier: ISC */
/*
 * The feed-forward part of a block, or of one of its experts:
 * down (act(gate x) * up x), or without a gate down (act(up x)).
 */
#ifndef CORE_MODEL_MLP_H
#define CORE_MODEL_MLP_H

#include <stddef.h>

#include "core/model/config.h"
#include "core/model/linear.h"
#include "core/par.h"

struct mlp {
    struct linear gate, up, down;
    struct linear gate_up; /* instead of these two */
};

/* mlp_first() is whose outputs act() gets, or begins to: gate_up, or gate, or
 * without one up. */
const struct linear *mlp_first(const struct mlp *mlp,
                               const struct model_form *form);

/*
 * mlp_activate() makes inner [n_rows, n] = act(gate) * up, whose rows are 'ld'
 * apart: n, or more where a row of both is one of a fused layer.  Without an
 * up (NULL) it is act(gate).  'inner' may be 'gate' where ld is n; where it is
 * not, gate and up stay as they are.  'par' may be NULL.
 */
void mlp_activate(struct par *par, enum act act, float *inner,
                  const float *gate, const float *up, size_t ld, size_t n,
                  size_t n_rows);

/*
 * mlp_backward() goes back through it: it is given dh [n_rows, n], the gradient
 * of inner, and gives inner again; gate and up become their gradients.
 */
void mlp_backward(struct par *par, enum act act, float *inner, float *gate,
                  float *up, size_t ld, const float *dh, size_t n,
                  size_t n_rows);

#endif
