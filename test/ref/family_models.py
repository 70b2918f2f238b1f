# SPDX-License-Identifier: ISC
"""Tiny random models of each family, with the files that the Hub has: each
family's own keys of config.json, names of tensors, shapes and layouts.

MODELS has a line for each FAMILY:VARIANT; family_parts.py says how values are.
"""
import json
import os

import numpy as np

import mkst
from family_experts import (deepseek_v2, deepseek_v3, glm4_moe,  # noqa: F401
                            gpt_oss, mixtral, qwen2_moe)
from family_hybrids import qwen3_5, qwen3_5_moe, qwen3_next  # noqa: F401
from family_parts import (EPS, VISION, VOCAB, Maker, decoder, gemma_qk, outer,
                          with_sizes, with_vision)


def gpt2(seed, v):
    h, n, size = 48, 3, 100 if v == "inner" else 192
    c = dict(activation_function="gelu_new", architectures=["GPT2LMHeadModel"],
             attn_pdrop=0.1, embd_pdrop=0.1, initializer_range=0.02,
             layer_norm_epsilon=EPS, model_type="gpt2", n_ctx=64, n_embd=h,
             n_head=4, n_layer=n, n_positions=64, resid_pdrop=0.1,
             summary_type="cls_index", vocab_size=VOCAB)
    if v == "inner":
        c.update(n_inner=size, scale_attn_by_inverse_layer_idx=True,
                 reorder_and_upcast_attn=True)
    if v == "unscaled":
        c.update(scale_attn_weights=False, n_inner=None)
    if v == "untied":
        c.update(tie_word_embeddings=False)
    m = Maker(seed, "transformer." if v in ("prefix", "untied") else "")
    m.embedding("wte", VOCAB, h)
    m.embedding("wpe", 64, h)
    for i in range(n):
        at = "h.%d." % i
        m.norm(at + "ln_1", h, True)
        m.t["%s%sattn.bias" % (m.at, at)] = np.tril(np.ones((1, 1, 64, 64)))
        if v == "prefix":
            m.t["%s%sattn.masked_bias" % (m.at, at)] = np.array(-1e4)
        gain = 0.8 if v == "unscaled" else 1.4
        m.matrix(at + "attn.c_attn", 3 * h, h, True, gain, conv=True)
        m.matrix(at + "attn.c_proj", h, h, True, conv=True)
        m.norm(at + "ln_2", h, True)
        m.gelu_mlp(at + "mlp.c_fc", at + "mlp.c_proj", size, h, conv=True)
    m.norm("ln_f", h, True)
    m.at = ""
    if v in ("prefix", "untied"):
        m.matrix("lm_head", VOCAB, h)
    return c, m.t


def gpt_neox(seed, v):
    h, n, size = 64, 3, 88
    c = dict(architectures=["GPTNeoXForCausalLM"], bos_token_id=0,
             eos_token_id=0, hidden_act="gelu", hidden_size=h,
             initializer_range=0.02, intermediate_size=size,
             layer_norm_eps=EPS, max_position_embeddings=64,
             model_type="gpt_neox", num_attention_heads=4,
             num_hidden_layers=n, rotary_emb_base=10000, rotary_pct=0.25,
             tie_word_embeddings=False, torch_dtype="float16", use_cache=True,
             use_parallel_residual=True, vocab_size=VOCAB)
    if v == "sequential":
        c.update(use_parallel_residual=False, hidden_act="gelu_fast",
                 rotary_pct=1.0, rotary_emb_base=500)
    if v == "rope-parameters":
        del c["rotary_pct"], c["rotary_emb_base"]
        c.update(rope_parameters=dict(partial_rotary_factor=0.5,
                                      rope_theta=700.0, rope_type="default"))
    if v == "defaults":
        for key in ("rotary_pct", "rotary_emb_base", "use_parallel_residual",
                    "tie_word_embeddings"):
            del c[key]
    if v == "no-bias":
        c.update(attention_bias=False)
    m = Maker(seed, "gpt_neox.")
    m.embedding("embed_in", VOCAB, h, 0.7)
    for i in range(n):
        at, bias = "layers.%d." % i, v != "no-bias"
        m.norm(at + "input_layernorm", h, True)
        m.norm(at + "post_attention_layernorm", h, True)
        m.matrix(at + "attention.query_key_value", 3 * h, h, bias)
        m.matrix(at + "attention.dense", h, h, bias)
        m.gelu_mlp(at + "mlp.dense_h_to_4h", at + "mlp.dense_4h_to_h", size, h)
        at = m.at + at + "attention."
        m.t[at + "bias"] = ("BOOL", [1, 1, 64, 64], np.tril(
            np.ones((64, 64), np.uint8)).tobytes())
        m.t[at + "masked_bias"] = mkst.entry(np.float32(-1e9))
        m.t[at + "rotary_emb.inv_freq"] = mkst.entry(np.ones(2, "<f4"))
    m.norm("final_layer_norm", h, True)
    m.at = ""
    m.matrix("embed_out", VOCAB, h)
    return c, m.t


GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm",
               "pre_feedforward_layernorm", "post_feedforward_layernorm")
# bf16's nearest to sqrt(40) is 0.2 % from it.
GEMMA = dict(hidden_size=40, head_dim=16, rms_norm_eps=EPS,
             rope_theta=10000.0, attention_bias=False)


def gemma(seed, v):
    c = with_sizes("gemma", "GemmaForCausalLM", hidden_act="gelu",
                   torch_dtype="float32" if v == "f32" else "bfloat16",
                   **GEMMA)
    if v == "f32":
        c.update(hidden_act="gelu_pytorch_tanh", hidden_activation=None,
                 num_key_value_heads=1)
    return decoder(seed, c, offset=1, gelu=True)


def gemma2(seed, v):
    c = with_sizes("gemma2", "Gemma2ForCausalLM",
                   hidden_act="gelu_pytorch_tanh",
                   hidden_activation="gelu_pytorch_tanh",
                   attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
                   cache_implementation="hybrid", query_pre_attn_scalar=24,
                   sliding_window=4, sliding_window_size=4,
                   torch_dtype="bfloat16", **dict(GEMMA, num_hidden_layers=4))
    if v == "caps":
        c.update(attn_logit_softcapping=6.0, final_logit_softcapping=4.0,
                 torch_dtype="float32", layer_types=[
                     "full_attention", "sliding_attention"] * 2)
    if v == "no-caps":
        c.update(attn_logit_softcapping=None, final_logit_softcapping=None,
                 torch_dtype="float32", query_pre_attn_scalar=256)
        return decoder(seed, c, norms=GEMMA_NORMS, offset=1, gelu=True)
    return decoder(seed, c, norms=GEMMA_NORMS, offset=1, gain=4.0, gelu=True,
                   embedding=0.8)


def gemma3_config(v):
    c = with_sizes("gemma3_text", "Gemma3ForCausalLM",
                   hidden_activation="gelu_pytorch_tanh",
                   attn_logit_softcapping=None, final_logit_softcapping=None,
                   cache_implementation="hybrid", query_pre_attn_scalar=24,
                   rope_local_base_freq=100.0, rope_scaling=None,
                   sliding_window=4, sliding_window_pattern=3,
                   torch_dtype="bfloat16",
                   **dict(GEMMA, num_hidden_layers=6, rope_theta=5000.0))
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    if v == "layer-types":
        del c["sliding_window_pattern"]
        c.update(layer_types=kinds[1:] + kinds[:1], _sliding_window_pattern=3)
    if v in ("linear", "multimodal"):
        c.update(rope_scaling=dict(factor=8.0, rope_type="linear"))
    if v in ("rope-parameters", "multimodal-5"):
        for key in ("rope_theta", "rope_local_base_freq", "rope_scaling",
                    "sliding_window_pattern", "cache_implementation"):
            del c[key]
        c.update(layer_types=kinds, rope_parameters=dict(
            full_attention=dict(factor=8.0, rope_theta=5000.0,
                                rope_type="linear"),
            sliding_attention=dict(rope_theta=100.0, rope_type="default")))
    return c


