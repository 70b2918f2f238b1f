# SPDX-License-Identifier: ISC
# hf-infer: models with experts, and adapters, against float64.
load helpers

IDS=3,141,59,26,53,58,97,9,32,38,46,264,338,32,7

setup_file() {
    kept test/ref/tiny_models.py "$BATS_FILE_TMPDIR"
    "$PYTHON" "$BATS_TEST_DIRNAME/ref/lora_cases.py" "$BATS_FILE_TMPDIR/lora"
}

moe() {
    printf '%s/qwen3_moe%s' "$BATS_FILE_TMPDIR" "$1"
}

@test "hf-infer: each token's nll of a model with experts is float64's, on every ISA" {
    isas_here
    for m in "" -dense-first-last -mlp-only -all-experts-f32; do
        for isa in $ISAS; do
            TU_ISA=$isa hf-infer "$(moe "$m")" --ids $IDS --nll -q >"nll$m.$isa"
        done
    done
    py -c '
import sys, numpy as np, transformer
ids = np.array(eval(sys.argv[2]))
for m in "", "-dense-first-last", "-mlp-only", "-all-experts-f32":
    z = transformer.forward(*transformer.load(sys.argv[1] + m), ids)[:-1]
    z = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[
        np.arange(len(z)), ids[1:]]
    for isa in sys.argv[3:]:
        got = [float(x.split("\t")[2]) for x in open(f"nll{m}.{isa}").readlines()[1:]]
        assert len(got) == len(z) and abs(got - z).max() < 2e-4, (m, isa, abs(got - z).max())
' "$(moe "")" "[$IDS]" $ISAS
}

@test "hf-infer: experts' bits do not depend on -j, --chunk or --batch" {
    for m in "$(moe "")" "$(moe -dense-first-last)"; do
        for c in f32 bf16; do
            same_for '-j 1' '-j 2' '-j 3 --chunk 5' '--chunk 1' -- \
                hf-infer "$m" --ids $IDS --logits - --compute $c
            same_in_batches "$m" -n 6 --compute $c
        done
    done
}

# 70 tokens have 2 of 70 experts each: fewer rows than would fill a chunk's room.
@test "hf-infer: of more experts than share a call each has the bits that it has alone" {
    sets=$(printf -- '--set %s ' num_hidden_layers=2 num_experts=70 num_experts_per_tok=2 hidden_size=64 \
        moe_intermediate_size=24 num_attention_heads=2 num_key_value_heads=2 head_dim=32 vocab_size=1000)
    # shellcheck disable=SC2086
    py "$ROOT/scripts/random-model.py" --shape qwen3-30b-a3b $sets many
    for c in f32 bf16; do
        same_for '-j 1' '-j 3' '--chunk 1' -- hf-infer many --ids "$(seq -s, 7 13 910)" --logits - --compute $c
    done
}

@test "hf-infer --compute bf16: a token's bits do not depend on the types of experts that others have" {
    py - "$(moe "")" mixed <<'END'
import glob, os, re, shutil, sys, mkst
import numpy as np
os.makedirs(sys.argv[2])
shutil.copy(sys.argv[1] + "/config.json", sys.argv[2])
t = {k: v for f in glob.glob(sys.argv[1] + "/*.safetensors") for k, v in mkst.load(f).items()}
for k in t:
    if re.search(r"experts\.\d*[02468]\.", k) and t[k][0] == "BF16":
        wide = np.frombuffer(t[k][2], "<u2").astype("<u4") << 16
        t[k] = "F32", t[k][1], wide.tobytes()
mkst.save_raw(sys.argv[2] + "/model.safetensors", mkst.header(t), b"".join(v[2] for v in t.values()))
END
    st-inspect list mixed | grep 'F32.*experts'
    same_for '-j 1' '-j 2 --chunk 3' '--chunk 1' -- \
        hf-infer mixed --ids $IDS --acts resid:1 --compute bf16
}

