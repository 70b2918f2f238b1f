# SPDX-License-Identifier: ISC
"""Readers of families with experts, as family_read.py's."""
import math
from types import SimpleNamespace

import numpy as np

import mkst
import packed_forms
from family_reader import decoder, gated, mixture, rope_of, routes, windows

PROJECTIONS = ("gate_proj", "up_proj", "down_proj")


def separate(r, name, n, parts=PROJECTIONS):
    return [gated(r, [r.linear("%s.%d.%s" % (name, e, x), short=x)
                      for x in parts]) for e in range(n)]


def shared_expert(r, name):
    return gated(r, [r.linear(name + x, short="shared " + x)
                     for x in PROJECTIONS])


def mixtral(r, c):
    c = dict(dict(num_local_experts=8, num_experts_per_tok=2), **c)

    def experts(name, i):
        name = name.replace("mlp.", "block_sparse_moe.")
        route = routes(r, r.linear(name + "gate"), c["num_experts_per_tok"],
                       normalized=True)
        return mixture(r, route, separate(
            r, name + "experts", c["num_local_experts"], ("w1", "w3", "w2")))

    window = c.get("sliding_window")
    return decoder(r, c, theta=1e6, experts=experts, window_of=windows(
        r, ["sliding_attention" if window else "full_attention"]
        * c["num_hidden_layers"], window))


def sparse(c, i):
    return i not in (c.get("mlp_only_layers") or []) and (
        i + 1) % (c.get("decoder_sparse_step") or 1) == 0


def qwen3_moe(r, c):
    n = c.get("num_experts", c.get("num_local_experts"))

    def experts(name, i):
        return mixture(r, routes(
            r, r.linear(name + "gate"), c["num_experts_per_tok"],
            normalized=c.get("norm_topk_prob", False)), separate(
                r, name + "experts", n)) if sparse(c, i) else None

    return decoder(r, c, experts=experts, qk=lambda name, heads: r.norm(
        name + "_norm", c["rms_norm_eps"]))


def qwen2_moe(r, c):
    def experts(name, i):
        if not sparse(c, i):
            return None
        route = routes(r, r.linear(name + "gate"), c["num_experts_per_tok"],
                       normalized=c.get("norm_topk_prob", False))
        return mixture(
            r, route, separate(r, name + "experts", c["num_experts"]),
            shared_expert(r, name + "shared_expert."),
            r.linear(name + "shared_expert_gate"))

    kinds = c.get("layer_types") or ["full_attention"] * c["num_hidden_layers"]
    return decoder(r, c, experts=experts, window_of=windows(
        r, kinds, c["sliding_window"] if c.get("use_sliding_window") else None))


def stack(r, name):
    """Matrices [experts, out, in] and their biases, of a tensor that lies
    [experts, in, out], or of MXFP4's blocks, which lie as [experts, out, in]."""
    if name in r.left:
        w = r.take(name)
        other = w if w.shape[1] == w.shape[2] else w.swapaxes(1, 2)
        w = r.trap("stacks as they lie", w.swapaxes(1, 2), other)
    else:
        blocks, scales = (mkst.values(*r.raw[name + x])
                          for x in ("_blocks", "_scales"))
        w = packed_forms.mxfp4(blocks, scales).astype(float)
        for wrong in "high half of a byte first", "E8M0's bias 128":
            w = r.trap(wrong, w, packed_forms.mxfp4(blocks, scales,
                                                    [wrong]).astype(float))
    bias = r.take(name + "_bias")
    return w, r.trap("no bias of experts", bias, 0 * bias)


def gpt_oss(r, c):
    c = dict(dict(
        head_dim=64, layer_types=[("sliding_attention", "full_attention")[i % 2]
                                  for i in range(c["num_hidden_layers"])]), **c)
    limit = c.get("swiglu_limit", 7.0)
    clamp = SimpleNamespace(
        high=r.trap("gates not clamped", limit, np.inf),
        low=-np.inf, up=r.trap("ups not clamped", limit, np.inf),
        offset=r.trap("up, not up + 1", 1, 0),
        alpha=r.trap("silu, not alpha 1.702", 1.702, 1))

    def experts(name, i):
        (w, b), (down, down_bias) = (stack(r, name + "experts." + x)
                                     for x in ("gate_up_proj", "down_proj"))
        order = np.arange(w.shape[1]).reshape(-1, 2).T # gates are even
        order = r.trap("gates in the first half", order,
                       order.T.reshape(2, -1))
        return mixture(r, routes(
            r, r.linear(name + "router"), c["num_experts_per_tok"], "none"), [
                gated(r, [(w[e, x], b[e, x]) for x in order]
                      + [(down[e], down_bias[e])], clamp=clamp)
                for e in range(len(w))])

    return decoder(r, c, theta=150000.0, experts=experts, sinks=True,
                   window_of=windows(r, c["layer_types"],
                                     c.get("sliding_window", 128)))


