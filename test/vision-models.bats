# SPDX-License-Identifier: ISC
# What tools that read models do with the directory of a vision encoder.
load helpers

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    for m in clip vit; do py "$ROOT/test/ref/vision_ref.py" make $m $m; done
}

@test "a vision encoder reads no text: generating, scoring and tuning are refused by its name" {
    echo '{"messages":[{"role":"assistant","content":"b"}]}' >c.jsonl
    for m in clip vit; do
        says="$m/config.json: model_type \"$m\" is a vision encoder, which reads no text (hf-infer --images)"
        for how in "-p hi" "--ids 1 --logits -" "--ids 1 --acts resid:0" "--ids 1 --top 3"; do
            # shellcheck disable=SC2086
            run -65 --separate-stderr hf-infer $m $how
            [ "$stderr" = "hf-infer: $says" ]
        done
        run -65 --separate-stderr moe-sft tune -m $m -d c.jsonl -o out
        [ "$stderr" = "moe-sft: $says" ]
        [ ! -e out ]
    done
}

@test "hf-infer --places: of vision encoders with the modules' own names, norm once" {
    run -0 hf-infer clip --places
    [ "${lines[1]}" = $'blocks.0.hook_resid_pre\tresid:-1\tblocks.0.hook_resid_pre\t48' ]
    [ "${lines[2]}" = $'encoder.layers.0.self_attn.q_proj\tin:q_proj:0\t-\t48' ]
    [ "${lines[-1]}" = $'post_layernorm\tnorm\t-\t48' ]
    [ "$(grep -c $'\tnorm' <<<"$output")" = 1 ]
    run -0 hf-infer vit --places
    grep -q $'^encoder.layer.1.output.dense\tin:down_proj:1\tblocks.1.mlp.hook_post\t100$' <<<"$output"
    # the module that is called output adds to the residual stream
    grep -q $'^blocks.1.mlp.hook_out\tmlp:1\t' <<<"$output"
}

@test "lut-precompute: a vision encoder's linear layers have tables, whose entries are products of its weights" {
    py - <<'EOF'
import numpy as np
np.save("x.npy", np.random.default_rng(0).normal(size=(500, 48)).astype("f4"))
EOF
    sae-train -k 4 --latents 96 --steps 5 -q -o SAE x.npy
    layer=vision_model.encoder.layers.0.mlp.fc1
    run -0 lut-precompute -m clip -s SAE --layers $layer --dtype f32 -o lut
    PYTHONPATH=$ROOT/test/ref py - <<'EOF'
import json, os, mkst, numpy as np
m = json.load(open("lut/metadata.json"))
assert m["model_config"] == {"model_type": "clip", "num_layers": 3, "num_attention_heads": 4, "hidden_size": 48}, m
name, = m["layers"]
assert name == "model.vision_model.encoder.layers.0.mlp.fc1", name
t = mkst.read("lut/" + m["layers"][name]["file"])[0]
w = mkst.read("clip/model.safetensors")[0][name[6:] + ".weight"]
d = mkst.read("SAE/" + next(f for f in os.listdir("SAE") if f.endswith("safetensors")))[0]["W_dec"]
products = [v for v in t.values() if v.shape == (96, 100)]
assert products and abs(products[0] - d @ w.T).max() < 1e-4
EOF
}