def gemma3_text(seed, v):
    c = gemma3_config(v)
    return decoder(seed, c, norms=GEMMA_NORMS, offset=1, qk=gemma_qk,
                   gelu=True)


def gemma3(seed, v):
    c = gemma3_config("multimodal-5" if v == "model-first" else "multimodal")
    if v == "defaults": # what the Hub's text_config leaves to the class
        for key in ("num_attention_heads", "num_key_value_heads", "head_dim",
                    "rms_norm_eps", "rope_theta", "rope_local_base_freq",
                    "query_pre_attn_scalar", "sliding_window_pattern",
                    "hidden_activation", "attention_bias",
                    "attn_logit_softcapping", "final_logit_softcapping"):
            del c[key]
        c.update(num_hidden_layers=2, layer_types=[
            "sliding_attention", "full_attention"])
    at, tower = "language_model.model.", ""
    if v == "model-first":
        at, tower = "model.language_model.", "model."
    made = dict(dict(num_attention_heads=8, num_key_value_heads=4,
                     head_dim=256), **c)
    _, t = decoder(seed, made, at=at, norms=GEMMA_NORMS, offset=1, qk=gemma_qk,
                   gelu=True)
    t = with_vision(seed, t, tower + "vision_tower.vision_model.encoder",
                    tower + "multi_modal_projector")
    return outer(c, "gemma3", "Gemma3ForConditionalGeneration",
                 vision_config=dict(VISION, model_type="siglip_vision_model"),
                 image_token_index=96, mm_tokens_per_image=4), t


def phi3(seed, v):
    c = with_sizes("phi3", "Phi3ForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=500.0, rope_scaling=None,
                   sliding_window=7, tie_word_embeddings=False,
                   original_max_position_embeddings=64, embd_pdrop=0.0,
                   resid_pdrop=0.0, torch_dtype="bfloat16")
    if v.startswith("longrope"):
        factors = 1 + np.arange(6) / 2
        c.update(sliding_window=None, original_max_position_embeddings=16,
                 rope_scaling=dict(type="longrope", short_factor=list(factors),
                                   long_factor=list(factors[::-1] * 3)))
    if v == "longrope-su": # its first name
        c["rope_scaling"].update(type="su")
    if v == "longrope-partial": # Phi-4-mini
        c.update(partial_rotary_factor=0.5, sliding_window=64,
                 tie_word_embeddings=True)
        for key in ("short_factor", "long_factor"):
            c["rope_scaling"][key] = c["rope_scaling"][key][:3]
    head = None if c["tie_word_embeddings"] else "lm_head"
    return decoder(seed, c, fused_qkv=True, fused_mlp=True, head=head)


def granite(seed, v):
    c = with_sizes("granite", "GraniteForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=700.0, rope_scaling=None,
                   attention_bias=False, mlp_bias=False,
                   attention_multiplier=0.15, embedding_multiplier=3.0,
                   residual_multiplier=0.4, logits_scaling=2.0,
                   tie_word_embeddings=v == "tied", torch_dtype="bfloat16")
    if v == "defaults":
        for key in ("attention_multiplier", "embedding_multiplier",
                    "residual_multiplier", "logits_scaling"):
            del c[key]
        return decoder(seed, c, gain=0.8, head="lm_head")
    if v == "tied":
        return decoder(seed, c)
    c.update(attention_bias=True, mlp_bias=True, tie_word_embeddings=False)
    return decoder(seed, c, qkv_bias=True, o_bias=True, mlp_bias=True,
                   head="lm_head")


