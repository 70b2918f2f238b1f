# SPDX-License-Identifier: ISC
"""sae_input.py: SAEs that change a row before they encode it, in a tiny GPT-2 and
a tiny llama: hf-infer --sae and sae-train eval against SAELens's formulas in
float64, written from their definitions.  Prints the worst of each, as a part of
what may be; exits 1 above that."""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_forward  # noqa: E402
import family_models  # noqa: E402
import family_read  # noqa: E402
import family_ref  # noqa: E402
import mkst  # noqa: E402
import splice_ref  # noqa: E402

FACTOR = 0.37
KWARGS = {"center_writing_weights": True, "fold_ln": False}
# keys of cfg.json; whether rows of GPT-2's residual stream are centred by them
CASES = [
    ({"normalize_activations": "layer_norm"}, False),
    ({"normalize_activations": "constant_norm_rescale"}, False),
    ({"normalize_activations": "expected_average_only_in",
      "norm_scaling_factor": FACTOR}, False),
    ({"model_from_pretrained_kwargs": KWARGS}, True),
    ({"metadata": {"model_from_pretrained_kwargs": KWARGS}}, True),
    ({"--sae-center": True}, True),
    ({"normalize_activations": "constant_norm_rescale",
      "model_from_pretrained_kwargs": KWARGS}, True),
    ({"normalize_activations": "expected_average_only_in",
      "metadata": {"norm_scaling_factor": FACTOR},
      "model_from_pretrained_kwargs": KWARGS}, True),
]


def changed(kind, centres, inner, x):
    """The reconstruction of rows x, by an SAE 'inner' of changed rows."""
    mean = x.mean(axis=1, keepdims=True) if centres else 0
    x = x - mean
    if kind == "layer_norm":
        mu, std = x.mean(axis=1, keepdims=True), x.std(axis=1, ddof=1)[:, None]
        y = inner((x - mu) / (std + 1e-5)) * std + mu
    elif kind == "constant_norm_rescale":
        s = np.sqrt(x.shape[1]) / np.linalg.norm(x, axis=1)[:, None]
        y = inner(x * s) / s
    elif kind == "expected_average_only_in":
        y = inner(x * FACTOR) / FACTOR
    else:
        y = inner(x)
    return y + mean


def configure(path, keys):
    path = os.path.join(path, "cfg.json")
    with open(path) as f:
        config = json.load(f)
    for key, value in keys.items():
        if key == "metadata":
            config[key].update(value)
        else:
            config[key] = value
    with open(path, "w") as f:
        json.dump(config, f)


def check(name, hook, place, centring):
    """The worst logits, and the worst error of eval."""
    worst, worst_eval = 0, 0
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "m")
        family_models.make(name, path)
        ids = family_models.prompts(path)[0]
        model, _ = family_read.read(path, len(ids))
        seen = {}
        family_forward.forward(model, ids, seen)
        rows = seen[place]
        np.save(os.path.join(tmp, "x.npy"), rows.astype("<f4"))
        x = rows.astype("<f4").astype(np.float64)
        meta = os.path.join(tmp, "meta.json")
        acts = subprocess.run(["hf-infer", path, "--ids", ",".join(map(
            str, ids)), "--acts", hook, "--acts-meta", meta], check=True,
            stdout=subprocess.PIPE).stdout
        dump = subprocess.run(["saev-write", "-q", "-m", meta, "-o", tmp],
                              check=True, stdout=subprocess.PIPE, input=acts
                              ).stdout.decode().strip()
        for i, (keys, centres) in enumerate(CASES):
            kind = keys.get("normalize_activations")
            sae, file = os.path.join(tmp, "s%d" % i), os.path.join(tmp, "got")
            inner = splice_ref.make(sae, "relu", hook, rows, i)
            given = ["--sae-center"] if "--sae-center" in keys else []
            configure(sae, {} if given else keys)

            def whole(x, kind=kind, centres=centres, inner=inner):
                return changed(kind, centres and centring, inner, x)

            if given and not centring:
                done = subprocess.run(
                    ["hf-infer", path, "--ids", "1,2", "--nll", "--sae", sae] + given,
                    stderr=subprocess.PIPE)
                assert done.returncode == 2 and done.stderr.startswith(
                    b"hf-infer: --sae-center: no rows are centred: "), done
                continue
            ref = family_forward.forward(model, ids, change={place: whole})
            # another way would be seen
            as_is = family_forward.forward(model, ids, change={place: inner})
            if centring or not centres or kind:
                assert (np.abs(ref - as_is).max()
                        > 20 * family_ref.tolerance(ref)), keys
            for name_of, threads in (".npy", "1"), (".other", "3"):
                subprocess.run(["hf-infer", path, "--ids", ",".join(map(
                    str, ids)), "--sae", sae, "--logits", file + name_of, "-f",
                    "-j", threads] + given, check=True)
            with open(file + ".npy", "rb") as f, open(file + ".other",
                                                      "rb") as g:
                assert f.read() == g.read(), "other bytes with 3 threads"
            off = np.abs(np.load(file + ".npy") - ref).max()
            worst = max(worst, off / family_ref.tolerance(ref))
            if given:
                continue
            # of numbers eval knows no model, and goes by the file alone
            for source, does in ((os.path.join(tmp, "x.npy"),
                                  "hook_z" not in hook), (dump, centring)):
                out = subprocess.run(["sae-train", "eval", "--json", "-s", sae,
                                      source], check=True,
                                     stdout=subprocess.PIPE).stdout
                mse = ((x - changed(kind, centres and does, inner, x)) ** 2
                       ).sum(axis=1).mean()
                off = abs(json.loads(out)["mse"] - mse) / mse
                worst_eval = max(worst_eval, off / 1e-4)
    print("%s %s: logits %.2g, eval %.2g of what may be"
          % (name, hook, worst, worst_eval))
    return max(worst, worst_eval) <= 1


