# SPDX-License-Identifier: ISC
# SAE checkpoints that lut-precompute reads: each library's gives the same
# tables (test/ref/lut_cases.py), what is not understood is refused.
load helpers
load lut

# bats test_tags=long
@test "lut-precompute: every checkpoint layout gives the same tensors" {
    make_cases
    for layout in sparsify six saelens saelens_args dictionary_learning dictionary_topk dictionary_plain; do
        lut-precompute -m model -s $layout -o "of_$layout" --fuse qkv,gate_up
        run -0 check "of_$layout" model
        for f in of_sparsify/*.safetensors; do
            same_tensors "$f" "of_$layout/${f##*/}"
        done
    done
    # a table is a checkpoint, too: its encoder is folded already
    lut-precompute -m model -s of_sparsify -o again
    for f in of_sparsify/*.safetensors; do
        py -c 'import sys, lut_ref as ref
a, b = (ref.read_safetensors(f)[0] for f in sys.argv[1:])
assert all((a[n] == b[n]).all() for n in ref.SIX[:4])' "$f" "again/${f##*/}"
    done
    cmp <(grep -v sae_model of_sparsify/metadata.json) <(grep -v sae_model again/metadata.json)
}

# bats test_tags=long
@test "lut-precompute: torch's and numpy's files give the tables of safetensors" {
    make_cases
    py "$ROOT/test/ref/sae_files.py" write files 50 60 7
    layer=model.layers.0.self_attn.q_proj
    table() { # FORM [OPTION...]
        lut-precompute -m model -s "files/$1" -o "of_$1" --layers $layer --verify "${@:2}"
    }
    table saelens-topk
    table saelens-topk-x
    for f in sparsify AutoEncoderTopK.{safetensors,pt}; do
        table $f
        same_tensors {of_saelens-topk,"of_$f"}/$layer.lut.safetensors
    done
    for f in saev-TopK{,-half} qwen; do
        table $f
        same_tensors {of_saelens-topk-x,"of_$f"}/$layer.lut.safetensors
    done
    # those with thresholds (lut-threshold.bats) and ReLU give the same with --k
    for f in saelens-jumprelu {BatchTopKSAE,MatryoshkaBatchTopKSAE}.{safetensors,pt}; do
        table "$f" --k 5
        same_tensors {of_saelens-topk,"of_$f"}/$layer.lut.safetensors
    done
    for f in saelens-jumprelu-x saev-BatchTopK gemma{,-packed,-half} scope-2 JumpReluAutoEncoder.pt; do
        table "$f" --k 5
        same_tensors {of_saelens-topk-x,"of_$f"}/$layer.lut.safetensors
    done
    for f in saev-Relu AutoEncoder.pt saelens-standard; do
        table $f --k 5
    done
    # the same numbers from a file of another kind are the same SAE, or not
    lut-precompute -m model -s files/AutoEncoderTopK.pt -o of_AutoEncoderTopK.pt --layers $layer --resume
    run -73 lut-precompute -m model -s files/saev-TopK -o of_AutoEncoderTopK.pt --layers $layer --resume
}

@test "lut-precompute: a pickle that names what weights do not need is refused, without a word of other tools" {
    make_cases
    py -c 'import pth_make as pth
open("x.pt", "wb").write(pth.zip_bytes(pth.members(b"\x80\x02cmine\nConfig\n.", {})))'
    run -65 --separate-stderr lut-precompute -m model -s x.pt -o t --layers '*.q_proj'
    [ "$stderr" = "lut-precompute: x.pt: data.pkl: byte 2: global mine.Config is not one that weights need" ]
    [ ! -e t ]
}

@test "lut-precompute: an SAE may have one latent" {
    make_cases
    for layout in sparsify six saelens dictionary_learning; do
        py "$ROOT/test/ref/lut_cases.py" one-latent $layout
    done
}

