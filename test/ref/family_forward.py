# SPDX-License-Identifier: ISC
"""A decoder of any family in float64: one plain forward over what
family_read.py makes of a model's files.

Written from what the families are: attention by full matrices, one sequence,
no cache.  A model is read into fields that say each step, so nothing here asks
for a family's name.
"""
import math

import numpy as np

ERF = np.vectorize(math.erf, otypes=[float])


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi)
                                * (x + 0.044715 * x ** 3)))


def gelu_erf(x):
    return x / 2 * (1 + ERF(x / math.sqrt(2)))


def silu(x):
    return x / 2 * (1 + np.tanh(x / 2))


def sigmoid(x):
    return 1 / (1 + np.exp(-x)) # exact where it is 1e-20


def linear(layer, x):
    """layer: (weight [out, in], bias or None)"""
    weight, bias = layer
    y = x @ weight.T
    return y if bias is None else y + bias


def normed(norm, x):
    """Over the last axis; norm: None, or its fields centred, weight (1 + w
    where the family adds it), bias or None, eps."""
    if norm is None:
        return x
    if norm.centred:
        x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + norm.eps)
    return x * norm.weight + (0 if norm.bias is None else norm.bias)


def normed_heads(norm, x):
    """q or k [n, heads, d]: each head, or all of a token's as one row."""
    if norm is None:
        return x
    if norm.whole:
        return normed(norm, x.reshape(len(x), -1)).reshape(x.shape)
    return normed(norm, x)


def rotated(rope, x):
    """x [n, heads, d]: turns the first 2 * len(freq) dims of each head."""
    if rope is None:
        return x
    angle = np.arange(len(x))[:, None, None] * rope.freq
    z = np.exp(1j * angle) * rope.factor
    half = len(rope.freq)
    out = x.copy()
    if rope.pairs:
        a, b = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        a, b = slice(0, half), slice(half, 2 * half)
    turned = (x[..., a] + 1j * x[..., b]) * z
    out[..., a], out[..., b] = turned.real, turned.imag
    return out


def capped(x, cap):
    return x if cap is None else cap * np.tanh(x / cap)


def attended(layer, q, k, v):
    """q [n, heads, d], k and v [n, kv_heads, d] -> [n, heads * d]"""
    n, heads, _ = q.shape
    group = heads // k.shape[1]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    hidden = distance < 0
    if layer.window is not None:
        hidden |= distance >= layer.window
    s = np.einsum("ihd,jhd->hij", q, k) * layer.scale
    if not layer.cap_after_mask:
        s = capped(s, layer.attn_cap)
    s = np.where(hidden, -np.inf, s)
    if layer.cap_after_mask:
        s = capped(s, layer.attn_cap)
    top = np.max(s, axis=-1, keepdims=True)
    p = np.exp(s - top)
    total = p.sum(axis=-1, keepdims=True)
    if layer.sinks is not None:
        total = total + np.exp(layer.sinks[:, None, None] - top)
    return np.einsum("hij,jhd->ihd", p / total, v).reshape(n, -1)


def latent_heads(layer, h):
    """q, k, v [n, heads, d] of latents: k's rotated part is all heads' own, and
    v has another d."""
    m, n = layer.latent, len(h)
    q = h if m.q_a is None else normed(m.q_norm, linear(m.q_a, h))
    q = linear(m.q, q).reshape(n, m.heads, -1)
    c = linear(m.kv_a, h)
    kv = linear(m.kv_b, normed(m.kv_norm, c[:, :m.rank])).reshape(n, m.heads, -1)
    k = np.repeat(rotated(layer.rope, c[:, None, m.rank:]), m.heads, axis=1)
    q = np.concatenate([q[..., :m.nope], rotated(layer.rope, q[..., m.nope:])],
                       axis=-1)
    return q, np.concatenate([kv[..., :m.nope], k], axis=-1), kv[..., m.nope:]


def heads_of(layer, h, d):
    """q, k, v [n, heads, d] as attended() has them."""
    q, k, v = (linear(w, h).reshape(len(h), -1, d)
               for w in (layer.q, layer.k, layer.v))
    if layer.norm_rotated:
        q, k = rotated(layer.rope, q), rotated(layer.rope, k)
    q, k = normed_heads(layer.q_norm, q), normed_heads(layer.k_norm, k)
    if not layer.norm_rotated:
        q, k = rotated(layer.rope, q), rotated(layer.rope, k)
    return q, k, v


def l2_normed(x, how):
    s = np.sum(x * x, axis=-1, keepdims=True)
    return {"none": lambda: x, "inside": lambda: x / np.sqrt(s + 1e-6),
            "outside": lambda: x / (np.sqrt(s) + 1e-6)}[how]()


def delta_rule(m, h):
    """Gated DeltaNet by its recurrence, a state [d_k, d_v] for each head of v:
    [n, heads * d_v]"""
    n, width = len(h), m.conv.shape[1]
    x = linear(m.qkv, h)
    x = np.concatenate([0 * x[:1]] * (width - 1) + [x], axis=0)
    x = m.conv_act(sum(m.conv[:, j] * x[j:j + n] for j in range(width)))
    q, k = (l2_normed(y.reshape(n, -1, m.dk), m.l2)[:, m.head]
            for y in (x[:, :m.key_dim], x[:, m.key_dim:2 * m.key_dim]))
    q, v = q * m.scale, x[:, 2 * m.key_dim:].reshape(n, -1, m.dv)
    beta = sigmoid(linear(m.b, h)) if m.beta else 1 + 0 * linear(m.b, h)
    decay = np.exp(-m.rate * np.log1p(np.exp(linear(m.a, h) + m.dt_bias)))
    state, out = 0 * k[0][:, :, None] * v[0][:, None], []
    for t in range(n):
        by = decay[t][:, None, None]
        state = state if m.decay_after else state * by
        y = v[t]
        if m.corrected:
            y = y - np.einsum("hkv,hk->hv", state, k[t])
        state = state + k[t][:, :, None] * (beta[t][:, None] * y)[:, None]
        state = state * by if m.decay_after else state
        out.append(np.einsum("hkv,hk->hv", state, q[t]))
    z = m.gate(linear(m.z, h)).reshape(n, -1, m.dv)
    y = np.stack(out)
    y = normed(m.norm, y * z) if m.gate_first else normed(m.norm, y) * z
    return y.reshape(n, -1)


