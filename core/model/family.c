/* SPDX-License-Identifier: ISC */
#include "core/model/family.h"

#include <string.h>

#include "core/model/config.h"
#include "core/model/parts.h"

#define LAYER                        "layers.{i}."
#define AT(of)                       offsetof(struct config, of)
#define NUMBER(of, absent, min, max) KEY_NUMBER, AT(of), absent, min, max
#define FLAG(of, absent)             KEY_FLAG, AT(of), absent, 0, 1
#define NOT(of, absent)              KEY_NOT, AT(of), absent, 0, 1
#define ONLY(absent)                 KEY_ONLY, 0, absent, 0, 1
#define BIG                          1e9

#define QKV_BIAS                                 \
    {                                            \
        "attention_bias", FLAG(form.qkv_bias, 0) \
    }
#define O_BIAS                                 \
    {                                          \
        "attention_bias", FLAG(form.o_bias, 0) \
    }
#define MLP_BIAS                           \
    {                                      \
        "mlp_bias", FLAG(form.mlp_bias, 0) \
    }

static const struct family_key attention_bias[] = { QKV_BIAS, O_BIAS, { 0 } };
static const struct family_key both_biases[] = {
    QKV_BIAS, O_BIAS, MLP_BIAS, { 0 }
};

/* ---- GPT-2 and Pythia ---- */

