# SPDX-License-Identifier: ISC
"""Lookup tables in float64: what lut(5) says, in numpy alone.

tiny_sae() and write_sae() make an SAE and any checkpoint of it; table() is
what lut-precompute is to write, write_lut() a directory that needs no tool;
preact(), active(), combine(), reconstruct(), choose(), compensate() are the
steps of lut-apply; report() its metrics.
"""
import json
import math
import os
import sys
from fractions import Fraction

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402
from tiny_models import write_safetensors  # noqa: E402

SIX = ("encoder_weight", "encoder_bias", "decoder_weight", "decoder_bias",
       "precomputed_products", "bias_product")
# the last of SAELens with a k that its activation is given, of an
# AutoEncoderTopK, and of a dictionary without a trainer around it
LAYOUTS = ("sparsify", "six", "saelens", "dictionary_learning", "saelens_args",
           "dictionary_topk", "dictionary_plain")
PARTS = {"qkv_proj": ("q_proj", "k_proj", "v_proj"),
         "gate_up_proj": ("gate_proj", "up_proj")}
# significand bits with the hidden one, exponent of the smallest step, largest
FORMATS = {"BF16": (8, -133, (2 - 2.0 ** -7) * 2.0 ** 127),
           "F16": (11, -24, 65504.0),
           "F32": (24, -149, (2 - 2.0 ** -23) * 2.0 ** 127)}


# ---- numbers and files ----

def round_to(a, dtype):
    """float64 rounded once, to nearest even; too large becomes infinity."""
    a = np.asarray(a, np.float64)
    bits, smallest, largest = FORMATS[dtype]
    step = np.ldexp(1.0, np.maximum(np.frexp(a)[1] - bits, smallest))
    with np.errstate(invalid="ignore"):
        r = np.where(np.isfinite(a), np.rint(a / step) * step, a)
    return np.where(np.isfinite(r) & (abs(r) > largest),
                    np.copysign(np.inf, r), r)


def half_ulp(a, dtype):
    """The most that rounding to 'dtype' moves each number."""
    bits, smallest, _ = FORMATS[dtype]
    return np.ldexp(0.5, np.maximum(np.frexp(np.asarray(a))[1] - bits,
                                    smallest))


def read_safetensors(path):
    """({name: float64 array}, {name: dtype}, __metadata__) of a file."""
    tensors, meta = mkst.load_all(path)
    return ({k: mkst.values(*v).astype(np.float64) for k, v in tensors.items()},
            {k: v[0] for k, v in tensors.items()}, meta)


def read_model(directory):
    """{name: float64 array} of a model's shards."""
    w = {}
    for file in sorted(os.listdir(directory)):
        if file.endswith(".safetensors"):
            w.update(read_safetensors(os.path.join(directory, file))[0])
    return w


# ---- SAEs ----

def tiny_sae(rng, n, d, dtype="F32", b_dec=0.5):
    """An SAE of n latents whose numbers 'dtype' can hold."""
    decoder = rng.normal(0, 1, (n, d))
    decoder /= np.linalg.norm(decoder, axis=1, keepdims=True)
    encoder = decoder + rng.normal(0, 0.1 / np.sqrt(d), (n, d))
    sae = dict(encoder_weight=encoder, encoder_bias=rng.normal(0, 0.1, n),
               decoder_weight=decoder,
               decoder_bias=rng.normal(0, b_dec, d))
    return {name: round_to(a, dtype) for name, a in sae.items()}


def write_sae(path, layout, sae, k, dtype="F32", cfg=None, extra=None):
    """A directory with the checkpoint; 'cfg' and 'extra' change its keys (None
    drops one) and add tensors."""
    e, be = sae["encoder_weight"], sae["encoder_bias"]
    d, bd = sae["decoder_weight"], sae["decoder_bias"]
    n, width = e.shape
    if layout == "sparsify":
        file, tensors = "sae.safetensors", {
            "encoder.weight": e, "encoder.bias": be, "W_dec": d, "b_dec": bd}
        config = ("cfg.json", {
            "activation": "topk", "expansion_factor": 8,
            "normalize_decoder": True, "num_latents": n, "k": k,
            "multi_topk": False, "skip_connection": False,
            "transcode": False, "d_in": width})
    elif layout == "six":
        file, tensors = "sae.safetensors", {m: sae[m] for m in SIX[:4]}
        config = ("cfg.json", {"k_active": k, "input_centering": True})
    elif layout in ("saelens", "saelens_args"):
        file, tensors = "sae_weights.safetensors", {
            "W_enc": e.T, "b_enc": be, "W_dec": d, "b_dec": bd}
        config = ("cfg.json", {
            "architecture": "topk", "d_in": width, "d_sae": n, "k": k,
            "dtype": "float32", "apply_b_dec_to_input": True,
            "normalize_activations": "none", "reshape_activations": "none"})
        if layout == "saelens_args":
            del config[1]["k"]
            config[1].update(architecture="standard", activation_fn_str="topk",
                             activation_fn_kwargs={"k": k})
    else:
        file, tensors = "ae.safetensors", {
            "encoder.weight": e, "encoder.bias": be, "decoder.weight": d.T,
            "b_dec" if layout == "dictionary_topk" else "bias": bd}
        config = ("config.json", {"trainer": {
            "dict_class": "AutoEncoderTopK", "activation_dim": width,
            "dict_size": n, "k": k}})
        if layout == "dictionary_plain":
            config = (config[0], config[1]["trainer"])
    tensors.update(extra or {})
    keys = config[1].get("trainer", config[1])
    keys.update(cfg or {})
    for key in [key for key in keys if keys[key] is None]:
        del keys[key]
    os.makedirs(path, exist_ok=True)
    write_safetensors(os.path.join(path, file), tensors, lambda name: dtype)
    with open(os.path.join(path, config[0]), "w") as f:
        json.dump(config[1], f)


