# SPDX-License-Identifier: ISC
"""lut-apply against lut_ref, in float64: python lut_apply_ref.py CHECK.

Each check makes tables, models and rows from a seed in the working directory,
runs the tool, and prints how many cases it compared.
"""
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lut_ref as lut  # noqa: E402
from tiny_models import write_safetensors  # noqa: E402

EPS = {"BF16": 2.0 ** -8, "F16": 2.0 ** -11, "F32": 2.0 ** -24}
Q = "model.layers.0.self_attn.q_proj"
QKV = "model.layers.0.self_attn.qkv_proj"


# each tensor of another type than those before and after it
MIXED = dict(zip(lut.SIX + ("compensation_weight_t",),
                 ("BF16", "F32", "F16", "BF16", "F32", "F16", "BF16")))
MORE_MIXED = dict(zip(lut.SIX + ("compensation_weight_t",),
                      ("F32", "F16", "BF16", "F32", "F16", "BF16", "F32")))


class Case:
    """A layer, its table as the files hold it, and rows that suit it."""

    def __init__(self, directory, dtype="F32", n=96, d=40, k=8, rows=50, seed=0,
                 layer=Q, outs=(24,), centered=False, exporter=False,
                 stored=False, meta=None, bias=True, sae="F32", model="BF16",
                 over=None):
        """'over': "one" threshold for all latents, or for "each"."""
        rng = np.random.default_rng(seed)
        sae = lut.tiny_sae(rng, n, d, sae)
        names = lut.parts_of(layer)
        weights = {}
        for name, out in zip(names, outs):
            weights[name + ".weight"] = lut.round_to(
                rng.normal(0, 1, (out, d)), model)
            if bias:
                weights[name + ".bias"] = lut.round_to(rng.normal(0, 1, out),
                                                       model)
        os.makedirs(directory, exist_ok=True)
        write_safetensors(os.path.join(directory, "model.safetensors"),
                          weights, lambda _: model)
        self.w, self.bias = lut.target(weights, layer)
        if self.bias is None:
            self.bias = np.zeros(len(self.w))
        full = lut.table(sae, self.w, self.bias, fold=not centered)
        if exporter:
            full["bias_product"] = full["bias_product"] - self.bias
        threshold = {None: None, "one": np.array(0.25),
                     "each": np.random.default_rng(seed).uniform(0, .5, n)}[over]
        held = lut.write_lut(os.path.join(directory, "lut"), {layer: full}, k,
                             dtype, centered, exporter,
                             {layer: self.w} if stored else None, meta,
                             threshold)
        self.t, self.k, self.centered = held[layer], k, centered
        self.directory, self.layer = directory, layer
        self.dtype, self.rng = dtype, rng
        codes = rng.exponential(1, (rows, n)) * (rng.random((rows, n)) < 0.08)
        x = codes @ sae["decoder_weight"] + sae["decoder_bias"]
        self.x = (x + rng.normal(0, 0.05, x.shape)).astype(np.float32)

    def z(self, x):
        with np.errstate(all="ignore"):
            return lut.preact(self.t, x.astype(np.float64), self.centered)

    def sets(self, z):
        return lut.active(self.t, z, self.k)

    def steps(self, x):
        """y, x - x^ of the float64 reference, and which rows are decided:
        where no sum in f32 can have changed the top-k set."""
        z = self.z(x)
        sets = self.sets(z)
        bad = np.array([s is None for s in sets])
        scale = abs(x.astype(np.float64)).sum(axis=1) + 1
        sure = bad | (lut.margin(np.where(np.isfinite(z), z, 0), self.k,
                                 self.t.get("threshold")) > 2e-6 * scale)
        y = lut.combine(self.t, z, sets)
        return y, x - lut.reconstruct(self.t, z, sets), sure

    def weights(self):
        t = self.t.get("compensation_weight_t")
        return self.w if t is None else t.T


def run(*args, x=None, env=None, check=True):
    p = subprocess.run(("lut-apply",) + args, input=x, capture_output=True,
                       env=dict(os.environ, **(env or {})))
    if check and p.returncode:
        sys.exit("lut-apply %s: %d: %s" % (args, p.returncode,
                                           p.stderr.decode()))
    return p


