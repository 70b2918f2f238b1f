# SPDX-License-Identifier: ISC
# What readers of the Python exporter's directories need, and when a table was
# made.
load helpers
load lut

LAYER=model.layers.0.self_attn.q_proj

# applied DIR [LAYER]: lut-apply's y of x.npy, and what such a reader computes:
# names without "model.", inputs minus decoder_bias, numpy in double precision.
applied() {
    lut-apply -q "$1" ${2:-$LAYER} <x.npy >y.npy
    py - "$1" "${2:-$LAYER}" <<'END'
import json, os, sys, numpy as np, lut_ref as ref
meta = json.load(open(os.path.join(sys.argv[1], "metadata.json")))
entry = meta["layers"][sys.argv[2].removeprefix("model.")]
t = ref.read_safetensors(os.path.join(sys.argv[1], entry["file"]))[0]
x, y = np.load("x.npy").astype(float), np.load("y.npy")
z = np.maximum((x - t["decoder_bias"]) @ t["encoder_weight"].T + t["encoder_bias"], 0)
k = meta["sae_config"]["k_active"]
z[z < -np.sort(-z, axis=1)[:, k - 1:k]] = 0
want = z @ t["precomputed_products"] + t["bias_product"]
assert abs(y - want).max() < 1e-4 * abs(want).max(), abs(y - want).max()
assert entry["file"] == sys.argv[2].removeprefix("model.") + ".lut.safetensors"
END
}

make_x() {
    make_cases
    "$PYTHON" -c 'import numpy as np
np.save("x.npy", np.random.default_rng(1).normal(0, 1, (30, 60)).astype("f4"))'
}

@test "lut-precompute --no-model-prefix --centering explicit: a reader of the exporter's directories has lut-apply's y" {
    make_x
    made=(-m model -s sparsify -o t --dtype f32 --no-model-prefix --centering explicit)
    lut-precompute "${made[@]}" --layers '*.0.*.q_proj,*.1.*.qkv_proj'
    applied t
    applied t model.layers.1.self_attn.qkv_proj
    # the two alone are not enough
    lut-precompute -m model -s sparsify -o folded --layers '*.0.*.q_proj' --dtype f32 --no-model-prefix
    run -1 applied folded
    lut-precompute -m model -s sparsify -o prefixed --layers '*.0.*.q_proj' --dtype f32 --centering explicit
    run -1 applied prefixed
    [[ $output == *KeyError* ]]
    # the numbers are those of tables with the prefix
    same_tensors t/${LAYER#model.}.lut.safetensors prefixed/$LAYER.lut.safetensors
    # either name is read, and what else works on tables does
    lut-apply -q t ${LAYER#model.} <x.npy | cmp - <(lut-apply -q prefixed $LAYER <x.npy)
    run -0 lut-precompute "${made[@]}" --layers '*.0.*.q_proj,*.1.*.qkv_proj' --resume --verify
    cp t/metadata.json old
    lut-precompute --index t
    cmp t/metadata.json old
    rm t/metadata.json
    lut-precompute --index t
    cmp t/metadata.json old
    lut-precompute calibrate t $LAYER <x.npy
    lut-apply t $LAYER -m model --tau 1 <x.npy >y.npy
    # of a layer's two files, by both names, one is listed
    cp prefixed/$LAYER.lut.safetensors t
    run -0 --separate-stderr lut-precompute --index t
    [ "$stderr" = "lut-precompute: t/$LAYER.lut.safetensors: is a table of $LAYER, which has its own file: left out" ]
    "$PYTHON" -c 'import json
assert list(json.load(open("t/metadata.json"))["layers"]) == ["layers.0.self_attn.q_proj", "layers.1.self_attn.qkv_proj"]'
    run -2 lut-precompute --index t --no-model-prefix
}

@test "lut-precompute: created_at is SOURCE_DATE_EPOCH's, and unsaid without it" {
    make_cases
    make() {
        lut-precompute -q -m model -s sparsify --layers '*.0.*.q_proj' "$@"
    }
    created() {
        py - "$1" <<'END'
import json, sys, lut_ref as ref
meta = ref.read_safetensors(sys.argv[1] + "/model.layers.0.self_attn.q_proj.lut.safetensors")[2]
infos = json.loads(meta["lut"])["creation_info"], json.load(open(sys.argv[1] + "/metadata.json"))["creation_info"]
assert infos[0] == infos[1] and infos[0]["source_model"] == "model"
print(infos[0].get("created_at"))
END
    }
    make -o a
    [ "$(created a)" = None ]
    SOURCE_DATE_EPOCH=1766570400 make -o b
    [ "$(created b)" = 2025-12-24T10:00:00Z ]
    SOURCE_DATE_EPOCH=1766570400 make -o c
    diff -r b c
    # --resume keeps what was made at another time, --index its time
    md5sum b/* >sums
    SOURCE_DATE_EPOCH=1 make -o b --resume
    lut-precompute --index b
    md5sum --quiet -c sums
    rm b/metadata.json
    SOURCE_DATE_EPOCH=0 lut-precompute --index b
    md5sum --quiet -c sums
    SOURCE_DATE_EPOCH=253402300799 make -o d
    [ "$(created d)" = 9999-12-31T23:59:59Z ]
    for bad in '' x -1 1e9 253402300800 99999999999999999999 ' 1'; do
        SOURCE_DATE_EPOCH=$bad run -2 --separate-stderr make -o e
        [[ ${stderr_lines[0]} == 'lut-precompute: SOURCE_DATE_EPOCH: "'$bad'" '* ]] || { echo "$stderr"; return 1; }
        [ ! -e e ]
    done
}

# bats test_tags=long
@test "lut-precompute, hf-infer --lut: tables of families are as numpy's, their weights [in, out] or fused" {
    py "$ROOT/test/ref/lut_family.py" gpt2:prefix gpt_neox gemma2 phi3 cohere2 starcoder2 llava qwen3_5:text \
        qwen3_next deepseek_v3 gpt_oss mixtral
}

@test "lut-precompute, lut-apply: a relative of GPT-2's, of these names but unknown layout, is refused" {
    py "$ROOT/test/ref/family_ref.py" make gpt2:prefix m
    py -c 'import numpy as np, lut_ref as ref
ref.write_sae("sae/h.0.attn.c_proj", "sparsify", ref.tiny_sae(np.random.default_rng(0), 9, 48), 3)'
    lut-precompute -q -m m -s sae -o t --dtype f32
    grep -q '"num_layers": 3' t/metadata.json
    sed -i 's/"model_type": "gpt2"/"model_type": "gpt_bigcode"/' m/config.json
    run -65 --separate-stderr lut-precompute -m m -s sae -o u
    says='model.transformer.h.0.attn.c_proj.weight is [inputs, outputs] in a gpt2, and no model_type of hf-infer --families says whether it is here'
    [ "$stderr" = "lut-precompute: m: $says" ]
    [ ! -e u ]
    mv m/config.json .
    py -c 'import numpy as np; np.save("x.npy", np.ones((2, 48), "<f4"))'
    run -65 --separate-stderr lut-apply t h.0.attn.c_proj -m m/model.safetensors --ratio 0.5 <x.npy
    [ "$stderr" = "lut-apply: m/model.safetensors: $says" ]
}
