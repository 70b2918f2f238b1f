# moe-sft: the operator through its files, against float64 (test/ref/moe.py),
# adapters in PEFT's form, and what a user types.
load helpers

# data DIR [NAME=VALUE...]: base, lora, batch, hf and peft, LoRA half of all.
data() {
    "$PYTHON" "$ROOT/test/ref/moe.py" "$@"
}

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
    PYTHONPATH=$ROOT/test/ref "$PYTHON" - <<'END'
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
    PYTHONPATH=$ROOT/test/ref "$PYTHON" - <<'END'
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

@test "moe-sft convert: PEFT's folder and our file are the same numbers" {
    data .
    moe-sft convert -l lora.safetensors -o p
    moe-sft convert -l p -o back.safetensors
    moe-sft convert -l peft -o back2.safetensors
    cmp back.safetensors back2.safetensors
    PYTHONPATH=$ROOT/test/ref "$PYTHON" - <<'END'
import json, moe
ours, meta = moe.read("lora.safetensors")
theirs = moe.read("p/adapter_model.safetensors")[0]
back, back_meta = moe.read("back.safetensors")
config = json.load(open("p/adapter_config.json"))
assert (config["r"], config["lora_alpha"], config["peft_type"]) == (5, 10, "LORA")
assert sorted(config["target_modules"]) == ["down_proj", "gate_proj", "up_proj"]
for name, value in ours.items():
    assert (back[name] == value).all()
    p, m = name.split("_")[0], name[-1].upper()
    for e in range(4):
        key = "base_model.model.model.layers.3.mlp.experts.%d.%s_proj.lora_%s.weight" % (e, p, m)
        assert (theirs.pop(key) == value[e]).all()
assert not theirs
END
}
