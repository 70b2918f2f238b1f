#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Train the demo's vision encoder: vit.py MODEL_DIR [STEPS]

A DINOv2 of two layers, on pictures like those of pictures.py, to say what shape
is in the picture, by CLS, and in each patch.  What says so is thrown away.
MODEL_DIR gets config.json, preprocessor_config.json and model.safetensors.
"""

import pathlib
import random
import sys
import time

import bpe
import numpy as np
import pictures
import qwen3
import torch
from torch import nn
from torch.nn import functional

SEED = 20
STEPS = 1500
BATCH = 32
N_PICTURES = 3000
PEAK_LR = 3e-3
CONFIG = {
    "architectures": ["Dinov2Model"],
    "hidden_act": "gelu",
    "hidden_size": 32,
    "image_size": 64,
    "layer_norm_eps": 1e-6,
    "mlp_ratio": 4,
    "model_type": "dinov2",
    "num_attention_heads": 2,
    "num_channels": 3,
    "num_hidden_layers": 2,
    "patch_size": 8,
    "qkv_bias": True,
    "torch_dtype": "bfloat16",
    "use_swiglu_ffn": False,
}
PROCESSOR = {
    "do_center_crop": False,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_processor_type": "BitImageProcessor",
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "rescale_factor": 1 / 255,
    "size": {"height": 64, "width": 64},
}


def named(**modules):
    """Modules under the names that Dinov2Model gives them."""
    return nn.ModuleDict(modules)


class Scale(nn.Module):
    """Layer scale."""

    def __init__(self, h):
        super().__init__()
        self.lambda1 = nn.Parameter(torch.ones(h))


class Layer(nn.Module):
    """A block: attention without a mask, then an MLP."""

    def __init__(self, h, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = (nn.LayerNorm(h, eps=1e-6) for _ in "12")
        qkv = {x: nn.Linear(h, h) for x in ("query", "key", "value")}
        self.attention = named(
            attention=named(**qkv), output=named(dense=nn.Linear(h, h))
        )
        self.layer_scale1, self.layer_scale2 = Scale(h), Scale(h)
        self.mlp = named(fc1=nn.Linear(h, 4 * h), fc2=nn.Linear(4 * h, h))

    def forward(self, x):
        """x [B, tokens, hidden]."""
        y = self.norm1(x)
        q, k, v = (
            self.attention["attention"][name](y)
            .unflatten(-1, (self.n_heads, -1))
            .transpose(1, 2)
            for name in ("query", "key", "value")
        )
        p = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        y = self.attention["output"]["dense"]((p @ v).transpose(1, 2).flatten(2))
        x = x + self.layer_scale1.lambda1 * y
        y = functional.gelu(self.mlp["fc1"](self.norm2(x)))
        return x + self.layer_scale2.lambda1 * self.mlp["fc2"](y)


class Dinov2(nn.Module):
    """The encoder, to the final norm."""

    def __init__(self, cfg):
        super().__init__()
        h, p = cfg["hidden_size"], cfg["patch_size"]
        n = (cfg["image_size"] // p) ** 2
        conv = nn.Conv2d(3, h, p, p)
        self.embeddings = named(patch_embeddings=named(projection=conv))
        for name, shape in ("cls_token", 1), ("position_embeddings", n + 1):
            start = nn.Parameter(torch.randn(1, shape, h) * 0.02)
            self.embeddings.register_parameter(name, start)
        self.encoder = named(
            layer=nn.ModuleList(
                Layer(h, cfg["num_attention_heads"])
                for _ in range(cfg["num_hidden_layers"])
            )
        )
        self.layernorm = nn.LayerNorm(h, eps=cfg["layer_norm_eps"])

    def forward(self, pixels):
        """pixels [B, 3, H, W]."""
        e = self.embeddings
        x = e["patch_embeddings"]["projection"](pixels)
        x = x.flatten(2).transpose(1, 2)
        x = torch.cat([e.cls_token.expand(len(x), -1, -1), x], 1)
        x = x + e.position_embeddings
        for layer in self.encoder["layer"]:
            x = layer(x)
        return self.layernorm(x)


def data(rng, n):
    """Pixels, and the shape of each picture and of its patches (0: none)."""
    size, p = CONFIG["image_size"], CONFIG["patch_size"]
    colours = list(pictures.COLOURS.values())
    pixels, shapes, patches = [], [], []
    for _ in range(n):
        shape = rng.randrange(len(pictures.SHAPES))
        one = pictures.draw(
            rng, pictures.SHAPES[shape], rng.choice(colours), size
        )
        pixels.append(one[0].transpose(2, 0, 1))
        covered = one[1].reshape(size // p, p, size // p, p).mean((1, 3))
        patches.append((covered > 0.3).reshape(-1) * (shape + 1))
        shapes.append(shape)
    return [torch.from_numpy(np.stack(x)) for x in (pixels, shapes, patches)]


def judge(model, heads, pixels, shapes, patches):
    """The loss, and the shares of pictures and of patches that are right."""
    x = model(pixels.float() / 127.5 - 1)
    one, each = heads[0](x[:, 0]), heads[1](x[:, 1:])
    loss = functional.cross_entropy(one, shapes) + functional.cross_entropy(
        each.flatten(0, 1), patches.flatten()
    )
    right = [(a.argmax(-1) == b).float().mean() for a, b in
             ((one, shapes), (each, patches))]
    return loss, *map(float, right)


def main():
    """Train and write the model directory."""
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else STEPS
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    seen, held = data(rng, N_PICTURES), data(rng, 400)
    model, n = Dinov2(CONFIG), len(pictures.SHAPES)
    h = CONFIG["hidden_size"]
    heads = nn.ModuleList([nn.Linear(h, n), nn.Linear(h, n + 1)])
    print(sum(p.numel() for p in model.parameters()), "weights")
    weights = [*model.parameters(), *heads.parameters()]
    opt = torch.optim.AdamW(weights, lr=PEAK_LR, weight_decay=0.05)
    rate = torch.optim.lr_scheduler.OneCycleLR(
        opt, PEAK_LR, steps, pct_start=0.1
    )
    bpe.write_json(out / "config.json", CONFIG)
    bpe.write_json(out / "preprocessor_config.json", PROCESSOR)
    began = time.monotonic()

    def report(what):
        with torch.no_grad():
            loss, one, each = judge(model, heads, *held)
        print(f"{what}: held out {float(loss):.3f}, pictures {one:.3f},"
              f" patches {each:.3f}, {time.monotonic() - began:.0f} s",
              flush=True)

    for step in range(steps):
        at = torch.tensor(rng.sample(range(N_PICTURES), BATCH))
        loss = judge(model, heads, *(x[at] for x in seen))[0]
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        opt.step()
        rate.step()
        if (step + 1) % 250 == 0:
            report(f"step {step + 1}")
            qwen3.save(out / "model.safetensors", model)
    qwen3.round_bf16(model)
    report("rounded to BF16")
    qwen3.save(out / "model.safetensors", model)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: vit.py MODEL_DIR [STEPS]")
    main()
