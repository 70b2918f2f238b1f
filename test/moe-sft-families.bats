# SPDX-License-Identifier: ISC
# moe-sft on one layer's experts as families of models have them on disk.
load helpers
load sft

FAMILIES="mixtral qwen2_moe glm4_moe deepseek_v2 deepseek_v3 qwen3_5_moe"

# The same numbers by other names give the same bits; where a batch has no
# expert_ids, the experts and weights of float64 (test/ref/moe.py).
@test "moe-sft: a layer by each family's names has the bits of the stacked one, and its router" {
    data d E=8 k=2 layer=1
    moe-sft forward -b d/base.safetensors -l d/lora.safetensors -i d/batch.safetensors -o f.safetensors \
        -c c.safetensors
    moe-sft backward -b d/base.safetensors -l d/lora.safetensors -c c.safetensors -g d/batch.safetensors \
        -o b.safetensors
    moe-sft quantize -b d/base.safetensors -o q.safetensors >/dev/null
    moe-sft merge -b d/base.safetensors -l d/lora.safetensors -o m.safetensors
    for family in $FAMILIES; do
        py "$ROOT/test/ref/moe.py" family "$family" $family.d E=8 k=2 layer=1
        run -0 moe-sft info -b $family.d
        [[ $output == *$'\nlayer\t1\nrouter\tyes\n'* && $output == *$'experts\t8\ntop_k\t2\nhidden\t96\nintermediate\t80\n'* ]]
        for mode in "" "-j 3"; do
            # shellcheck disable=SC2086
            moe-sft forward -b $family.d -l d/lora.safetensors -i d/batch.safetensors -o x.safetensors -c xc.safetensors \
                -f $mode
            cmp x.safetensors f.safetensors
            # shellcheck disable=SC2086
            moe-sft backward -b $family.d -l d/lora.safetensors -c xc.safetensors -g d/batch.safetensors -o x.safetensors \
                -f $mode
            cmp x.safetensors b.safetensors
        done
        moe-sft quantize -b $family.d -o x.safetensors -f >/dev/null
        cmp x.safetensors q.safetensors
        moe-sft merge -b $family.d -l d/lora.safetensors -o x.safetensors -f
        cmp x.safetensors m.safetensors
        # the router
        cp $family.batch.safetensors routed.safetensors
        cp routed.safetensors free.safetensors
        edit free.safetensors 'del t["weights"], t["expert_ids"]'
        moe-sft forward -b $family.d -l d/lora.safetensors -i free.safetensors -o x.safetensors -c xc.safetensors -f
        py - $family <<'END_PY'
import sys, numpy as np, mkst
got, want = mkst.read("xc.safetensors")[0], mkst.read("routed.safetensors")[0]
by = [np.argsort(x["expert_ids"], axis=1) for x in (got, want)]
sort = lambda x, name, i: np.take_along_axis(x[name], by[i], axis=1)
assert (sort(got, "expert_ids", 0) == sort(want, "expert_ids", 1)).all()
d = np.abs(sort(got, "weights", 0) - sort(want, "weights", 1)).max()
assert d < 1e-5, d
END_PY
        moe-sft train -q -b $family.d -l d/lora.safetensors -n 2 -o $family.run free.safetensors
    done
}

