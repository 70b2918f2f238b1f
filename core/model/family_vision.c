/* SPDX-License-Identifier: ISC */
/* Families of vision encoders: their rows, and what their files call tensors.
 */
#include "core/model/family_keys.h"
#include "core/model/parts.h"

/* ---- names ---- */

#define ENCODER  "encoder.layers.{i}."
#define ENCODER1 "encoder.layer.{i}."
#define ATTENTION1                                        \
    { PART_Q, ENCODER1 "attention.attention.query" },     \
        { PART_K, ENCODER1 "attention.attention.key" },   \
        { PART_V, ENCODER1 "attention.attention.value" }, \
    {                                                     \
        PART_O, ENCODER1 "attention.output.dense"         \
    }
#define DINOV2                                                        \
    { PART_NORM, "layernorm" }, { PART_ATTN_NORM, ENCODER1 "norm1" }, \
        { PART_MLP_NORM, ENCODER1 "norm2" },                          \
        { PART_ATTN_POST, ENCODER1 "layer_scale1.lambda1" },          \
        { PART_MLP_POST, ENCODER1 "layer_scale2.lambda1" }, ATTENTION1

static const struct family_name clip_names[] = {
    { PART_NORM, "post_layernorm" },
    { PART_ATTN_NORM, ENCODER "layer_norm1" },
    { PART_MLP_NORM, ENCODER "layer_norm2" },
    { PART_Q, ENCODER "self_attn.q_proj" },
    { PART_K, ENCODER "self_attn.k_proj" },
    { PART_V, ENCODER "self_attn.v_proj" },
    { PART_O, ENCODER "self_attn.out_proj" },
    { PART_UP, ENCODER "mlp.fc1" },
    { PART_DOWN, ENCODER "mlp.fc2" },
    { 0 },
};
static const struct family_name dinov2_names[] = {
    DINOV2,
    { PART_UP, ENCODER1 "mlp.fc1" },
    { PART_DOWN, ENCODER1 "mlp.fc2" },
    { 0 },
};
static const struct family_name dinov2_swiglu_names[] = {
    DINOV2,
    { PART_GATE_UP, ENCODER1 "mlp.weights_in" },
    { PART_DOWN, ENCODER1 "mlp.weights_out" },
    { 0 },
};
static const struct family_name dinov3_names[] = {
    { PART_ATTN_NORM, "layer.{i}.norm1" },
    { PART_MLP_NORM, "layer.{i}.norm2" },
    { PART_ATTN_POST, "layer.{i}.layer_scale1.lambda1" },
    { PART_MLP_POST, "layer.{i}.layer_scale2.lambda1" },
    { PART_Q, "layer.{i}.attention.q_proj" },
    { PART_K, "layer.{i}.attention.k_proj" },
    { PART_V, "layer.{i}.attention.v_proj" },
    { PART_O, "layer.{i}.attention.o_proj" },
    { PART_GATE, "layer.{i}.mlp.gate_proj" },
    { PART_UP, "layer.{i}.mlp.up_proj" },
    { PART_DOWN, "layer.{i}.mlp.down_proj" },
    { 0 },
};
static const struct family_name vit_names[] = {
    { PART_NORM, "layernorm" },
    { PART_ATTN_NORM, ENCODER1 "layernorm_before" },
    { PART_MLP_NORM, ENCODER1 "layernorm_after" },
    ATTENTION1,
    { PART_UP, ENCODER1 "intermediate.dense" },
    { PART_DOWN, ENCODER1 "output.dense" },
    { 0 },
};

/* ---- families ---- */

#define VISION_FORM                                               \
    .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true }, \
    .both_ways = true, .learned = true
#define BASE_SIZES .sizes = { 768, 3072, 12, 12 }

#define CLIP                                                         \
    .cls = "embeddings.class_embedding",                             \
    .positions = "embeddings.position_embedding.weight",             \
    .patch = "embeddings.patch_embedding", .before = "pre_layrnorm", \
    .flat = true, .pool = POOL_PROJECTED, .image_size = 224, .patch_size = 32
#define CLIP_FAMILY                                                    \
    .root = "vision_model.", .names = clip_names,                      \
    .form = { VISION_FORM, .plain_mlp = true, .act = ACT_QUICK_GELU }, \
    .norm_eps = 1e-5, BASE_SIZES

#define SIGLIP                                           \
    .positions = "embeddings.position_embedding.weight", \
    .patch = "embeddings.patch_embedding", .flat = true, \
    .pool = POOL_ATTENTION, .image_size = 224, .patch_size = 16
#define SIGLIP_FAMILY                                                 \
    .root = "vision_model.", .names = clip_names,                     \
    .form = { VISION_FORM, .plain_mlp = true, .act = ACT_GELU_TANH }, \
    BASE_SIZES

#define TOKENS .cls = "embeddings.cls_token", .image_size = 224
#define POSITIONS                                  \
    .positions = "embeddings.position_embeddings", \
    .patch = "embeddings.patch_embeddings.projection"
#define DINOV2_FAMILY                                                          \
    BASE_SIZES, .names = dinov2_names,                                         \
                .form = { VISION_FORM, .plain_mlp = true, .layer_scale = true, \
                          .act = ACT_GELU_ERF }
#define DINOV2_SWIGLU                                            \
    .variant = true, BASE_SIZES, .names = dinov2_swiglu_names,   \
    .form = { VISION_FORM, .layer_scale = true, .gate_up = true, \
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

const struct model_family family_vision[] = {
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
      .names = dinov3_names,
      .form = { .norm = { NORM_LAYER, .places = NORM_PRE, .has_bias = true },
                .plain_mlp = true,
                .both_ways = true,
                .layer_scale = true,
                .act = ACT_GELU_ERF },
      .norm_eps = 1e-5,
      .theta = 100,
      .sizes = { 384, 1536, 12, 6 } },
    { "vit",
      { "ViTModel" },
      .root = "vit.",
      .vision = &vit,
      .names = vit_names,
      .form = { VISION_FORM, .plain_mlp = true, .act = ACT_GELU_ERF },
      .norm_eps = 1e-12,
      BASE_SIZES },
    { 0 },
};