def npy(x):
    np.save("x.npy", x)
    with open("x.npy", "rb") as f:
        return f.read()


def apply(case, *args, x=None, env=None):
    x = case.x if x is None else x
    p = run(case.directory, case.layer, "-q", *args, x=npy(x), env=env)
    with open("y.npy", "wb") as f:
        f.write(p.stdout)
    return np.load("y.npy").astype(np.float64)


def near(y, want, sure, tol=2e-6):
    """Every row that is decided within f32's rounding of the reference."""
    assert y.shape == want.shape, (y.shape, want.shape)
    assert (np.isnan(y) == np.isnan(want))[sure].all()
    err = np.linalg.norm(np.nan_to_num(y - want), axis=1)
    norm = np.linalg.norm(np.nan_to_num(want), axis=1) + 1e-3
    assert (err <= tol * norm)[sure].all(), (err / norm)[sure].max()
    assert sure.mean() > 0.9
    return int(sure.sum())


def tables():
    """Every dtype, k, centring, single and fused layers."""
    n = 0
    for i, kw in enumerate([
            dict(dtype="F32"), dict(dtype="F16"), dict(dtype="BF16"),
            dict(k=1), dict(k=96), dict(centered=True),
            dict(layer=QKV, outs=(24, 8, 8)), dict(d=1, outs=(1,), n=3, k=2),
            dict(n=1000, d=17, outs=(67,), k=33, dtype="BF16"),
            dict(layer="model.layers.0.mlp.gate_up_proj", outs=(9, 9)),
            dict(dtype=MIXED), dict(dtype=MORE_MIXED, centered=True)]):
        c = Case("t%d" % i, seed=i, **kw)
        y, _, sure = c.steps(c.x)
        n += near(apply(c), y, sure) > 0
    return n


def edges():
    """Ties, fewer than k positives, none, zero rows, NaN, Inf, 1e30."""
    c = Case("e", k=4)
    n, d = c.t["encoder_weight"].shape
    x = np.zeros((9, d), np.float32)
    x[1] = c.x[0] * 1e30
    x[2, 3] = np.nan
    x[3, 5] = np.inf
    x[4, 5] = -np.inf
    x[5:] = c.x[1:5]
    y, _, sure = c.steps(x)
    assert np.isnan(y[2:5]).all()
    sure[1] = True
    near(apply(c, x=x), y, sure)
    # rows beside bad ones have the bits that they have alone, compensated too
    for args in ((), ("--ratio", "0.5", "-m", "e"), ("--ratio", "1", "-m", "e"),
                 ("--tau", "0.1", "--absolute", "--weighted", "-m", "e")):
        got = apply(c, *args, x=x)
        assert np.isnan(got[2:5]).all() and np.isfinite(got[[0, 1]]).all()
        assert (got[5:] == apply(c, *args, x=x[5:])).all(), args
    p = run("e", Q, x=npy(x))
    assert b"3 of 9 rows" in p.stderr, p.stderr
    # equal pre-activations everywhere: the lowest k
    c.t["encoder_weight"][:] = 0
    c.t["encoder_bias"][:] = 0.5
    done = 1
    for bias, chosen in ((0.5, range(4)), (-0.5, ()), (0, ())):
        c.t["encoder_bias"][:] = bias
        rewrite(c)
        want = c.t["bias_product"] + sum(
            (0.5 * c.t["precomputed_products"][i] for i in chosen),
            np.zeros(24))
        assert np.allclose(apply(c), want, rtol=1e-6, atol=1e-5)
        done += 1
    # three positives of k = 4, the last two equal
    c.t["encoder_bias"][[90, 7, 50]] = 1, 2, 1
    rewrite(c)
    p = c.t["precomputed_products"]
    want = c.t["bias_product"] + p[90] + 2 * p[7] + p[50]
    assert np.allclose(apply(c), want, rtol=1e-6, atol=1e-5)
    # ties at the border: of five 1s, the three lowest
    c.t["encoder_bias"][[80, 30, 70, 95]] = 1, 1, 1, 1
    rewrite(c)
    want = c.t["bias_product"] + 2 * p[7] + p[30] + p[50] + p[70]
    assert np.allclose(apply(c), want, rtol=1e-6, atol=1e-5)
    return done + 2