@test "lut-precompute: an exporter's table is a checkpoint that is centred; one that says nothing is told" {
    make_cases
    py - <<'END'
import json, lut_cases as c
lut, name = c.ref, "model.layers.0.self_attn.q_proj"
sae = c.sae_of("layers.0.self_attn.q_proj", 60)
w, bias = lut.target(lut.read_model("f32"), name)
lut.write_lut("exported", {name: lut.table(sae, w, fold=False)}, c.K, "F32", True, True)
lut.write_sae("silent", "six", sae, 4, cfg=dict(input_centering=None))
END
    run -0 --separate-stderr lut-precompute -m f32 -s exported -o t --dtype f32
    [ -z "$stderr" ]
    run -0 check t f32
    run -0 --separate-stderr lut-precompute -m f32 -s silent -o s --dtype f32 --layers '*.0.*.q_proj'
    [ "$stderr" = "lut-precompute: silent/sae.safetensors: does not say input_centering: it is assumed to encode x, not x - decoder_bias" ]
    # the encoder's bias is as it was
    py - <<'END'
import lut_cases as c
t = c.ref.read_safetensors("s/model.layers.0.self_attn.q_proj.lut.safetensors")[0]
assert (t["encoder_bias"] == c.sae_of("layers.0.self_attn.q_proj", 60)["encoder_bias"]).all()
END
}

@test "lut-precompute: one SAE is for the layers that --layers names" {
    make_cases
    run -2 --separate-stderr lut-precompute -m model -s one/saelens -o t
    [ "${stderr_lines[0]}" = "lut-precompute: one/saelens: is one SAE: --layers has to name its layers" ]
    lut-precompute -m model -s one/saelens -o t --layers '*.q_proj,layers.1.self_attn.qkv_proj'
    [ "$(ls t)" = "$(printf '%s\n' metadata.json model.layers.0.self_attn.q_proj.lut.safetensors \
        model.layers.1.self_attn.q_proj.lut.safetensors model.layers.1.self_attn.qkv_proj.lut.safetensors)" ]
    for f in one/saelens/sae_weights.safetensors one/saelens; do
        lut-precompute -m model -s $f -o u -f --layers layers.0.self_attn.q_proj
        same_tensors {t,u}/model.layers.0.self_attn.q_proj.lut.safetensors
    done
    run -65 --separate-stderr lut-precompute -m model -s one/six -o v --layers '*.down_proj'
    [ "$stderr" = "lut-precompute: one/six/sae.safetensors: is for 60 inputs, but model.layers.0.mlp.down_proj has 172" ]
    run -65 --separate-stderr lut-precompute -m model -s one/six -o v --layers '*.q_proj,*.w_proj'
    [ "$stderr" = 'lut-precompute: --layers: "*.w_proj" matches no layer of the model' ]
    run -65 --separate-stderr lut-precompute -m model -s one/six -o v --layers layers.0.self_attn.q_porj
    [ "$stderr" = 'lut-precompute: --layers: "layers.0.self_attn.q_porj" matches no layer of the model (did you mean "layers.0.self_attn.q_proj"?)' ]
    [ ! -e v ]
}

