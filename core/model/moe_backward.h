/*
 * The backward pass.  For a block's rows, with dY the output's gradient:
 *   da0 = dY W_down + s (dY B_d) A_d     of h, before the routing weight w
 *   grad_w = <da0, h>,  da = w da0
 *   dg = da up silu'(gate),  du = da silu(gate)
 *   dX += dg W_gate + s (dg B_g) A_g + du W_up + s (du B_u) A_u
 *   dA = s (dy B)^T x,  dB = dy^T s (x A^T)     of a layer x -> y
 */
#ifndef CORE_MODEL_MOE_BACKWARD_H
#define CORE_MODEL_MOE_BACKWARD_H

#include "core/model/moe_operator.h"

/* backward_pass() overwrites all that the pass has in 'grads'. */
void backward_pass(struct pass *pass);

#endif
