# SPDX-License-Identifier: ISC
"""sae-look scan in numpy, as its page says it, sequence by sequence.

scan(SAE, rows, option=value, ..) returns (look.json, look.safetensors) as two
dicts.  f is a sum in f64 that must be exact in f32, so that it is what any
order of sums makes: sae() and rows() make numbers for which it is.

look_ref.py sae N D K SEED DIR       an SAE in sparsify's form
look_ref.py rows N D SEED FILE.npy
look_ref.py ids S T SEED FILE.npy    ids 0 to 99, some sequences padded with -1
look_ref.py scan SAE ROWS.npy RUN [OPTION=VALUE ...]
    writes a RUN: tokens=T ids=FILE.npy input_at=R skip_ids=3,5 skip_positions=N
    max_norm=X skip_bad=1 per=row top=K sample=M context=A,B (or all) seed=S
    pairs=3,17 latents=3,17
look_ref.py same RUN SAE ROWS.npy [OPTION=VALUE ...]
    compares a RUN, sae and sae_xxh3 apart, which are only looked for
look_ref.py codes DIR SAE ROWS.npy splits=N [OPTION=VALUE ...]
    compares the directory that --codes wrote, read as delphi reads it
"""
import fractions
import hashlib
import json
import math
import os
import sys

import numpy as np

import mkst
import sae_ref

DEFAULTS = dict(tokens=0, ids=None, input_at=0, skip_ids=(), skip_positions=0, max_norm=0.0, skip_bad=0,
                per="sequence", top=20, sample=40, context=None, seed=0, pairs=(), latents=None)
META = ("format", "sae", "sae_xxh3", "hook", "latents", "d", "rows", "left_out", "sequences", "T", "input", "top",
        "sample", "context", "per", "seed", "skip_ids", "skip_positions", "max_norm", "ids_sha256")


def sae(n, d, k, seed, path):
    """Weights of eighths, so that many latents are equal, and latent 0 is dead."""
    p = sae_ref.make_init(n, d, seed, exact=True)
    p["b_enc"][0] = -10000
    sae_ref.write_sae(path, p, k)


def identity(d, path):
    """f is x, where that is over 0."""
    sae_ref.write_sae(path, dict(W_enc=np.eye(d), b_enc=np.zeros(d), W_dec=np.eye(d), b_dec=np.zeros(d)), d)


def rows(n, d, seed):
    """Integers, of several sizes."""
    rng = np.random.default_rng(seed)
    return (rng.integers(-3, 4, (n, d)) * rng.choice([1, 2, 16], (n, 1))).astype("<f4")


def ids(s, t, seed):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 100, (s, t)).astype("<i4")
    for i in range(0, s, 3):  # some are empty
        a[i, rng.integers(0, t + 1):] = -1
    return a


def activations(path, x):
    """f [rows, N], exact, 0 where a latent is not active."""
    p = sae_ref.read_sae(path)
    with open(os.path.join(path, "cfg.json")) as f:
        cfg = json.load(f)
    z = (x.astype(float) - p["b_dec"]) @ p["W_enc"].T + p["b_enc"]
    one = (np.count_nonzero(p["W_enc"], 1) == 1).all()  # a product, or sums in units of 1/64
    assert (z == z.astype("f4")).all() and (one or np.abs(z).max() < 2 ** 16)
    f = np.where(z > cfg["threshold"] if "threshold" in cfg else sae_ref.largest(z, cfg["k"]), z, 0)
    return np.maximum(f, 0).astype("f4"), cfg


def key(seed, latent, n):
    """Keys of the first n examples of a latent."""
    return np.random.Philox(key=seed | latent << 64, counter=[0, 0, 2, 0]).random_raw(n)