@test "moe-sft: gpt-oss's experts, in BF16 and MXFP4, are as the float64 reference" {
    data d E=8 k=2 I=96 layer=1
    py "$ROOT/test/ref/moe.py" family gpt_oss g E=8 k=2 I=96 layer=1
    run -0 moe-sft info -b g.mxfp4
    [[ $output == *$'experts\t8\ntop_k\t2\nhidden\t96\nintermediate\t96\n'* ]]
    [[ $output == *$'base_dtype\tmxfp4\nbase_nbytes\t117504\n'*$'\nlayer\t1\nrouter\tyes\n'* ]]
    for mode in "" "--tp 3" "--mode int8" "--mode int8 --tp 2"; do
        limits="0.01 0.015"
        [[ $mode == *int8* ]] && limits="0.05 0.06"
        for m in g g.mxfp4; do
            for j in 1 3; do
                # shellcheck disable=SC2086
                moe-sft forward -b $m -l d/lora.safetensors -i d/batch.safetensors -o f.$j -c c -f -j $j $mode
                # shellcheck disable=SC2086
                moe-sft backward -b $m -l d/lora.safetensors -c c -g d/batch.safetensors -o b.$j -f -j $j $mode
            done
            cmp f.1 f.3
            cmp b.1 b.3
            [ $m = g ] && cp f.1 f.g && cp b.1 b.g
            cmp f.1 f.g # one is the other's numbers
            cmp b.1 b.g
        done
        py "$ROOT/test/ref/moe.py" forward f.1 g d/lora.safetensors d/batch.safetensors "${limits% *}"
        py "$ROOT/test/ref/moe.py" backward b.1 g d/lora.safetensors d/batch.safetensors "${limits#* }"
    done
    cp -r g g32
    edit g32/model.safetensors 'for n in t:
    if n.endswith("_proj"): t[n] = mkst.values(*t[n]).astype("<f4")'
    moe-sft forward -b g32 -l d/lora.safetensors -i d/batch.safetensors -o x --mode int8 --tp 2
    cmp x f.1
    # that comparison tells biases and clamps
    run -1 py "$ROOT/test/ref/moe.py" forward f.1 d/base.safetensors d/lora.safetensors d/batch.safetensors 0.05
    for mode in bf16 int8; do
        moe-sft check -b g -l d/lora.safetensors -i d/batch.safetensors --mode $mode
    done
    # an up of 7.01 is 7 in bf16, which has a slope, and one of 7.02 has none
    edit g/model.safetensors 'p = "model.layers.1.mlp.experts.gate_up_proj"
t[p] = mkst.bf16(np.zeros((8, 96, 192)))
t[p + "_bias"] = np.tile(np.array([1, 7.01, 1, 7.02], "f4"), (8, 48))'
    moe-sft init -b g --layer 1 -o new
    moe-sft check -b g -l new -i d/batch.safetensors
}

@test "moe-sft: gpt-oss's experts are quantized with their biases, routed and trained" {
    data d E=8 k=2 I=96 layer=1
    py "$ROOT/test/ref/moe.py" family gpt_oss g E=8 k=2 I=96 layer=1
    moe-sft quantize -b g.mxfp4 -o q >/dev/null
    moe-sft quantize -b g -o q2 >/dev/null
    cmp q q2
    for b in q "g --mode int8"; do
        # shellcheck disable=SC2086
        moe-sft forward -b $b -l d/lora.safetensors -i d/batch.safetensors -o f."${b:0:1}"
    done
    cmp f.q f.g
    # the router of float64
    cp gpt_oss.batch.safetensors free
    edit free 'del t["weights"], t["expert_ids"]'
    moe-sft forward -b g -l d/lora.safetensors -i free -o x -c xc
    py - <<'END_PY'
import numpy as np, mkst
got, want = mkst.read("xc")[0], mkst.read("gpt_oss.batch.safetensors")[0]
assert (got["expert_ids"] == want["expert_ids"]).all() # the best first
assert np.abs(got["weights"] - want["weights"]).max() < 1e-5
END_PY
    moe-sft init -b g --rank 4 -o new
    moe-sft train -q -b g.mxfp4 -l new -n 20 --lr 5e-3 -o run free >log
    [ "$(awk 'NR == 2 { a = $2 } END { print $2 < 0.9 * a }' log)" = 1 ]
    # what is not there, or is another's
    edit g/model.safetensors 't["model.layers.1.mlp.experts.down_proj_bias"] = mkst.bf16(np.full((8, 96), np.nan))'
    run -65 moe-sft info -b g
    [ "$output" = "moe-sft: g: the bias of down_proj of expert 0 has NaN or Inf" ]
    edit g/model.safetensors 'del t["model.layers.1.mlp.experts.gate_up_proj_bias"]'
    run -65 moe-sft info -b g
    [ "$output" = "moe-sft: g: tensor model.layers.1.mlp.experts.gate_up_proj_bias is missing" ]
    edit q 'del t["up_proj_bias"]'
    run -65 moe-sft info -b q
    [ "$output" = "moe-sft: q: tensor up_proj_bias is missing" ]
    sed 's/"num_local_experts": 8/"num_local_experts": 9/' g.mxfp4/config.json >config
    cp g.mxfp4/config.json was
    cp config g.mxfp4/config.json
    run -65 moe-sft info -b g.mxfp4
    [ "$output" = "moe-sft: g.mxfp4/config.json: is of 9 experts (expected 8, as in model.layers.1.mlp.experts.)" ]
    cp was g.mxfp4/config.json
    sed -i 's/7.0/8.0/' g.mxfp4/config.json
    run -65 moe-sft info -b g.mxfp4
    [ "$output" = "moe-sft: g.mxfp4/config.json: swiglu_limit is 8.0 (expected a number from 7 to 7)" ]
}

