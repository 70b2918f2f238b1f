# SPDX-License-Identifier: ISC
"""hf-infer --lut against float64: lut_model.py CHECK.

Models are tiny_models' and the demo's size; tables are lut_ref's.
"""
import csv
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lut_ref as lut  # noqa: E402
import tiny_models  # noqa: E402

IDS = [int(i) for i in np.random.default_rng(3).integers(0, 500, 60)]
SINGLE = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
          "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
FUSED = ("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj",
         "mlp.down_proj")


def make(directory, names, dtype="F32", k=24, bias=False, exporter=False,
         stored=False, n=160, seed=0, scale=0.3, meta=None, threshold=None,
         **change):
    """A model with a table for each of 'names' in each layer; returns its
    weights, and the tables as they are held."""
    rng = np.random.default_rng(seed)
    config = tiny_models.config_of("llama", attention_bias=bias,
                                   mlp_bias=bias, **change)
    w = tiny_models.weights_of(config, rng, bias, bias, bias)
    w = {m: lut.round_to(a, "F32") for m, a in w.items()}
    tiny_models.write_model(directory, config, w, "F32")
    tables, weights = {}, {}
    for i in range(config["num_hidden_layers"]):
        for name in names:
            layer = "model.layers.%d.%s" % (i, name)
            wt, b = lut.target(w, layer)
            sae = lut.tiny_sae(rng, n, wt.shape[1], b_dec=0.1)
            sae["encoder_weight"] = sae["encoder_weight"] * scale
            tables[layer] = lut.table(sae, wt, None if exporter else b,
                                      fold=not exporter)
            weights[layer] = wt
    held = lut.write_lut(os.path.join(directory, "lut"), tables, k, dtype,
                         exporter, exporter, weights if stored else None, meta,
                         threshold)
    return config, w, held


def nll(directory, *args):
    p = subprocess.run(("hf-infer", directory, "--ids", ",".join(map(str, IDS)),
                        "--nll", "-q") + args, capture_output=True)
    assert p.returncode == 0, p.stderr.decode()
    rows = p.stdout.decode().splitlines()[1:]
    return np.array([float(r.split("\t")[2]) for r in rows])


class Tabled:
    """Stands in for the matrix of a layer in transformer.py: x @ w.T is the
    table's answer, without the bias, which the caller adds."""

    def __init__(self, t, k, w, bias, columns, centered, fix, has_bias):
        self.t, self.k, self.w, self.centered = t, k, w, centered
        self.bias, self.columns, self.fix = bias, columns, fix
        self.has_bias = has_bias

    @property
    def T(self):
        return self

    __array_ufunc__ = None

    def __rmatmul__(self, x):
        z = lut.preact(self.t, x, self.centered)
        sets = lut.active(self.t, z, self.k)
        y = lut.combine(self.t, z, sets)
        if self.fix:
            e = x - lut.reconstruct(self.t, z, sets)
            y = lut.compensate(y, e, self.fix(e), self.w)
        if self.has_bias:
            y = y - self.bias
        return y[..., self.columns]


def reference(config, w, held, k, centered=False, ratio=0, has_bias=True,
              only=None, fix=None):
    """The nll of IDS by transformer.py, on tables."""
    import transformer
    w = dict(w)
    if ratio:
        fix = lambda e: lut.choose(e, ratio=ratio)  # noqa: E731
    for layer, t in held.items():
        if only and not only(layer):
            continue
        wt, b = lut.target(w, layer)
        at = 0
        bias = np.zeros(len(wt)) if b is None else b
        for part in lut.parts_of(layer):
            n = len(w[part + ".weight"])
            w[part + ".weight"] = Tabled(t, k, wt, bias, slice(at, at + n),
                                         centered, fix, has_bias)
            at += n
    logits = transformer.forward(config, w, IDS)
    top = logits.max(axis=1, keepdims=True)
    logp = logits - top - np.log(np.exp(logits - top).sum(axis=1,
                                                          keepdims=True))
    return -logp[np.arange(len(IDS) - 1), IDS[1:]]


