/* SPDX-License-Identifier: ISC */
/*
 * What config.json says about a model: its family, its sizes, how its next
 * token is drawn.  llama, mistral, qwen2, qwen3, qwen3_moe: differences are
 * fields.
 */
#ifndef CORE_MODEL_CONFIG_H
#define CORE_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/kernel/vec.h"
#include "core/model/norm.h"
#include "core/model/rope.h"

#define CONFIG_MAX_EOS   16
#define CONFIG_MAX_VOCAB (1 << 24)

struct config {
    char arch[32]; /* model_type: "qwen3" */
    int64_t hidden_size, intermediate_size;
    int64_t n_layers, n_heads, n_kv_heads, head_dim;
    int64_t vocab_size;
    int64_t max_positions; /* the context: longer is an error */
    struct norm_kind norm; /* of all its norms */
    float norm_eps;
    enum act act;
    struct rope_config rope;
    bool qk_norm;        /* qwen3: RMSNorm of each head of q and k */
    double attn_scale;   /* of attention's scores; 0: head_dim^-1/2 */
    bool scale_by_layer; /* in layer i also / (i + 1) */
    float attn_softcap;  /* of them: cap tanh(score / cap); 0: none */
    bool need_qkv_bias, need_o_bias, need_mlp_bias; /* demanded by config */
    bool tied;                                      /* tie_word_embeddings */
    int64_t *window; /* [n_layers] sliding window, 0: full */
    /* qwen3_moe */
    bool *sparse;                /* [n_layers] has experts in place of an MLP */
    int64_t n_sparse;            /* of which there are so many */
    int64_t widest_mlp;          /* intermediate size of an MLP or an expert */
    int64_t n_experts;           /* 0: a model without */
    int64_t n_experts_used;      /* by a token */
    int64_t expert_size;         /* their intermediate size */
    bool norm_topk_prob;         /* the weights of a token's experts sum to 1 */
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

/* How tokens are routed to experts; 0: config.json does not say. */
struct config_routing {
    int64_t n_experts, n_experts_used;
    bool norm_topk_prob;
    bool softmax_first; /* of all experts, of which the largest are kept */
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