# ---- tables ----

def parts_of(layer):
    """The names of the weights that a layer stands for."""
    stem, _, word = layer.rpartition(".")
    return [stem + "." + part for part in PARTS.get(word, (word,))]


def target(weights, layer):
    """W [out, in] and its bias or None, of a single or a fused layer."""
    parts = parts_of(layer)
    w = np.concatenate([weights[p + ".weight"] for p in parts])
    if not any(p + ".bias" in weights for p in parts):
        return w, None
    return w, np.concatenate([
        weights.get(p + ".bias", np.zeros(len(weights[p + ".weight"])))
        for p in parts])


def table(sae, w, bias=None, fold=True):
    """The six tensors in float64, not rounded; 'fold': of an SAE that takes
    x - b_dec, one that takes x."""
    b_dec = sae["decoder_bias"]
    t = dict(sae)
    if fold:
        t["encoder_bias"] = (sae["encoder_bias"]
                             - sae["encoder_weight"] @ b_dec)
    t["precomputed_products"] = sae["decoder_weight"] @ w.T
    t["bias_product"] = b_dec @ w.T + (0 if bias is None else bias)
    return t


def write_lut(directory, tables, k, dtype="BF16", centered=False,
              exporter=False, weights=None, meta=None, threshold=None):
    """A directory of tables {layer: table()}, as lut-precompute writes it, or,
    without "model." and the keys that are ours, as the Python exporter does.
    'dtype': of all tensors, or {tensor: dtype}.  'weights': {layer: W}, stored
    for compensation; 'threshold': a number or [N], over which latents are
    active.  Returns the tables as
    the files hold them, rounded."""
    of = dtype.get if isinstance(dtype, dict) else lambda _: dtype
    os.makedirs(directory, exist_ok=True)
    first = next(iter(tables.values()))
    doc = {"version": "1.0",
           "sae_config": {"num_basis": len(first["encoder_weight"]),
                          "k_active": k},
           "layers": {}, "creation_info": {"source_model": "tiny"}}
    if exporter:
        doc["creation_info"]["script_version"] = "1.0"
    held = {}
    for layer, t in tables.items():
        name = layer[len("model."):] if exporter else layer
        file = name + ".lut.safetensors"
        entry = {"input_dim": t["encoder_weight"].shape[1],
                 "output_dim": t["bias_product"].shape[0], "file": file}
        if not exporter:
            entry.update(num_basis=len(t["encoder_weight"]), k_active=k,
                         encoder={"input_centering": centered},
                         target_bias=True)
        if threshold is not None:
            entry["activation"] = "threshold"
        doc["layers"][name] = entry
        tensors = {m: t[m] for m in SIX}
        if weights and layer in weights:
            tensors["compensation_weight_t"] = weights[layer].T
        held[layer] = {m: round_to(a, of(m)) for m, a in tensors.items()}
        if threshold is not None:
            held[layer]["threshold"] = round_to(threshold, "F32")
        write_safetensors(os.path.join(directory, file), held[layer],
                          lambda m: "F32" if m == "threshold" else of(m))
    doc.update(meta or {})
    with open(os.path.join(directory, "metadata.json"), "w") as f:
        json.dump(doc, f, indent=1)
    return held


# ---- applying one ----

def preact(t, x, centered=False):
    """[rows, N] before ReLU."""
    if centered:
        x = x - t["decoder_bias"]
    return x @ t["encoder_weight"].T + t["encoder_bias"]


def top_k(z, k):
    """For each row the indices of its k largest positive numbers, ascending;
    ties go to the lower index, a row with a non-finite one has None."""
    sets = []
    for row in z:
        if not np.isfinite(row).all():
            sets.append(None)
            continue
        order = np.argsort(-row, kind="stable")[:k]
        sets.append(np.sort(order[row[order] > 0]))
    return sets


def over(z, threshold):
    """For each row the indices of its numbers over their thresholds; a row
    with a non-finite one has None."""
    return [np.flatnonzero(row > threshold) if np.isfinite(row).all() else None
            for row in z]


