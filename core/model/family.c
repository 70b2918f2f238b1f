/* SPDX-License-Identifier: ISC */
#include "core/model/family.h"

#include <string.h>

#include "core/model/family_keys.h"

/* ---- vision encoders ---- */

#define VISION_FORM                                               \
    .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true }, \
    .both_ways = true, .learned = true
#define BASE_SIZES .sizes = { 768, 3072, 12, 12 }, .window = WINDOW_NEVER

#define CLIP                                                         \
    .cls = "embeddings.class_embedding",                             \
    .positions = "embeddings.position_embedding.weight",             \
    .patch = "embeddings.patch_embedding", .before = "pre_layrnorm", \
    .flat = true, .pool = POOL_PROJECTED, .image_size = 224, .patch_size = 32
#define CLIP_FAMILY                                                    \
    .root = "vision_model.", .names = family_clip_names,               \
    .form = { VISION_FORM, .plain_mlp = true, .act = ACT_QUICK_GELU }, \
    .norm_eps = 1e-5, BASE_SIZES

#define SIGLIP                                           \
    .positions = "embeddings.position_embedding.weight", \
    .patch = "embeddings.patch_embedding", .flat = true, \
    .pool = POOL_ATTENTION, .image_size = 224, .patch_size = 16
#define SIGLIP_FAMILY                                                 \
    .root = "vision_model.", .names = family_clip_names,              \
    .form = { VISION_FORM, .plain_mlp = true, .act = ACT_GELU_TANH }, \
    BASE_SIZES

#define TOKENS .cls = "embeddings.cls_token", .image_size = 224
#define POSITIONS                                  \
    .positions = "embeddings.position_embeddings", \
    .patch = "embeddings.patch_embeddings.projection"
#define DINOV2_FAMILY                                                          \
    BASE_SIZES, .names = family_dinov2_names,                                  \
                .form = { VISION_FORM, .plain_mlp = true, .layer_scale = true, \
                          .act = ACT_GELU_ERF }
#define DINOV2_SWIGLU                                                 \
    .variant = true, BASE_SIZES, .names = family_dinov2_swiglu_names, \
    .form = { VISION_FORM, .layer_scale = true, .gate_up = true,      \
              .act = ACT_SILU }

static const struct family_vision clip = { .whole = true, CLIP };
static const struct family_vision clip_vision = { CLIP };
static const struct family_vision siglip = { .whole = true, SIGLIP };
static const struct family_vision siglip_vision = { SIGLIP };
static const struct family_vision dinov2 = { TOKENS, POSITIONS,
                                             .patch_size = 14 };
static const struct family_vision dinov2_registers = {
    TOKENS, POSITIONS, .antialias = true, .patch_size = 16, .n_registers = 4
};
static const struct family_vision dinov3 = {
    TOKENS, .patch = "embeddings.patch_embeddings", .patch_size = 16
};
static const struct family_vision vit = { TOKENS, POSITIONS, .pool = POOL_TANH,
                                          .patch_size = 16 };

