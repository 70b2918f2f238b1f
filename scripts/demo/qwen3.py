# SPDX-License-Identifier: ISC
"""Qwen3 in torch, from the architecture's definition, and its files.

Tensors are named as in Hugging Face's checkpoints.  B is the batch, T the
tokens, H = num_attention_heads, K = num_key_value_heads, D = head_dim.
"""

import json
import math
import struct

import torch
from torch import nn
from torch.nn import functional

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1021,
    "eos_token_id": 1023,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 512,
    "max_window_layers": 4,
    "model_type": "qwen3",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 1024,
}
GENERATION = {
    "bos_token_id": 1021,
    "do_sample": False,
    "eos_token_id": [1023, 1021],
    "pad_token_id": 1021,
}


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, over the last dimension."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        """Any shape whose last dimension is 'size'."""
        mean = x.pow(2).mean(-1, keepdim=True)
        return x * torch.rsqrt(mean + self.eps) * self.weight


def rope_tables(cfg, n, dtype):
    """cos and sin [n, D / 2], computed in double."""
    half = cfg["head_dim"] // 2
    power = torch.arange(half, dtype=torch.float64) / half
    freq = float(cfg["rope_theta"]) ** -power
    angle = torch.arange(n, dtype=torch.float64)[:, None] * freq
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x, cos, sin):
    """Half rotation of x [B, heads, T, D]."""
    x1, x2 = x.chunk(2, -1)
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), -1)


class Attention(nn.Module):
    """Grouped-query attention with RMSNorm on queries and keys."""

    def __init__(self, cfg):
        super().__init__()
        self.heads = cfg["num_attention_heads"]
        self.kv_heads = cfg["num_key_value_heads"]
        self.dim = cfg["head_dim"]
        hidden, eps = cfg["hidden_size"], cfg["rms_norm_eps"]
        q_size, kv_size = self.heads * self.dim, self.kv_heads * self.dim
        self.q_proj = nn.Linear(hidden, q_size, bias=False)
        self.k_proj = nn.Linear(hidden, kv_size, bias=False)
        self.v_proj = nn.Linear(hidden, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, hidden, bias=False)
        self.q_norm = RMSNorm(self.dim, eps)
        self.k_norm = RMSNorm(self.dim, eps)

    def forward(self, x, rope, mask):
        """x [B, T, hidden]; mask [B, 1, T, T] is added to the scores."""
        b, t, _ = x.shape

        def split(y, heads):
            return y.view(b, t, heads, self.dim)

        q = self.q_norm(split(self.q_proj(x), self.heads)).transpose(1, 2)
        k = self.k_norm(split(self.k_proj(x), self.kv_heads)).transpose(1, 2)
        v = split(self.v_proj(x), self.kv_heads).transpose(1, 2)
        q, k = rotate(q, *rope), rotate(k, *rope)
        group = self.heads // self.kv_heads
        k = k.repeat_interleave(group, 1)
        v = v.repeat_interleave(group, 1)
        scores = (q / math.sqrt(self.dim)) @ k.transpose(2, 3) + mask
        y = scores.softmax(-1) @ v
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, cfg):
        super().__init__()
        hidden, inner = cfg["hidden_size"], cfg["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        """x [B, T, hidden]."""
        gate = functional.silu(self.gate_proj(x))
        return self.down_proj(gate * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each added to the residual stream."""

    def __init__(self, cfg):
        super().__init__()
        size = (cfg["hidden_size"], cfg["rms_norm_eps"])
        self.input_layernorm = RMSNorm(*size)
        self.self_attn = Attention(cfg)
        self.post_attention_layernorm = RMSNorm(*size)
        self.mlp = MLP(cfg)

    def forward(self, x, rope, mask):
        """x [B, T, hidden]."""
        x = x + self.self_attn(self.input_layernorm(x), rope, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Trunk(nn.Module):
    """The part of a checkpoint under "model."."""

    def __init__(self, cfg):
        super().__init__()
        hidden = cfg["hidden_size"]
        n_layers = cfg["num_hidden_layers"]
        self.embed_tokens = nn.Embedding(cfg["vocab_size"], hidden)
        self.layers = nn.ModuleList(Layer(cfg) for _ in range(n_layers))
        self.norm = RMSNorm(hidden, cfg["rms_norm_eps"])


class Qwen3(nn.Module):
    """The language model; the embedding is the output layer, too."""

    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.model = Trunk(cfg)
        out = cfg["initializer_range"] / math.sqrt(
            2 * cfg["num_hidden_layers"]
        )
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("o_proj.weight", "down_proj.weight"))
                nn.init.normal_(p, std=out if last else 0.02)

    def forward(self, ids, doc=None):
        """Logits [B, T, vocab].  Tokens of other documents are not seen."""
        t = ids.shape[1]
        table = self.model.embed_tokens.weight
        seen = torch.ones(t, t, dtype=torch.bool).tril()[None]
        if doc is not None:
            seen = seen & (doc[:, :, None] == doc[:, None, :])
        mask = torch.zeros(seen.shape, dtype=table.dtype)
        mask = mask.masked_fill(~seen, float("-inf"))[:, None]
        rope = rope_tables(self.cfg, t, table.dtype)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, rope, mask)
        return functional.linear(self.model.norm(x), table)

    def loss(self, ids, targets, doc):
        """Mean negative log-likelihood of the targets."""
        logits = self(ids, doc).flatten(0, 1)
        return functional.cross_entropy(logits, targets.flatten())


def round_bf16(model):
    """Round all weights to BF16 and keep their dtype."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16))


@torch.no_grad()
def greedy(model, ids, n, stop):
    """Up to n token ids after 'ids', ended before one of 'stop'."""
    out = []
    for _ in range(n):
        logits = model(torch.tensor([ids + out]))[0, -1]
        best = int(logits.argmax())
        if best in stop:
            break
        out.append(best)
    return out


def save(path, model):
    """Write all weights as BF16 safetensors."""
    header, data, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, p in sorted(model.state_dict().items()):
        raw = p.to(torch.bfloat16).view(torch.int16).numpy().astype("<i2")
        header[name] = {
            "dtype": "BF16",
            "shape": list(p.shape),
            "data_offsets": [at, at + raw.nbytes],
        }
        at += raw.nbytes
        data.append(raw.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def load(path, model):
    """Read weights that save() wrote into the model, keeping its dtype."""
    with open(path, "rb") as file:
        blob = bytearray(file.read())
    (n,) = struct.unpack_from("<Q", blob)
    header = json.loads(blob[8 : 8 + n])
    state = {}
    for name in model.state_dict():
        at, end = (8 + n + x for x in header[name]["data_offsets"])
        raw = torch.frombuffer(blob[at:end], dtype=torch.bfloat16)
        state[name] = raw.reshape(header[name]["shape"])
    model.load_state_dict(state)