def smollm3(seed, v):
    c = with_sizes("smollm3", "SmolLM3ForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=900.0, rope_scaling=None,
                   attention_bias=False, mlp_bias=False, layer_types=[
                       "full_attention"] * 5, no_rope_layer_interval=4,
                   no_rope_layers=[1, 1, 1, 0, 1], sliding_window=None,
                   use_sliding_window=False, max_window_layers=28,
                   num_hidden_layers=5, torch_dtype="bfloat16")
    if v == "interval":
        for key in ("layer_types", "no_rope_layers", "rope_theta"):
            del c[key]
        c.update(no_rope_layer_interval=2)
    if v == "window":
        del c["layer_types"]
        c.update(use_sliding_window=True, sliding_window=5)
    if v == "irregular":
        c.update(no_rope_layers=[0, 1, 1, 0, 0], tie_word_embeddings=True)
    return decoder(seed, c)


def olmo_qk(m, name, heads, d):
    m.norm(name + "_norm", heads * d)


OLMO_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


def olmo2(seed, v):
    c = with_sizes("olmo2", "Olmo2ForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=700, rope_scaling=None,
                   attention_bias=False, tie_word_embeddings=False)
    if v == "mha":
        c.update(num_key_value_heads=4)
    return decoder(seed, c, norms=OLMO_NORMS, qk=olmo_qk, head="lm_head")


def olmo3(seed, v):
    yarn = dict(rope_type="yarn", factor=8.0, attention_factor=1.2,
                beta_fast=32.0, beta_slow=1.0,
                original_max_position_embeddings=16)
    c = with_sizes("olmo3", "Olmo3ForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=700, rope_scaling=yarn,
                   attention_bias=False, tie_word_embeddings=False,
                   sliding_window=5, num_hidden_layers=5, layer_types=[
                       "sliding_attention", "sliding_attention",
                       "sliding_attention", "full_attention",
                       "sliding_attention"], torch_dtype="bfloat16")
    if v == "no-types":
        del c["layer_types"]
    if v == "rope-parameters":
        c["rope_parameters"] = dict(c.pop("rope_scaling"),
                                    rope_theta=c.pop("rope_theta"))
    return decoder(seed, c, norms=OLMO_NORMS, qk=olmo_qk, head="lm_head")


def glm4(seed, v):
    c = with_sizes("glm4", "Glm4ForCausalLM", hidden_act="silu", head_dim=16,
                   rms_norm_eps=EPS, rope_theta=600.0, attention_bias=False,
                   partial_rotary_factor=0.5, tie_word_embeddings=False)
    if v == "bias":
        c.update(attention_bias=True, torch_dtype="bfloat16")
    return decoder(seed, c, fused_mlp=True, head="lm_head", qkv_bias=v == "bias",
                   norms=("input_layernorm", "post_self_attn_layernorm",
                          "post_attention_layernorm", "post_mlp_layernorm"))


def phi_qk(m, name, heads, d):
    m.norm(name + "_layernorm", d, True)


def phi(seed, v):
    c = with_sizes("phi", "PhiForCausalLM", hidden_act="gelu_new",
                   hidden_size=40, layer_norm_eps=EPS, rope_theta=600.0,
                   partial_rotary_factor=0.4, qk_layernorm=False,
                   rope_scaling=None, num_key_value_heads=4, embd_pdrop=0.0,
                   resid_pdrop=0.1, tie_word_embeddings=False)
    if v == "qk-norm":
        c.update(qk_layernorm=True, hidden_size=48)
        del c["partial_rotary_factor"] # 0.5
    made = decoder(seed, c, norms=("input_layernorm",), norm_bias=True,
                   qk=phi_qk if v == "qk-norm" else None,
                   qkv_bias=True, o="dense", o_bias=True, mlp=("fc1", "fc2"),
                   mlp_bias=True, final="final_layernorm", head="lm_head",
                   head_bias=True)
    if v == "null-kv":
        c.update(num_key_value_heads=None)
    return made


