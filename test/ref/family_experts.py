# SPDX-License-Identifier: ISC
"""Makers of tiny models of families with experts, as family_models.py's."""
import numpy as np

import packed_forms
from family_parts import EPS, decoder, with_sizes

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


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
        stack(m, at + "mlp.experts.gate_up_proj", n, h, 2 * size, 5, mxfp4)
        stack(m, at + "mlp.experts.down_proj", n, size, h, 0.2, mxfp4)
        return True

    return decoder(seed, c, qkv_bias=c["attention_bias"],
                   o_bias=c["attention_bias"], head="lm_head", experts=experts)
