# hf-infer: models with experts, against float64.
load helpers

IDS=3,141,59,26,53,58,97,9,32,38,46,264,338,32,7

setup_file() {
    "$PYTHON" "$BATS_TEST_DIRNAME/ref/tiny_models.py" "$BATS_FILE_TMPDIR"
}

moe() {
    printf '%s/qwen3_moe%s' "$BATS_FILE_TMPDIR" "$1"
}

@test "hf-infer: each token's nll of a model with experts is float64's, on every ISA" {
    for isa in scalar avx2 avx512 avx512bf16 amx neon; do
        has_isa $isa || continue
        for m in "" -dense-first-last -mlp-only -all-experts-f32; do
            TU_ISA=$isa hf-infer "$(moe "$m")" --ids $IDS --nll -q >nll
            PYTHONPATH="$ROOT/test/ref" "$PYTHON" -c '
import sys, numpy as np, transformer
ids = np.array(eval(sys.argv[2]))
z = transformer.forward(*transformer.load(sys.argv[1]), ids)[:-1]
z = np.log(np.exp(z - z.max(1, keepdims=True)).sum(1)) + z.max(1) - z[
    np.arange(len(z)), ids[1:]]
got = [float(x.split("\t")[2]) for x in open("nll").readlines()[1:]]
assert len(got) == len(z) and abs(got - z).max() < 2e-4, abs(got - z).max()
' "$(moe "$m")" "[$IDS]"
        done
    done
}

@test "hf-infer: experts' bits do not depend on -j, --chunk or --batch" {
    for m in "$(moe "")" "$(moe -dense-first-last)"; do
        for c in f32 bf16; do
            for o in '-j 1' '-j 2' '-j 3 --chunk 5' '--chunk 1'; do
                # shellcheck disable=SC2086
                hf-infer "$m" --ids $IDS --logits - --compute $c $o | cksum
            done | sort -u >sums
            [ "$(wc -l <sums)" = 1 ]
            for i in 1 2 3 4 5; do
                printf '{"id":%d,"ids":[%s]}\n' $i "$(seq -s, $i $((i * 9)))"
            done >lines
            hf-infer "$m" --jsonl --greedy -n 6 --batch 1 --compute $c <lines >one
            hf-infer "$m" --jsonl --greedy -n 6 --batch 4 --compute $c <lines >four
            cmp one four
        done
    done
}

@test "hf-infer --acts in:down_proj: refused where a layer has experts" {
    run -2 hf-infer "$(moe -dense-first-last)" --ids $IDS --acts in:down_proj:all
    [ "${lines[0]}" = "hf-infer: --acts in:down_proj:all: layer 1 has experts, and each has its own down_proj (in:gate_proj and mlp are of all)" ]
    run -0 hf-infer "$(moe -dense-first-last)" --ids $IDS --acts in:down_proj:0,2 -o acts
}

@test "hf-infer --lut: tables of a router or an expert are refused, of attention run" {
    env PYTHONPATH="$ROOT/test/ref" "$PYTHON" "$ROOT/test/ref/lut_model.py" make M single
    "$PYTHON" -c 'import json
m = json.load(open("M/lut/metadata.json"))
for old, new in (("up_proj", "experts.6.up_proj"), ("down_proj", "gate")):
    old, new = ("model.layers.0.mlp." + x for x in (old, new))
    m["layers"][new] = m["layers"].pop(old)
json.dump(m, open("M/lut/metadata.json", "w"))'
    for name in experts.6.up_proj gate; do
        run -65 hf-infer "$(moe "")" --lut M --lut-layers "*.0.mlp.$name" --ids $IDS --nll
        [ "$output" = "hf-infer: M/lut/metadata.json: model.layers.0.mlp.$name is a layer of experts, which run without tables (--lut-layers chooses)" ]
    done
    run -65 hf-infer "$(moe "")" --lut M --lut-layers '*.0.mlp.gate_proj' --ids $IDS --nll
    [[ "$output" == *": model.layers.0.mlp.gate_proj is no linear layer of "* ]]
    run -0 hf-infer "$(moe "")" --lut M --lut-layers '*.0.self_attn.o_proj' --ids $IDS --nll -q
}