static const struct model_family families[] = {
    {
        .model_type = "llama",
        .classes = { "LlamaForCausalLM", "LlamaModel" },
        .keys = family_both_biases_keys,
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
        .keys = family_attention_bias_keys,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE },
                  .qk_norm = QK_HEAD },
        .window = WINDOW_BY_LAYER,
        .max_positions = 32768,
    },
    {
        .model_type = "qwen3_moe",
        .classes = { "Qwen3MoeForCausalLM", "Qwen3MoeModel" },
        .keys = family_attention_bias_keys,
        .form = { .norm = { NORM_RMS, .places = NORM_PRE },
                  .qk_norm = QK_HEAD },
        .experts = true,
        .softmax_first = true,
        .routed_as_this = "qwen2_moe",
        .window = WINDOW_IF_USED,
        .max_positions = 32768,
    },
    {
        .model_type = "gpt2",
        .classes = { "GPT2LMHeadModel", "GPT2Model" },
        .root = "transformer.",
        .names = family_gpt2_names,
        .aliases = family_gpt2_aliases,
        .keys = family_gpt2_keys,
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
        .names = family_gpt_neox_names,
        .aliases = family_gpt_neox_aliases,
        .keys = family_gpt_neox_keys,
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
        .aliases = family_gemma_aliases,
        .keys = family_gemma_keys,
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
        .names = family_sandwich_names,
        .aliases = family_gemma_aliases,
        .keys = family_gemma2_keys,
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
        .names = family_sandwich_names,
        .aliases = family_gemma_aliases,
        .keys = family_gemma3_keys,
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
        .keys = family_granite_keys,
        .form.norm = { NORM_RMS, .places = NORM_PRE },
        .window = WINDOW_NEVER,
        .max_positions = 2048,
    },
    {
        .model_type = "smollm3",
        .classes = { "SmolLM3ForCausalLM", "SmolLM3Model" },
        .keys = family_both_biases_keys,
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
        .names = family_olmo_names,
        .keys = family_attention_bias_keys,
        .form = { .norm = { NORM_RMS, .places = NORM_POST },
                  .qk_norm = QK_WHOLE },
        .norm_eps = 1e-5,
        .window = WINDOW_NEVER,
        .max_positions = 2048,
    },
    {
        .model_type = "olmo3",
        .classes = { "Olmo3ForCausalLM", "Olmo3Model" },
        .names = family_olmo_names,
        .keys = family_attention_bias_keys,
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
        .keys = family_qkv_bias_keys,
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
        .names = family_phi_names,
        .aliases = family_layer_norm_eps_aliases,
        .keys = family_phi_keys,
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
        .names = family_stablelm_names,
        .aliases = family_layer_norm_eps_aliases,
        .keys = family_stablelm_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                  .qk_norm = QK_OWN_TENSORS,
                  .residual = RESIDUAL_ONE_NORM },
        .norm_eps = 1e-5,
        .rotary = .25,
        .window = WINDOW_NEVER,
        .max_positions = 4096,
    },
    {
        .model_type = "starcoder2",
        .classes = { "Starcoder2ForCausalLM", "Starcoder2Model" },
        .names = family_starcoder2_names,
        .aliases = family_starcoder2_aliases,
        .keys = family_starcoder2_keys,
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
        .aliases = family_layer_norm_eps_aliases,
        .keys = family_cohere_keys,
        .form = { .norm = { NORM_LAYER, .places = NORM_PRE },
                  .qk_norm = QK_OWN,
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
        .aliases = family_layer_norm_eps_aliases,
        .keys = family_cohere2_keys,
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
    { "clip", { "CLIPModel" }, .vision = &clip, CLIP_FAMILY },
    { "clip_vision_model",
      { "CLIPVisionModel" },
      .vision = &clip_vision,
      CLIP_FAMILY },
    { "siglip", { "SiglipModel" }, .vision = &siglip, SIGLIP_FAMILY },
    { "siglip_vision_model",
      { "SiglipVisionModel" },
      .vision = &siglip_vision,
      SIGLIP_FAMILY },
    { "dinov2",
      { "Dinov2Model" },
      .root = "dinov2.",
      .vision = &dinov2,
      DINOV2_FAMILY },
    { "dinov2",
      { "Dinov2Model" },
      .root = "dinov2.",
      .vision = &dinov2,
      DINOV2_SWIGLU },
    { "dinov2_with_registers",
      { "Dinov2WithRegistersModel" },
      .root = "dinov2_with_registers.",
      .vision = &dinov2_registers,
      DINOV2_FAMILY },
    { "dinov2_with_registers",
      { "Dinov2WithRegistersModel" },
      .root = "dinov2_with_registers.",
      .vision = &dinov2_registers,
      DINOV2_SWIGLU },
    { "dinov3_vit",
      { "DINOv3ViTModel" },
      .vision = &dinov3,
      .names = family_dinov3_names,
      .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                .plain_mlp = true,
                .both_ways = true,
                .layer_scale = true,
                .act = ACT_GELU_ERF },
      .norm_eps = 1e-5,
      .theta = 100,
      .window = WINDOW_NEVER,
      .sizes = { 384, 1536, 12, 6 } },
    { "vit",
      { "ViTModel" },
      .root = "vit.",
      .vision = &vit,
      .names = family_vit_names,
      .form = { VISION_FORM, .plain_mlp = true, .act = ACT_GELU_ERF },
      .norm_eps = 1e-12,
      BASE_SIZES },
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

bool
family_softmax_first(const char *model_type)
{
    for (const struct model_family *f = NULL; (f = family_next(f));)
        if (f->softmax_first &&
            (!strcmp(f->model_type, model_type) ||
             (f->routed_as_this && !strcmp(f->routed_as_this, model_type))))
            return true;
    return false;
}

void
family_list(struct str *to, bool vision)
{
    const char *comma = "";

    for (const struct model_family *f = NULL; (f = family_next(f));)
        if (!f->variant && !f->vision == !vision) {
            str_addf(to, "%s%s", comma, f->model_type);
            comma = ", ";
        }
}

const char *
family_key(const struct model_family *f, const char *key)
{
    for (const struct family_alias *a = f->aliases; a && a->key; a++)
        if (!strcmp(a->key, key))
            return a->own;
    return key;
}