def rewrite(c):
    write_safetensors(os.path.join(c.directory, "lut",
                                   c.layer + ".lut.safetensors"),
                      c.t, lambda m: "F32" if m == "threshold" else c.dtype)


def compensation():
    """Every mode, weights of the table and of the model, weighted."""
    n = 0
    for i, (kw, args, choice) in enumerate([
            ({}, ("--ratio", "0.25"), dict(ratio=0.25)),
            ({}, ("--ratio", "0.26"), dict(ratio=0.26)),
            ({}, ("--ratio", "0"), dict(ratio=0)),
            ({}, ("--top", "3"), dict(top=3)),
            ({}, ("--top", "999"), dict(top=40)),
            ({}, ("--tau", "0.3", "--absolute"), dict(tau=0.3)),
            ({}, ("--tau", "2"), dict(tau=0.4)),
            ({}, ("--ratio", ".2", "--weighted"), dict(ratio=0.2)),
            ({}, ("--tau", "1", "--absolute", "--weighted"), dict(tau=1)),
            (dict(layer=QKV, outs=(24, 8, 8)), ("--top", "5"), dict(top=5)),
            (dict(dtype="BF16", k=20), ("--top", "7"), dict(top=7)),
            (dict(dtype="BF16", d=136, layer=QKV, outs=(70, 9, 8)),
             ("--top", "17"), dict(top=17)),  # an eighth: weights turned
            (dict(centered=True), ("--top", "7"), dict(top=7)),
            (dict(model="F32"), ("--top", "7"), dict(top=7)),
            (dict(dtype=MIXED), ("--top", "5", "--weighted"), dict(top=5)),
            (dict(dtype=MORE_MIXED, d=136, layer=QKV, outs=(70, 9, 8)),
             ("--top", "17"), dict(top=17)),
            (dict(model="F16", d=136, layer=QKV, outs=(70, 9, 8)),
             ("--top", "17"), dict(top=17))]):
        for stored in (False, True):
            c = Case("c%d%d" % (i, stored), seed=i, stored=stored, meta={
                "elbow_thresholds": {Q: {"elbow_value": 0.2}}}, **kw)
            y, error, sure = c.steps(c.x)
            if "--weighted" in args:
                choice["weight"] = np.linalg.norm(c.weights(), axis=0)
            e = np.sort(abs(error) * choice.get("weight", 1), axis=1)[:, ::-1]
            top = choice.get("top", int(np.ceil(
                choice.get("ratio", 0) * error.shape[1])))
            if "tau" in choice:
                sure &= abs(e - choice["tau"]).min(axis=1) > 1e-5
            elif 0 < top < error.shape[1]:
                sure &= e[:, top - 1] - e[:, top] > 1e-5
            want = lut.compensate(y, error, lut.choose(error, **choice),
                                  c.weights())
            model = () if stored else ("-m", c.directory)
            n += near(apply(c, *args, *model), want, sure) > 0
    return n


def arrays():
    """--codes, --values, --xhat of each row, bad ones and those with fewer
    than k directions too; a stream of unknown length gives the same files."""
    n = 0
    files = "idx.npy", "val.npy", "xhat.npy"
    args = sum(zip(("--codes", "--values", "--xhat"), files), ())
    for i, kw in enumerate([{}, dict(k=96), dict(k=1, d=1, n=3, outs=(1,)),
                            dict(dtype="BF16", k=20, centered=True),
                            dict(dtype=MIXED, n=1000, d=72, k=33),
                            dict(over="each", k=5),
                            dict(over="one", dtype="BF16", n=300)]):
        c = Case("a%d" % i, seed=i, **kw)
        width = len(c.t["encoder_bias"]) if "over" in kw else c.k
        x = np.concatenate([c.x, c.x[:3]])
        x[7, 0], x[8, 0] = np.nan, np.inf
        x[9] = 0
        z, (_, error, sure) = c.z(x), c.steps(x)
        sets = c.sets(z)
        y = apply(c, *args, "--force", x=x)
        idx, val, xhat = (np.load(f) for f in files)
        assert idx.dtype == "<i4" and val.dtype == xhat.dtype == "<f4"
        assert idx.shape == val.shape == (len(x), width)
        # what is written is y's own sum, whether a row is decided or not
        own = c.t["bias_product"] + np.einsum(
            "rk,rko->ro", val.astype(np.float64),
            c.t["precomputed_products"][idx])
        own[[7, 8]] = np.nan
        near(y, own, np.ones(len(x), bool))
        near(xhat.astype(np.float64), x - error, sure)
        for r in np.flatnonzero(sure):
            s = [] if sets[r] is None else list(sets[r])
            assert list(idx[r]) == s + [-1] * (width - len(s)), (i, r)
            assert np.allclose(val[r, :len(s)], z[r, s], 1e-4, 1e-4)
            assert (val[r, len(s):] == 0).all()
        held = [open(f, "rb").read() for f in files]
        for shape, extra in (((53, 1, -1), ()), ((-1,), ("--x-dtype", "f32",
                                                         "--raw"))):
            raw = x.tobytes() if extra else npy(x.reshape(shape))
            run(c.directory, c.layer, "-q", "--force", *args, *extra, x=raw)
            assert [open(f, "rb").read() for f in files] == held, shape
        n += 1
    return n


