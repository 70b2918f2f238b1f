# SPDX-License-Identifier: ISC
# Packed weights in tables: the same bits as with their numbers
# in F32, DIR.dequantized, which test/ref/packed_ref.py reads in float64.
load helpers

packed() {
    py "$ROOT/test/ref/packed_ref.py" "$@"
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
