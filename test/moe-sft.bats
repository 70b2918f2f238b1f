# SPDX-License-Identifier: ISC
# moe-sft: the operator through its files, against float64 (test/ref/moe.py),
# adapters in PEFT's form, and what a user types.
load helpers
load sft

# judge forward|backward OUT LIMIT [DIR]: every expert and tensor by itself.
judge() {
    local d=${4:-.}
    "$PYTHON" "$ROOT/test/ref/moe.py" "$1" "$2" "$d/base.safetensors" "$d/lora.safetensors" "$d/batch.safetensors" "$3"
}

# both [OPTION...]: forward and backward of the files here, judged.
both() {
    local forward=0.01 backward=0.015
    [[ "$*" != *int8* ]] || forward=0.05 backward=0.06
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o fwd.safetensors \
        -c cache.safetensors -f "$@"
    judge forward fwd.safetensors $forward
    moe-sft backward -b base.safetensors -l lora.safetensors -c cache.safetensors -g batch.safetensors \
        -o bwd.safetensors -f
    judge backward bwd.safetensors $backward
}

# refuse STATUS MESSAGE COMMAND...: one line, and no output file.
refuse() {
    local status_wanted=$1 message=$2
    shift 2
    run -"$status_wanted" --separate-stderr "$@"
    [ -z "$output" ]
    [ "${stderr_lines[0]}" = "moe-sft: $message" ] || {
        echo "$stderr" >&2
        return 1
    }
    [ ! -e out.safetensors ]
}

@test "moe-sft: the command lines work as written" {
    data .
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o fwd.safetensors -c cache.safetensors
    moe-sft backward -b base.safetensors -l lora.safetensors -c cache.safetensors -g batch.safetensors -o bwd.safetensors
    for f in fwd cache bwd; do st-inspect verify $f.safetensors; done
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o again.safetensors \
        -c cache2.safetensors --mode bf16 -j 3 --tp 1
    cmp fwd.safetensors again.safetensors
    cmp cache.safetensors cache2.safetensors
    run -0 st-inspect list bwd.safetensors
    [[ $output == *"F32"*"grad_down_lora_a"*"BF16"*"grad_input"* ]]
}

@test "moe-sft: forward and backward are the float64 reference's, bf16 and int8" {
    data .
    both
    both --mode int8
    both --tp 2
    both --tp 3 --mode int8
}

@test "moe-sft: merge is base plus adapter in float64, rounded once" {
    data .
    moe-sft merge -b base.safetensors -l lora.safetensors -o m.safetensors
    py - <<'END'
import moe, numpy as np
base, m = moe.read("base.safetensors")[0], moe.read("m.safetensors")[0]
lora, meta = moe.read("lora.safetensors")
assert sorted(m) == sorted(base)
for p in moe.PROJ:
    w = base[p + "_proj"] + float(meta["lora_alpha"]) / float(meta["lora_rank"]) * np.einsum(
        "eor,eri->eoi", lora[p + "_lora_b"], lora[p + "_lora_a"])
    assert (moe.round_bf16(w) == m[p + "_proj"]).all()
END
}

@test "moe-sft init: A is uniform in 1/sqrt(in) by numpy's Philox, B is zero" {
    data .
    moe-sft init -b base.safetensors -o i.safetensors --rank 3 --alpha 1.5 --seed 7
    py - <<'END'
import moe, numpy as np
t, meta = moe.read("i.safetensors")
assert meta == dict(format="pt", lora_rank="3", lora_alpha="1.5", expert_num="4", hidden_size="96",
                    intermediate_size="80"), meta
for i, p in enumerate(moe.PROJ):
    a = t[p + "_lora_a"]
    u = np.random.Generator(np.random.Philox(key=[7, 2 * i])).random(a.size).reshape(a.shape)
    assert (a == moe.round_bf16((2 * u - 1) / np.sqrt(a.shape[2]))).all()
    assert not t[p + "_lora_b"].any()
END
}

@test "moe-sft convert: PEFT's directory and our file are the same numbers" {
    data .
    moe-sft convert -l lora.safetensors -o p
    moe-sft convert -l p -o back.safetensors
    moe-sft convert -l peft -o back2.safetensors
    cmp back.safetensors back2.safetensors
    py - <<'END'
import json, re, moe
ours, meta = moe.read("lora.safetensors")
theirs = moe.read("p/adapter_model.safetensors")[0]
back, back_meta = moe.read("back.safetensors")
config = json.load(open("p/adapter_config.json"))
assert (config["r"], config["lora_alpha"], config["peft_type"]) == (5, 10, "LORA")
assert sorted(config["target_modules"]) == ["down_proj", "gate_proj", "up_proj"]
# to PEFT a module is of the layer whose number is the last behind the pattern,
# and without one the last of all: here the expert's
pattern = (config["layers_pattern"] or "") + r"\.([0-9]+)\."
layers = re.findall(pattern, "model.layers.3.mlp.experts.1.gate_proj")
assert int(layers[-1]) in config["layers_to_transform"], layers
for name, value in ours.items():
    assert (back[name] == value).all()
    p, m = name.split("_")[0], name[-1].upper()
    for e in range(4):
        key = "base_model.model.model.layers.3.mlp.experts.%d.%s_proj.lora_%s.weight" % (e, p, m)
        assert (theirs.pop(key) == value[e]).all()
assert not theirs
END
}

