# SPDX-License-Identifier: ISC
# Files are made by test/ref/mkst.py, which shares nothing with our reader;
# expectations are numpy's, Python's, sha256sum's, or the format's text.
load helpers

@test "list: every dtype of the format is named and sized" {
    py - <<'END' >expected
import mkst
t = {"t%02d" % i: (d, [2, 4], bytes(b)) for i, (d, b) in
     enumerate((d, b) for d, b in mkst.BITS.items())}
mkst.save("a.safetensors", t)
print("dtype\tshape\telements\tbytes\tname")
for n, (d, s, b) in t.items():
    print(d, "[2,4]", 8, mkst.BITS[d], n, sep="\t")
END
    run -0 st-inspect a.safetensors
    [ "$output" = "$(cat expected)" ]
}

@test "list: one row is one tensor whatever its name contains" {
    py - <<'END'
import mkst
names = ["a\nb", "tab\there", "\x1b[2Jclear", "back\\slash", "rtl\u202ex",
         "zero\x00byte", "plain name", "\u4e2d\u6587", "\u2028"]
mkst.save("a.safetensors", {n: ("U8", [0], b"") for n in names})
END
    run -0 bash -c 'st-inspect a.safetensors | tail -n +2 | cut -f5 | sort'
    [ "$output" = "$(printf '%s\n' '\x1b[2Jclear' '\u{2028}' 'a\nb' \
        'back\\slash' 'plain name' 'rtl\u{202e}x' 'tab\there' \
        'zero\x00byte' '中文' | sort)" ]
}

@test "list: layer 2 comes before layer 10" {
    make_layers a.safetensors
    run -0 bash -c 'st-inspect list a.safetensors | cut -f5 | grep up_proj'
    [ "${lines[2]}" = model.layers.2.mlp.up_proj.weight ]
    [ "${lines[10]}" = model.layers.10.mlp.up_proj.weight ]
}

@test "list: --fold joins what differs only in its numbers" {
    make_layers a.safetensors
    run -0 st-inspect --fold a.safetensors
    [ "${#lines[@]}" -eq 4 ]
    [ "${lines[1]}" = "$(printf 'BF16\t[4,2]\t12\t96\t192\tmodel.layers.{0..11}.mlp.up_proj.weight')" ]
    [ "${lines[3]}" = "$(printf 'F32\t[4]\t1\t4\t16\tmodel.norm.weight')" ]
}

@test "list: --fold keeps sets apart that are no product" {
    py - <<'END'
import mkst
t = {"l.%d.e.%d.w" % (i, j): ("U8", [1], b"x") for i in range(3)
     for j in range(4) if (i, j) != (1, 2)}
t["l.007.w"] = ("U8", [1], b"x")
mkst.save("a.safetensors", t)
END
    run -0 bash -c 'st-inspect --fold a.safetensors | cut -f3,6 | sort'
    [ "$output" = "$(printf '%s\n' '1	l.007.w' '3	l.1.e.{0..1,3}.w' \
        '8	l.{0,2}.e.{0..3}.w' 'count	name')" ]
}

@test "list: --json is what Python reads from the file" {
    make_layers a.safetensors
    st-inspect --json a.safetensors >a.json
    py - <<'END'
import json, os, mkst
j, t = json.load(open("a.json")), mkst.load("a.safetensors")
assert j["n_tensors"] == len(t) == len(j["tensors"])
assert j["nbytes"] == sum(len(b) for _, _, b in t.values())
assert j["files"][0]["size"] == os.path.getsize("a.safetensors")
whole = open("a.safetensors", "rb").read()
for r in j["tensors"]:
    dtype, shape, data = t[r["name"]]
    assert (r["dtype"], r["shape"], r["nbytes"]) == (dtype, shape, len(data))
    assert whole[r["offset"]:r["offset"] + r["nbytes"]] == data
    assert r["file"] == "a.safetensors"
END
}

# bats test_tags=long
@test "list: 100,000 tensors take less than 64 MiB" {
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    py - <<'END'
import mkst
mkst.save("a.safetensors", {"model.layers.%d.w" % i: ("U8", [1], b"x")
                            for i in range(100000)})
END
    # 256 MiB of addresses, so that the sanitizer's build may be left out
    not_sanitized "sanitizers reserve more"
    run -0 bash -c 'ulimit -v 262144; st-inspect -q a.safetensors | wc -l'
    [ "$output" -eq 100001 ]
    run -0 peak st-inspect a.safetensors
    [ "$output" -lt 65536 ]
}