@test "hf-infer: experts in one tensor a layer give the bits that a tensor each gives, in tune and merge, too" {
    for m in "" -dense-first-last; do
        py - "$(moe "$m")" fused <<'END'
import glob, json, os, re, shutil, sys, mkst
os.makedirs(sys.argv[2], exist_ok=True)
shutil.copy(sys.argv[1] + "/config.json", sys.argv[2])
t = {k: v for f in glob.glob(sys.argv[1] + "/*.safetensors") for k, v in mkst.load(f).items()}
n = json.load(open(sys.argv[1] + "/config.json"))["num_experts"]
for at in {m[1] for m in (re.match(r"(.*\.experts\.)0\.", k) for k in t) if m}:
    part = {w: [t.pop(f"{at}{e}.{w}_proj.weight") for e in range(n)] for w in ("gate", "up", "down")}
    dtype, (i, h), _ = part["gate"][0]
    t[at + "gate_up_proj"] = dtype, [n, 2 * i, h], b"".join(a[2] + b[2] for a, b in zip(part["gate"], part["up"]))
    t[at + "down_proj"] = dtype, [n, h, i], b"".join(a[2] for a in part["down"])
mkst.save_raw(sys.argv[2] + "/model.safetensors", mkst.header(t), b"".join(v[2] for v in t.values()))
END
        for how in f32 bf16; do
            for d in fused "$(moe "$m")"; do
                hf-infer "$d" --ids $IDS --logits - --compute $how | sha256sum
            done | uniq | wc -l | grep -qx 1
        done
    done
    echo '{"ids": [3, 14, 15, 92], "labels": [3, 14, 15, 92]}' >ids.jsonl
    for d in fused "$(moe -dense-first-last)"; do
        moe-sft tune -q -m "$d" -d ids.jsonl -o run -f -n 2 --batch 1 --rank 2 --lr 1e-2 --targets gate,up,down
        moe-sft merge -b "$d" -l run -o merged -f
        hf-infer merged --ids $IDS --logits - | cmp -s - <(hf-infer "$d" --ids $IDS --logits -) && echo same
        st-inspect list merged | grep -c experts >"$(basename "$d").n"
        { hf-infer "$d" --lora run --ids $IDS --logits - | sha256sum && hf-infer merged --ids $IDS --logits - | sha256sum; } | tr '\n' ' ' && echo
    done | uniq | wc -l | grep -qx 1
    [ "$(cat fused.n)" = "$(st-inspect list fused | grep -c experts)" ]
}

@test "hf-infer: the demo's trained experts give float64's nll" {
    hf-infer "$ROOT/demo/qwen3-moe-tiny" --file "$ROOT/demo/held-out.txt" --nll -q >nll
    py -c '
import sys, numpy as np, transformer
rows = [x.split("\t") for x in open("nll").readlines()[1:]]
ids = np.fromstring(sys.argv[2], int, sep=" ")
assert [int(r[1]) for r in rows] == ids[1:].tolist()
z = transformer.forward(*transformer.load(sys.argv[1]), ids)[:-1]
z = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[
    np.arange(len(z)), ids[1:]]
got = np.array([float(r[2]) for r in rows])
assert len(got) > 400 and abs(got - z).max() < 2e-4, abs(got - z).max()
' "$ROOT/demo/qwen3-moe-tiny" "$(hf-infer "$ROOT/demo/qwen3-moe-tiny" --encode --file "$ROOT/demo/held-out.txt")"
}

@test "hf-infer --acts in:down_proj: refused where a layer has experts" {
    run -2 hf-infer "$(moe -dense-first-last)" --ids $IDS --acts in:down_proj:all
    [ "${lines[0]}" = "hf-infer: --acts in:down_proj:all: layer 1 has experts, and each has its own down_proj (in:gate_proj and mlp are of all)" ]
    run -0 hf-infer "$(moe -dense-first-last)" --ids $IDS --acts in:down_proj:0,2 -o acts
}

@test "hf-infer --lut: tables of a router or an expert are refused, of attention run" {
    py "$ROOT/test/ref/lut_model.py" make M single
    "$PYTHON" -c 'import json
m = json.load(open("M/lut/metadata.json"))
for old, new in (("up_proj", "experts.6.up_proj"), ("down_proj", "gate")):
    old, new = ("model.layers.0.mlp." + x for x in (old, new))
    m["layers"][new] = m["layers"].pop(old)
json.dump(m, open("M/lut/metadata.json", "w"))'
    for name in experts.6.up_proj gate; do
        run -65 hf-infer "$(moe "")" --lut M --lut-layers "*.0.mlp.$name" --ids $IDS --nll
        [ "$output" = "hf-infer: M/lut/metadata.json: model.layers.0.mlp.$name is a layer of experts, which run without tables (--lut-layers selects)" ]
    done
    run -65 hf-infer "$(moe "")" --lut M --lut-layers '*.0.mlp.gate_proj' --ids $IDS --nll
    [[ "$output" == *": model.layers.0.mlp.gate_proj is not a linear layer of "* ]]
    run -0 hf-infer "$(moe "")" --lut M --lut-layers '*.0.self_attn.o_proj' --ids $IDS --nll -q
}

# with_lora CASE: its model and adapters, as options.
with_lora() {
    printf '%s ' "$BATS_FILE_TMPDIR/lora/$1"
    sed 's/^/--lora /' "$BATS_FILE_TMPDIR/lora/$1/adapters"
}

