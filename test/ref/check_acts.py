# SPDX-License-Identifier: ISC
"""check_acts.py MODELS NAME...: hf-infer --acts against float64, every point
and layer of the tiny models (tiny_models.py's MODELS/NAME).  Prints each
model's largest error of a token, relative to its norm; exits 1 above 1e-4.
With TU_WAYS=one, other threads and chunks are tried at one point of each model,
the next one for the next model."""
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import transformer  # noqa: E402

POINTS = ["resid", "attn", "mlp"] + ["in:%s_proj" % m for m in (
    "q", "k", "v", "o", "gate", "up", "down")]


def dump(model, ids, spec, *options):
    raw = subprocess.run(
        ["hf-infer", model, "--ids", ",".join(map(str, ids)), "--acts", spec,
         *options], check=True, stdout=subprocess.PIPE).stdout
    return np.frombuffer(raw, "<f4")


def check(model, nth):
    ids = np.fromfile(os.path.join(model, "ids.i32"), "<i4")
    seen = {}
    config, tensors = transformer.load(model)
    transformer.forward(config, tensors, ids,
                        lambda p, i, x: seen.update({(p, i): x}))
    layers = list(range(config["num_hidden_layers"]))
    worst = 0
    for k, point in enumerate(POINTS):
        # Not in their own order; the embedding is a layer of resid alone.
        order = [i for i in layers[::-1] if (point, i) in seen]
        if not order:  # down_proj of experts
            continue
        order += [-1] if point == "resid" else []
        spec = point + ":" + ",".join(map(str, order))
        want = np.stack([seen[point, i] for i in order])
        got = dump(model, ids, spec, "-j", "2", "--chunk", "13")
        if got.size != want.size:
            sys.exit("%s %s: %d floats (expected %d)"
                     % (model, spec, got.size, want.size))
        error = np.linalg.norm(got.reshape(want.shape) - want, axis=-1)
        worst = max(worst, (error / np.linalg.norm(want, axis=-1)).max())
        if os.environ.get("TU_WAYS") == "one" and k != nth % 10:
            continue
        again = dump(model, ids, spec, "-j", "1")
        if got.tobytes() != again.tobytes():
            sys.exit("%s %s: -j and --chunk change bits" % (model, spec))
    return worst


for nth, name in enumerate(sys.argv[2:]):
    error = check(os.path.join(sys.argv[1], name), nth)
    print("%s: %.2g" % (name, error))
    if not error < 1e-4:
        sys.exit(1)
