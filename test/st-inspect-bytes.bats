# SPDX-License-Identifier: ISC
# st-inspect hash, cat, diff: what is in the tensors.  Files are made by
# test/ref/mkst.py, which shares nothing with our reader; expectations are
# numpy's, or sha256sum's.
load helpers

@test "hash: sha256 is sha256sum's, xxh3 of no bytes is the published one" {
    py - <<'END' >expected
import hashlib, numpy as np, mkst
t = {"b": np.arange(3000000, dtype="<f4"), "a.10": ("F4", [2], b"x"),
     "a.9": ("U8", [0], b"")}
mkst.save("a.safetensors", t)
for n in ("a.9", "a.10", "b"):
    print(hashlib.sha256(mkst.entry(t[n])[2]).hexdigest(), n, sep="\t")
END
    st-inspect hash --sha256 a.safetensors >got
    [ "$(sed -n 2p got | cut -f2)" = "$(sha256sum a.safetensors | cut -d' ' -f1)" ]
    diff expected <(tail -n +3 got | cut -f2,5)
    # xxHash's own test vector: XXH3_128bits of an empty input, seed 0
    run -0 bash -c "st-inspect hash -t a.9 a.safetensors | tail -n 1"
    [ "$output" = "$(printf 'xxh3\t99aa06d3014798d86001c324468d497f\t0\ta.safetensors\ta.9')" ]
    if command -v xxhsum; then
        [ "$(st-inspect hash --whole a.safetensors | sed -n 2p | cut -f2)" = \
            "$(xxhsum -H2 a.safetensors | cut -d' ' -f1)" ]
    fi
    diff <(st-inspect hash a.safetensors -j1) <(st-inspect hash a.safetensors -j3)
    diff <(st-inspect hash a.safetensors | tail -n +3) \
        <(st-inspect hash -t '*' a.safetensors | tail -n +2)
    st-inspect hash --json a.safetensors | py -m json.tool >/dev/null
}

@test "hash: --check finds the tensor that changed" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {
        "x\ny": np.arange(10), "z": np.arange(10), "\u202e\x01": np.arange(3)})'
    st-inspect hash --sha256 a.safetensors >list
    run -0 st-inspect hash --check list
    [ "${lines[0]}" = "$(printf 'result\tfile\ttensor')" ]
    [ "$(cut -f1 <<<"$output" | sort | uniq -c | tr -s ' ')" = "$(printf ' 4 ok\n 1 result')" ]
    py -c 'f = open("a.safetensors", "r+b"); f.seek(-30, 2); f.write(b"!")'
    run -1 st-inspect hash -q --check - <list
    [ "$output" = "$(printf 'result\tfile\ttensor\ndiffers\ta.safetensors\t\ndiffers\ta.safetensors\tz')" ]
    run -1 st-inspect hash --json --check list
    py -m json.tool <<<"$output" >/dev/null
}

@test "hash: --check of a tensor without a name" {
    py -c 'import mkst, numpy as np
mkst.save("a", {"": np.arange(3.0), "b": np.arange(2.0)})'
    st-inspect hash a >list
    [ "$(st-inspect hash --check list | grep -c ^ok)" = 3 ]
    sed "/\t24\t/s/^xxh3\t[0-9a-f]*/xxh3\t$(printf %032d 7)/" list >other
    run -1 st-inspect hash --check other
    [ "$(grep -c ^ok <<<"$output")" = 2 ]
}

@test "hash: --check says which files differ or cannot be read, and refuses other lines" {
    make_layers a.safetensors
    make_layers b.safetensors
    st-inspect hash --whole --sha256 a.safetensors b.safetensors >list
    run -0 st-inspect hash --check list
    [ "${lines[2]}" = "$(printf 'ok\tb.safetensors\t')" ]
    [ "$(sed -n 2p list | cut -f2)" = "$(sha256sum a.safetensors | cut -d' ' -f1)" ]
    py -c 'f = open("b.safetensors", "r+b"); f.seek(-1, 2); f.write(b"!")'
    run -1 st-inspect hash --check list
    [ "${lines[2]}" = "$(printf 'differs\tb.safetensors\t')" ]
    echo more >>b.safetensors
    run -1 st-inspect hash -q --check list
    [[ $output == *"$(printf 'unreadable\tb.safetensors\t')" ]]
    rm b.safetensors
    run -1 --separate-stderr st-inspect hash --check list
    [ "${lines[2]}" = "$(printf 'unreadable\tb.safetensors\t')" ]
    [ "$stderr" = "st-inspect: b.safetensors: No such file or directory" ]
    sha256sum a.safetensors >sums
    run -65 st-inspect hash --check sums
    [ "$output" = "st-inspect: sums: line 1 is not a digest of st-inspect hash (sha256sum -c and xxhsum -c check their own)" ]
}