def close(got, want, tol=1e-5):
    d = abs(got - want)
    # a top-k set at the border may go either way: few tokens, then
    assert np.median(d) < tol / 10 and (d < tol).mean() > 0.9, (
        np.median(d), (d < tol).mean(), d.max())
    return 1


def tables():
    """Each token's nll is float64's on the same tables: single layers and
    fused ones, biases, the exporter's directories, some layers alone, a ratio."""
    n = 0
    for i, (kw, args, ref) in enumerate([
            (dict(names=SINGLE), (), {}),
            (dict(names=FUSED), (), {}),
            (dict(names=FUSED, bias=True), (), {}),
            (dict(names=FUSED, bias=True, exporter=True), (),
             dict(centered=True, has_bias=False)),
            (dict(names=FUSED, dtype="BF16"), ("-j", "3", "--chunk", "7"), {}),
            (dict(names=FUSED, bias=True), ("--ratio", "0.3"),
             dict(ratio=0.3)),
            (dict(names=FUSED, stored=True), ("--ratio", "0.3"),
             dict(ratio=0.3)),
            (dict(names=FUSED, threshold=0.05, k=160), (), {}),
            (dict(names=SINGLE, threshold=np.linspace(0, .2, 160), bias=True),
             ("--ratio", "0.3", "--chunk", "9"), dict(ratio=0.3)),
            (dict(names=SINGLE),
             ("--lut-layers", "*.1.mlp.*,model.layers.2.self_attn.[qk]_proj"),
             dict(only=lambda m: m.startswith("model.layers.1.mlp") or
                  m.startswith("model.layers.2.self_attn.") and
                  m[-6] in "qk"))]):
        directory = "m%d" % i
        config, w, held = make(directory, seed=i, **kw)
        got = nll(directory, "--lut", directory, *args)
        n += close(got, reference(config, w, held, 24, **ref))
        assert abs(got - nll(directory)).max() > 0.01
    return n


