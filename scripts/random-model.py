#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Write a model directory with random weights, for benchmarks and tests:

    random-model.py [--shape NAME] [--set KEY=JSON]... [--lm-head]
                    [--holes] [--seed N] DIR

Shapes are those of published models, so speed and memory are theirs; --set
changes keys of config.json, e.g. --set num_hidden_layers=2.  --lm-head stores
a tied output layer once more, as some published files do.  There is no
tokenizer: give hf-infer --ids.  --holes leaves all matrices of layers zero but
those that choose experts, as holes, which take no room on disk: tokens then
choose by their embeddings alone.

Weights are BF16 with the quantiles of a normal distribution, so that sums
behave as in a trained model; norms lie near 1.  The same shape and seed give
the same bytes.  It needs numpy and 90 MB of memory; 1.2 GB took 5.5 seconds.
"""

import argparse
import json
import math
import pathlib
import statistics
import struct
import zlib

import numpy as np

BLOCK = 1 << 22  # weights made at once
BASE = {
    "attention_bias": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
QWEN = {
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "rope_theta": 1000000,
    "use_sliding_window": False,
}
SHAPES = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **QWEN,
        "head_dim": 128,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "max_position_embeddings": 40960,
        "max_window_layers": 28,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "vocab_size": 151936,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        **QWEN,
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "max_position_embeddings": 40960,
        "max_window_layers": 48,
        "mlp_only_layers": [],
        "moe_intermediate_size": 768,
        "norm_topk_prob": True,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "qwen3-next-80b-a3b": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        **QWEN,
        "decoder_sparse_step": 1,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 2048,
        "intermediate_size": 5120,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "max_position_embeddings": 262144,
        "mlp_only_layers": [],
        "moe_intermediate_size": 512,
        "norm_topk_prob": True,
        "num_attention_heads": 16,
        "num_experts": 512,
        "num_experts_per_tok": 10,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.25,
        "rope_theta": 10000000,
        "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "deepseek-v2-lite": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "bos_token_id": 100000,
        "eos_token_id": 100001,
        "first_k_dense_replace": 1,
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "kv_lora_rank": 512,
        "max_position_embeddings": 4096,
        "moe_intermediate_size": 1408,
        "moe_layer_freq": 1,
        "n_group": 1,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "norm_topk_prob": False,
        "num_attention_heads": 16,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 27,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "rope_theta": 10000,
        "routed_scaling_factor": 1.0,
        "scoring_func": "softmax",
        "tie_word_embeddings": False,
        "topk_group": 1,
        "topk_method": "greedy",
        "v_head_dim": 128,
        "vocab_size": 102400,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "bos_token_id": 50256,
        "eos_token_id": 50256,
        "layer_norm_epsilon": 1e-05,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "gemma-2-2b": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        "attn_logit_softcapping": 50.0,
        "bos_token_id": 2,
        "eos_token_id": 1,
        "final_logit_softcapping": 30.0,
        "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "max_position_embeddings": 8192,
        "num_attention_heads": 8,
        "num_hidden_layers": 26,
        "num_key_value_heads": 4,
        "query_pre_attn_scalar": 256,
        "rope_theta": 10000.0,
        "sliding_window": 4096,
        "vocab_size": 256000,
    },
    "qwen2.5-0.5b": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **QWEN,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "max_position_embeddings": 32768,
        "max_window_layers": 24,
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
    },
    "llama-3.2-1b": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "num_attention_heads": 32,
        "num_hidden_layers": 16,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_scaling": {
            "factor": 32.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
        "vocab_size": 128256,
    },
    "vit-b-16": {
        "architectures": ["ViTModel"],
        "model_type": "vit",
        "hidden_act": "gelu",
        "hidden_size": 768,
        "image_size": 224,
        "intermediate_size": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "patch_size": 16,
    },
    "vit-l-14": {
        "architectures": ["ViTModel"],
        "model_type": "vit",
        "hidden_act": "gelu",
        "hidden_size": 1024,
        "image_size": 224,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "patch_size": 14,
    },
}


def n_experts(cfg, i):
    """How many layer i has."""
    if cfg["model_type"] == "deepseek_v2":
        return cfg["n_routed_experts"] * (i >= cfg["first_k_dense_replace"])
    return cfg.get("num_experts", 0) * (
        i not in cfg.get("mlp_only_layers", [])
        and (i + 1) % cfg.get("decoder_sparse_step", 1) == 0
    )


def mlp_tensors(cfg, i):
    """Name -> shape of layer i's MLP or experts."""
    hidden, out = cfg["hidden_size"], {}
    widths = {"mlp.": cfg["intermediate_size"]}
    n = n_experts(cfg, i)
    if n > 0:
        inner = cfg["moe_intermediate_size"]
        widths = {f"mlp.experts.{e}.": inner for e in range(n)}
        out["mlp.gate.weight"] = (n, hidden)
    if n > 0 and cfg["model_type"] == "deepseek_v2":
        widths["mlp.shared_experts."] = cfg["n_shared_experts"] * inner
    if n > 0 and cfg["model_type"] == "qwen3_next":
        widths["mlp.shared_expert."] = cfg["shared_expert_intermediate_size"]
        out["mlp.shared_expert_gate.weight"] = (1, hidden)
    for name, inner in widths.items():
        out[name + "down_proj.weight"] = (hidden, inner)
        out[name + "gate_proj.weight"] = (inner, hidden)
        out[name + "up_proj.weight"] = (inner, hidden)
    return out


