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
        # output 1; input and weights 3 each; six matrices of 4 experts 3 each
        [ "${#lines[@]}" = 80 ]
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
    # the idle expert's gradients are zero, exactly, and have no differences
    [ "$(printf '%s\n' "$output" | awk '$2 == 3' | cut -f 3,5,6 | sort -u)" = "$(printf 'operator:exact\t0\t0')" ]
    # no tokens: there is nothing but such gradients
    run -0 moe-sft check -b base.safetensors -l teacher.safetensors -i none.safetensors
    [ "$(printf '%s\n' "$output" | tail -n +2 | cut -f 3,5,6 | sort -u)" = "$(printf 'operator:exact\t0\t0')" ]
}

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
t["input"][:, ::17] *= 300  # columns beside which the others are rounded off
mkst.save("wild.safetensors", dict(input=mkst.bf16(t["input"]), expert_ids=t["expert_ids"].astype("<i8"),
                                   weights=t["weights"].astype("<f4")))
PY
    moe-sft check -b base.safetensors -l teacher.safetensors -i wild.safetensors >table
    run -1 moe-sft check -b base.safetensors -l teacher.safetensors -i wild.safetensors --mode int8
    [[ $output == *$'\t'operator:exact$'\t'*$'\t'no* ]]
    [ -z "$(printf '%s\n' "$output" | grep 'exact:difference.*no')" ]
}
