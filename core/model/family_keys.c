/* SPDX-License-Identifier: ISC */
#include "core/model/family_keys.h"

#include <math.h>
#include <stddef.h>

#include "core/model/config.h"
#include "core/model/parts.h"

#define LAYER                        "layers.{i}."
#define AT(of)                       offsetof(struct config, of)
#define NUMBER(of, absent, min, max) KEY_NUMBER, AT(of), absent, min, max, NULL
#define INVERSE(of, absent, min, max) \
    KEY_INVERSE, AT(of), absent, min, max, NULL
#define FLAG(of, absent)            KEY_FLAG, AT(of), absent, 0, 1, NULL
#define NOT(of, absent)             KEY_NOT, AT(of), absent, 0, 1, NULL
#define KEEPS(of, absent)           KEY_KEEPS, AT(form.of), absent, 0, 1, NULL
#define ONLY(absent)                KEY_ONLY, 0, absent, 0, 1, NULL
#define COUNT(of, absent, min, max) KEY_COUNT, AT(of), absent, min, max, NULL
#define WORD(at, words)             KEY_WORD, at, 0, 0, 0, words
#define BIG                         1e9

#define QKV_BIAS(absent) "attention_bias", FLAG(form.qkv_bias, absent)
#define BIASES(absent)                              \
    { QKV_BIAS(absent) },                           \
    {                                               \
        "attention_bias", FLAG(form.o_bias, absent) \
    }
#define MLP_BIAS "mlp_bias", FLAG(form.mlp_bias, 0)

const struct family_key family_attention_bias_keys[] = { BIASES(0), { 0 } };
const struct family_key family_both_biases_keys[] = { BIASES(0),
                                                      { MLP_BIAS },
                                                      { 0 } };

/* ---- GPT-2 and Pythia ---- */

const struct family_name family_gpt2_names[] = {
    { PART_EMBED, "wte" },
    { PART_POSITIONS, "wpe" },
    { PART_NORM, "ln_f" },
    { PART_ATTN_NORM, "h.{i}.ln_1" },
    { PART_MLP_NORM, "h.{i}.ln_2" },
    { PART_QKV, "h.{i}.attn.c_attn" },
    { PART_O, "h.{i}.attn.c_proj" },
    { PART_UP, "h.{i}.mlp.c_fc" },
    { PART_DOWN, "h.{i}.mlp.c_proj" },
    { 0 },
};
const struct family_alias family_gpt2_aliases[] = {
    { "hidden_size", "n_embd" },
    { "intermediate_size", "n_inner" },
    { "num_hidden_layers", "n_layer" },
    { "num_attention_heads", "n_head" },
    { "max_position_embeddings", "n_positions" },
    { "rms_norm_eps", "layer_norm_epsilon" },
    { "hidden_act", "activation_function" },
    { 0 },
};
const struct family_key family_gpt2_keys[] = {
    { "scale_attn_weights", NOT(unscaled, 1) },
    { "scale_attn_by_inverse_layer_idx", FLAG(scale_by_layer, 0) },
    { "add_cross_attention", ONLY(0) },
    { 0 },
};

const struct family_name family_gpt_neox_names[] = {
    { PART_EMBED, "embed_in" },
    { PART_HEAD, "embed_out" },
    { PART_NORM, "final_layer_norm" },
    { PART_QKV, LAYER "attention.query_key_value" },
    { PART_O, LAYER "attention.dense" },
    { PART_UP, LAYER "mlp.dense_h_to_4h" },
    { PART_DOWN, LAYER "mlp.dense_4h_to_h" },
    { 0 },
};
const struct family_alias family_gpt_neox_aliases[] = {
    { "rms_norm_eps", "layer_norm_eps" },
    { "partial_rotary_factor", "rotary_pct" },
    { "rope_theta", "rotary_emb_base" },
    { 0 },
};
const struct family_key family_gpt_neox_keys[] = {
    BIASES(1),
    { "use_parallel_residual", KEEPS(residual, 1) },
    { 0 },
};

/* ---- Gemma ---- */

const struct family_key family_gemma_keys[] = {
    BIASES(0),
    { "use_bidirectional_attention", ONLY(0) },
    { 0 },
};