@test "hash, meta: a name mistyped is told before the others' answers are lost" {
    make_layers a.safetensors
    for verb in hash meta list stats; do
        run -66 --separate-stderr timeout 20 st-inspect $verb /dev/zero a.safetensors nothing
        [ "$stderr" = "st-inspect: nothing: No such file or directory" ]
    done
    run -2 st-inspect stats --bins 5 a.safetensors
    [ "${lines[0]}" = "st-inspect: --bins is for --hist, --svg and --plot" ]
}

@test "hash: --check reads the names of files that hash escapes" {
    for name in 'back\slash' $'new\nline' $'a\ttab'; do
        make_layers "$name.safetensors"
    done
    st-inspect hash --whole -- back* new* a* >list
    run -0 st-inspect hash --check list
    [ "${lines[1]}" = "$(printf 'ok\tback\\\\slash.safetensors\t')" ]
    [ "${lines[2]}" = "$(printf 'ok\tnew\\nline.safetensors\t')" ]
    [ "${lines[3]}" = "$(printf 'ok\ta\\ttab.safetensors\t')" ]
}

@test "hash: the name of a hub cache's blob is verified" {
    make_layers a.safetensors
    mkdir -p blobs snapshots/main
    sum=$(sha256sum a.safetensors | cut -d' ' -f1)
    mv a.safetensors "blobs/$sum"
    ln -s "../../blobs/$sum" snapshots/main/model.safetensors
    run -0 st-inspect hash --sha256 snapshots/main
    py -c 'import sys; f = open(sys.argv[1], "r+b"); f.seek(-1, 2); f.write(b"!")' "blobs/$sum"
    run -1 --separate-stderr st-inspect hash --sha256 snapshots/main
    now=$(sha256sum "blobs/$sum" | cut -d' ' -f1)
    [ "$stderr" = "st-inspect: snapshots/main/model.safetensors: is $now, but the hub cache calls it $sum" ]
}

@test "cat: the bytes are numpy.save's, and --slice is numpy's" {
    py - <<'END'
import io, subprocess, numpy as np, mkst
r = np.random.default_rng(3)
t = {"x": r.standard_normal((7, 5, 6)).astype("<f4"),
     "i": r.integers(-9, 9, (200, 700)), "s": np.array(2.5), "b": r.random(9) < 0.5,
     "e": np.zeros((0, 3), "<u2"), "c": np.ones((2, 2), "<c8"),
     "wide": r.integers(0, 99, (3, 400000), "<u2")}
mkst.save("a.safetensors", t)
def want(a):
    f = io.BytesIO()
    np.save(f, np.ascontiguousarray(a) if a.ndim else np.asarray(a))
    return f.getvalue()
def got(*args):
    return subprocess.run(["st-inspect", "cat", "a.safetensors", *args],
                          check=True, stdout=subprocess.PIPE).stdout
for name, a in t.items():
    assert got(name) == want(a), name
    assert got("--raw", name) == np.ascontiguousarray(a).tobytes(), name
for name, text in [("x", s) for s in (
        "0:4,:,3", "-1", "::2", "::-1,1:4,::-2", "...,0", "2,...,1:3", "5:2",
        "-3:,-2:,-1:", " 1 , : , 2 : 5 ", "100:,0", "6,4,5", ":,4:0:-2", "...",
        "0,:100", "-100:3,-1,:-1", "2,", "::2,1 ,", "...,")] + [
        ("i", "3:190:7"), ("i", "::3,::5"), ("i", "-1,600:"), ("i", "20:40"),
        ("wide", ":,5:399999"), ("wide", "1:"), ("wide", "::-1,::2"),
        ("e", ":,1"), ("b", "::-3"), ("c", "1,::-1")]:
    index = eval("np.s_[%s]" % text)
    w = t[name][index]
    assert got(name, "--slice", text) == want(w), (name, text)
    assert got(name, "--slice=" + text, "--raw") == np.ascontiguousarray(w).tobytes()
END
}