forward() {
    moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o out.safetensors "$@"
}

# try FILE CODE: a copy of the good file, changed.
try() {
    cp good/"$1" "$1"
    edit "$1" "$2"
}

# bats test_tags=long
@test "moe-sft: a tensor that is missing or does not fit is named, found and expected" {
    data good
    cp -r good/* .
    try base.safetensors 'del t["up_proj"]'
    refuse 65 "base.safetensors: tensor up_proj is missing" forward
    try base.safetensors 'del t["gate_proj"]'
    refuse 65 "base.safetensors: has no tensor gate_proj, nor model.layers.N.mlp.experts.E.gate_proj.weight" forward
    try base.safetensors 't["up_proj"] = ("BF16", [4, 96, 80], t["up_proj"][2])'
    refuse 65 "base.safetensors: up_proj is [4, 96, 80] (expected [4, 80, 96])" forward
    try base.safetensors 't["gate_proj"] = ("BF16", [320, 96], t["gate_proj"][2])'
    refuse 65 "base.safetensors: gate_proj is [320, 96] (expected [experts, intermediate, hidden])" forward
    try base.safetensors 't["down_proj"] = ("I16", [4, 96, 80], t["down_proj"][2])'
    refuse 65 "base.safetensors: down_proj is I16 (expected BF16, F16 or F32)" forward
    try base.safetensors 't["gate_proj"] = ("BF16", [0, 80, 96], b"")'
    refuse 65 "base.safetensors: gate_proj is empty" forward
    cp good/base.safetensors .
    try lora.safetensors 'del t["down_lora_b"]'
    refuse 65 "lora.safetensors: tensor down_lora_b is missing" forward
    try lora.safetensors 't["up_lora_b"] = ("BF16", [4, 5, 80], t["up_lora_b"][2])'
    refuse 65 "lora.safetensors: up_lora_b is [4, 5, 80] (expected [4, 80, 5])" forward
    try lora.safetensors 't["gate_lora_a"] = ("BF16", [2, 10, 96], t["gate_lora_a"][2])'
    refuse 65 "lora.safetensors: gate_lora_a is [2, 10, 96] (expected [4, rank, 96])" forward
    try lora.safetensors 'del m["lora_alpha"]'
    refuse 65 "lora.safetensors: __metadata__ has no lora_alpha" forward
    try lora.safetensors 'm["lora_alpha"] = "much"'
    refuse 65 'lora.safetensors: __metadata__ lora_alpha is "much" (expected a number)' forward
    try lora.safetensors 'm["lora_alpha"] = "1e39"'
    refuse 65 'lora.safetensors: __metadata__ lora_alpha is "1e39", more than F32 holds' forward
    try lora.safetensors 't["more"] = t["up_lora_b"]'
    refuse 65 "lora.safetensors: has 7 tensors (expected gate_lora_a to down_lora_b, 6)" forward
    try lora.safetensors 'm["lora_rank"] = "8"'
    refuse 65 'lora.safetensors: __metadata__ lora_rank is "8", but the tensors have 5' forward
    cp good/lora.safetensors .
    try batch.safetensors 'del t["input"]'
    refuse 65 "batch.safetensors: tensor input is missing" forward
    try batch.safetensors 'del t["weights"]'
    refuse 65 "batch.safetensors: tensor weights is missing" forward
    try batch.safetensors 'del t["weights"], t["expert_ids"]'
    refuse 65 "batch.safetensors: has no expert_ids, and base.safetensors no router that is known (by model_type and num_experts_per_tok)" forward
    try batch.safetensors 't["input"] = ("BF16", [48, 74], t["input"][2])'
    refuse 65 "batch.safetensors: input is [48, 74] (expected [qlen, 96])" forward
    try batch.safetensors 't["expert_ids"] = ("F64", [37, 2], t["expert_ids"][2])'
    refuse 65 "batch.safetensors: expert_ids is F64 (expected I64 or I32)" forward
    try batch.safetensors 't["expert_ids"] = ("I64", [2, 37], t["expert_ids"][2])'
    refuse 65 "batch.safetensors: expert_ids is [2, 37] (expected [37, top_k])" forward
    try batch.safetensors 't["weights"] = ("F32", [74, 1], t["weights"][2])'
    refuse 65 "batch.safetensors: weights is [74, 1] (expected [37, 2])" forward
    try batch.safetensors 't["input"] = ("BF16", [2**40, 0], b"")'
    refuse 65 "batch.safetensors: input is [1099511627776, 0] (expected [qlen, 96])" forward
}

@test "moe-sft: files that are cut, of another format or not there" {
    data good
    cp -r good/* .
    head -c 20000 good/batch.safetensors >batch.safetensors
    refuse 65 "batch.safetensors: the header promises $(($(stat -c %s good/batch.safetensors) - $(od -An -tu8 -N8 good/batch.safetensors) - 8)) bytes from byte $(($(od -An -tu8 -N8 good/batch.safetensors) + 8)) on, but the file has 20000 bytes" forward
    printf '\377\377\377\377\377\377\377\177{}' >batch.safetensors
    refuse 65 "batch.safetensors: header length 9223372036854775807 (expected at most 100000000)" forward
    rm batch.safetensors
    run -66 forward
    cp good/batch.safetensors .
    echo '{"a": 1}' >lora.safetensors
    run -65 forward
    cp good/lora.safetensors .
    rm base.safetensors
    run -66 forward
    [ ! -e out.safetensors ]
}

@test "moe-sft: an output that exists is kept, both of forward's or neither are made" {
    data .
    echo old >out.safetensors
    run -73 forward
    [ "$output" = "moe-sft: out.safetensors: exists already (--force replaces it)" ]
    [ "$(cat out.safetensors)" = old ]
    rm out.safetensors
    echo old >cache.safetensors
    refuse 73 "cache.safetensors: exists already (--force replaces it)" forward -c cache.safetensors
    forward -c cache.safetensors -f
    st-inspect verify cache.safetensors out.safetensors
    mkdir there
    run -73 moe-sft convert -l lora.safetensors -o there
    [ -z "$(ls there)" ]
    moe-sft convert -l lora.safetensors -o there -f
    st-inspect verify there
    mkdir there/mine
    for how in "convert -l lora.safetensors" "merge -b hf -l lora.safetensors"; do
        # shellcheck disable=SC2086
        run -73 moe-sft $how -o there -f
        [ "$output" = "moe-sft: there: has the directory mine in it, and is not replaced" ]
    done
    st-inspect verify there
    run -2 moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -f -o batch.safetensors
    [[ $output == "moe-sft: batch.safetensors: is both an input and an output of this command"* ]]
    run -2 forward -f -c lora.safetensors
    [[ $output == "moe-sft: lora.safetensors: is both an input and an output of this command"* ]]
}

@test "moe-sft --force: an input is not replaced, however it is spelled" {
    data .
    before=$(cat hf/* lora.safetensors | cksum)
    run -2 moe-sft merge -b hf -l lora.safetensors -o hf/ -f
    [[ ${lines[0]} == "moe-sft: hf: is replaced, but "*" in it is an input of this command" ]]
    run -2 moe-sft merge -b base.safetensors -l lora.safetensors -o ./lora.safetensors -f
    run -2 moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o x -c ./lora.safetensors -f
    [ "${lines[0]}" = "moe-sft: ./lora.safetensors: is both an input and an output of this command" ]
    [ "$before" = "$(cat hf/* lora.safetensors | cksum)" ]
}

@test "moe-sft --if-missing: what is there and sound is success, what is not is made" {
    data .
    forward -c cache.safetensors --if-missing
    before=$(stat -c '%i %y' out.safetensors cache.safetensors)
    forward -c cache.safetensors --if-missing
    [ "$(stat -c '%i %y' out.safetensors cache.safetensors)" = "$before" ]
    head -c 100 cache.safetensors >cut
    mv cut cache.safetensors
    run -65 forward -c cache.safetensors --if-missing
    moe-sft merge -b hf -l peft -o merged --if-missing
    moe-sft merge -b hf -l peft -o merged --if-missing
    run -2 forward --if-missing -f
    # one of two alone may be of another batch
    forward -c cache.safetensors -f
    rm cache.safetensors
    run -73 forward -c cache.safetensors --if-missing
}

@test "moe-sft: a full disk leaves nothing, a closed pipe ends it, a full stdout is an error" {
    data .
    run -74 bash -c 'ulimit -f 8; moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors \
        -o out.safetensors -c cache.safetensors'
    [ -z "$(ls -A | grep -E 'out|cache|tmp')" ]
    run -74 bash -c 'ulimit -f 8; moe-sft merge -b hf -l peft -o merged'
    [ -z "$(ls -A | grep -E 'merged')" ]
    run -74 bash -c 'moe-sft info -b hf >/dev/full'
    mkfifo pipe # whose reader is gone
    run -141 bash -c 'exec 3<>pipe 4>pipe 3<&-; moe-sft quantize -b base.safetensors -o q.safetensors >&4'
}

# bats test_tags=long
@test "moe-sft backward: a cache of anything else is refused, and what differs is named" {
    data good
    cp -r good/* .
    forward -c cache.safetensors
    rm out.safetensors
    cp cache.safetensors good
    backward() {
        moe-sft backward -b base.safetensors -l lora.safetensors -c cache.safetensors -g batch.safetensors \
            -o out.safetensors "$@"
    }
    flip='n = %s; d, s, b = t[n]; t[n] = (d, s, bytes([b[0] ^ 1]) + b[1:])'
    try base.safetensors "${flip/\%s/\"up_proj\"}"
    refuse 65 "cache.safetensors: was made by a forward with other base weights" backward
    cp good/base.safetensors .
    try lora.safetensors "${flip/\%s/\"up_lora_b\"}"
    refuse 65 "cache.safetensors: was made by a forward with another adapter" backward
    try lora.safetensors 'm["lora_alpha"] = "11"'
    refuse 65 "cache.safetensors: was made by a forward with another adapter" backward
    cp good/lora.safetensors .
    refuse 65 "cache.safetensors: was made by a forward in bf16 (not int8)" backward --mode int8
    for n in expert_ids weights input; do
        try batch.safetensors "${flip/\%s/\"$n\"}"
        refuse 65 "cache.safetensors: was made by a forward with other $n than those of batch.safetensors" backward
    done
    try batch.safetensors 'd, s, b = t["grad_output"]; t = {"grad_output": (d, [36, 96], b[:36 * 192])}'
    refuse 65 "cache.safetensors: was made by a forward of 37 tokens, but grad_output of batch.safetensors has 36" backward
    try batch.safetensors 'del t["grad_output"]'
    refuse 65 "batch.safetensors: tensor grad_output is missing" backward
    cp good/batch.safetensors .
    for n in gate up input expert_ids weights; do
        try cache.safetensors "${flip/\%s/\"$n\"}"
        run -65 backward
        [[ $output == "moe-sft: cache.safetensors: "*": the file was changed" ]]
    done
    try cache.safetensors 'd, s, b = t["gate"]; t["gate"] = (d, [73, 80], b[:73 * 160])'
    refuse 65 "cache.safetensors: gate is [73, 80] (expected [74, 80])" backward
    cp good/batch.safetensors cache.safetensors
    refuse 65 "cache.safetensors: is not a cache of moe-sft forward (has no moe_sft_cache)" backward
    cp good/cache.safetensors .
    try batch.safetensors 't = {"grad_output": t["grad_output"]}'
    backward
    mv out.safetensors bwd.safetensors
    cp good/batch.safetensors .
    judge backward bwd.safetensors 0.015
}

@test "moe-sft: ids that are no expert are skipped and counted, --strict-ids refuses them" {
    data .
    edit batch.safetensors 'a = np.frombuffer(t["expert_ids"][2], "<i8").reshape(37, 2).copy()
a[0, 0], a[1, 1], a[2] = -1, 4, 2**40
t["expert_ids"] = a'
    run -0 --separate-stderr forward -v
    [ "${stderr_lines[1]}" = "moe-sft: batch.safetensors: 4 of 74 slots skipped: their ids name no expert" ]
    rm out.safetensors
    both
    run -65 forward --strict-ids
    [ ! -e out.safetensors ]
}

# bats test_tags=long
@test "moe-sft: duplicates, idle experts, one token, none, primes, one expert, large ranks" {
    data . E=5
    edit batch.safetensors 'a = np.frombuffer(t["expert_ids"][2], "<i8").reshape(37, 2).copy()
a[:] = 3
a[5:9] = 1
t["expert_ids"] = a'
    both
    for c in "qlen=1" "qlen=0" "E=1 k=1" "r=70" "H=97 I=83 r=3 E=3" "E=7 k=5 qlen=300 H=64 I=32 r=1"; do
        data . $c
        both
        both --mode int8
    done
}

# bats test_tags=long
@test "moe-sft: the same bits for any number of threads" {
    data . qlen=130
    both -j 1
    mv fwd.safetensors f1 && mv bwd.safetensors b1 && mv cache.safetensors c1
    for j in 2 3 7; do
        both -j $j
        cmp fwd.safetensors f1
        cmp bwd.safetensors b1
        cmp cache.safetensors c1
    done
}

@test "moe-sft: a directory and a stacked file, PEFT and ours, give the same bits" {
    data .
    forward
    moe-sft forward -b hf -l peft -i batch.safetensors -o hf.safetensors --layer 3
    cmp out.safetensors hf.safetensors
    moe-sft forward -b hf -l lora.safetensors -i - -o stdin.safetensors <batch.safetensors
    cmp out.safetensors stdin.safetensors
    moe-sft forward -b hf -l lora.safetensors -i <(cat batch.safetensors) -o pipe.safetensors
    cmp out.safetensors pipe.safetensors
    run -65 moe-sft forward -b hf -l lora.safetensors -i /dev/null -o x.safetensors
    [ "$output" = "moe-sft: /dev/null: has 0 bytes (expected at least 8)" ]
    run -65 moe-sft forward -b hf -l peft -i batch.safetensors -o x.safetensors --layer 4
    [ "$output" = "moe-sft: hf: has no experts of layer 4 (of layers 3 to 3)" ]
}

@test "moe-sft: a batch without routing gets the model's" {
    data .
    cp batch.safetensors full.safetensors
    edit batch.safetensors 'del t["weights"], t["expert_ids"]'
    moe-sft forward -b hf -l peft -i batch.safetensors -o fwd.safetensors -c cache.safetensors
    py - <<'END'
import moe, mkst, numpy as np
x = moe.read("batch.safetensors")[0]["input"]
logits = x @ moe.read_dir("hf")["model.layers.3.mlp.gate.weight"].T
p = np.exp(logits - logits.max(1, keepdims=True))
p /= p.sum(1, keepdims=True)
ids = np.argsort(-p, axis=1, kind="stable")[:, :2]
w = np.take_along_axis(p, ids, 1)
w /= w.sum(1, keepdims=True)
c = moe.read("cache.safetensors")[0]
assert (c["expert_ids"] == ids).all()
assert abs(c["weights"] - w).max() < 1e-5
t = mkst.load("full.safetensors")
t["expert_ids"], t["weights"] = ids.astype("<i8"), w.astype("<f4")
mkst.save("batch.safetensors", t)
END
    judge forward fwd.safetensors 0.01
}

@test "moe-sft backward --grad-dtype bf16: the same gradients, rounded" {
    data .
    both
    moe-sft backward -b base.safetensors -l lora.safetensors -c cache.safetensors -g batch.safetensors \
        -o b16.safetensors --grad-dtype bf16
    py - <<'END'
import moe
a, b = moe.read("bwd.safetensors")[0], moe.read("b16.safetensors")[0]
assert sorted(a) == sorted(b)
for n in a:
    want = moe.round_bf16(a[n]) if "lora" in n else a[n]
    assert (b[n] == want).all(), n
END
}

@test "moe-sft quantize: absmax / 127 of each row, and its error, as numpy has them" {
    data .
    moe-sft quantize -b hf -o q.safetensors >report
    py - <<'END'
import moe, numpy as np
base, q = moe.read("base.safetensors")[0], moe.read("q.safetensors")[0]
lines = [l.split("\t") for l in open("report").read().splitlines()]
assert lines.pop(0) == ["tensor", "expert", "relative_rms", "max_error"]
for p in base:
    w, s = base[p].astype(np.float32), q[p + "_scale"]
    top = np.abs(w).max(2)
    assert (s == top / np.float32(127)).all()
    assert (q[p] == np.rint(w * (np.float32(127) / top)[:, :, None])).all()
    for e in range(4):
        name, expert, d, m = lines.pop(0)
        diff = np.abs(base[p][e] - q[p][e] * s[e][:, None])
        assert (name, int(expert)) == (p, e)
        assert abs(float(d) - np.sqrt(np.square(diff).sum() / np.square(base[p][e]).sum())) < 1e-6
        assert abs(float(m) / diff.max() - 1) < 1e-5
assert not lines
END
    moe-sft quantize -b base.safetensors -o q2.safetensors --json | "$PYTHON" -m json.tool >/dev/null
    cmp q.safetensors q2.safetensors
}

# bats test_tags=long
@test "moe-sft -b: what quantize wrote is what --mode int8 makes of the weights it was made of" {
    data .
    moe-sft quantize -b hf -o q.safetensors >/dev/null
    forward() {
        moe-sft forward -l lora.safetensors -i batch.safetensors "$@"
    }
    forward -b base.safetensors --mode int8 -o want.safetensors
    forward -b q.safetensors -c cache.safetensors -o fwd.safetensors
    cmp want.safetensors fwd.safetensors
    judge forward fwd.safetensors 0.05
    moe-sft backward -b q.safetensors -l lora.safetensors -c cache.safetensors -g batch.safetensors -o bwd.safetensors
    judge backward bwd.safetensors 0.06
    forward -b q.safetensors --tp 3 -o tp.safetensors -j 3
    judge forward tp.safetensors 0.05
    moe-sft check -b q.safetensors -l lora.safetensors -i batch.safetensors >/dev/null
    [ "$(moe-sft info -b q.safetensors | grep '^mode')" = $'mode\tint8' ]
    cp batch.safetensors goal.safetensors
    edit goal.safetensors 't["target"] = t["input"]'
    moe-sft train -b q.safetensors -l lora.safetensors -n 2 -o run goal.safetensors >/dev/null
    [ "$(st-inspect meta run/state.safetensors | grep -P '\t--mode\t')" = $'run/state.safetensors\t--mode\tint8' ]
    refuse 2 "q.safetensors: has weights in int8, which --mode bf16 cannot use" \
        forward -b q.safetensors --mode bf16 -o out.safetensors
    for verb in "merge -l lora.safetensors" quantize; do
        refuse 65 "q.safetensors: has weights in int8 (expected BF16, F16 or F32)" \
            moe-sft $verb -b q.safetensors -o out.safetensors
    done
    # another scale is another base
    edit q.safetensors 'n = "up_proj_scale"; d, s, b = t[n]; t[n] = (d, s, bytes([b[0] ^ 1]) + b[1:])'
    refuse 65 "cache.safetensors: was made by a forward with other base weights" moe-sft backward -b q.safetensors \
        -l lora.safetensors -c cache.safetensors -g batch.safetensors -o out.safetensors
    edit q.safetensors 'n = "up_proj_scale"; d, s, b = t[n]; t[n] = (d, s, b[:324] + b"\0\0\xc0\x7f" + b[328:])'
    refuse 65 "q.safetensors: up_proj_scale of expert 1 has NaN or Inf" forward -b q.safetensors -o out.safetensors
    edit q.safetensors 'del t["up_proj_scale"]'
    refuse 65 "q.safetensors: tensor up_proj_scale is missing" forward -b q.safetensors -o out.safetensors
}

@test "moe-sft merge: a directory whole, its layer as stacks" {
    data .
    moe-sft merge -b hf -l peft -o merged
    moe-sft merge -b hf -l peft -o stacked.safetensors
    moe-sft merge -b base.safetensors -l lora.safetensors -o m.safetensors
    cmp m.safetensors stacked.safetensors
    cmp hf/config.json merged/config.json
    cmp hf/model.safetensors.index.json merged/model.safetensors.index.json
    st-inspect verify merged
    py - <<'END'
import moe
old, new = moe.read_dir("hf"), moe.read_dir("merged")
want = moe.read("m.safetensors")[0]
assert sorted(old) == sorted(new)
for n in old:
    if ".experts." in n:
        e, p = n.split(".experts.")[1].split(".")[:2]
        assert (new[n] == want[p][int(e)]).all()
    else:
        assert (new[n] == old[n]).all()
END
}

# bats test_tags=long
@test "moe-sft convert: what changes numbers and is not done is refused by name, rsLoRA is done" {
    data .
    config() {
        "$PYTHON" -c 'import json, sys
c = json.load(open("peft/adapter_config.json")); exec(sys.argv[1]); json.dump(c, open("p/adapter_config.json", "w"))' "$1"
    }
    cp -r peft p
    config 'c["use_dora"] = True'
    refuse 65 "p/adapter_config.json: use_dora is true (expected nothing: it is not supported)" moe-sft convert -l p -o out.safetensors
    config 'c["init_lora_weights"] = "pissa"'
    refuse 65 'p/adapter_config.json: init_lora_weights is "pissa" (expected one that leaves the base as it is)' \
        moe-sft convert -l p -o out.safetensors
    config 'c["layer_replication"] = [[0, 4], [2, 5]]'
    run -65 moe-sft convert -l p -o out.safetensors
    [[ $output == "moe-sft: p/adapter_config.json: layer_replication is "*" (expected nothing: it is not supported)" ]]
    for how in True False '"gaussian"' None; do
        config "c['init_lora_weights'] = $how"
        moe-sft convert -l p -o fine.safetensors -f
    done
    config 'c["bias"] = "all"'
    refuse 65 'p/adapter_config.json: bias is "all" (expected "none")' moe-sft convert -l p -o out.safetensors
    config 'c["peft_type"] = "IA3"'
    refuse 65 'p/adapter_config.json: peft_type is "IA3" (expected "LORA")' moe-sft convert -l p -o out.safetensors
    # patterns are PEFT's: the first that takes a name's end says it
    config 'c["rank_pattern"] = {r"experts\.\d+\..*": c["r"]}; c["r"] = 6'
    moe-sft convert -l p -o fine.safetensors -f
    moe-sft convert -l peft -o plain.safetensors
    cmp fine.safetensors plain.safetensors
    config 'c["alpha_pattern"] = {"1.up_proj": 3}'
    refuse 65 "p/adapter_config.json: base_model.model.model.layers.3.mlp.experts.1.up_proj has rank 5 and alpha 3, others have 5 and 10: experts of different ones are not supported" \
        moe-sft convert -l p -o out.safetensors
    config 'c["r"] = 6'
    run -65 moe-sft convert -l p -o out.safetensors
    [[ $output == *" is [5, 96] (expected [6, 96])" ]]
    config 'c["target_modules"] = ["up_proj", "down_proj"]'
    refuse 65 "p/adapter_config.json: target_modules has no model.layers.3.mlp.experts.0.gate_proj, but the tensors do" \
        moe-sft convert -l p -o out.safetensors
    config 'c["lora_alpha"] = 2.0 ** 130'
    refuse 65 "p/adapter_config.json: lora_alpha is 1.361129467683754e+39 (expected what F32 holds)" moe-sft convert -l p -o out.safetensors
    refuse 2 "-o out.safetensors: the output of lora.safetensors is a PEFT directory, whose name must not end in .safetensors" \
        moe-sft convert -l lora.safetensors -o out.safetensors
    config 'c["use_rslora"] = True; c["r"] = 5; c["lora_alpha"] = 4'
    moe-sft convert -l p -o rs.safetensors
    # alpha / sqrt(r) is what alpha' / r is: alpha' = 4 sqrt(5)
    "$PYTHON" -c 'import json; d = open("rs.safetensors", "rb").read(); n = int.from_bytes(d[:8], "little")
assert abs(float(json.loads(d[8:8 + n])["__metadata__"]["lora_alpha"]) - 4 * 5 ** .5) < 1e-6'
    config ''
    edit p/adapter_model.safetensors 'for n in list(t):
    if ".experts.2." in n: del t[n]'
    moe-sft convert -l p -o some.safetensors
    py - <<'END'
import moe
a, b = moe.read("lora.safetensors")[0], moe.read("some.safetensors")[0]
for n in a:
    assert (b[n][[0, 1, 3]] == a[n][[0, 1, 3]]).all() and not b[n][2].any()
END
    # what else PEFT saves with a module, of whatever module
    vector=base_model.model.model.layers.3.self_attn.q_proj.lora_magnitude_vector
    cp p/adapter_model.safetensors was
    edit p/adapter_model.safetensors "t['$vector'] = np.zeros((3, 3), '<f4')"
    refuse 65 "p/adapter_model.safetensors: $vector is not supported (base_model.model.MODULE.lora_A.weight, .lora_B.weight)" \
        moe-sft convert -l p -o out.safetensors
    mv was p/adapter_model.safetensors
    edit p/adapter_model.safetensors 'del t[sorted(n for n in t if "experts.1.up_proj.lora_A" in n)[0]]'
    refuse 65 "p/adapter_model.safetensors: tensor base_model.model.model.layers.3.mlp.experts.1.up_proj.lora_A.weight is missing" \
        moe-sft convert -l p -o out.safetensors
}

@test "moe-sft info: sizes of what is there, memory of what would run, nothing allocated" {
    data .
    run -0 moe-sft info -b hf -l peft -i batch.safetensors
    for line in "experts	4" "top_k	2" "hidden	96" "intermediate	80" "lora_rank	5" "max_len	37" \
        "base_nbytes	184320" "lora_nbytes	21120" "layer	3" "origin_slot	$((37 * (96 + 3 * 2 * 80) * 2))"; do
        grep -qx "$line" <<<"$output"
    done
    # DeepSeek-V3, as the origin has it: 2.69 GiB a slot; no machine has 22 GiB for this test
    run -0 moe-sft info --experts 256 --top-k 8 --hidden 7168 --intermediate 2048 --rank 16 --length 25600 --json
    "$PYTHON" -c 'import json, sys; d = json.load(sys.stdin)
assert d["origin_slot"] == 25600 * (7168 + 3 * 8 * 2048) * 2 and d["memory_slot"] <= d["origin_slot"]
assert d["memory_total"] >= d["memory_base"] + d["memory_cache"]' <<<"$output"
    # as many experts as can be asked for: what one takes, so many times
    for mode in bf16 int8; do
        one=$(moe-sft info --experts 1 --hidden 64 --intermediate 64 --mode $mode | awk '$1 == "memory_base" { print $2 }')
        run -0 timeout 20 moe-sft info --experts 2147483647 --hidden 64 --intermediate 64 --mode $mode
        grep -qx "memory_base	$((one * 2147483647))" <<<"$output"
    done
}

@test "moe-sft bench: a line for each step" {
    run -0 moe-sft bench --experts 3 --top-k 2 --hidden 64 --intermediate 48 --rank 4 --length 16 --rounds 1
    [ "${#lines[@]}" = 5 ]
    [[ ${lines[4]} == "forward_backward	bf16	"*"	16	"* ]]
    moe-sft bench --experts 3 --hidden 64 --intermediate 48 --length 8 --rounds 1 --mode int8 --json | "$PYTHON" -m json.tool
}

@test "moe-sft: what the command line lacks or has too much of is said" {
    run -2 moe-sft -q
    [ "${lines[0]}" = "moe-sft: a verb is missing: info, init, forward, backward, train, tune, check, merge, convert, quantize, bench" ]
    run -2 moe-sft fly
    [ "${lines[0]}" = 'moe-sft: "fly" is not a verb: info, init, forward, backward, train, tune, check, merge, convert, quantize, bench' ]
    run -2 moe-sft forward -b x -l y -i z
    [ "${lines[0]}" = "moe-sft: forward: -o FILE is needed" ]
    run -2 moe-sft init -b x -o y --tp 2
    [[ ${lines[0]} == "moe-sft: "*"--tp"* ]]
    run -2 moe-sft info x
    [ "${lines[0]}" = 'moe-sft: info: "x": files are named by options' ]
    run -0 moe-sft --help
}

@test "moe-sft(1): the examples run as typed" {
    data .
    rm lora.safetensors
    ln -s "$ROOT/demo" demo
    examples moe-sft.1 >script
    [ "$(grep -c moe-sft script)" -ge 9 ]
    grep -qxF "$(head -n 1 script)" <(examples moe-sft-tune.1) # whose test types it with 200 steps
    run -0 bash -eo pipefail <(sed '1s/$/ -n 3/' script)
    st-inspect verify {new,fwd,cache,bwd}.safetensors peft-both merged-both
}

@test "moe-sft: an adapter of another layer is taken, with a warning" {
    data .
    edit lora.safetensors 'm["layer_idx"] = "5"'
    run -0 --separate-stderr moe-sft forward -b hf -l lora.safetensors -i batch.safetensors -o out.safetensors
    [ "$stderr" = "moe-sft: lora.safetensors: is for layer 5, but the base weights are those of layer 3" ]
    run -0 --separate-stderr moe-sft forward -q -f -b hf -l lora.safetensors -i batch.safetensors -o out.safetensors
    [ -z "$stderr" ]
}

@test "moe-sft merge: bases in F16 and F32 stay that, rounded once" {
    data .
    for d in f2 f4; do
        D=$d py - <<'END'
import os, mkst, moe
base = moe.read("base.safetensors")[0]
mkst.save("b.safetensors", {n: v.astype("<" + os.environ["D"]) for n, v in base.items()})
END
        moe-sft merge -b b.safetensors -l lora.safetensors -o m.safetensors -f
        moe-sft forward -b b.safetensors -l lora.safetensors -i batch.safetensors -o fwd.safetensors -f
        judge forward fwd.safetensors 0.01
        D=$d py - <<'END'
import os, mkst, moe, numpy as np
base, m, lora = moe.read("base.safetensors")[0], mkst.load("m.safetensors"), moe.read("lora.safetensors")[0]
for p in moe.PROJ:
    w = base[p + "_proj"] + 2.0 * np.einsum("eor,eri->eoi", lora[p + "_lora_b"], lora[p + "_lora_a"])
    assert m[p + "_proj"][2] == w.astype("<" + os.environ["D"]).tobytes(), p
END
    done
}

@test "moe-sft merge: the model that is merged says what --lora says" {
    model=model # words are split below
    ln -s "$ROOT/demo/qwen3-moe-tiny" $model
    moe-sft init -b "$model" --layer 1 -o l.safetensors --seed 3
    edit l.safetensors 'g = np.random.default_rng(5)
for n in t:
    if n.endswith("_b"): t[n] = mkst.bf16(g.standard_normal(t[n][1]) * 0.02)'
    moe-sft merge -b "$model" -l l.safetensors -o merged
    moe-sft convert -l l.safetensors -o peft
    head -n 20 "$ROOT/demo/held-out.txt" >text
    for how in "$model" "$model --lora l.safetensors" "$model --lora peft" merged; do
        hf-infer $how --nll --json <text
    done >said
    "$PYTHON" -c 'import json
plain, lora, peft, merged = [json.loads(l)["nll_mean"] for l in open("said")]
assert lora == peft
assert abs(merged - lora) < 0.1 * abs(lora - plain), (plain, lora, merged)'
}

# bats test_tags=long
@test "moe-sft: every instruction set of this machine, bf16 and int8" {
    data . H=100 I=72
    for isa in $ALL_ISAS; do
        has_isa $isa || continue
        export TU_ISA=$isa
        both
        both --mode int8 --tp 2
        unset TU_ISA
    done
}

@test "moe-sft: weights and adapters with NaN or Inf are refused, and named" {
    data good
    cp -r good/* .
    edit base.safetensors 'd, s, v = t["up_proj"]
v = bytearray(v)
k = (2 * s[1] + 7) * s[2] + 3  # expert 2, row 7
v[2 * k:2 * k + 2] = b"\x80\xff"
t["up_proj"] = d, s, bytes(v)'
    said="base.safetensors: up_proj of expert 2, row 7 has NaN or Inf"
    refuse 65 "$said" moe-sft forward -b base.safetensors -l lora.safetensors -i batch.safetensors -o out.safetensors
    refuse 65 "$said" moe-sft merge -b base.safetensors -l lora.safetensors -o out.safetensors
    refuse 65 "$said" moe-sft check -b base.safetensors -l lora.safetensors -i batch.safetensors
    refuse 65 "$said" moe-sft train -b base.safetensors -l lora.safetensors -o run -n 1 batch.safetensors
    edit lora.safetensors 't["down_lora_b"] = t["down_lora_b"][:2] + (t["down_lora_b"][2][:-2] + b"\xc0\x7f",)'
    refuse 65 "lora.safetensors: down_lora_b of expert 3 has NaN or Inf" moe-sft train -b good/base.safetensors \
        -l lora.safetensors -o run -n 1 batch.safetensors
    refuse 65 "lora.safetensors: down_proj of expert 3 has an adapter with NaN or Inf" moe-sft merge \
        -b good/base.safetensors -l lora.safetensors -o out.safetensors
    [ ! -e out.safetensors ]
}