static const struct family_name gpt2_names[] = {
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
static const struct family_alias gpt2_aliases[] = {
    { "hidden_size", "n_embd" },
    { "intermediate_size", "n_inner" },
    { "num_hidden_layers", "n_layer" },
    { "num_attention_heads", "n_head" },
    { "max_position_embeddings", "n_positions" },
    { "rms_norm_eps", "layer_norm_epsilon" },
    { "hidden_act", "activation_function" },
    { 0 },
};
static const struct family_key gpt2_keys[] = {
    { "scale_attn_weights", NOT(unscaled, 1) },
    { "scale_attn_by_inverse_layer_idx", FLAG(scale_by_layer, 0) },
    { "add_cross_attention", ONLY(0) },
    { 0 },
};

static const struct family_name gpt_neox_names[] = {
    { PART_EMBED, "embed_in" },
    { PART_HEAD, "embed_out" },
    { PART_NORM, "final_layer_norm" },
    { PART_QKV, LAYER "attention.query_key_value" },
    { PART_O, LAYER "attention.dense" },
    { PART_UP, LAYER "mlp.dense_h_to_4h" },
    { PART_DOWN, LAYER "mlp.dense_4h_to_h" },
    { 0 },
};
static const struct family_alias gpt_neox_aliases[] = {
    { "rms_norm_eps", "layer_norm_eps" },
    { "partial_rotary_factor", "rotary_pct" },
    { "rope_theta", "rotary_emb_base" },
    { 0 },
};
static const struct family_key gpt_neox_keys[] = {
    { "attention_bias", FLAG(form.qkv_bias, 1) },
    { "attention_bias", FLAG(form.o_bias, 1) },
    { "use_parallel_residual", NOT(sequential, 1) },
    { 0 },
};

/* ---- Gemma ---- */

static const struct family_key gemma_keys[] = {
    QKV_BIAS,
    O_BIAS,
    { "use_bidirectional_attention", ONLY(0) },
    { 0 },
};

static const struct family_name sandwich[] = {
    { PART_ATTN_POST, LAYER "post_attention_layernorm" },
    { PART_MLP_NORM, LAYER "pre_feedforward_layernorm" },
    { PART_MLP_POST, LAYER "post_feedforward_layernorm" },
    { 0 },
};
/* what hidden_act says, "gelu" even, is not what runs */
static const struct family_alias gemma_aliases[] = {
    { "hidden_act", "hidden_activation" },
    { 0 },
};
static const struct family_key gemma2_keys[] = {
    QKV_BIAS,
    O_BIAS,
    { "query_pre_attn_scalar", NUMBER(query_scalar, 256, 1e-3, BIG) },
    { "attn_logit_softcapping", NUMBER(attn_softcap, 50, 0, BIG) },
    { "final_logit_softcapping", NUMBER(logit_softcap, 30, 0, BIG) },
    { "use_bidirectional_attention", ONLY(0) },
    { 0 },
};
static const struct family_key gemma3_keys[] = {
    QKV_BIAS,
    O_BIAS,
    { "query_pre_attn_scalar", NUMBER(query_scalar, 256, 1e-3, BIG) },
    { "attn_logit_softcapping", NUMBER(attn_softcap, 0, 0, BIG) },
    { "final_logit_softcapping", NUMBER(logit_softcap, 0, 0, BIG) },
    { "use_bidirectional_attention", ONLY(0) },
    { 0 },
};

/* ---- others ---- */

static const struct family_key granite_keys[] = {
    QKV_BIAS,
    O_BIAS,
    MLP_BIAS,
    { "attention_multiplier", NUMBER(attn_scale, 1, 1e-9, BIG) },
    { "embedding_multiplier", NUMBER(embed_scale, 1, 1e-9, BIG) },
    { "residual_multiplier", NUMBER(residual_scale, 1, 1e-9, BIG) },
    { "logits_scaling", NUMBER(logit_divisor, 1, 1e-9, BIG) },
    { 0 },
};
static const struct family_name olmo_names[] = {
    { PART_ATTN_POST, LAYER "post_attention_layernorm" },
    { PART_MLP_POST, LAYER "post_feedforward_layernorm" },
    { 0 },
};
static const struct family_key qkv_bias[] = { QKV_BIAS, { 0 } };
static const struct family_name phi_names[] = {
    { PART_NORM, "final_layernorm" },
    { PART_Q_NORM, LAYER "self_attn.q_layernorm" },
    { PART_K_NORM, LAYER "self_attn.k_layernorm" },
    { PART_O, LAYER "self_attn.dense" },
    { PART_UP, LAYER "mlp.fc1" },
    { PART_DOWN, LAYER "mlp.fc2" },
    { 0 },
};
static const struct family_alias layer_norm_eps[] = {
    { "rms_norm_eps", "layer_norm_eps" },
    { 0 },
};
static const struct family_key phi_keys[] = {
    { "qk_layernorm", NOT(no_qk_norm, 0) },
    { 0 },
};
static const struct family_key stablelm_keys[] = {
    { "use_qkv_bias", FLAG(form.qkv_bias, 0) },
    { "use_parallel_residual", NOT(sequential, 0) },
    { "qk_layernorm", ONLY(0) },
    { 0 },
};
static const struct family_name starcoder2_names[] = {
    { PART_UP, LAYER "mlp.c_fc" },
    { PART_DOWN, LAYER "mlp.c_proj" },
    { 0 },
};
static const struct family_alias starcoder2_aliases[] = {
    { "rms_norm_eps", "norm_epsilon" },
    { 0 },
};
static const struct family_key starcoder2_keys[] = {
    { "use_bias", FLAG(form.qkv_bias, 1) },
    { "use_bias", FLAG(form.o_bias, 1) },
    { "use_bias", FLAG(form.mlp_bias, 1) },
    { 0 },
};
static const struct family_key cohere_keys[] = {
    QKV_BIAS,
    O_BIAS,
    { "logit_scale", NUMBER(logit_scale, 0.0625, 1e-9, BIG) },
    { "use_qk_norm", ONLY(0) },
    { 0 },
};

/* ---- the rows ---- */

static const struct model_family families[] = {
    {
        .model_type = "llama",
        .classes = { "LlamaForCausalLM", "LlamaModel" },
        .keys = both_biases,
        .form.norm = { NORM_RMS, .places = NORM_PRE },
        .window = WINDOW_NEVER,
        .max_positions = 2048,
        .sizes = { 4096, 11008, 32, 32, 0, 0, 32000 },
    },
    {
        .model_type = "mistral",
        .classes = { "MistralForCausalLM", "MistralModel" },
        .form.norm = { NORM_RMS, .places = NORM_PRE },
        .window = WINDOW_ALWAYS,
        .absent_window = 4096,
        .max_positions = 131072,
        .sizes = { 4096, 14336, 32, 32, 8, 0, 32000 },
    },
    {
        .model_type = "qwen2",
        .classes = { "Qwen2ForCausalLM", "Qwen2Model" },
        .form.norm = { NORM_RMS, .places = NORM_PRE },
        .window = WINDOW_BY_LAYER,
        .max_positions = 32768,
    },
    {
        .model_type = "qwen3",
        .classes = { "Qwen3ForCausalLM", "Qwen3Model" },
        .keys = attention_bias,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE },
                  .qk_norm = QK_HEAD },
        .window = WINDOW_BY_LAYER,
        .max_positions = 32768,
    },
    {
        .model_type = "qwen3_moe",
        .classes = { "Qwen3MoeForCausalLM", "Qwen3MoeModel" },
        .keys = attention_bias,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE },
                  .qk_norm = QK_HEAD },
        .experts = true,
        .window = WINDOW_IF_USED,
        .max_positions = 32768,
    },
    {
        .model_type = "gpt2",
        .classes = { "GPT2LMHeadModel", "GPT2Model" },
        .root = "transformer.",
        .names = gpt2_names,
        .aliases = gpt2_aliases,
        .keys = gpt2_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                  .qkv = FUSED_ROWS,
                  .plain_mlp = true,
                  .in_out = true,
                  .learned = true,
                  .qkv_bias = true,
                  .o_bias = true,
                  .mlp_bias = true,
                  .act = ACT_GELU_TANH },
        .tied = true,
        .norm_eps = 1e-5,
        .window = WINDOW_NEVER,
        .max_positions = 1024,
    },
    {
        .model_type = "gpt_neox",
        .classes = { "GPTNeoXForCausalLM", "GPTNeoXModel" },
        .root = "gpt_neox.",
        .names = gpt_neox_names,
        .aliases = gpt_neox_aliases,
        .keys = gpt_neox_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                  .qkv = FUSED_HEADS,
                  .plain_mlp = true,
                  .residual = RESIDUAL_PARALLEL,
                  .mlp_bias = true,
                  .act = ACT_GELU_ERF },
        .norm_eps = 1e-5,
        .rotary = .25,
        .window = WINDOW_NEVER,
        .max_positions = 2048,
    },
    {
        .model_type = "gemma",
        .classes = { "GemmaForCausalLM", "GemmaModel" },
        .aliases = gemma_aliases,
        .keys = gemma_keys,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE, .plus_one = true },
                  .embed_root = true,
                  .act = ACT_GELU_TANH },
        .tied = true,
        .window = WINDOW_NEVER,
        .max_positions = 8192,
    },
    {
        .model_type = "gemma2",
        .classes = { "Gemma2ForCausalLM", "Gemma2Model" },
        .names = sandwich,
        .aliases = gemma_aliases,
        .keys = gemma2_keys,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE | NORM_POST,
                            .plus_one = true },
                  .embed_root = true,
                  .act = ACT_GELU_TANH },
        .tied = true,
        .window = WINDOW_PERIOD,
        .absent_window = 4096,
        .period = 2,
        .max_positions = 8192,
    },
    {
        .model_type = "gemma3_text",
        .classes = { "Gemma3ForCausalLM", "Gemma3TextModel" },
        .names = sandwich,
        .aliases = gemma_aliases,
        .keys = gemma3_keys,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE | NORM_POST,
                            .plus_one = true },
                  .qk_norm = QK_HEAD,
                  .rope = ROPE_TWO,
                  .embed_root = true,
                  .act = ACT_GELU_TANH },
        .tied = true,
        .theta = 1e6,
        .local_theta = 1e4,
        .window = WINDOW_PERIOD,
        .absent_window = 4096,
        .period = 6,
        .max_positions = 131072,
        .sizes = { 2304, 9216, 26, 8, 4, 256, 262208 },
    },
    {
        .model_type = "phi3",
        .classes = { "Phi3ForCausalLM", "Phi3Model" },
        .form = { .norm = { NORM_RMS, .places = NORM_PRE },
                  .qkv = FUSED_ROWS,
                  .gate_up = true },
        .norm_eps = 1e-5,
        .rotary = 1,
        .window = WINDOW_ALWAYS,
        .max_positions = 4096,
    },
    {
        .model_type = "granite",
        .classes = { "GraniteForCausalLM", "GraniteModel" },
        .keys = granite_keys,
        .form.norm = { NORM_RMS, .places = NORM_PRE },
        .window = WINDOW_NEVER,
        .max_positions = 2048,
    },
    {
        .model_type = "smollm3",
        .classes = { "SmolLM3ForCausalLM", "SmolLM3Model" },
        .keys = both_biases,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE },
                  .rope = ROPE_LISTED },
        .tied = true,
        .theta = 2e6,
        .window = WINDOW_BY_LAYER,
        .period = 4,
        .max_positions = 32768,
    },
    {
        .model_type = "olmo2",
        .classes = { "Olmo2ForCausalLM", "Olmo2Model" },
        .names = olmo_names,
        .keys = attention_bias,
        .form = { .norm = { NORM_RMS, .places = NORM_POST },
                  .qk_norm = QK_WHOLE },
        .norm_eps = 1e-5,
        .window = WINDOW_NEVER,
        .max_positions = 2048,
    },
    {
        .model_type = "olmo3",
        .classes = { "Olmo3ForCausalLM", "Olmo3Model" },
        .names = olmo_names,
        .keys = attention_bias,
        .form = { .norm = { NORM_RMS, .places = NORM_POST },
                  .qk_norm = QK_WHOLE,
                  .rope = ROPE_TWO },
        .norm_eps = 1e-5,
        .window = WINDOW_PERIOD,
        .absent_window = 4096,
        .period = 4,
        .max_positions = 2048,
    },
    {
        .model_type = "glm4",
        .classes = { "Glm4ForCausalLM", "Glm4Model" },
        .keys = qkv_bias,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE | NORM_POST },
                  .gate_up = true,
                  .pairs = true },
        .norm_eps = 0.00000015625,
        .rotary = .5,
        .window = WINDOW_NEVER,
        .max_positions = 131072,
    },
    {
        .model_type = "phi",
        .classes = { "PhiForCausalLM", "PhiModel" },
        .names = phi_names,
        .aliases = layer_norm_eps,
        .keys = phi_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                  .qk_norm = QK_HEAD,
                  .plain_mlp = true,
                  .residual = RESIDUAL_ONE_NORM,
                  .qkv_bias = true,
                  .o_bias = true,
                  .mlp_bias = true,
                  .head_bias = true,
                  .act = ACT_GELU_TANH },
        .norm_eps = 1e-5,
        .rotary = .5,
        .window = WINDOW_NEVER,
        .max_positions = 2048,
    },
    {
        .model_type = "stablelm",
        .classes = { "StableLmForCausalLM", "StableLmModel" },
        .aliases = layer_norm_eps,
        .keys = stablelm_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                  .residual = RESIDUAL_ONE_NORM },
        .norm_eps = 1e-5,
        .rotary = .25,
        .window = WINDOW_NEVER,
        .max_positions = 4096,
    },
    {
        .model_type = "starcoder2",
        .classes = { "Starcoder2ForCausalLM", "Starcoder2Model" },
        .names = starcoder2_names,
        .aliases = starcoder2_aliases,
        .keys = starcoder2_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                  .plain_mlp = true,
                  .act = ACT_GELU_TANH },
        .tied = true,
        .norm_eps = 1e-5,
        .window = WINDOW_ALWAYS,
        .max_positions = 4096,
    },
    {
        .model_type = "cohere",
        .classes = { "CohereForCausalLM", "CohereModel" },
        .aliases = layer_norm_eps,
        .keys = cohere_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE },
                  .pairs = true,
                  .residual = RESIDUAL_ONE_NORM },
        .tied = true,
        .norm_eps = 1e-5,
        .window = WINDOW_NEVER,
        .max_positions = 8192,
    },
    {
        .model_type = "cohere2",
        .classes = { "Cohere2ForCausalLM", "Cohere2Model" },
        .aliases = layer_norm_eps,
        .keys = cohere_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE },
                  .pairs = true,
                  .rope = ROPE_WINDOWED,
                  .residual = RESIDUAL_ONE_NORM },
        .tied = true,
        .norm_eps = 1e-5,
        .window = WINDOW_PERIOD,
        .absent_window = 4096,
        .period = 4,
        .max_positions = 8192,
    },
    {
        .model_type = "qwen2_5_vl",
        .classes = { "Qwen2_5_VLForConditionalGeneration", "Qwen2_5_VLModel" },
        .form.norm = { NORM_RMS, .places = NORM_PRE },
        .is_part = true,
        .norm_eps = 1e-5,
        .theta = 1e6,
        .window = WINDOW_BY_LAYER,
        .max_positions = 32768,
    },
};
#define N_FAMILIES (sizeof(families) / sizeof(*families))

