# SPDX-License-Identifier: ISC
"""lut-precompute calibrate against numpy, in float64:
python lut_calibrate_ref.py CHECK.  Prints how many cases it compared."""
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lut_apply_ref as ref  # noqa: E402
import lut_ref as lut  # noqa: E402
from tiny_models import write_safetensors  # noqa: E402


def elbow(x):
    """(p, value) of the point of the quantiles' curve that is furthest from
    the line through its ends: 500 points, of which the middle 90 % count."""
    p = np.linspace(0, 0.95, 500)
    q = np.quantile(abs(x.astype(np.float64)), p)
    line = np.array([p[-1] - p[0], q[-1] - q[0]])
    normal = np.array([-line[1], line[0]]) / np.hypot(*line)
    away = abs((np.stack([p, q], axis=1) - [p[0], q[0]]) @ normal)
    away[(p <= 0.05 * 0.95) | (p >= 0.95 * 0.95)] = -1
    i = int(away.argmax())
    return p[i], q[i]


def run(*args, x, check=True):
    p = subprocess.run(("lut-precompute", "calibrate", "-q") + args, input=x,
                       capture_output=True)
    if check and p.returncode:
        sys.exit("%s: %d: %s" % (args, p.returncode, p.stderr.decode()))
    return dict(line.split("\t") for line in p.stdout.decode().splitlines())


def kept(c):
    with open(os.path.join(c.directory, "lut", "metadata.json")) as f:
        return json.load(f)["elbow_thresholds"]


def elbows():
    """Of f32, f16 and bf16, of few rows and many, of streams; rows that are
    not finite are left out."""
    n = 0
    c = ref.Case("e")
    rng = np.random.default_rng(2)
    for rows, scale in ((1, 1), (2, 1e-3), (50, 30), (3000, 1)):
        for dtype in ("F32", "F16", "BF16"):
            x = rng.standard_t(4, (rows, 40)) * scale
            x[rng.random(x.shape) < 0.1] *= 8
            x = lut.round_to(x, dtype)
            p, value = elbow(x)
            write_safetensors("x.safetensors", {"x": x}, lambda _: dtype)
            got = run(c.directory, ref.Q, "-i", "x.safetensors", x=b"")
            assert abs(float(got["elbow_p"]) - p) < 1e-12, (rows, dtype, got)
            off = abs(float(got["elbow_value"]) - value) / value
            assert off < (2.0 ** -16 if dtype == "F32" else 1e-12), (rows, dtype, off)
            assert kept(c) == {"layer_0/self_attn_q_proj": {
                "elbow_p": float(got["elbow_p"]),
                "elbow_value": float(got["elbow_value"])}}
            assert got["rows"] == str(rows) and got["bad_rows"] == "0"
            n += 1
    x = lut.round_to(x, "F32").astype("<f4")
    whole = run(c.directory, ref.Q, x=ref.npy(x))
    for bad in (np.nan, np.inf, -np.inf):
        more = np.concatenate([x[:100], x[:1], x[100:]])
        more[100, 7] = bad
        got = run(c.directory, ref.Q, "--x-dtype", "f32", x=more.tobytes())
        assert got.pop("bad_rows") == "1" and got.pop("rows") == "3001"
        assert got.items() <= whole.items()
        n += 1
    return n


def dims():
    """The inputs whose squared errors, weighted by their weights, sum up to
    most: by the model, by stored weights, of fused and centred tables; they
    leave less than other sets do."""
    n = 0
    for i, kw in enumerate([{}, dict(layer=ref.QKV, outs=(70, 9, 8)),
                            dict(dtype="BF16", centered=True, stored=True),
                            dict(dtype=ref.MIXED, n=300, d=130, k=12)]):
        c = ref.Case("d%d" % i, seed=i, **kw)
        c.x[:, 3] *= 3
        c.x = c.x[c.steps(c.x)[2]]
        _, error, sure = c.steps(c.x)
        assert sure.all() and len(c.x) > 40
        model = () if kw.get("stored") else ("-m", c.directory)
        scores = (error ** 2).sum(axis=0) * (c.weights() ** 2).sum(axis=0)
        order = np.argsort(-scores, kind="stable")
        for top in (1, 8, error.shape[1]):
            got = run(c.directory, c.layer, *model, "--top", str(top),
                      "--dims", "dims.npy", "-f", x=ref.npy(c.x))
            best = np.load("dims.npy")
            assert best.dtype == "<i4", best.dtype
            assert list(best) == sorted(order[:top]), (i, top)
            left = scores[order[top:]].sum() / scores.sum()
            assert abs(float(got["left"]) - left) < 1e-5, (i, top)
            shown = [k for k in got if k.startswith("dim ")]
            assert shown == ["dim %d" % d for d in order[:20]]
            for d in order[:20]:
                off = float(got["dim %d" % d]) - scores[d] / scores.sum()
                assert abs(off) < 1e-5
            n += 1

        def fvu(chosen):
            np.save("other.npy", np.sort(chosen).astype("<i4"))
            return json.loads(ref.run(
                "--report", c.directory, c.layer, "-m", c.directory, "--json",
                "--dims", "other.npy", x=ref.npy(c.x)).stdout)["fvu_output"]
        best = fvu(order[:8])
        for _ in range(5):
            assert best < fvu(c.rng.choice(error.shape[1], 8, replace=False))
    return n


if __name__ == "__main__":
    print(globals()[sys.argv[1]]())