# bats test_tags=long
@test "lut-precompute: SAEs that are not understood are refused by name" {
    make_cases
    refused() { # LAYOUT CFG TENSORS WHAT
        rm -rf bad
        sae bad "$1" "$2" "$3"
        run -65 --separate-stderr lut-precompute -m model -s bad -o t --layers '*.q_proj'
        [[ $stderr == "lut-precompute: bad/"*"$4"* ]] || { echo "$stderr"; return 1; }
        [ ! -e t ]
    }
    z='np.zeros(24)'
    refused sparsify "dict(transcode=True)" "{}" "cfg.json: transcode is true"
    refused sparsify "dict(skip_connection=True)" "{}" "skip_connection is true"
    refused sparsify "{}" "dict(W_skip=np.zeros((60, 60)))" "has W_skip: a transcoder's skip connection"
    refused sparsify "dict(activation='groupmax')" "{}" 'activation is "groupmax" (expected "topk" or "batchtopk")'
    refused sparsify "dict(activation='batchtopk', threshold=-1)" "{}" 'threshold is -1 (expected a float from 0 on)'
    refused sparsify "dict(threshold=.5)" "{}" 'threshold is 0.5 (expected none, as activation is "topk")'
    refused sparsify "dict(signed=True)" "{}" "signed is true"
    refused sparsify "dict(num_tiles=4)" "{}" "num_tiles is 4"
    refused sparsify "dict(use_hadamard=True)" "{}" "use_hadamard is true"
    refused sparsify "{}" "dict(post_enc=$z)" "has post_enc, whose meaning is not known"
    refused sparsify "dict(k=25)" "{}" "k is 25, but it has 24 latents"
    refused sparsify "dict(k=None)" "{}" "does not say how many latents are active (--k)"
    refused six "{}" "dict(log_threshold=$z)" "JumpReLU"
    refused saelens "dict(architecture='jumprelu')" "{}" "tensor threshold is missing"
    refused saelens "dict(architecture='jumprelu')" "dict(threshold=$z + np.nan)" "threshold[0] is NaN or infinite"
    refused six "dict(activation='threshold')" "{}" "tensor threshold is missing"
    refused six "dict(activation='threshold')" "dict(threshold=np.array(-1.0))" "threshold is -1 (expected a float from 0 on)"
    refused six "dict(activation='relu')" "{}" 'activation is "relu" (expected "topk" or "threshold")'
    refused six "{}" "dict(threshold=$z)" "has threshold, but its configuration does not say"
    refused saelens "dict(architecture='gated')" "{}" 'architecture is "gated"'
    refused saelens "{}" "dict(threshold=$z)" "has threshold, but its configuration does not say"
    refused saelens "dict(normalize_activations='layer_norm')" "{}" 'normalize_activations is "layer_norm"'
    refused sparsify "dict(rescale_acts_by_decoder_norm=True)" "{}" "rescale_acts_by_decoder_norm is true"
    refused dictionary_learning "dict(dict_class=None)" "dict(threshold=np.array(.5))" "has threshold, but its configuration does not say"
    refused dictionary_learning "dict(dict_class='GatedAutoEncoder')" "{}" 'trainer.dict_class is "GatedAutoEncoder"'
    refused dictionary_learning "dict(dict_class='BatchTopKSAE')" "dict(threshold=np.array(-.5))" "threshold is -0.5 (expected a float from 0 on, or -1)"
    refused dictionary_learning "dict(dict_class='AutoEncoder')" "dict(gate_bias=$z)" "gated"
    refused dictionary_learning "{}" "dict(bias=np.zeros(60), b_dec=np.zeros(60))" "has both bias and b_dec"
    refused sparsify "dict(trainer=dict(k=5))" "{}" "trainer.k is 5 (expected 4, as it says before)"
    refused sparsify "dict(hook='layers.1', hook_name='layers.2')" "{}" 'hook_name is "layers.2" (expected "layers.1", as it says before)'
    for beside in hadamard.pt outlier_channels.json; do
        sae "good$beside" sparsify
        touch "good$beside/$beside"
        run -65 --separate-stderr lut-precompute -m model -s "good$beside" -o t --layers '*.q_proj'
        [[ $stderr == *"$beside: an SAE of transformed inputs"* ]]
        cp -r sparsify "all$beside"
        touch "all$beside/$beside"
        run -65 --separate-stderr lut-precompute -m model -s "all$beside" -o t
        [[ $stderr == "lut-precompute: all$beside/$beside: an SAE of transformed inputs"* ]]
    done
    run -65 --separate-stderr lut-precompute -m model -s one/six -o t --layers '*.q_proj' --k 182
    [[ $stderr == *"k is 182, but it has 181 latents" ]]
    # a transposed checkpoint is not guessed at
    py -c 'import numpy as np, lut_ref as ref
s = ref.tiny_sae(np.random.default_rng(1), 24, 60)
s["decoder_weight"] = s["decoder_weight"].T
ref.write_sae("turned", "six", s, 4)'
    run -65 --separate-stderr lut-precompute -m model -s turned -o t --layers '*.q_proj'
    [ "$stderr" = "lut-precompute: turned/sae.safetensors: decoder_weight is [60, 24] (expected [24, 60])" ]
    # the threshold of a TopK SAE is not used unless asked for
    sae topk dictionary_learning '{}' 'dict(threshold=np.array(-1.0), k=np.array(4.0))'
    lut-precompute -m model -s topk -o t --layers '*.q_proj'
    # -1 is none, whatever the class; k is a tensor, too
    sae none dictionary_learning 'dict(dict_class=None, k=None)' 'dict(threshold=np.array(-1.0), k=np.array(4.0))'
    lut-precompute -m model -s none -o u --layers '*.q_proj'
    grep -q '"k_active": 4' u/metadata.json
    same_tensors {t,u}/model.layers.0.self_attn.q_proj.lut.safetensors
}

