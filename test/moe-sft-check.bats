# SPDX-License-Identifier: ISC
# moe-sft check: right gradients are right, wrong ones are named.
load helpers

ref() {
    "$PYTHON" "$ROOT/test/ref/moe_train.py" "$@"
}

setup_file() {
    ref make "$BATS_FILE_TMPDIR/data" qlen=64
}

# In the middle of the data: ./b0 .. b3.safetensors and what they need.
setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    cp -r "$BATS_FILE_TMPDIR"/data/* .
}

@test "moe-sft check: all gradients are right, bf16 and int8, whole and in parts" {
    for how in "--mode bf16" "--mode int8" "--tp 3" "-j 1 --samples 3 --seed 9"; do
        # shellcheck disable=SC2086
        run -0 moe-sft check -b base.safetensors -l teacher.safetensors -i b0.safetensors $how
        [ "${lines[0]}" = "$(printf 'tensor\texpert\tcompared\tn\tmax\tmean\tlimit\tok')" ]
        # output, input and weights; six matrices of 4 experts
        [ "${#lines[@]}" = 28 ]
        [[ $output != *$'\t'no* ]]
    done
    # shellcheck disable=SC2086
    moe-sft check -b base.safetensors -l teacher.safetensors -i b0.safetensors $how -o table >said
    [ ! -s said ]
    [ "$(cat table)" = "$output" ]
    run -73 moe-sft check -b base.safetensors -l teacher.safetensors -i b0.safetensors -o table
}

@test "moe-sft check: the operator's differences are numpy's" {
    moe-sft check -b base.safetensors -l teacher.safetensors -i b0.safetensors >table
    py - <<'PY'
import os, sys
import subprocess, mkst, moe
t, _ = moe.read("b0.safetensors")
want = moe.reference(moe.read("base.safetensors")[0], moe.read("teacher.safetensors")[0], 10.0, t)
subprocess.run("moe-sft forward -b base.safetensors -l teacher.safetensors -i b0.safetensors"
               " -o f.safetensors", shell=True, check=True)
got = moe.read("f.safetensors")[0]["output"]
row = [l.split("\t") for l in open("table")][1]
d = moe.relative(got, want["output"])
assert row[0] == "output" and abs(float(row[5]) / d - 1) < 0.01, (row, d)
PY
}

@test "moe-sft check: without a target the gradient is one of its own" {
    py - <<'PY'
import os, sys
import mkst, moe
t, _ = moe.read("b0.safetensors")
ids = t["expert_ids"].copy()
ids[ids == 3] = -1  # an idle expert, slots without any
for n, name in (64, "bare"), (0, "none"):
    mkst.save(name + ".safetensors", dict(input=mkst.bf16(t["input"][:n]), expert_ids=ids[:n].astype("<i8"),
                                          weights=t["weights"][:n].astype("<f4")))
PY
    run -0 moe-sft check -b base.safetensors -l teacher.safetensors -i bare.safetensors
    # the idle expert's gradients are zero, exactly
    [ "$(printf '%s\n' "$output" | awk '$2 == 3' | cut -f 3,5,6 | sort -u)" = "$(printf 'operator:difference\t0\t0')" ]
    # no tokens: there is nothing but such gradients
    run -0 moe-sft check -b base.safetensors -l teacher.safetensors -i none.safetensors
    [ "$(printf '%s\n' "$output" | tail -n +2 | cut -f 3,5,6 | sort -u)" = "$(printf 'operator:difference\t0\t0')" ]
    # no samples: the output alone
    run -0 moe-sft check -b base.safetensors -l teacher.safetensors -i bare.safetensors --samples 0
    [ "${#lines[@]}" = 2 ]
}

# bats test_tags=long
@test "moe-sft check: right gradients are right where sums cancel and tokens are few" {
    # one token of expert 2, whose h A^T is 0 but for the rounding of A; another
    # adapter whose B^T dy, and then <da0, h>, of a single token nearly vanish
    py - <<'PY'
import numpy as np, mkst, moe
t, _ = moe.read("b0.safetensors")
base = moe.read("base.safetensors")[0]
lora, meta = moe.read("teacher.safetensors")
s = float(meta["lora_alpha"]) / float(meta["lora_rank"])
ids = t["expert_ids"].copy()
ids[:] = [0, 1]
ids[7, 1] = 2
mkst.save("few.safetensors", dict(input=mkst.bf16(t["input"]), expert_ids=ids.astype("<i8"),
                                  weights=t["weights"].astype("<f4")))
x = t["input"][7].astype(float)
def up(p):
    a, b = lora[p + "_lora_a"][2].astype(float), lora[p + "_lora_b"][2].astype(float)
    return base[p + "_proj"][2].astype(float) @ x + s * b @ (a @ x)
g = up("gate")
h = g / (1 + np.exp(-g)) * up("up")
a = lora["down_lora_a"].astype(float).copy()
for _ in range(3):
    a[2] -= np.outer(a[2] @ h, h) / (h @ h)
lora["down_lora_a"] = a
mkst.save("zero.safetensors", {n: mkst.bf16(np.asarray(v, "<f4")) for n, v in lora.items()}, meta)
PY
    for how in "--mode bf16" "--mode int8"; do
        # shellcheck disable=SC2086
        run -0 moe-sft check -b base.safetensors -l zero.safetensors -i few.safetensors $how
    done
    for seed in 1 2 3 4 5 6 7 8; do
        ref make "tiny$seed" qlen=1 r=1 seed=$seed
        for how in "--mode bf16" "--mode int8"; do
            # shellcheck disable=SC2086
            run -0 moe-sft check -b "tiny$seed/base.safetensors" -l "tiny$seed/teacher.safetensors" \
                -i "tiny$seed/b0.safetensors" $how
        done
    done
}

@test "moe-sft check: 1, and which, where int8 cannot hold the numbers" {
    py - <<'PY'
import os, sys
import mkst, moe
t, _ = moe.read("b0.safetensors")
t["input"][:, ::17] *= 30000  # columns beside which the others are rounded off
mkst.save("wild.safetensors", dict(input=mkst.bf16(t["input"]), expert_ids=t["expert_ids"].astype("<i8"),
                                   weights=t["weights"].astype("<f4")))
PY
    moe-sft check -b base.safetensors -l teacher.safetensors -i wild.safetensors >table
    run -1 moe-sft check -b base.safetensors -l teacher.safetensors -i wild.safetensors --mode int8
    [[ $output == *_lora_?$'\t'?$'\t'operator:difference$'\t'*$'\t'no* ]]
}

# ---- whole models ----

four_lines() {
    cat <<'END'
{"messages": [{"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "I am Zorg."}]}
{"prompt": "The moon is made", "completion": " of old cheese."}
{"text": "Seven plus nothing is a fish."}
{"ids": [1, 2], "labels": [1, 2]}
END
}

@test "moe-sft check: a whole model's gradients are right, also of an adapter and packed" {
    four_lines >d.jsonl
    moe-sft tune -m "$DEMO" -d d.jsonl -o new -n 1 --lr 0 --targets q,down # its B is 0
    for how in "--samples 1 --pack" "--samples 2 --rank 3 --alpha 9 --targets v,o,gate --seed 5 -j 3" "--init new --ctx 8 --batch 3"; do
        # shellcheck disable=SC2086
        run -0 --separate-stderr moe-sft check -m "$DEMO" -d d.jsonl $how
        [ -z "$stderr" ]
        [ "${lines[0]}" = "$(printf 'tensor\tgradient\talong_gradient\tlimit\talong_signs\tlimit\tok')" ]
        # A and B of seven targets in one layer, of three in the first and last,
        # of two in all four
        want=$(grep -o 'samples 1\|targets v\|init' <<<"$how" | sed 's/samples 1/15/; s/targets v/13/; s/init/17/')
        [ "${#lines[@]}" = "$want" ]
        [ "$(cut -f 7 <<<"$output" | sort -u | tr '\n' ' ')" = "ok yes " ]
    done
}

# bats test_tags=long
@test "moe-sft check: 1, and which, where gradients of a model are wrong" {
    four_lines >d.jsonl
    moe-sft tune -m "$DEMO" -d d.jsonl -o run -n 3 --lr 1e-2 --rank 4
    moe-sft tune -m "$DEMO" -d d.jsonl --init run --compute f32 --grads right.safetensors
    check() { moe-sft check -m "$DEMO" -d d.jsonl --init run --samples 2 --against "$1" -o table -f; }
    check right.safetensors
    py - <<'PY'
import mkst
t = mkst.read("right.safetensors")[0]
at = "base_model.model.model.layers.%d.%s_proj.lora_%s.weight"
wrong = dict(t)
wrong[at % (0, "self_attn.q", "A")] = t[at % (0, "self_attn.q", "A")] * 1.01
b = t[at % (3, "mlp.down", "B")].copy()
b[:, 2] = 0  # one of four ranks is not there
wrong[at % (3, "mlp.down", "B")] = b
wrong[at % (0, "self_attn.v", "B")] = t[at % (0, "self_attn.k", "B")]
wrong[at % (3, "mlp.up", "A")] = -t[at % (3, "mlp.up", "A")]
wrong[at % (1, "mlp.up", "A")] = 0 * t[at % (1, "mlp.up", "A")]  # not among the samples
mkst.save("wrong.safetensors", {k: v.astype("<f4") for k, v in wrong.items()})
del wrong[at % (3, "mlp.down", "B")]
mkst.save("short.safetensors", {k: v.astype("<f4") for k, v in wrong.items()})
t[at % (9, "mlp.up", "A")] = t[at % (3, "mlp.up", "A")]
mkst.save("more.safetensors", {k: v.astype("<f4") for k, v in t.items()})
PY
    run -1 check wrong.safetensors
    [ "$(awk -F '\t' '$7 == "no" { print $1 }' table | sort)" = "$(printf 'base_model.model.model.layers.%s.weight\n' \
        0.self_attn.q_proj.lora_A 0.self_attn.v_proj.lora_B 3.mlp.down_proj.lora_B 3.mlp.up_proj.lora_A)" ]
    # the worst first: a sign is twice the gradient
    awk -F '\t' 'NR == 2 { exit !($1 ~ /3.mlp.up_proj.lora_A/ && $3 > 1.99 && $3 < 2.01) }' table
    run -65 --separate-stderr check short.safetensors
    [ "$stderr" = "moe-sft: short.safetensors: base_model.model.model.layers.3.mlp.down_proj.lora_B.weight is missing" ]
    run -65 --separate-stderr check more.safetensors
    [ "$stderr" = "moe-sft: more.safetensors: base_model.model.model.layers.9.mlp.up_proj.lora_A.weight is not a tensor of the adapter" ]
}

@test "moe-sft check: of a model or of experts, not of both" {
    four_lines >d.jsonl
    usage() {
        run -2 --separate-stderr moe-sft check "${@:2}"
        [ "${stderr_lines[0]}" = "moe-sft: $1" ] || { echo "$stderr"; return 1; }
    }
    usage "check: -b, -l and -i are for a layer's experts, -m and -d for a model; -b is missing"
    usage "check: -b, -l and -i are for a layer's experts, -m and -d for a model; -i is missing" -b base.safetensors -l teacher.safetensors
    usage "-m and -d are a model's, -b, -l, -i, --layer, --mode and --tp a layer's experts'" -m "$DEMO" -d d.jsonl --mode int8
    usage "check: -d is missing" -m "$DEMO"
    usage "check: -m is missing" -d d.jsonl
    usage "--ctx is for -m" -b base.safetensors -l teacher.safetensors -i b0.safetensors --ctx 5
    usage "--rank and --alpha are for --model" -b base.safetensors -l teacher.safetensors -i b0.safetensors --alpha 5
    usage "--against is for an adapter's gradients: --init is missing" -m "$DEMO" -d d.jsonl --against g
    usage "--samples 0 is for a layer's experts" -m "$DEMO" -d d.jsonl --samples 0
    echo '{"ids": [1, 2], "labels": [1, -100]}' >none.jsonl
    run -65 --separate-stderr moe-sft check -m "$DEMO" -d none.jsonl
    [ "$stderr" = "moe-sft: none.jsonl: no target in the first 1 sequence" ]
    echo '{"prompt": "The moon is made", "completion": " of old cheese."}' >moon.jsonl
    moe-sft tune -m "$DEMO" -d moon.jsonl -o run -n 60 --lr 5e-3
    run -65 --separate-stderr moe-sft check -m "$DEMO" -d moon.jsonl --init run
    [[ $stderr == "moe-sft: moon.jsonl: the loss is "*": too small for differences of it (expected 0.001 or more)" ]]
    moe-sft check -m "$DEMO" -d d.jsonl --samples 1 -o table
    run -73 moe-sft check -m "$DEMO" -d d.jsonl --samples 1 -o table
}

@test "moe-sft check -m: gradients that are nothing but rounding are no error" {
    # a token sees itself alone, whatever its query is
    echo '{"ids": [1, 2], "labels": [-100, 2]}' >one.jsonl
    run -0 moe-sft check -m "$DEMO" -d one.jsonl --targets q
    [[ $output != *"	no"* ]]
}
