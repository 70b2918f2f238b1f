# SPDX-License-Identifier: ISC
"""lm_cases.py [--exact-attention] [--few] DIR: small random models, each with an
adapter and a step's sequences, their loss and the adapter's gradients in float64.
lm_cases.py --autograd DIR: the same models; the gradients are compared with
those of torch's autograd, and only the files that this takes are written.

Each is DIR/NAME/: the model, DIR/NAME/adapter (PEFT's), step.i32 (the number
of sequences; of each its tokens, its examples, where these start, ids,
labels), loss.f64 and grads.f64 (in the order of core/model/train/lm.h), and
loss-bf16.f64, grads-bf16.f64 with operands of products rounded, those of
attention unless it is to be exact, and spread-bf16.f64, how far such gradients
are from each other; of models with experts also loss-int8.f64, grads-int8.f64.
With --few, models of SAME_PRODUCTS have none of these, and differences along a
direction are not compared with the gradients.
DIR/models lists the names.  DIR/other is an adapter of llama whose layer 1
lacks o_proj.
"""
import json
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lm_ref  # noqa: E402
import tiny_models  # noqa: E402
import transformer  # noqa: E402

# What differs from another model's is the angles of rotations, the size of a
# window, a tensor's name, what is added to a product, or which layers have what:
# no operand that is rounded.
SAME_PRODUCTS = (
    "llama-linear", "llama-llama3", "llama-only-head", "mistral",
    "mistral-window-7", "mistral-window-100", "qwen2-window", "qwen3-yarn",
    "qwen3-yarn-set", "qwen3-yarn-mscale", "qwen3-no-prefix",
    "llama-bias-f32", "qwen3-bias", "qwen3-layer-types", "qwen3-mixed",
    "qwen3_moe-dense-first-last", "qwen3_moe-mlp-only",
    "qwen3_moe-all-experts-f32")


def sequence(rng, vocab, n, starts=(0,), keep=0.6):
    ids = rng.integers(0, vocab, n)
    labels = np.where(rng.random(n) < keep, ids, -100)
    return ids, labels, list(starts)


