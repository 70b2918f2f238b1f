/* SPDX-License-Identifier: ISC */
/*
 * The rows of families, and what those of text call their tensors and keys:
 * tables that the rows refer to.  Lists end with a row of 0.
 */
#ifndef CORE_MODEL_FAMILY_KEYS_H
#define CORE_MODEL_FAMILY_KEYS_H

#include "core/model/family.h"

extern const struct model_family family_text[], family_vision[];

extern const struct family_name family_gpt2_names[], family_gpt_neox_names[],
    family_sandwich_names[], family_olmo_names[], family_phi_names[],
    family_stablelm_names[], family_starcoder2_names[];
extern const struct family_alias family_gpt2_aliases[],
    family_gpt_neox_aliases[], family_gemma_aliases[],
    family_layer_norm_eps_aliases[], family_starcoder2_aliases[];
extern const struct family_key family_attention_bias_keys[],
    family_both_biases_keys[], family_qwen3_5_keys[], family_qwen3_next_keys[],
    family_qwen3_5_moe_keys[], family_gpt2_keys[], family_gpt_neox_keys[],
    family_gemma_keys[], family_gemma2_keys[], family_gemma3_keys[],
    family_granite_keys[], family_qkv_bias_keys[], family_phi_keys[],
    family_stablelm_keys[], family_starcoder2_keys[], family_cohere_keys[],
    family_cohere2_keys[];

extern const struct family_name family_gpt_oss_names[], family_mixtral_names[],
    family_qwen2_moe_names[];
extern const struct family_alias family_gpt_oss_aliases[],
    family_mixtral_aliases[], family_routed_aliases[];
extern const struct family_key family_gpt_oss_keys[], family_qwen2_moe_keys[],
    family_glm4_moe_keys[], family_deepseek_v2_keys[],
    family_deepseek_v3_keys[];
extern const struct family_experts family_qwen_moe_experts,
    family_qwen3_next_experts, family_qwen3_5_moe_experts,
    family_mixtral_experts, family_gpt_oss_experts, family_glm4_moe_experts,
    family_deepseek_v2_experts, family_deepseek_v3_experts;

#endif