const struct family_name family_sandwich_names[] = {
    { PART_ATTN_POST, LAYER "post_attention_layernorm" },
    { PART_MLP_NORM, LAYER "pre_feedforward_layernorm" },
    { PART_MLP_POST, LAYER "post_feedforward_layernorm" },
    { 0 },
};
/* what hidden_act says, "gelu" even, is not what runs */
const struct family_alias family_gemma_aliases[] = {
    { "hidden_act", "hidden_activation" },
    { 0 },
};
const struct family_key family_gemma2_keys[] = {
    BIASES(0),
    { "query_pre_attn_scalar", NUMBER(query_scalar, 256, 1e-3, BIG) },
    { "attn_logit_softcapping", NUMBER(attn_softcap, 50, 0, BIG) },
    { "final_logit_softcapping", NUMBER(logit_softcap, 30, 0, BIG) },
    { "use_bidirectional_attention", ONLY(0) },
    { 0 },
};
const struct family_key family_gemma3_keys[] = {
    BIASES(0),
    { "query_pre_attn_scalar", NUMBER(query_scalar, 256, 1e-3, BIG) },
    { "attn_logit_softcapping", NUMBER(attn_softcap, 0, 0, BIG) },
    { "final_logit_softcapping", NUMBER(logit_softcap, 0, 0, BIG) },
    { "use_bidirectional_attention", ONLY(0) },
    { 0 },
};

/* ---- others ---- */

const struct family_key family_granite_keys[] = {
    BIASES(0),
    { MLP_BIAS },
    { "attention_multiplier", NUMBER(attn_scale, 1, 1e-9, BIG) },
    { "embedding_multiplier", NUMBER(embed_scale, 1, 1e-9, BIG) },
    { "residual_multiplier", NUMBER(residual_scale, 1, 1e-9, BIG) },
    { "logits_scaling", INVERSE(logit_scale, 1, 1e-9, BIG) },
    { 0 },
};
const struct family_name family_olmo_names[] = {
    { PART_ATTN_POST, LAYER "post_attention_layernorm" },
    { PART_MLP_POST, LAYER "post_feedforward_layernorm" },
    { 0 },
};
const struct family_key family_qkv_bias_keys[] = { { QKV_BIAS(0) }, { 0 } };
const struct family_name family_phi_names[] = {
    { PART_NORM, "final_layernorm" },
    { PART_Q_NORM, LAYER "self_attn.q_layernorm" },
    { PART_K_NORM, LAYER "self_attn.k_layernorm" },
    { PART_O, LAYER "self_attn.dense" },
    { PART_UP, LAYER "mlp.fc1" },
    { PART_DOWN, LAYER "mlp.fc2" },
    { 0 },
};
const struct family_alias family_layer_norm_eps_aliases[] = {
    { "rms_norm_eps", "layer_norm_eps" },
    { 0 },
};
const struct family_key family_phi_keys[] = {
    { "qk_layernorm", KEEPS(qk_norm, 0) },
    { 0 },
};
const struct family_name family_stablelm_names[] = {
    { PART_Q_NORM, LAYER "self_attn.q_layernorm.norms.{e}" },
    { PART_K_NORM, LAYER "self_attn.k_layernorm.norms.{e}" },
    { 0 },
};
const struct family_key family_stablelm_keys[] = {
    { "use_qkv_bias", FLAG(form.qkv_bias, 0) },
    { "use_parallel_residual", KEEPS(residual, 0) },
    { "qk_layernorm", KEEPS(qk_norm, 0) },
    { 0 },
};
const struct family_name family_starcoder2_names[] = {
    { PART_UP, LAYER "mlp.c_fc" },
    { PART_DOWN, LAYER "mlp.c_proj" },
    { 0 },
};
const struct family_alias family_starcoder2_aliases[] = {
    { "rms_norm_eps", "norm_epsilon" },
    { 0 },
};
const struct family_key family_starcoder2_keys[] = {
    { "use_bias", FLAG(form.qkv_bias, 1) },
    { "use_bias", FLAG(form.o_bias, 1) },
    { "use_bias", FLAG(form.mlp_bias, 1) },
    { 0 },
};
#define COHERE_SCALE "logit_scale", NUMBER(logit_scale, 0.0625, 1e-9, BIG)
const struct family_key family_cohere_keys[] = {
    BIASES(0),
    { COHERE_SCALE },
    { "use_qk_norm", KEEPS(qk_norm, 0) },
    { 0 },
};
const struct family_key family_cohere2_keys[] = {
    BIASES(0),
    { COHERE_SCALE },
    { "use_qk_norm", ONLY(0) },
    { 0 },
};

