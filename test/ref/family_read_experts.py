# SPDX-License-Identifier: ISC
"""Readers of families with experts, as family_read.py's."""
from types import SimpleNamespace

import numpy as np

import mkst
import packed_forms
from family_reader import decoder, gated, mixture, routes, windows

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
