# SPDX-License-Identifier: ISC
"""Makers of tiny models of families most of whose layers have a state instead of
keys and values (gated DeltaNet), as family_models.py's."""
import numpy as np

import mkst
from family_experts import gated, in_fp8, router, separate
from family_parts import (EPS, VISION, Maker, decoder, gemma_qk, outer,
                          with_sizes, with_vision)

LINEAR = dict(linear_conv_kernel_dim=4, linear_key_head_dim=8,
              linear_num_key_heads=2, linear_num_value_heads=4,
              linear_value_head_dim=6)


def kinds_of(c):
    period = c.get("full_attention_interval", 4)
    return c.get("layer_types") or [
        "full_attention" if (i + 1) % period == 0 else "linear_attention"
        for i in range(c["num_hidden_layers"])]


def delta(c, packed, small=1.0):
    """The mixer of linear layers.  packed: q, k, v, z and b, a of each key head
    in two matrices; small: the size of queries and keys."""
    k, v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]

    def mixer(m, at, i):
        if kinds_of(c)[i] != "linear_attention":
            return False
        h, at = c["hidden_size"], at + "linear_attn."
        if packed:
            m.matrix(at + "in_proj_qkvz", 2 * k * dk + 2 * v * dv, h)
            m.matrix(at + "in_proj_ba", 2 * v, h)
        else:
            m.matrix(at + "in_proj_qkv", 2 * k * dk + v * dv, h)
            m.matrix(at + "in_proj_z", v * dv, h)
            m.matrix(at + "in_proj_b", v, h)
            m.matrix(at + "in_proj_a", v, h)
        width = c["linear_conv_kernel_dim"]
        conv = m.rng.normal(0, 0.8, (2 * k * dk + v * dv, 1, width))
        conv[:2 * k * dk] *= small
        m.t[m.at + at + "conv1d.weight"] = conv
        # so that a state is remembered for some tokens
        a_log = m.rng.normal(-1.5, 0.8, v)
        m.t[m.at + at + "dt_bias"] = m.rng.normal(0.3, 0.6, v)
        m.norm(at + "norm", dv)
        m.t[m.at + at + "A_log"] = a_log
        if not packed: # as Qwen3.5's files have them
            for x in "A_log", "norm.weight":
                m.t[m.at + at + x] = mkst.entry(np.asarray(
                    m.t[m.at + at + x], "<f4"))
        m.matrix(at + "out_proj", h, v * dv)
        return True

    return mixer


def sparse(c, fused):
    """Experts, and a gated shared one, of layers that are not dense.  fused: all
    experts' gates and ups as one tensor, and so their downs."""
    def experts(m, at, i):
        if i in c.get("mlp_only_layers", []) or (
                i + 1) % c.get("decoder_sparse_step", 1):
            return False
        h, n, size = (c["hidden_size"], c["num_experts"],
                      c["moe_intermediate_size"])
        router(m, at + "mlp.gate", n, h)
        if fused:
            for x, rows, cols in (("gate_up_proj", 2 * size, h),
                                  ("down_proj", h, size)):
                m.t["%s%smlp.experts.%s" % (m.at, at, x)] = m.rng.normal(
                    0, 1.4 / np.sqrt(cols), (n, rows, cols))
        else:
            separate(m, at + "mlp.experts", n, size, h)
        gated(m, at + "mlp.shared_expert.",
              c["shared_expert_intermediate_size"], h)
        m.matrix(at + "mlp.shared_expert_gate", 1, h)
        return True

    return experts


def with_mtp(seed, t, c, experts=None):
    """What predicts a token more, which is not the model's."""
    rng, h = np.random.default_rng(seed + 1), c["hidden_size"]
    if experts:
        m = Maker(seed + 2, "mtp.")
        experts(m, "layers.0.", 0)
        t.update(m.t)
    for name in ("fc", "layers.0.self_attn.q_proj", "layers.0.mlp.gate_proj"):
        t["mtp.%s.weight" % name] = rng.normal(0, 1, (h, h))
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        t["mtp.%s.weight" % name] = rng.normal(0, 1, h)
    return t