def stablelm(seed, v):
    parallel, qk_norm = v != "", v == "qk-norm"
    c = with_sizes("stablelm", "StableLmForCausalLM", hidden_act="silu",
                   hidden_size=64, layer_norm_eps=EPS, rope_theta=600,
                   partial_rotary_factor=0.25, qk_layernorm=qk_norm,
                   use_parallel_residual=parallel, use_qkv_bias=not parallel,
                   tie_word_embeddings=False, torch_dtype="bfloat16")

    def qk(m, name, heads, d):
        for i in range(heads):
            m.norm("%s_layernorm.norms.%d" % (name, i), d)

    return decoder(seed, c, norm_bias=True, qkv_bias=not parallel,
                   norms=("input_layernorm",) if parallel else None,
                   qk=qk if qk_norm else None, head="lm_head")


def starcoder2(seed, v):
    c = with_sizes("starcoder2", "Starcoder2ForCausalLM",
                   activation_function="gelu_pytorch_tanh",
                   hidden_act="gelu_pytorch_tanh", norm_epsilon=EPS,
                   layer_norm_epsilon=1e-5, norm_type="layer_norm",
                   mlp_type="default", rope_theta=800.0, sliding_window=6,
                   use_bias=True, embedding_dropout=0.0, residual_dropout=0.0)
    bias = v != "no-bias"
    if v == "no-bias":
        c.update(use_bias=False, sliding_window=None)
    return decoder(seed, c, norm_bias=True, qkv_bias=bias, o_bias=bias,
                   mlp_bias=bias, mlp=("c_fc", "c_proj"), gelu=not bias)


def cohere_qk(m, name, heads, d):
    m.norm(name + "_norm", (heads, d))


def cohere(seed, v):
    c = with_sizes("cohere", "CohereForCausalLM", hidden_act="silu",
                   layer_norm_eps=EPS, rope_theta=800.0, logit_scale=0.25,
                   attention_bias=False, use_qk_norm=v == "qk-norm",
                   torch_dtype="float16")
    return decoder(seed, c, norms=("input_layernorm",), embedding=0.5,
                   qk=cohere_qk if v == "qk-norm" else None)


def cohere2(seed, v):
    c = with_sizes("cohere2", "Cohere2ForCausalLM", hidden_act="silu",
                   head_dim=12, layer_norm_eps=EPS, rope_theta=900.0,
                   logit_scale=0.25, attention_bias=False, layer_switch=4,
                   num_hidden_layers=5, position_embedding_type="rope_gptj",
                   order_of_interleaved_layers="local_attn_first",
                   rotary_pct=1.0, sliding_window=5, sliding_window_pattern=4,
                   use_embedding_sharing=True, use_gated_activation=True,
                   use_parallel_block=True, use_parallel_embedding=False,
                   use_qk_norm=False, torch_dtype="bfloat16")
    if v == "layer-types":
        del c["sliding_window_pattern"]
        c.update(layer_types=["full_attention", "sliding_attention"] * 2
                 + ["sliding_attention"])
    return decoder(seed, c, norms=("input_layernorm",), embedding=0.5)


def qwen2_5_vl(seed, v):
    c = with_sizes("qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
                   hidden_act="silu", rms_norm_eps=EPS, rope_theta=3000.0,
                   max_window_layers=70, sliding_window=32768,
                   use_sliding_window=False, tie_word_embeddings=False,
                   rope_scaling=dict(type="mrope", mrope_section=[2, 2, 2]),
                   torch_dtype="bfloat16")
    towers, at = ["visual.blocks"], "model."
    if v == "text-config":
        towers, at = ["model.visual.blocks"], "model.language_model."
    _, t = decoder(seed, c, at=at, qkv_bias=True, head="lm_head")
    vision = dict(VISION, model_type="qwen2_5_vl")
    t = with_vision(seed, t, *towers)
    if v == "text-config":
        c.update(model_type="qwen2_5_vl_text", layer_types=[
            "full_attention"] * 3, rope_scaling=None, rope_parameters=dict(
                mrope_section=[2, 2, 2], rope_theta=c.pop("rope_theta"),
                rope_type="default"))
        return outer(c, "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration",
                     image_token_id=95, tie_word_embeddings=False,
                     vision_config=vision), t
    return dict(c, image_token_id=95, vision_start_token_id=94,
                vision_config=vision), t


