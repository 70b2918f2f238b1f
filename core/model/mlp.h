/*
 * The feed-forward part of a block, or of one of its experts:
 * down (act(gate x) * up x).
 */
#ifndef CORE_MODEL_MLP_H
#define CORE_MODEL_MLP_H

#include <stddef.h>

#include "core/model/config.h"
#include "core/model/linear.h"

struct mlp {
    struct linear gate, up, down;
};

/* mlp_activate() makes act(gate) * up of n numbers, in 'gate'. */
void mlp_activate(const struct config *config, float *gate, const float *up,
                  size_t n);

#endif
