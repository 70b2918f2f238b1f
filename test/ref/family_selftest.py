# SPDX-License-Identifier: ISC
"""family_ref.py selftest: family_forward.py and family_read.py against what
else there is: transformer.py for the llamas, torch's TransformerEncoder and
functions for GPT-2, and identities between families; and each model computed
again in f32, which must be as near as hf-infer has to be.
"""
import os
import tempfile
from types import SimpleNamespace

import numpy as np

import family_forward as ff
import family_models
import family_read
import mkst
import tiny_models
import transformer


def near(what, a, b, limit=1e-9):
    off = np.abs(np.asarray(a) - np.asarray(b)).max() / np.abs(b).max()
    print("%s: %.2g" % (what, off))
    assert off <= limit, what


def reference(directory, ids):
    return ff.forward(family_read.read(directory, len(ids))[0], ids)


def llamas(tmp, rng):
    for name, config, weights, options, n in tiny_models.models(rng):
        if name in ("llama", "llama-llama3", "llama-linear", "llama-bias-f32",
                    "llama-mqa-gelu", "mistral-window-7", "qwen2", "qwen3-yarn",
                    "qwen3-yarn-mscale", "qwen3_moe", "qwen3_moe-mlp-only"):
            path = os.path.join(tmp, name)
            tiny_models.write_model(path, config, weights, **options)
            ids = rng.integers(0, config["vocab_size"], n)
            near(name, reference(path, ids),
                 transformer.forward(*transformer.load(path), ids))


def gpt2_of_torch(tmp):
    """A layer with the norms first is GPT-2's, and in_proj is [q; k; v]."""
    import torch
    path = os.path.join(tmp, "gpt2")
    family_models.make("gpt2", path)
    t, _ = mkst.read(os.path.join(path, "model.safetensors"))
    t = {name: torch.tensor(x) for name, x in t.items()}
    h, n = 48, 24
    ids = np.random.default_rng(3).integers(0, family_models.VOCAB, n)
    x = t["wte.weight"][ids] + t["wpe.weight"][:n]
    mask = torch.full((n, n), -np.inf, dtype=torch.float64).triu(1)
    for i in range(3):
        layer = torch.nn.TransformerEncoderLayer(
            h, 4, 4 * h, 0.0, norm_first=True, batch_first=True,
            layer_norm_eps=family_models.EPS, dtype=torch.float64,
            activation=lambda y: torch.nn.functional.gelu(
                y, approximate="tanh"))
        at = "h.%d." % i
        for own, name in (("norm1", "ln_1"), ("norm2", "ln_2"),
                          ("self_attn.in_proj_", "attn.c_attn"),
                          ("self_attn.out_proj", "attn.c_proj"),
                          ("linear1", "mlp.c_fc"), ("linear2", "mlp.c_proj")):
            for what in ("weight", "bias"):
                y = t["%s%s.%s" % (at, name, what)]
                key = own + ("" if own.endswith("_") else ".") + what
                dict(layer.named_parameters())[key].data = y.T if (
                    y.ndim == 2) else y
        x = layer.train()(x[None], mask)[0].detach() # train(): no fused path
    x = torch.nn.functional.layer_norm(x, (h,), t["ln_f.weight"],
                                       t["ln_f.bias"], family_models.EPS)
    near("gpt2 by torch", reference(path, ids), (x @ t["wte.weight"].T).numpy())
    x = torch.linspace(-9, 9, 999, dtype=torch.float64)
    near("gelu by torch", ff.gelu_erf(x.numpy()),
         torch.nn.functional.gelu(x).numpy())


