# SPDX-License-Identifier: ISC
"""What lm_ref.py derives by hand, by torch's autograd in float64: the forward
is written once more, in terms of torch's own functions.
"""
import math

import numpy as np
import torch
from torch.nn import functional

import transformer


def norm(x, weight, eps):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


class Forward:
    """Of one example; adapters are leaves that want gradients."""

    def __init__(self, config, tensors, adapter, scale):
        self.c, self.scale, self.adapter = config, scale, adapter
        self.w = tensors
        self.eps = config.get("rms_norm_eps", 1e-6)
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.d = config.get("head_dim") or config["hidden_size"] // self.heads
        freq, self.factor = transformer.rope_frequencies(config, self.d)
        self.freq = torch.tensor(freq)

    def linear(self, name, x):
        y = functional.linear(x, self.w[name + ".weight"],
                              self.w.get(name + ".bias"))
        if name in self.adapter:
            a, b = self.adapter[name]
            y = y + self.scale * functional.linear(functional.linear(x, a), b)
        return y

    def rotated(self, x):
        """x [heads, T, d], as complex numbers."""
        half = self.d // 2
        angle = torch.outer(torch.arange(x.shape[1], dtype=x.dtype), self.freq)
        z = torch.complex(x[..., :half], x[..., half:]) * torch.polar(
            torch.full_like(angle, self.factor), angle)
        return torch.cat([z.real, z.imag], -1)

    def attention(self, i, at, h):
        n = len(h)
        q, k, v = (self.linear("%s%s_proj" % (at, x), h).view(n, -1, self.d)
                   for x in "qkv")
        if self.c["model_type"].startswith("qwen3"):
            q = norm(q, self.w[at + "q_norm.weight"], self.eps)
            k = norm(k, self.w[at + "k_norm.weight"], self.eps)
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        group = self.heads // self.kv_heads
        k = self.rotated(k).repeat_interleave(group, 0)
        v = v.repeat_interleave(group, 0)
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        window = transformer.layer_window(self.c, i)
        if window:
            seen &= ~torch.ones(n, n, dtype=torch.bool).tril(-window)
        scores = self.rotated(q) @ k.transpose(1, 2) / math.sqrt(self.d)
        p = scores.masked_fill(~seen, -math.inf).softmax(-1)
        return self.linear(at + "o_proj",
                           (p @ v).transpose(0, 1).reshape(n, -1))

    def mlp(self, at, x):
        gate = self.linear(at + "gate_proj", x)
        if self.c.get("hidden_act", "silu") == "silu":
            gate = functional.silu(gate)
        else:
            gate = functional.gelu(gate, approximate="tanh")
        return self.linear(at + "down_proj",
                           gate * self.linear(at + "up_proj", x))

    def experts(self, at, x):
        p = functional.linear(x, self.w[at + "gate.weight"]).softmax(-1)
        # of equals the lowest, which topk does not promise
        w, used = p.sort(dim=-1, descending=True, stable=True)
        k = self.c["num_experts_per_tok"]
        w, used = w[:, :k], used[:, :k]
        if self.c.get("norm_topk_prob"):
            w = w / w.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for e in range(p.shape[1]):
            rows, slot = torch.where(used == e)
            y = self.mlp("%sexperts.%d." % (at, e), x[rows])
            out = out.index_add(0, rows, y * w[rows, slot, None])
        return out

    def loss(self, ids, labels):
        """The sum over targets."""
        embedding = self.w.get("model.embed_tokens.weight",
                               self.w.get("lm_head.weight"))
        head = (embedding if self.c.get("tie_word_embeddings")
                else self.w["lm_head.weight"])
        x = embedding[torch.tensor(ids)]
        for i in range(self.c["num_hidden_layers"]):
            at = "model.layers.%d." % i
            h = norm(x, self.w[at + "input_layernorm.weight"], self.eps)
            x = x + self.attention(i, at + "self_attn.", h)
            h = norm(x, self.w[at + "post_attention_layernorm.weight"],
                     self.eps)
            x = x + (self.experts if transformer.is_sparse(self.c, i)
                     else self.mlp)(at + "mlp.", h)
        logits = norm(x, self.w["model.norm.weight"], self.eps) @ head.t()
        return functional.cross_entropy(logits[:-1], torch.tensor(labels[1:]),
                                        ignore_index=-100, reduction="sum")


def step(config, tensors, adapter, scale, seqs):
    """As lm_ref.step()."""
    leaves = {name: [torch.tensor(x, dtype=torch.float64, requires_grad=True)
                     for x in pair] for name, pair in adapter.items()}
    f = Forward(config, {name: torch.tensor(x, dtype=torch.float64)
                         for name, x in tensors.items()}, leaves, scale)
    total, n = 0, 0
    for ids, labels, starts in seqs:
        for a, b in zip(starts, list(starts[1:]) + [len(ids)]):
            n_here = int(np.sum(np.asarray(labels[a + 1:b]) != -100))
            n += n_here
            if n_here: # the mean of nothing is NaN, the sum has no gradient
                total = total + f.loss(ids[a:b], labels[a:b])
    (total / n).backward()
    return float(total), n, {
        name: [np.zeros(x.shape) if x.grad is None else x.grad.numpy()
               for x in pair] for name, pair in leaves.items()}
