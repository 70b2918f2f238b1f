# SPDX-License-Identifier: ISC
# Packed weights in moe-sft and in tables: the same bits as with their numbers
# in F32, DIR.dequantized, which test/ref/packed_ref.py reads in float64.
load helpers

packed() {
    py "$ROOT/test/ref/packed_ref.py" "$@"
}

@test "moe-sft: experts in packed forms give the bits that their numbers give" {
    for form in fp8 ct-int4-asym gptq4-desc; do
        packed qwen3_moe $form $form
        # an expert's matrix that is left as it was
        py - $form <<'EOF'
import sys, mkst
name = "model.layers.1.mlp.experts.2.up_proj"
path = sys.argv[1] + "/model.safetensors"
t = {x: v for x, v in mkst.load(path).items() if not x.startswith(name)}
t[name + ".weight"] = mkst.load(sys.argv[1] + ".dequantized/model.safetensors")[name + ".weight"]
mkst.save(path, t)
EOF
        read -r hidden inter <<<"$(moe-sft info -b $form --layer 1 |
            awk '$1 == "hidden" || $1 == "intermediate" { print $2 }' | paste -sd' ')"
        py "$ROOT/test/ref/moe.py" $form.d E=4 k=2 H="$hidden" I="$inter" r=4 qlen=9 layer=1
        for m in $form $form.dequantized; do
            mkdir $m.out
            for mode in bf16 int8; do
                moe-sft forward -b $m --layer 1 -l $form.d/lora.safetensors -i $form.d/batch.safetensors \
                    --mode $mode -o $m.out/fwd-$mode.safetensors -c $m.cache-$mode.safetensors
                moe-sft backward -b $m --layer 1 -l $form.d/lora.safetensors -c $m.cache-$mode.safetensors \
                    -g $form.d/batch.safetensors -o $m.out/bwd-$mode.safetensors
            done
            moe-sft quantize -b $m --layer 1 -o $m.out/int8.safetensors >$m.out/quantize
            moe-sft train -b $m --layer 1 -l $form.d/lora.safetensors -n 2 -o $m.trained \
                $form.d/batch.safetensors
            cp $m.trained/*lora*.safetensors $m.out/
        done
        [ "$(ls $form.out | wc -l)" -ge 7 ]
        diff -r $form.out $form.dequantized.out
        moe-sft check -b $form --layer 1 -l $form.d/lora.safetensors -i $form.d/batch.safetensors
    done
    run -0 moe-sft info -b ct-int4-asym --layer 0
    # 3 matrices of 4 experts: half a byte, and a BF16 scale and a zero for 24
    [[ $output == *$'base_dtype\tint4 g24\nbase_nbytes\t'$((12 * 48 * 72 / 2 + 12 * 48 * 72 / 24 * 3))$'\n'* ]]
}

@test "moe-sft: another scale of a packed expert is another base" {
    packed qwen3_moe fp8 m
    py "$ROOT/test/ref/moe.py" d E=4 k=2 H=61 I=45 r=4 qlen=9 layer=1
    moe-sft forward -b m --layer 1 -l d/lora.safetensors -i d/batch.safetensors -o f.safetensors \
        -c cache.safetensors
    py -c '
import mkst
t = mkst.load("m/model.safetensors")
x = t["model.layers.1.mlp.experts.3.up_proj.weight_scale_inv"]
t["model.layers.1.mlp.experts.3.up_proj.weight_scale_inv"] = (*x[:2], x[2][:-1] + b"\x3e")
mkst.save("m/model.safetensors", t)'
    run -65 moe-sft backward -b m --layer 1 -l d/lora.safetensors -c cache.safetensors \
        -g d/batch.safetensors -o b.safetensors
}

@test "moe-sft tune: adapters of packed models are those of their numbers" {
    py -c '
import json, random
for i in range(6):
    ids = [random.Random(i).randrange(97) for _ in range(3 + 2 * i)]
    print(json.dumps({"ids": ids, "labels": ids}))' >ids.jsonl
    for of in "llama ct-int4-asym" "qwen3 gptq4-desc" "qwen3_moe fp8"; do
        read -r family form <<<"$of"
        packed "$family" "$form" "$family"
        for how in "--compute f32" "--compute bf16" "--base int8"; do
            [ "$family" = qwen3_moe ] || [ "$how" != "--base int8" ] || continue
            for m in $family $family.dequantized; do
                # shellcheck disable=SC2086
                moe-sft tune -q -m $m -d ids.jsonl -o $m.run -f -n 2 --batch 3 --rank 4 --lr 1e-2 $how
            done
            for f in adapter_model.safetensors log.tsv; do
                cmp $family.run/$f $family.dequantized.run/$f
            done
        done
        # what was learned is there in the packed model, too
        hf-infer $family --lora $family.run --ids 1,2,3 --logits a.npy -f
        hf-infer $family.dequantized --lora $family.run --ids 1,2,3 --logits b.npy -f
        cmp a.npy b.npy
        # of GPTQ codes, scales, zeros and columns' groups are laid out
        run -0 moe-sft tune -m $family -d ids.jsonl --dry-run
        echo "$output" | py -c '
import sys, mkst
t = mkst.load(sys.argv[1] + "/model.safetensors")
rows = dict(line.split("\t")[:2] for line in sys.stdin.read().splitlines() if "\t" in line)
laid = int(rows["memory: packed weights, laid out"])
codes = [k[:-7] for k in t if k.endswith("qweight")]
n = sum(len(t[k + "qweight"][2]) + len(t[k + "scales"][2]) * 3 // 2 + len(t[k + "g_idx"][2]) for k in codes)
assert (n <= laid <= n + 128 * len(codes)) if codes else laid < len(t) << 10, (n, laid)
total = sum(int(v) for k, v in rows.items() if k.startswith("memory: ") and k not in ("memory: total", "memory: mapped files"))
assert total == int(rows["memory: total"].replace(",", "")), rows' $family
        run -65 moe-sft merge -b $family -l $family.run -o merged
        [ "$output" = "moe-sft: $family: its weights are packed: st-convert --dequantize first, and merge into that" ]
        [ ! -e merged ]
    done
}

@test "lut-precompute: tables of packed layers, and what compensates them, are their numbers'" {
    for form in fp8 ct-int4-asym gptq4-desc; do
        packed llama $form $form
        py - $form <<'EOF'
import sys, numpy as np, lut_ref as ref, mkst
for name, t in mkst.load(sys.argv[1] + ".dequantized/model.safetensors").items():
    hook = name[len("model."):-len(".weight")]
    if hook in ("layers.0.mlp.up_proj", "layers.1.self_attn.o_proj"):
        sae = ref.tiny_sae(np.random.default_rng(5), 70, t[1][1], "F32")
        ref.write_sae("%s.sae/%s" % (sys.argv[1], hook), "sparsify", sae, 6)
EOF
        for m in $form $form.dequantized; do
            run -0 --separate-stderr lut-precompute -m $m -s $form.sae -o $m/lut --fuse gate_up --verify --store-weights --dtype f32
            [ "${#lines[@]}" = 3 ]
        done
        py - $form <<'EOF'
import os, sys, mkst
n = 0
for f in sorted(os.listdir(sys.argv[1] + "/lut")):
    if f.endswith(".safetensors"):
        a, b = [mkst.load("%s%s/lut/%s" % (sys.argv[1], x, f)) for x in ("", ".dequantized")]
        assert a == b, f
        n += 1
assert n == 2, n
EOF
        rm $form/lut/* $form.dequantized/lut/*
        for m in $form $form.dequantized; do
            lut-precompute -q -m $m -s $form.sae -o $m/lut --fuse gate_up
            for fix in 0.02 0.4; do
                run -0 --separate-stderr hf-infer $m --lut $m/lut --ratio $fix --ids 1,2,3 --logits $m.$fix.npy
                [ -z "$stderr" ]
            done
        done
        for fix in 0.02 0.4; do
            cmp $form.$fix.npy $form.dequantized.$fix.npy
        done
    done
    run -0 --separate-stderr hf-infer fp8 --lut fp8.dequantized/lut --ids 1 --top 1
    [[ $stderr == *"was made from other weights than this model's"* ]]
}

@test "moe-sft: experts in one tensor of FP8 give the bits that their numbers give" {
    py "$ROOT/test/ref/moe.py" d E=4 k=2 H=61 I=45 r=4 qlen=9 layer=1
    py "$ROOT/test/ref/moe.py" family qwen3_5_moe m E=4 k=2 H=61 I=45 r=4 qlen=9 layer=1
    cp -r m m.dequantized
    py - <<'EOF2'
import json, mkst, numpy as np, packed_forms
g = np.random.default_rng(5)
t, plain = mkst.load("m/model.safetensors"), mkst.load("m/model.safetensors")
n = 0
for name in list(t):
    if not name.endswith(("gate_up_proj", "experts.down_proj")):
        continue
    E, out, cols = t[name][1]
    q = g.integers(0, 0x58, (E, out, cols)) + 128 * g.integers(0, 2, (E, out, cols))
    s = (2.0 ** -7 * (1 + g.random((E, -(-out // 16), -(-cols // 32))))).astype("<f4")
    each = np.repeat(np.repeat(s, 16, axis=1), 32, axis=2)[:, :out, :cols]
    t[name] = "F8_E4M3", [E, out, cols], q.astype("u1").tobytes()
    t[name + "_scale_inv"] = s
    plain[name] = (packed_forms.e4m3(q.astype("u1")) * each).astype("<f4")
    n += 1
assert n == 2
mkst.save("m/model.safetensors", t)
mkst.save("m.dequantized/model.safetensors", plain)
c = json.load(open("m/config.json"))
c["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", activation_scheme="dynamic",
                                weight_block_size=[16, 32])
json.dump(c, open("m/config.json", "w"))
EOF2
    for m in m m.dequantized; do
        moe-sft forward -b $m -l d/lora.safetensors -i d/batch.safetensors -o fwd.$m -c cache.$m
        moe-sft backward -b $m -l d/lora.safetensors -c cache.$m -g d/batch.safetensors -o bwd.$m
        moe-sft quantize -b $m -o int8.$m >quantize.$m
    done
    for f in fwd bwd int8 quantize; do
        cmp $f.m $f.m.dequantized
    done
    run -0 moe-sft info -b m
    [[ $output == *$'base_dtype\tfp8 16x32\n'* ]]
    run -65 --separate-stderr moe-sft merge -b m -l d/lora.safetensors -o merged.safetensors
    [ "$stderr" = "moe-sft: m: its weights are packed: st-convert --dequantize first, and merge into that" ]
    [ ! -e merged.safetensors ]
    st-convert -q m -o unpacked --dequantize --dtype f32
    st-inspect diff -t '*_proj' unpacked m.dequantized
    for m in unpacked m.dequantized; do
        moe-sft merge -q -b $m -l d/lora.safetensors -o $m.safetensors
    done
    cmp unpacked.safetensors m.dequantized.safetensors
}
