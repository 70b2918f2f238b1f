# SPDX-License-Identifier: ISC
"""splice_ref.py MODELS NAME...: hf-infer --sae against float64: SAEs of each
kind and library at every hook point of the tiny models, one at a time, two at
once, zeros, and rows that an SAE leaves alone.  Prints each model's largest error of a token's logits,
relative to their norm; exits 1 above 1e-4.  Leaves SAEs in the working
directory."""
import io
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402
import transformer  # noqa: E402

N, K = 64, 5
# The hook of a file, and the points that it stands for.
QKV = ["in:%s_proj" % m for m in "qkv"]
GATE_UP = ["in:gate_proj", "in:up_proj"]
HOOKS = {
    "embed_tokens": (["resid"], -1),
    "layers.1": (["resid"], 1),
    "blocks.1.hook_resid_pre": (["resid"], 0),
    "blocks.0.hook_resid_post": (["resid"], 0),
    "model.layers.0.self_attn": (["attn"], 0),
    "blocks.1.hook_attn_out": (["attn"], 1),
    "layers.1.mlp": (["mlp"], 1),
    "blocks.0.hook_mlp_out": (["mlp"], 0),
    "layers.0.self_attn.q_proj": (QKV, 0),
    "layers.1.self_attn.k_proj": (QKV, 1),
    "model.layers.1.self_attn.v_proj": (QKV, 1),
    "layers.0.self_attn.o_proj": (["in:o_proj"], 0),
    "blocks.1.attn.hook_z": (["in:o_proj"], 1),
    "layers.0.mlp.gate_proj": (GATE_UP, 0),
    "layers.1.mlp.up_proj": (GATE_UP, 1),
    "layers.1.mlp.down_proj": (["in:down_proj"], 1),
}


def make(path, kind, hook, x, seed):
    """An SAE that rows x are near to; returns its forward in float64, whose
    attributes are encode(x), the latents, and the decoder [N, d]."""
    rng = np.random.default_rng(seed)
    d = x.shape[1]
    scale = np.sqrt((x ** 2).mean())
    w_dec = rng.normal(size=(N, d))
    w_dec /= np.linalg.norm(w_dec, axis=1, keepdims=True)
    w_enc = w_dec + rng.normal(size=(N, d)) / 9
    b_enc = scale * rng.normal(size=N) / 4
    b_dec = scale * rng.normal(size=d) / 4
    w_enc, w_dec, b_enc, b_dec = (
        a.astype("<f4") for a in (w_enc, w_dec, b_enc, b_dec))
    threshold = (scale * rng.uniform(.5, 1.5, size=N)).astype("<f4")
    os.makedirs(path)
    centered = kind != "relu"
    if kind == "topk":
        config = {"activation": "topk", "k": K, "num_latents": N, "d_in": d,
                  "hook": hook}
        tensors = {"encoder.weight": w_enc, "encoder.bias": b_enc,
                   "W_dec": w_dec, "b_dec": b_dec}
    else:
        config = {"d_in": d, "d_sae": N, "dtype": "float32",
                  "apply_b_dec_to_input": centered,
                  "normalize_activations": "none",
                  "metadata": {"hook_name": hook},
                  "architecture": {"relu": "standard",
                                   "threshold": "jumprelu"}[kind]}
        tensors = {"W_enc": np.ascontiguousarray(w_enc.T), "b_enc": b_enc,
                   "W_dec": w_dec, "b_dec": b_dec}
        if kind == "threshold":
            tensors["threshold"] = threshold
    name = "sae" if kind == "topk" else "sae_weights"
    mkst.save(os.path.join(path, name + ".safetensors"), tensors)
    with open(os.path.join(path, "cfg.json"), "w") as f:
        json.dump(config, f)
    e, b, w, c = (a.astype(np.float64) for a in (w_enc, b_enc, w_dec, b_dec))

    def encode(x):
        z = (x - c if centered else x) @ e.T + b
        if kind == "threshold":
            f = np.where(z > threshold, z, 0)
        elif kind == "relu":
            f = np.maximum(z, 0)
        else:
            f = np.zeros_like(z)
            best = np.argsort(-z, axis=1, kind="stable")[:, :K]
            np.put_along_axis(
                f, best, np.maximum(np.take_along_axis(z, best, 1), 0), 1)
        return f

    def forward(x):
        return encode(x) @ w + c

    forward.encode, forward.decoder = encode, w
    return forward