const struct model_family *
family_next(const struct model_family *f)
{
    f = f ? f + 1 : families;
    return f < families + N_FAMILIES ? f : NULL;
}

const struct model_family *
family_find(const char *model_type)
{
    const struct model_family *f = NULL;
    size_t n;

    do {
        f = family_next(f);
        n = f ? strlen(f->model_type) : 0;
    } while (f && (strncmp(f->model_type, model_type, n) != 0 ||
                   (model_type[n] && strcmp(model_type + n, "_text") != 0)));
    return f;
}

bool
family_has_text(const char *model_type)
{
    /* not those that tell their text model more than its text_config does:
     * paligemma to look both ways, mllama to look at images in its layers */
    static const char *const types[] = {
        "aya_vision",      "cohere2_vision", "gemma3",
        "internvl",        "llava",          "llava_next",
        "mistral3",        "qwen2_5_vl",     "llava_next_video",
        "llava_onevision", "vipllava",
    };

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (!strcmp(model_type, types[i]))
            return true;
    return false;
}

void
family_list(struct str *to)
{
    for (const struct model_family *f = NULL; (f = family_next(f));)
        str_addf(to, "%s%s", f == families ? "" : ", ", f->model_type);
}

const char *
family_key(const struct model_family *f, const char *key)
{
    for (const struct family_alias *a = f->aliases; a && a->key; a++)
        if (!strcmp(a->key, key))
            return a->own;
    return key;
}