def scope_2(name):
    """Gemma Scope 2's files, at the places of its three kinds of SAEs."""
    worst = 0
    with tempfile.TemporaryDirectory() as tmp:
        path, sae = os.path.join(tmp, "m"), os.path.join(tmp, "sae")
        family_models.make(name, path)
        ids = family_models.prompts(path)[0]
        model, _ = family_read.read(path, len(ids))
        seen = {}
        family_forward.forward(model, ids, seen)
        os.mkdir(sae)
        for hook, place in (
                ("model.layers.1.output", "layers.1"),
                ("model.layers.1.self_attn.o_proj.input", "attn.hook_z:1"),
                ("model.layers.1.post_feedforward_layernorm.output",
                 "mlp_out:1")):
            rng, d = np.random.default_rng(1), seen[place].shape[1]
            t = {"w_enc": rng.normal(size=(d, 64)) / np.sqrt(d),
                 "w_dec": rng.normal(size=(64, d)) / 8,
                 "b_enc": rng.normal(size=64) / 4,
                 "b_dec": rng.normal(size=d) / 4,
                 "threshold": rng.uniform(.01, .1, size=64)}
            t = {key: v.astype("<f4") for key, v in t.items()}
            mkst.save(os.path.join(sae, "params.safetensors"), t)
            with open(os.path.join(sae, "config.json"), "w") as f:
                json.dump({"hf_hook_point_in": hook, "width": 64, "l0": 9,
                           "architecture": "jump_relu", "type": "sae"}, f)

            def whole(x, t=t):
                z = x @ t["w_enc"].astype(float) + t["b_enc"]
                return (np.where(z > t["threshold"], z, 0)
                        @ t["w_dec"].astype(float) + t["b_dec"])

            ref = family_forward.forward(model, ids, change={place: whole})
            got = os.path.join(tmp, "got.npy")
            subprocess.run(["hf-infer", path, "--ids", ",".join(map(str, ids)),
                            "--sae", sae, "--logits", got, "-f"], check=True)
            off = np.abs(np.load(got) - ref).max()
            worst = max(worst, off / family_ref.tolerance(ref))
    print("%s, Gemma Scope 2: logits %.2g of what may be" % (name, worst))
    return worst <= 1


if __name__ == "__main__":
    good = [check("gpt2", "blocks.1.hook_resid_pre", "layers.0", True),
            check("gpt2", "blocks.1.attn.hook_z", "attn.hook_z:1", False),
            check("llama", "blocks.1.hook_resid_pre", "layers.0", False),
            scope_2("gemma3_text")]
    sys.exit(not all(good))
