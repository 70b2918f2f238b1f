#!/usr/bin/env bats
# SPDX-License-Identifier: ISC
# moe-sft tune of a model with experts: what unit/lm says of the gradients, as
# its files show it.
load helpers

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    MOE=$ROOT/demo/qwen3-moe-tiny
    py - <<'END'
import json, random
random.seed(2)
with open("ids.jsonl", "w") as f:
    for i in range(10):
        ids = [random.randrange(1000) for _ in range(2 if i < 4 else random.randint(3, 24))]
        f.write(json.dumps({"ids": ids, "labels": ids}) + "\n")
END
}

tune() {
    moe-sft tune -m "$MOE" -d ids.jsonl -o "$1" --rank 4 --lr 3e-3 --batch 2 "${@:2}"
}

@test "moe-sft tune: experts' adapters have PEFT's names, and all of them are there" {
    tune run -n 1
    st-inspect list run/adapter_model.safetensors | cut -f 5 | tail -n +2 | sort >names
    py - "$MOE" <<'END' | sort | cmp names
import sys, mkst
for name in mkst.load(sys.argv[1] + "/model.safetensors"):
    if name.endswith("_proj.weight"):
        for m in "AB":
            print("base_model.model.%slora_%s.weight" % (name[:-len("weight")], m))
END
    grep -q 'layers.1.mlp.experts.3.down_proj.lora_B.weight' names
}

@test "moe-sft tune: steps of a model with experts are numpy's, those without a token do not move" {
    # of the first 4 lines one step is 2 tokens, which do not reach all experts
    run -0 py "$ROOT/test/ref/tune_ref.py" steps "$MOE" ids.jsonl 8 lr=2e-3 batch=1 decay=0.1
    [[ $output == *" pairs of matrices did not move"* ]]
}

@test "moe-sft tune: experts give the same bytes for any number of threads, and after a stop" {
    for j in 1 3; do
        tune j$j -n 5 -j $j
    done
    tune part -n 2
    tune part -n 5 --resume
    for f in adapter_model.safetensors log.tsv; do
        cmp j1/$f j3/$f
        cmp j1/$f part/$f
    done
}

@test "moe-sft tune --eval, merge: a model with experts is as hf-infer runs it" {
    printf %s "The sky is blue. Two plus two is four.<|im_end|>" >text
    py -c 'import json; print(json.dumps({"text": open("text").read()}))' >eval.jsonl
    tune run -n 10 --lr 2e-2 --compute f32 --eval eval.jsonl --eval-every 5
    moe-sft merge -b "$MOE" -l run -o merged
    for how in "$MOE" "$MOE --lora run" merged; do
        # shellcheck disable=SC2086
        hf-infer $how --nll --json -q <text
    done >said
    py - <<'END'
import json, math
rows = [l.rstrip("\n").split("\t") for l in open("run/log.tsv")]
plain, lora, merged = [json.loads(l)["perplexity"] for l in open("said")]
for said, row in (plain, rows[1]), (lora, rows[-1]):
    assert abs(math.exp(float(row[5])) - said) < 1e-6 * said, (row, said)
assert abs(math.log(merged / lora)) < 0.1 * abs(math.log(lora / plain)), (plain, lora, merged)
END
}

@test "moe-sft tune --base int8: learns as bf16 does, is resumed, and says what it takes" {
    moe-sft tune -m "$MOE" -d ids.jsonl --dry-run --base int8 >said
    # gate, up, down of 2 layers' 4 experts: a byte a weight, and a scale a row, in lines of 64
    py -c 'n = 2 * 4 * 3 * 96 * 64 + 2 * 4 * (2 * 96 + 64) * 4
import re
found = int(re.search("memory: the experts. weights in int8\t(.*)", open("said").read())[1])
assert n <= found < n + 128, (n, found)'
    tune bf16 -n 6 --lr 2e-3
    tune int8 -n 6 --lr 2e-3 --base int8
    tune part -n 3 --lr 2e-3 --base int8
    tune part -n 6 --lr 2e-3 --resume
    cmp int8/adapter_model.safetensors part/adapter_model.safetensors
    run -1 cmp -s int8/adapter_model.safetensors bf16/adapter_model.safetensors
    py -c 'a, b = [[float(l.split("\t")[1]) for l in open(d + "/log.tsv").readlines()[1:]] for d in ("bf16", "int8")]
assert all(abs(x - y) < 0.1 * x for x, y in zip(a, b)), (a, b)'
    run -65 --separate-stderr tune int8 -n 7 --lr 2e-3 --resume --base bf16
    [[ $stderr == *"--base"*int8* ]]
}

