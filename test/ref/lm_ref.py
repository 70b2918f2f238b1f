# SPDX-License-Identifier: ISC
"""The loss of a decoder-only transformer and its gradient in low-rank adapters,
in float64: the reference that moe-sft tune is held to.

Backpropagation by hand through transformer.py's forward, one sequence at a
time with a full score matrix; lm_cases.py differentiates it numerically.
"""
import math

import numpy as np

import transformer
from transformer import rms_norm, rotate

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj",
           "down_proj")


def layers(config, targets):
    """Names of the linear layers that have an adapter, in the order of
    core/model/train/lm.h."""
    for i in range(config["num_hidden_layers"]):
        at = "model.layers.%d." % i
        mlps = ["mlp."]
        if transformer.is_sparse(config, i):
            n = config.get("num_experts") or config["num_local_experts"]
            mlps = ["mlp.experts.%d." % e for e in range(n)]
        for at_mlp, of in [("self_attn.", TARGETS[:4])] + [
                (x, TARGETS[4:]) for x in mlps]:
            yield from (at + at_mlp + t for t in of if t in targets)


def norm_back(x, weight, eps, dy):
    r = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    g = dy * weight
    return r * (g - x * r * r * np.mean(g * x, axis=-1, keepdims=True))


def activation_back(config, g):
    """act(g) and its derivative."""
    if config.get("hidden_act", "silu") == "silu":
        sig = 1 / (1 + np.exp(-g))
        return g * sig, sig * (1 + g * (1 - sig))
    c = math.sqrt(2 / math.pi)
    t = np.tanh(c * (g + 0.044715 * g ** 3))
    return (g / 2 * (1 + t), (1 + t) / 2 + g / 2 * (1 - t * t) * c
            * (1 + 3 * 0.044715 * g * g))


def to_bf16(x):
    """Rounded to bf16, by way of float32, nearest even."""
    u = np.array(x, "<f4", order="C", ndmin=1).view("<u4")
    u += (u >> 16 & 1) + 0x7fff
    u &= 0xffff0000
    return u.view("<f4").astype(np.float64)


def to_int8(x):
    """Rows of int8, nearest even, and each row's scale, absmax / 127, in f32:
    numbers of few bits, as bf16 has, are often halfway between two, and which
    one it is depends on how x / scale is computed: x * (127 / absmax)."""
    x = np.asarray(x, "<f4")
    top = np.abs(x).max(axis=1, initial=0, keepdims=True)
    by = np.float32(127) / np.where(top == 0, np.float32(1), top)
    return np.rint(x * by).astype(float), (top / np.float32(127)).astype(float)


def product(a, b):
    """a @ b: Debian's BLAS takes half the time where both lie row by row."""
    return np.ascontiguousarray(a) @ np.ascontiguousarray(b)