@test "cat: an index that numpy refuses is a usage error" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {"x": np.zeros((4, 5))})'
    for s in , 0,, 4 -5 0,0,0 1:2:0 a '' ...,... '0 1' 1:2:3:4 ,0 99999999999999999999; do
        run -2 st-inspect cat a.safetensors x --slice "$s"
        [[ ${lines[0]} == 'st-inspect: --slice: '* ]]
        [ "${lines[1]}" = "Try 'st-inspect --help'" ]
    done
    py -c 'import mkst, numpy as np; mkst.save("b.safetensors", {"x": np.array(1)})'
    for s in 0... : 0 '' ...0; do
        run -2 st-inspect cat b.safetensors x --slice "$s"
    done
    run -2 st-inspect cat a.safetensors x --slice 4
    [ "${lines[0]}" = 'st-inspect: --slice: index 4 is out of range for axis 0 of size 4' ]
}

@test "cat: what .npy has no name for needs --dtype or --raw" {
    py -c 'import mkst; mkst.save("a.safetensors", {
        "w": mkst.bf16([[1.5, -2.25], [float("inf"), 3e38]]),
        "f8": ("F8_E4M3", [3], b"\x38\xb8\x7e"), "f4": ("F4", [2], b"\x12"),
        "c": ("C64", [1], b"12345678")})'
    run -2 --separate-stderr st-inspect cat a.safetensors w
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "st-inspect: a.safetensors: w is BF16, which .npy has no name for (--dtype f32 widens it exactly, --raw writes the bytes)" ]
    st-inspect cat a.safetensors w --dtype f32 >w.npy
    st-inspect cat a.safetensors w --dtype f64 --slice :,1 >w1.npy
    st-inspect cat a.safetensors f8 --dtype f32 >f8.npy
    py -c 'import numpy as np
w = np.load("w.npy"); assert w.dtype == np.float32 and w.shape == (2, 2)
assert (w == np.array([[1.5, -2.25], [np.inf, np.float32(2.9976e38)]])).ravel()[:3].all()
w = np.load("w1.npy"); assert w.dtype == np.float64 and w[0] == -2.25
assert np.load("f8.npy").tolist() == [1, -1, 448]'
    run -2 st-inspect cat a.safetensors f4
    [ "${lines[0]}" = "st-inspect: a.safetensors: f4 is F4, which .npy has no name for (--raw writes the bytes)" ]
    [ "$(st-inspect cat --raw a.safetensors f4)" = "$(printf '\x12')" ]
    run -2 st-inspect cat --raw --slice 0 a.safetensors f4
    [ "${lines[0]}" = "st-inspect: a.safetensors: f4 is F4, of less than a byte: --slice cannot cut it" ]
    run -2 st-inspect cat --json a.safetensors c
    [ "${lines[0]}" = "st-inspect: a.safetensors: c is C64, which only .npy or --raw can hold" ]
    py -c 'import numpy as np, subprocess
subprocess.check_call(["st-inspect", "cat", "-oc.npy", "a.safetensors", "c"])
assert np.load("c.npy").tobytes() == b"12345678"'
}

