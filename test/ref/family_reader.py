# SPDX-License-Identifier: ISC
"""What the readers of families share: a file's tensors, traps, and a decoder with
llama's names, as family_forward.py's fields.
"""
import json
import math
import os
import re
from types import SimpleNamespace

import numpy as np

import family_forward as ff
import mkst
import packed_forms
import transformer

ACTS = {"silu": ff.silu, "gelu": ff.gelu_erf, "gelu_new": ff.gelu_tanh,
        "gelu_fast": ff.gelu_tanh, "gelu_pytorch_tanh": ff.gelu_tanh}


def same(a, b):
    """Are two fields the same?  Arrays, tuples of them, numbers, functions."""
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, SimpleNamespace) and isinstance(b, SimpleNamespace):
        return all(same(x, y) for x, y in zip(vars(a).values(),
                                              vars(b).values()))
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return (a is not None and b is not None and np.array_equal(a, b))
    return a == b


class Reader:
    """The tensors of a file, and which traps there are and are gone into."""

    def __init__(self, directory, n, wrong, instead):
        with open(os.path.join(directory, "config.json")) as f:
            self.top = json.load(f)
        path = os.path.join(directory, "model.safetensors")
        raw = self.raw = mkst.load(path)
        self.dtype = {name: x[0] for name, x in raw.items()}
        self.left = {name: mkst.values(*x) for name, x in raw.items()
                     if x[0] in ("F32", "F16", "BF16")}
        self.left.update(self.from_fp8(raw))
        self.ignored = {name for name in raw if name not in self.left}
        self.left.update(instead)
        self.n, self.wrong, self.traps = n, set(wrong), []

    def from_fp8(self, raw):
        """Numbers of what is in blocks of FP8."""
        for name in [x for x in raw if raw[x][0] == "F8_E4M3"]:
            q = mkst.values("U8", *raw[name][1:])
            s = self.left.pop(name + "_scale_inv")
            c = self.top["quantization_config"]
            w = [packed_forms.dequantize(dict(weight=x, weight_scale_inv=y), c)
                 for x, y in zip(q.reshape(-1, *q.shape[-2:]),
                                 s.reshape(-1, *s.shape[-2:]))]
            yield name, np.reshape(w, q.shape).astype(float)

    def trap(self, name, right, wrong):
        if not same(right, wrong) and name not in self.traps:
            self.traps.append(name)
        return wrong if name in self.wrong else right

    def take(self, name):
        return self.left.pop(name)

    def linear(self, name, conv=False, short=None):
        """(weight [out, in], bias or None); conv: the file has [in, out]."""
        weight = self.take(name + ".weight")
        if conv:
            other = weight if weight.shape[0] == weight.shape[1] else weight.T
            weight = self.trap("[in, out] weights as they lie", weight.T, other)
        bias = self.left.pop(name + ".bias", None)
        short = short or ".".join(name.split(".")[-2:])
        return weight, self.trap("no bias of %s" % short, bias, None)

    def norm(self, name, eps, centred=False, offset=0, whole=None):
        weight = self.take(name + ".weight")
        bias = self.left.pop(name + ".bias", None)
        return SimpleNamespace(
            centred=self.trap("LayerNorm as RMSNorm", centred, False),
            weight=self.trap("w, not 1 + w", offset, 0) + weight,
            bias=self.trap("no bias of norms", bias, None),
            eps=self.trap("eps 1e-6", eps, 1e-6) if eps > 1e-3 else eps,
            whole=whole)

    def ignore(self, *patterns):
        """What the files have besides; all else is a tensor nobody took."""
        self.ignored |= {x for x in self.left
                         if any(re.search(p, x) for p in patterns)}
        left = set(self.left) - self.ignored
        assert not left, "nobody reads %s" % sorted(left)


