# SPDX-License-Identifier: ISC
"""hf-infer --nll --kvc against float64.

    kvc_model.py MODEL FACTOR N_IDS N_BEFORE KV_DTYPE [OPTION... [-- OPTION...]]

Makes a random compressor for the model, and one that averages; runs hf-infer
on random ids, with the options before -- and again with those behind, and compares
each token's nll with the reference, whose cache is shortened by test/ref/kvc_ref.py.
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

import family_forward
import family_read
import kvc_ref
import transformer


def average(layers, d, factor):
    """MLPs that make the mean of a group: relu(x) - relu(-x) is x."""
    mean = np.concatenate([np.eye(d)] * factor, 1) / factor
    eye = np.eye(d)
    mlp = [(np.concatenate([mean, -mean]), None), (np.eye(2 * d), None),
           (np.concatenate([eye, -eye], 1), None)]
    mlp = [(w.astype("<f4"), b) for w, b in mlp]
    return [[mlp, mlp]] * layers


def nll(logits, ids):
    logits = logits[:-1]
    m = logits.max(axis=1, keepdims=True)
    lse = np.log(np.exp(logits - m).sum(axis=1)) + m[:, 0]
    return lse - logits[np.arange(len(ids) - 1), ids[1:]]


def reference(path, n):
    """Layers, head_dim, vocabulary and forward() of a model: transformer.py's,
    or of another family."""
    if os.path.exists(os.path.join(path, "ids")):  # of family_models.py
        m, _ = family_read.read(path, n)
        return (len(m.layers), m.head_dim, len(m.embedding),
                lambda ids, **more: family_forward.forward(m, ids, **more))
    c, tensors = transformer.load(path)
    return (c["num_hidden_layers"], c.get("head_dim") or (
        c["hidden_size"] // c["num_attention_heads"]), c["vocab_size"],
        lambda ids, **more: transformer.forward(c, tensors, ids, **more))


def compare(name, want, n0, factor, kv, run):
    out = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    summary = json.loads(subprocess.run(run + ["--json"], check=True,
                                        capture_output=True, text=True).stdout)
    got = np.array([float(line.split("\t")[2]) for line in out.splitlines()[1:]])
    error = np.abs(got - want)
    limit = 2e-4 if kv == "f32" else 0.05
    assert error[:n0].max() < limit, (name, error[:n0].max())
    # a key that float32 puts on the other side of a tie is an ulp of f16 off
    assert error.max() < 0.05 and error.mean() < 0.01, (name, error.max(), error.mean())
    k = summary["kvc"]
    assert (k["n_before"], k["n_cached"]) == (n0, n0 // factor + n0 % factor), k
    assert k["n_tokens"] == len(want) - n0, k
    assert abs(k["nll_mean"] - got[n0:].mean()) < 1e-5, k


def main(model, factor, n, n0, kv, *options):
    factor, n, n0 = int(factor), int(n), int(n0)
    layers, d, vocab, forward = reference(model, n)
    rng = np.random.default_rng(n)
    ids = rng.integers(0, vocab, n)
    plain = nll(forward(ids), ids)
    for name, mlps in ("random", kvc_ref.random_mlps(rng, layers, 4, d, factor, 3 * d, 2 * d)), (
            "average", average(layers, d, factor)):
        def shorten(i, k, v):
            # a key head's mean: by hand where the compressor averages
            both = []
            for j, x in enumerate((k, v)):
                heads = [kvc_ref.compress(x[:, h].astype("<f4"), mlps[i][j], factor)
                         for h in range(x.shape[1])]
                both.append(np.stack(heads, 1).astype("f8"))
            if name == "average":
                g = n0 // factor
                by_hand = k[:g * factor].reshape(g, factor, *k.shape[1:]).mean(1)
                assert np.abs(both[0][:g] - by_hand).max() < 0.01 * np.abs(k).max()
            return both

        want = nll(forward(ids, shorten=(n0, shorten)), ids)
        assert np.abs(plain - want)[n0:].max() > 0.2, (name, np.abs(plain - want).max())
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "c.bin")
            kvc_ref.save(path, mlps, d, factor, "fp16" if name == "average" else "fp32")
            for way in " ".join(options).split(" -- "):
                compare(name, want, n0, factor, kv, [
                    "hf-infer", model, "--ids", ",".join(map(str, ids)), "--nll", "-q",
                    "--kvc", path, "--kvc-after", str(n0), "--kv-dtype", kv, *way.split()])


if __name__ == "__main__":
    main(*sys.argv[1:])
