# SPDX-License-Identifier: ISC
# Numbers at the edges of their types.  Files are made by test/ref/mkst.py;
# expectations are numpy's, or Python's exact integers.
load helpers

@test "stats: numbers whose squares are too large for a double" {
    py -c 'import numpy as np, mkst
mkst.save("a", {"x": np.full(70000, 1e200), "y": np.full(3, -1.7e308),
    "z": np.array([1e200, 3e200])})'
    run -0 st-inspect stats a
    [ "$(cut -f8,9 <<<"${lines[1]}")" = "$(printf '1e+200\t0')" ]
    [ "$(cut -f8,9 <<<"${lines[2]}")" = "$(printf -- '-1.7e+308\t0')" ]
    [ "$(cut -f8,9 <<<"${lines[3]}")" = "$(printf '2e+200\tinf')" ] # as np.std
}

@test "diff: an infinity is only as near to itself, whatever the tolerance" {
    py - <<'END'
import numpy as np, mkst
x = np.array([np.inf, -np.inf, np.inf, 3], "<f4")
y = np.array([np.inf, 5, -np.inf, np.inf], "<f4")
assert np.isclose(x, y, atol=1, rtol=0.5).sum() == 1
mkst.save("x", {"t": x})
mkst.save("y", {"t": y})
END
    run -1 st-inspect diff --atol 1 --rtol 0.5 x y
    [ "$(cut -f1,4 <<<"${lines[1]}")" = "$(printf 'values\t3')" ]
    run -1 st-inspect diff --atol 1 --rtol 0.5 y x
    [ "$(cut -f1,4 <<<"${lines[1]}")" = "$(printf 'values\t3')" ]
}

@test "diff: numbers whose squares leave a double" {
    py - <<'END'
import numpy as np, mkst
a = {"tiny": [1e-200, 3e-200], "huge": [1e200, 1], "small": [1e-160, 5e-160], "mixed": [1e200, 1e-200],
     "zero": [0, 0], "one": [1, 2], "gone": [1e4, 2e4], "near": [1e4, 1e-170]}
b = {"tiny": [2e-200, 3e-200], "huge": [2e200, 1], "small": [1e-160, 4e-160], "mixed": [1e200, 2e-200],
     "zero": [0, 1e-300], "one": [1, 2.5], "gone": [0, 0], "near": [1e4, 2e-170]}
for name, x in (("x", a), ("y", b)):
    mkst.save(name, {k: np.array(v, "<f8") for k, v in x.items()})
END
    st-inspect diff x y >got || [ $? = 1 ]
    py - <<'END'
import math
got = {}
head, *rows = (l.rstrip("\n").split("\t") for l in open("got"))
for r in rows:
    r = dict(zip(head, r))
    got[r["name"]] = float(r["relative"]), float(r["cosine"])
# by hand: |a - b| / |a|
want = {"tiny": 1 / math.sqrt(10), "huge": 1, "small": 1 / math.sqrt(26), "one": 0.5 / math.sqrt(5)}
for k, v in want.items():
    assert abs(got[k][0] / v - 1) < 1e-5, (k, got[k], v)
assert abs(got["tiny"][1] - 11 / math.sqrt(10 * 13)) < 1e-5
assert got["gone"][0] == got["near"][1] == 1 and got["near"][0] < 1e-100, got
assert math.isinf(got["zero"][0]) and got["mixed"][0] < 1e-300, got
END
}

@test "cat: --dtype f32 rounds 64-bit integers once" {
    py - <<'END'
import subprocess, numpy as np, mkst
def nearest(v):  # exactly: Python's integers; v > 0
    shift = max(v.bit_length() - 24, 0)
    q, r = v >> shift, v & ((1 << shift) - 1)
    half = (1 << shift) >> 1
    q += r > half or (r == half and r > 0 and q & 1)
    return np.float32(q) * np.float32(2.0 ** shift)
v = [1, 2**24 + 1, 2**60 + 2**36, 2**60 + 2**36 + 1, 2**60 + 2**36 - 1,
     2**62 + 3 * 2**38 - 1, 2**62 + 3 * 2**38]
mkst.save("x", {"i": np.array(v + [-u for u in v], "<i8"),
                "u": np.array(v + [2**63 + 2**39 + 1, 2**64 - 1], "<u8")})
for name, want in (
        ("i", [nearest(u) for u in v] + [-nearest(u) for u in v]),
        ("u", [nearest(u) for u in v + [2**63 + 2**39 + 1, 2**64 - 1]])):
    subprocess.check_call(["st-inspect", "cat", "--dtype", "f32", "-fo", "x.npy", "x", name])
    got = np.load("x.npy")
    assert got.dtype == np.dtype("<f4") and (got == np.array(want)).all(), (got, want)
END
}