def logits(model, ids, *options):
    raw = subprocess.run(
        ["hf-infer", model, "--ids", ",".join(map(str, ids)), "--logits", "-",
         "--chunk", "13", *options], check=True, stdout=subprocess.PIPE).stdout
    return np.load(io.BytesIO(raw)).astype(np.float64)


def with_keys(path, keys):
    """Its configuration has these, where its library has them, and no others."""
    path = os.path.join(path, "cfg.json")
    with open(path) as f:
        config = json.load(f)
    part = config.get("metadata", config)
    for key in "exclude_special_tokens", "seqpos_slice", "max_norm":
        part.pop(key, None)
    part.update(keys)
    with open(path, "w") as f:
        json.dump(config, f)


def check(model, out):
    ids = np.fromfile(os.path.join(model, "ids.i32"), "<i4")
    config, tensors = transformer.load(model)
    seen = {}
    transformer.forward(config, tensors, ids,
                        lambda p, i, x: seen.update({(p, i): x}))
    saes, worst = {}, 0

    def compare(at, *options):
        # at: {(point, layer): forward}; once where points share an input
        done = set()

        def tap(point, layer, x):
            for key, (points, forward) in at.items():
                if key[1] == layer and point in points and key not in done:
                    done.add(key)
                    return forward(x)
            return None

        want = transformer.forward(config, tensors, ids, tap)
        got = logits(model, ids, *options)
        error = np.linalg.norm(got - want, axis=1)
        error /= np.maximum(np.linalg.norm(want, axis=1), 1e-30)
        assert np.isfinite(error).all(), options
        return error.max()

    for k, (hook, (points, layer)) in enumerate(HOOKS.items()):
        if (points[0], layer) not in seen:  # down_proj of experts
            continue
        kind = ("topk", "threshold", "relu")[k % 3]
        path = os.path.join(out, hook)
        forward = make(path, kind, hook, seen[points[0], layer], k)
        saes[hook] = (points[0], layer), (points, forward)
        worst = max(worst, compare(dict([saes[hook]]), "--sae", path))
        if k % 4 == 0:
            zero = {(points[0], layer): (points, np.zeros_like)}
            worst = max(worst,
                        compare(zero, "--sae", path, "--sae-zero"))
    # what it was trained without: these tokens and positions, and large rows
    hook = "layers.0.mlp.gate_proj"
    (point, layer), (points, forward) = saes[hook]
    norms = np.linalg.norm(seen[point, layer], axis=1)
    all_of, every = np.arange(len(ids)), np.ones(len(ids), bool)
    for keys, counts in (
            ({"exclude_special_tokens": [int(ids[2]), int(ids[5]), 10 ** 9]},
             ~np.isin(ids, ids[[2, 5]])),
            ({"seqpos_slice": [1, -3, 2]}, np.isin(all_of, all_of[1:-3:2])),
            ({"seqpos_slice": [-4, None]}, np.isin(all_of, all_of[-4:])),
            ({"seqpos_slice": [3]}, all_of < 3),
            ({"seqpos_slice": [None], "exclude_special_tokens": False}, every),
            ({"max_norm": float(np.median(norms)) + 1e-4, "seqpos_slice": [2, 99999]},
             (norms <= np.median(norms) + 1e-4) & (all_of >= 2))):
        with_keys(os.path.join(out, hook), keys)
        partly = {(point, layer): (points, lambda x: np.where(
            counts[:, None], forward(x), x))}
        worst = max(worst, compare(partly, "--sae", os.path.join(out, hook)))
        if not counts.all():
            zero = {(point, layer): (points, lambda x: np.where(
                counts[:, None], 0, x))}
            worst = max(worst, compare(
                zero, "--sae", os.path.join(out, hook), "--sae-zero"))
    with_keys(os.path.join(out, hook), {})
    # by the name on the command line, with another in an earlier layer
    some = ["layers.0.self_attn.q_proj", "layers.1.mlp.up_proj"]
    paths = [os.path.join(out, hook) for hook in some]
    options = ["--sae", paths[0], "--sae", paths[1] + "@layers.1.mlp.gate_proj"]
    return max(worst, compare(dict(saes[hook] for hook in some), *options))


def main():
    for name in sys.argv[2:]:
        error = check(os.path.join(sys.argv[1], name), name)
        print("%s: %.2g" % (name, error))
        if not error < 1e-4:
            sys.exit(1)


if __name__ == "__main__":
    main()