def dims():
    """One fixed set of inputs, by the model's weights and stored ones; of all
    of them the layer, and the bits of stored weights row by row."""
    n = 0
    for i, kw in enumerate([{}, dict(layer=QKV, outs=(70, 9, 8), dtype="BF16"),
                            dict(dtype=MIXED, centered=True, outs=(64,)),
                            dict(d=300, n=400, k=24, outs=(200,), model="F32",
                                 rows=90)]):
        for stored in (False, True):
            c = Case("m%d%d" % (i, stored), seed=i, stored=stored, **kw)
            model = () if stored else ("-m", c.directory)
            x = c.x.copy()
            x[5, 1] = np.nan
            y, error, sure = c.steps(x)
            width = error.shape[1]
            for m, dtype in ((0, "<i4"), (1, "<i8"), (9, "<i4"),
                             (width, "<i4")):
                chosen = np.sort(c.rng.choice(width, m, replace=False))
                np.save("dims.npy", chosen.astype(dtype))
                mask = np.zeros(error.shape, bool)
                mask[:, chosen] = True
                want = lut.compensate(y, error, mask, c.weights())
                got = apply(c, "--dims", "dims.npy", *model, x=x)
                near(got, want, sure)
                n += 1
            if stored:
                rows = apply(c, "--ratio", "1", x=x)
                assert rows.tobytes() == got.tobytes()
            dense = c.x.astype(np.float64) @ c.weights().T + c.bias
            got[5] = dense[5]
            bound = 4e-7 if c.dtype == "F32" else 8e-3
            assert off(got, dense) < bound, (i, stored, off(got, dense))
    return n


