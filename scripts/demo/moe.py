#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Train the demo's model with experts: moe.py CORPUS_DIR MODEL_DIR [STEPS]

As train.py does, but much smaller and for fewer steps: it is there to be
damaged and repaired, not to be asked.  Two layers, each with four experts of
which a token uses two.
"""

import pathlib
import random
import sys
import time

import bpe
import qwen3
import torch
import train
from torch import nn
from torch.nn import functional

STEPS = 1000
BALANCE = 0.01  # weight of the penalty for uneven use
CONFIG = {
    **qwen3.CONFIG,
    "architectures": ["Qwen3MoeForCausalLM"],
    "decoder_sparse_step": 1,
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 192,
    "max_window_layers": 2,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 96,
    "norm_topk_prob": True,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
}


class Experts(nn.Module):
    """A router, and MLPs of which each token uses the likeliest."""

    def __init__(self, cfg):
        super().__init__()
        n, self.used = cfg["num_experts"], cfg["num_experts_per_tok"]
        inner = {**cfg, "intermediate_size": cfg["moe_intermediate_size"]}
        self.gate = nn.Linear(cfg["hidden_size"], n, bias=False)
        self.experts = nn.ModuleList(qwen3.MLP(inner) for _ in range(n))
        self.penalty = 0.0

    def forward(self, x):
        """x [B, T, hidden]."""
        rows = x.flatten(0, 1)
        p = self.gate(rows).softmax(-1)
        w, used = p.topk(self.used, -1)
        w = torch.zeros_like(p).scatter(1, used, w / w.sum(-1, keepdim=True))
        share = (w > 0).to(p.dtype).mean(0) * len(self.experts)
        self.penalty = BALANCE * (share * p.mean(0)).sum()
        y = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            at = w[:, i].nonzero()[:, 0]
            y = y.index_add(0, at, expert(rows[at]) * w[at, i, None])
        return y.view_as(x)


class Qwen3Moe(qwen3.Qwen3):
    """The language model with experts on every layer."""

    def __init__(self, cfg):
        super().__init__(cfg)
        for layer in self.model.layers:
            layer.mlp = Experts(cfg)
            for name, p in layer.mlp.named_parameters():
                last = name.endswith("down_proj.weight")
                nn.init.normal_(p, std=0.01 if last else 0.02)

    def loss(self, ids, targets, doc):
        """What is trained."""
        logits = self(ids, doc).flatten(0, 1)
        loss = functional.cross_entropy(logits, targets.flatten())
        return loss + sum(layer.mlp.penalty for layer in self.model.layers)


def main():
    """Train and write the model directory."""
    corpus, out = map(pathlib.Path, sys.argv[1:3])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else STEPS
    torch.set_num_threads(1)
    torch.manual_seed(train.SEED)
    tok = bpe.Tokenizer(out / "tokenizer.json")
    docs = train.read_docs(corpus / "train.txt", tok)
    held = train.read_docs(corpus / "held-out.txt", tok)
    model = Qwen3Moe(CONFIG)
    bpe.write_json(out / "config.json", CONFIG)
    bpe.write_json(out / "generation_config.json", qwen3.GENERATION)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{n_params} weights, {sum(map(len, docs))} tokens an epoch")
    began = time.monotonic()

    def each_500(step, loss):
        qwen3.save(out / "model.safetensors", model)
        train.report(model, tok, held, step, loss, began)

    windows = train.Windows(docs, random.Random(train.SEED))
    train.train(model, windows, steps, each_500)
    qwen3.round_bf16(model)
    print(f"rounded to BF16: held out {train.held_out_loss(model, held):.3f}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: moe.py CORPUS_DIR MODEL_DIR [STEPS]")
    main()
