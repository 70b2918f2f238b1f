/* SPDX-License-Identifier: ISC */
/*
 * The order of a model's steps: what goes through a block, what its steps leave
 * behind, and the points where that can be looked at.
 */
#ifndef CORE_MODEL_BLOCK_H
#define CORE_MODEL_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/model/config.h"

struct attention;
struct engine;
struct mlp;
struct session;
struct tap;

/* Consecutive tokens of one sequence: rows row .. row + n - 1 of a chunk, at
 * positions first .. first + n - 1, in slots slot .. slot + n - 1. */
struct span {
    struct session *session;
    size_t row, n, first, slot;
    bool generated; /* see COMPUTE_BF16 */
};

/* One row of a chunk: where it is in its sequence. */
struct row {
    struct session *session;
    size_t position, slot;
};

/* The rows that go through the layers together: the spans cover them, in their
 * order. */
struct chunk {
    struct span *spans; /* [n_spans] */
    size_t n_spans;
    struct row *rows; /* [n_rows] */
    size_t n_rows;
    size_t *wanted; /* [n_wanted] rows that the head gets, ascending: of each
                     * span the last ones, or none */
    size_t n_wanted;
    float *cosines, *sines; /* [n_rows, tables, rotary_dim / 2] of the rows'
                             * positions, filled by trunk_begin() */
};

/*
 * What a block computes for a chunk's rows: [rows, ...] f32 each, owned by
 * whoever runs the block.  A step reads its operands here and leaves its result
 * here, so a forward that is followed by a backward gives each layer one of
 * these, and a layer's x is the out of the layer before it.
 *
 * In layers of Gated DeltaNet q has the channels that are convolved, q_rotated
 * what silu gets of them, attended, out_gate and gated are of values, and beta
 * and decay of value heads.
 *
 * An engine has one for all layers, in which names share memory where a step
 * may overwrite what it reads: x, mid and out; q and q_rotated; k and
 * k_rotated; out_gate and gated; gate and inner, where gate and up are not
 * fused; attn_in, attn_out and, unless the halves are parallel, mlp_in and, in
 * a model without experts, mlp_out.
 */
struct activations {
    float *x;       /* hidden: the residual stream before the block */
    float *attn_in; /* hidden: x, normalized */
    float *qkv;     /* all heads x head_dim, where they are fused; heads of q
                     * and their gates; of MLA heads x (nope_dim + v_head_dim): of
                     * kv_b_proj; by latents queries: heads x (kv_rank +
                     * rotary_dim) */
    float *q_low, *q_normed; /* q_rank: MLA's, of q_a_proj; normalized */
    float *kv_low;           /* kv_rank + rotary_dim: of its other one */
    float *kv_normed;        /* kv_rank: the first numbers, normalized */
    float *q, *k, *v; /* heads, KV heads x head_dim, KV heads x v_head_dim: of
                       * the layers; by MLA's latents, in k, sums of these:
                       * heads x kv_rank */
    float *q_rotated; /* as q: normalized, where q is, and rotated */
    float *k_rotated; /* as k */
    float *attended;  /* heads x v_head_dim: the heads, concatenated */
    float *out_gate;  /* the same of their gates, where the model has them */
    float *gated;     /* the heads, scaled by these */
    float *beta, *decay;
    float *slope; /* of decay, by what it is made of; as lse, and these: */
    float *states, *scratch; /* gdn_run()'s; [threads, gdn_sizes.scratch] */
    float *lse;       /* heads: as struct attention leaves it; NULL where no
                       * backward follows */
    float *attn_out;  /* hidden: room for the output of o_proj */
    float *mid;       /* hidden: the residual stream between the halves */
    float *mlp_in;    /* hidden: mid, normalized; of parallel halves x */
    float *gate, *up; /* intermediate; with experts, room for one of them.  A
                       * plain MLP has no up; fused, rows of gate and then up */
    float *inner;     /* intermediate: act(gate) * up; with experts, of that of
                       * all tokens, weighed */
    float *mlp_out;   /* hidden: room for the output of down_proj; the sum of
                       * the experts' */
    float *out;       /* hidden: the residual stream after the block */
};

/*
 * trunk_run() puts a chunk, with room for its keys and values and at most as
 * many rows as the engine has, through all layers, from acts->x on, which is
 * anyone's.  acts [n_acts]: 1, which all layers use one after the other, or as
 * many as there are layers.  'tap' may be NULL.  It returns where the wanted
 * rows are in the last out, [n_wanted]; NULL: they are its first ones.
 * With one, no tap and no tables, rows that are not wanted leave their keys and
 * values in the last layer, and nothing else is computed of them there.
 */