@test "list: a glob that matches nothing is status 66" {
    make_layers a.safetensors
    run -0 bash -c "st-inspect a.safetensors -t '*.3.*' -t 'model.norm*' | wc -l"
    [ "$output" -eq 4 ]
    run -66 st-inspect a.safetensors -t 'nothing*'
    [ "$output" = 'st-inspect: a.safetensors: no tensor matches "nothing*"' ]
    run -66 st-inspect stats -t model.nrom.weight a.safetensors
    [ "$output" = 'st-inspect: a.safetensors: no tensor matches "model.nrom.weight" (did you mean "model.norm.weight"?)' ]
}

@test "a mistyped verb or option is refused with the one that it is near" {
    make_layers a.safetensors
    verbs='list, tree, stats, hash, verify, diff, cat, meta'
    run -2 --separate-stderr st-inspect lst a.safetensors
    [ "${stderr_lines[0]}" = "st-inspect: \"lst\" is neither a file nor a verb: $verbs (did you mean \"list\"?)" ]
    run -2 --separate-stderr st-inspect nothing a.safetensors # near none
    [ "${stderr_lines[0]}" = "st-inspect: \"nothing\" is neither a file nor a verb: $verbs" ]
    run -66 st-inspect ./nothing a.safetensors
    [ "$output" = "st-inspect: ./nothing: No such file or directory" ]
    cp a.safetensors lst
    st-inspect lst >by-name
    st-inspect list lst | cmp - by-name
    run -2 --separate-stderr st-inspect tree --depht 1 a.safetensors
    [ "${stderr_lines[0]}" = "st-inspect: there is no option --depht (did you mean --depth?)" ]
    run -2 --separate-stderr st-inspect --a a.safetensors
    [ "${stderr_lines[0]}" = "st-inspect: option --a is ambiguous: --all, --atol, --align" ]
}

@test "list: a glob is held against all of a name, with a NUL in it, too" {
    py -c 'import mkst; mkst.save("a.safetensors", {
        n: ("U8", [0], b"") for n in ("x", "x\0y", "y")})'
    for glob in x 'x*' '*y' 'x\x00y' 'x?x00y'; do
        st-inspect a.safetensors -t "$glob" | tail -n +2 | cut -f5 | paste -sd' '
    done >got
    printf '%s\n' x 'x x\x00y' 'x\x00y y' 'x\x00y' 'x\x00y' | diff - got
}

@test "list: a closed pipe ends it quietly, a full disk with 74" {
    make_layers a.safetensors
    run -0 --separate-stderr bash -c 'st-inspect a.safetensors | head -n 1'
    [ -z "$stderr" ]
    run -74 bash -c 'st-inspect a.safetensors >/dev/full'
    run -74 bash -c 'st-inspect stats --json a.safetensors >/dev/full'
    run -74 bash -c 'st-inspect cat --raw a.safetensors model.norm.weight >/dev/full'
}

@test "list: --align changes spaces only" {
    make_layers a.safetensors
    diff <(st-inspect a.safetensors | tr '\t' ' ') \
        <(st-inspect --align a.safetensors | sed 's/^ *//' | tr -s ' ')
}

@test "tree: modules add up their tensors" {
    make_layers a.safetensors
    run -0 st-inspect tree a.safetensors --depth 2
    [ "${lines[1]}" = "$(printf '196\t100.0\t400\t25\tBF16,F32\t.')" ]
    [ "${lines[3]}" = "$(printf '192\t98.0\t384\t24\tBF16\t    layers')" ]
    run -0 st-inspect tree a.safetensors --fold --depth 0
    [ "${lines[4]}" = "$(printf '192\t98.0\t384\t24\tBF16\t      {0..11}')" ]
    [ "${lines[6]}" = "$(printf '96\t49.0\t192\t12\tBF16\t          up_proj')" ]
    [ "${lines[9]}" = "$(printf '4\t2.0\t16\t1\tF32\t    norm')" ]
    st-inspect tree --json a.safetensors | py -c 'import json, sys
m = {r["module"]: r for r in json.load(sys.stdin)["modules"]}
assert m["model.layers"]["n_elements"] == 192
assert m[""]["dtypes"] == ["BF16", "F32"]'
}

