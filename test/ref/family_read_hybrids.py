# SPDX-License-Identifier: ISC
"""Readers of families with gated DeltaNet, as family_read.py's."""
from types import SimpleNamespace

import numpy as np

import family_forward as ff
from family_read_experts import separate, shared_expert, sparse
from family_reader import decoder, every, gated, mixture, routes

NO_ACT = np.copy # what does nothing


def packed(r, name, c):
    """[q; k; v], z, b and a of matrices that have those of each key head in
    turn."""
    k, v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
    w = r.linear(name + "in_proj_qkvz")[0]
    ba = r.linear(name + "in_proj_ba")[0]
    cuts, own = np.cumsum([dk, dk, v // k * dv]), w.reshape(k, -1, w.shape[1])
    own = [x.reshape(-1, w.shape[1]) for x in np.split(own, cuts, axis=1)]
    own = r.trap("qkvz as [q; k; v; z] of all heads", own, np.split(
        w, np.cumsum([k * dk, k * dk, v * dv])))
    of = [x.reshape(v, -1) for x in np.split(
        ba.reshape(k, 2 * v // k, -1), 2, axis=1)]
    of = r.trap("ba as [b; a] of all heads", of, np.split(ba, 2))
    return [np.concatenate(own[:3]), own[3]] + of


def delta(r, c, is_packed):
    k, v = c["linear_num_key_heads"], c["linear_num_value_heads"]
    dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]

    def mixer(name, i):
        name = name + "linear_attn."
        qkv, z, b, a = packed(r, name, c) if is_packed else (
            r.linear("%sin_proj_%s" % (name, x))[0]
            for x in ("qkv", "z", "b", "a"))
        b, a = r.trap("a before b", (b, a), (a, b))
        conv = r.take(name + "conv1d.weight")[:, 0]
        rate = np.exp(r.take(name + "A_log"))
        bias = r.take(name + "dt_bias")
        norm = r.norm(name + "norm", c["rms_norm_eps"])
        norm.weight = r.trap("1 + w in the gated norm", norm.weight,
                             1 + norm.weight)
        # the key head of each value head
        of = np.arange(v) // (v // k)
        return dict(o=r.linear(name + "out_proj"), delta=SimpleNamespace(
            qkv=(qkv, None), z=(z, None), b=(b, None), a=(a, None), dk=dk,
            dv=dv, key_dim=k * dk, norm=norm,
            conv=r.trap("taps in the other order", conv, conv[:, ::-1]),
            conv_act=r.trap("conv without silu", ff.silu, NO_ACT),
            rate=r.trap("rates of 1", rate, np.ones(v)),
            dt_bias=r.trap("no dt_bias", bias, 0 * bias),
            head=r.trap("key heads in turn", of, np.arange(v) % k),
            l2=r.trap("eps of l2 outside", r.trap(
                "q, k not normalized", "inside", "none"), "outside"),
            scale=r.trap("q not scaled", dk ** -0.5, 1.0),
            beta=r.trap("no beta", True, False),
            corrected=r.trap("no delta rule", True, False),
            decay_after=r.trap("decay after the update", False, True),
            gate=r.trap("gate by sigmoid", ff.silu, ff.sigmoid),
            gate_first=r.trap("gate before the norm", False, True)))

    return mixer


def hybrid(r, c, is_packed, experts=None):
    kinds = c.get("layer_types") or [
        k.replace("sliding", "linear") for k in every(
            c["num_hidden_layers"], c.get("full_attention_interval", 4))]
    linear = delta(r, c, is_packed)
    return decoder(
        r, dict(dict(head_dim=256), **c), offset=1, partial=0.25, out_gate=True,
        qk=lambda name, heads: r.norm(name + "_norm", c["rms_norm_eps"],
                                      offset=1),
        mixer=lambda name, i: linear(name, i)
        if kinds[i] == "linear_attention" else None,
        experts=experts, ignored=[r"^mtp\."])


def with_shared(r, c, name, normalized, experts):
    route = routes(r, r.linear(name + "gate"), c["num_experts_per_tok"],
                   normalized=normalized)
    return mixture(r, route, experts, shared_expert(r, name + "shared_expert."),
                   r.linear(name + "shared_expert_gate"))


def qwen3_next(r, c):
    return hybrid(r, c, True, lambda name, i: with_shared(
        r, c, name, c.get("norm_topk_prob", True), separate(
            r, name + "experts", c["num_experts"])) if sparse(c, i) else None)


def qwen3_5(r, c):
    return hybrid(r, c, False)


def qwen3_5_moe(r, c):
    """Weights are normalized, whatever norm_topk_prob says."""
    def experts(name, i):
        w, down = (r.take("%sexperts.%s" % (name, x))
                   for x in ("gate_up_proj", "down_proj"))
        halves = np.arange(w.shape[1]).reshape(2, -1)
        halves = r.trap("gates are even rows", halves,
                        halves.reshape(-1, 2).T)
        return with_shared(r, c, name, True, [
            gated(r, [(w[e, x], None) for x in halves] + [(down[e], None)])
            for e in range(len(w))])

    return hybrid(r, c, False, experts)
