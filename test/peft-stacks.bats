# SPDX-License-Identifier: ISC
# PEFT's adapters of stacked experts, target_parameters, in hf-infer and moe-sft.
load helpers
load sft

setup_file() {
    [[ ${LEFT_OUT-} != *hf-infer* && ${LEFT_OUT-} != *moe-sft* ]] || return 0
    cd "$BATS_FILE_TMPDIR" || return
    cp -rL "$ROOT/demo/qwen3-moe-tiny" m
    py "$ROOT/test/ref/peft_stacks.py" m .
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/* .
}

@test "hf-infer --lora: stacks of experts' adapters are PEFT's delta, of each of its layouts" {
    for a in now before half joined down gate-up square-now square-before square-020 square-018; do
        m=m
        [[ $a != square* ]] || m=square
        run -0 --separate-stderr hf-infer $m --lora $a --ids 5,6,7,8,9,10,11,12 --logits got.npy -f -q
        [ -z "$stderr" ]
        hf-infer $a.merged --ids 5,6,7,8,9,10,11,12 --logits want.npy -f -q
        hf-infer $m --ids 5,6,7,8,9,10,11,12 --logits base.npy -f -q
        py -c '
import numpy as np, sys
got, want, base = (np.load(f + ".npy").astype("f8") for f in ("got", "want", "base"))
limit = 2e-4 * max(1, np.abs(want).max() / 5)
assert np.abs(got - want).max() < limit, np.abs(got - want).max()
assert np.abs(base - want).max() > 100 * limit, np.abs(base - want).max()'
    done
}

@test "moe-sft: stacks of experts' adapters are each expert's own, and convert writes them" {
    for a in now before joined; do
        for layer in 0 1; do
            moe-sft convert -b m --layer $layer -l $a -o $a.safetensors -f -q
            py - $a $layer <<'END_PY'
import sys, mkst, numpy as np
name, layer = sys.argv[1:]
t, own = mkst.load(name + ".safetensors"), np.load(name + ".npz")
assert len(t) == 6
for n, v in t.items():
    assert v[0] == "F32" and (mkst.values(*v) == own[layer + "." + n]).all(), n
END_PY
        done
    done
    for a in now joined; do
        moe-sft merge -q -b m -l $a -o merged -f 2>/dev/null
        py - $a <<'END_PY'
import sys, mkst, numpy as np
got, want = mkst.load("merged/model.safetensors"), mkst.load(sys.argv[1] + ".merged/model.safetensors")
for n in want:
    g, w = mkst.values(*got[n]), mkst.values(*want[n])
    assert (np.abs(g - w) <= np.abs(w) * 2.0 ** -8).all(), n
END_PY
    done
}

# bad ADAPTER PYTHON: a copy of it, x, whose tensors are t and configuration c
bad() {
    rm -rf x
    cp -r "$1" x
    py -c '
import json, sys, mkst, numpy as np
t, c = mkst.load("x/adapter_model.safetensors"), json.load(open("x/adapter_config.json"))
A = "base_model.model.model.layers.0.mlp.experts.lora_A.weight"
exec(sys.argv[1])
mkst.save("x/adapter_model.safetensors", t)
json.dump(c, open("x/adapter_config.json", "w"))' "$2"
}

@test "stacks of experts' adapters that do not fit, or may be either of two, are refused by name" {
    n=0
    while IFS='|' read -r base from change message; do
        bad "$from" "$change"
        for how in "hf-infer $base --ids 5 --lora x" "moe-sft info -b $base --layer 0 -l x" \
            "moe-sft merge -b $base -l x -o y"; do
            # shellcheck disable=SC2086
            run -65 --separate-stderr $how
            [[ $stderr == *"$message" && ! $stderr == *$'\n'* ]] || { echo "$how: $stderr"; return 1; }
            [ ! -e y ]
        done
        n=$((n + 1))
    done <<'END'
square|square-020|c["peft_version"] = "0.19.1.dev0@UNKNOWN"|x/adapter_model.safetensors: is of [64, 64] alone, and a square matrix does not show whether PEFT took it for its transposed, as some versions do
square|square-down|pass|x/adapter_model.safetensors: is of [64, 64] alone, and a square matrix does not show whether PEFT took it for its transposed, as some versions do
m|down|t[A] = np.zeros((12, 95), "<f4")|experts.lora_A.weight is [12, 95] (expected [12, 96])
m|down|t[A] = np.zeros((9, 96), "<f4")|experts.lora_A.weight is [9, 96] (expected [12, 96])
m|down|t[A] = np.zeros((12, 96), "<f2")|experts.lora_A.weight is F16, but base_model.model.model.layers.0.mlp.experts.lora_B.weight is F32
m|now|c["target_parameters"] = ["down_proj"]|model.layers.0.mlp.experts.base_layer: of gate_up_proj and down_proj, target_parameters has 1, but the tensors are of 2 parameters
m|down|c["target_parameters"] += ["gate_up_proj"]|model.layers.0.mlp.experts: of gate_up_proj and down_proj, target_parameters has 2, but the tensors are of 1 parameters
m|down|t = {n.replace("experts.", "experts.base_layer."): v for n, v in t.items()}|model.layers.0.mlp.experts.base_layer: of gate_up_proj and down_proj, target_parameters has 1, but the tensors are of 1 parameters
END
    [ $n = 8 ]
    bad down 'c["target_parameters"] = None'
    run -65 hf-infer m --ids 5 --lora x
    [[ $output == *"lora_A.weight is of no linear layer of m" ]]
    run -65 moe-sft convert -l now -o y.safetensors --layer 0
    [[ $output == *"lora_A.weight is of all experts, which only the base shows (-b BASE)" ]]
    [ ! -e y.safetensors ]
}

@test "moe-sft convert --stacked: PEFT's stacks are the same adapters, by its formula, and come back" {
    moe-sft init -q -b m --layer 0 -o l0.safetensors --seed 3 --rank 4
    moe-sft init -q -b m --layer 1 -o l1.safetensors --seed 4 --rank 3 --alpha 7
    for l in l0 l1; do
        edit $l.safetensors 'g = np.random.default_rng(int(m["lora_rank"]))
for n in t:
    if n.endswith("_b"): t[n] = mkst.bf16(g.standard_normal(t[n][1]) * 0.05)'
    done
    moe-sft convert -l l0.safetensors,l1.safetensors -o each
    moe-sft convert -l l0.safetensors,l1.safetensors -o stacks --stacked
    moe-sft convert -b m -l each -o again --stacked -q
    diff -r stacks again
    for a in each stacks; do
        hf-infer m --lora $a --ids 5,6,7,8 --logits $a.npy -q
    done
    cmp each.npy stacks.npy
    for l in 0 1; do
        moe-sft convert -b m --layer $l -l stacks -o back.safetensors -f -q
        py -c '
import sys, mkst
assert mkst.load("back.safetensors") == mkst.load(sys.argv[1])' l$l.safetensors
    done
    py - <<'END_PY'
import json, re, mkst, numpy as np
t, c = mkst.load("stacks/adapter_model.safetensors"), json.load(open("stacks/adapter_config.json"))
assert len(t) == 8 and c["target_modules"] == [] and c["layers_to_transform"] is None
assert c["target_parameters"] == ["layers.%d.mlp.experts.%s" % (l, p) for l in (0, 1)
                                  for p in ("gate_up_proj", "down_proj")]
def pattern(of, key, default): # PEFT's get_pattern_key()
    return next((v for k, v in of.items() if re.match(r"(.*\.)?(%s)$" % k, key)), default)
for layer in 0, 1:
    f = mkst.load("l%d.safetensors" % layer)
    own = {n: mkst.values(*v) for n, v in f.items()}
    r, s = own["gate_lora_a"].shape[1], (32 / 4, 7 / 3)[layer]
    for p, words, inner in ("gate_up_proj", ["gate", "up"], "base_layer."), ("down_proj", ["down"], ""):
        at = "model.layers.%d.mlp.experts." % layer
        A, B = (mkst.values(*t["base_model.model." + at + inner + "lora_%s.weight" % x]) for x in "AB")
        k = pattern(c["rank_pattern"], at + p, c["r"])
        scale = pattern(c["alpha_pattern"], at + p, c["lora_alpha"]) / k
        assert k == r * len(words) and A.shape[0] == B.shape[1] == 4 * k
        # ParamWrapper.get_delta_weight()
        delta = scale * np.einsum("ore,eri->eoi", B.reshape(len(B), -1, 4), A.reshape(4, -1, A.shape[1]))
        want = np.concatenate([s * own[w + "_lora_b"] @ own[w + "_lora_a"] for w in words], axis=1)
        assert delta.shape == want.shape and np.abs(delta - want).max() < 1e-12 * np.abs(want).max()
END_PY
    # whole or not at all
    run -73 moe-sft convert -l l0.safetensors,l1.safetensors -o stacks --stacked
    run -2 moe-sft convert -l l0.safetensors -o x.safetensors --stacked
    [ ! -e x.safetensors ]
    edit l1.safetensors 'del t["up_lora_b"]'
    run -65 moe-sft convert -l l0.safetensors,l1.safetensors -o bad --stacked
    [ ! -e bad ]
}

# data: d.jsonl
data_lines() {
    py -c 'import json, random
random.seed(5)
for n in 20, 9, 14:
    ids = [random.randrange(80) for _ in range(n)]
    print(json.dumps({"ids": ids, "labels": ids}))' >d.jsonl
}

# near GOT WANT BASE: logits that differ little, but from BASE's much
near() {
    py -c '
import numpy as np, sys
got, want, base = (np.load(f).astype("f8") for f in sys.argv[1:])
limit = 2e-4 * max(1, np.abs(want).max() / 5)
assert np.abs(got - want).max() < limit, np.abs(got - want).max()
assert np.abs(base - want).max() > 100 * limit, np.abs(base - want).max()' "$@"
}

@test "moe-sft tune: of a base whose experts are stacks the adapter is PEFT's, and all read it" {
    data_lines
    py "$ROOT/test/ref/family_ref.py" make gpt_oss gpt
    py "$ROOT/test/ref/family_ref.py" make qwen2_moe:dense dense
    py "$ROOT/test/ref/family_ref.py" make gpt_oss:mxfp4 packed
    st-convert -q gpt -o gpt32 --dtype f32
    st-convert -q packed -o unpacked --dequantize --dtype f32
    for m in m dense square; do py "$ROOT/test/ref/peft_stacks.py" stack $m $m.rows; done
    logits() { hf-infer "$@" --compute f32 --ids 5,6,7,8,9,10,11,12 -q -f; }
    for at in gpt:q,k,v,o,gate,up,down m.rows:gate,up,down dense.rows:gate,up,down gpt32:q,up \
        m.rows:q,down square.rows:down gpt32:gate,down unpacked:q,gate,up,down; do
        m=${at%:*}
        moe-sft tune -q -m $m -d d.jsonl -o run -f -n 6 --lr 2e-2 --rank 3 --alpha 7 --targets "${at#*:}" --compute f32
        # none has a single expert's name
        run -1 grep -aq 'experts\.[0-9]' run/adapter_model.safetensors
        rm -rf want
        py "$ROOT/test/ref/peft_stacks.py" merge $m run want
        run -0 --separate-stderr logits $m --lora run --logits got.npy
        [ -z "$stderr" ]
        logits want --logits want.npy
        logits $m --logits base.npy
        near got.npy want.npy base.npy
        # merge writes the same, each number rounded once
        for j in 1 3; do moe-sft merge -q -b $m -l run -o merged$j -f -j $j; done
        cmp merged[13]/model.safetensors
        if [[ $m = gpt32 || $m = unpacked ]]; then
            logits merged1 --logits merged.npy
            near merged.npy got.npy base.npy
        fi
        py - $m <<'END_PY'
import sys, mkst, numpy as np
base, got, want = (mkst.load(d + "/model.safetensors") for d in (sys.argv[1], "merged1", "want"))
assert base.keys() == got.keys() == want.keys()
ulp, n = {"F32": 2.0 ** -23, "BF16": 2.0 ** -8}, 0
for name in base:
    b, g, w = (mkst.values(*t[name]) for t in (base, got, want))
    assert got[name][:2] == base[name][:2] and (np.abs(g - w) <= np.abs(w) * ulp[base[name][0]] + 1e-7 * np.abs(w - b).max()).all(), name
    n += (g != b).any()
assert n, "nothing is merged"
END_PY
        # another run that begins with it, and one of PEFT's other scale
        moe-sft tune -q -m $m -d d.jsonl -o again -f -n 1 --lr 0 --compute f32 --init run
        logits $m --lora again --logits again.npy
        cmp got.npy again.npy
    done
    # as files of layers, and back
    moe-sft tune -q -m gpt -d d.jsonl -o run -f -n 6 --lr 2e-2 --compute f32 --targets gate,up,down
    for l in 0 1 2 3; do moe-sft convert -q -b gpt --layer $l -l run -o l$l.safetensors; done
    moe-sft convert -q -b gpt -l l0.safetensors,l1.safetensors,l2.safetensors,l3.safetensors -o back
    logits gpt --lora run --logits want.npy
    logits gpt --lora back --logits got.npy
    cmp got.npy want.npy
    logits gpt --lora l0.safetensors --lora l1.safetensors --lora l2.safetensors --lora l3.safetensors --logits got.npy
    cmp got.npy want.npy
    grep -aq experts.base_layer.lora_A back/adapter_model.safetensors
    run -2 moe-sft merge -b gpt -l run --layer 1 -o bad
    [ "${lines[0]}" = "moe-sft: --layer: a directory is merged whole, with all layers that -l adapts" ]
    # the adapter of a packed base, and the model that it is merged into
    moe-sft tune -q -m packed -d d.jsonl -o run -f -n 6 --lr 2e-2 --compute f32
    run -65 moe-sft merge -b packed -l run -o merged
    [[ $output == *"st-convert --dequantize first, and merge into that" ]]
    moe-sft merge -q -b unpacked -l run -o merged
    logits packed --lora run --logits want.npy
    logits merged --logits got.npy
    logits packed --logits base.npy
    near got.npy want.npy base.npy
    moe-sft tune -q -m gpt -d d.jsonl -o part -f -n 2 --targets gate,up,down
    moe-sft tune -q -m gpt -d d.jsonl -o part -n 4 --targets gate,up,down --resume
    moe-sft tune -q -m gpt -d d.jsonl -o whole -n 4 --targets gate,up,down
    cmp part/adapter_model.safetensors whole/adapter_model.safetensors
    sed -i 's/"use_rslora": false/"use_rslora": true/; s/gate_up_proj": 64/gate_up_proj": 45.254833995939045/' whole/adapter_config.json
    moe-sft tune -q -m gpt -d d.jsonl -o again -f -n 1 --lr 0 --init whole
    for key in rank_pattern alpha_pattern use_rslora target_parameters; do
        for d in whole again; do py -c 'import json, sys
print(json.load(open(sys.argv[1]+"/adapter_config.json"))[sys.argv[2]])' $d $key; done | uniq | wc -l
    done >said
    [ "$(sort -u said)" = 1 ]
    cmp whole/adapter_model.safetensors again/adapter_model.safetensors
}