def loss_and_grads(config, tensors, adapter, scale, ids, labels, n_targets,
                   rounded=lambda x: x, attended=None, int8=False, seen=None,
                   back=True):
    """The sum of an example's losses, and the gradients of it / n_targets.

    adapter: {"model.layers.0.self_attn.q_proj": (A, B)}; labels[t] is the
    target for the token at t, -100 none; that of the first is not looked at.
    rounded: of the operands of products with weights, and, unless 'attended' is
    given for these, of attention's.  int8: experts' weights are.  seen: a dict
    that keeps what products see of weights from one example to the next.
    back: with the gradients.
    """
    attended = attended or rounded
    eps = config.get("rms_norm_eps", 1e-6)
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    group = heads // kv_heads
    d = config.get("head_dim") or config["hidden_size"] // heads
    freq, factor = transformer.rope_frequencies(config, d)
    n = len(ids)
    angle = np.arange(n)[:, None] * freq[None, :]
    embedding = tensors.get("model.embed_tokens.weight",
                            tensors.get("lm_head.weight"))
    head = (embedding if config.get("tie_word_embeddings")
            else tensors["lm_head.weight"])
    qk_norm = config["model_type"].startswith("qwen3")
    grads, weights = {}, {} if seen is None else seen

    def matrix(name, w):
        """Of a matrix what is multiplied, its transpose, and rows' scales."""
        if name not in weights:
            w, s = (to_int8(w) if int8 and ".experts." in name
                    else (rounded(w), None))
            weights[name] = w, np.ascontiguousarray(w.T), s
        return weights[name]

    def linear(name, x):
        _, w, s = matrix(name, tensors[name + ".weight"])
        if s is not None:
            qx, sx = to_int8(x)
            y = (qx @ w) * s.T * sx
        else:
            y = rounded(x) @ w
        y = y + tensors.get(name + ".bias", 0.0)
        if name in adapter:
            a, b = adapter[name]
            y = y + scale * product(product(x, a.T), b.T)
        return y

    def linear_back(name, x, dy, weight=1.0):
        """dx without the weight of an expert's rows, which dy has not yet."""
        w, _, s = matrix(name, tensors[name + ".weight"])
        if s is not None:
            qy, sy = to_int8(dy * s.T)
            dx = (qy @ w) * sy
        else:
            dx = rounded(dy) @ w
        if name in adapter:
            a, b = adapter[name]
            wdy = weight * dy
            grads[name] = (scale * product((wdy @ b).T, x),
                           scale * product(wdy.T, product(x, a.T)))
            dx = dx + scale * (dy @ b) @ a
        return dx

    def mlp(at, x):
        up = linear(at + "up_proj", x)
        act, slope = activation_back(config, linear(at + "gate_proj", x))
        return (linear(at + "down_proj", act * up),
                dict(at=at, up=up, act=act, slope=slope))

    def mlp_back(k, x, dy, weight=1.0):
        """dx, and the gradient of the rows' weight, dy . y: as y is W h, this
        is (W^T dy) . h, of what the backward has rounded."""
        h = k["act"] * k["up"]
        dinner = linear_back(k["at"] + "down_proj", h, dy, weight)
        dweight = np.sum(dinner * h, axis=1)
        dinner = weight * dinner
        return (linear_back(k["at"] + "gate_proj", x,
                            dinner * k["up"] * k["slope"])
                + linear_back(k["at"] + "up_proj", x, dinner * k["act"]),
                dweight)

    def experts(at, x):
        """The router is not rounded."""
        p = x @ tensors[at + "gate.weight"].T
        p = np.exp(p - p.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        used = np.argsort(-p, axis=1, kind="stable")
        used = used[:, :config["num_experts_per_tok"]]
        on = np.zeros_like(p)
        np.put_along_axis(on, used, 1, 1)
        w = p * on
        if config.get("norm_topk_prob"):
            w /= w.sum(axis=1, keepdims=True)
        out, each = np.zeros_like(x), []
        for e in range(p.shape[1]):
            rows = np.nonzero(on[:, e])[0]
            y, kept = mlp("%sexperts.%d." % (at, e), x[rows])
            out[rows] += w[rows, e:e + 1] * y
            each.append((rows, kept))
        return out, dict(at=at, p=p, on=on, w=w, each=each)

    def experts_back(k, x, dy):
        p, w = k["p"], k["w"]
        dx, dw = np.zeros_like(x), np.zeros_like(p)
        for e, (rows, kept) in enumerate(k["each"]):
            dx_rows, dw[rows, e] = mlp_back(kept, x[rows], dy[rows],
                                            w[rows, e:e + 1])
            dx[rows] += dx_rows
        if config.get("norm_topk_prob"): # w = p on / total
            total = np.sum(p * k["on"], axis=1, keepdims=True)
            dw = k["on"] * (dw - np.sum(dw * w, axis=1, keepdims=True)) / total
        dlogits = p * (dw - np.sum(dw * p, axis=1, keepdims=True))
        return dx + dlogits @ tensors[k["at"] + "gate.weight"]

    # forward
    x = embedding[ids]
    kept = []
    for i in range(config["num_hidden_layers"]):
        at = "model.layers.%d." % i
        k = dict(x=x, at=at)
        h = rms_norm(x, tensors[at + "input_layernorm.weight"], eps)
        q0 = linear(at + "self_attn.q_proj", h).reshape(n, heads, d)
        k0 = linear(at + "self_attn.k_proj", h).reshape(n, kv_heads, d)
        v = linear(at + "self_attn.v_proj", h).reshape(n, kv_heads, d)
        q, key = q0, k0
        if qk_norm:
            q = rms_norm(q, tensors[at + "self_attn.q_norm.weight"], eps)
            key = rms_norm(key, tensors[at + "self_attn.k_norm.weight"], eps)
        q, key = rotate(q, angle, factor), rotate(key, angle, factor)
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = distance >= 0
        window = transformer.layer_window(config, i)
        if window:
            seen &= distance < window
        out, probs = np.empty_like(q), []
        for j in range(heads):
            s = product(attended(q[:, j] / math.sqrt(d)),
                        attended(key[:, j // group]).T)
            s = np.where(seen, s, -np.inf)
            top = s.max(axis=1, keepdims=True)
            p = np.exp(s - top)
            total = p.sum(axis=1, keepdims=True)
            probs.append(p / total)
            for b in range(0, n, 64): # rounded against the largest so far
                now = s[:, :b + 64].max(axis=1, keepdims=True)
                now = np.where(np.isfinite(now), now, top)
                p[:, b:b + 64] = attended(np.exp(s[:, b:b + 64] - now)
                                          ) * np.exp(now - top)
            out[:, j] = product(p, attended(v[:, j // group])) / total
        out = out.reshape(n, heads * d)
        mid = x + linear(at + "self_attn.o_proj", out)
        h2 = rms_norm(mid, tensors[at + "post_attention_layernorm.weight"],
                      eps)
        forward = experts if transformer.is_sparse(config, i) else mlp
        y, k["mlp"] = forward(at + "mlp.", h2)
        x = mid + y
        k.update(h=h, q0=q0, k0=k0, v=v, q=q, key=key, probs=probs, out=out,
                 mid=mid, h2=h2)
        kept.append(k)
    final = rms_norm(x, tensors["model.norm.weight"], eps)

    # loss
    rows = np.array([t - 1 for t in range(1, n) if labels[t] != -100], int)
    want = np.asarray(labels)[rows + 1] if len(rows) else rows
    head, head_t, _ = matrix("head", head)
    logits = rounded(final[rows]) @ head_t
    top = logits.max(axis=1, keepdims=True) if len(rows) else 0
    e = np.exp(logits - top)
    total = e.sum(axis=1, keepdims=True)
    at_want = np.arange(len(rows)), want
    loss = float(np.sum(np.log(total[:, 0]) - (logits - top)[at_want]))
    dlogits = e / total
    dlogits[at_want] -= 1
    if not back:
        return loss, grads

    # backward
    dfinal = np.zeros_like(final)
    dfinal[rows] = rounded(dlogits / max(n_targets, 1)) @ head
    dx = norm_back(x, tensors["model.norm.weight"], eps, dfinal)
    for k in reversed(kept):
        at = k["at"]
        if "each" in k["mlp"]:
            dh = experts_back(k["mlp"], k["h2"], dx)
        else:
            dh, _ = mlp_back(k["mlp"], k["h2"], dx)
        dx = dx + norm_back(
            k["mid"], tensors[at + "post_attention_layernorm.weight"], eps, dh)
        dout = linear_back(at + "self_attn.o_proj", k["out"], dx)
        dout = dout.reshape(n, heads, d)
        dq, dk = np.empty_like(k["q"]), np.zeros_like(k["key"])
        dv = np.zeros_like(k["v"])
        for j in range(heads):
            p, kv = k["probs"][j], j // group
            out = k["out"].reshape(n, heads, d)[:, j]
            dv[:, kv] += product(attended(p).T, attended(dout[:, j]))
            dp = product(attended(dout[:, j]), attended(k["v"][:, kv]).T)
            ds = p * (dp - (dout[:, j] * out).sum(axis=1, keepdims=True))
            dq[:, j] = attended(ds) @ attended(k["key"][:, kv]) / math.sqrt(d)
            dk[:, kv] += product(attended(ds).T,
                                 attended(k["q"][:, j] / math.sqrt(d)))
        # the transposed rotation: by the opposite angle, as much longer
        dq, dk = rotate(dq, -angle, factor), rotate(dk, -angle, factor)
        if qk_norm:
            dq = norm_back(k["q0"], tensors[at + "self_attn.q_norm.weight"],
                           eps, dq)
            dk = norm_back(k["k0"], tensors[at + "self_attn.k_norm.weight"],
                           eps, dk)
        dh = (linear_back(at + "self_attn.q_proj", k["h"], dq.reshape(n, -1))
              + linear_back(at + "self_attn.k_proj", k["h"],
                            dk.reshape(n, -1))
              + linear_back(at + "self_attn.v_proj", k["h"],
                            dv.reshape(n, -1)))
        dx = dx + norm_back(k["x"], tensors[at + "input_layernorm.weight"],
                            eps, dh)
    return loss, grads


def step(config, tensors, adapter, scale, seqs, rounded=lambda x: x,
         attended=None, int8=False, back=True):
    """Of sequences (ids, labels, starts), whose examples do not see each
    other: the sum of losses, the number of targets, and the gradients."""
    examples = []
    for ids, labels, starts in seqs:
        ends = list(starts[1:]) + [len(ids)]
        examples += [(ids[a:b], labels[a:b]) for a, b in zip(starts, ends)]
    n = sum(int(np.sum(np.asarray(x[1:]) != -100)) for _, x in examples)
    total, sums, seen = 0.0, {}, {}
    for ids, labels in examples:
        if len(ids) == 0:
            continue
        loss, grads = loss_and_grads(config, tensors, adapter, scale, ids,
                                     labels, n, rounded, attended, int8, seen,
                                     back)
        total += loss
        for name, (a, b) in grads.items():
            before = sums.get(name, (0, 0))
            sums[name] = (before[0] + a, before[1] + b)
    return total, n, sums