def scan(path, x, **given):
    o = dict(DEFAULTS, **given)
    of_all = o["ids"]
    t = o["tokens"] or (1 if of_all is None else of_all.shape[1])
    n, d, base = len(x), x.shape[1], o["input_at"]
    assert n % t == 0 and base % t == 0 and (of_all is None or of_all.size >= base + n)
    tokens = None if of_all is None else of_all.reshape(-1)[base:base + n]
    if o["context"] is None:
        o["context"] = "all" if of_all is None and t <= 1024 else (20, 11)
    a, b = (t - 1, t - 1) if o["context"] == "all" else o["context"]
    place = np.arange(n)

    # rows that count
    good = np.isfinite(x).all(1)
    counts = place % t >= o["skip_positions"]
    if tokens is not None:
        counts &= (tokens >= 0) & ~np.isin(tokens, list(o["skip_ids"]))
    if o["max_norm"]:
        square = (x.astype(float) ** 2).sum(1)
        counts &= ~(square > o["max_norm"] ** 2)
    assert o["skip_bad"] or good[counts].all()
    counts &= good
    f, cfg = activations(path, np.where(good[:, None], x, 0))
    f[~counts] = 0
    n_latents = f.shape[1]

    latents = np.arange(n_latents) if o["latents"] is None else np.array(sorted(set(o["latents"])), int)
    m, c = len(latents), a + 1 + b
    out = dict(
        latent=latents.astype("<i4"), rows_active=np.zeros(m, "<i8"), seqs_active=np.zeros(m, "<i8"),
        sum_limbs=np.zeros((m, 11), "<i8"), sum=np.zeros(m, "<f8"), max=np.zeros(m, "<f4"),
        hist=np.zeros((m, 64), "<i8"))
    for name, count in ("top", o["top"]), ("sample", o["sample"]):
        out[name + "_value"] = np.zeros((m, count), "<f4")
        out[name + "_row"] = np.full((m, count), -1, "<i8")
        out[name + "_acts"] = np.full((m, count, c), -1, "<f4")
        if tokens is not None:
            out[name + "_ids"] = np.full((m, count, c), -1, "<i4")

    for i, latent in enumerate(latents):
        v = f[:, latent]
        active = np.flatnonzero(v > 0)
        out["rows_active"][i] = len(active)
        out["seqs_active"][i] = len(set(active // t))
        out["sum"][i] = math.fsum(v[active].tolist())
        exact = sum(map(fractions.Fraction, v[active].tolist())) * 2 ** 149
        assert exact == int(exact)
        out["sum_limbs"][i] = [int(exact) >> 32 * j & 0xffffffff for j in range(11)]
        out["max"][i] = v.max() if n else 0
        for value in v[active].tolist():  # two bins an octave, the 32nd from 1 on
            mantissa, exponent = math.frexp(value)
            out["hist"][i, min(63, max(0, 32 + 2 * (exponent - 1) + (mantissa >= 0.75)))] += 1
        examples = []  # (value, row, number)
        if o["per"] == "row":
            examples = [(float(v[r]), int(r), base + int(r)) for r in active]
        else:
            for s in sorted(set(active // t)):
                r = s * t + int(v[s * t:s * t + t].argmax())  # the first
                examples.append((float(v[r]), int(r), base // t + int(s)))
        top = sorted(examples, key=lambda e: (-e[0], e[1]))[:o["top"]]
        keys = key(o["seed"], int(latent), max([e[2] for e in examples], default=0) + 1)
        sample = sorted(examples, key=lambda e: (int(keys[e[2]]), e[2]))[:o["sample"]]
        for name, these in ("top", top), ("sample", sample):
            for j, (value, r, _) in enumerate(these):
                out[name + "_value"][i, j] = value
                out[name + "_row"][i, j] = base + r
                for at in range(c):
                    row = r - a + at
                    if 0 <= row < n and row // t == r // t:
                        out[name + "_acts"][i, j, at] = v[row] if counts[row] else -1
                        if tokens is not None:
                            out[name + "_ids"][i, j, at] = tokens[row]
    if len(o["pairs"]):
        pairs = sorted(set(o["pairs"]))
        out["pair_latent"] = np.array(pairs, "<i4")
        out["pairs"] = np.array([((f[:, [p]] > 0) & (f > 0)).sum(0) for p in pairs]).astype("<i8")
    meta = dict(
        format=1, sae=path, sae_xxh3="0" * 32, hook=cfg.get("hook"), latents=n_latents, d=d, rows=int(counts.sum()),
        left_out=int(n - counts.sum()), sequences=len(set(place[counts] // t)), T=t, input=[[base, base + n]],
        top=o["top"], sample=o["sample"], context=[a, b], per=o["per"], seed=o["seed"],
        skip_ids=sorted(set(o["skip_ids"])), skip_positions=o["skip_positions"], max_norm=o["max_norm"],
        ids_sha256=of_all is not None and hashlib.sha256(of_all.astype("<i4").tobytes()).hexdigest() or None)
    return meta, out


def write(path, meta, tensors):
    os.makedirs(path)
    with open(os.path.join(path, "look.json"), "w") as f:
        f.write(json.dumps(meta) + "\n")
    mkst.save(os.path.join(path, "look.safetensors"),  # as aligned as the writer of the tools does it
              dict(sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0]))))


def read(path):
    """look.json, and the tensors in their own types."""
    with open(os.path.join(path, "look.json")) as f:
        text = f.read()
    assert text.endswith("}\n") and text.count("\n") == 1
    types = {v: k for k, v in mkst.NAMES.items()}
    return json.loads(text), {name: np.frombuffer(data, types[dtype]).reshape(shape) for name, (dtype, shape, data)
                              in mkst.load(os.path.join(path, "look.safetensors")).items()}


def compare(path, meta, tensors):
    got_meta, got = read(path)
    assert tuple(got_meta) == META, tuple(got_meta)
    for name in META:
        if name == "sae_xxh3":
            assert len(got_meta[name]) == 32
        elif name != "sae":
            assert got_meta[name] == meta[name], (name, got_meta[name], meta[name])
    assert set(got) == set(tensors), set(got) ^ set(tensors)
    for name, want in tensors.items():
        assert got[name].dtype == want.dtype and got[name].shape == want.shape, (name, got[name].shape, want.shape)
        assert got[name].tobytes() == want.tobytes(), (name, np.argwhere(got[name] != want)[:5].tolist())


def compare_codes(path, sae_path, x, splits, **given):
    """Every activation over 1e-5, as delphi's loader puts a split together."""
    meta, _ = scan(sae_path, x, **dict(given, latents=[]))
    t, n, base = meta["T"], meta["latents"], meta["input"][0][0]
    counted = given["ids"].reshape(-1)[base:base + len(x)] >= 0
    counted &= ~np.isin(given["ids"].reshape(-1)[base:base + len(x)], list(given.get("skip_ids", ())))
    f = np.where(counted[:, None], activations(sae_path, x)[0], 0)
    bounds = [int(b) for b in np.linspace(0, n, splits + 1)]
    assert sorted(os.listdir(path)) == sorted(
        ["config.json"] + ["%d_%d.safetensors" % (b, e - 1) for b, e in zip(bounds, bounds[1:])])
    with open(os.path.join(path, "config.json")) as file:
        cfg = json.load(file)
    assert cfg["cache_ctx_len"] == t and cfg["batch_size"] == 1 and cfg["n_tokens"] == given["ids"].size
    assert isinstance(cfg["model_name"], str)
    types = {v: k for k, v in mkst.NAMES.items()}
    for begin, end in zip(bounds, bounds[1:]):
        a = {name: np.frombuffer(data, types[dtype]).reshape(shape) for name, (dtype, shape, data) in
             mkst.load(os.path.join(path, "%d_%d.safetensors" % (begin, end - 1))).items()}
        assert set(a) == {"locations", "activations", "tokens"} and a["locations"].dtype in ("<u2", "<u4")
        assert a["tokens"].dtype == "<i8" and (a["tokens"] == np.maximum(given["ids"], 0)).all()
        where = a["locations"].astype("i8") + [0, 0, begin]
        row, latent = np.nonzero(f[:, begin:end] > 1e-5)
        assert (where == np.stack([(base + row) // t, row % t, latent + begin], 1)).all()
        values = np.minimum(f[:, begin:end][row, latent], 65504).astype("<f2")
        assert a["activations"].dtype == "<f2" and (a["activations"] == values).all()


def options(words):
    o = {}
    for word in words:
        name, value = word.split("=", 1)
        o[name] = (np.load(value) if name == "ids" else value if name == "per" or value == "all" else
                   float(value) if name == "max_norm" else
                   [int(v) for v in value.split(",") if v] if name in ("skip_ids", "pairs", "latents") else
                   tuple(map(int, value.split(","))) if name == "context" else int(value))
    return o


def main(verb, *args):
    if verb == "sae":
        sae(*map(int, args[:4]), args[4])
    elif verb == "rows":
        np.save(args[3], rows(*map(int, args[:3])))
    elif verb == "ids":
        np.save(args[3], ids(*map(int, args[:3])))
    elif verb == "scan":
        write(args[2], *scan(args[0], np.load(args[1]), **options(args[3:])))
    elif verb == "same":
        compare(args[0], *scan(args[1], np.load(args[2]), **options(args[3:])))
    elif verb == "codes":
        compare_codes(args[0], args[1], np.load(args[2]), **options(args[3:]))
    else:
        sys.exit("unknown verb " + verb)


if __name__ == "__main__":
    main(*sys.argv[1:])