def qwen3_next(seed, v):
    c = with_sizes("qwen3_next", "Qwen3NextForCausalLM", attention_bias=False,
                   decoder_sparse_step=1, full_attention_interval=3,
                   head_dim=16, hidden_act="silu", mlp_only_layers=[],
                   moe_intermediate_size=20, norm_topk_prob=True,
                   num_experts=7, num_experts_per_tok=3, num_hidden_layers=4,
                   output_router_logits=False, partial_rotary_factor=0.25,
                   rms_norm_eps=EPS, rope_scaling=None, rope_theta=700,
                   router_aux_loss_coef=0.001,
                   shared_expert_intermediate_size=28,
                   tie_word_embeddings=False, torch_dtype="bfloat16", **LINEAR)
    if v == "defaults":
        c.update(num_hidden_layers=5, linear_num_value_heads=2)
        for key in ("full_attention_interval", "partial_rotary_factor"):
            del c[key]
    if v == "dense":
        c.update(mlp_only_layers=[2], norm_topk_prob=False, layer_types=[
            "full_attention", "linear_attention", "linear_attention",
            "full_attention"], linear_num_value_heads=6,
                 linear_value_head_dim=40, # more values than go back at once
                 linear_conv_kernel_dim=3, max_position_embeddings=256)
    if v == "bias":
        c.update(attention_bias=True, num_hidden_layers=3,
                 linear_num_key_heads=1, linear_key_head_dim=16)
    experts = sparse(c, False)
    c, t = decoder(seed, c, offset=1, qk=gemma_qk, out_gate=True,
                   qkv_bias=c["attention_bias"], o_bias=c["attention_bias"],
                   head="lm_head", mixer=delta(c, True, 1e-3 if v == "small"
                                               else 1.0), experts=experts)
    return c, with_mtp(seed, t, c, experts)


def qwen3_5_of(seed, v, kind, **more):
    """Qwen3.5 and 3.6: the text part of a model of images and text."""
    c = with_sizes(kind + "_text", "", attention_bias=False,
                   attn_output_gate=True, full_attention_interval=3,
                   head_dim=24, hidden_act="silu", layer_types=[
                       "linear_attention", "linear_attention",
                       "full_attention", "linear_attention"],
                   mamba_ssm_dtype="float32", mtp_num_hidden_layers=1,
                   num_hidden_layers=4, rms_norm_eps=EPS, rope_parameters=dict(
                       mrope_interleaved=True, mrope_section=[1, 1, 1],
                       partial_rotary_factor=0.25, rope_theta=700.0,
                       rope_type="default"), tie_word_embeddings=v == "tied",
                   torch_dtype="bfloat16", **LINEAR)
    c.update({k: x for k, x in more.items() if k != "arch"})
    if v == "fp8": # blocks end where gates do
        c.update(moe_intermediate_size=32)
    if v == "text":
        c.update(max_position_embeddings=256)
    text = v in ("text", "tied")
    at = "model." if text else "model.language_model."
    experts = sparse(c, True) if "num_experts" in c else None
    _, t = decoder(seed, c, at=at, offset=1, qk=gemma_qk, out_gate=True,
                   head=None if v == "tied" else "lm_head",
                   mixer=delta(c, False), experts=experts)
    if experts:
        del c["intermediate_size"]
    if v == "fp8":
        c, t = in_fp8(c, t)
    if text:
        return dict(c, architectures=[more["arch"] + "ForCausalLM"]), t
    t = with_mtp(seed, with_vision(seed, t, "model.visual.blocks"), c, experts)
    quantized = {x: c.pop(x) for x in list(c) if x == "quantization_config"}
    return outer(c, kind, more["arch"] + "ForConditionalGeneration",
                 image_token_id=95, **quantized, tie_word_embeddings=False,
                 vision_start_token_id=94, vision_config=dict(
                     VISION, model_type=kind)), t


def qwen3_5(seed, v):
    return qwen3_5_of(seed, v, "qwen3_5", arch="Qwen3_5")


def qwen3_5_moe(seed, v):
    return qwen3_5_of(seed, v, "qwen3_5_moe", arch="Qwen3_5Moe", num_experts=7,
                      moe_intermediate_size=20, num_experts_per_tok=3,
                      output_router_logits=False, router_aux_loss_coef=0.001,
                      shared_expert_intermediate_size=28)