def delta_rule_closed(rng):
    """The recurrence's outputs are those of one system of equations for all
    tokens (its chunked form, with one chunk)."""
    n, d = 40, 8
    m = SimpleNamespace(
        qkv=(rng.normal(size=(2 * d + 6, 5)), None), z=(np.ones((6, 5)), None),
        a=(rng.normal(size=(1, 5)), None), b=(rng.normal(size=(1, 5)), None),
        conv=np.ones((2 * d + 6, 1)), conv_act=lambda x: x, gate=np.ones_like,
        dk=d, dv=6, key_dim=d, head=[0], l2="inside", scale=1.0, beta=True,
        rate=np.array([0.2]), dt_bias=np.zeros(1), corrected=True, norm=None,
        decay_after=False, gate_first=False)
    h = rng.normal(size=(n, 5))
    q, k, v = np.split(h @ m.qkv[0].T, [d, 2 * d], axis=1)
    q, k = (x / np.sqrt((x * x).sum(1, keepdims=True) + 1e-6) for x in (q, k))
    beta = 1 / (1 + np.exp(-h @ m.b[0].T))
    log_decay = np.cumsum(-0.2 * np.log1p(np.exp(h @ m.a[0].T)), axis=0)
    kept = np.tril(np.exp(log_decay - log_decay.T))
    u = np.linalg.solve(np.eye(n) + np.tril(beta * (k @ k.T) * kept, -1),
                        beta * v)
    near("delta rule, all tokens at once", ff.delta_rule(m, h),
         (q @ k.T * kept) @ u)


def rewritten(tmp, name, change):
    """The same model, in other files that must mean the same."""
    path, other = os.path.join(tmp, name), os.path.join(tmp, name + ".other")
    family_models.make(name, path)
    family_models.make(name, other)
    file = os.path.join(other, "model.safetensors")
    tensors = mkst.load(file)
    change(tensors)
    mkst.save(file, tensors)
    return path, other


def moved(tensors, name, rows):
    dtype, shape, data = tensors[name]
    a = np.frombuffer(data, np.uint8).reshape(shape[0], -1)
    tensors[name] = dtype, shape, a[rows].tobytes()


def identities(tmp, ids):
    def halves(tensors): # pairs are halves whose rows have moved
        d = 12
        rows = np.concatenate([np.arange(0, d, 2), np.arange(1, d, 2)])
        for i in range(3):
            for x, heads in (("q", 4), ("k", 2)):
                moved(tensors, "model.layers.%d.self_attn.%s_proj.weight"
                      % (i, x), (np.arange(heads)[:, None] * d + rows).ravel())
    path, other = rewritten(tmp, "cohere", halves)
    model, _ = family_read.read(other, len(ids), ["halves, not pairs"])
    near("pairs are halves", ff.forward(model, ids), reference(path, ids))

    def separate(tensors): # the rows of q, then k, then v
        rows = np.arange(192).reshape(4, 3, 16).swapaxes(0, 1).ravel()
        for i in range(3):
            for x in ("weight", "bias"):
                moved(tensors, "gpt_neox.layers.%d.attention.query_key_value.%s"
                      % (i, x), rows)
    path, other = rewritten(tmp, "gpt_neox", separate)
    model, _ = family_read.read(other, len(ids),
                                ["query_key_value as [q; k; v]"])
    near("query_key_value by head", ff.forward(model, ids),
         reference(path, ids))


def in_f32(x):
    """A model's fields, arrays in f32."""
    if isinstance(x, np.ndarray) and x.dtype == np.float64:
        return x.astype(np.float32)
    if isinstance(x, (tuple, list)):
        return type(x)(map(in_f32, x))
    if isinstance(x, SimpleNamespace):
        return SimpleNamespace(**{k: in_f32(v) for k, v in vars(x).items()})
    return x


def run(tolerance):
    with tempfile.TemporaryDirectory() as tmp:
        llamas(tmp, np.random.default_rng(4))
        gpt2_of_torch(tmp)
        delta_rule_closed(np.random.default_rng(6))
        identities(tmp, np.random.default_rng(5).integers(0, 97, 24))
    with tempfile.TemporaryDirectory() as tmp:
        for name in family_models.MODELS:
            path = os.path.join(tmp, name)
            family_models.make(name, path)
            for ids in family_models.prompts(path):
                model, _ = family_read.read(path, len(ids))
                ref = ff.forward(model, ids)
                off = np.abs(ff.forward(in_f32(model), ids) - ref).max()
                print("%s in f32: %.2g of what may be" % (
                    name, off / tolerance(ref)))
                assert off <= 0.25 * tolerance(ref), name