def delta_tensors(cfg):
    """Name -> shape of a layer's Gated DeltaNet."""
    keys = cfg["linear_num_key_heads"] * cfg["linear_key_head_dim"]
    heads, dim = cfg["linear_num_value_heads"], cfg["linear_value_head_dim"]
    hidden, values = cfg["hidden_size"], heads * dim
    width = cfg["linear_conv_kernel_dim"]
    return {
        "linear_attn.A_log": (heads,),
        "linear_attn.conv1d.weight": (2 * keys + values, 1, width),
        "linear_attn.dt_bias": (heads,),
        "linear_attn.in_proj_ba.weight": (2 * heads, hidden),
        "linear_attn.in_proj_qkvz.weight": (2 * (keys + values), hidden),
        "linear_attn.norm.weight": (dim,),
        "linear_attn.out_proj.weight": (hidden, values),
    }


def latent_tensors(cfg):
    """Name -> shape of a layer's multi-head latent attention, without
    q_lora_rank."""
    hidden, heads = cfg["hidden_size"], cfg["num_attention_heads"]
    rank, rope = cfg["kv_lora_rank"], cfg["qk_rope_head_dim"]
    nope, v = cfg["qk_nope_head_dim"], cfg["v_head_dim"]
    return {
        "self_attn.kv_a_layernorm.weight": (rank,),
        "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
        "self_attn.kv_b_proj.weight": (heads * (nope + v), rank),
        "self_attn.o_proj.weight": (hidden, heads * v),
        "self_attn.q_proj.weight": (heads * (nope + rope), hidden),
    }