@test "tree: a tensor with the name of a module is in its row" {
    py -c 'import mkst
mkst.save("a", {n: ("U8", [1], b"1") for n in ("a", "a-b", "a.x", "a.y", "a b.z")})'
    for fold in '' --fold; do
        # shellcheck disable=SC2086
        run -0 bash -c "st-inspect tree $fold a | cut -f4,6"
        [ "$output" = "$(printf '%s\t%s\n' tensors module 5 . 3 '  a' 1 '    x' \
            1 '    y' 1 '  a b' 1 '  a-b')" ]
    done
}

@test "tree: a tensor that is a module as well has its row" {
    py -c 'import mkst
w = "m.q_proj.weight"
mkst.save("a", {n: ("U8", [1], b"1") for n in (w, w + ".absmax", w + ".quant_map", "m.k_proj.weight")})'
    run -0 bash -c "st-inspect tree a --depth 0 | cut -f4,6"
    [ "$output" = "$(printf '%s\t%s\n' tensors module 4 . 4 '  m' 1 '    k_proj' \
        3 '    q_proj' 3 '      weight' 1 '        absmax' 1 '        quant_map')" ]
}

@test "meta: the strings of the header, escaped" {
    make_layers a.safetensors
    run -0 st-inspect meta a.safetensors
    [ "${lines[1]}" = "$(printf 'a.safetensors\tformat\tpt')" ]
    [ "${lines[2]}" = "$(printf 'a.safetensors\tnote\ta\\tb\\x1b[31m')" ]
    st-inspect meta --json a.safetensors | py -c 'import json, sys
assert json.load(sys.stdin)[0]["metadata"]["note"] == "a\tb\x1b[31m"'
}

@test "verify: says nothing of sound files, and names the others" {
    make_layers good.safetensors
    head -c 300 good.safetensors >short.safetensors
    printf '\377\377\0\0\0\0\0\0{}' >long.safetensors
    : >empty.safetensors
    run -0 --separate-stderr st-inspect verify good.safetensors good.safetensors
    [ -z "$output$stderr" ]
    run -1 --separate-stderr st-inspect verify good.safetensors \
        short.safetensors long.safetensors empty.safetensors
    [ -z "$stderr" ]
    [ "${#lines[@]}" -eq 4 ]
    [ "${lines[0]}" = "$(printf 'file\tproblem')" ]
    [ "${lines[1]%%	*}" = short.safetensors ]
    [ "${lines[2]}" = "$(printf 'long.safetensors\theader length 65535, but the file has 10 bytes')" ]
    [ "${lines[3]%%	*}" = empty.safetensors ]
    run -0 --separate-stderr st-inspect -v verify good.safetensors
    [ "$stderr" = "st-inspect: good.safetensors: sound, 25 tensors" ]
}

@test "verify: what is not there is 66, unless another one is bad" {
    printf 'x' >bad
    run -66 st-inspect verify nothere
    [ "${lines[1]}" = "$(printf 'nothere\tNo such file or directory')" ]
    run -1 st-inspect verify nothere bad
    run -1 st-inspect verify bad nothere
    run -1 st-inspect verify --json bad nothere
    py -c 'import json, sys
j = json.loads(sys.argv[1])
assert j["checked"] == 2 and [b["status"] for b in j["bad"]] == [65, 66]' "$output"
}

