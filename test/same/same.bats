# SPDX-License-Identifier: ISC
# Two builds of the tools give the same bytes: for another CPU (under qemu) or
# by another compiler.  $REF is the directory of the first, the other's is $BUILD;
# scripts/check-cross.sh and scripts/check-compilers.sh run this.
#
# What files mean, digests and orders are promised for every machine.  Kernels'
# numbers are promised for one instruction set, by any compiler: BITS=same.
# Else, on other CPUs, they are within LIMIT.
load ../helpers

MOE=$ROOT/demo/qwen3-moe-tiny
LIMIT=${LIMIT:-2e-5}

# both NAME SCRIPT: what the script's commands do, with each build's tools, in
# a directory for each where in/ is next to it.
both() {
    mkdir -p "$1/ref" "$1/new"
    printf 'exec >out 2>err\n%s\n' "$2" >"$1/script"
    (cd "$1/ref" && PATH=$REF:$PATH sh -e ../script) || { cat "$1/ref/err"; return 1; }
    (cd "$1/new" && sh -e ../script) || { cat "$1/new/err"; return 1; }
}

# same NAME SCRIPT: to the last byte.
same() {
    both "$@"
    diff -r "$1/ref" "$1/new"
}

# kernels NAME SCRIPT: for one instruction set after the other, or near.
kernels() {
    if [ "${BITS:-}" = same ]; then
        for isa in $ALL_ISAS; do
            has_isa $isa || continue
            TU_ISA=$isa same "$1-$isa" "$2"
        done
    else
        both "$@"
        py "$ROOT/test/ref/near.py" "$LIMIT" "$1/ref" "$1/new"
    fi
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    [ -n "${REF:-}" ] || skip "no REF: see scripts/check-cross.sh"
    export DEMO MOE ROOT
}

@test "same: st-inspect's lists, digests, metadata, tensors" {
    same st '
    st-inspect list -l $DEMO; st-inspect tree --json $MOE
    for f in $DEMO $MOE; do st-inspect hash $f; st-inspect hash --sha256 $f; st-inspect verify -v $f; done
    st-inspect meta $DEMO/model.safetensors
    st-inspect diff $DEMO $MOE || [ $? = 1 ]
    st-inspect cat $DEMO model.embed_tokens.weight --raw -o e.bf16
    st-inspect cat $DEMO model.norm.weight --dtype f64 --slice ::-1 -o n.npy'
}

@test "same: st-inspect's statistics" {
    kernels stats '
    st-inspect stats $DEMO; st-inspect stats --hist $MOE -t "*.weight"; st-inspect diff --rtol 0.1 $DEMO $DEMO'
}

