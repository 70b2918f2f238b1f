# SPDX-License-Identifier: ISC
"""lut_cases.py DIR: models and SAEs for lut-precompute; lut_cases.py check
DIR MODEL SAES ..: is a directory of tables what float64 says?

Writes DIR/model (3 shards, BF16, biases), DIR/f32 (the same numbers of a
smaller model in F32) and DIR/LAYOUT/LAYER/ for each layout: the same SAEs.
"""
import json
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import lut_ref as ref  # noqa: E402
import tiny_models  # noqa: E402

BIAS = ("qkv_bias", "o_bias", "mlp_bias")
HOOKS = ("self_attn.q_proj", "self_attn.o_proj", "mlp.up_proj",
         "mlp.down_proj")
K = 6


def sae_of(layer, width, dtype="F32"):
    """The SAE of a layer, the same whenever it is asked for."""
    seed = int.from_bytes(layer.encode(), "little") % (1 << 61)
    return ref.tiny_sae(np.random.default_rng(seed), 3 * width + 1, width,
                        dtype)


def make(directory):
    rng = np.random.default_rng(11)
    config = tiny_models.config_of("llama", attention_bias=True, mlp_bias=True,
                                   num_hidden_layers=2)
    weights = tiny_models.weights_of(config, rng, **{b: True for b in BIAS})
    tiny_models.write_model(os.path.join(directory, "model"), config, weights,
                            shards=3)
    tiny_models.write_model(os.path.join(directory, "f32"), config, weights,
                            dtype="F32")
    for i in range(2):
        for hook in HOOKS:
            layer = "layers.%d.%s" % (i, hook)
            width = weights["model.%s.weight" % layer].shape[1]
            for layout in ref.LAYOUTS:
                ref.write_sae(os.path.join(directory, layout, layer), layout,
                              sae_of(layer, width), K)
    one = sae_of("layers.0.self_attn.q_proj", 60)
    for layout in ref.LAYOUTS:
        ref.write_sae(os.path.join(directory, "one", layout), layout, one, K)
    ref.write_sae(os.path.join(directory, "bf16", "layers.0.self_attn.q_proj"),
                  "sparsify", sae_of("layers.0.self_attn.q_proj", 60, "BF16"),
                  K, dtype="BF16")


def hook_of(layer):
    """The layer whose SAE a fused one takes."""
    for fused, part in (("qkv_proj", "q_proj"), ("gate_up_proj", "up_proj")):
        layer = layer.replace(fused, part)
    return layer[len("model."):]


def bound(name, want, sae, w, dtype):
    """Rounding, and what f32 sums, of a split W_dec where the table is not
    F32, may lose."""
    b = ref.half_ulp(want, dtype)
    if name == "precomputed_products":
        lost = 2.0 ** (-22 if dtype == "F32" else -18)
        return b + lost * (abs(sae["decoder_weight"]) @ abs(w).T)
    return b * (1 + 1e-9) + 1e-12


def check_layer(directory, layer, entry, weights, fold, sae=None, k=K):
    held, dtypes, meta = ref.read_safetensors(
        os.path.join(directory, entry["file"]))
    w, bias = ref.target(weights, layer)
    sae = sae or sae_of(hook_of(layer), w.shape[1])
    want = ref.table(sae, w, bias, fold)
    assert set(ref.SIX) <= set(held), held.keys()
    for name, a in want.items():
        assert held[name].shape == a.shape, (layer, name)
        error = abs(held[name] - a)
        assert (error <= bound(name, a, sae, w, dtypes[name])).all(), \
            (layer, name, error.max())
        if name != "precomputed_products" and dtypes[name] != "F32":
            assert (held[name] == ref.round_to(a, dtypes[name])).all(), name
    if "compensation_weight_t" in held:
        assert (held["compensation_weight_t"]
                == ref.round_to(w.T, dtypes["encoder_weight"])).all()
    assert entry["input_dim"] == w.shape[1]
    assert entry["output_dim"] == w.shape[0]
    assert entry["num_basis"] == len(sae["encoder_bias"])
    assert entry["k_active"] == k
    assert entry["encoder"] == {"input_centering": not fold}
    assert entry["target_bias"] == (bias is not None)
    assert entry["parts"] == ref.parts_of(layer)
    assert entry["operator"] == layer.rpartition(".")[2]
    assert json.loads(meta["lut"])["entry"] == entry


def check(directory, model, centering="fold"):
    weights = ref.read_model(model)
    with open(os.path.join(directory, "metadata.json")) as f:
        doc = json.load(f)
    assert doc["version"] == "1.0"
    assert doc["model_config"] == {
        "model_type": "llama", "num_layers": 2, "num_attention_heads": 6,
        "hidden_size": 60}
    pairs = [(e["num_basis"], e["k_active"]) for e in doc["layers"].values()]
    n, k = max(dict.fromkeys(pairs), key=pairs.count)
    assert doc["sae_config"] == {"num_basis": n, "k_active": k}
    assert doc["creation_info"]["source_model"] == os.path.basename(model)
    for layer, entry in doc["layers"].items():
        check_layer(directory, layer, entry, weights, centering == "fold")
    print("\n".join(doc["layers"]))


def one_latent(layout):
    """An SAE of one latent, made into a table and looked at."""
    layer = "model.layers.0.self_attn.q_proj"
    sae = ref.tiny_sae(np.random.default_rng(1), 1, 60)
    ref.write_sae("latent/" + layout, layout, sae, 1)
    subprocess.run(["lut-precompute", "-m", "model", "-s", "latent/" + layout,
                    "-o", "of_" + layout, "--layers", layer], check=True)
    with open(f"of_{layout}/metadata.json") as f:
        entry = json.load(f)["layers"][layer]
    check_layer("of_" + layout, layer, entry, ref.read_model("model"), True,
                sae, 1)


if __name__ == "__main__":
    if sys.argv[1] == "check":
        check(*sys.argv[2:])
    elif sys.argv[1] == "one-latent":
        one_latent(sys.argv[2])
    else:
        make(sys.argv[1])