@test "bad input: each ends with one line and 65" {
    py - <<'END'
import json, mkst
bad = {
    "hole": ({"a": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}, b"xyz"),
    "overlap": ({"a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
                 "b": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}, b"xyz"),
    "size": ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"wxyz"),
    "dtype": ({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 1]}}, b"x"),
    "trailing": ({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, b"xyz"),
    "twice": (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
              b'"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b""),
    "float": (b'{"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}}', b"x"),
    "utf8": (b'{"\xff":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b""),
    "name\x1b[2J": (b"nonsense", b""),
}
for name, (head, data) in bad.items():
    mkst.save_raw(name + ".safetensors", head, data)
END
    for f in *.safetensors; do
        for verb in list stats hash tree meta; do
            run -65 --separate-stderr st-inspect $verb "$f"
            [ -z "$output" ]
            [ "${#stderr_lines[@]}" -eq 1 ]
            [[ $stderr == "st-inspect: "*.safetensors:* ]]
            [[ $stderr != *$'\x1b'* ]]
        done
    done
}

@test "bad input: other formats are named" {
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n' >lfs
    printf '<!DOCTYPE html><html></html>' >html
    printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0' >gguf
    printf 'PK\3\4aaaaaaaaaaaaaaaa' >zip
    printf '{"metadata":{"total_size":1},"weight_map":{}}' >index
    for f in lfs:git-lfs html:HTML gguf:GGUF zip:zip index:'name its directory'; do
        run -65 st-inspect "${f%%:*}"
        [[ $output == "st-inspect: ${f%%:*}: "*"${f##*:}"* ]]
    done
    run -66 st-inspect ./nothere
    [ "$output" = "st-inspect: ./nothere: No such file or directory" ]
}

@test "directories: shards are one model, and every fault names its file" {
    py - <<'END'
import json, os, numpy as np, mkst
os.mkdir("m")
a = {"x.0": np.zeros(3, np.float32), "x.2": np.ones(2, np.float32)}
b = {"x.1": np.zeros(5, np.int64), "x.10": np.ones(1, np.int64)}
mkst.save("m/one.safetensors", a)
mkst.save("m/two.safetensors", b)
w = {**{k: "one.safetensors" for k in a}, **{k: "two.safetensors" for k in b}}
def index(w, path="m"):
    os.makedirs(path, exist_ok=True)
    json.dump({"metadata": {"total_size": 68}, "weight_map": w},
              open(path + "/model.safetensors.index.json", "w"))
index(w)
index({**w, "x.0": "../m/one.safetensors"}, "traversal")
index({**w, "x.0": "gone.safetensors"}, "gone")
index({**w, "y": "one.safetensors"}, "absent")
for d in ("gone", "absent", "traversal"):
    mkst.save(d + "/one.safetensors", a)
    mkst.save(d + "/two.safetensors", b)
END
    run -0 --separate-stderr bash -c 'st-inspect -l m | cut -f6,7'
    [ "$output" = "$(printf '%s\t%s\n' file name m/one.safetensors x.0 \
        m/two.safetensors x.1 m/one.safetensors x.2 m/two.safetensors x.10)" ]
    [ -z "$stderr" ]
    run -65 st-inspect traversal
    [[ $output == *'../m/one.safetensors'* ]]
    run -65 st-inspect gone
    [[ $output == *gone.safetensors* && $output == *x.0* ]]
    run -65 st-inspect absent
    [[ $output == *one.safetensors* && $output == *'"y"'* ]]
    run -1 bash -c 'st-inspect verify m traversal gone absent | wc -l; exit ${PIPESTATUS[0]}'
    [ "$output" -eq 4 ]
    mkdir nothing
    run -66 st-inspect nothing
}

@test "stats: every number type against numpy in float64" {
    py - <<'END'
import numpy as np, mkst
r = np.random.default_rng(1)
odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3.5], np.float32)
t = {"bool": r.random(999) < 0.3, "empty": np.zeros((0, 3), np.float32),
     "bf16": mkst.bf16(r.standard_normal((300, 333)) * 0.02),
     "bf16.small": mkst.bf16(r.standard_normal(77)),
     "bf16.odd": mkst.bf16(np.tile(odd, 3)),
     "bf16.odd.large": mkst.bf16(np.tile(odd, 30000)),
     "bf16.nan": mkst.bf16([np.nan] * 3), "one": mkst.bf16([[-2.5]]),
     "f16": r.standard_normal(100001).astype("<f2"),
     "f32": (r.standard_normal((301, 999)) * 3 + 100).astype("<f4"),
     "f32.odd": np.tile(odd, 20001), "f32.small": np.append(odd, [-7, 1e9]).astype("<f4"),
     "f32.few": r.integers(-2, 3, 50000).astype("<f4"), "f64": r.standard_normal(70001) * 1e100,
     "scalar": np.float32(7)}
for k in "u1 i1 u2 i2 u4 i4".split():
    i = np.iinfo(k)
    t[k] = r.integers(i.min, i.max, 40000, "<" + k if k[1] > "1" else k,
                      endpoint=True)
t["i8"], t["u8"] = r.integers(-2**40, 2**40, 999), r.integers(0, 2**40, 999, "<u8")
mkst.save("a.safetensors", t)
END
    st-inspect stats --json --hist --bins 17 a.safetensors >a.json
    py - <<'END'