/* ---- experts ---- */

#define SPARSE            LAYER "block_sparse_moe."
#define MOST              ROUTER_MAX_EXPERTS
#define NORMALIZE(absent) "norm_topk_prob", FLAG(router.normalize, absent)
#define SCALING           "routed_scaling_factor", NUMBER(router.scaling, 1, 1e-9, BIG)
#define GROUPS(n)                                            \
    { "n_group", COUNT(router.n_groups, n, 1, MOST) },       \
    {                                                        \
        "topk_group", COUNT(router.n_top_groups, n, 1, MOST) \
    }
#define SHARED(n)                                       \
    { "n_shared_experts", COUNT(n_shared, n, 0, 256) }, \
    {                                                   \
        "moe_layer_freq", KEY_COUNT, 0, 1, 1, 1, NULL   \
    }
#define DENSE(n) "first_k_dense_replace", COUNT(first_sparse, n, 0, 1 << 12)

static const char *const sigmoid[] = { "sigmoid", NULL };
static const char *const noaux_tc[] = { "noaux_tc", NULL };

static const struct family_key qwen_moe_keys[] = { { NORMALIZE(0) }, { 0 } };
const struct family_experts family_qwen_moe_experts = { .keys = qwen_moe_keys };

/* what scales what a value head of Gated DeltaNet gives */
static const char *const silu[] = { "silu", "swish", NULL };
#define GDN_GATE "output_gate_type", WORD(0, silu)
#define OUT_GATE "attn_output_gate", FLAG(form.out_gate, 1)
#define SHARED_SIZE(n) \
    "shared_expert_intermediate_size", COUNT(shared_size, n, 1, 1 << 20)
const struct family_key family_qwen3_5_keys[] = {
    BIASES(0), { OUT_GATE }, { GDN_GATE }, { 0 }
};
const struct family_key family_qwen3_next_keys[] = {
    BIASES(0), { GDN_GATE }, { SHARED_SIZE(512) }, { 0 }
};
const struct family_key family_qwen3_5_moe_keys[] = {
    BIASES(0), { OUT_GATE }, { GDN_GATE }, { SHARED_SIZE(512) }, { 0 }
};
static const struct family_key qwen3_next_keys[] = { { NORMALIZE(1) }, { 0 } };
const struct family_experts family_qwen3_next_experts = {
    .n = 512, .n_used = 10, .keys = qwen3_next_keys
};
const struct family_experts family_qwen3_5_moe_experts = {
    .n = 256,
    .n_used = 8,
    .router.normalize = true, /* whatever norm_topk_prob says */
    .everywhere = true,
};

const struct family_name family_mixtral_names[] = {
    { PART_ROUTER, SPARSE "gate" },
    { PART_GATE, SPARSE "w1" },
    { PART_UP, SPARSE "w3" },
    { PART_DOWN, SPARSE "w2" },
    { PART_EXPERT_GATE, SPARSE "experts.{e}.w1" },
    { PART_EXPERT_UP, SPARSE "experts.{e}.w3" },
    { PART_EXPERT_DOWN, SPARSE "experts.{e}.w2" },
    { 0 },
};
const struct family_alias family_mixtral_aliases[] = {
    { "num_experts", "num_local_experts" },
    { "moe_intermediate_size", "intermediate_size" },
    { 0 },
};
const struct family_experts family_mixtral_experts = {
    .n = 8, .n_used = 2, .router.normalize = true
};

const struct family_name family_gpt_oss_names[] = {
    { PART_ROUTER, LAYER "mlp.router" },
    { 0 },
};
/* hidden_act, silu, is not what runs */
const struct family_alias family_gpt_oss_aliases[] = {
    { "num_experts", "num_local_experts" },
    { "moe_intermediate_size", "intermediate_size" },
    { "hidden_act", "hidden_activation" },
    { 0 },
};
const struct family_key family_gpt_oss_keys[] = {
    BIASES(1),
    { 0 },
};
static const struct family_key gpt_oss_keys[] = {
    { "swiglu_limit", KEY_NUMBER, 0, 7, 7, 7, NULL },
    { "swiglu_alpha", KEY_NUMBER, 0, 1.702, 1.702, 1.702, NULL },
    { 0 },
};
static const struct family_stack gpt_oss_stack = { "gate_up_proj", "down_proj",
                                                   .in_out = true,
                                                   .has_bias = true };