@test "same: dumps that saev-write makes, rows and orders that saev-read gives" {
    mkdir in
    (cd in && py -c 'import json, numpy as np, saev_dump as s
m = s.meta(n=50, d=900, imgs_a_shard=7); json.dump(m, open("m.json", "w"))
a = s.numbers(m); a.tofile("a.f32"); np.save("a.npy", a); a.astype("<f2").tofile("a.f16")
(a.view("<u4") >> 16).astype("<u2").tofile("a.bf16")')
    same saev '
    i=../../in
    d=$(saev-write -q -m $i/m.json -o d --manifest <$i/a.f32); echo $d
    saev-write -q -m $i/m.json -o npy --pad $i/a.npy
    for t in f16 bf16; do saev-write -q -m $i/m.json -o $t --dtype $t <$i/a.$t; done
    saev-read verify --deep $d; saev-read info $d; saev-read meta --view image --layer 13 $d
    saev-read $d -o all.npy; saev-read --dtype bf16 --raw --view cls $d 7 -o row.bf16
    for s in 0 1; do saev-read --shuffle --seed $s $d -o s$s.npy; done
    saev-read --window 20 $d -o w.npy
    saev-read --shuffle --mem 1M --tmpdir . $d -o ext.npy
    saev-read --sample 9 --epoch 3 $d -o k.npy; saev-read --shuffle --index $d | head -n 40'
}

@test "same: compressors that kvc-convert converts" {
    mkdir in
    (cd in && py -c 'import sys, numpy as np; sys.argv[1:] = ["none"]
import mkst, kvc_pth as k, kvc_ref
for t in "F32", "F16", "BF16", "F64":
    state, _ = k.build(dtype=lambda i: t)
    open(t + ".pth", "wb").write(k.archive(state))
rng = np.random.default_rng(0)
kvc_ref.save("x.bin", kvc_ref.random_mlps(rng, 2, 4, 8, 5, 24, 12, True), 8, 5)')
    same kvc '
    for s in F32 F16 BF16 F64; do for t in fp16 bf16 fp32; do
        kvc-convert -q --input ../../in/$s.pth -o $s$t.bin --dtype $t
    done; done
    kvc-convert --info F32fp16.bin; kvc-convert --info --json ../../in/x.bin
    kvc-convert --check ../../in/x.bin
    kvc-convert --diff F32fp16.bin F16fp16.bin || [ $? = 1 ]
    kvc-convert --input F32bf16.bin -o back.safetensors; kvc-convert --input back.safetensors -o there.bin --dtype bf16'
}

@test "same: text to ids and back, greedy ids, draws" {
    same text '
    hf-infer $DEMO --encode <$ROOT/demo/held-out.txt; hf-infer $DEMO --encode <$ROOT/demo/held-out.txt | hf-infer $DEMO --decode
    hf-infer $DEMO -p "The lamp" -n 12 --greedy --json; hf-infer $DEMO -p "The lamp" -n 12 --seed 3 --ids-out
    hf-infer $MOE -p "The lamp" -n 6 --greedy --ids-out'
}

@test "same: logits, likelihoods, activations" {
    kernels model '
    hf-infer $DEMO -p "The lamp is in the house" --logits l.npy
    hf-infer $MOE -p "The lamp is in the house" --logits m.npy
    hf-infer $DEMO -p "The lamp is in the house" --nll'
}

@test "same: tables and what lut-apply makes of them" {
    mkdir in
    (cd in && py "$ROOT/test/ref/lut_cases.py" . && py -c 'import numpy as np
np.save("x.npy", np.random.default_rng(0).normal(size=(20, 60)).astype("<f4"))')
    for t in f32 bf16; do
        [ $t = f32 ] || LIMIT=0.008 # a rounding more or less
        T=$t kernels lut$t '
        i=../../in
        lut-precompute -q -m $i/model -s $i/sparsify -o tables --dtype $T
        lut-apply tables model.layers.0.self_attn.q_proj -i $i/x.npy -o y.npy
        lut-apply tables model.layers.0.self_attn.q_proj -i $i/x.npy -m $i/model --top 7 -o top.npy'
    done
}

@test "same: adapters: first numbers, conversions" {
    py "$ROOT/test/ref/moe.py" in
    same init '
    i=../../in
    moe-sft init -b $i/base.safetensors -o init.safetensors --rank 4 --seed 5
    moe-sft convert -l $i/lora.safetensors -o peft; moe-sft convert -l $i/peft -o ours.safetensors'
}

@test "same: forward and backward of the experts, int8, merge, some steps" {
    py "$ROOT/test/ref/moe.py" in
    LIMIT=0.008 kernels moe '
    i=../../in
    for m in bf16 int8; do
        moe-sft forward -b $i/base.safetensors -l $i/lora.safetensors -i $i/batch.safetensors -o f$m.safetensors -c c$m.safetensors --mode $m
        moe-sft backward -b $i/base.safetensors -l $i/lora.safetensors -c c$m.safetensors -g $i/batch.safetensors -o b$m.safetensors
        rm c$m.safetensors
    done
    moe-sft merge -b $i/base.safetensors -l $i/lora.safetensors -o merged.safetensors
    moe-sft quantize -b $i/base.safetensors -o q.safetensors'
}