def fixed():
    """--tau: errors over so many elbows; --dims: the same inputs always."""
    rng = np.random.default_rng(8)
    layers = ["model.layers.%d.%s" % (i, name) for i in range(3)
              for name in FUSED]
    config, w, held = make("fix", FUSED, bias=True, meta={
        "elbow_thresholds": {m: {"elbow_value": 0.5} for m in layers}})
    n = close(nll("fix", "--lut", "fix", "--tau", "1.5"),
              reference(config, w, held, 24,
                        fix=lambda e: lut.choose(e, tau=0.75)))
    os.mkdir("dims")
    of = {}
    for m in layers:
        d = held[m]["decoder_bias"].shape[0]
        of[d] = of.get(d, np.sort(rng.choice(d, d // 3, replace=False)))
        np.save("dims/%s.npy" % m, of[d].astype("<i4"))
    got = nll("fix", "--lut", "fix", "--dims", "dims")
    n += close(got, reference(config, w, held, 24, fix=lambda e: np.isin(
        np.arange(e.shape[1]), of[e.shape[1]])[None] & np.ones_like(e, bool)))
    assert (got == nll("fix", "--lut", "fix", "--dims", "dims", "--chunk", "5",
                       "-j", "3")).all()
    return n


def identity():
    """With ratio 1 the model is the dense one but for the table's rounding:
    each token, and the perplexity."""
    n = 0
    for dtype, tol, tol_mean in (("F32", 5e-6, 5e-7), ("F16", 3e-3, 2.5e-4),
                                 ("BF16", 3e-2, 2e-3)):
        for stored in (False, True):
            directory = "i%s%d" % (dtype, stored)
            make(directory, FUSED, dtype, bias=True, stored=stored)
            dense = nll(directory)
            off = nll(directory, "--lut", directory, "--ratio", "1") - dense
            assert abs(off).max() < tol, (dtype, stored, abs(off).max())
            assert abs(off.mean()) < tol_mean, (dtype, stored, off.mean())
            n += 1
    return n


def report():
    """--lut-report: numpy's metrics of each table, on the inputs that the
    model gives it; the answer is the same as without."""
    layer, elbow = "model.layers.0.self_attn.qkv_proj", 0.75
    config, w, held = make("r", FUSED, bias=True, meta={
        "elbow_thresholds": {layer: {"elbow_value": elbow}}})
    plain = nll("r", "--lut", "r", "--lut-layers", "*.0.self_attn.qkv_proj")
    assert (plain == nll("r", "--lut", "r", "--lut-layers",
                         "*.0.self_attn.qkv_proj", "--lut-report", "r.tsv",
                         "--chunk", "9")).all()
    with open("r.tsv") as f:
        (row,) = csv.DictReader(f, delimiter="\t")
    assert row["layer"] == layer and row["rows"] == "60"
    import transformer
    taps = {}
    transformer.forward(config, w, IDS,
                        lambda p, i, x: taps.setdefault((p, i), x))
    x, t = taps["in:q_proj", 0], held[layer]
    z = lut.preact(t, x)
    sets = lut.top_k(z, 24)
    wt, b = lut.target(w, layer)
    want = lut.report(x, lut.reconstruct(t, z, sets), lut.combine(t, z, sets),
                      x @ wt.T + b, elbow)
    assert 0.1 < want["exceed"] < 0.9
    want.update(
        threshold=elbow,
        positives_mean=(z > 0).sum(axis=1).mean(), compensated_mean=0,
        active_mean=np.mean([len(s) for s in sets]),
        dead=z.shape[1] - len(set(np.concatenate(sets))))
    n = 0
    for key, v in want.items():
        got = float(row[{"row_max": "row_rel_l2_max"}.get(key, key)])
        assert abs(got - v) <= 1e-4 * abs(v), (key, got, v)
        n += 1
    return n


def auto():
    """--lut-auto: the nats are those of one table at a time, the order is that
    of what a nat saves, and the first ones within NATS are kept."""
    names = FUSED[2:]  # of a wide MLP: all tables save, and cost 0.049 in all
    make("M", names, n=8, k=2, intermediate_size=3000)
    before = nll("M").mean()
    p = subprocess.run(("hf-infer", "M", "--lut", "M", "--ids",
                        ",".join(map(str, IDS)), "--lut-auto", "0.02"),
                       capture_output=True, text=True)
    assert p.returncode == 0, p.stderr
    rows = list(csv.DictReader(p.stdout.splitlines(), delimiter="\t"))
    assert len(rows) == 3 * len(names)
    total, kept, going, last = 0, [], True, None
    for row in rows:
        v = {k: float(row[k]) for k in row if k not in ("layer", "kept")}
        cost = nll("M", "--lut", "M", "--lut-layers", row["layer"]).mean()
        assert abs(cost - before - v["nats"]) < 2e-6, (row, cost - before)
        total += cost - before
        assert abs(total - v["nats_sum"]) < 1e-5
        assert abs(v["us_layer"] - v["us_table"] - v["us_saved"]) < 0.02
        # what a nat saves falls, but for those that cost none or save none;
        # as far as it can be known from two and six digits
        saves = v["us_saved"] > 0
        group = (not saves, v["nats"] > 0 and saves)
        ratio = group == (False, True)
        nats = (v["nats"] + 6e-7, max(v["nats"] - 6e-7, 1e-9)) if ratio else (1, 1)
        least, most = (v["us_saved"] - 0.006) / nats[0], (v["us_saved"] + 0.006) / nats[1]
        assert last is None or last[0] < group or (last[0] == group and last[1] >= least), rows
        last = group, most
        going = going and v["us_saved"] > 0 and total <= 0.02
        assert row["kept"] == ("yes" if going else "no"), row
        kept += [row["layer"]] if going else []
    assert len(kept) < len(rows), rows
    # on a busy machine no table may save time
    after = nll("M", "--lut", "M", "--lut-layers", ",".join(kept)).mean() if kept else before
    assert "%d of %d tables kept" % (len(kept), len(rows)) in p.stderr
    assert "%.6f -> %.6f nats" % (before, after) in p.stderr, (p.stderr, after)
    return len(rows)


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], {"fused": FUSED, "single": SINGLE}[sys.argv[3]])
    else:
        print(globals()[sys.argv[1]]())