def mlp(layer, x, at=lambda place, y: y):
    y = linear(layer.gate, x)
    if layer.up is None:
        y = layer.act(y)
    elif layer.clamp is None:
        y = layer.act(y) * linear(layer.up, x)
    else:
        c = layer.clamp
        y = np.clip(y, c.low, c.high)
        up = np.clip(linear(layer.up, x), -c.up, c.up) + c.offset
        y = y * sigmoid(c.alpha * y) * up
    return linear(layer.down, at("in_down", y))


def softmax(x):
    p = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def largest(x, k):
    """Which of each row are its k largest; of equals, the first."""
    order = np.argsort(-x, axis=-1, kind="stable")[:, :k, None]
    return (order == np.arange(x.shape[1])).any(1)


def routed(moe, x):
    """Each expert's weight in each row [n, experts]; 0 where it is not chosen."""
    logits = linear(moe.router, x)
    score = {"softmax": softmax, "sigmoid": sigmoid,
             "none": lambda y: y}[moe.score](logits)
    choice = score if moe.correction is None else score + moe.correction
    if moe.groups is not None:
        g = moe.groups
        of = np.sort(choice.reshape(len(x), g.n, -1), axis=-1)
        kept = largest(of[..., -g.best:].sum(-1), g.top)
        kept = np.repeat(kept, choice.shape[1] // g.n, axis=1)
        choice = np.where(~kept, g.masked, choice)
    chosen = largest(choice, moe.k)
    if moe.score == "none":
        return softmax(np.where(~chosen, -np.inf, logits))
    w = np.where(~chosen, 0.0, choice if moe.weights_corrected else score)
    if moe.normalized:
        w = w / (w.sum(-1, keepdims=True) + moe.tiny)
    return w * moe.scaling


def mixture(moe, x):
    """All experts of each row by their weights, and the one that all rows have."""
    w, y = routed(moe, x), 0
    for e, expert in enumerate(moe.experts):
        y = y + w[:, e:e + 1] * mlp(expert, x)
    if moe.shared is None:
        return y
    shared = mlp(moe.shared, x)
    if moe.shared_gate is not None:
        shared = shared * sigmoid(linear(moe.shared_gate, x))
    return y + shared


def shortened(layer, i, q, k, v, shorten):
    """As attended(), with a cache that is made shorter after n0 tokens."""
    n0, fewer = shorten
    both = [np.concatenate([few, x[n0:]])
            for few, x in zip(fewer(i, k[:n0], v[:n0]), (k, v))]
    m = len(both[0]) - len(k) + n0
    padded = np.concatenate([np.zeros_like(q[:m]), q[n0:]])
    return np.concatenate([attended(layer, q[:n0], k[:n0], v[:n0]),
                           attended(layer, padded, *both)[m:]])


def forward(model, ids, seen=None, shorten=None, change=None):
    """Logits [len(ids), vocab].  seen: a dict that gets each place's rows.
    shorten: (n0, fewer): the keys and values that all later tokens see of the
    first n0 are those that fewer(layer, k, v) returns.
    change: what is made of the rows at a place, by its name."""
    seen = {} if seen is None else seen
    change = change or {}
    n = len(ids)

    def see(place, rows):
        seen[place] = change[place](rows) if place in change else rows
        return seen[place]

    def added(place, y, norm, at):
        if model.outs_before_norm:
            return normed(norm, at(place, y)) * model.residual_scale
        return at(place, normed(norm, y) * model.residual_scale)

    x = see("embed", model.embedding[ids] * model.embed_scale)
    if model.positions is not None:
        x = x + model.positions[:n]
    x = see("layers.-1", x)
    for i, layer in enumerate(model.layers):
        def at(place, rows, i=i):
            return see("%s:%d" % (place, i), rows)

        h = at("in_qkv", normed(layer.pre_attn, x))
        if layer.delta is not None:
            z = delta_rule(layer.delta, h)
        else:
            q, k, v = (latent_heads(layer, h) if layer.latent is not None else
                       heads_of(layer, h, model.head_dim))
            z = (shortened(layer, i, q, k, v, shorten) if shorten
                 else attended(layer, q, k, v))
        if layer.out_gate is not None:
            z = z * sigmoid(linear(layer.out_gate, h))
        z = at("attn.hook_z", z)
        y = at("attn", linear(layer.o, z))
        middle = x + added("attn_out", y, layer.post_attn, at)
        if not layer.parallel:
            middle = at("resid_mid", middle)
        h = at("in_mlp", normed(layer.pre_mlp,
                                x if layer.parallel else middle))
        y = at("mlp", mlp(layer, h, at) if layer.moe is None else
               mixture(layer.moe, h))
        x = see("layers.%d" % i,
                middle + added("mlp_out", y, layer.post_mlp, at))
    x = normed(model.final_norm, x)
    return capped(linear(model.head, x) * model.logit_scale, model.final_cap)