def llama(seed, v):
    c = with_sizes("llama", "LlamaForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=3000.0,
                   tie_word_embeddings=False)
    return decoder(seed, c, head="lm_head")


def llava(seed, v):
    c = with_sizes("llama", "LlamaForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=3000.0)
    at, head, tower = "language_model.model.", "language_model.lm_head", ""
    if v == "model-first":
        at, head, tower = "model.language_model.", "lm_head", "model."
    _, t = decoder(seed, c, at=at, head=head)
    t = with_vision(seed, t, tower + "vision_tower.vision_model.encoder",
                    tower + "multi_modal_projector.linear_1")
    return outer(c, "llava", "LlavaForConditionalGeneration",
                 tie_word_embeddings=False, image_token_index=96,
                 vision_feature_layer=-2, projector_hidden_act="gelu",
                 vision_config=dict(VISION, model_type="clip_vision_model")), t


def mistral3(seed, v):
    c = with_sizes("mistral", "MistralForCausalLM", hidden_act="silu",
                   rms_norm_eps=EPS, rope_theta=2000.0, head_dim=16,
                   sliding_window=None)
    _, t = decoder(seed, c, at="language_model.model.",
                   head="language_model.lm_head")
    t = with_vision(seed, t, "vision_tower.transformer",
                    "multi_modal_projector.patch_merger")
    return outer(c, "mistral3", "Mistral3ForConditionalGeneration",
                 image_token_index=96, spatial_merge_size=2,
                 multimodal_projector_bias=False, vision_feature_layer=-1,
                 tie_word_embeddings=False,
                 vision_config=dict(VISION, model_type="pixtral")), t


# FAMILY:VARIANT, and what of it is easily read wrongly
MODELS = {
    "llama": "what the others differ from",
    "gpt2": "names without prefix, a mask to ignore, [in, out] weights, wpe, "
            "biases, n_inner absent, tied though nothing says so",
    "gpt2:prefix": "transformer., masked_bias, an lm_head.weight that is not "
                   "read",
    "gpt2:inner": "n_inner, scale_attn_by_inverse_layer_idx",
    "gpt2:unscaled": "scale_attn_weights false, n_inner null",
    "gpt2:untied": "tie_word_embeddings false",
    "gpt_neox": "query_key_value by head, parallel residual, rotary_pct 1/4, "
                "gelu by erf, buffers to ignore",
    "gpt_neox:sequential": "use_parallel_residual false, gelu_fast, "
                           "rotary_emb_base",
    "gpt_neox:rope-parameters": "transformers 5's keys of RoPE",
    "gpt_neox:defaults": "rotary_pct, rotary_emb_base, use_parallel_residual "
                         "absent",
    "gpt_neox:no-bias": "attention_bias false",
    "gemma": "hidden_act \"gelu\" means tanh; 1 + w; bf16: embeddings times a "
             "rounded sqrt(h); head_dim is not h / heads",
    "gemma:f32": "embeddings times sqrt(h), one key-value head",
    "gemma2": "softcaps, norms around each block, windows on even layers, "
              "query_pre_attn_scalar",
    "gemma2:caps": "small softcaps, before the mask; layer_types",
    "gemma2:no-caps": "softcaps null",
    "gemma3_text": "two thetas, sliding_window_pattern, q_norm of 1 + w",
    "gemma3_text:layer-types": "layer_types in place of the pattern",
    "gemma3_text:linear": "rope_scaling on full layers only",
    "gemma3_text:rope-parameters": "transformers 5's keys: of each kind",
    "gemma3": "text_config, language_model.model., a vision tower",
    "gemma3:model-first": "text_config, model.language_model.",
    "gemma3:defaults": "text_config without heads, head_dim, thetas",
    "phi3": "qkv_proj and gate_up_proj, a window on all layers",
    "phi3:longrope": "factors by the prompt's length, and one on cos and sin",
    "phi3:longrope-partial": "of half of a head; tied",
    "phi3:longrope-su": "the same under its first name",
    "granite": "four multipliers, biases",
    "granite:tied": "without biases",
    "granite:defaults": "no multipliers: scores are not divided",
    "smollm3": "a layer without RoPE, tied though nothing says so",
    "smollm3:interval": "no_rope_layer_interval",
    "smollm3:irregular": "no_rope_layers that no interval gives",
    "smollm3:window": "windows on layers without RoPE",
    "olmo2": "norms after blocks only, q_norm of all heads as one row",
    "olmo2:mha": "as many key-value heads",
    "olmo3": "windows on 3 of 4 layers, yarn on the fourth only",
    "olmo3:no-types": "the same without layer_types",
    "olmo3:rope-parameters": "transformers 5's keys: one theta for both tables",
    "glm4": "four norms whose names mislead, RoPE in pairs on half of a head",
    "glm4:bias": "attention_bias: of q, k, v",
    "phi": "one norm for both blocks, dense, rotary 0.4, lm_head.bias",
    "phi:null-kv": "num_key_value_heads null",
    "phi:qk-norm": "q_layernorm of each head; rotary 0.5 though nothing says "
                   "so",
    "stablelm": "LayerNorm, biases of q, k, v, RoPE on a quarter",
    "stablelm:parallel": "one norm for both blocks",
    "stablelm:qk-norm": "the same, and a norm of each head, with its own weights",
    "starcoder2": "c_fc, c_proj, biases, a window, norm_epsilon, tied",
    "starcoder2:no-bias": "use_bias false, no window",
    "cohere": "LayerNorm without bias, pairs, logit_scale, tied",
    "cohere:qk-norm": "weights of q_norm [heads, head_dim]",
    "cohere2": "windows on 3 of 4 layers, no RoPE on the fourth",
    "cohere2:layer-types": "layer_types in place of the pattern",
    "qwen2_5_vl": "model. next to visual., mrope that is RoPE",
    "qwen2_5_vl:text-config": "text_config, model.language_model.",
    "llava": "text_config llama, language_model.model.",
    "llava:model-first": "model.language_model., lm_head",
    "mistral3": "text_config mistral, head_dim is not h / heads",
    "mixtral": "w1, w2, w3 of experts; weights of the two are normalized",
    "mixtral:window": "a window on all layers, head_dim is not h / heads",
    "mixtral:defaults": "8 experts, of which 2, though nothing says so",
    "qwen2_moe": "weights as all experts' softmax has them, a gated shared "
                 "expert, biases of q, k, v",
    "qwen2_moe:dense": "decoder_sparse_step, mlp_only_layers",
    "qwen2_moe:normalized": "norm_topk_prob true",
    "qwen2_moe:window": "layer_types",
    "gpt_oss": "sinks, biases, a router's bias, the chosen's softmax, experts "
               "[experts, in, out] of which even columns are gates, clamped; "
               "yarn with truncate false; windows on even layers",
    "gpt_oss:mxfp4": "MXFP4 experts, whose blocks are of rows",
    "gpt_oss:rope-parameters": "transformers 5's keys, no biases, no "
                               "layer_types",
    "deepseek_v3": "latents whose norms have eps 1e-6, mscale^2 on the scale, "
                   "sigmoid, groups by their best two, a dense layer, a layer "
                   "more than there are",
    "deepseek_v3:negative": "masked groups count 0, more than those that are "
                            "kept",
    "deepseek_v3:plain": "q_proj, no interleaving, weights not normalized, no "
                         "groups, two shared experts in one",
    "deepseek_v3:mscale": "mscale that is not mscale_all_dim, attention_bias",
    "deepseek_v3:small": "scores whose sums are about 1e-20",
    "deepseek_v3:dense": "no layer with experts",
    "deepseek_v3:fp8": "blocks of FP8",
    "deepseek_v3:kimi": "Kimi K2, whose model_type is kimi_k2; beta_fast is "
                        "beta_slow",
    "deepseek_v3:kimi-images": "Kimi K2.5: language_model., next to a tower",
    "deepseek_v2": "V2-Lite: q_proj, all experts' softmax, greedy",
    "deepseek_v2:groups": "q_a_proj, groups by their best, routed_scaling_factor",
    "deepseek_v2:plain": "no rope_scaling, attention_bias, no dense layers",
    "deepseek_v2:dense": "no layer with experts",
    "glm4_moe": "GLM-4.5 Air: a half turned, biases of q, k, v, V3's router "
                "without groups",
    "glm4_moe:qk-norm": "GLM-4.5: q_norm of each head; groups",
    "glm4_moe:plain": "no biases, weights not normalized",
    "qwen3_next": "gated DeltaNet, whose q, k, v, z lie by key head, a gate on "
                  "attention's output, 1 + w, a quarter turned",
    "qwen3_next:dense": "mlp_only_layers, layer_types, three value heads for "
                        "each key head, three taps",
    "qwen3_next:defaults": "every fourth layer is full though nothing says so; a "
                           "value head for each key head",
    "qwen3_next:bias": "attention_bias",
    "qwen3_next:small": "queries and keys next to which l2's 1e-6 is much",
    "qwen3_5": "matrices apart, model.language_model., next to a vision tower",
    "qwen3_5:tied": "tied",
    "qwen3_5:text": "the text model alone",
    "qwen3_5_moe": "all experts' gates and ups as one tensor",
    "qwen3_5_moe:fp8": "blocks of FP8 of all experts' tensors",
    "qwen3_5_moe:text": "the text model alone",
}
# Traps that only these models are made to show.
SHOWN_BY = {"no 1e-20": ("deepseek_v3:small",),
            "masked groups as -inf": ("deepseek_v3:negative",),
            "eps of l2 outside": ("qwen3_next:small",)}
# Lengths of the prompts of tests, where not one of 24.
LENGTHS = {"phi3:longrope": (12, 16, 17, 40), "phi3:longrope-su": (12, 40),
           "phi3:longrope-partial": (12, 40), "qwen3_next:dense": (24, 150),
           "qwen3_5:text": (24, 150), "qwen3_5_moe:text": (24, 100)}


def make(name, directory, seed=1):
    family, _, variant = name.partition(":")
    if name not in MODELS:
        raise SystemExit("family_ref: no %s (see list)" % name)
    config, tensors = globals()[family](seed, variant)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    kind = config.get("torch_dtype", "float32")
    encode = {"bfloat16": mkst.bf16, "float16": lambda t: np.asarray(t, "<f2"),
              "float32": lambda t: np.asarray(t, "<f4")}[kind]
    mkst.save(os.path.join(directory, "model.safetensors"), {
        x: t if isinstance(t, tuple) else encode(t)
        for x, t in tensors.items()}, {"format": "pt"})
    rng = np.random.default_rng(seed + 2)
    with open(os.path.join(directory, "ids"), "w") as f:
        for n in LENGTHS.get(name, (24,)):
            f.write(",".join(map(str, rng.integers(0, VOCAB, n))) + "\n")


def parse(text):
    return np.array([int(x) for x in text.replace(",", " ").split()])


def prompts(directory):
    with open(os.path.join(directory, "ids")) as f:
        return [parse(line) for line in f]
