/* SPDX-License-Identifier: ISC */
/*
 * What config.json says about a model: its family, its sizes, how it computes
 * and how its next token is drawn.
 */
#ifndef CORE_MODEL_CONFIG_H
#define CORE_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/model/family.h"
#include "core/model/form.h"
#include "core/model/rope.h"

#define CONFIG_MAX_EOS      16
#define CONFIG_MAX_VOCAB    (1 << 24)
#define CONFIG_MAX_KERNEL   16
#define CONFIG_MAX_HEAD_DIM (1 << 12)

#define CONFIG_MAX_ROPES 2

/* What mixes a layer's tokens: attention by keys and values in a cache, or
 * Gated DeltaNet, which has a state. */
enum mixer { MIXER_ATTENTION, MIXER_GDN };

enum { ROTATION_NONE = CONFIG_MAX_ROPES }; /* of a layer */

struct config {
    const struct model_family *family;
    char *of; /* model_type, if that is of several models, of which this is the
               * text's; or NULL */
    struct model_form form; /* the family's, and what config.json says of it */
    int64_t hidden_size, intermediate_size;
    int64_t n_layers, n_heads, n_kv_heads, head_dim;
    int64_t v_head_dim;      /* of a value; head_dim is of queries and keys */
    int64_t q_rank, kv_rank; /* of MLA's latents; q_rank 0: none of queries */
    int64_t nope_dim;        /* of MLA: a head's numbers before the rotated */
    int64_t vocab_size;
    int64_t max_positions; /* the context: longer is an error */
    float norm_eps;
    int64_t rotary_dim; /* the first numbers of a head that are rotated; of
                         * MLA the last ones */
    struct rope_config rope[CONFIG_MAX_ROPES];
    uint8_t *rotation; /* [n_layers] in rope, or ROTATION_NONE */
    uint8_t *mixer;    /* [n_layers] enum mixer */
    int32_t *nth; /* [n_layers] of those with keys, or those with states, it is
                   * this one */
    int32_t n_states; /* layers with one */
    struct config_gdn {
        int64_t n_k_heads, n_v_heads, k_dim, v_dim; /* of a head */
        int64_t kernel; /* of the convolution, in tokens */
    } gdn;
    bool tied;             /* tie_word_embeddings */
    int64_t *window;       /* [n_layers] sliding window, 0: full */
    bool unscaled;         /* attention's scores are not */
    double attn_scale;     /* of a score; 0: 1 / sqrt(query_scalar) */
    double query_scalar;   /* 0: head_dim */
    bool scale_by_layer;   /* / (layer + 1), too */
    double attn_softcap;   /* of scores: cap tanh(score / cap); 0: none */
    double embed_scale;    /* of an embedding; 0: 1 */
    double residual_scale; /* of what is added to the residual stream; 0: 1 */
    double logit_scale;    /* of logits; 0: 1 */
    double logit_softcap;  /* 0: none */
    struct config_vision {
        int64_t height, width; /* it was trained at; 0: of tokens */
        int64_t patch, n_registers;
        bool has_head; /* with attention, where the family has one */
    } vision;
    struct quantization quantization; /* how its weights are packed */
    bool *sparse;           /* [n_layers] has experts in place of an MLP */
    int64_t n_sparse;       /* of which there are so many */
    int64_t first_sparse;   /* the first that may */
    int64_t widest_mlp;     /* intermediate size of an MLP or an expert */
    int64_t n_experts;      /* 0: a model without */
    int64_t n_experts_used; /* by a token */
    int64_t expert_size;    /* their intermediate size */
    int64_t n_shared;       /* experts of all tokens, in one matrix; or: */
    int64_t shared_size;    /* its intermediate size, 0: none */
    struct router_kind router;
    int32_t bos;                 /* -1: none */
    int32_t eos[CONFIG_MAX_EOS]; /* generation_config.json before config.json */
    size_t n_eos;
    /* generation_config.json's sampler; what it does not say is neutral, but
     * top_k with do_sample 50, and a temperature under 1e-6 is 0 */
    bool do_sample;
    double temperature, top_p, min_p, repetition_penalty;
    int64_t top_k;          /* 0: off */
    int64_t max_new_tokens; /* 0: it does not say */
    char **passed_over;     /* [n_passed_over] its keys that change a text in */
    size_t n_passed_over;   /* transformers, or may, and do not here */
};

/*
 * config_load() reads DIR/config.json and, where present,
 * DIR/generation_config.json.  -1 with 'err' set: EX_NOINPUT, EX_DATAERR; what
 * is not supported is refused by its name.  Owner: until config_free().
 */
int config_load(struct config *config, const char *dir, struct err *err);
void config_free(struct config *config);

/* config_ropes() is how many of its tables of rotations a model has. */
static inline size_t
config_ropes(const struct config *c)
{
    return c->form.learned ? 0 : c->form.rope == ROPE_TWO ? 2 : 1;
}

/* config_fused() is how many numbers of a token one product gives that become
 * queries, keys and values, or keys and values, or queries and their gates. */
static inline size_t
config_fused(const struct config *c)
{
    int64_t kv = c->n_kv_heads * (c->head_dim + c->v_head_dim);

    return (size_t)(c->form.mla   ? c->n_heads * (c->nope_dim + c->v_head_dim)
                    : c->form.qkv ? c->n_heads * c->head_dim + kv
                    : c->form.out_gate ? 2 * c->n_heads * c->head_dim
                                       : 0);
}
/* config_keyed() is the layer which is the nth of those with keys. */
size_t config_keyed(const struct config *c, size_t nth);

/* config_is_long(): has a sequence of at most so many tokens longrope's long
 * factors?  From its first token on, as keys in the cache are rotated once. */
static inline bool
config_is_long(const struct config *c, size_t max_tokens)
{
    return c->rope->type == ROPE_LONG &&
           max_tokens > (size_t)c->rope->original_max_positions;
}

/* How tokens are routed to experts; 0: config.json does not say. */
struct config_routing {
    int64_t n_experts, n_experts_used;
    bool known; /* model_type has experts: 'router' is how they are chosen */
    struct router_kind router;
};

/*
 * config_routing() reads that alone from a config.json, which may be of one
 * layer's experts and say nothing else; 'most' is the largest n_experts_used
 * where n_experts is not said.  -1 with 'err' set (EX_DATAERR).
 */
struct js;
int config_routing(struct config_routing *routing, const struct js *root,
                   int64_t most, struct err *err);

#endif
