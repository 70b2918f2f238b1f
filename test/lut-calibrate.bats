# SPDX-License-Identifier: ISC
# lut-precompute calibrate: elbow thresholds and the inputs of --dims, against
# numpy (test/ref/lut_calibrate_ref.py), and what a user types.
load helpers
load lut

LAYER=model.layers.0.self_attn.q_proj

# calibrates CHECK: the checks of a group that passed.
calibrates() {
    run -0 py "$ROOT/test/ref/lut_calibrate_ref.py" "$1"
}

# make_case [KEYWORDS OF Case]: DIR/lut, the model DIR, and x.npy.
make_case() {
    py -c 'import sys, numpy as np, lut_apply_ref as r
c = r.Case("DIR", **eval("dict(%s)" % sys.argv[1])); np.save("x.npy", c.x)' "${1:-}"
}

@test "calibrate: the elbow is numpy's, of every type, few rows, streams" {
    calibrates elbows
    [ "$output" = 15 ]
}

@test "calibrate --dims: the inputs are numpy's, and leave less than others" {
    calibrates dims
    [ "$output" = 12 ]
}

@test "calibrate: the command lines of the manual work as written" {
    make_case "layer='model.layers.0.self_attn.qkv_proj', outs=(24, 8, 8)"
    mv DIR M
    ln -s M/lut DIR
    lut-precompute calibrate -m M DIR layers.0.self_attn.qkv_proj <x.npy
    lut-precompute calibrate -m M DIR layers.0.self_attn.qkv_proj --top 9 --dims dims.npy <x.npy
    lut-apply DIR layers.0.self_attn.qkv_proj -m M --dims dims.npy <x.npy >y.npy
    # --tau goes by it
    value=$(lut-precompute calibrate DIR layers.0.self_attn.qkv_proj <x.npy | sed -n 's/^elbow_value\t//p')
    lut-apply DIR layers.0.self_attn.qkv_proj -m M --tau 0.5 <x.npy >a
    lut-apply DIR layers.0.self_attn.qkv_proj -m M --absolute --tau "$("$PYTHON" -c "print($value / 2)")" <x.npy | cmp - a
    run -1 cmp -s y.npy a
}

@test "calibrate: the same bytes for -j and on every ISA, from a file and a pipe" {
    make_case "n=2048, d=136, rows=150, dtype='BF16', k=32, stored=True"
    run_it() {
        lut-precompute calibrate DIR $LAYER --top 30 --dims dims.npy -f "$@" >out
        cat out dims.npy DIR/lut/metadata.json | md5sum
    }
    first=$(run_it -j 1 -i x.npy)
    for i in '' $ALL_ISAS; do
        [ -z "$i" ] || has_isa "$i" || continue
        [ "$(TU_ISA=$i run_it -j 1 -i x.npy)" = "$first" ]
        [ "$(tail -c +129 x.npy | TU_ISA=$i run_it -j 3 --x-dtype f32)" = "$first" ]
    done
}

@test "calibrate: one layer's threshold alone changes, --index and other runs keep it" {
    make_cases
    lut-precompute -m model -s sparsify -o t --layers '*.q_proj,*.o_proj'
    py - <<'END'
import json, numpy as np
doc = json.load(open("t/metadata.json"))
doc["elbow_thresholds"] = {"layers.0.self_attn.q_proj": 0.5, "layer_9/mlp_up_proj": {"elbow_p": 0.1, "elbow_value": 0.3}}
doc["creation_info"]["note"] = [1, 2.5]
json.dump(doc, open("t/metadata.json", "w"))
json.dump(doc, open("old.json", "w"))
np.save("x.npy", np.random.default_rng(1).standard_t(3, (40, 60)).astype("f4"))
END
    lut-precompute calibrate t layers.0.self_attn.q_proj <x.npy
    keeps() {
        py - <<'END'
import json
old, new = json.load(open("old.json")), json.load(open("t/metadata.json"))
del old["elbow_thresholds"]["layers.0.self_attn.q_proj"]
mine = new["elbow_thresholds"].pop("layer_0/self_attn_q_proj")
assert set(mine) == {"elbow_p", "elbow_value"} and 0 < mine["elbow_p"] < 0.95
old["layers"].pop("model.layers.0.mlp.down_proj", 0), new["layers"].pop("model.layers.0.mlp.down_proj", 0)
assert old == new, (old, new)
END
    }
    keeps
    lut-precompute --index t
    keeps
    lut-precompute -m model -s sparsify -o t --layers '*.0.mlp.down_proj'
    keeps
    lut-apply t $LAYER -m model --tau 1 <x.npy >y.npy
}