def rope_of(r, c, d, theta=1e4, partial=1.0, pairs=False, scaled=True):
    """The rotation that a configuration says for heads of d dims."""
    p = c.get("rope_parameters") or {}
    p = dict(p, **{k: v for k, v in (c.get("rope_scaling") or {}).items()})
    p["rope_theta"] = p.get("rope_theta", c.get("rope_theta", theta))
    kind = p.get("rope_type", p.get("type", "default"))
    if kind == "mrope" or not scaled: # text: all three positions are equal
        kind = "default"
    p["rope_type"] = kind
    partial = p.get("partial_rotary_factor",
                    c.get("partial_rotary_factor", partial))
    dim = r.trap("RoPE on whole heads", int(d * partial), d)
    base = r.trap("theta 1e4", p["rope_theta"], 1e4)
    if kind in ("longrope", "su"):
        freq, factor = longrope(r, c, p, base, dim)
    else:
        freq, factor = transformer.rope_frequencies(dict(rope_parameters=dict(
            p, rope_theta=base, truncate=r.trap(
                "truncated, though truncate is false",
                p.get("truncate", True), True))), dim)
    plain = base ** (-np.arange(0, dim, 2) / dim)
    return SimpleNamespace(
        freq=r.trap("rope_scaling not read", freq, plain),
        factor=r.trap("no attention factor", factor, 1.0),
        pairs=r.trap("halves, not pairs" if pairs else "pairs, not halves",
                     pairs, not pairs))