import json, numpy as np, mkst
j = json.load(open("a.json"))
t = mkst.load("a.safetensors")
dtypes = {v: k for k, v in mkst.NAMES.items()}
assert j["quantiles"] == [0.01, 0.25, 0.5, 0.75, 0.99]
assert len(j["tensors"]) == len(t)
for r in j["tensors"]:
    d, shape, data = t[r["name"]]
    x = mkst.from_bf16(data) if d == "BF16" else \
        np.frombuffer(data, dtypes[d]).astype(np.float64)
    f = x[np.isfinite(x)]
    assert r["n_elements"] == x.size, r
    assert r["n_nan"] == np.isnan(x).sum(), r
    assert r["n_inf"] == np.isinf(x).sum(), r
    assert r["n_zero"] == (x == 0).sum(), r
    if f.size == 0:
        assert r["min"] is r["mean"] is r["std"] is r["histogram"] is None
        continue
    assert (r["min"], r["max"]) == (f.min(), f.max()), r
    scale = np.abs(f).max()
    assert abs(r["mean"] - f.mean()) <= 1e-14 * scale, r
    assert abs(r["std"] - f.std()) <= 1e-13 * scale, r
    if mkst.BITS[d] <= 32:
        q = np.quantile(f, j["quantiles"])
        assert np.allclose(r["quantiles"], q, rtol=1e-14, atol=0), (r, q)
    h = r["histogram"]
    counts, edges = np.histogram(f, 17)
    assert h["counts"] == counts.tolist(), (r, counts)
    assert (h["from"], h["to"]) == (edges[0], edges[-1])
END
}

@test "stats: the numbers do not depend on -j" {
    py - <<'END'
import numpy as np, mkst
r = np.random.default_rng(2)
mkst.save("a.safetensors", {
    "large": r.standard_normal(1500001).astype("<f4"),
    "bf16": mkst.bf16(r.standard_normal(3000001)),
    **{"s%d" % i: r.standard_normal(1000 * i) for i in range(20)}})
END
    st-inspect stats --json --hist -j 1 a.safetensors >1
    st-inspect stats --json --hist -j 3 a.safetensors >3
    cmp 1 3
}

@test "stats: --quantiles chooses, and a type without numbers says -" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {
        "a": np.arange(101, dtype="<i2"), "f4": ("F4", [4], b"xy"),
        "z": np.zeros(1, "<c8")})'
    run -0 st-inspect stats --quantiles 0,0.125,1 a.safetensors
    [ "${lines[0]}" = "$(printf 'dtype\telements\tnan\tinf\tzeros\tmin\tmax\tmean\tstd\tq0\tq0.125\tq1\tname')" ]
    [ "${lines[1]}" = "$(printf 'I16\t101\t0\t0\t1\t0\t100\t50\t29.1548\t0\t12.5\t100\ta')" ]
    [ "${lines[2]}" = "$(printf 'F4\t4\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\tf4')" ]
    [ "${lines[3]}" = "$(printf 'C64\t1\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\tz')" ]
    run -2 st-inspect stats --quantiles 0,2 a.safetensors
    run -2 st-inspect stats --quantiles "$(seq -s, 0 0.0625 1)" a.safetensors
    [ "${lines[0]}" = 'st-inspect: --quantiles: more than 16 of them' ]
    run -2 st-inspect stats --quantiles 0,,1 a.safetensors
    [ "${lines[0]}" = 'st-inspect: --quantiles: "" is not a number from 0 to 1' ]
}

@test "stats: histograms of one value, of the largest and of the smallest" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {
        "big": np.array([1e17, 1e17]), "max": np.array([-1.7e308, 0, 1.7e308]),
        "same": np.array([3, 3.0]), "tiny": np.array([0, 5e-324, 1e-323])})'
    st-inspect stats --json --hist --bins 3 a.safetensors | py -c 'import json, sys
h = {t["name"]: t["histogram"] for t in json.load(sys.stdin)["tensors"]}
assert all(sum(h[k]["counts"]) == n for k, n in dict(big=2, max=3, same=2, tiny=3).items()), h
assert h["same"] == {"from": 2.5, "to": 3.5, "counts": [0, 2, 0]}, h
assert h["max"]["counts"] == [1, 1, 1], h'
}

