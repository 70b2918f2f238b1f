# SPDX-License-Identifier: ISC
# hf-infer --lut: linear layers on their tables, against float64.
load helpers

ref() {
    run -0 py "$ROOT/test/ref/lut_model.py" "$@"
}

IDS=3,141,59,26,53,58,97,9,32,38,46,264,338,32,7

@test "hf-infer --lut: each token's nll is float64's on the same tables" {
    ref tables
    [ "$output" = 10 ]
}

@test "hf-infer --lut --ratio 1: the dense model's nll, up to the tables' rounding" {
    ref identity
    [ "$output" = 6 ]
}

# bats test_tags=long
@test "hf-infer --lut --tau, --dims: float64's on the same inputs; what is missing is named" {
    ref fixed
    [ "$output" = 2 ]
    rm dims/model.layers.1.mlp.down_proj.npy
    run -66 hf-infer fix --lut fix --ids $IDS --nll --dims dims
    [[ "$output" = "hf-infer: dims/model.layers.1.mlp.down_proj.npy: No such file"* ]]
    "$PYTHON" -c 'import numpy as np; np.save("dims/model.layers.1.mlp.down_proj.npy", np.int32([3, 2]))'
    run -65 hf-infer fix --lut fix --ids $IDS --nll --dims dims
    [[ "$output" = "hf-infer: dims/model.layers.1.mlp.down_proj.npy: [1] is 2 after 3"* ]]
    ref make M single
    run -65 hf-infer M --lut M --ids $IDS --nll --tau 1
    [[ "$output" = "hf-infer: M/lut/metadata.json: has no elbow threshold for model.layers.0."*" (lut-precompute calibrate sets it)" ]]
    run -2 hf-infer M --lut M --ids $IDS --nll --tau 1 --ratio 0.1
    run -2 hf-infer M --ids $IDS --nll --tau 1
    hf-infer fix --lut fix --ids $IDS --acts resid:0 --tau 1.5 --acts-meta m.json -o a.f32
    grep -q '"tau": 1.5' m.json
    "$PYTHON" -c 'import numpy as np; np.save("dims/model.layers.1.mlp.down_proj.npy", np.int32([2, 3]))'
    hf-infer fix --lut fix --ids $IDS --acts resid:0 --dims dims --acts-meta m.json -o a.f32 -f
    grep -q '"dims": "dims".*"dims_xxh3": "' m.json
    sums() { # how many dumps these are: other inputs make another, other files do not
        hf-infer fix --lut fix --ids $IDS --acts resid:0 --dims dims --acts-meta m.json -o a.f32 -f
        grep -o '"dims_xxh3": "[^"]*"' m.json >>sums
        sort -u sums | wc -l
    }
    [ "$(sums)" = 1 ]
    cp dims/model.layers.1.mlp.down_proj.npy dims/x.npy
    [ "$(sums)" = 1 ]
    "$PYTHON" -c 'import numpy as np; np.save("dims/model.layers.1.mlp.down_proj.npy", np.int32([2, 4]))'
    [ "$(sums)" = 2 ]
}

@test "hf-infer --lut-report: numpy's metrics of a table on the model's own inputs" {
    ref report
    [ "$output" = 13 ]
}

@test "hf-infer --lut-report -v: the time of each table and of its layer" {
    ref make M fused
    hf-infer M --ids $IDS --lut M --lut-report r -v --nll 2>said
    [ "$(grep -cE ': [0-9.]+ us a token by its table, [0-9.]+ by its weights$' said)" = "$(($(wc -l <r) - 1))" ]
}