@test "cat: --json nests as numpy's tolist()" {
    py - <<'END'
import json, subprocess, numpy as np, mkst
t = {"x": np.arange(24, dtype="<f4").reshape(2, 3, 4) / 7, "s": np.float64(0.1),
     "i": np.array([2**63 - 1, -2**63]), "u": np.array([2**64 - 1], "<u8"),
     "b": np.array([[True], [False]]), "e": np.zeros((0, 2)), "z": np.array([-0.0, 0.0], "<f2")}
mkst.save("a.safetensors", t)
for name, a in t.items():
    j = json.loads(subprocess.run(["st-inspect", "cat", "--json", "a.safetensors", name],
                                  check=True, stdout=subprocess.PIPE).stdout)
    assert j["data"] == a.tolist() and j["shape"] == list(a.shape), (name, j)
    assert name != "z" or np.signbit(np.array(j["data"], float)).tolist() == [True, False], j
j = json.loads(subprocess.run(
    ["st-inspect", "cat", "--json", "a.safetensors", "x", "--slice", "1,::2,-1"],
    check=True, stdout=subprocess.PIPE).stdout)
assert j["data"] == t["x"][1, ::2, -1].tolist() and j["shape"] == [2]
END
}

@test "cat: a name can be typed as list prints it; a wrong one is 66" {
    py -c 'import mkst; mkst.save("a.safetensors", {
        "line\nbreak\x00": ("U8", [2], b"ok"), "model.norm.weight": ("U8", [1], b"x")})'
    run -0 st-inspect cat --raw a.safetensors 'line\nbreak\x00'
    [ "$output" = ok ]
    run -66 st-inspect cat a.safetensors norm
    [ "$output" = 'st-inspect: a.safetensors: there is no tensor "norm" (did you mean "model.norm.weight"?)' ]
    run -66 st-inspect cat "$DEMO" norm.weigh
    [ "$output" = "st-inspect: $DEMO: there is no tensor \"norm.weigh\" (did you mean \"model.norm.weight\"?)" ]
    run -66 st-inspect cat a.safetensors 'x'
    run -2 st-inspect cat a.safetensors
    [ "${lines[0]}" = "st-inspect: cat takes FILE TENSOR (found 1)" ]
}

@test "cat: of two names, one as list prints the other, the printed one counts" {
    py -c 'import mkst; mkst.save("a.safetensors", {
        "a\nb": ("U8", [1], b"1"), r"a\nb": ("U8", [1], b"2")})'
    [ "$(st-inspect cat --raw a.safetensors 'a\nb')" = 1 ]
    [ "$(st-inspect cat --raw a.safetensors 'a\\nb')" = 2 ]
    py -c 'import mkst; mkst.save("b.safetensors", {r"a\nb": ("U8", [1], b"2")})'
    [ "$(st-inspect cat --raw b.safetensors 'a\nb')" = 2 ]
}

@test "cat: --json has numbers as they are, and refuses --dtype" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {"x": np.zeros(1)})'
    run -2 st-inspect cat --json --dtype f32 a.safetensors x
    [ "${lines[0]}" = "st-inspect: --json gives the numbers as they are, without --dtype" ]
}

@test "cat: --slice of short runs takes no more memory of a large tensor" {
    not_sanitized
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {
        "x": np.zeros((3500, 3500), "<f4")})'
    for s in ::2,::2 :,3 ::-1,::-3; do
        [ "$(peak st-inspect cat --raw --slice "$s" a.safetensors x)" -lt 32768 ]
    done
}

@test "cat: -o writes whole files and replaces none; a terminal gets no binary" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {"x": np.arange(3)})'
    run -0 st-inspect cat a.safetensors x -o x.npy
    py -c 'import numpy as np; assert np.load("x.npy").tolist() == [0, 1, 2]'
    run -73 st-inspect cat a.safetensors x -o x.npy
    [ "$output" = "st-inspect: x.npy: exists already (--force replaces it)" ]
    run -0 st-inspect cat a.safetensors x -f -o x.npy
    run -2 "$PYTHON" -c 'import os, pty, sys
sys.exit(os.WEXITSTATUS(pty.spawn(["st-inspect", "cat", "a.safetensors", "x"])))'
    [[ $output == *terminal* ]]
    run -2 "$PYTHON" -c 'import os, pty, sys
sys.exit(os.WEXITSTATUS(pty.spawn(["st-inspect", "cat", "--raw", "-o", "/dev/tty", "a.safetensors", "x"])))'
    [ "${lines[0]%?}" = "st-inspect: binary data is not written to a terminal, /dev/tty" ]
    run -0 st-inspect list a.safetensors -o list.tsv
    [ -z "$output" ]
    [ "$(cat list.tsv)" = "$(st-inspect a.safetensors)" ]
    [ -z "$(find . -name '.*tmp*')" ]
}