def sequences(rng, vocab, n):
    """A window of several examples, one of them a token long; a long one; one
    without a target; one of whose last tokens none is a target."""
    third = max(n // 3, 1)
    late = sequence(rng, vocab, n // 2)
    late[1][n // 4 + 1:] = -100
    return [sequence(rng, vocab, n, (0, third, third + 1, third + 2)),
            sequence(rng, vocab, n + 7), sequence(rng, vocab, 9, keep=0), late,
            sequence(rng, vocab, 2, keep=1)]


def write_adapter(path, config, tensors, targets, rank, alpha, rslora, rng,
                  without=None):
    adapter, weights = {}, {}
    for name in lm_ref.layers(config, targets):
        if name == without:
            continue
        out, width = tensors[name + ".weight"].shape
        a = rng.normal(0, 1 / np.sqrt(width), (rank, width))
        b = rng.normal(0, 0.3 / np.sqrt(rank), (out, rank))
        a, b = a.astype("<f4"), b.astype("<f4")
        adapter[name] = a.astype(float), b.astype(float)
        weights["base_model.model.%s.lora_A.weight" % name] = a
        weights["base_model.model.%s.lora_B.weight" % name] = b
    os.makedirs(path)
    with open(os.path.join(path, "adapter_config.json"), "w") as f:
        json.dump(dict(peft_type="LORA", r=rank, lora_alpha=alpha,
                       use_rslora=rslora, lora_dropout=0.0, bias="none",
                       target_modules=list(targets)), f)
    tiny_models.write_safetensors(
        os.path.join(path, "adapter_model.safetensors"), weights,
        lambda name: "F32")
    return adapter


def write_step(path, seqs):
    numbers = [len(seqs)]
    for ids, labels, starts in seqs:
        numbers += [len(ids), len(starts), *starts, *ids, *labels]
    np.array(numbers, "<i4").tofile(path)


def write_result(path, of, adapter, loss, grads):
    np.array([loss], "<f8").tofile(os.path.join(path, "loss%s.f64" % of))
    np.concatenate([x.ravel() for name in adapter for x in grads[name]]
                   ).astype("<f8").tofile(os.path.join(path,
                                                       "grads%s.f64" % of))


def spread(grads, again):
    """The largest difference of a tensor, and that of all, as a part of it."""
    worst = error = norm = 0
    for name in grads:
        for a, b in zip(grads[name], again[name]):
            e, n = np.sum((a - b) ** 2), np.sum(a ** 2)
            worst = max(worst, math.sqrt(e / n) if e else 0)
            error, norm = error + e, norm + n
    return worst, math.sqrt(error / norm)


def write_spread(path, grads, step):
    """What it does to them if the operands are first moved by what f32 sums are
    uncertain by, 4 roundings: some lie between two bf16s, and what follows is
    moved more.  Drawing for each operand would take most of the time: some are
    drawn once, and where in these an operand begins is."""
    rng = np.random.default_rng(28)
    ways = 1 + 2.4e-7 * rng.normal(size=1 << 18)

    def moved(x):
        at = rng.integers(len(ways) - x.size)
        return lm_ref.to_bf16(x * ways[at:at + x.size].reshape(x.shape))
    some = [spread(grads, step(moved)[2]) for _ in range(4)]
    np.max(some, axis=0).astype("<f8").tofile(
        os.path.join(path, "spread-bf16.f64"))


def check_numerically(config, tensors, adapter, scale, seqs, grads, n, rng):
    """Along one direction in all of the adapter."""
    way = {name: [rng.normal(0, 1, x.shape) for x in pair]
           for name, pair in adapter.items()}
    at = []
    for h in (1e-8, -1e-8):
        moved = {name: [x + h * y for x, y in zip(pair, way[name])]
                 for name, pair in adapter.items()}
        at.append(lm_ref.step(config, tensors, moved, scale, seqs,
                              back=False)[0] / n)
    slope = (at[0] - at[1]) / 2e-8
    want = sum(np.sum(x * y) for name, pair in grads.items()
               for x, y in zip(pair, way[name]))
    assert abs(slope - want) <= 1e-5 * max(abs(want), 1e-3), (slope, want)


def check_autograd(name, config, tensors, adapter, scale, seqs, loss, grads):
    """By torch; the largest difference of a tensor, as a part of it."""
    import lm_autograd
    want, _, by_torch = lm_autograd.step(config, tensors, adapter, scale, seqs)
    worst, _ = spread(by_torch, grads)
    print("%s: loss %.12g, gradients differ by %.2g" % (name, loss, worst))
    assert abs(loss - want) <= 1e-12 * want and worst <= 1e-9, (name, want)


def main(directory, attended, autograd, few):
    rng = np.random.default_rng(27)
    names = []
    for name, config, weights, options, n in tiny_models.models(rng):
        if name in ("llama-buffers", "qwen3-shards"): # of the files alone
            continue
        path = os.path.join(directory, name)
        tiny_models.write_model(path, config, weights, **options)
        config, tensors = transformer.load(path)
        i = len(names)
        targets = (lm_ref.TARGETS if i % 3 == 0 else
                   lm_ref.TARGETS[:4] if i % 3 == 1 else
                   [t for t in lm_ref.TARGETS if rng.random() < 0.5]
                   or lm_ref.TARGETS[6:])
        rank, alpha, rslora = 1 + i % 5, 1.0 + i % 3, i % 4 == 3
        adapter = write_adapter(os.path.join(path, "adapter"), config, tensors,
                                targets, rank, alpha, rslora, rng)
        scale = alpha / (np.sqrt(rank) if rslora else rank)
        seqs = sequences(rng, config["vocab_size"], n)
        write_step(os.path.join(path, "step.i32"), seqs)
        loss, n_targets, grads = lm_ref.step(config, tensors, adapter, scale,
                                             seqs)
        if not few:
            check_numerically(config, tensors, adapter, scale, seqs, grads,
                              n_targets, rng)
        if autograd:
            check_autograd(name, config, tensors, adapter, scale, seqs, loss,
                           grads)
            names.append(name)
            continue
        write_result(path, "", adapter, loss, grads)
        names.append(name)
        if few and name in SAME_PRODUCTS:
            continue
        loss, _, grads = lm_ref.step(config, tensors, adapter, scale, seqs,
                                     lm_ref.to_bf16, attended)
        write_result(path, "-bf16", adapter, loss, grads)
        write_spread(path, grads, lambda rounded: lm_ref.step(
            config, tensors, adapter, scale, seqs, rounded, attended))
        if config["model_type"] == "qwen3_moe":
            loss, _, grads = lm_ref.step(config, tensors, adapter, scale, seqs,
                                         lm_ref.to_bf16, attended, int8=True)
            write_result(path, "-int8", adapter, loss, grads)
    if autograd:
        return
    config, tensors = transformer.load(os.path.join(directory, "llama"))
    write_adapter(os.path.join(directory, "other"), config, tensors,
                  lm_ref.TARGETS, 2, 2.0, False, rng,
                  without="model.layers.1.self_attn.o_proj")
    with open(os.path.join(directory, "models"), "w") as f:
        f.write("".join(x + "\n" for x in names))


if __name__ == "__main__":
    main(sys.argv[-1],
         (lambda x: x) if "--exact-attention" in sys.argv else None,
         "--autograd" in sys.argv, "--few" in sys.argv)