@test "hf-infer --lut-auto: each table's nats alone, in order of what a nat saves" {
    ref auto
    [ "$output" = 6 ]
    # one that ruins the model is not kept
    py - M/lut/model.layers.0.mlp.gate_up_proj.lut.safetensors <<'END'
import sys, numpy as np, mkst
from tiny_models import write_safetensors
tensors, _ = mkst.load_all(sys.argv[1])
held = {k: mkst.values(*v).copy() for k, v in tensors.items()}
held["precomputed_products"][:] = np.nan
write_safetensors(sys.argv[1], held, lambda k: tensors[k][0])
END
    run -0 --separate-stderr hf-infer M --ids $IDS --lut M --lut-auto 1e6
    grep -q $'^model.layers.0.mlp.gate_up_proj\t.*\tinf\tinf\tno$' <<<"$output"
    [ "$(sed '1,/inf/d' <<<"$output" | grep -c 'yes$')" = 0 ]
    run -2 hf-infer M --ids 1,2,3 --lut-auto 0.1
    run -2 hf-infer M --ids 1,2,3 --lut M --lut-auto -1
    run -2 hf-infer M --ids 1,2,3 --lut M --lut-auto 0.1 --nll
    run -65 hf-infer M --ids 1 --lut M --lut-auto 0.1
    [ "$output" = "hf-infer: --ids: the prompt has 1 token (--lut-auto needs at least 2)" ]
    run -2 hf-infer M --ids 1,2,3 --lut M --lut-auto 0.1 --ctx 1
    [ "${lines[0]}" = "hf-infer: --ctx 1: a window's first token has no score, and there is no other" ]
}

@test "hf-infer --lut-auto: a table whose encoder costs 20 times its layer is left out" {
    py - <<'END'
import lut_model
lut_model.make("M", ["mlp.up_proj"], n=4096, k=2)
END
    run -0 --separate-stderr hf-infer M --ids $IDS --lut M --lut-auto 1e6
    awk -F '\t' 'NR > 1 && ($4 >= 0 || $7 != "no")' <<<"$output" >kept
    [ ! -s kept ]
    [[ "$stderr" = "hf-infer: 0 of 3 tables kept: 0.0 us saved per token, "* ]]
}

@test "hf-infer --lut: the bits do not depend on -j, --chunk or --batch" {
    ref make M fused
    same_for '-j 1' '-j 2' '-j 3 --chunk 5' '--chunk 1' '--no-screen' '--lut-report r --force' -- \
        hf-infer M --ids $IDS --logits - --lut M --ratio 0.3
    same_in_batches M -n 6 --lut M
}

@test "hf-infer --lut: the demo's SAE gives the same nll, screened or not" {
    lut-precompute -q -m "$ROOT/demo/qwen3-tiny" -s "$ROOT/demo/sae" --fuse gate_up -o lut
    head -c 8000 "$ROOT/demo/held-out.txt" >text
    for options in '' '--ratio 0.25' '--chunk 9'; do
        hf-infer "$ROOT/demo/qwen3-tiny" --lut lut $options --nll --json --file text -q >screened
        hf-infer "$ROOT/demo/qwen3-tiny" --lut lut $options --no-screen --nll --json --file text -q | cmp - screened
    done
    run -0 --separate-stderr hf-infer "$ROOT/demo/qwen3-tiny" --lut lut -v --nll --file text
    [[ $stderr != *screening* || $stderr == *"screening: 0 of "*" rows were computed exactly"* ]]
}

@test "hf-infer --lut: --nll on tables, and its cost with --json" {
    ref make M single
    hf-infer M --ids $IDS --nll --json -q >dense
    hf-infer M --lut M/lut --ids $IDS --nll --json -q >tables
    run -1 cmp -s dense tables
    run -0 --separate-stderr hf-infer M --lut M --lut-layers '*.0.*' --ids $IDS --nll --json -v
    [[ "$stderr" = *"7 tables of M, ratio 0"* ]]
    [[ "$stderr" != *compensation* ]]
}

@test "hf-infer -v: a name is escaped in its lines, as in a warning" {
    ref make M single
    ln -s M $'a\nb'
    run -0 --separate-stderr hf-infer M --lut $'a\nb' --ids $IDS --nll -v
    [[ "$stderr" = *"hf-infer: "*" tables of a\\nb, ratio 0"* ]]
}

@test "hf-infer --lut -v: whose weights compensate is said" {
    said() {
        hf-infer M --lut t --ratio 0.5 --ids $IDS --nll -v "$@" 2>&1 >/dev/null | grep compensation
    }
    ref make M single
    lut=M
    [ ! -d M/lut ] || lut=M/lut
    for layer in layers.0.self_attn.q_proj layers.0.mlp.up_proj; do # tables are SAEs, too
        lut-precompute -q -m M -s $lut/model.$layer.lut.safetensors -o t --layers $layer
    done
    [ "$(said)" = "hf-infer: compensation by the model's weights" ]
    layer=layers.0.mlp.up_proj
    lut-precompute -q -m M -s $lut/model.$layer.lut.safetensors -o t --layers $layer --store-weights -f
    [ "$(said)" = "hf-infer: compensation by the tables' stored weights, else by the model's" ]
    [ "$(said --lut-layers '*.up_proj')" = "hf-infer: compensation by the tables' stored weights" ]
}

