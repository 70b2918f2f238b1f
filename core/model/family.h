/* SPDX-License-Identifier: ISC */
/*
 * Families of models: what a model_type means.  A family is a row of
 * family_text.c or family_vision.c: what its files call their tensors and keys,
 * and what it computes in another way than llama.  Nothing else knows a family
 * by its name.
 * Source: Hugging Face transformers' configuration and model classes.
 */
#ifndef CORE_MODEL_FAMILY_H
#define CORE_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/kernel/vec.h"
#include "core/model/norm.h"
#include "core/model/router.h"
#include "core/str.h"

/* Norms of q and k: of each head, or of all heads together; or of each head
 * with weights of its own, in one tensor [heads, head_dim] or a tensor each. */
enum qk_norm { QK_NONE, QK_HEAD, QK_WHOLE, QK_OWN, QK_OWN_TENSORS };

/* Whose weights are one matrix: its rows are those of q, then k, then v; or of
 * q, k, v of head 0, then of head 1, ... */
enum fused { FUSED_NOT, FUSED_ROWS, FUSED_HEADS };

/* x + attn(norm(x)) is what the MLP reads; or x is, through its own norm, or
 * through the same norm. */
enum residual { RESIDUAL_SEQUENTIAL, RESIDUAL_PARALLEL, RESIDUAL_ONE_NORM };

/* Which layers rotate their heads: all, by one table, or windowed ones by a
 * second one; windowed layers alone; or those that no_rope_layers lists. */
enum rope_layers { ROPE_ALL, ROPE_TWO, ROPE_WINDOWED, ROPE_LISTED };

/* Which layers have a window, sliding_window. */
enum window_rule {
    WINDOW_NEVER,
    WINDOW_ALWAYS,
    WINDOW_IF_USED,  /* every layer, by use_sliding_window */
    WINDOW_BY_LAYER, /* the same, by layer_types or from max_window_layers on */
    WINDOW_LISTED,   /* the same, by layer_types, which must be there then */
    WINDOW_PERIOD,   /* by layer_types, or all but every so many-th layer */
};

/* How a model computes.  Zeros are llama's. */
struct model_form {
    struct norm_kind norm; /* of all its norms */
    enum qk_norm qk_norm;
    enum fused qkv;
    bool gate_up;   /* fused: gate's rows, then those of up */
    bool plain_mlp; /* down(act(up(x))): no gate */
    bool in_out;    /* a layer's matrices are [in, out] in the file */
    bool learned;   /* positions are learned rows that are added to embeddings,
                     * and nothing is rotated */
    bool pairs;     /* rotated are numbers 2i and 2i + 1 of a head */
    enum rope_layers rope;
    enum residual residual;
    bool both_ways;   /* attention has no mask */
    bool mla;         /* keys and values come of latents */
    bool sinks;       /* heads have a logit without a value */
    bool layer_scale; /* what a half adds is scaled, number by number */
    bool embed_root;  /* embeddings times the square root of hidden_size */
    bool qkv_bias, o_bias, mlp_bias, router_bias,
        head_bias;      /* must be there; those of a layer may be elsewhere,
                         * too, but for experts' */
    bool weighs_shared; /* a shared expert, by sigmoid(shared_expert_gate x) */
    bool out_gate;  /* q_proj has a head's query, then its gate, whose sigmoid
                     * scales what the head gives */
    bool fused_gdn; /* in_proj_qkvz, in_proj_ba: key head by key head */
    enum act act;
};

/* A part with another name than in parts.c's table, without the root. */
struct family_name {
    int part; /* enum model_part */
    const char *name;
};

/* A key of config.json that has another name. */
struct family_alias {
    const char *key, *own;
};