@test "diff: the same is silent, whatever the order in the files" {
    make_layers a.safetensors
    py -c 'import mkst; t = mkst.load("a.safetensors")
mkst.save("b.safetensors", dict(reversed(t.items())))'
    run -0 --separate-stderr st-inspect diff a.safetensors b.safetensors
    [ -z "$output$stderr" ]
    run -0 --separate-stderr st-inspect -v diff a.safetensors b.safetensors
    [ "$stderr" = "st-inspect: tensors: 25 the same, 0 not" ]
    run -0 bash -c 'st-inspect diff --all a.safetensors b.safetensors | cut -f1 | sort | uniq -c | tr -s " "'
    [ "$output" = "$(printf ' 1 result\n 25 same')" ]
}

@test "diff: structure" {
    py - <<'END'
import numpy as np, mkst
x = np.arange(6, dtype="<f4")
mkst.save("a.safetensors", {"gone": x, "shape": x.reshape(2, 3), "same": x,
                            "dtype": mkst.bf16(x), "f4": ("F4", [2], b"x"),
                            "f4.2": ("F4", [2], b"x"), "zero": x * 0})
mkst.save("b.safetensors", {"new\x1b": x, "shape": x.reshape(3, 2), "same": x,
                            "dtype": x, "f4": ("F4", [2], b"y"),
                            "f4.2": ("F4", [2], b"x"), "zero": x * -0.0})
END
    run -1 st-inspect diff a.safetensors b.safetensors
    [ "${lines[0]}" = "$(printf 'result\tdtype\tshape\tdiffer\tmax_abs\trelative\tcosine\tmax_ulp\tname')" ]
    [ "$(tail -n +2 <<<"$output")" = "$(printf '%s\n' \
        'dtype	BF16/F32	[6]	0	0	0	1	-	dtype' \
        'bytes	F4	[2]	-	-	-	-	-	f4' \
        'only_a	F32	[6]	-	-	-	-	-	gone' \
        'shape	F32	[2,3]/[3,2]	-	-	-	-	-	shape' \
        'bytes	F32	[6]	0	0	0	nan	0	zero' \
        'only_b	F32	[6]	-	-	-	-	-	new\x1b')" ]
    run -0 st-inspect diff --ignore-dtype a.safetensors b.safetensors -t dtype -t same
    run -1 st-inspect diff --json a.safetensors b.safetensors
    py -c 'import json, sys; j = json.loads(sys.argv[1])
assert j["n_same"] == 2 and j["n_different"] == 6
assert [r["result"] for r in j["tensors"]][2:4] == ["only_a", "shape"]
assert j["tensors"][2]["b"] is None and j["tensors"][3]["b"]["shape"] == [3, 2]' "$output"
}

