/* The forward pass of a block. */
#ifndef CORE_MODEL_MOE_FORWARD_H
#define CORE_MODEL_MOE_FORWARD_H

#include "core/model/moe_operator.h"

/* forward_block() adds the block's experts' output to the pass's. */
void forward_block(struct pass *pass);

#endif
