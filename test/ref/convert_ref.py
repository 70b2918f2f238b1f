# SPDX-License-Identifier: ISC
"""convert_ref.py MODEL OUT FORM GROUP RULE [DTYPE] <TABLE: is OUT, which
st-convert has made of MODEL, what the formulas of st-convert(1) say?

Codes are read by packed_ref, and the numbers they stand for compared with
those that numpy computes in f32; so is the table of errors.  RULE: absmax,
asym, or lsq and lsq-asym, of which the error is compared: smaller than
absmax's, and not smaller than that of the best of 400 scales.
"""
import os
import sys

import numpy as np

import mkst
import packed_forms
import packed_ref

F = np.float32


def stored(x, dtype):
    if dtype == "F16":
        return np.asarray(x, F).astype("<f2").astype(F)
    if dtype == "F32":
        return np.asarray(x, F)
    return mkst.from_bf16(mkst.bf16(x)[2]).reshape(np.shape(x)).astype(F)


def e4m3(x):
    """Nearest of the 256 values, ties to the even code."""
    table = packed_forms.e4m3(np.arange(127, dtype=np.uint8)).astype(np.float64)
    a = np.abs(x).astype(np.float64)
    at = np.clip(np.searchsorted(table, a), 1, 126)
    low, high = a - table[at - 1], table[at] - a
    at = np.where((low < high) | ((low == high) & (at % 2 == 1)), at - 1, at)
    return np.copysign(table[at], x).astype(F)


def by_formula(w, form, rule, dtype):
    """[n, group] -> the numbers of codes and scales of absmax"""
    top = np.abs(w).max(1, keepdims=True)
    zero = F(0)
    if form == "int4" and rule.endswith("asym"):
        low = np.minimum(w.min(1, keepdims=True), F(0))
        scale = np.maximum(w.max(1, keepdims=True), F(0)) / F(15) - low / F(15)
        zero = np.clip(np.rint(F(-8) - low / scale), -8, 7)
    else:
        scale = top / F({"int4": 7.5, "int8": 127, "fp8": 448}[form])
    scale = np.where(scale > 0, np.maximum(stored(scale, dtype), F(2.0**-24 if dtype == "F16" else 2.0**-126)), F(0))
    y = w * np.where(scale > 0, F(1) / np.where(scale > 0, scale, 1), F(0))
    if form == "fp8":
        code = e4m3(np.clip(y, -448, 448))
    else:
        least, most = (-8, 7) if form == "int4" else (-127, 127)
        code = np.clip(np.rint(y), least - zero, most - zero).astype(F)
    return code * scale


def squares(w, v):
    return np.square(w.astype(np.float64) - v).sum(1)


def best(w, dtype):
    """The least squared error of many scales, without a zero point."""
    top, least = np.abs(w).max(1, keepdims=True), np.inf
    for f in np.concatenate([np.linspace(4, 16, 200), -np.linspace(4, 16, 200)]):
        s = stored(top / F(f), dtype)
        s = np.where(s == 0, F(1), s)
        v = np.clip(np.rint(w / s), -8, 7) * s
        least = np.minimum(least, squares(w, v))
    return least


def main(model, out, form, group, rule, dtype="BF16"):
    base = mkst.load(os.path.join(model, "model.safetensors"))
    rows = [x.rstrip("\n").split("\t") for x in sys.stdin]
    assert rows.pop(0) == ["tensor", "form", "relative_rms", "max_error"], rows
    table = {r[0]: r[1:] for r in rows}
    got = packed_ref.dequantized(out)[1]
    packed = [x for x in base if "_proj" in x]
    assert sorted(table) == sorted(packed) and len(packed) > 10
    for name, t in base.items():
        if name not in packed:
            assert got[name] == t, name
            continue
        w = mkst.values(*t).astype(F)
        g = w.shape[1] if group == "0" else int(group)
        w = w.reshape(-1, g)
        v = mkst.values(*got[name]).astype(F).reshape(-1, g)
        want = by_formula(w, form, rule, dtype)
        if rule in ("absmax", "asym"):
            assert np.array_equal(v, want), (name, np.abs(v - want).max())
        else:
            old, new = squares(w, want), squares(w, v)
            most = .9 if rule == "lsq" else .97
            assert (new <= old * (1 + 1e-5)).all(), name
            assert new.sum() < most * old.sum(), (name, new.sum() / old.sum())
            if rule == "lsq":
                assert new.sum() < 1.03 * best(w, dtype).sum(), name
        said = table[name]
        rms = np.sqrt(squares(w, v).sum() / np.square(w, dtype=float).sum())
        assert said[0] == form and abs(float(said[1]) - rms) < 2e-6, (said, rms)
        assert abs(float(said[2]) - np.abs(w - v).max()) < 1e-5 * rms, said
    print(len(packed))


if __name__ == "__main__":
    main(*sys.argv[1:])