@test "diff: values against numpy" {
    py - <<'END'
import json, subprocess, numpy as np, mkst
r = np.random.default_rng(4)
a = {"f4": r.standard_normal((123, 457)).astype("<f4"), "f8": r.standard_normal(40000),
     "f2": r.standard_normal(99).astype("<f2"), "i4": r.integers(-9, 9, 500, "<i4")}
b = {k: v.copy() for k, v in a.items()}
b["f4"][5, 7:300] += np.float32(1e-3)
b["f4"][6, 0] = np.nextafter(np.nextafter(a["f4"][6, 0], np.float32(9)), np.float32(9))
b["f8"][39999] = -b["f8"][39999]
b["f2"] *= np.float16(1.5)
b["i4"][7] += 5
mkst.save("a.safetensors", {**a, "bf": mkst.bf16(a["f4"])})
mkst.save("b.safetensors", {**b, "bf": mkst.bf16(b["f4"])})
def order(x):
    i = x.view("i%d" % x.itemsize).astype(object)
    m = 1 << (8 * x.itemsize - 1)
    return [int(v) if v >= 0 else -int(v + m) for v in i.ravel()]
def run(*args):
    p = subprocess.run(["st-inspect", "diff", "--json", "a.safetensors", *args],
                       stdout=subprocess.PIPE)
    return p.returncode, {t["name"]: t for t in json.loads(p.stdout)["tensors"]}
status, rows = run("b.safetensors")
assert status == 1 and len(rows) == 5
ta, tb = mkst.load("a.safetensors"), mkst.load("b.safetensors")
for name, row in rows.items():
    if name == "bf":
        x, y = mkst.from_bf16(ta[name][2]), mkst.from_bf16(tb[name][2])
        ulps = [p - q for p, q in zip(order(np.frombuffer(ta[name][2], "<i2")),
                                      order(np.frombuffer(tb[name][2], "<i2")))]
    else:
        x, y = a[name].astype(float).ravel(), b[name].astype(float).ravel()
        ulps = [p - q for p, q in zip(order(a[name]), order(b[name]))]
    assert row["result"] == "values" and row["n_differ"] == (x != y).sum(), row
    assert row["max_abs"] == np.abs(x - y).max(), row
    n = np.linalg.norm
    assert abs(row["relative"] - n(y - x) / n(x)) <= 1e-12 * row["relative"], row
    assert abs(row["cosine"] - x @ y / n(x) / n(y)) < 1e-12, row
    assert row.get("max_ulp", 0) == (0 if name == "i4" else max(map(abs, ulps))), row
    np.save("b.npy", np.float64(y).reshape(ta[name][1]))
    status, one = run("b.npy", "-t", name, "--ignore-dtype")
    assert status == 1 and one[name]["n_differ"] == row["n_differ"], one
    close = np.abs(x - y) <= 0.01 + 0.001 * np.abs(x)
    status, one = run("b.safetensors", "-t", name, "--atol", "0.01", "--rtol", "0.001")
    assert status == (0 if close.all() else 1), (name, one)
    assert not one or one[name]["n_differ"] == (~close).sum()
END
}

@test "diff: NaN in both is no difference, NaN in one is" {
    py - <<'END'
import numpy as np, mkst
x = np.array([np.nan, 1, np.inf, 2], "<f4")
y, z = x.copy(), x.copy()
y.view("<u4")[0] ^= 1  # another NaN
z[1] = np.nan
for n, v in ("x", x), ("y", y), ("z", z):
    mkst.save(n, {"t": v})
END
    run -0 st-inspect diff x x
    run -1 st-inspect diff x y
    [ "${lines[1]}" = "$(printf 'bytes\tF32\t[4]\t0\t0\t0\t1\t0\tt')" ]
    run -0 st-inspect diff x y --rtol 1e-9
    run -1 st-inspect diff x z
    [ "${lines[1]}" = "$(printf 'values\tF32\t[4]\t1\tnan\tnan\tnan\t0\tt')" ]
}

@test "diff: an array stands against one tensor, chosen by -t" {
    make_layers a.safetensors
    py -c 'import numpy as np
np.save("w.npy", np.ones(4, np.float32)); np.save("v.npy", np.arange(4, dtype="<f4"))'
    run -0 st-inspect diff a.safetensors w.npy -t model.norm.weight
    run -1 st-inspect diff v.npy a.safetensors -t model.norm.weight
    run -1 st-inspect diff v.npy w.npy
    run -2 st-inspect diff a.safetensors w.npy
    [ "${lines[0]}" = "st-inspect: diff: a.safetensors has 25 tensors for one array: select one with --tensor" ]
    py -c 'import struct, numpy as np # as long a header as is read
h = b"{\"descr\": \"<f4\", \"fortran_order\": False, \"shape\": (4,)}".ljust(65535) + b"\n"
open("long.npy", "wb").write(b"\x93NUMPY\2\0" + struct.pack("<I", 65536) + h + np.ones(4, "<f4").tobytes())'
    run -0 st-inspect diff w.npy long.npy
    head -c 130 w.npy >cut.npy
    run -65 st-inspect diff cut.npy w.npy
    [ "$output" = "st-inspect: cut.npy: has 2 bytes of data (expected 16 by its header)" ]
    cat w.npy cut.npy >more.npy
    run -65 st-inspect diff w.npy more.npy
    [ "$output" = "st-inspect: more.npy: has 146 bytes of data (expected 16 by its header)" ]
}
