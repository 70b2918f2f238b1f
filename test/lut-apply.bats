# SPDX-License-Identifier: ISC
# lut-apply: values against numpy (test/ref/lut_apply_ref.py), and what a user
# types.
load helpers

# applies CHECK: the checks of a group that passed.
applies() {
    run -0 py "$ROOT/test/ref/lut_apply_ref.py" "$1"
}

# make_case [KEYWORDS OF Case [STATEMENTS]]: DIR/lut, the model DIR, and x.npy,
# x after these.
make_case() {
    py -c 'import sys, numpy as np, lut_apply_ref as r
c = r.Case("DIR", **eval("dict(%s)" % sys.argv[1])); x = c.x
exec(sys.argv[2]); np.save("x.npy", x)' "${1:-}" "${2:-}"
}

LAYER=model.layers.0.self_attn.q_proj

@test "lut-apply: every dtype, mixed ones, k, centring, single and fused layers are numpy's" {
    applies tables
    [ "$output" = 12 ]
}

@test "lut-apply: ties, few positives or none, zeros, NaN, Inf, 1e30" {
    applies edges
    [ "$output" = 6 ]
}

@test "lut-apply: every mode of compensation, by the model's weights and stored ones" {
    applies compensation
    [ "$output" = 34 ]
}

@test "lut-apply: few compensated inputs give the stored weights' bits by -m as well" {
    make_case "dtype='BF16', stored=True"
    lut-apply DIR $LAYER --top 5 <x.npy >stored.npy
    make_case "dtype='BF16'"
    lut-apply DIR $LAYER -m DIR --top 5 <x.npy | cmp - stored.npy
    run -0 --separate-stderr lut-apply DIR $LAYER -m DIR --top 5 -v -i x.npy -o y.npy
    [[ "$stderr" = *"by the model's weights"* ]]
}

@test "lut-apply --dims: one set of inputs is numpy's, all of them are --ratio 1 and the layer" {
    applies dims
    [ "$output" = 32 ]
}

@test "lut-apply --dims: what is no ascending list of inputs is refused by its place" {
    make_case "stored=True"
    "$PYTHON" - <<'END'
import numpy as np
for i, dims in enumerate((np.int32([1, 6, 5]), np.int64([6, 6]), np.int32([0, 40]), np.int32([-1, 3]), np.array([1 << 32]),
                          np.arange(41), np.float32([1]), np.int32([[1, 2]]), np.int32(3), np.int32([1]))):
    np.save(str(i), dims)
END
    refused() { # STATUS MESSAGE FILE [OPTIONS]
        cp "$3.npy" dims.npy
        run "-$1" lut-apply DIR $LAYER --dims dims.npy "${@:4}" -i x.npy -o y
        [ "${lines[0]}" = "lut-apply: $2" ] || { echo "$output"; return 1; }
        [ ! -e y ]
    }
    refused 65 "dims.npy: [2] is 5 after 6 (expected ascending inputs)" 0
    refused 65 "dims.npy: [1] is 6 after 6 (expected ascending inputs)" 1
    refused 65 "dims.npy: [1] is 40 (expected 0 to 39: the layer has 40 inputs)" 2
    refused 65 "dims.npy: [0] is -1 (expected 0 to 39: the layer has 40 inputs)" 3
    refused 65 "dims.npy: [0] is 4294967296 (expected 0 to 39: the layer has 40 inputs)" 4
    refused 65 "dims.npy: has 41 numbers (expected at most 40, the layer's inputs)" 5
    refused 65 "dims.npy: is F32 of 1 dim (expected I32 or I64 of 1)" 6
    refused 65 "dims.npy: is I32 of 2 dims (expected I32 or I64 of 1)" 7
    refused 65 "dims.npy: is I32 of 0 dims (expected I32 or I64 of 1)" 8
    for other in '--ratio 0.1' '--top 1' '--tau 1'; do
        refused 2 "--ratio, --top, --tau and --dims exclude each other" 9 $other
    done
    refused 2 "--weighted is for --ratio, --top and --tau" 9 --weighted
    truncate -s -1 dims.npy
    run -65 lut-apply DIR $LAYER --dims dims.npy -i x.npy
    [ "$output" = "lut-apply: dims.npy: has 3 bytes of data (expected 4 by its header)" ]
    run -2 lut-apply DIR $LAYER --dims - <dims.npy
    [ "${lines[0]}" = "lut-apply: --dims and x cannot both be standard input" ]
    cp 9.npy dims.npy
    run -2 lut-apply DIR $LAYER --dims dims.npy -i x.npy -f -o dims.npy
    [ "${lines[0]}" = "lut-apply: dims.npy: is both an input and an output of this command" ]
    run -66 lut-apply DIR $LAYER --dims missing.npy -i x.npy
    make_case
    run -2 lut-apply DIR $LAYER --dims dims.npy -i x.npy
    [[ ${lines[0]} == *"holds no weights to compensate with: -m MODEL has them" ]]
    lut-apply DIR $LAYER -m DIR --dims - -i x.npy <dims.npy >a
    lut-apply DIR $LAYER -m DIR --dims dims.npy -i x.npy | cmp - a
    lut-apply --report DIR $LAYER -m DIR --dims dims.npy -i x.npy >report
    grep -qx "dim 1	50" report
    grep -qx "compensated_mean	1" report
}