def layer_tensors(cfg, i):
    """Name within layer i -> shape."""
    hidden = cfg["hidden_size"]
    heads, kv_heads = cfg["num_attention_heads"], cfg["num_key_value_heads"]
    dim = cfg.get("head_dim", hidden // heads)
    out = {
        "input_layernorm.weight": (hidden,),
        **mlp_tensors(cfg, i),
        "post_attention_layernorm.weight": (hidden,),
    }
    if cfg["model_type"] == "deepseek_v2":
        return {**out, **latent_tensors(cfg)}
    if (i + 1) % cfg.get("full_attention_interval", 1) != 0:
        return {**out, **delta_tensors(cfg)}
    gated = 2 if cfg["model_type"] == "qwen3_next" else 1
    out |= {
        "self_attn.k_proj.weight": (kv_heads * dim, hidden),
        "self_attn.o_proj.weight": (hidden, heads * dim),
        "self_attn.q_proj.weight": (gated * heads * dim, hidden),
        "self_attn.v_proj.weight": (kv_heads * dim, hidden),
    }
    if cfg["model_type"] == "gemma2":
        out["pre_feedforward_layernorm.weight"] = (hidden,)
        out["post_feedforward_layernorm.weight"] = (hidden,)
    if cfg["model_type"] in ("qwen3", "qwen3_moe", "qwen3_next"):
        out["self_attn.k_norm.weight"] = (dim,)
        out["self_attn.q_norm.weight"] = (dim,)
    if cfg["model_type"] == "qwen2":
        out["self_attn.k_proj.bias"] = (kv_heads * dim,)
        out["self_attn.q_proj.bias"] = (heads * dim,)
        out["self_attn.v_proj.bias"] = (kv_heads * dim,)
    return out


def gpt2_tensors(cfg):
    """The same of GPT-2, whose matrices are [inputs, outputs]."""
    hidden = cfg["n_embd"]
    out = {
        "wpe.weight": (cfg["n_positions"], hidden),
        "wte.weight": (cfg["vocab_size"], hidden),
    }
    for i in range(cfg["n_layer"]):
        for name, columns, rows in (
            ("attn.c_attn", 3 * hidden, hidden),
            ("attn.c_proj", hidden, hidden),
            ("mlp.c_fc", 4 * hidden, hidden),
            ("mlp.c_proj", hidden, 4 * hidden),
        ):
            out[f"h.{i}.{name}.weight"] = (rows, columns)
            out[f"h.{i}.{name}.bias"] = (columns,)
    norms = [f"h.{i}.ln_{k}" for i in range(cfg["n_layer"]) for k in (1, 2)]
    for name in [*norms, "ln_f"]:
        out[name + ".weight"] = out[name + ".bias"] = (hidden,)
    return dict(sorted(out.items()))


def vit_tensors(cfg):
    """The same of a vision encoder."""
    hidden, inner = cfg["hidden_size"], cfg["intermediate_size"]
    patch = cfg["patch_size"]
    tokens = (cfg["image_size"] // patch) ** 2 + 1
    out = {
        "embeddings.cls_token": (1, 1, hidden),
        "embeddings.position_embeddings": (1, tokens, hidden),
    }
    matrices = {
        "embeddings.patch_embeddings.projection": (hidden, 3, patch, patch),
        "pooler.dense": (hidden, hidden),
    }
    norms = ["layernorm"]
    for i in range(cfg["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for name in "query", "key", "value":
            matrices[at + "attention.attention." + name] = (hidden, hidden)
        matrices[at + "attention.output.dense"] = (hidden, hidden)
        matrices[at + "intermediate.dense"] = (inner, hidden)
        matrices[at + "output.dense"] = (hidden, inner)
        norms += [at + "layernorm_before", at + "layernorm_after"]
    for name, shape in matrices.items():
        out[name + ".weight"], out[name + ".bias"] = shape, shape[:1]
    for name in norms:
        out[name + ".weight"] = out[name + ".bias"] = (hidden,)
    return dict(sorted(out.items()))


def tensors(cfg, lm_head):
    """All tensors, name -> shape, sorted by name."""
    if cfg["model_type"] == "vit":
        return vit_tensors(cfg)
    if cfg["model_type"] == "gpt2":
        return gpt2_tensors(cfg)
    hidden, vocab = cfg["hidden_size"], cfg["vocab_size"]
    out = {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if lm_head or not cfg["tie_word_embeddings"]:
        out["lm_head.weight"] = (vocab, hidden)
    for i in range(cfg["num_hidden_layers"]):
        for name, shape in layer_tensors(cfg, i).items():
            out[f"model.layers.{i}.{name}"] = shape
    return dict(sorted(out.items()))


def header(shapes):
    """The header's bytes, its length in front."""
    entries, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        entries[name] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def bf16(x):
    """Round float32 to the nearest BF16, ties to even."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def quantiles():
    """65536 evenly spaced quantiles of the standard normal distribution."""
    inverse = statistics.NormalDist().inv_cdf
    half = [inverse((i + 0.5) / 65536) for i in range(32768, 65536)]
    return np.array([-x for x in reversed(half)] + half)


def weights(rng, shape, table):
    """Blocks of random BF16 weights: table[a random number of 16 bits]."""
    left = math.prod(shape)
    while left:
        n = min(left, BLOCK)
        index = np.frombuffer(rng.bytes(2 * n), "<u2")
        yield table[index].tobytes()
        left -= n


def is_hole(name, shape):
    """Is it a layer's matrix that chooses no experts?"""
    return ".layers." in name and len(shape) > 1 and "gate.w" not in name


def write_model(path, cfg, lm_head, holes, seed):
    """Write model.safetensors."""
    normal = quantiles()
    tables = {
        "matrix": bf16(normal * cfg["initializer_range"]),
        "vector": bf16(normal * 0.1 + 1),
        "bias": bf16(normal * 0.1),
    }
    shapes = tensors(cfg, lm_head)
    with open(path, "wb") as file:
        file.write(header(shapes))
        for name, shape in shapes.items():
            if holes and is_hole(name, shape):
                file.seek(2 * math.prod(shape), 1)
                continue
            kind = "matrix" if len(shape) > 1 else "vector"
            if name.endswith(".bias"):
                kind = "bias"
            if name == "lm_head.weight" and cfg["tie_word_embeddings"]:
                name = "model.embed_tokens.weight"
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            for block in weights(rng, shape, tables[kind]):
                file.write(block)
        file.truncate()


def main():
    """Read the command line, write the directory."""
    parser = argparse.ArgumentParser(
        description="Write a model directory with random weights."
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), default="qwen3-0.6b")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=JSON"
    )
    parser.add_argument("--lm-head", action="store_true")
    parser.add_argument("--holes", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("directory", type=pathlib.Path)
    args = parser.parse_args()
    cfg = {**BASE, **SHAPES[args.shape]}
    for item in args.set:
        key, _, value = item.partition("=")
        cfg[key] = json.loads(value)
    args.directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(cfg, indent=2, sort_keys=True) + "\n"
    (args.directory / "config.json").write_text(text)
    path = args.directory / "model.safetensors"
    write_model(path, cfg, args.lm_head, args.holes, args.seed)


if __name__ == "__main__":
    main()
