# SPDX-License-Identifier: ISC
# metadata.json: what lut-precompute writes, keeps and refuses, beside tables.
load helpers
load lut

@test "lut-precompute: --index keeps what it does not know, drops what is not there" {
    make_cases
    lut-precompute -m model -s sparsify -o t --layers '*.q_proj,*.o_proj'
    py - <<'END'
import json
doc = json.load(open("t/metadata.json"))
doc["elbow_thresholds"] = {"layer_0/self_attn_q_proj": {"elbow_p": 0.5, "elbow_value": 0.25}}
doc["creation_info"] = {"script_version": "x"}
doc["note"] = [1, 2.5]
open("t/layers.9.mlp.up_proj.lut.safetensors", "wb").write(open("t/model.layers.0.self_attn.o_proj.lut.safetensors", "rb").read().replace(b'"lut"', b'"tul"'))
doc["layers"]["layers.9.mlp.up_proj"] = {"input_dim": 48, "output_dim": 60, "num_basis": 145, "k_active": 2, "file": "layers.9.mlp.up_proj.lut.safetensors"}
doc["layers"]["layers.8.mlp.up_proj"] = doc["layers"]["layers.9.mlp.up_proj"] | {"file": "gone.lut.safetensors"}
doc["layers"]["model.layers.0.self_attn.q_proj"]["k_active"] = 1
json.dump(doc, open("t/metadata.json", "w"))
END
    # a run of other layers keeps even those
    lut-precompute -m model -s sparsify -o t --layers '*.0.mlp.down_proj'
    grep -q '"model.layers.8.mlp.up_proj"' t/metadata.json
    run -0 --separate-stderr lut-precompute --index t
    [ "$stderr" = "lut-precompute: t: model.layers.8.mlp.up_proj: its file is missing, left out" ]
    py - <<'END'
import json
doc = json.load(open("t/metadata.json"))
assert doc["elbow_thresholds"]["layer_0/self_attn_q_proj"]["elbow_value"] == 0.25
assert doc["creation_info"] == {"script_version": "x"} and doc["note"] == [1, 2.5]
assert list(doc["layers"]) == ["model.layers.0.mlp.down_proj"] + ["model.layers.%d.self_attn.%s" % (i, m)
    for i in (0, 1) for m in ("o_proj", "q_proj")] + ["model.layers.9.mlp.up_proj"], list(doc["layers"])
assert doc["layers"]["model.layers.9.mlp.up_proj"]["k_active"] == 2
assert doc["layers"]["model.layers.0.self_attn.q_proj"]["k_active"] == 6
END
    # a copy does not take the place of a layer's own file, unless it is gone
    own=model.layers.0.self_attn.q_proj.lut.safetensors
    cp t/$own t/z.lut.safetensors
    lut-precompute -m model -s sparsify -o t --layers '*.0.*.q_proj' --k 3 -f 2>said
    [ "$(cat said)" = "lut-precompute: t/z.lut.safetensors: is a table of model.layers.0.self_attn.q_proj, which has its own file: left out" ]
    grep -q "\"file\": \"$own\"" t/metadata.json
    rm t/$own
    run -0 --separate-stderr lut-precompute --index t
    [ -z "$stderr" ]
    grep -q '"file": "z.lut.safetensors"' t/metadata.json
    run -66 lut-precompute --index nothing
    mkdir empty
    run -66 lut-precompute --index empty
    [ "$output" = "lut-precompute: empty: has no tables (*.lut.safetensors)" ]
    [ -z "$(ls -A empty)" ]
}

@test "lut-precompute --index: a damaged table is 65, the others are listed" {
    make_cases
    lut-precompute -m model -s sparsify -o t --layers '*.q_proj,*.o_proj'
    cp t/metadata.json old
    rm t/metadata.json
    bad=model.layers.0.self_attn.o_proj.lut.safetensors
    printf '\377\377\0\0\0\0\0\0{}' >t/$bad
    run -65 --separate-stderr lut-precompute --index t
    [ "${stderr_lines[-1]}" = "lut-precompute: t/$bad: header length 65535, but the file has 10 bytes" ]
    [ "$(grep -c '"file"' t/metadata.json)" = 3 ]
    run -1 grep $bad t/metadata.json
    # what an index said stays; a run that makes other tables is not to blame
    cp old t/metadata.json
    run -65 lut-precompute --index t
    cmp old t/metadata.json
    lut-precompute -m model -s sparsify -o t --layers '*.0.*.q_proj' -f 2>said
    [ "$(cat said)" = "lut-precompute: t/$bad: header length 65535, but the file has 10 bytes" ]
}