@test "lut-apply --ratio: a part that is a whole number of inputs is not rounded up" {
    make_case "d=100, stored=True"
    for ratio_top in '0.07 7' '0.14 14' '0.55 55' '0.071 8' '0.0001 1' '0.99 99'; do
        lut-apply DIR $LAYER --ratio ${ratio_top% *} <x.npy >ratio.npy
        lut-apply DIR $LAYER --top ${ratio_top#* } <x.npy | cmp - ratio.npy
    done
}

@test "lut-apply: all inputs compensated are the layer; more of them, less error" {
    applies identity
    [ "$output" = 9 ]
}

@test "lut-apply: a directory as the Python exporter writes it" {
    applies exporter
    [ "$output" = 4 ]
}

@test "lut-apply --codes --values --xhat: numpy's, of bad rows and short ones, and of a stream" {
    applies arrays
    [ "$output" = 7 ]
}

# bats test_tags=long
@test "lut-apply --codes --values --xhat: the same bytes for -j, --batch, screened or not, on every ISA" {
    arrays=(--codes c --values v --xhat x)
    for over in "'each'" None; do
        make_case "n=2048, d=136, rows=150, dtype='BF16', k=32, over=$over"
        lut-apply DIR $LAYER "${arrays[@]}" --no-screen -j 1 -f -i x.npy -o y
        md5sum c v x y >sums
        for i in '' $ALL_ISAS; do
            [ -z "$i" ] || has_isa "$i" || continue
            for options in '-j 1' '-j 3 --batch 7' '-j 2 --batch 150'; do
                TU_ISA=$i lut-apply DIR $LAYER "${arrays[@]}" $options -f -i x.npy -o y
                md5sum --quiet -c sums
            done
        done
    done
}

@test "lut-apply --codes --values --xhat: screened or not, and of no rows" {
    arrays=(--codes c --values v --xhat x)
    make_case "n=2048, d=136, rows=150, dtype='BF16', k=32"
    lut-apply DIR $LAYER "${arrays[@]}" --no-screen -j 1 -i x.npy -o y
    md5sum c v x y >sums
    lut-apply DIR $LAYER "${arrays[@]}" -j 3 --batch 7 -f -i x.npy -o y
    md5sum --quiet -c sums
    "$PYTHON" -c 'import numpy as np
np.save("x.npy", np.zeros((0, 136), "<f4"))'
    lut-apply DIR $LAYER "${arrays[@]}" -f -i x.npy -o y
    : | lut-apply DIR $LAYER --codes c2 --values v2 --xhat x2 --x-dtype f32 --raw
    "$PYTHON" -c 'import numpy as np
for f in "c", "c2", "v", "v2":
    assert np.load(f).shape == (0, 32)
assert np.load("x").shape == np.load("x2").shape == (0, 136)'
}

@test "lut-apply --codes --values --xhat: no file where anything fails, none twice, no input" {
    make_case
    none() { # STATUS MESSAGE COMMAND: no new file
        run "-$1" --separate-stderr bash -o pipefail -c "$3"
        [[ ${stderr_lines[0]} == "lut-apply: "*"$2" ]] || { echo "$stderr"; return 1; }
        find . -newer mark -type f ! -name 'separate-stderr*' ! -name new >new
        [ ! -s new ] || { cat new; return 1; }
    }
    all="lut-apply DIR $LAYER --codes c --values v --xhat h"
    touch mark
    sleep 0.01
    none 2 "c: would be two outputs of this command" "lut-apply DIR $LAYER --codes c --values ./c <x.npy | cat >/dev/null"
    none 2 "would be two outputs of this command" "lut-apply DIR $LAYER --codes c -o c <x.npy"
    for o in - '>(cat)'; do
        none 2 "must be a file, whose header is written at the end" "lut-apply DIR $LAYER --codes $o -o y <x.npy"
    done
    for o in x.npy DIR/model.safetensors DIR/lut/metadata.json DIR/lut/$LAYER.lut.safetensors; do
        none 2 "is both an input and an output of this command" "$all -m DIR --ratio 0.1 -i x.npy -f --xhat $o >/dev/null"
    done
    none 65 "ended in row 6 (expected whole rows of 160 bytes)" "tail -c +129 x.npy | head -c 1000 | $all --x-dtype f32 --raw >/dev/null"
    none 65 "ended in row 5 (expected whole rows of 160 bytes)" "head -c 1000 x.npy | $all >/dev/null"
    none 74 "standard output: cannot be written: No space left on device" "$all <x.npy >/dev/full"
    none 2 "" "lut-apply --report DIR $LAYER -m DIR --codes c <x.npy"
    none 2 "" "lut-apply DIR $LAYER --codes '' <x.npy"
    : >v
    touch mark
    none 73 "v: exists already (--force replaces it)" "$all <x.npy >/dev/null"
    lut-apply DIR $LAYER --values v -f <x.npy >y.npy
    "$PYTHON" -c 'import numpy as np; assert np.load("v").shape == (50, 8)'
}

@test "lut-apply --report: numpy's metrics, for any batch" {
    applies report
    [ "$output" = 3 ]
}

@test "lut-apply --report: rows that are not finite are counted, and left out" {
    make_case
    "$PYTHON" -c 'import numpy as np
x = np.load("x.npy")
bad = x[:3].copy()
bad[[0, 1, 2], [0, 1, 2]] = np.nan, np.inf, -np.inf
np.save("bad.npy", np.concatenate([x[:2], bad, x[2:]]))'
    lut-apply --report DIR $LAYER -m DIR --json <x.npy >good.json
    lut-apply --report DIR $LAYER -m DIR --json <bad.npy >bad.json
    "$PYTHON" -c 'import json
good, bad = (json.load(open(f + ".json")) for f in ("good", "bad"))
assert bad.pop("bad_rows") == 3 and good.pop("bad_rows") == 0
for key, v in good.items():
    assert v == bad[key] or abs(v - bad[key]) <= 1e-6 * abs(v), (key, v, bad[key])'
}

# bats test_tags=long
@test "lut-apply: the same bits for -j and --batch, on every ISA" {
    isas_here
    applies same_bits
    [ "$output" = $(($(wc -w <<<"$ISAS") * 5)) ]
}

# bats test_tags=long
@test "lut-apply: the bits are those of --no-screen, for every dtype, k, -j and batch" {
    py - <<'END'
import numpy as np, lut_apply_ref as r
for i, kw in enumerate((dict(dtype="BF16", k=1), dict(dtype="BF16", k=32), dict(dtype="BF16", k=256, centered=True),
                        dict(dtype="F16", k=32), dict(dtype="F32", k=8))):
    x = r.Case(str(i), n=2048, d=136, rows=520, **kw).x
    x[100:200] += 50                       # far from 0
    x[200:300, ::37] *= 1000               # outlier dims
    x[300:306, 5] = np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-38
    x[330:340] *= 1e-20
    x[340:350] *= 1e25
    x[350:360] = 0
    np.save(f"{i}/x", x)
END
    for d in 0 1 2 3 4; do
        lut-apply -q $d $LAYER --no-screen <$d/x.npy >exact.npy
        for options in '-j 1' '-j 2 --batch 8' '-j 3 --batch 520' '-j 2 --batch 513'; do
            lut-apply -q $d $LAYER $options <$d/x.npy | cmp - exact.npy
        done
    done
}

@test "lut-apply: a few rows at a time are screened by a shadow, on every ISA" {
    make_case "n=4096, d=136, rows=40, dtype='BF16', k=32"
    lut-apply -q DIR $LAYER --no-screen <x.npy >exact.npy
    for i in $ALL_ISAS; do
        has_isa "$i" || continue
        for options in '--batch 1' '--batch 1 -j 3' '--batch 7 -j 2' '--batch 2'; do
            TU_ISA=$i lut-apply -v DIR $LAYER $options -i x.npy -f -o y.npy 2>said
            cmp y.npy exact.npy
            grep -q "screening: . of 40 rows were computed exactly" said
        done
    done
}

# shadows STATEMENT...: files 1, 2, ..: the table with numpy's shadow of its
# encoder, q, scale and error, in 'add', after a STATEMENT, and its checksums,
# which for those that begin with "unsummed" are left out.
shadows() {
    py - DIR/lut/$LAYER.lut.safetensors "$@" <<'END'
import subprocess, sys, numpy as np, mkst
path, *statements = sys.argv[1:]
tensors, _ = mkst.load_all(path)
e = mkst.values(*tensors["encoder_weight"]).astype("f8")
true_scale = (np.abs(e).max(1) / 100).astype("f4")
true_q = np.rint(e / true_scale.astype("f8")[:, None]).astype("i1")
true_error = (np.linalg.norm(e - true_scale.astype("f8")[:, None] * true_q, axis=1) * 1.01).astype("f4")
for i, statement in enumerate(statements, 1):
    q, scale, error = true_q.copy(), true_scale.copy(), true_error.copy()
    add = {"encoder_int8": q, "encoder_scale": scale, "encoder_error": error}
    unsummed = statement.startswith("unsummed")
    exec(statement.removeprefix("unsummed "))
    mkst.save(str(i), {**tensors, **add})
    if not unsummed:
        said = subprocess.run(["st-inspect", "hash", str(i)], capture_output=True, text=True, check=True).stdout
        rows = (line.split("\t") for line in said.splitlines())
        mkst.save(str(i), {**tensors, **add}, {r[4] + "_xxh3": r[1] for r in rows if r[4] == "encoder_weight" or r[4] in add})
END
}

@test "lut-apply: a stored shadow is read, and what is wrong in it changes no bit" {
    make_case "n=4096, d=136, rows=40, dtype='BF16', k=32"
    lut-apply -q DIR $LAYER --no-screen <x.npy >exact.npy
    table=DIR/lut/$LAYER.lut.safetensors
    # a looser one costs more, and proves as well
    good=("" "add['encoder_error'] *= 2" "q[7, 3] = -128; error[7] *= 40")
    unsure=("error[7] = np.nan" "error[7] = -1")
    # bounds that are none: products over them say so
    none=("error[:] = 0" "scale[:] = 0" "q[:] = q[::-1]")
    bad=("del add['encoder_scale']" "add['encoder_int8'] = q[:-1]" "add['encoder_int8'] = q.astype('f4')"
        "scale[4095] = np.inf" "scale[7] *= -1")
    shadows "${good[@]}" "${unsure[@]}" "${none[@]}" "${bad[@]}"
    n=0
    for count in 0 0 0 1 1 40 40 40; do # so many rows are computed exactly
        cp $((++n)) $table
        lut-apply -v DIR $LAYER --batch 1 -i x.npy -f -o y.npy 2>said
        cmp y.npy exact.npy
        grep -q "screening: $count of [1-9][0-9]* rows were computed exactly" said || { cat said; return 1; }
    done
    for message in "tensor encoder_scale is missing" "encoder_int8 is [4095, 136] (expected [4096, 136])" \
        "encoder_int8 is F32 (expected I8)" "encoder_scale[4095] is inf (expected a number from 0 on)" "encoder_scale[7] is -"; do
        cp $((++n)) $table
        run -65 lut-apply DIR $LAYER --batch 1 -i x.npy -f -o y.npy
        [[ $output == "lut-apply: $table: $message"* ]] || { echo "$output"; return 1; }
    done
    [ ! -e $((n + 1)) ]
}

@test "lut-apply: a stored shadow or encoder that is not what was written is refused, and one without checksums is not used" {
    make_case "n=4096, d=136, rows=40, dtype='BF16', k=32"
    lut-apply -q DIR $LAYER --no-screen <x.npy >exact.npy
    f=DIR/lut/$LAYER.lut.safetensors
    shadows "" "unsummed q[5:9] = 0"
    for name in encoder_weight encoder_int8 encoder_scale encoder_error; do
        "$PYTHON" - 1 $f $name <<'END'
import json, struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
n = struct.unpack("<Q", data[:8])[0]
a, b = json.loads(data[8:8 + n])[sys.argv[3]]["data_offsets"]
data[8 + n + (a + b) // 2] ^= 1
open(sys.argv[2], "wb").write(data)
END
        run -65 --separate-stderr lut-apply DIR $LAYER --batch 1 -i x.npy -f -o y.npy
        sum=$(st-inspect hash 1 | awk -F '\t' -v name=$name '$5 == name { print $2 }')
        [[ $stderr == "lut-apply: $f: $name has the XXH3 "*" (expected $sum, as the file says)" ]]
    done
    cp 2 $f
    run -0 --separate-stderr lut-apply DIR $LAYER --batch 1 -i x.npy -f -o y.npy
    cmp y.npy exact.npy
    [ "$stderr" = "lut-apply: $f: its shadow has no encoder_weight_xxh3: it is not used (lut-precompute --screen --force writes a table with it)" ]
}

@test "lut-apply -v: the rows that screening did not decide" {
    make_case "n=2048, d=136, rows=100, dtype='BF16'" 'x[7] = np.nan'
    run -0 --separate-stderr lut-apply -v DIR $LAYER -i x.npy -o y.npy
    if [[ $stderr == *screening* ]]; then # AMX, or a fast AVX512-BF16
        [[ $stderr == *"screening: 1 of 100 rows were computed exactly"* ]]
    fi
    run -0 --separate-stderr lut-apply -v --no-screen DIR $LAYER -i x.npy -f -o y.npy
    [[ $stderr != *screening* ]]
}

@test "lut-apply: the command lines of the manual work as written" {
    make_case "layer='model.layers.0.self_attn.qkv_proj', outs=(24, 8, 8)"
    ln -s DIR MODEL
    lut-apply DIR model.layers.0.self_attn.qkv_proj -m MODEL --ratio 0.25 <x.npy >y.npy
    lut-apply DIR model.layers.0.self_attn.qkv_proj <x.npy >y.npy
    "$PYTHON" -c 'import numpy as np; assert np.load("y.npy").shape == (50, 40)'
    lut-apply --report DIR layers.0.self_attn.qkv_proj -m MODEL <x.npy
}

@test "lut-apply(1): the examples run as typed" {
    make_case "layer='model.layers.0.self_attn.qkv_proj', outs=(24, 8, 8), stored=True"
    mv DIR MODEL
    "$PYTHON" -c 'import numpy as np; np.load("x.npy").astype("<f4").tofile("x.f32")'
    "$PYTHON" -c 'import numpy as np; np.save("dims.npy", np.int32([0, 3, 39]))'
    examples lut-apply.1 >script
    run -0 bash -euxo pipefail script
}

@test "lut-apply: x as .npy of any dims, safetensors, raw f32 f16 bf16; y likewise" {
    make_case
    lut-apply DIR $LAYER <x.npy >y.npy
    py -c 'import numpy as np
from tiny_models import write_safetensors
x = np.load("x.npy"); np.save("3.npy", x.reshape(5, 10, 40)); np.save("1.npy", x[0])
x.tofile("x.raw"); np.save("h.npy", x.astype("<f2")); x.astype("<f2").tofile("h.raw")
write_safetensors("one.safetensors", {"x": x.astype(float)}, lambda n: "F32")
write_safetensors("two.safetensors", {"x": x.astype(float), "z": x.astype(float)}, lambda n: "F32")'
    lut-apply DIR $LAYER -i 3.npy -o 3y.npy
    lut-apply DIR $LAYER -i 1.npy -o 1y.npy
    lut-apply DIR $LAYER <h.npy --dtype f16 >hy.npy
    "$PYTHON" -c 'import numpy as np
y = np.load("y.npy"); assert (np.load("3y.npy") == y.reshape(5, 10, 24)).all()
assert (np.load("1y.npy") == y[0]).all() and np.load("hy.npy").dtype == "<f2"'
    lut-apply DIR $LAYER --x-dtype f32 <x.raw | cmp - y.npy
    lut-apply DIR $LAYER -i one.safetensors | cmp - y.npy
    lut-apply DIR $LAYER <one.safetensors | cmp - y.npy
    run -2 lut-apply DIR $LAYER < <(cat one.safetensors)
    [ "${lines[0]}" = "lut-apply: safetensors are not read from a pipe: -i FILE[:TENSOR]" ]
    lut-apply DIR $LAYER -i two.safetensors:z | cmp - y.npy
    tail -c +129 y.npy >y.raw
    cat x.raw | lut-apply DIR $LAYER --x-dtype f32 --raw | cmp - y.raw
    cat h.raw | lut-apply DIR $LAYER --x-dtype f16 --raw >a
    lut-apply DIR $LAYER --raw <h.npy | cmp - a
}

@test "lut-apply: bf16 of y is y rounded, of x what it is as f32" {
    make_case
    py -c 'import numpy as np, lut_ref as ref
from tiny_models import write_safetensors
x = ref.round_to(np.load("x.npy"), "BF16")
x.astype("<f4").tofile("x.f32"); (x.astype("<f4").view("<u4") >> 16).astype("<u2").tofile("x.bf16")
write_safetensors("x.safetensors", {"x": x}, lambda n: "BF16")'
    grep -aq '"BF16"' x.safetensors
    lut-apply DIR $LAYER --x-dtype f32 --raw <x.f32 >y.f32
    lut-apply DIR $LAYER --x-dtype bf16 --raw <x.bf16 | cmp - y.f32
    cat x.bf16 | lut-apply DIR $LAYER --x-dtype bf16 --raw | cmp - y.f32
    lut-apply DIR $LAYER -i x.safetensors --raw | cmp - y.f32
    lut-apply DIR $LAYER --x-dtype f32 --raw --dtype bf16 <x.f32 >y.bf16
    py -c 'import numpy as np, lut_ref as ref
y = np.fromfile("y.f32", "<f4")
got = (np.fromfile("y.bf16", "<u2").astype("<u4") << 16).view("<f4")
assert y.shape == (50 * 24,) and (got == ref.round_to(y, "BF16")).all() and (got != y).mean() > 0.9'
}

@test "lut-apply: no rows give no rows" {
    make_case
    "$PYTHON" -c 'import numpy as np; np.save("0.npy", np.zeros((0, 40), "<f4"))'
    lut-apply DIR $LAYER <0.npy >y.npy
    "$PYTHON" -c 'import numpy as np; assert np.load("y.npy").shape == (0, 24)'
    [ -z "$(lut-apply DIR $LAYER --x-dtype f32 --raw </dev/null)" ]
    lut-apply --report DIR $LAYER -m DIR --json <0.npy | grep -q '"rows":0'
}

@test "lut-apply: what does not fit is refused by name" {
    make_case
    "$PYTHON" -c 'import numpy as np; np.save("w.npy", np.zeros((3, 39), "<f4"))
np.save("d.npy", np.zeros((3, 40))); np.save("s.npy", np.zeros((), "<f4"))'
    run -65 lut-apply DIR $LAYER <w.npy
    [ "$output" = "lut-apply: standard input: the last of x's 2 dims is 39 (expected 40, the layer's inputs)" ]
    run -65 lut-apply DIR $LAYER <d.npy
    [ "$output" = "lut-apply: standard input: x is F64 (expected F32, F16 or BF16)" ]
    run -65 lut-apply DIR $LAYER <s.npy
    [ "$output" = "lut-apply: standard input: x is a scalar (expected rows of 40, the layer's inputs)" ]
    run -65 lut-apply DIR model.layers.1.mlp.up_proj <x.npy
    [ "$output" = "lut-apply: DIR/lut/metadata.json: has no layer model.layers.1.mlp.up_proj (of 1, the first is $LAYER)" ]
    run -65 lut-apply DIR ${LAYER/q_proj/q_porj} <x.npy
    [ "$output" = "lut-apply: DIR/lut/metadata.json: has no layer ${LAYER/q_proj/q_porj} (of 1, the first is $LAYER) (did you mean \"$LAYER\"?)" ]
    run -65 lut-apply DIR $LAYER -i DIR/model.safetensors:$LAYER.wieght
    [ "$output" = "lut-apply: DIR/model.safetensors:$LAYER.wieght: there is no tensor \"$LAYER.wieght\" (did you mean \"$LAYER.weight\"?)" ]
    run -65 lut-apply DIR $LAYER <<<"these are no numbers"
    [[ "$output" = *"neither .npy nor safetensors"* ]]
    run -2 lut-apply DIR $LAYER --ratio 0.5 <x.npy
    [[ "$output" = "lut-apply: DIR/lut/"*": holds no weights to compensate with: -m MODEL has them"* ]]
    run -65 lut-apply DIR $LAYER --tau 1 -m DIR <x.npy
    [[ "$output" = *"has no elbow threshold for $LAYER"* ]]
    run -2 lut-apply DIR $LAYER --ratio 1 --top 2 <x.npy
    run -2 lut-apply DIR $LAYER --dtype bf16 <x.npy
    run -2 lut-apply DIR $LAYER -i DIR/model.safetensors:$LAYER.weight --x-dtype bf16
    [[ "$output" = *"--x-dtype is for raw numbers"* ]]
    run -2 lut-apply --report DIR $LAYER <x.npy
    mkdir other
    cp DIR/model.safetensors other
    make_case "outs=(16,)"
    run -65 lut-apply DIR $LAYER --ratio 1 -m other <x.npy
    [[ "$output" = *"the weights of $LAYER do not fit"*"(expected 16 outputs of 40 inputs in all)" ]]
}

# bats test_tags=long
@test "lut-apply: a table that shrinks under many threads is one line and 74" {
    make_case "n=4096"
    mkfifo x said
    lut-apply DIR $LAYER -v --x-dtype f32 --raw -j 8 -o y <x 2>said &
    exec 5>x 6<>said
    read -r -u 6
    head -c 65536 /dev/zero >&6 # whoever speaks has to wait
    truncate -s 100 DIR/lut/*.safetensors
    tail -c +129 x.npy >&5
    exec 5>&-
    sleep 1
    exec 7<said 6>&-
    cat <&7 >all
    s=0
    wait $! || s=$?
    [ $s = 74 ]
    [ "$(tr -d '\0' <all)" = "lut-apply: an input file shrank while it was read" ]
    [ -z "$(find . -name y -o -name '.y.*')" ]
}

@test "lut-apply: a stream that ends within a row is refused with 65" {
    make_case
    run -65 bash -c "head -c 1000 x.npy | lut-apply DIR $LAYER --raw | wc -c; exit \${PIPESTATUS[1]}"
    [[ "$output" = *"standard input: ended in row"* ]]
    run -65 lut-apply DIR $LAYER --x-dtype f32 -i x.npy
    [[ "$output" = *"(expected whole rows of 160)"* ]]
}

@test "lut-apply: more than x's header tells of is refused with 65" {
    make_case
    { cat x.npy && printf 1234; } >more.npy
    rows=$(py -c 'import numpy as np; print(np.load("x.npy").shape[0])')
    nbytes=$(py -c 'import numpy as np; print(np.load("x.npy").nbytes)')
    for mode in --raw --report; do
        run -65 lut-apply DIR $LAYER $mode -m DIR -i more.npy -o out
        [ "$output" = "lut-apply: more.npy: has $((nbytes + 4)) bytes of data (expected $nbytes by its header)" ]
        run -65 lut-apply DIR $LAYER $mode -m DIR -o out < <(cat more.npy)
        [ "$output" = "lut-apply: standard input: more data (expected $rows rows by its header)" ]
        [ ! -e out ]
    done
    # arrays that follow each other on a stream are one, but to an output whose header has the rows of the first
    run -65 lut-apply DIR $LAYER -m DIR -o out < <(cat x.npy x.npy)
    [ "$output" = "lut-apply: standard input: another array follows the $rows rows of its header" ]
    py -c 'import numpy as np; x = np.load("x.npy"); np.save("twice.npy", np.concatenate([x, x]))'
    cmp <(cat x.npy x.npy | lut-apply --report DIR $LAYER -m DIR) <(lut-apply --report DIR $LAYER -m DIR -i twice.npy)
    cat x.npy x.npy >both
    cmp <(lut-apply --report DIR $LAYER -m DIR <both) <(lut-apply --report DIR $LAYER -m DIR -i twice.npy)
}

@test "lut-apply: y that f16 cannot hold is an error, not Inf" {
    make_case
    "$PYTHON" -c 'import numpy as np; np.save("x.npy", np.load("x.npy") * 1e6)'
    run -65 lut-apply DIR $LAYER --dtype f16 -o y.npy <x.npy
    [[ "$output" = *"which f16 cannot hold" ]]
    [ ! -e y.npy ]
}

@test "lut-apply: a closed pipe ends it, a full disk is an error" {
    make_case
    bash -c "head -c 32000000 /dev/zero | lut-apply DIR $LAYER --x-dtype f32 --raw | head -c 10 >/dev/null; [ \${PIPESTATUS[1]} = 141 ]"
    run -74 bash -c "lut-apply DIR $LAYER <x.npy >/dev/full"
    [[ "$output" = lut-apply:* ]]
    lut-apply DIR $LAYER <x.npy -o y.npy
    run -73 lut-apply DIR $LAYER <x.npy -o y.npy
    lut-apply DIR $LAYER <x.npy -f -o y.npy
}

# bats test_tags=long
@test "lut-apply: the memory of a long stream is that of a short one" {
    make_case
    stream() {
        head -c "$1" /dev/zero | peak lut-apply DIR $LAYER --x-dtype f32 --raw "${@:2}"
    }
    short=$(stream 160000 -j 2)
    long=$(stream 32000000 -j 2)
    [ "$long" -lt $((short + 4096)) ]
    # 200000 batches: a byte that each kept would be 32 of the heap, 6 MiB
    short=$(stream 160000 -j 1 --batch 1)
    long=$(stream 32000000 -j 1 --batch 1)
    [ "$long" -lt $((short + 4096)) ]
}

@test "lut-apply --report --svg: a picture that is well-formed and falls" {
    make_case
    lut-apply --report DIR $LAYER -m DIR --svg p.svg <x.npy >report
    lut-apply --report DIR $LAYER -m DIR <x.npy | cmp - report
    for r in 0 1; do
        lut-apply --report DIR $LAYER -m DIR --ratio $r --json <x.npy
    done >ends
    "$PYTHON" -c 'import json, xml.dom.minidom as dom
d = dom.parse("p.svg")
pts = [tuple(map(float, p.split(","))) for p in d.getElementsByTagName("polyline")[0].getAttribute("points").split()]
assert len(pts) == 21 and pts == sorted(pts) and [y for _, y in pts] == sorted(y for _, y in pts), pts
shown = [t.firstChild.data for t in d.getElementsByTagName("text")]
a, b = [json.loads(line)["fvu_output"] for line in open("ends")]
assert any(t.startswith("ratio 0: %.3g, " % a) and t.endswith(", 1: %.3g" % b) for t in shown), (a, b, shown)'
    "$PYTHON" "$ROOT/test/ref/svg.py" p.svg 1
    run -73 lut-apply --report DIR $LAYER -m DIR --svg p.svg <x.npy
    run -2 lut-apply DIR $LAYER -m DIR --svg q.svg <x.npy
}

@test "lut-apply --bench: a line for each step that there is" {
    make_case
    steps() { # where the CPU screens, this is one more
        lut-apply --bench DIR $LAYER "$@" <x.npy | cut -f 1,2 | grep -v screened | xargs
    }
    [ "$(steps --batch 9)" = "step rows encode 9 top-k 9 combine 9 table 9" ]
    [[ $(lut-apply --bench --no-screen DIR $LAYER <x.npy) != *screened* ]]
    [ "$(lut-apply --bench DIR $LAYER <x.npy | head -n 1)" = "step	rows	us_per_row	of_table" ]
    [ "$(lut-apply --bench DIR $LAYER -m DIR <x.npy | head -n 1)" = "step	rows	us_per_row	of_layer" ]
    [ "$(steps -m DIR --top 3 --batch 7)" = \
        "step rows encode 7 top-k 7 combine 7 compensation 7 table 7 layer 7" ]
}