@test "calibrate: side by side in one directory, all thresholds stay" {
    make_case "rows=4"
    py - <<'END'
import json, os
d = "DIR/lut/"
doc = json.load(open(d + "metadata.json"))
name, entry = doc["layers"].popitem()
table = open(d + entry["file"], "rb").read()
for i in range(12):
    layer = name.replace(".0.", ".%d." % i)
    file = layer + ".lut.safetensors"
    open(d + file, "wb").write(table)
    doc["layers"][layer] = dict(entry, file=file)
json.dump(doc, open(d + "metadata.json", "w"))
END
    pids=
    for i in {0..11}; do
        lut-precompute calibrate -q DIR "${LAYER/0/$i}" <x.npy >"out.$i" &
        pids="$pids $!"
    done
    for p in $pids; do
        wait "$p"
    done
    [ "$(grep -c '"layer_[0-9]*/self_attn_q_proj": {' DIR/lut/metadata.json)" = 12 ]
}

@test "calibrate: what does not fit is one line, and changes nothing" {
    make_case "stored=True"
    cp DIR/lut/metadata.json old
    refused() { # STATUS MESSAGE OPTIONS
        run "-$1" --separate-stderr lut-precompute calibrate "${@:3}"
        [[ ${stderr_lines[0]} == "lut-precompute: "$2 ]] || { echo "$stderr"; return 1; }
        [ -z "$output" ]
        cmp DIR/lut/metadata.json old
        [ ! -e dims.npy ]
        [ -z "$(find . -name '.*.tmp.*')" ]
    }
    x=(-i x.npy DIR $LAYER)
    refused 2 "calibrate: needs DIR LAYER (found 1 operand)" DIR
    refused 2 "calibrate: needs DIR LAYER (found 3 operands)" "${x[@]}" more
    refused 2 "--dims FILE needs --top M" "${x[@]}" --dims dims.npy
    refused 2 "--dims FILE: standard output has the table" "${x[@]}" --top 3 --dims -
    refused 2 "--top is for --dims" "${x[@]}" --top 3
    refused 2 "--top: \"0\" is *" "${x[@]}" --top 0 --dims dims.npy
    refused 2 "--top is 41, but the layer has 40 inputs" "${x[@]}" --top 41 --dims dims.npy
    refused 2 "option -s has no meaning for calibrate" "${x[@]}" -s sae
    refused 2 "option --index has no meaning for calibrate" "${x[@]}" --index DIR
    refused 65 "DIR/lut/metadata.json: has no layer ${LAYER/q/u} (of 1, the first is $LAYER)*" -i x.npy DIR "${LAYER/q/u}"
    refused 66 "nothing/metadata.json: No such file or directory" -i x.npy nothing $LAYER
    refused 2 "x.npy: is both an input and an output of this command" "${x[@]}" --top 3 --dims x.npy -f
    refused 2 "DIR/lut/$LAYER.lut.safetensors: is both an input *" "${x[@]}" --top 3 --dims DIR/lut/$LAYER.lut.safetensors -f
    : >there
    refused 73 "there: exists already (--force replaces it)" "${x[@]}" --top 3 --dims there
    "$PYTHON" -c 'import numpy as np
np.save("none.npy", np.zeros((0, 40), "f4")); np.save("nan.npy", np.full((3, 40), np.nan, "f4"))
np.save("same.npy", np.ones((3, 40), "f4")); np.save("w.npy", np.ones((3, 39), "f4"))'
    refused 65 "none.npy: has no rows" -i none.npy DIR $LAYER --top 3 --dims dims.npy
    refused 65 "nan.npy: has no rows without NaN or infinite pre-activations" -i nan.npy DIR $LAYER
    refused 65 "same.npy: the magnitudes of x have no elbow: their quantiles are a straight line" -i same.npy DIR $LAYER --top 3 --dims dims.npy
    refused 65 "w.npy: the last of x's 2 dims is 39 (expected 40, the layer's inputs)" -i w.npy DIR $LAYER
    head -c 1000 x.npy >cut.npy
    refused 65 "standard input: ended in row 5 (expected whole rows of 160 bytes)" DIR $LAYER --top 3 --dims dims.npy < <(cat cut.npy)
    refused 74 "/dev/full: cannot be written: No space left on device" "${x[@]}" --top 3 --dims /dev/full
    make_case
    cp DIR/lut/metadata.json old
    refused 2 "DIR/lut/$LAYER.lut.safetensors: holds no weights to rank its inputs by: -m MODEL has them" "${x[@]}" --top 3 --dims dims.npy
    [ "$(lut-precompute calibrate "${x[@]}" | cut -f 1 | xargs)" = "metric rows bad_rows elbow_p elbow_value" ]
    if [ "$(id -u)" != 0 ]; then
        cp DIR/lut/metadata.json old
        chmod a-w DIR/lut
        refused 73 "DIR/lut: Permission denied" "${x[@]}"
        chmod u+w DIR/lut
    fi
}
