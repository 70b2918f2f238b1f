# SPDX-License-Identifier: ISC
"""Makers of tiny models of families with experts, as family_models.py's."""
import numpy as np

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