def longrope(r, c, p, base, dim):
    """Long factors once the whole sequence is longer than the first limit; the
    factor on cos and sin is of both."""
    limit = c.get("original_max_position_embeddings",
                  p.get("original_max_position_embeddings"))
    ratio = c["max_position_embeddings"] / limit
    factor = p.get("attention_factor")
    if factor is None:
        factor = 1.0 if ratio <= 1 else math.sqrt(
            1 + math.log(ratio) / math.log(limit))
    long = r.trap("longrope of the other length", r.n > limit, r.n <= limit)
    by = np.array(p["long_factor" if long else "short_factor"])
    by = np.resize(by, dim // 2)
    return base ** (-np.arange(0, dim, 2) / dim) / by, factor


def windows(r, kinds, window):
    """Of each layer, by kinds ("sliding_attention", ...)."""
    right = [window if k == "sliding_attention" else None for k in kinds]
    if window is None or window >= r.n: # nothing to see
        return right
    more = [w and w + 1 for w in right]
    swapped = [window if w is None else None for w in right]
    right = r.trap("no window", right, [None] * len(right))
    if None in swapped and window in swapped:
        right = r.trap("window on the other layers", right, swapped)
    return r.trap("window off by one", right, more)


def every(n, period):
    """Layer kinds where each 'period'th layer is full."""
    return ["full_attention" if (i + 1) % period == 0 else "sliding_attention"
            for i in range(n)]


def layer(**fields):
    """With what a llama has where nothing is said."""
    return SimpleNamespace(**dict(
        dict(pre_attn=None, post_attn=None, pre_mlp=None, post_mlp=None,
             q_norm=None, k_norm=None, rope=None, norm_rotated=False,
             attn_cap=None, cap_after_mask=False, window=None, up=None,
             parallel=False, sinks=None, clamp=None, moe=None,
             latent=None, delta=None, out_gate=None), **fields))


def gated(r, parts, act=ff.silu, clamp=None):
    """A gated MLP of its gate, up and down."""
    gate, up, down = parts
    gate, up = r.trap("up before gate", (gate, up), (up, gate))
    return SimpleNamespace(
        gate=gate, up=up, down=down, clamp=clamp, act=act if clamp else r.trap(
            "another activation", act, ff.gelu_tanh))


def routes(r, router, k, score="softmax", normalized=False, tiny=0.0,
           scaling=1.0, correction=None, groups=None):
    """How experts are chosen and weighed, as family_forward.routed() has it."""
    n = len(router[0])
    other = "sigmoid" if score == "softmax" else "softmax"
    route = dict(
        router=router, k=r.trap("an expert too few", k, k - 1 if k > 1 else k),
        scaling=r.trap("not scaled", scaling, 1.0), score=score,
        correction=correction, groups=None, weights_corrected=False,
        normalized=normalized, tiny=tiny)
    if score == "none": # the choice's softmax is all's, normalized
        route.update(score=r.trap("softmax of all experts", "none", "softmax"))
        return route
    wrong = "not normalized" if normalized else "normalized"
    route.update(
        score=r.trap(other + ", not " + score, score, other),
        normalized=r.trap("weights " + wrong, normalized, not normalized))
    if tiny:
        route.update(tiny=r.trap("no 1e-20", tiny, 0.0))
    if correction is not None and correction.any():
        route.update(
            correction=r.trap("no correction bias", correction, 0 * correction),
            weights_corrected=r.trap("weights with the correction bias", False,
                                     True))
    if groups is not None:
        n_groups, top, best, masked = groups
        route.update(groups=r.trap("no groups", SimpleNamespace(
            n=r.trap("groups of the other size", n_groups, n // n_groups),
            top=r.trap("a group too few", top, max(1, top - 1)),
            best=r.trap("groups by their %s" % (
                "best two" if best == 1 else "best"), best, 3 - best),
            masked=r.trap("masked groups as %s" % (
                "-inf" if masked == 0 else "0"), masked,
                -np.inf if masked == 0 else 0.0)), None))
    return route


def mixture(r, route, experts, shared=None, shared_gate=None):
    if shared_gate is not None:
        shared_gate = r.trap("shared expert not gated", shared_gate, None)
    return SimpleNamespace(
        experts=experts, shared_gate=shared_gate,
        shared=r.trap("no shared expert", shared, None), **route)


def model(**fields):
    return SimpleNamespace(**dict(
        dict(embed_scale=1.0, positions=None, residual_scale=1.0,
             outs_before_norm=False, logit_scale=1.0, final_cap=None),
        **fields))


def head_of(r, c, at, embedding, tied_default):
    tied = c.get("tie_word_embeddings", tied_default)
    if tied:
        own = r.left.get(at + ".weight")
        r.ignored.add(at + ".weight")
        return embedding if own is None else r.trap(
            "lm_head though tied", embedding, own), None
    return r.trap("tied", r.linear(at, short="lm_head"), (embedding, None))


def prefix_of(r):
    """Where a text model is: alone, or in one that has other modes, too."""
    for at in ("model.", "language_model.model.", "model.language_model."):
        if at + "embed_tokens.weight" in r.left:
            return at
    raise ValueError("no embed_tokens")


def fused(r, name, rows, trap, order):
    """Parts of one matrix by their rows, in the order that the trap swaps."""
    w, b = r.linear(name)
    at = np.cumsum([0] + rows)
    parts = [(w[a:z], None if b is None else b[a:z])
             for a, z in zip(at, at[1:])]
    return r.trap(trap, parts, [parts[i] for i in order])


def decoder(r, c, tied=False, theta=1e4, norms=None, eps=None, centred=False,
            offset=0, partial=1.0, pairs=False, act=None, qk=None, mlp="gated",
            fused_qkv=False, fused_mlp=False, o="o_proj", final="norm",
            parallel=None, window_of=None, rope_of_layer=None, scale=None,
            attn_cap=None, mixer=None, experts=None, sinks=False,
            ignored=(), out_gate=False, **ends):
    """llama's names, and what differs from it.

    norms: names of (pre_attn, post_attn, pre_mlp, post_mlp), None for none.
    qk: None, or how q_norm and k_norm are read: fn(name, heads) -> norm.
    rope_of_layer: fn(i) -> rope or None.  parallel: one norm for both.
    mixer, experts: fn(layer's name, i) -> what it has for attention, fields by
    name, and for an MLP, or None.
    """
    at = prefix_of(r)
    norms = norms or ("input_layernorm", None, "post_attention_layernorm", None)
    heads = c["num_attention_heads"]
    kv = c.get("num_key_value_heads") or heads
    d = c.get("head_dim") or c["hidden_size"] // heads
    eps = c.get("rms_norm_eps", 1e-6) if eps is None else eps
    act = ACTS[c.get("hidden_act", "silu")] if act is None else act
    other = {ff.gelu_tanh: ff.gelu_erf, ff.gelu_erf: ff.gelu_tanh,
             ff.silu: ff.gelu_tanh}[act]
    embedding = r.take(at + "embed_tokens.weight")
    n_layers = c["num_hidden_layers"]
    window = window_of or [None] * n_layers
    default = 1 / math.sqrt(d)
    layers = []
    for i in range(n_layers):
        name = "%slayers.%d." % (at, i)
        attn, fields = name + "self_attn.", mixer and mixer(name, i)
        if not fields:
            q, k, v = fused(
                r, attn + "qkv_proj", [heads * d, kv * d, kv * d],
                "qkv_proj as [q; v; k]", (0, 2, 1)) if fused_qkv else (
                    r.linear(attn + x + "_proj") for x in "qkv")
            fields = dict(
                q=q, k=k, v=v, o=r.linear(attn + o),
                q_norm=qk and r.trap("no q_norm", qk(attn + "q", heads), None),
                k_norm=qk and r.trap("no k_norm", qk(attn + "k", kv), None))
            if out_gate: # of each head its q, then its gate
                rows = np.arange(2 * heads * d).reshape(heads, 2, d)
                rows = r.trap("q_proj as [q; gate]", rows.swapaxes(0, 1),
                              np.arange(2 * heads * d).reshape(2, heads, d))
                rows = r.trap("gate before q", rows, rows[::-1])
                q, gate = ((q[0][x], None if q[1] is None else q[1][x])
                           for x in rows.reshape(2, -1))
                fields.update(q=q, out_gate=r.trap("no output gate", gate, None))
        if sinks:
            sink = r.take(attn + "sinks")
            sink = r.trap("sinks of the other heads", sink, sink[::-1])
            sink = r.trap("scaled sinks", sink, sink * default)
            fields.update(sinks=r.trap("no sinks", sink, None))
        moe = experts and experts(name + "mlp.", i)
        if moe:
            fields.update(moe=moe)
        elif fused_mlp:
            size = c["intermediate_size"]
            gate, up = fused(r, name + "mlp.gate_up_proj", [size, size],
                             "up before gate", (1, 0))
            fields.update(gate=gate, up=up)
        elif mlp == "gated":
            fields.update(gate=r.linear(name + "mlp.gate_proj"),
                          up=r.linear(name + "mlp.up_proj"))
        else:
            fields.update(gate=r.linear(name + "mlp." + mlp[0]))
        if not moe:
            fields.update(down=r.linear(name + "mlp." + (
                "down_proj" if mlp == "gated" else mlp[1])))
        pre_attn, post_attn, pre_mlp, post_mlp = (
            x and r.norm(name + x, eps, centred, offset) for x in norms)
        if parallel:
            pre_mlp = pre_attn
        if "rope" in fields:
            rope = fields["rope"]
        elif rope_of_layer:
            rope = rope_of_layer(i, d)
        else:
            rope = rope_of(r, c, d, theta, partial, pairs)
        fields = dict(dict(
            act=None if moe else r.trap("another activation", act, other),
            pre_attn=pre_attn, pre_mlp=pre_mlp,
            post_attn=r.trap("no norm after attention", post_attn, None),
            post_mlp=r.trap("no norm after the MLP", post_mlp, None),
            norm_rotated=bool(qk) and r.trap("q_norm after RoPE", False, True),
            rope=rope, window=window[i], attn_cap=r.trap(
                "no softcap of scores", attn_cap, None),
            cap_after_mask=attn_cap is not None and attn_cap < 20 and r.trap(
                "softcap after the mask", False, True),
            scale=default if scale is None else r.trap(
                "scale 1/sqrt(d)", scale, default),
            parallel=parallel is not None and r.trap(
                "sequential, not parallel" if parallel else
                "parallel, not sequential", parallel, not parallel)), **fields)
        layers.append(layer(**fields))
    final_norm = r.norm(at + final, eps, centred, offset)
    head = head_of(r, c, at.replace("model.", "", 1) + "lm_head"
                   if at.startswith("language") else "lm_head", embedding, tied)
    r.ignore(r"^(model\.)?(vision_tower|m.*_projector|visual)\.",
             r"\.rotary_emb\.inv_freq$", *ignored)
    return model(embedding=embedding, head_dim=d, layers=layers, head=head,
                 final_norm=final_norm, **ends)