@test "lut-precompute: activations that SAELens rescales by the decoder's norms are folded" {
    make_cases
    layer=model.layers.0.self_attn.q_proj
    py -c 'import numpy as np, lut_ref as ref
rng = np.random.default_rng(3)
s = ref.tiny_sae(rng, 40, 60)
s["decoder_weight"] *= rng.uniform(.2, 5, (40, 1))
s["decoder_weight"][7] = 0 # a dead latent has no direction
s = {n: ref.round_to(a, "F32") for n, a in s.items()}
np.savez("s.npz", **s)
np.save("x.npy", rng.normal(0, 1, (200, 60)).astype("<f4"))
for dir, on in ("plain", False), ("scaled", True):
    ref.write_sae(dir, "saelens", s, 5, cfg=dict(rescale_acts_by_decoder_norm=on))'
    lut-precompute -m f32 -s scaled -o t --layers $layer --dtype f32 --verify
    lut-apply t $layer <x.npy >y.npy
    # as SAELens has it: hidden_pre * norm, topk, acts / norm @ W_dec + b_dec
    py -c 'import sys, numpy as np, lut_ref as ref
s, x, y = np.load("s.npz"), np.load("x.npy").astype(float), np.load("y.npy")
w, b = ref.target(ref.read_model("f32"), sys.argv[1])
norm = np.linalg.norm(s["decoder_weight"], axis=1)
z = ((x - s["decoder_bias"]) @ s["encoder_weight"].T + s["encoder_bias"]) * norm
sets = ref.top_k(z, 5)
direction = s["decoder_weight"] / np.where(norm, norm, 1)[:, None]
x_hat = np.stack([r[c] @ direction[c] for r, c in zip(z, sets)]) + s["decoder_bias"]
sure = ref.margin(z, 5) > 1e-4
assert sure.mean() > .9
assert abs(y - (x_hat @ w.T + b))[sure].max() < 1e-4' $layer
    # the same tensors without it are another SAE
    run -73 lut-precompute -m f32 -s plain -o t --layers $layer --dtype f32 --resume
    lut-precompute -m f32 -s scaled -o t --layers $layer --dtype f32 --resume
    lut-precompute -m model -s scaled -o bf16 --layers $layer --verify
}

@test "lut-precompute: one SAE with a hook is of that layer, or of the fused one" {
    make_cases
    layer=model.layers.0.self_attn.q_proj
    sae one sparsify "{'hook': 'layers.0.self_attn.q_proj'}"
    lut-precompute -m model -s one -o by_name --layers $layer
    lut-precompute -m model -s one -o by_hook
    diff -r by_name by_hook
    lut-precompute -m model -s one -o fused_by_name --layers '*.0.*.qkv_proj'
    lut-precompute -m model -s one -o fused_by_hook --fuse qkv,gate_up
    [ "$(ls fused_by_hook)" = "$(printf '%s\n' metadata.json model.layers.0.self_attn.qkv_proj.lut.safetensors)" ]
    diff -r fused_by_name fused_by_hook
    sae two sparsify "{'hook': 'layers.0'}"
    run -65 --separate-stderr lut-precompute -m model -s two -o out
    [ "$stderr" = "lut-precompute: two: is of layers.0, which is not a linear layer of model: --layers has to name its layers" ]
    sae three sparsify "{'hook': 'layers.*'}"
    run -2 --separate-stderr lut-precompute -m model -s three -o out
    [ "${stderr_lines[0]}" = "lut-precompute: three: is one SAE: --layers has to name its layers" ]
    [ ! -e out ]
}

@test "lut-precompute: an SAE's hook may be any name of the place" {
    lut-precompute -q -m "$DEMO" -s "$ROOT/demo/sae/layers.1.mlp.up_proj" -o want
    for hook in blocks.1.mlp.hook_in model.layers.1.mlp.up_proj.input; do
        rm -rf sae got
        cp -r "$ROOT/demo/sae/layers.1.mlp.up_proj" sae
        sed -i "s/layers.1.mlp.up_proj/$hook/" sae/cfg.json
        lut-precompute -q -m "$DEMO" -s sae -o got
        [ "$(ls got)" = "$(ls want)" ]
        st-inspect diff -q want/*.safetensors got/*.safetensors
    done
    # a llama's name of it, in a GPT-2
    py "$ROOT/test/ref/family_ref.py" make gpt2 m
    py -c 'import numpy as np, lut_ref as ref
ref.write_sae("s", "sparsify", ref.tiny_sae(np.random.default_rng(1), 64, 48), 4, cfg={"hook": "layers.0.mlp.up_proj"})'
    lut-precompute -q -m m -s s -o t
    [ "$(ls t)" = "$(printf '%s\n' metadata.json model.h.0.mlp.c_fc.lut.safetensors)" ]
}
