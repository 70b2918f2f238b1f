/*
 * Points of a block whose activations can be looked at.
 */
#ifndef CORE_MODEL_TAP_H
#define CORE_MODEL_TAP_H

#include <stddef.h>
#include <stdint.h>

#include "core/model/config.h"

struct session;

/* q_proj, k_proj and v_proj share an input, and so do gate_proj and
 * up_proj. */
enum tap_point {
    TAP_RESID,      /* the residual stream after the block; layer -1: before
                     * the first one, the embedding */
    TAP_ATTN,       /* output of o_proj, before it is added */
    TAP_MLP,        /* output of down_proj, or of all a token's experts,
                     * before it is added */
    TAP_IN_QKV,     /* input of q_proj, k_proj, v_proj: after the norm */
    TAP_IN_O,       /* input of o_proj: the heads side by side */
    TAP_IN_GATE_UP, /* input of gate_proj, up_proj: after the norm */
    TAP_IN_DOWN,    /* input of down_proj: act(gate) * up; not with experts,
                     * which have one each */
};

/* tap_dim() is the size of a point's activations. */
size_t tap_dim(const struct config *config, enum tap_point point);

/*
 * A listener at one point.  'fn' gets rows [n, tap_dim()] f32, the tokens at
 * positions first .. first + n - 1 of a session, layer by layer, from the
 * thread that feeds; they are valid during the call.  Looking changes no bit.
 * Where no logits are asked for, the layers after 'last_layer' are not run: a
 * session fed so cannot give logits later.
 */
struct tap {
    enum tap_point point;
    int64_t last_layer;
    void (*fn)(void *ctx, struct session *session, int64_t layer, size_t first,
               size_t n, const float *rows);
    void *ctx;
};

#endif