/* A key that others do not have, and where struct config has it. */
struct family_key {
    const char *key;
    enum {
        KEY_NUMBER,  /* double, in [min, max]; null is 0 */
        KEY_INVERSE, /* the same, of 1 / the number */
        KEY_FLAG,    /* bool */
        KEY_NOT,     /* bool: the field is true where the key is false */
        KEY_KEEPS,   /* an enum of the form: 0 where the key is false */
        KEY_ONLY,    /* bool, of which only 'absent' is supported */
        KEY_COUNT,   /* int64_t in [min, max]; null is 0 */
        KEY_WORD,    /* an enum: which of the words */
    } kind;
    size_t at; /* 0: nowhere, as others than this are refused */
    double absent, min, max;
    const char *const *words; /* up to a NULL; the first one where absent */
};

/* Words of tensors that hold the matrices of all experts of a layer, beside
 * where those of single experts would be: [experts, out, in], gate's rows and
 * then up's.  Or 'in_out': of numbers [experts, in, out], and packed [experts,
 * out, in]; gate's and up's outputs take turns. */
struct family_stack {
    const char *gate_up, *down;
    bool in_out;
    bool has_bias; /* WORD_bias [experts, out] */
};

/* How a family's experts are chosen, if its keys do not say otherwise. */
struct family_experts {
    int64_t n, n_used; /* where absent; 0: it must be said */
    struct router_kind router;
    const struct family_key *keys;
    const struct family_stack *stack; /* NULL: as transformers has it,
                                       * gate_up_proj and down_proj, by rows */
    bool everywhere; /* no layer is dense, and nothing says what size it were */
};

/* What a vision encoder has in place of tokens and logits.  Names are those of
 * whole tensors, but of 'patch' and 'before', which are modules; NULL: none. */
struct family_vision {
    bool whole; /* of images and text: vision_config is this one's */
    const char *cls, *positions, *patch, *before;
    bool flat;      /* cls and positions are [dim], [n, dim] */
    bool antialias; /* of positions that are interpolated */
    enum {
        POOL_CLS,       /* norm(CLS) */
        POOL_PROJECTED, /* times visual_projection, where it is there */
        POOL_TANH,      /* tanh(pooler.dense()), where it is there */
        POOL_ATTENTION, /* of a learned query over norm(patches) */
    } pool;
    int64_t image_size, patch_size, n_registers; /* where absent */
};

/* Lists end with a row of 0. */
struct model_family {
    const char *model_type;
    const char *classes[2]; /* that have it: with a head, and without */
    const char *root;       /* of its tensors' names, where not "model."; of a
                             * vision encoder some have it */
    const struct family_name *names;
    const struct family_alias *aliases;
    const struct family_key *keys;
    struct model_form form;
    const struct family_experts *experts; /* or NULL */
    bool has_gdn;                         /* layers that are no attention */
    bool is_part;                         /* of a model of images and text */
    const struct family_vision *vision;   /* NULL: of tokens */
    bool variant;       /* of the row before it: config.json says so */
    bool tied;          /* tie_word_embeddings where it is absent */
    double norm_eps;    /* where absent; 0: 1e-6 */
    double theta;       /* 0: 1e4 */
    double local_theta; /* of windowed layers; 0: theta */
    double rotary;      /* partial_rotary_factor; 0: 1 */
    enum window_rule window;
    int64_t absent_window; /* WINDOW_ALWAYS, WINDOW_PERIOD */
    int64_t period;        /* WINDOW_PERIOD, ROPE_LISTED */
    int64_t max_positions; /* where absent */
    struct family_sizes {  /* where a text_config does not say; 0: it must */
        int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab;
    } sizes;
};

/* family_find() is the row of a model_type, or of what it is before "_text", or
 * NULL; family_has_text(): is this the model_type of several models, of which
 * the text's is as its text_config says? family_list() appends all
 * of them, "llama, mistral, ..", or all vision encoders; family_next() the row
 * after one, NULL the first. */
const struct model_family *family_find(const char *model_type);
bool family_has_text(const char *model_type);
const struct model_family *family_next(const struct model_family *family);
void family_list(struct str *to, bool vision);

/* family_stack() is how its experts may be in one tensor; NULL: it has none. */
const struct family_stack *family_stack(const struct model_family *family);

/* family_key() is what the family calls a key of config.json. */
const char *family_key(const struct model_family *family, const char *key);

#endif