const struct family_experts family_gpt_oss_experts = { .n = 128,
                                                       .n_used = 4,
                                                       .router.score =
                                                           ROUTER_TOP,
                                                       .keys = gpt_oss_keys,
                                                       .stack =
                                                           &gpt_oss_stack };

const struct family_name family_qwen2_moe_names[] = {
    { PART_SHARED_GATE, LAYER "mlp.shared_expert.gate_proj" },
    { PART_SHARED_UP, LAYER "mlp.shared_expert.up_proj" },
    { PART_SHARED_DOWN, LAYER "mlp.shared_expert.down_proj" },
    { 0 },
};
const struct family_key family_qwen2_moe_keys[] = {
    { "qkv_bias", FLAG(form.qkv_bias, 1) },
    { SHARED_SIZE(5632) },
    { 0 },
};

const struct family_alias family_routed_aliases[] = {
    { "num_experts", "n_routed_experts" },
    { 0 },
};
const struct family_key family_glm4_moe_keys[] = {
    { QKV_BIAS(0) }, SHARED(1),
    { DENSE(1) },    { "use_qk_norm", KEEPS(qk_norm, 0) },
    { 0 },
};
static const struct family_key glm4_moe_keys[] = {
    { NORMALIZE(1) },
    { SCALING },
    GROUPS(1),
    { "scoring_func", WORD(0, sigmoid) },
    { "topk_method", WORD(0, noaux_tc) },
    { 0 },
};
const struct family_experts family_glm4_moe_experts = {
    .n = 128,
    .n_used = 8,
    .router = { ROUTER_SIGMOID, GROUPS_BEST_TWO, .corrected = true,
                .floor = 1e-20F },
    .keys = glm4_moe_keys
};

/* ---- multi-head latent attention ---- */

#define MLA                                                        \
    BIASES(0), { "q_lora_rank", COUNT(q_rank, 1536, 1, 1 << 20) }, \
        { "kv_lora_rank", COUNT(kv_rank, 512, 1, 1 << 20) },       \
        { "qk_nope_head_dim", COUNT(nope_dim, 128, 1, 1 << 12) },  \
        { "qk_rope_head_dim", COUNT(rotary_dim, 64, 2, 1 << 12) }, \
    {                                                              \
        "v_head_dim", COUNT(v_head_dim, 128, 1, 1 << 12)           \
    }

/* in the order of enum router_groups */
static const char *const greedy[] = { "greedy", "group_limited_greedy", NULL };
static const char *const softmax[] = { "softmax", NULL };

const struct family_key family_deepseek_v2_keys[] = {
    MLA, SHARED(2), { DENSE(0) }, { 0 }
};
static const struct family_key deepseek_v2_keys[] = {
    { "norm_topk_prob", ONLY(0) }, /* which no file of this family has on */
    { SCALING },
    GROUPS(0),
    { "scoring_func", WORD(0, softmax) },
    { "topk_method", KEY_WORD, AT(router.groups), 0, 0, 0, greedy },
    { 0 },
};
/* masked as 0, its class gives what it selects there no weight */
const struct family_experts family_deepseek_v2_experts = {
    .n = 64, .router.masked = -INFINITY, .keys = deepseek_v2_keys
};

const struct family_key family_deepseek_v3_keys[] = {
    MLA,   SHARED(1), { DENSE(3) }, { "rope_interleave", FLAG(form.pairs, 1) },
    { 0 },
};
static const struct family_key deepseek_v3_keys[] = {
    { NORMALIZE(1) },
    { "routed_scaling_factor", NUMBER(router.scaling, 2.5, 1e-9, BIG) },
    { "n_group", COUNT(router.n_groups, 8, 1, MOST) },
    { "topk_group", COUNT(router.n_top_groups, 4, 1, MOST) },
    { "scoring_func", WORD(0, sigmoid) },
    { "topk_method", WORD(0, noaux_tc) },
    { 0 },
};
const struct family_experts family_deepseek_v3_experts = {
    .n = 256,
    .n_used = 8,
    .router = { ROUTER_SIGMOID, GROUPS_BEST_TWO, .corrected = true,
                .floor = 1e-20F },
    .keys = deepseek_v3_keys
};
