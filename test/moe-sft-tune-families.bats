# SPDX-License-Identifier: ISC
# moe-sft tune of families: tiny models with the keys, names and layouts of their
# files, with adapters on each of their linear layers (test/ref/family_tune.py).
# It takes half a minute.
load helpers

# Between them they have nearly all that families have in addition.
SOME="gpt2:inner gemma2:caps phi3:longrope-partial olmo2 qwen2_moe:dense glm4_moe gpt_oss deepseek_v3 qwen3_5_moe"

# of WHAT NAME...: a line for each.
of() {
    run -0 py "$ROOT/test/ref/family_tune.py" "$@"
    [ "${#lines[@]}" = $(($# - 1)) ]
}

# of_all WHAT
of_all() {
    # shellcheck disable=SC2046
    of "$1" $(py "$ROOT/test/ref/family_ref.py" list | cut -f 1)
    [[ $output != *": refused"* ]]
}

# model NAME: m, adapter, d.jsonl.
model() {
    py -c 'import sys, numpy as np, family_tune
family_tune.make(sys.argv[1], np.random.default_rng(3))' "$1"
}

@test "moe-sft tune: families' gradients are those of torch's autograd, whatever the threads" {
    need_torch
    # shellcheck disable=SC2086
    of grads $SOME
}

# bats test_tags=long
@test "moe-sft check: gradients of families, which are torch's, are right" {
    of check gpt2:inner gemma2:caps phi3:longrope-partial gpt_oss
}

@test "moe-sft tune: families learn, and hf-infer --lora and merge have the loss" {
    of steps gpt2:inner phi3:longrope-partial gpt_oss deepseek_v2 qwen3_5_moe
}

# bats test_tags=long
@test "moe-sft tune: all families' gradients are those of torch's autograd" {
    need_torch
    of_all grads
}

# bats test_tags=long
@test "moe-sft check: all gradients of all families are right" {
    of_all check
}

# bats test_tags=long
@test "moe-sft tune: all families learn, and hf-infer --lora and merge have the loss" {
    of_all steps
}

@test "moe-sft tune --targets: letters or PEFT's words for the modules, of which one may be two" {
    model gpt2
    tune() {
        moe-sft tune -m m -d d.jsonl -o run -f --ctx 64 -n 1 --rank 2 --targets "$1" || return
        py -c 'import json; c = json.load(open("run/adapter_config.json")); print(c["target_modules"], c["fan_in_fan_out"])'
        st-inspect list run/adapter_model.safetensors | sed -n 's/.*model\.transformer\.h\.0\.\(.*\)\.lora_A.*/\1/p'
    }
    [ "$(tune c_proj)" = "$(printf '%s\n' "['c_proj'] True" attn.c_proj mlp.c_proj)" ]
    [ "$(tune o,down)" = "$(printf '%s\n' "['c_proj'] True" attn.c_proj mlp.c_proj)" ]
    # as PEFT matches ends of names, this is not the MLP's
    for t in o attn.c_proj; do
        [ "$(tune $t)" = "$(printf '%s\n' "['attn.c_proj'] True" attn.c_proj)" ]
        run -0 hf-infer m --lora run --ids 1,2 --logits l.npy -f
        [ -z "$output" ]
    done
    [ "$(tune qkv,mlp.c_proj)" = "$(printf '%s\n' "['c_attn', 'mlp.c_proj'] True" attn.c_attn mlp.c_proj)" ]
    for t in q gate x attn h.0.attn.c_proj ""; do
        run -2 tune "o,$t"
        [ "${lines[0]}" = "moe-sft: --targets: \"$t\" is not one of qkv,o,up,down, or of c_attn, c_proj, c_fc" ]
    done
    moe-sft tune -m m -d d.jsonl -o run -f --ctx 64 -n 1 --rank 2 --targets c_attn
    moe-sft tune -m m -d d.jsonl -o run --ctx 64 -n 2 --resume --targets qkv
    run -65 moe-sft tune -m m -d d.jsonl -o run --ctx 64 -n 3 --resume --targets c_fc
    [[ $output == *"--targets was qkv (now up"* ]]
}

@test "moe-sft tune: layers with a state have names as in PEFT, and the same bits in any chunk and run" {
    model qwen3_5:text
    # chunks of 2048 tokens hold what those of 1024 do not
    sed -i 's/"max_position_embeddings": 256/"max_position_embeddings": 4096/' m/config.json
    for _ in 1 2 3 4 5 6 7 8 9; do cat d.jsonl; done >all.jsonl
    for ctx in 200 2048; do
        moe-sft tune -q -m m -d all.jsonl --ctx $ctx --batch 99 --compute f32 --init adapter --grads $ctx.g
    done
    cmp 200.g 2048.g
    tune() { moe-sft tune -q -m m -d d.jsonl -o "$1" --ctx 200 --batch 2 --lr 1e-2 --targets "in_a,out,linear_attn.in_proj_qkv" "${@:2}"; }
    tune whole -n 4
    tune cut -n 2
    tune cut -n 4 --resume
    cmp whole/adapter_model.safetensors cut/adapter_model.safetensors
    py -c 'import json; print(json.load(open("cut/adapter_config.json"))["target_modules"])' |
        grep -Fx "['in_proj_qkv', 'in_proj_a', 'out_proj']"
    st-inspect list cut/adapter_model.safetensors >names
    [ "$(grep -c 'layers.0.linear_attn.*lora_A' names)" = 3 ]
    run -0 ! grep -F layers.2 names # which attends
    run -2 moe-sft tune -m m -d d.jsonl -o x -n 1 --targets in_ba
    [[ ${lines[0]} == *'"in_ba" is not one of q,k,v,o,gate,up,down,in_qkv,in_z,in_b,in_a,out, or of '* ]]
}

@test "moe-sft tune --init, hf-infer --lora: fan_in_fan_out that is not the family's is said" {
    model gpt2
    hf-infer m --lora adapter --ids 1,2,3 --logits right.npy
    sed -i 's/"fan_in_fan_out": true/"fan_in_fan_out": false/' adapter/adapter_config.json
    run -0 hf-infer m --lora adapter --ids 1,2,3 --logits other.npy
    [ "$output" = "hf-infer: adapter/adapter_config.json: fan_in_fan_out is false, but gpt2 has weights [in, out]: ignored" ]
    cmp right.npy other.npy
    run -0 moe-sft tune -m m -d d.jsonl --ctx 64 -o run -n 1 --lr 0 --init adapter
    [[ $output == "moe-sft: adapter/adapter_config.json: fan_in_fan_out is false, but"* ]]
    grep -q '"fan_in_fan_out": true' run/adapter_config.json
    sed -i 's/"fan_in_fan_out": false, //' adapter/adapter_config.json # PEFT 0.1's
    run -0 hf-infer m --lora adapter --ids 1,2,3 --logits other.npy -f
    [ -z "$output" ]
}

@test "hf-infer --lora: modules that a cut adapter lacks are named, if the file has no root, too" {
    for name in gpt2 gpt2:prefix; do
        rm -rf m adapter
        model $name
        py -c 'import mkst
path = "adapter/adapter_model.safetensors"
mkst.save(path, {k: v for k, v in mkst.load(path).items() if ".h.2." not in k})'
        run -0 hf-infer m --lora adapter --ids 1 --logits l.npy -f
        [ "$output" = "hf-infer: adapter/adapter_model.safetensors: no tensors of 4 modules that target_modules has, which stay as in the base (the first is transformer.h.2.attn.c_attn)" ]
    done
}

@test "hf-infer --lora: a base layer that PEFT saved is the model's, of weights [in, out], too" {
    model gpt2
    base() { # BYTE: the base layer of c_attn, with its last bytes changed so
        py -c 'import sys, mkst
path = "adapter/adapter_model.safetensors"
own, add = mkst.load("m/model.safetensors"), mkst.load(path)
dtype, shape, data = own["h.0.attn.c_attn.weight"]
name = "base_model.model.transformer.h.0.attn.c_attn.base_layer.weight"
add[name] = (dtype, shape, data[:-4] + bytes([int(sys.argv[1])]) * 4 if sys.argv[1] != "-" else data)
mkst.save(path, add)' "$1"
    }
    hf-infer m --lora adapter --ids 1,2,3 --logits want.npy
    base -
    hf-infer m --lora adapter --ids 1,2,3 --logits got.npy
    cmp want.npy got.npy
    base 1
    run -65 hf-infer m --lora adapter --ids 1,2,3 --logits x.npy
    [[ $output == *"c_attn.base_layer.weight is not "*"trained on another model" ]]
}

@test "moe-sft tune: an adapter of a model of images and text has that model's names" {
    model gemma3:model-first
    moe-sft tune -q -m m -d d.jsonl -o run --ctx 64 -n 1 --rank 2 --targets q
    st-inspect list run/adapter_model.safetensors | grep -q "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight"
    hf-infer m -q --lora run --ids 1,2 --logits l.npy
}

@test "moe-sft tune --base int8: experts that lie [in, out] are refused" {
    model gpt_oss
    run -65 moe-sft tune -m m -d d.jsonl -o run -n 1 --base int8
    [ "$output" = "moe-sft: m: has experts whose weights are [in, out], which cannot be int8" ]
}

@test "moe-sft tune: an example is no longer than the positions that are learned" {
    model gpt2
    py -c 'import json; print(json.dumps(dict(ids=[1] * 80, labels=[1] * 80)))' >long.jsonl
    run -65 moe-sft tune -m m -d long.jsonl -o run -n 1
    [[ $output == *"long.jsonl: line 1"*80*64* ]]
}

@test "moe-sft merge: of weights [in, out] each is W + s (B A)^T, rounded once" {
    model gpt2
    py - <<'END'
import mkst
t = mkst.load("m/model.safetensors")
x = {k: mkst.values(*v) for k, v in t.items() if v[0] == "F32"}
for k in x: # one file of three types
    t[k] = mkst.bf16(x[k]) if ".1." in k else x[k].astype("<f2") if ".2." in k else t[k]
mkst.save("m/model.safetensors", t)
END
    moe-sft merge -b m -l adapter -o merged
    moe-sft merge -b m -l adapter -o again -j 3
    cmp merged/model.safetensors again/model.safetensors
    py - <<'END'
import mkst, numpy as np
base, merged = mkst.load("m/model.safetensors"), mkst.load("merged/model.safetensors")
lora = mkst.read("adapter/adapter_model.safetensors")[0]
types = set()
assert base.keys() == merged.keys()
for name, (dtype, shape, data) in base.items():
    at = "base_model.model.transformer." + name[:-len("weight")] + "lora_%s.weight"
    if at % "A" not in lora:
        assert merged[name] == base[name], name
        continue
    a, b = (lora[at % x].astype(float) for x in "AB")
    w = mkst.values(dtype, shape, data) + 2 * (b @ a).T
    want = mkst.bf16(w) if dtype == "BF16" else mkst.entry(w.astype(dict(F32="<f4", F16="<f2")[dtype]))
    got, want = mkst.values(*merged[name]), mkst.values(*want)
    # numpy's sum of three may be another f64, next to a tie
    assert merged[name][:2] == (dtype, shape) and np.mean(got != want) < 1e-3, name
    assert np.allclose(got, want, rtol=2 ** -7), name
    types.add((dtype, name.split(".", 2)[2]))
assert len(types) == 3 * 4, types
END
}
