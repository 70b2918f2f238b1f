# SPDX-License-Identifier: ISC
"""Readers of families with experts, as family_read.py's."""
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
