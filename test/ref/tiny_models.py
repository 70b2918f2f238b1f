# SPDX-License-Identifier: ISC
"""tiny_models.py DIR: small random models of every kind that hf-infer reads.

Each is DIR/NAME/ with config.json, safetensors, ids.i32 (token ids) and
logits.f64 ([ids, vocab] by transformer.py).  DIR/models lists the names;
DIR/bad has one "NAME<tab>MESSAGE" a line: models that must be refused so.
"""
import json
import os
import struct
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import transformer  # noqa: E402

ODD = dict(hidden_size=60, intermediate_size=172, num_hidden_layers=3,
           num_attention_heads=6, num_key_value_heads=3, head_dim=8,
           vocab_size=509, max_position_embeddings=4096, rms_norm_eps=1e-5,
           rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False)
CLASS = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
         "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
         "qwen3_moe": "Qwen3MoeForCausalLM"}
EXPERTS = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=44,
               norm_topk_prob=True)


def config_of(model_type, **change):
    config = dict(model_type=model_type, architectures=[CLASS[model_type]])
    config.update(ODD)
    config.update(change)
    return {k: v for k, v in config.items() if v != "absent"}


def weights_of(config, rng, qkv_bias=False, o_bias=False, mlp_bias=False):
    hidden, inter = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    d = config.get("head_dim") or hidden // heads
    w = {}

    def matrix(name, rows, cols, bias=False):
        w[name + ".weight"] = rng.normal(0, 1.4 / np.sqrt(cols), (rows, cols))
        if bias:
            w[name + ".bias"] = rng.normal(0, 0.5, rows)

    def norm(name, n):
        w[name + ".weight"] = rng.normal(1, 0.2, n)

    def mlp(at, inner):
        matrix(at + "gate_proj", inner, hidden, mlp_bias)
        matrix(at + "up_proj", inner, hidden, mlp_bias)
        matrix(at + "down_proj", hidden, inner, mlp_bias)

    w["model.embed_tokens.weight"] = rng.normal(
        0, 0.3, (config["vocab_size"], hidden))
    for i in range(config["num_hidden_layers"]):
        at = "model.layers.%d." % i
        norm(at + "input_layernorm", hidden)
        norm(at + "post_attention_layernorm", hidden)
        matrix(at + "self_attn.q_proj", heads * d, hidden, qkv_bias)
        matrix(at + "self_attn.k_proj", kv_heads * d, hidden, qkv_bias)
        matrix(at + "self_attn.v_proj", kv_heads * d, hidden, qkv_bias)
        matrix(at + "self_attn.o_proj", hidden, heads * d, o_bias)
        if config["model_type"] in ("qwen3", "qwen3_moe"):
            norm(at + "self_attn.q_norm", d)
            norm(at + "self_attn.k_norm", d)
        if not transformer.is_sparse(config, i):
            mlp(at + "mlp.", inter)
            continue
        n = config.get("num_experts") or config["num_local_experts"]
        matrix(at + "mlp.gate", n, hidden)
        for e in range(n):
            mlp(at + "mlp.experts.%d." % e, config["moe_intermediate_size"])
    norm("model.norm", hidden)
    if not config.get("tie_word_embeddings"):
        matrix("lm_head", config["vocab_size"], hidden)
    return w


def encode(a, dtype):
    if dtype == "BF16":
        u = np.asarray(a, "<f4").view("<u4").astype(np.uint64)
        return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("<u2").tobytes()
    types = {"I8": "i1", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
    return np.asarray(a, types[dtype]).tobytes()


def write_safetensors(path, weights, dtype_of, pad=0, meta=None):
    """'pad' spaces more put the data at an odd address, which is legal."""
    header, data = {"__metadata__": meta} if meta else {}, b""
    for name, a in weights.items():
        raw = encode(a, dtype_of(name))
        header[name] = {"dtype": dtype_of(name), "shape": list(a.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode() + b" " * pad
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_model(directory, config, weights, dtype="BF16", shards=1, dtype_of=None):
    os.makedirs(directory)
    dtype_of = dtype_of or (lambda name: dtype)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f, indent=1)
    if shards == 1:
        write_safetensors(os.path.join(directory, "model.safetensors"), weights,
                          dtype_of, pad=len(weights) % 3)
        return
    names, total = {}, 0
    for i in range(shards):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, shards)
        part = {n: w for j, (n, w) in enumerate(weights.items())
                if j % shards == i}
        write_safetensors(os.path.join(directory, file), part, dtype_of)
        names.update({n: file for n in part})
        total += sum(len(encode(w, dtype_of(n))) for n, w in part.items())
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": names}, f)


def rename(weights, old, new):
    return {(new + n[len(old):] if n.startswith(old) else n): w
            for n, w in weights.items()}


def mixed(name):
    if "norm" in name:
        return "F32"
    if "embed" in name or "down" in name:
        return "F16"
    return "BF16"


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", factor=4.0,
            original_max_position_embeddings=32)