@test "moe-sft: experts that are computed in another way are refused by name" {
    py "$ROOT/test/ref/moe.py" family mixtral m layer=1
    sed -i 's/"silu"/"gelu"/' m/config.json
    run -65 --separate-stderr moe-sft info -b m
    [ "$stderr" = 'moe-sft: m/config.json: hidden_act is "gelu" (expected "silu")' ]
    # which a file of stacks would say nothing of
    data d E=8 k=2 I=96 layer=1
    py "$ROOT/test/ref/moe.py" family gpt_oss g E=8 k=2 I=96 layer=1
    run -65 --separate-stderr moe-sft merge -b g -l d/lora.safetensors@1 -o x.safetensors
    [ "$stderr" = "moe-sft: g: experts of a gpt_oss are merged into a directory" ]
}

# PEFT finds an adapter by its module's name: those of transformers' modeling_mixtral.py.
@test "moe-sft convert: with a base, a PEFT directory has its family's names, and is read by them" {
    data d E=8 k=2 layer=1
    py "$ROOT/test/ref/moe.py" family mixtral m E=8 k=2 layer=1
    moe-sft convert -l d/lora.safetensors --layer 1 -o llama
    moe-sft convert -b m -l d/lora.safetensors --layer 1 -o own
    py - <<'END_PY'
import json, mkst
llama, own = (mkst.load(d + "/adapter_model.safetensors") for d in ("llama", "own"))
words = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
def name(n):
    head, expert = n.split(".mlp.experts.")
    e, word, rest = expert.split(".", 2)
    return f"{head}.block_sparse_moe.experts.{e}.{words[word]}.{rest}"
assert len(own) == 48 and own == {name(n): x for n, x in llama.items()}
assert sorted(json.load(open("own/adapter_config.json"))["target_modules"]) == ["w1", "w2", "w3"]
END_PY
    moe-sft convert -l own -o back.safetensors 2>err
    [ ! -s err ]
    moe-sft convert -l llama -o want.safetensors
    cmp back.safetensors want.safetensors
    moe-sft merge -b m -l own -o a.safetensors
    moe-sft merge -b m -l d/lora.safetensors -o b.safetensors
    cmp a.safetensors b.safetensors
    # to hf-infer a layer's file is its PEFT directory
    py "$ROOT/test/ref/family_ref.py" make mixtral whole
    moe-sft init -b whole --layer 1 -o one.safetensors
    edit one.safetensors 'for n in t: t[n] = (t[n][0], t[n][1], b"\x80\x3d\x10\xbd" * (len(t[n][2]) // 4))'
    moe-sft convert -b whole -l one.safetensors@1 -o one
    for l in one.safetensors@1 one; do
        hf-infer whole --ids 1,2,3 --lora $l --logits $l.npy
    done
    cmp one.safetensors@1.npy one.npy
    hf-infer whole --ids 1,2,3 --logits without.npy
    run -1 cmp one.npy without.npy
    # ranks by layer
    moe-sft init -b m --rank 2 -o l0.safetensors
    moe-sft init -b m --rank 3 -o l1.safetensors
    edit l0.safetensors 'm["layer_idx"] = "0"'
    edit l1.safetensors 'm["layer_idx"] = "1"'
    for l in 0 1; do
        py "$ROOT/test/ref/moe.py" family mixtral m$l E=8 k=2 layer=$l
    done
    edit m0/model.safetensors 't.update(mkst.load("m1/model.safetensors"))'
    moe-sft convert -b m0 -l l0.safetensors,l1.safetensors -o both
    run -0 cat both/adapter_config.json
    [[ $output == *'"layers\\.1\\.block_sparse_moe\\.experts\\..*": 3'* ]]
}

@test "moe-sft: the layer that predicts a token more is none of the model's" {
    for at in deepseek_v3:1:2 glm4_moe:1:2 qwen3_next:0:3 qwen3_5_moe:0:3; do
        IFS=: read -r m first last <<<"$at"
        py "$ROOT/test/ref/family_ref.py" make "$m" "$m"
        st-inspect list "$m" | grep -qE "layers\.3\.eh_proj|mtp\..*experts\."
        run -2 --separate-stderr moe-sft info -b "$m"
        [ "${stderr%%$'\n'*}" = "moe-sft: $m: has experts of layers $first to $last: --layer N names one" ]
        for layer in "$first" "$last"; do
            moe-sft info -b "$m" --layer "$layer" | grep -qx "layer	$layer"
        done
    done
    run -65 moe-sft info -b glm4_moe --layer 3
    [ "$output" = "moe-sft: glm4_moe: has no experts of layer 3 (of layers 1 to 2)" ]
}