ids_of() {
    od --endian=little -An -v -t d4 -w4 "$BATS_FILE_TMPDIR/lora/$1/ids.i32" | paste -sd, | tr -d ' '
}

@test "hf-infer --lora: each token's nll is float64's of the merged weights, on every ISA" {
    isas_here
    while read -r case; do
        ids=$(ids_of "$case")
        for isa in $ISAS; do
            # shellcheck disable=SC2046 # options are words
            TU_ISA=$isa hf-infer $(with_lora "$case") --ids "$ids" --nll -q >"nll-$case.$isa"
        done
    done <"$BATS_FILE_TMPDIR/lora/cases"
    "$PYTHON" -c '
import sys, numpy as np
for case in open(sys.argv[1] + "/cases").read().split():
    d = sys.argv[1] + "/" + case
    ids = np.fromfile(d + "/ids.i32", "<i4")
    z = np.fromfile(d + "/logits.f64", "<f8").reshape(len(ids), -1)[:-1]
    z = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[
        np.arange(len(z)), ids[1:]]
    for isa in sys.argv[2:]:
        got = [float(x.split("\t")[2]) for x in open(f"nll-{case}.{isa}").readlines()[1:]]
        assert len(got) == len(z) and abs(got - z).max() < 2e-4, (case, isa, abs(got - z).max())
' "$BATS_FILE_TMPDIR/lora" $ISAS
}

@test "hf-infer --lora: one list or some options, and the bits of any -j and --batch" {
    L=$BATS_FILE_TMPDIR/lora/moe-three
    # shellcheck disable=SC2046
    same_for '-j 1' '-j 2 --chunk 5' '-j 3 --chunk 1' -- \
        hf-infer $(with_lora moe-three) --ids $IDS --logits -
    mv sums options
    same_for '-j 1' '-j 2 --chunk 5' '-j 3 --chunk 1' -- \
        hf-infer "$L" --lora "$(paste -sd, "$L/adapters")" --ids $IDS --logits -
    cmp options sums
    # shellcheck disable=SC2046
    same_in_batches $(with_lora moe-three) -n 6
    # shellcheck disable=SC2046
    run -0 --separate-stderr hf-infer $(with_lora moe-three) --ids $IDS --top 1 -v
    # 7 experts with three matrices twice, then their down_proj on three layers
    [[ $stderr == *"hf-infer: adapters for 63 linear layers"* ]]
}

@test "hf-infer --lora --acts: looking changes no bit, and points add up" {
    for case in llama moe; do
        for p in resid attn mlp; do
            # shellcheck disable=SC2046
            hf-infer $(with_lora $case) --ids $IDS --acts $p:0-2 >$p
        done
        # shellcheck disable=SC2046
        hf-infer $(with_lora $case) --ids $IDS --acts resid:-1,0,1 >before
        "$PYTHON" -c 'import numpy as np
f = lambda p: np.fromfile(p, "<f4")
assert (f("before") + f("attn") + f("mlp") == f("resid")).all()'
    done
}

@test "hf-infer --lora --lut: what the adapter adds comes to the table's output" {
    py "$ROOT/test/ref/lut_model.py" make M single
    L=$BATS_FILE_TMPDIR/lora/llama/lora0
    for o in "--lora $L" "--lora $L --lut M --ratio 1" "--lut M --ratio 1"; do
        # shellcheck disable=SC2086
        hf-infer M $o --ids $IDS --nll --json -q
    done | "$PYTHON" -c 'import json, sys
dense, tables, none = (json.loads(x)["nll_mean"] for x in sys.stdin)
assert abs(dense - tables) < 0.05 < abs(dense - none), (dense, tables, none)'
}