@test "tree, list: a name of many dots is shown, not drowned in" {
    py -c 'import mkst; mkst.save("a.safetensors", {"a" + ".1" * 300000: ("U8", [1], b"x"),
        "a" + ".2" * 300000: ("U8", [1], b"x")})'
    run -0 bash -c 'timeout 20 st-inspect --fold a.safetensors | wc -l'
    [ "$output" -eq 3 ]
    run -0 bash -c 'timeout 20 st-inspect tree --depth 0 a.safetensors | wc -l'
    [ "$output" -eq 129 ]
}

@test "stats: --hist draws bars, --svg a picture that is well-formed" {
    py -c 'import mkst, numpy as np; mkst.save("a.safetensors", {
        "a<b>&\x1b": np.array([0, 1, 1, 1, 1, 2, 2, 4], "<f4"),
        "nothing": np.zeros(0, "<f4")})'
    run -0 st-inspect stats --hist --bins 4 --svg a.svg a.safetensors
    [ "${lines[2]}" = "$(printf 'a<b>&\\x1b\t1\t2\t4\t%s' "$(printf '█%.0s' {1..40})")" ]
    [ "${lines[1]}" = "$(printf 'a<b>&\\x1b\t0\t1\t1\t%s' "$(printf '█%.0s' {1..10})")" ]
    [ "${#lines[@]}" -eq 5 ]
    "$PYTHON" -c 'import xml.dom.minidom as m
d = m.parse("a.svg")
assert [t.firstChild.data for t in d.getElementsByTagName("title")] == ["a<b>&\\x1b", "nothing"]
assert len(d.getElementsByTagName("rect")) == 1 + 4 # the background, the bars'
    run -73 st-inspect stats --svg a.svg a.safetensors
    [ "$output" = "st-inspect: a.svg: exists already (--force replaces it)" ]
    run -0 st-inspect stats -f --svg a.svg a.safetensors
}

@test "stats: a picture and a table are not mixed on standard output" {
    make_layers a.safetensors
    run -2 --separate-stderr st-inspect stats --svg - a.safetensors
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "st-inspect: standard output: would be two outputs of this command" ]
    st-inspect stats --svg - -o table a.safetensors >picture
    py -c 'import xml.etree.ElementTree as e; e.parse("picture")'
    [ "$(wc -l <table)" -eq 26 ]
}

@test "options: what has no meaning for a verb is refused" {
    make_layers a.safetensors
    for args in 'tree --slice 0' 'list -j 2' 'verify -t x' 'cat --fold' \
        'hash --depth 2' 'meta --hist' 'diff --raw' 'cat --align' 'stats -l'; do
        # shellcheck disable=SC2086
        run -2 st-inspect $args a.safetensors
        [[ ${lines[0]} == *" has no meaning for ${args%% *}" ]]
    done
    run -2 st-inspect
    run -2 st-inspect list
    [ "${lines[0]}" = "st-inspect: list takes one FILE or DIR (found 0)" ]
    run -2 st-inspect a.safetensors a.safetensors
    run -2 st-inspect --json --align a.safetensors
    run -2 st-inspect cat --dtype best a.safetensors x
    [ "${lines[0]}" = 'st-inspect: --dtype: "best" is not one of f32, f64' ]
    run -2 st-inspect hash --sha256 --check a.safetensors
    run -0 st-inspect --help all
    [[ $output == *--ignore-dtype* ]]
    run -0 st-inspect --version
}

@test "st-inspect(1): the examples run as typed" {
    ln -s "$ROOT/demo" demo
    examples st-inspect.1 >script
    PATH=$(dirname "$PYTHON"):$PATH
    run -0 --separate-stderr bash -eo pipefail script
    [ -z "$stderr" ]
    [[ $'\n'$output$'\n' == *$'\nall sound\n'* ]] # -e does not see what stands before &&
    [ "${lines[-1]}" = 196864 ]
}

@test "a FIFO, a device and a directory without tensors are refused at once" {
    mkfifo fifo
    run -66 --separate-stderr timeout 10 st-inspect fifo
    [ "$stderr" = "st-inspect: fifo: is not a regular file" ]
    run -66 timeout 10 st-inspect /dev/zero
    mkdir directory
    run -66 timeout 10 st-inspect directory
}