@test "diff: a name with a NUL in it has its partner" {
    py - <<'END'
import mkst
t = {"a": ("U8", [1], b"1"), "a\0b": ("U8", [1], b"2"), "a\0c": ("U8", [1], b"3")}
mkst.save("x", t)
mkst.save("y", {**t, "a\0c": ("U8", [1], b"4")})
END
    run -0 st-inspect diff x x
    run -1 st-inspect diff x y
    [ "${#lines[@]}" -eq 2 ]
    [ "${lines[1]}" = "$(printf 'values\tU8\t[1]\t1\t1\t0.0196078\t1\t-\ta\\x00c')" ]
}


@test "stats, diff: each 8-bit float's numbers are its format's" {
    cat >f8.py <<'END'
import json, subprocess, numpy as np, mkst

def values(n_mantissa, bias, kind):
    u = np.arange(256)
    one = 1 << n_mantissa
    e, m = (u & 127) // one, u % one
    v = np.where(e == 0, m / one * 2.0 ** (1 - bias), (1 + m / one) * 2.0 ** (e - bias))
    v = np.where(u & 128, -v, v)
    top = e == 127 // one
    if kind == "ieee":
        v[top] = np.where(m[top] > 0, np.nan, np.copysign(np.inf, v[top]))
    elif kind == "fn":
        v[top & (m == one - 1)] = np.nan
    else:  # fnuz: one NaN, where -0 would be
        v[128] = np.nan
    return v

types = {"F8_E5M2": values(2, 15, "ieee"), "F8_E4M3": values(3, 7, "fn"),
         "F8_E5M2FNUZ": values(2, 16, "fnuz"), "F8_E4M3FNUZ": values(3, 8, "fnuz"),
         "F8_E8M0": np.append(2.0 ** np.arange(-127, 128), np.nan)}
r = np.random.default_rng(1)
a, b = {}, {}
for t, v in types.items():
    finite = np.flatnonzero(np.isfinite(v))
    for n in (300, 5000, 20000):  # counted and sorted
        x = np.append(np.arange(256), r.integers(0, 256, n - 256)).astype("u1")
        y = np.where(r.random(n) < 0.02, r.choice(finite, n), x).astype("u1")
        y = np.where(np.isfinite(v[x]), y, x)
        a[t, n], b[t, n] = x, y
for file, k in (("x", a), ("y", b)):
    mkst.save(file, {t + " %d" % n: (t, [n], u.tobytes()) for (t, n), u in k.items()})

def said(*args):
    out = subprocess.run(("st-inspect",) + args, stdout=subprocess.PIPE).stdout
    j = json.loads(out)
    return j, [(t, types[t["name"].split()[0]], (t["name"].split()[0], int(t["name"].split()[1])))
               for t in j["tensors"]]

j, rows = said("stats", "--json", "--hist", "x")
assert len(rows) == 15
for s, v, k in rows:
    x = v[a[k]]
    f = x[np.isfinite(x)]
    assert (s["n_nan"], s["n_inf"], s["n_zero"]) == (np.isnan(x).sum(), np.isinf(x).sum(), (x == 0).sum()), s
    assert (s["min"], s["max"]) == (f.min(), f.max()), s
    assert abs(s["mean"] - f.mean()) <= 1e-13 * abs(f).max(), s
    assert abs(s["std"] - f.std()) <= 1e-12 * abs(f).max(), s
    assert np.allclose(s["quantiles"], np.quantile(f, j["quantiles"]), rtol=1e-14, atol=0), s
    assert sum(s["histogram"]["counts"]) == len(f), s
j, rows = said("diff", "--json", "x", "y")
assert len(rows) == 15
for s, v, k in rows:
    ok = np.isfinite(v[a[k]])
    x, y = v[a[k]][ok], v[b[k]][ok]
    d = x - y
    place = {u: i for i, u in enumerate(np.unique(v[np.isfinite(v)]))}
    far = max(abs(place[p] - place[q]) for p, q in zip(x, y))
    assert (s["n_differ"], s["max_abs"], s["max_ulp"]) == ((d != 0).sum(), abs(d).max(), far), (s, far)
    assert np.isclose(s["relative"], np.linalg.norm(d) / np.linalg.norm(x), rtol=1e-9), s
    assert np.isclose(s["cosine"], x @ y / np.linalg.norm(x) / np.linalg.norm(y), rtol=1e-9), s
END
    py f8.py
}

@test "stats --svg: a background, ticks on both axes, and all text inside the picture" {
    py -c 'import mkst, numpy as np
r = np.random.default_rng(0)
mkst.save("a.safetensors", {"x": r.normal(size=2000000).astype("f4"), "y" * 80: np.array([-1.5e-7, 2], "f4"),
                            "z": r.normal(size=3000).astype("f8") * 1e300, "one": np.ones(1, "f4")})'
    st-inspect stats --svg p.svg --bins 3 a.safetensors >/dev/null
    "$PYTHON" "$ROOT/test/ref/svg.py" p.svg 3 # "one" has two counts, 0 and 1
    grep -q '>a.safetensors: elements by value, of 4 tensors in 3 bins</text>' p.svg
}