@test "moe-sft tune --base: what it cannot be is refused" {
    run -2 --separate-stderr tune run -n 1 --base int8 --compute f32
    [ "${stderr_lines[0]}" = "moe-sft: --base int8 is for --compute bf16" ]
    run -2 --separate-stderr tune run -n 1 --base fp8
    [ "${stderr_lines[0]}" = "moe-sft: --base fp8: of tune it is bf16 or int8 (-m is the model)" ]
    run -65 --separate-stderr moe-sft tune -m "$DEMO" -d ids.jsonl -o run -n 1 --base int8
    [ "$stderr" = "moe-sft: $DEMO: has no experts, whose weights could be int8" ]
    run -2 moe-sft check -m "$MOE" -d ids.jsonl -b "$MOE"
    tune int8 -n 1 --base int8
    run -65 --separate-stderr tune int8 -n 2 --resume --compute f32
    [ "$stderr" = "moe-sft: --base int8 is for --compute bf16" ]
    [ ! -e run ]
}

@test "moe-sft tune --base int8: weights are those of moe-sft quantize, also of a model in F32" {
    mkdir f32 same
    for d in f32 same; do cp "$MOE"/*.json $d; done
    # numbers that bf16 does not have
    py - "$MOE/model.safetensors" <<'END'
import sys, mkst, numpy as np
w = mkst.read(sys.argv[1])[0]
rng = np.random.default_rng(3)
mkst.save("f32/model.safetensors", {k: (x * (1 + rng.normal(0, 0.1, x.shape))).astype("<f4") for k, x in w.items()})
END
    for i in 0 1; do moe-sft quantize -b f32 --layer $i -o q$i >report; done
    py - <<'END'
import mkst
w = {k: x.astype("<f4") for k, x in mkst.read("f32/model.safetensors")[0].items()}
for i in 0, 1:
    q = mkst.read("q%d" % i)[0]
    for k in w:
        if k.startswith("model.layers.%d.mlp.experts." % i):
            e, name = k.split(".")[5:7]
            w[k] = (q[name][int(e)] * q[name + "_scale"][int(e)][:, None]).astype("<f4")
mkst.save("same/model.safetensors", w)
END
    for d in f32 same; do
        moe-sft tune -m $d -d ids.jsonl --grads $d.loss --targets q --base int8
    done
    py -c 'import mkst
a, b = (float(mkst.read(d + ".loss")[0]["loss"]) for d in ("f32", "same"))
assert abs(a - b) < 1e-6 * a, (a, b)'
}

@test "moe-sft tune --resume: a state of before bf16 attention and experts is continued only with --any-isa" {
    tune run -n 1
    tune exact -n 1 --compute f32
    before() {
        py - $1/state.safetensors "$2" <<'END'
import json, mkst, sys
d = open(sys.argv[1], "rb").read()
m = json.loads(d[8:8 + int.from_bytes(d[:8], "little")])["__metadata__"]
print(m["arithmetic"])
m["arithmetic"] = m["arithmetic"].replace(sys.argv[2], "")
mkst.save(sys.argv[1], mkst.load(sys.argv[1]), m)
END
    }
    [ "$(before exact none)" = "8 lanes" ]
    was=$(before run "bf16 experts, ")
    [[ $was == *", bf16 experts, "* ]]
    run -65 --separate-stderr tune run -n 2 --resume
    [[ $stderr == *": was made with ${was/bf16 experts, /}, which gives other bits than $was ("*"--any-isa continues)" ]]
    [[ $was == *", bf16 attention, "* ]] || skip "attention is exact with these instructions ($was)"
    before run "bf16 attention, "
    run -65 --separate-stderr tune run -n 2 --resume
    [[ $stderr == *": was made with ${was/bf16 attention, bf16 experts, /}, which gives other bits than $was ("*"--any-isa continues)" ]]
    run -0 --separate-stderr tune run -n 2 --resume --any-isa
    [[ $stderr == *"and continues with $was: its bits will differ"* ]]
}
