# SPDX-License-Identifier: ISC
"""Makers of tiny models of families with experts, as family_models.py's."""
import numpy as np

import mkst
import packed_forms
from family_parts import (EPS, VISION, VOCAB, decoder, outer, with_sizes,
                          with_vision)

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def in_fp8(c, t, block=16):
    """Projections in blocks of FP8, as the Hub's FP8 files have them."""
    rng = np.random.default_rng(7)
    c["quantization_config"] = dict(
        activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
        weight_block_size=[block, block], modules_to_not_convert=["lm_head"] + [
            x[:-len(".weight")] for x in t if "in_proj_a" in x
            or "in_proj_b" in x])
    for name in [x for x in t if "_proj" in x and "layers." in x and
                 "in_proj_a" not in x and "in_proj_b" not in x]:
        w = t.pop(name)
        rows, cols = (-(-x // block) for x in w.shape[-2:])
        s = rng.uniform(0.5, 1, w.shape[:-2] + (rows, cols)) * np.abs(
            w).max() / 448
        s = np.asarray(s, "<f4")
        by = s.repeat(block, -2).repeat(block, -1)
        w = w / by[..., :w.shape[-2], :w.shape[-1]]
        e4m3 = packed_forms.E4M3
        t[name] = packed_forms.pack_e4m3(np.copysign(
            e4m3[packed_forms.nearest(w, e4m3)], w))
        t[name + "_scale_inv"] = mkst.entry(s)
    return c, t


def router(m, name, n, h, bias=False):
    """Scores that differ enough for f32 to choose as float64 does."""
    m.matrix(name, n, h, bias, gain=2.0)


def gated(m, name, size, h, parts=PROJECTIONS):
    for x, rows, cols in zip(parts, (size, size, h), (h, h, size)):
        m.matrix(name + x, rows, cols)


def separate(m, name, n, size, h, parts=PROJECTIONS):
    for e in range(n):
        gated(m, "%s.%d." % (name, e), size, h, parts)


def mixtral(seed, v):
    c = with_sizes("mixtral", "MixtralForCausalLM", hidden_act="silu",
                   intermediate_size=20, num_experts_per_tok=2,
                   num_local_experts=5, output_router_logits=False,
                   rms_norm_eps=EPS, rope_theta=3000.0, sliding_window=None,
                   router_aux_loss_coef=0.02, tie_word_embeddings=False,
                   torch_dtype="bfloat16")
    if v == "defaults": # what its class has where nothing is said
        c.update(num_local_experts=8, rope_parameters=dict(
            rope_theta=c.pop("rope_theta"), rope_type="default"))
        for key in ("num_local_experts", "num_experts_per_tok",
                    "tie_word_embeddings", "hidden_act"):
            del c[key]
    if v == "window":
        c.update(sliding_window=5, num_experts_per_tok=3, head_dim=16)

    def experts(m, at, i):
        h, n = c["hidden_size"], c.get("num_local_experts", 8)
        router(m, at + "block_sparse_moe.gate", n, h)
        separate(m, at + "block_sparse_moe.experts", n, c["intermediate_size"],
                 h, ("w1", "w3", "w2"))
        return True

    return decoder(seed, c, head="lm_head", experts=experts)


def qwen2_moe(seed, v):
    c = with_sizes("qwen2_moe", "Qwen2MoeForCausalLM", hidden_act="silu",
                   decoder_sparse_step=1, max_window_layers=21,
                   moe_intermediate_size=20, norm_topk_prob=v == "normalized",
                   num_experts=7, num_experts_per_tok=3,
                   output_router_logits=False, rms_norm_eps=EPS,
                   rope_theta=2000.0, router_aux_loss_coef=0.001,
                   shared_expert_intermediate_size=28, sliding_window=32768,
                   tie_word_embeddings=False, use_sliding_window=False,
                   torch_dtype="bfloat16")
    if v == "dense":
        c.update(decoder_sparse_step=2, mlp_only_layers=[3],
                 num_hidden_layers=6)
    if v == "window":
        c.update(sliding_window=5, use_sliding_window=True, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"])

    def experts(m, at, i):
        if i in c.get("mlp_only_layers", []) or (
                i + 1) % c["decoder_sparse_step"]:
            return False
        h, n = c["hidden_size"], c["num_experts"]
        router(m, at + "mlp.gate", n, h)
        separate(m, at + "mlp.experts", n, c["moe_intermediate_size"], h)
        gated(m, at + "mlp.shared_expert.",
              c["shared_expert_intermediate_size"], h)
        m.matrix(at + "mlp.shared_expert_gate", 1, h)
        return True

    return decoder(seed, c, qkv_bias=True, head="lm_head", experts=experts)


def stack(m, name, n, width, size, gain, mxfp4):
    """n transposed matrices as one tensor [n, width, size], or, as the Hub's
    files have them, in blocks of 32 along width, of rows [n, size, width]."""
    w = m.rng.normal(0, gain / np.sqrt(width), (n, width, size))
    m.t[m.at + name + "_bias"] = m.rng.normal(0, 0.5, (n, size))
    if not mxfp4:
        m.t[m.at + name] = w
        return
    w = w.swapaxes(1, 2).reshape(n, size, width // 32, 32)
    s = np.ceil(np.log2(np.abs(w).max(-1) / 6)) + m.rng.integers(-1, 2, w.shape[:3])
    q = packed_forms.E2M1[packed_forms.nearest(w / 2 ** s[..., None],
                                               packed_forms.E2M1)]
    for x, a in (("_blocks", packed_forms.pack_fp4(np.copysign(q, w))),
                 ("_scales", packed_forms.real(2 ** s, "E8M0"))):
        m.t[m.at + name + x] = "U8", list(a.shape), a.tobytes()


def gpt_oss(seed, v):
    sizes = dict(hidden_size=64, intermediate_size=32) if v == "mxfp4" else (
        dict(intermediate_size=20))
    yarn = dict(beta_fast=32.0, beta_slow=1.0, factor=8.0, rope_type="yarn",
                original_max_position_embeddings=400, truncate=False)
    c = with_sizes("gpt_oss", "GptOssForCausalLM", attention_bias=True,
                   experts_per_token=3, head_dim=16, hidden_act="silu",
                   initial_context_length=400, num_experts_per_tok=3,
                   num_local_experts=6, output_router_logits=False,
                   rms_norm_eps=EPS, rope_scaling=yarn, rope_theta=1500,
                   router_aux_loss_coef=0.9, sliding_window=5,
                   swiglu_limit=7.0, tie_word_embeddings=False, layer_types=[
                       "sliding_attention", "full_attention"] * 2,
                   num_hidden_layers=4, torch_dtype="bfloat16",
                   **dict(sizes, max_position_embeddings=3200))
    if v == "mxfp4":
        c.update(quantization_config=dict(
            modules_to_not_convert=["model.layers.*.self_attn",
                                    "model.layers.*.mlp.router",
                                    "model.embed_tokens", "lm_head"],
            quant_method="mxfp4"))
    if v == "rope-parameters":
        for key in ("layer_types", "experts_per_token", "swiglu_limit",
                    "initial_context_length"):
            del c[key]
        c.update(attention_bias=False, num_hidden_layers=3, rope_parameters=dict(
            c.pop("rope_scaling"), rope_theta=c.pop("rope_theta")))

    def experts(m, at, i):
        h, size = c["hidden_size"], c["intermediate_size"]
        n, mxfp4 = c["num_local_experts"], v == "mxfp4"
        router(m, at + "mlp.router", n, h, True)
        m.t[m.at + at + "self_attn.sinks"] = m.rng.normal(
            1, 1.5, c["num_attention_heads"])
        # of gates and ups some are beyond 7
        stack(m, at + "mlp.experts.gate_up_proj", n, h, 2 * size, 3.5, mxfp4)
        stack(m, at + "mlp.experts.down_proj", n, size, h, 0.2, mxfp4)
        return True

    return decoder(seed, c, qkv_bias=c["attention_bias"],
                   o_bias=c["attention_bias"], head="lm_head", experts=experts)


def latent(c):
    """The mixer of multi-head latent attention."""
    heads, rank, rope = (c[x] for x in (
        "num_attention_heads", "kv_lora_rank", "qk_rope_head_dim"))
    d, bias = c["qk_nope_head_dim"] + rope, c.get("attention_bias", False)

    def mixer(m, at, i):
        h, at, width = c["hidden_size"], at + "self_attn.", c["q_lora_rank"]
        if width is None:
            m.matrix(at + "q_proj", heads * d, h)
        else:
            m.matrix(at + "q_a_proj", width, h, bias, gain=0.3)
            m.norm(at + "q_a_layernorm", width)
            m.matrix(at + "q_b_proj", heads * d, width)
        m.matrix(at + "kv_a_proj_with_mqa", rank + rope, h, bias)
        # small, so that an eps is seen
        m.t[m.at + at + "kv_a_proj_with_mqa.weight"][:rank] *= 0.3
        m.norm(at + "kv_a_layernorm", rank)
        m.matrix(at + "kv_b_proj", heads * (d - rope + c["v_head_dim"]), rank)
        m.matrix(at + "o_proj", h, heads * c["v_head_dim"], bias)
        return True

    return mixer


def deepseek_mlp(c, correction=None, level=0.0):
    """Routed and shared experts of all layers but the first.  correction: the
    middle of the correction bias, if any; level: that of the router's logits."""
    def experts(m, at, i):
        if i < c["first_k_dense_replace"]:
            return False
        h, n, size = (c["hidden_size"], c["n_routed_experts"],
                      c["moe_intermediate_size"])
        at += "mlp."
        router(m, at + "gate", n, h)
        m.t[m.at + at + "gate.weight"][:, 0] += level
        if correction is not None:
            m.t[m.at + at + "gate.e_score_correction_bias"] = mkst.entry(
                m.rng.normal(correction, 0.3 * bool(correction), n).astype("<f4"))
        separate(m, at + "experts", n, size, h)
        gated(m, at + "shared_experts.", size * c["n_shared_experts"], h)
        return True

    return experts


def deepseek_v3(seed, v):
    yarn = dict(beta_fast=32, beta_slow=1, factor=8, mscale=1.0,
                mscale_all_dim=1.0, original_max_position_embeddings=64,
                type="yarn")
    c = with_sizes("deepseek_v3", "DeepseekV3ForCausalLM", attention_bias=False,
                   ep_size=1, first_k_dense_replace=1, hidden_act="silu",
                   kv_lora_rank=20, moe_intermediate_size=20, moe_layer_freq=1,
                   n_group=4, n_routed_experts=12, n_shared_experts=1,
                   norm_topk_prob=True, num_experts_per_tok=3,
                   num_nextn_predict_layers=1, q_lora_rank=24,
                   qk_nope_head_dim=12, qk_rope_head_dim=8, rms_norm_eps=EPS,
                   rope_scaling=yarn, rope_theta=600, routed_scaling_factor=2.5,
                   scoring_func="sigmoid", tie_word_embeddings=False,
                   topk_group=2, topk_method="noaux_tc", v_head_dim=10,
                   num_key_value_heads=4, torch_dtype="bfloat16",
                   max_position_embeddings=512)
    correction, level = 0.2, 0.0
    if v in ("plain", "dense"):
        del c["num_nextn_predict_layers"]
    if v == "plain": # Kimi's and Moonlight's: one group
        c.update(first_k_dense_replace=0, n_group=1, n_shared_experts=2,
                 norm_topk_prob=False, q_lora_rank=None, rope_interleave=False,
                 rope_scaling=None, topk_group=1)
    if v == "mscale":
        yarn.update(mscale=0.7, mscale_all_dim=1.3, rope_type=yarn.pop("type"))
        c.update(attention_bias=True, first_k_dense_replace=2,
                 rope_parameters=dict(c.pop("rope_scaling"),
                                      rope_theta=c.pop("rope_theta")))
    if v == "negative": # a kept expert's choice is below a masked one's 0
        c.update(n_routed_experts=6, n_group=2, topk_group=1)
        correction = -2.5
    if v == "small": # scores whose sums are about 1e-20
        c.update(n_group=1, topk_group=1, rms_norm_eps=1.0,
                 torch_dtype="float32")
        correction, level = 0.0, -9.0
    if v == "dense":
        c.update(first_k_dense_replace=3)
    if v.startswith("kimi"): # K2's yarn goes from whole to scaled at once
        yarn.update(beta_fast=1.0, beta_slow=1.0)
        c.update(model_type="kimi_k2", n_group=1, topk_group=1,
                 num_nextn_predict_layers=0, routed_scaling_factor=2.827)
    mixer, experts = latent(c), deepseek_mlp(c, correction, level)
    at = "language_model." if v == "kimi-images" else ""
    c, t = decoder(seed, c, at=at + "model.", head=at + "lm_head", mixer=mixer,
                   experts=experts)
    if at:
        t = with_vision(seed, t, "vision_tower.encoder", "mm_projector")
        return outer(c, "kimi_k25", "KimiK25ForConditionalGeneration",
                     media_placeholder_token_id=95, tie_word_embeddings=False,
                     vision_config=dict(VISION)), t
    if v == "small": # what level is of: dim 0 is as large in all rows
        for name in t:
            if name.endswith("embed_tokens.weight"):
                t[name][:, 0] = 25.0
            if name.endswith("post_attention_layernorm.weight"):
                t[name][0] = 1.0
    t = with_next(seed, c, t, correction, mixer=mixer)
    return in_fp8(c, t) if v == "fp8" else (c, t)


def with_next(seed, c, t, correction, **layer):
    """With what the Hub's files have of a layer that predicts a token more."""
    if not c.get("num_nextn_predict_layers"):
        return t
    at, h = "model.layers.%d." % c["num_hidden_layers"], c["hidden_size"]
    own = dict(c, first_k_dense_replace=0, num_hidden_layers=1)
    more = decoder(seed + 1, own, experts=deepseek_mlp(own, correction),
                   **layer)[1]
    for name in more:
        if ".layers.0." in name:
            t[name.replace("model.layers.0.", at)] = more[name]
    for name, shape in (("embed_tokens", (VOCAB, h)), ("enorm", h),
                        ("hnorm", h), ("eh_proj", (h, 2 * h)),
                        ("shared_head.norm", h),
                        ("shared_head.head", (VOCAB, h))):
        t[at + name + ".weight"] = np.ones(shape)
    return t


def deepseek_v2(seed, v):
    yarn = dict(beta_fast=32, beta_slow=1, factor=8, mscale=0.707,
                mscale_all_dim=0.707, original_max_position_embeddings=64,
                type="yarn")
    c = with_sizes("deepseek_v2", "DeepseekV2ForCausalLM", attention_bias=False,
                   aux_loss_alpha=0.001, first_k_dense_replace=1,
                   hidden_act="silu", kv_lora_rank=20, moe_intermediate_size=20,
                   moe_layer_freq=1, n_group=1, n_routed_experts=12,
                   n_shared_experts=2, norm_topk_prob=False,
                   num_experts_per_tok=3, q_lora_rank=None, qk_nope_head_dim=12,
                   qk_rope_head_dim=8, rms_norm_eps=EPS, rope_scaling=yarn,
                   rope_theta=600, routed_scaling_factor=1.0,
                   scoring_func="softmax", seq_aux=True,
                   tie_word_embeddings=False, topk_group=1,
                   topk_method="greedy", v_head_dim=10, num_key_value_heads=4,
                   torch_dtype="bfloat16", max_position_embeddings=512)
    if v == "groups": # V2, not Lite
        c.update(n_group=4, q_lora_rank=24, routed_scaling_factor=2.0,
                 topk_group=2, topk_method="group_limited_greedy")
    if v == "plain":
        c.update(attention_bias=True, first_k_dense_replace=0, q_lora_rank=24,
                 rope_scaling=None, n_shared_experts=1)
    if v == "dense":
        c.update(first_k_dense_replace=3, q_lora_rank=24)
    return decoder(seed, c, head="lm_head", mixer=latent(c),
                   experts=deepseek_mlp(c))


def qwen_qk(m, name, heads, d):
    m.norm(name + "_norm", d)


def glm4_moe(seed, v):
    c = with_sizes("glm4_moe", "Glm4MoeForCausalLM", attention_bias=True,
                   first_k_dense_replace=1, head_dim=16, hidden_act="silu",
                   moe_intermediate_size=20, n_group=1, n_routed_experts=8,
                   n_shared_experts=1, norm_topk_prob=True,
                   num_experts_per_tok=3, num_nextn_predict_layers=1,
                   partial_rotary_factor=0.5, rms_norm_eps=EPS,
                   rope_scaling=None, rope_theta=800,
                   routed_scaling_factor=1.0, tie_word_embeddings=False,
                   topk_group=1, use_qk_norm=False, torch_dtype="bfloat16")
    if v == "qk-norm": # GLM-4.5, not Air
        c.update(first_k_dense_replace=2, n_group=4, n_routed_experts=12,
                 routed_scaling_factor=2.5, topk_group=2, use_qk_norm=True)
        del c["partial_rotary_factor"] # 0.5
    if v == "plain":
        c.update(attention_bias=False, norm_topk_prob=False,
                 n_shared_experts=2)
        del c["num_nextn_predict_layers"]
    layer = dict(qkv_bias=c["attention_bias"],
                 qk=qwen_qk if c["use_qk_norm"] else None)
    c, t = decoder(seed, c, head="lm_head", experts=deepseek_mlp(c, 0.2),
                   **layer)
    return c, with_next(seed, c, t, 0.2, **layer)