def models(rng):
    """Yields name, config, weights, write_model()'s options, n ids."""
    def one(name, n, config, bias=(), change=None, **options):
        weights = weights_of(config, rng, **{b: True for b in bias})
        return name, config, change(weights) if change else weights, options, n

    yield one("llama", 70, config_of("llama"))
    yield one("llama-tied-mha-f16", 33, config_of(
        "llama", tie_word_embeddings=True, num_key_value_heads="absent",
        head_dim="absent", num_attention_heads=6, hidden_size=72), dtype="F16")
    yield one("llama-bias-f32", 40, config_of(
        "llama", attention_bias=True, mlp_bias=True),
        bias=("qkv_bias", "o_bias", "mlp_bias"), dtype="F32")
    yield one("llama-linear", 70, config_of(
        "llama", rope_scaling=dict(type="linear", factor=2.5)))
    yield one("llama-llama3", 130, config_of(
        "llama", rope_theta=500.0, head_dim=16, rope_scaling=LLAMA3))
    yield one("llama-mqa-gelu", 70, config_of(
        "llama", num_key_value_heads=1, head_dim=128, num_hidden_layers=2,
        hidden_act="gelu_pytorch_tanh", rms_norm_eps="absent"))
    yield one("llama-only-head", 20, config_of(
        "llama", tie_word_embeddings=True),
        change=lambda w: rename(w, "model.embed_tokens", "lm_head"))
    yield one("llama-buffers", 20, config_of("llama"), change=lambda w: dict(
        w, **{"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(4)}))
    yield one("mistral", 70, config_of("mistral", sliding_window=None))
    yield one("mistral-window-7", 150, config_of("mistral", sliding_window=7))
    yield one("mistral-window-64", 150, config_of("mistral", sliding_window=64))
    yield one("mistral-window-100", 150, config_of(
        "mistral", sliding_window=100, num_key_value_heads=6))
    yield one("qwen2", 70, config_of(
        "qwen2", use_sliding_window=False, sliding_window=5,
        max_window_layers=1, tie_word_embeddings=True), bias=("qkv_bias",))
    yield one("qwen2-window", 100, config_of(
        "qwen2", use_sliding_window=True, sliding_window=5,
        max_window_layers=1), bias=("qkv_bias",))
    yield one("qwen3", 70, config_of("qwen3", head_dim=16,
                                     tie_word_embeddings=True))
    yield one("qwen3-bias", 40, config_of("qwen3", attention_bias=True),
              bias=("qkv_bias", "o_bias"))
    yield one("qwen3-layer-types", 100, config_of(
        "qwen3", use_sliding_window=True, sliding_window=9,
        max_window_layers=3, layer_types=[
            "sliding_attention", "full_attention", "sliding_attention"]))
    yield one("qwen3-yarn", 100, config_of(
        "qwen3", head_dim=32, rope_theta="absent", dtype="bfloat16",
        rope_parameters=dict(YARN, rope_theta=1000.0)))
    yield one("qwen3-yarn-set", 100, config_of(
        "qwen3", head_dim=32, rope_scaling=dict(
            YARN, beta_fast=16, beta_slow=2, truncate=False,
            attention_factor=1.3)))
    yield one("qwen3-yarn-mscale", 100, config_of(
        "qwen3", head_dim=32, rope_scaling=dict(
            YARN, mscale=1.0, mscale_all_dim=0.8)))
    yield one("qwen3-mixed", 40, config_of("qwen3"), dtype_of=mixed)
    yield one("qwen3-shards", 40, config_of("qwen3"), shards=3)
    yield one("qwen3-no-prefix", 40, config_of(
        "qwen3", architectures=["Qwen3Model"], tie_word_embeddings=True),
        change=lambda w: rename(w, "model.", ""))
    yield one("qwen3_moe", 70, config_of("qwen3_moe", **EXPERTS))
    yield one("qwen3_moe-dense-first-last", 70, config_of(
        "qwen3_moe", decoder_sparse_step=2, tie_word_embeddings=True,
        **dict(EXPERTS, norm_topk_prob=False)), shards=2)
    yield one("qwen3_moe-mlp-only", 70, config_of(
        "qwen3_moe", mlp_only_layers=[1], num_local_experts=5,
        moe_intermediate_size=200, num_experts_per_tok=2),
        # of equals the lowest
        change=lambda w: dict(w, **{"model.layers.0.mlp.gate.weight":
                                    np.zeros((5, 60))}))
    yield one("qwen3_moe-all-experts-f32", 40, config_of(
        "qwen3_moe", attention_bias=True, use_sliding_window=True,
        sliding_window=9, max_window_layers=3, mlp_only_layers=None,
        **dict(EXPERTS, num_experts_per_tok=7, num_experts=7)),
        bias=("qkv_bias", "o_bias"), dtype="F32")


def without(weights, name):
    return {n: w for n, w in weights.items() if n != name}


def bad_models(rng):
    """Yields name, message, config, weights, options."""
    config = config_of("llama")
    w = weights_of(config, rng)
    q, head = "model.layers.1.self_attn.q_proj", "lm_head.weight"
    yield ("no-head", "tensor lm_head.weight is missing, and "
           "tie_word_embeddings is not true", config, without(w, head), {})
    yield ("no-embedding", "tensor model.embed_tokens.weight is missing",
           config, without(w, "model.embed_tokens.weight"), {})
    yield ("no-matrix", "tensor %s.weight is missing" % q, config,
           without(w, q + ".weight"), {})
    yield ("no-norm", "tensor model.norm.weight is missing", config,
           without(w, "model.norm.weight"), {})
    yield ("no-bias", "tensor model.layers.0.self_attn.q_proj.bias is missing,"
           " but config.json says there is a bias",
           config_of("llama", attention_bias=True), w, {})
    yield ("some-bias", "%s.bias is there, but layer 0 has no such bias" % q,
           config, dict(w, **{q + ".bias": np.ones(48)}), {})
    yield ("shape", "%s.weight is [48, 60] (expected [48, 64] by "
           "config.json)" % q.replace("1", "0"),
           config_of("llama", hidden_size=64),
           {n: (np.ones((509, 64)) if a.shape == (509, 60) else
                np.ones(64) if a.shape == (60,) else a)
            for n, a in w.items()}, {})
    yield ("vocabulary", "model.embed_tokens.weight is [509, 60] "
           "(expected [510, 60] by config.json)",
           config_of("llama", vocab_size=510), w, {})
    yield ("dtype", "%s.weight is F64 (expected BF16, F16 or F32)"
           % q, config, w,
           dict(dtype_of=lambda n: "F64" if n == q + ".weight" else "BF16"))
    yield ("qk-norm", "tensor model.layers.0.self_attn.q_norm.weight is "
           "missing", config_of("qwen3"), w, {})
    config = config_of("qwen3_moe", decoder_sparse_step=2, **EXPERTS)
    w = weights_of(config, rng)
    up = "model.layers.1.mlp.experts.6.up_proj.weight"
    router = "model.layers.1.mlp.gate.weight"
    yield ("no-expert", "tensor %s is missing" % up, config, without(w, up), {})
    yield ("no-router", "tensor %s is missing" % router, config,
           without(w, router), {})
    yield ("expert-shape", "%s is [44, 60] (expected [48, 60] by "
           "config.json)" % up.replace("6.up", "0.gate"),
           config_of("qwen3_moe", decoder_sparse_step=2,
                     **dict(EXPERTS, moe_intermediate_size=48)), w, {})
    yield ("router-shape", "%s is [7, 60] (expected [6, 60] by "
           "config.json)" % router,
           config_of("qwen3_moe", decoder_sparse_step=2,
                     **dict(EXPERTS, num_experts=6)), w, {})
    yield ("no-mlp", "tensor model.layers.1.mlp.gate_proj.weight is missing",
           config_of("qwen3_moe", decoder_sparse_step=2, mlp_only_layers=[1],
                     **EXPERTS), w, {})


def main(directory):
    rng = np.random.default_rng(20)
    names, lines = [], []
    for name, config, weights, options, n in models(rng):
        path = os.path.join(directory, name)
        write_model(path, config, weights, **options)
        ids = rng.integers(0, config["vocab_size"], n)
        ids.astype("<i4").tofile(os.path.join(path, "ids.i32"))
        logits = transformer.forward(*transformer.load(path), ids)
        logits.astype("<f8").tofile(os.path.join(path, "logits.f64"))
        names.append(name)
    for name, message, config, weights, options in bad_models(rng):
        write_model(os.path.join(directory, "bad-" + name), config, weights,
                    **options)
        lines.append("bad-%s\t%s" % (name, message))
    for file, what in (("models", names), ("bad", lines)):
        with open(os.path.join(directory, file), "w") as f:
            f.write("".join(x + "\n" for x in what))


if __name__ == "__main__":
    main(sys.argv[1])