@test "lut-precompute: a directory of routed experts, or a damaged index, is refused before any work" {
    make_cases
    make() {
        lut-precompute -m model -s sparsify -o t --layers '*.q_proj' "$@"
    }
    refused() { # METADATA WHAT
        mkdir -p t && echo "$1" >t/metadata.json
        for args in "" "--shard 0/2"; do
            # shellcheck disable=SC2086
            run -65 --separate-stderr make $args
            [[ $stderr == "lut-precompute: t/metadata.json: "$2 ]]
        done
        run -65 --separate-stderr lut-precompute --index t
        [ "$(ls t)" = metadata.json ]
        [ "$(cat t/metadata.json)" = "$1" ]
    }
    refused '{"version": "2.0", "layers": {}}' 'version is "2.0"*'
    refused '[]' 'the document is an empty array*'
    refused '{"version": "1.0", "lay' 'line 1, *'
    refused '{"vit_family": "clip", "layers": [11], "d_vit": 8}' 'layers is an array (expected an object)'
    levels() {
        printf "%${1}s" '' | tr ' ' "$2"
    }
    refused '{"layers": {}, "x": '"$(levels 64 '[')0$(levels 64 ']')}" 'line 1, column 84: nested 65 levels deep (expected at most 64)'
    refused '{"what": "of mine"}' 'layers is missing (expected an object)'
    printf '{"layers": {}, "x": %s0%s}' "$(levels 63 '[')" "$(levels 63 ']')" >t/metadata.json
    make
}

@test "lut-apply: a metadata.json that is older than a table is refused, not used" {
    make_cases
    layer=model.layers.0.self_attn.q_proj
    py -c 'import numpy as np; np.save("x.npy", np.ones((3, 60), "<f4"))'
    lut-precompute -m model -s sparsify -o t --layers $layer
    lut-precompute -m model -s sparsify -o t --layers $layer -f --shard 0/1 --centering explicit
    run -65 --separate-stderr lut-apply t $layer <x.npy
    [ "$stderr" = "lut-apply: t/$layer.lut.safetensors: says that input_centering is true, but metadata.json false (lut-precompute --index rewrites it)" ]
    lut-precompute --index t
    lut-apply t $layer <x.npy >/dev/null
    lut-precompute -m model -s sparsify -o t --layers $layer --resume --centering explicit --verify
}

@test "lut-precompute --index: a table that nothing describes is 65; layers that differ have the most frequent sae_config" {
    make_cases
    lut-precompute -m model -s sparsify -o t --layers '*.0.*.q_proj,*.0.*.o_proj'
    lut-precompute -m model -s sparsify -o t --layers '*.1.*.q_proj' --k 3
    rm t/metadata.json
    run -0 --separate-stderr lut-precompute --index t
    [ "$stderr" = "lut-precompute: t/metadata.json: layers differ in num_basis or k_active: sae_config has the most frequent, 145 and 6" ]
    run -0 --separate-stderr lut-precompute --index t # as before
    [ -z "$stderr" ]
    cp t/metadata.json old
    sed 's/"lut"/"tul"/' t/model.layers.0.self_attn.q_proj.lut.safetensors >t/a.lut.safetensors
    run -65 --separate-stderr lut-precompute --index t
    [ "$stderr" = "lut-precompute: t/a.lut.safetensors: does not say what it is of" ]
    cmp old t/metadata.json
}

@test "lut-precompute --index: numbers keep their value and their digits" {
    make_cases
    lut-precompute -m model -s sparsify -o t --layers '*.q_proj'
    numbers='0.69, 0.1, 1.0, -0.0, 100000.0, 1e+22, 1e-05, 123456789.125, 5e-324, 9007199254740993, -7, "1.50e3 \" 0.680"'
    py - "$numbers" <<'END'
import json, sys
doc = json.load(open("t/metadata.json"))
doc["note"] = json.loads("[%s]" % sys.argv[1])
json.dump(doc, open("t/metadata.json", "w"))
END
    lut-precompute --index t
    [ "$(sed -n '/"note"/,/]/p' t/metadata.json | tail -n +2 | head -n -1 | xargs -d '\n' | sed 's/,  */, /g; s/^ *//')" = "$numbers" ]
}
