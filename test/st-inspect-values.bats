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