@test "hf-infer --lut: what does not fit the model is refused by name" {
    ref make M fused
    ref make S single
    run -65 hf-infer M --lut M --lut-layers '*.9.*' --ids $IDS --nll
    [ "$output" = "hf-infer: M/lut/metadata.json: has no layer *.9.* (--lut-layers)" ]
    run -65 hf-infer M --lut M --lut-layers '*.qkv_proj,*.w_proj' --ids $IDS --nll
    [ "$output" = "hf-infer: M/lut/metadata.json: has no layer *.w_proj (--lut-layers)" ]
    run -65 hf-infer M --lut M --lut-layers layers.0.self_attn.qvk_proj --ids $IDS --nll
    [ "$output" = 'hf-infer: M/lut/metadata.json: has no layer layers.0.self_attn.qvk_proj (--lut-layers) (did you mean "layers.0.self_attn.qkv_proj"?)' ]
    for list in , ''; do
        run -2 --separate-stderr hf-infer M --lut M --lut-layers "$list" --ids $IDS --nll
        [ "${stderr_lines[0]}" = "hf-infer: --lut-layers: \"$list\" has no pattern" ]
    done
    hf-infer M --lut M --lut-layers '*.qkv_proj,' --ids $IDS --nll -q
    run -66 hf-infer M --lut nowhere --ids $IDS --nll
    run -65 hf-infer "$DEMO" --lut M --ids $IDS --nll
    [[ "$output" = "hf-infer: M/lut/model.layers.0.mlp.down_proj.lut.safetensors: has 172 inputs and 60 outputs, but model.layers.0.mlp.down_proj of the model has "* ]]
    "$PYTHON" -c 'import json
a, b = json.load(open("M/lut/metadata.json")), json.load(open("S/lut/metadata.json"))
b["layers"]["model.layers.0.self_attn.qkv_proj"] = a["layers"]["model.layers.0.self_attn.qkv_proj"]
b["layers"]["model.layers.7.mlp.up_proj"] = dict(b["layers"]["model.layers.0.mlp.up_proj"], file="seven")
json.dump(b, open("S/lut/metadata.json", "w"))'
    cp M/lut/model.layers.0.self_attn.qkv_proj.lut.safetensors S/lut
    cp S/lut/model.layers.0.mlp.up_proj.lut.safetensors S/lut/seven
    run -65 hf-infer S --lut S --ids $IDS --nll
    [ "$output" = "hf-infer: S/lut/metadata.json: has two tables for model.layers.0.self_attn.q_proj (--lut-layers selects)" ]
    run -65 hf-infer S --lut S --lut-layers '*.7.*' --ids $IDS --nll
    [ "$output" = "hf-infer: S/lut/metadata.json: model.layers.7.mlp.up_proj is not a linear layer of S" ]
    hf-infer S --lut S --lut-layers '*.qkv_proj,*.mlp.down_proj' --ids $IDS --nll -q
    run -2 hf-infer M --ratio 0.5 --ids $IDS --nll
    run -2 hf-infer M --lut M --lut-report - --ids $IDS --nll
}

@test "hf-infer --lut-report: an existing file is kept without --force" {
    ref make M fused
    echo mine >r
    run -73 hf-infer M --lut M --lut-report r --ids $IDS --nll
    [ "$(cat r)" = mine ]
    run -73 hf-infer M --lut M --lut-report r --ids $IDS --nll -o out
    [ "$(ls -A)" = "$(printf 'M\nr')" ]
    hf-infer M --lut M --lut-report r --ids $IDS --nll -q -f
    [ "$(wc -l <r)" = 13 ]
    [ "$(head -n 2 r | tail -n 1 | cut -f 1,2)" = "$(printf 'model.layers.0.mlp.down_proj\t15')" ]
}