def latent(r, c, pairs):
    """The mixer of multi-head latent attention.  Its two norms have eps 1e-6
    whatever the configuration says."""
    heads, rank, nope, turned, width = (c[x] for x in (
        "num_attention_heads", "kv_lora_rank", "qk_nope_head_dim",
        "qk_rope_head_dim", "v_head_dim"))
    eps = r.trap("the model's eps in norms of latents", 1e-6, c["rms_norm_eps"])
    p = c.get("rope_parameters") or c.get("rope_scaling") or {}
    scale = right = (nope + turned) ** -0.5
    if p.get("rope_type", p.get("type", "default")) != "default":
        by = 0.1 * p.get("mscale_all_dim", 0) * math.log(p["factor"]) + 1
        right = scale * by * by
        right = r.trap("scale times mscale once", right, scale * by)
    right = r.trap("scale without mscale^2", right, scale)
    scale = r.trap("scale of the values' width", right,
                   right * ((nope + turned) / width) ** 0.5)
    rope = rope_of(r, c, turned, pairs=pairs)

    def rows(trap, w, right, wrong):
        """Rows of a linear layer, in the trap in another order."""
        order = r.trap(trap, right, wrong)
        order = np.argsort(np.argsort(order)) if order is wrong else order
        return w[0][order], None if w[1] is None else w[1][order]

    def mixer(name, i):
        name += "self_attn."
        if c["q_lora_rank"] is None:
            a = norm = None
            q = r.linear(name + "q_proj")
        else:
            a, q = r.linear(name + "q_a_proj"), r.linear(name + "q_b_proj")
            norm = r.trap("no q_a_layernorm",
                          r.norm(name + "q_a_layernorm", eps), None)
        n = np.arange(heads * (nope + turned)).reshape(heads, -1)
        q = rows("q as [rope | nope]", q, n.ravel(),
                 np.roll(n, -turned, axis=1).ravel())
        kv_a = r.linear(name + "kv_a_proj_with_mqa")
        n = np.arange(rank + turned)
        kv_a = rows("latents as [rope | c_kv]", kv_a, n, np.roll(n, -turned))
        b = r.linear(name + "kv_b_proj")
        n = np.arange(heads * (nope + width)).reshape(heads, -1)
        b = rows("kv_b as [v | k] of each head", b, n.ravel(),
                 np.roll(n, -width, axis=1).ravel())
        b = rows("kv_b as [k of all heads; v of all heads]", b, n.ravel(),
                 np.hstack([n[:, :0], np.concatenate([
                     np.arange(heads * nope).reshape(heads, -1),
                     heads * nope + np.arange(heads * width).reshape(
                         heads, -1)], axis=1)]).ravel())
        return dict(
            rope=rope, scale=scale, o=r.linear(name + "o_proj"),
            latent=SimpleNamespace(
                q_a=a, q_norm=norm, q=q, kv_a=kv_a, kv_b=b, heads=heads,
                rank=rank, nope=nope, kv_norm=r.trap(
                    "no kv_a_layernorm", r.norm(name + "kv_a_layernorm", eps),
                    None)))

    return mixer


def deepseek(r, c, route, **fields):
    """route: fn(router's name) -> how experts are chosen."""
    n = c["num_hidden_layers"]

    def experts(name, i):
        if i < c["first_k_dense_replace"]:
            return None
        return mixture(r, route(name + "gate"), separate(
            r, name + "experts", c["n_routed_experts"]),
                       shared_expert(r, name + "shared_experts."))

    return decoder(r, c, experts=experts, ignored=[r"^model\.layers\.%d\." % n]
                   if c.get("num_nextn_predict_layers") else [], **fields)


def sigmoid_groups(r, c):
    """DeepSeek-V3's router, which GLM-4.5 has, too."""
    groups = c["n_group"], c["topk_group"], 2, 0.0
    return lambda name: routes(
        r, r.linear(name), c["num_experts_per_tok"], "sigmoid",
        c.get("norm_topk_prob", True), 1e-20, c["routed_scaling_factor"],
        r.take(name + ".e_score_correction_bias"),
        groups if groups[0] > 1 else None)


def deepseek_v3(r, c):
    return deepseek(r, c, sigmoid_groups(r, c), mixer=latent(
        r, c, c.get("rope_interleave", True)))


def deepseek_v2(r, c):
    groups = None
    if c["topk_method"] == "group_limited_greedy":
        groups = c["n_group"], c["topk_group"], 1, 0.0
    return deepseek(r, c, lambda name: routes(
        r, r.linear(name), c["num_experts_per_tok"],
        scaling=c["routed_scaling_factor"], groups=groups),
                    mixer=latent(r, c, True))


def glm4_moe(r, c):
    qk = (lambda name, heads: r.norm(name + "_norm", c["rms_norm_eps"])
          ) if c.get("use_qk_norm") else None
    return deepseek(r, c, sigmoid_groups(r, c), partial=0.5, qk=qk)