const size_t *trunk_run(struct engine *engine, const struct chunk *chunk,
                        const struct activations *acts, size_t n_acts,
                        const struct tap *tap);

/* trunk_goes_on(): does an engine with a steer_each go on from what its first
 * layers have left there, instead of acts->x? */
bool trunk_goes_on(const struct engine *engine);

/*
 * Its parts, for a forward that a backward follows: trunk_begin() fills the
 * chunk's cosines and sines; block_run() is a layer, from a->x to a->out.
 */
enum block_wants {
    BLOCK_ALL,      /* all of struct activations */
    BLOCK_OUT,      /* all but lse, which is not cheap */
    BLOCK_BACKWARD, /* what block_backward() reads: where the MLP's output is
                     * not normalized the block ends with gate and up, or with
                     * the routing */
};
void trunk_begin(struct engine *engine, const struct chunk *chunk);
void block_run(struct engine *engine, const struct chunk *chunk,
               const struct activations *a, size_t layer,
               enum block_wants wants);

/* block_attention() is what a layer's attention is of, forward and back. */
struct attention block_attention(const struct engine *engine,
                                 const struct chunk *chunk,
                                 const struct activations *a, size_t layer);

/* block_gate_up() is gate and up of mlp_in, or one of them. */
void block_gate_up(struct engine *engine, const struct chunk *chunk,
                   const struct activations *a, const struct mlp *mlp);

/* block_rotation() is where a row's cosines and sines for a layer begin. */
size_t block_rotation(const struct config *config, size_t layer, size_t row);

/* Points of a block.  q_proj, k_proj and v_proj share an input, and so do
 * gate_proj and up_proj. */
enum tap_point {
    TAP_RESID,  /* the residual stream after the block; layer -1: before
                 * the first one, the embedding */
    TAP_ATTN,   /* output of o_proj, before its norm, and before it is
                 * added; scaled, where there is LayerScale */
    TAP_MLP,    /* the same of down_proj, or of all a token's experts */
    TAP_IN_QKV, /* input of q_proj, k_proj, v_proj, or of what Gated DeltaNet
                 * has for them: after the norm */
    TAP_IN_O,   /* input of o_proj, or of its out_proj: the heads,
                 * concatenated, and scaled by their gates */
    TAP_IN_GATE_UP, /* input of gate_proj, up_proj: after the norm */
    TAP_IN_DOWN,    /* input of down_proj: act(gate) * up; not with experts,
                     * which have one each */
    TAP_EMBED,      /* layer -1: the embedding as scaled, without learned
                     * positions */
    TAP_ATTN_OUT,   /* what attention adds to the residual stream, scaled; of
                     * norms after it alone (olmo2), before its norm */
    TAP_MLP_OUT,    /* the same of the MLP */
    TAP_RESID_MID,  /* the residual stream between the halves; not where these
                     * are parallel */
    TAP_NORM,       /* after the final norm; of vision encoders, after the last
                     * layer */
    N_TAP_POINTS
};

/*
 * A tap at one point, and those at others.  'fn' gets rows [n, tap_dim()] f32,
 * the tokens at positions first .. first + n - 1 of a session, layer by layer,
 * from the thread that feeds; they are valid during the call.  A tap changes no
 * bit. Where an SAE is spliced in, it sees the reconstruction. Where no logits
 * are asked for, the layers after 'last_layer' are not run: a session fed so
 * cannot give logits later.
 */
struct tap {
    enum tap_point point;
    int64_t last_layer;
    void (*fn)(void *ctx, struct session *session, int64_t layer, size_t first,
               size_t n, const float *rows);
    void *ctx;
    const struct tap *next; /* of another point, whose last_layer is not asked
                             * for: NULL */
};

/*
 * trunk_point() replaces the chunk's rows [n_rows, tap_dim()] at a point where
 * an SAE is spliced in, and passes what the model goes on with to the taps of
 * this point; 'tap' may be NULL.
 */
void trunk_point(struct engine *engine, const struct chunk *chunk,
                 const struct tap *tap, int64_t layer, enum tap_point point,
                 float *rows);

/* tap_at() is the one at a point, or NULL.  tap_dim() is the size of a point's
 * activations in a layer, -1 being before the first. */
const struct tap *tap_at(const struct tap *tap, enum tap_point point);
size_t tap_dim(const struct config *config, enum tap_point point,
               int64_t layer);

#endif
