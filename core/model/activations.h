/*
 * What a block makes of a chunk's rows on the way through its steps.
 */
#ifndef CORE_MODEL_ACTIVATIONS_H
#define CORE_MODEL_ACTIVATIONS_H

/*
 * [rows, ...] f32 each, owned by whoever runs the block.  A step reads its
 * operands here and leaves its result here, so a forward that is followed by a
 * backward gives each layer one of these, and a layer's x is the out of the one
 * before it.
 *
 * An engine has one for all layers, in which names share memory where a step
 * may overwrite what it reads: x, mid and out; q and q_rotated; k and
 * k_rotated; gate and inner; attn_in, attn_out, mlp_in and, of a model without
 * experts, mlp_out.
 */
struct activations {
    float *x;         /* hidden: the residual stream before the block */
    float *attn_in;   /* hidden: x, normalized */
    float *q, *k, *v; /* heads, KV heads, KV heads x head_dim: of the layers */
    float *q_rotated; /* as q: normalized (qwen3) and rotated */
    float *k_rotated; /* as k */
    float *attended;  /* as q: the heads side by side */
    float *lse;       /* heads: as struct attention leaves it; or NULL */
    float *attn_out;  /* hidden: room for the output of o_proj */
    float *mid;       /* hidden: the residual stream between the halves */
    float *mlp_in;    /* hidden: mid, normalized */
    float *gate, *up; /* intermediate; with experts, room for one of them */
    float *inner;     /* intermediate: act(gate) * up; not with experts */
    float *mlp_out;   /* hidden: room for the output of down_proj; the sum of
                       * the experts' */
    float *out;       /* hidden: the residual stream after the block */
};

#endif
