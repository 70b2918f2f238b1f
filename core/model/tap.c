#include "core/model/tap.h"

size_t
tap_dim(const struct config *c, enum tap_point point)
{
    switch (point) {
    case TAP_IN_O:
        return (size_t)(c->n_heads * c->head_dim);
    case TAP_IN_DOWN:
        return (size_t)c->intermediate_size;
    default:
        return (size_t)c->hidden_size;
    }
}