@test "hf-infer --lora: what is no adapter of the model is refused" {
    M=$BATS_FILE_TMPDIR/lora/moe
    run -66 hf-infer "$M" --lora nowhere --ids $IDS --nll
    [[ $output == "hf-infer: nowhere: "* ]]
    mkdir empty
    run -66 hf-infer "$M" --lora empty --ids $IDS --nll
    [[ $output == "hf-infer: empty/adapter_config.json: "* ]]
    run -65 hf-infer "$BATS_FILE_TMPDIR/lora/llama" --lora "$M/lora0" --ids $IDS --nll
    [[ $output == "hf-infer: $M/lora0/adapter_model.safetensors: base_model.model.model.layers.1.mlp."*" is of no linear layer of $BATS_FILE_TMPDIR/lora/llama" ]]
    cp -r "$M/lora0" turned # gets no warning as well
    sed -i 's/"fan_in_fan_out": false/"fan_in_fan_out": true/' turned/adapter_config.json
    run -65 hf-infer "$BATS_FILE_TMPDIR/lora/llama" --lora turned --ids $IDS --nll
    [[ $output == "hf-infer: turned/adapter_model.safetensors: base_model."*" is of no linear layer of "* ]]
    run -2 hf-infer "$M" --lora "$M/lora0@1" --ids $IDS --nll
    [ "${lines[0]}" = "hf-infer: $M/lora0@1: the tensors of a directory name their layers, @LAYER is for files" ]
    run -65 hf-infer "$(moe "")" --lora "$BATS_FILE_TMPDIR/lora/moe-stacked/lora0" --ids $IDS --nll
    [ "$output" = "hf-infer: $BATS_FILE_TMPDIR/lora/moe-stacked/lora0: does not say which layer it is for, and $(moe "") has 3 with experts (--lora FILE@LAYER says it)" ]
    run -0 hf-infer "$(moe "")" --lora "$BATS_FILE_TMPDIR/lora/moe-stacked/lora0@2" --ids $IDS --nll -q
    # shellcheck disable=SC2046
    run -2 hf-infer "$M" $(seq -f '--lora %g' 17) --ids $IDS --nll
    [ "${lines[0]}" = "hf-infer: --lora: given more than 16 times" ]
    run -2 hf-infer "$M" --lora "$M/lora0" --encode -p x
}

@test "hf-infer --lora: an adapter that names another base than this model is a warning" {
    cp -r "$BATS_FILE_TMPDIR/lora/llama" Llama-3.2-1B
    cp -r Llama-3.2-1B/lora0 a
    said() { # BASE MODEL: what is said
        py - "$1" <<'END'
import json, sys
c = json.load(open("a/adapter_config.json"))
c["base_model_name_or_path"] = sys.argv[1]
json.dump(c, open("a/adapter_config.json", "w"))
END
        run -0 --separate-stderr hf-infer "$2" --lora a --ids $IDS --logits x -f
        echo "$stderr"
    }
    is="hf-infer: a/adapter_config.json: is of the base"
    [ "$(said meta-llama/Llama-3.2-3B Llama-3.2-1B)" = "$is meta-llama/Llama-3.2-3B, but this model is Llama-3.2-1B" ]
    mkdir -p hub/models--meta-llama--Llama/snapshots
    mv Llama-3.2-1B hub/models--meta-llama--Llama/snapshots/0f1e
    ln -s hub/models--meta-llama--Llama/snapshots/0f1e m
    [ "$(said meta-llama/Other m)" = "$is meta-llama/Other, but this model is Llama" ]
    cp -rL m copy
    [ "$(said hub/models--meta-llama--Llama/snapshots/0f1e copy)" = "$is hub/models--meta-llama--Llama/snapshots/0f1e, but this model is copy" ]
    # the same one by its other names, and a name that says nothing
    for base in unsloth/llama m/ "$PWD/hub/models--meta-llama--Llama/snapshots/0f1e" "" /other/hub/models--meta-llama--Llama/snapshots/77/; do
        [ -z "$(said "$base" m)" ]
    done
    [ -z "$(said meta-llama/Other copy)" ]
}

@test "hf-infer --lora: what moe-sft converts to PEFT's names has the same bits" {
    M=$ROOT/demo/qwen3-moe-tiny
    hf-infer "$M" --acts in:gate_proj:1 --ctx 64 --file "$ROOT/demo/training.txt" -q -o in.npy
    hf-infer "$M" --acts resid:1 --ctx 64 --file "$ROOT/demo/training.txt" -q -o to.npy
    moe-sft init -b "$M" --layer 1 --rank 3 --alpha 5 -o lora
    moe-sft train -b "$M" --layer 1 -l lora -i in.npy --target to.npy -o run -n 3 --lr 0.1 --length 64
    moe-sft convert -b "$M" --layer 1 -l run/lora.safetensors -o peft
    for l in lora run/lora.safetensors peft run; do
        hf-infer "$M" --lora $l --ids $IDS --logits - | cksum
    done >sums
    hf-infer "$M" --ids $IDS --logits - | cksum >none
    # B is zero before training, not after
    [ "$(sed -n 1p sums)" = "$(cat none)" ]
    [ "$(sed -n 2p sums)" != "$(cat none)" ]
    [ "$(sed -n 2p sums)" = "$(sed -n 3p sums)" ]
    [ "$(sed -n 2p sums)" = "$(sed -n 4p sums)" ]
}

@test "hf-infer --lora: a kilobyte of adapter_config.json asks for gigabytes, or minutes: refused" {
    not_sanitized "sanitizers reserve more"
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    cp -r "$BATS_FILE_TMPDIR/lora/bad-pattern" peft
    refuses_patterns hf-infer "$BATS_FILE_TMPDIR/lora/moe" --ids 1,2 --lora peft -j 1
}