def off(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def identity():
    """All dims compensated are the layer, but for the rounding of products
    and bias (of a vector in BF16 1.6e-3, in F16 2e-4, in F32 2.4e-8) and f32
    sums; the error falls as the ratio grows."""
    n = 0
    for dtype, bound in (("BF16", 2e-3), ("F16", 2.5e-4), ("F32", 3e-8)):
        wide = 1024 if dtype == "BF16" else 512
        for stored, d, latents, k in ((False, 64, 256, 8), (True, 64, 256, 8),
                                      (True, wide, 2 * wide, wide // 16)):
            c = Case("i%s%s%d" % (dtype, stored, d), dtype=dtype, sae=dtype,
                     rows=12800 // d, n=latents, d=d, k=k, outs=(96,),
                     stored=stored)
            dense = c.x.astype(np.float64) @ c.w.T + c.bias
            y, error, sure = c.steps(c.x)
            want = lut.compensate(y, error, np.ones(error.shape, bool),
                                  c.weights())
            assert off(want, dense) < bound, off(want, dense)
            errors = []
            for ratio in (0, 0.1, 0.25, 0.5, 0.75, 1):
                y = apply(c, "--ratio", str(ratio),
                          *(() if stored else ("-m", c.directory)))
                errors.append(np.linalg.norm(y - dense))
            assert off(y, want) < 4e-7, (dtype, stored, d, off(y, want))
            assert errors == sorted(errors, reverse=True), errors
            n += 1
    return n


def exporter():
    """A directory as the Python exporter writes it: centred, "layers.", no bias
    of the layer in bias_product."""
    c = Case("x", exporter=True, centered=True, meta={
        "elbow_thresholds": {"layer_0/self_attn_q_proj":
                             {"elbow_value": 0.3}}})
    y, error, sure = c.steps(c.x)
    near(apply(c), y, sure)
    without = b"exporter, which leaves out the layer's bias: if it has one"
    assert without in run("x", Q, x=npy(c.x)).stderr
    assert run("x", Q, "-m", "x", x=npy(c.x)).stderr == b""
    c.layer = Q[len("model."):]
    near(apply(c), y, sure)
    sure &= abs(abs(error) - 0.15).min(axis=1) > 1e-5
    want = lut.compensate(y, error, lut.choose(error, tau=0.15), c.w)
    # the model knows the bias that the exporter leaves out
    near(apply(c, "--tau", "0.5", "-m", "x"), want + c.bias, sure)
    dense = c.x.astype(np.float64) @ c.w.T + c.bias
    near(apply(c, "--ratio", "1", "-m", "x"), dense, sure)
    return 4


def report(**kw):
    """Metrics over all rows, whatever the batch; JSON and TSV say the same."""
    c = Case("r", rows=150, meta={
        "elbow_thresholds": {Q: {"elbow_value": 0.2}}}, **kw)
    y, error, sure = c.steps(c.x)
    assert sure.all()
    x = c.x.astype(np.float64)
    dense = x @ c.w.T + c.bias
    done = 0
    for args, choice in (((), None), (("--ratio", "0.2"), dict(ratio=0.2)),
                         (("--tau", "1"), dict(tau=0.2))):
        chosen = (lut.choose(error, **choice) if choice
                  else np.zeros(error.shape, bool))
        want = lut.report(x, x - error, lut.compensate(y, error, chosen, c.w),
                          dense, 0.2)
        rows = (np.linalg.norm(lut.compensate(y, error, chosen, c.w) - dense,
                               axis=1) / np.linalg.norm(dense, axis=1))
        z = c.z(c.x)
        want.update(rows=150, bad_rows=0, threshold=0.2,
                    positives_mean=(z > 0).sum(axis=1).mean(),
                    active_mean=np.mean([len(s) for s in c.sets(z)]),
                    dead=96 - len(set(np.concatenate(c.sets(z)))),
                    compensated_mean=chosen.sum(axis=1).mean())
        outs = [json.loads(run("--report", c.directory, Q, "-m", c.directory,
                               "--json", "--batch", b, *args,
                               x=npy(c.x)).stdout) for b in ("64", "7")]
        assert outs[0] == outs[1]
        for key, v in want.items():
            key = {"row_max": "row_rel_l2_max"}.get(key, key)
            assert abs(outs[0][key] - v) <= 1e-5 * abs(v) + 1e-6, (
                key, outs[0][key], v)
        p99 = np.sort(rows)[150 - 1 - 1]
        assert p99 <= outs[0]["row_rel_l2_p99"] <= p99 * 1.003
        counts = chosen.sum(axis=0)
        order = sorted(range(40), key=lambda d: (-counts[d], d))
        if choice and "ratio" in choice:
            assert [tuple(p) for p in outs[0]["dims"]] == [
                (d, counts[d]) for d in order if counts[d]]
        tsv = dict(line.split("\t") for line in run(
            "--report", c.directory, Q, "-m", c.directory, *args,
            x=npy(c.x)).stdout.decode().splitlines())
        assert float(tsv["fvu_output"]) == outs[0]["fvu_output"]
        done += 1
    return done


def over():
    """Tables with thresholds: every dtype, one and each, centring, single and
    fused layers, compensated or not."""
    n = 0
    for i, kw in enumerate([
            dict(over="each"), dict(over="one"), dict(over="each", dtype="F16"),
            dict(over="one", dtype="BF16"), dict(over="each", centered=True),
            dict(over="each", layer=QKV, outs=(24, 8, 8), stored=True),
            dict(over="one", d=1, outs=(1,), n=3, k=2),
            dict(over="each", n=1000, d=17, outs=(67,), k=1, dtype="BF16")]):
        c = Case("o%d" % i, seed=i, **kw)
        y, error, sure = c.steps(c.x)
        near(apply(c), y, sure)
        e = np.sort(abs(error), axis=1)[:, ::-1]
        top = (c.x.shape[1] + 3) // 4
        if top < c.x.shape[1]:
            sure &= e[:, top - 1] - e[:, top] > 1e-5
        want = lut.compensate(y, error, lut.choose(error, top=top), c.weights())
        got = apply(c, "--top", str(top), *(() if "stored" in kw else
                                            ("-m", c.directory)))
        n += near(got, want, sure, 4e-6) > 0
    return n


def over_edges():
    """Nothing over its threshold, everything, a number at it, none but one,
    and rows that are not finite."""
    c = Case("oe", over="each", dtype="F32")
    n, d = c.t["encoder_weight"].shape
    x = np.zeros((9, d), np.float32)
    x[1] = c.x[0] * 1e30
    x[2, 3], x[3, 5], x[4, 5] = np.nan, np.inf, -np.inf
    x[5:] = c.x[1:5]
    y, _, sure = c.steps(x)
    assert np.isnan(y[2:5]).all()
    near(apply(c, x=x), y, sure)
    for args in ((), ("--ratio", "0.5", "-m", "oe"), ("--batch", "3")):
        got = apply(c, *args, x=x)
        assert np.isnan(got[2:5]).all() and np.isfinite(got[[0, 1]]).all()
        assert (got[5:] == apply(c, *args, x=x[5:])).all(), args
    assert b"3 of 9 rows" in run("oe", Q, x=npy(x)).stderr
    c.t["encoder_weight"][:] = 0
    done = 1
    # strictly over: 0.5 is not, f32's next one is; at a threshold of 0, no
    # denormal is lost
    up, tiny = 0.5 + 2.0 ** -24, 2.0 ** -149
    for bias, threshold, chosen in (
            (0.5, 0.5, ()), (up, 0.5, range(n)), (0, 0, ()),
            (-0.5, 0, ()), (tiny, 0, range(n)), (2, 3.4e38, ())):
        c.t["encoder_bias"][:] = bias
        for shape in ((), (n,)):
            c.t["threshold"] = np.full(shape, float(threshold))
            rewrite(c)
            want = c.t["bias_product"] + bias * c.t["precomputed_products"][
                list(chosen)].sum(axis=0)
            assert np.allclose(apply(c), want, rtol=1e-5, atol=1e-5)
            done += 1
    c.t["threshold"] = np.full(n, 1.0)
    c.t["threshold"][[7, 95]] = 0.25, 0
    c.t["encoder_bias"][:] = 0.5
    rewrite(c)
    want = c.t["bias_product"] + 0.5 * c.t["precomputed_products"][
        [7, 95]].sum(axis=0)
    assert np.allclose(apply(c), want, rtol=1e-6, atol=1e-6)
    return done + 1


def over_report():
    return report(over="each", seed=2)


def over_same_bits():
    return same_bits(over="each")


def same_bits(**kw):
    """Threads, batches and pieces change no bit, on any instruction set; all
    of these are near the reference."""
    isas = os.environ.get("ISAS", "").split() or [None]
    c = Case("s", n=512, d=72, outs=(200,), k=24, rows=131, dtype="BF16",
             stored=True, **kw)
    y, error, sure = c.steps(c.x)
    np.save("dims.npy", np.arange(1, 72, 3, "<i4"))
    n, first = 0, {}
    for isa in isas:
        env = {"TU_ISA": isa} if isa else {}
        for args in ((), ("--ratio", "0.3"), ("--ratio", "0.3", "-m", "s"),
                     ("--dims", "dims.npy"),
                     ("--dims", "dims.npy", "-m", "s")):
            outs = {apply(c, "-j", j, "--batch", b, *args,
                          env=env).tobytes()
                    for j, b in (("1", "64"), ("2", "64"), ("3", "1"),
                                 ("1", "7"), ("3", "131"))}
            assert len(outs) == 1, (isa, args)
            assert first.setdefault(args, outs) == outs, (isa, args)
            n += 1
        near(apply(c, env=env), y, sure)
    return n


if __name__ == "__main__":
    print(globals()[sys.argv[1]]())
