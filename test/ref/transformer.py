# SPDX-License-Identifier: ISC
"""A decoder-only transformer in float64: the reference hf-infer is held to.

Written from the papers (RMSNorm, RoFormer, GQA, Llama 3, YaRN, Mistral, Qwen)
and from what the keys of config.json mean in Hugging Face's transformers.
Slow and plain on purpose: one sequence, all positions, a full score matrix.
"""
import json
import math
import os

import numpy as np

import mkst


def load(directory):
    with open(os.path.join(directory, "config.json")) as f:
        config = json.load(f)
    index = os.path.join(directory, "model.safetensors.index.json")
    files = ["model.safetensors"]
    if os.path.exists(index):
        with open(index) as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    tensors = {}
    for name in files:
        tensors.update(mkst.read(os.path.join(directory, name))[0])
    # Saved from the class without a head, names lack their first word.
    return config, {n if n.startswith(("model.", "lm_head.")) else "model." + n: t
                    for n, t in tensors.items()}


def rope_frequencies(config, head_dim):
    """Radians a position for each pair, and the factor on cos and sin."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    base = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    freq = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    if kind == "default":
        return freq, 1.0
    s = rope["factor"]
    if kind == "linear":
        return freq / s, 1.0
    length = rope["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        out = []
        for f in freq:
            wavelength = 2 * math.pi / f
            if wavelength < length / high:
                out.append(f)
            elif wavelength > length / low:
                out.append(f / s)
            else:
                smooth = (length / wavelength - low) / (high - low)
                out.append((1 - smooth) * f / s + smooth * f)
        return np.array(out), 1.0
    assert kind == "yarn"

    def pair_of(turns):
        return (head_dim * math.log(length / (turns * 2 * math.pi))
                / (2 * math.log(base)))

    first = pair_of(rope.get("beta_fast") or 32)
    last = pair_of(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, head_dim - 1)
    if first == last:
        last += 0.001
    keep = 1 - np.clip((np.arange(head_dim // 2) - first) / (last - first),
                       0, 1)

    def mscale(weight):
        return 1.0 if s <= 1 else 0.1 * weight * math.log(s) + 1.0

    attention = rope.get("attention_factor")
    if attention is None:
        m, m_all = rope.get("mscale"), rope.get("mscale_all_dim")
        attention = mscale(m) / mscale(m_all) if m and m_all else mscale(1)
    return freq / s * (1 - keep) + freq * keep, attention


def layer_window(config, i):
    """The sliding window of layer i, or None."""
    window = config.get("sliding_window", 4096)
    kind = config["model_type"]
    if kind == "mistral":
        return window
    if kind == "llama" or not config.get("use_sliding_window"):
        return None
    if kind == "qwen3_moe":
        return window
    if config.get("layer_types"):
        sliding = config["layer_types"][i] == "sliding_attention"
        return window if sliding else None
    return window if i >= config["max_window_layers"] else None


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rotate(x, angle, factor):
    """x [T, heads, head_dim]; the second half is the imaginary part."""
    half = x.shape[-1] // 2
    c, s = np.cos(angle)[:, None] * factor, np.sin(angle)[:, None] * factor
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1)


def activation(config, x):
    if config.get("hidden_act", "silu") == "silu":
        return x / (1 + np.exp(-x))
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi)
                                * (x + 0.044715 * x ** 3)))


def attention(config, q, k, v, window):
    """q [T, heads, d], k and v [T, kv_heads, d] -> [T, heads * d]."""
    n, heads, d = q.shape
    group = heads // k.shape[1]
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    seen = distance >= 0
    if window:
        seen &= distance < window
    out = np.empty_like(q)
    for h in range(heads):
        scores = q[:, h] @ k[:, h // group].T / math.sqrt(d)
        scores = np.where(seen, scores, -np.inf)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, h] = p / p.sum(axis=1, keepdims=True) @ v[:, h // group]
    return out.reshape(n, heads * d)


def is_sparse(config, i):
    """Has layer i experts?"""
    return (config["model_type"] == "qwen3_moe"
            and i not in (config.get("mlp_only_layers") or [])
            and (i + 1) % (config.get("decoder_sparse_step") or 1) == 0)


def tapped(new, x):
    """What a tap returns goes on in the place of what it was shown."""
    return x if new is None else new


def mlp(config, linear, at, x, tap=lambda x: None):
    gate = activation(config, linear(at + "gate_proj", x))
    gate = gate * linear(at + "up_proj", x)
    return linear(at + "down_proj", tapped(tap(gate), gate))


def experts(config, linear, x):
    """Each row through the experts that the router gives most to."""
    p = linear("mlp.gate", x)
    p = np.exp(p - p.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    used = np.argsort(-p, axis=1, kind="stable")
    used = used[:, :config["num_experts_per_tok"]]
    w = np.zeros_like(p)
    np.put_along_axis(w, used, np.take_along_axis(p, used, 1), 1)
    if config.get("norm_topk_prob"):
        w /= w.sum(axis=1, keepdims=True)
    out = np.zeros_like(x)
    for e in range(p.shape[1]):
        rows = np.nonzero(w[:, e])[0]
        y = mlp(config, linear, "mlp.experts.%d." % e, x[rows])
        out[rows] += w[rows, e:e + 1] * y
    return out


def forward(config, tensors, ids, tap=lambda point, layer, x: None,
            shorten=None):
    """Logits [len(ids), vocab] in float64.  tap() is shown what a layer's
    matrices read and write, and the residual stream, by hf-infer's names; what it
    returns, if it is not None, goes on instead.
    shorten = (n, fn): tokens from n on see fn(layer, k, v) of the first n keys
    and values [n, kv_heads, d] instead of these."""
    eps = config.get("rms_norm_eps", 1e-6)
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    d = config.get("head_dim") or config["hidden_size"] // heads
    freq, factor = rope_frequencies(config, d)
    angle = np.arange(len(ids))[:, None] * freq[None, :]
    embedding = tensors.get("model.embed_tokens.weight",
                            tensors.get("lm_head.weight"))
    head = (embedding if config.get("tie_word_embeddings")
            else tensors["lm_head.weight"])
    x = embedding[ids]
    x = tapped(tap("resid", -1, x), x)
    n = len(ids)
    for i in range(config["num_hidden_layers"]):
        at = "model.layers.%d." % i

        def linear(name, y):
            bias = tensors.get(at + name + ".bias", 0.0)
            return y @ tensors[at + name + ".weight"].T + bias

        h = rms_norm(x, tensors[at + "input_layernorm.weight"], eps)
        for name in ("q", "k", "v"):
            h = tapped(tap("in:%s_proj" % name, i, h), h)
        q = linear("self_attn.q_proj", h).reshape(n, heads, d)
        k = linear("self_attn.k_proj", h).reshape(n, kv_heads, d)
        v = linear("self_attn.v_proj", h).reshape(n, kv_heads, d)
        if config["model_type"] in ("qwen3", "qwen3_moe"):
            q = rms_norm(q, tensors[at + "self_attn.q_norm.weight"], eps)
            k = rms_norm(k, tensors[at + "self_attn.k_norm.weight"], eps)
        q, k = rotate(q, angle, factor), rotate(k, angle, factor)
        a = attention(config, q, k, v, layer_window(config, i))
        if shorten:
            n0 = shorten[0]
            k0, v0 = shorten[1](i, k[:n0], v[:n0])
            # queries of the shorter cache's own tokens are not looked at
            gone = n0 - len(k0)
            a[n0:] = attention(config, q[gone:], np.concatenate([k0, k[n0:]]),
                               np.concatenate([v0, v[n0:]]), None)[n0 - gone:]
        a = tapped(tap("in:o_proj", i, a), a)
        y = linear("self_attn.o_proj", a)
        y = tapped(tap("attn", i, y), y)
        x = x + y
        h = rms_norm(x, tensors[at + "post_attention_layernorm.weight"], eps)
        for name in ("gate", "up"):
            h = tapped(tap("in:%s_proj" % name, i, h), h)
        if is_sparse(config, i):
            y = experts(config, linear, h)
        else:
            y = mlp(config, linear, "mlp.", h,
                    lambda gate, i=i: tap("in:down_proj", i, gate))
        y = tapped(tap("mlp", i, y), y)
        x = x + y
        x = tapped(tap("resid", i, x), x)
    return rms_norm(x, tensors["model.norm.weight"], eps) @ head.T