def active(t, z, k):
    """The terms of each row of a table: over its thresholds, if it has any,
    else the k largest."""
    return over(z, t["threshold"]) if "threshold" in t else top_k(z, k)


def margin(z, k, threshold=None):
    """How far each row's set is from another one: below the error of f32
    sums, either is right."""
    if threshold is not None:
        return abs(z - threshold).min(axis=1)
    s = -np.sort(-z, axis=1)
    kth = s[:, k - 1]
    after = s[:, k] if z.shape[1] > k else np.full(len(z), -np.inf)
    gap = kth - np.maximum(after, 0)
    return np.where(kth > 0, gap, abs(z).min(axis=1))


def _terms(z, sets, basis, bias):
    y = np.empty((len(z), basis.shape[1]))
    for i, chosen in enumerate(sets):
        y[i] = np.nan if chosen is None else bias + z[i, chosen] @ basis[chosen]
    return y


def combine(t, z, sets):
    """y [rows, out] from the table alone."""
    return _terms(z, sets, t["precomputed_products"], t["bias_product"])


def reconstruct(t, z, sets):
    """x^ [rows, in] of the same terms."""
    return _terms(z, sets, t["decoder_weight"], t["decoder_bias"])


def choose(error, ratio=None, top=None, tau=None, weight=None):
    """[rows, in] of bool: the input dims C of a row.  The largest |error|,
    ceil(ratio * in) or 'top' of them (ties: the lower index), or those above
    'tau'; weighted by weight[in] = |W_d| where that is given."""
    e = abs(error) * (1 if weight is None else weight)
    if tau is not None:
        return e > tau
    n = top if top is not None else math.ceil(Fraction(str(ratio)) * e.shape[1])
    c = np.zeros(e.shape, bool)
    order = np.argsort(-e, axis=1, kind="stable")[:, :n]
    np.put_along_axis(c, order, True, axis=1)
    return c


def compensate(y, error, c, w):
    """y + sum of (x - x^)_d W[:, d] over d in C, W [out, in]."""
    return y + np.where(c, error, 0) @ w.T


def report(x, x_hat, y, dense, tau=None):
    """Metrics over all rows together."""
    def fvu(a, b):
        return ((a - b) ** 2).sum() / ((a - a.mean(axis=0)) ** 2).sum()

    norms = np.linalg.norm(dense, axis=1)
    rows = np.linalg.norm(y - dense, axis=1) / norms
    cos = (y * dense).sum(axis=1) / (np.linalg.norm(y, axis=1) * norms)
    out = dict(fvu_input=fvu(x, x_hat), fvu_output=fvu(dense, y),
               rel_l2=np.linalg.norm(y - dense) / np.linalg.norm(dense),
               row_max=rows.max(), cosine_mean=cos.mean(),
               cosine_min=cos.min(), max_abs=abs(y - dense).max())
    if tau is not None:
        out["exceed"] = (abs(x - x_hat) > tau).mean()
    return out


def test():
    """Against sums written out."""
    rng = np.random.default_rng(5)
    for dtype, np_type in (("F16", np.float16), ("F32", np.float32)):
        a = rng.normal(0, 1, 4000) * 10.0 ** rng.integers(-50, 50, 4000)
        with np.errstate(over="ignore"):
            assert (round_to(a, dtype) == a.astype(np_type)).all()
    assert round_to(1 + 2.0 ** -8, "BF16") == 1  # ties to even
    assert round_to(1 + 3 * 2.0 ** -8, "BF16") == 1 + 2.0 ** -6
    sae = tiny_sae(rng, 24, 7)
    w, bias, x = (rng.normal(0, 1, s) for s in ((5, 7), 5, (9, 7)))
    plain, folded = table(sae, w, bias, False), table(sae, w, bias)
    z = preact(folded, x)
    assert np.allclose(z, preact(plain, x, True))
    sets = top_k(z, 3)
    y, x_hat = combine(folded, z, sets), reconstruct(folded, z, sets)
    assert np.allclose(y, x_hat @ w.T + bias)
    full = compensate(y, x - x_hat, choose(x - x_hat, ratio=1), w)
    assert np.allclose(full, x @ w.T + bias)
    assert choose(x - x_hat, ratio=0.25).sum() == 9 * 2
    assert top_k(np.array([[1, 2, 2, 2, -1.0]]), 2)[0].tolist() == [1, 2]
    assert top_k(np.array([[-1, 0, 2, np.nan]]), 2) == [None]
    assert top_k(np.array([[-1, 0, 2.0]]), 2)[0].tolist() == [2]
    assert over(np.array([[-1, 1, 2.0]]), 1)[0].tolist() == [2]
    assert over(np.array([[0, 1, 2.0]]), [-0.0, 3, 1])[0].tolist() == [2]


if __name__ == "__main__":
    test()
