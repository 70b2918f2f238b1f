#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Write a model directory as GGUF, so that llama-bench runs the same model:

    bench-gguf.py [--dtype bf16|f16|f32] DIR FILE

DIR has config.json and the model's *.safetensors in BF16, F16 or F32;
model_type is llama, mistral, qwen2 or qwen3.  FILE is GGUF version 3, with matrices of
--dtype (default: bf16) and vectors in F32, as llama.cpp wants them.  It has no
vocabulary: it is for speed, with token numbers made up.

llama.cpp rotates neighbours (2 i, 2 i + 1) of q and k where model_type is llama
or mistral, Hugging Face's halves (i, i + head_dim / 2): rows are reordered for
that.  Other ways to scale RoPE than llama3's are refused.

Source: ggml's docs/gguf.md; names: llama.cpp's convert_hf_to_gguf.py.  It needs
numpy.
"""

import argparse
import json
import math
import pathlib
import struct
import sys

import numpy as np

ALIGNMENT = 32  # of tensors' data: the format's default
BLOCK = 1 << 22  # weights converted at once
ARCHITECTURES = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
}
U32, F32, STRING = 4, 6, 8  # gguf_metadata_value_type
TYPES = {"f32": 0, "f16": 1, "bf16": 30}  # ggml_type
FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32}  # llama_ftype
STORED = {"BF16": "<u2", "F16": "<f2", "F32": "<f4"}
NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}
IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def stop(message):
    """End with a message."""
    sys.exit(f"bench-gguf.py: {message}")


def open_tensors(directory):
    """Name -> (dtype, array), of all files."""
    out = {}
    for path in sorted(directory.glob("*.safetensors")):
        with open(path, "rb") as file:
            (n,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(n))
        header.pop("__metadata__", None)
        for name, t in header.items():
            if t["dtype"] not in STORED:
                stop(f"{path}: {name}: {t['dtype']} is not BF16, F16 or F32")
            at = 8 + n + t["data_offsets"][0]
            data = np.memmap(
                path, STORED[t["dtype"]], "r", at, tuple(t["shape"])
            )
            out[name] = (t["dtype"].lower(), data)
    return out


def gguf_name(name):
    """What llama.cpp calls a tensor."""
    base, _, kind = name.rpartition(".")
    if base in NAMES:
        return f"{NAMES[base]}.{kind}"
    model, layers, i, *rest = base.split(".")
    inner = IN_LAYER.get(".".join(rest))
    if [model, layers] != ["model", "layers"] or inner is None:
        stop(f"{name}: not a tensor of these models")
    return f"blk.{i}.{inner}.{kind}"


def interleave_halves(data, n_heads):
    """Rows i and i + head_dim / 2 of each head become neighbours."""
    rest = data.shape[1:]
    heads = data.reshape(n_heads, 2, data.shape[0] // n_heads // 2, *rest)
    return heads.swapaxes(1, 2).reshape(data.shape)


def rope_factors(scaling, theta, head_dim):
    """By what llama3's rope_scaling divides each frequency."""
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    freqs = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    cycles = scaling["original_max_position_embeddings"] * freqs / (2 * math.pi)
    smooth = np.clip((cycles - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype("<f4")


def converted(data, stored, dtype):
    """Blocks of bytes of one dtype, from another."""
    data = data.reshape(-1)
    for i in range(0, data.size, BLOCK):
        x = data[i : i + BLOCK]
        if stored == dtype:
            yield x.tobytes()
            continue
        if stored == "bf16":
            x = (x.astype("<u4") << 16).view("<f4")
        x = x.astype("<f4")
        if dtype == "f16":
            x = x.astype("<f2")
        elif dtype == "bf16":  # to nearest, ties to even
            bits = x.view("<u4")
            x = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
        yield x.tobytes()


def string(text):
    """A string with its length in front."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    """A key of the metadata and its value."""
    packed = {
        U32: lambda: struct.pack("<I", value),
        F32: lambda: struct.pack("<f", value),
        STRING: lambda: string(value),
    }[kind]()
    return string(key) + struct.pack("<I", kind) + packed


def metadata(cfg, head_dim, dtype):
    """All keys, packed, in a list."""
    arch = ARCHITECTURES[cfg["model_type"]]
    heads = cfg["num_attention_heads"]
    return [
        pair("general.architecture", STRING, arch),
        pair("general.name", STRING, cfg["model_type"]),
        pair("general.file_type", U32, FILE_TYPES[dtype]),
        pair("tokenizer.ggml.model", STRING, "none"),
    ] + [
        pair(f"{arch}.{key}", kind, value)
        for key, kind, value in (
            ("vocab_size", U32, cfg["vocab_size"]),
            ("context_length", U32, cfg["max_position_embeddings"]),
            ("embedding_length", U32, cfg["hidden_size"]),
            ("block_count", U32, cfg["num_hidden_layers"]),
            ("feed_forward_length", U32, cfg["intermediate_size"]),
            ("attention.head_count", U32, heads),
            (
                "attention.head_count_kv",
                U32,
                cfg.get("num_key_value_heads", heads),
            ),
            ("attention.key_length", U32, head_dim),
            ("attention.value_length", U32, head_dim),
            ("attention.layer_norm_rms_epsilon", F32, cfg["rms_norm_eps"]),
            ("rope.dimension_count", U32, head_dim),
            ("rope.freq_base", F32, cfg.get("rope_theta", 10000.0)),
        )
    ]


def write_gguf(path, pairs, tensors, dtype):
    """tensors: GGUF's name -> (stored dtype, array)."""
    infos, at, kinds = b"", 0, {}
    for name, (_, data) in tensors.items():
        kinds[name] = "f32" if data.ndim == 1 else dtype
        dims = data.shape[::-1]  # the innermost first
        infos += string(name)
        infos += struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        infos += struct.pack("<IQ", TYPES[kinds[name]], at)
        nbytes = data.size * (4 if kinds[name] == "f32" else 2)
        at += nbytes + -nbytes % ALIGNMENT
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(pairs) + infos
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        for name, (stored, data) in tensors.items():
            for block in converted(data, stored, kinds[name]):
                file.write(block)
            file.write(bytes(-file.tell() % ALIGNMENT))


def main():
    """Read the command line, write the file."""
    parser = argparse.ArgumentParser(
        description="Write a model directory as GGUF, for llama-bench."
    )
    parser.add_argument("--dtype", choices=sorted(TYPES), default="bf16")
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("file", type=pathlib.Path)
    args = parser.parse_args()
    cfg = json.loads((args.directory / "config.json").read_text())
    if cfg["model_type"] not in ARCHITECTURES:
        stop(
            f"{args.directory}: model_type {cfg['model_type']!r} is not one of "
            + ", ".join(ARCHITECTURES)
        )
    heads = cfg["num_attention_heads"]
    head_dim = cfg.get("head_dim") or cfg["hidden_size"] // heads
    tensors = {}
    for name, (stored, data) in open_tensors(args.directory).items():
        if ARCHITECTURES[cfg["model_type"]] == "llama":
            if ".q_proj." in name:
                data = interleave_halves(data, heads)
            elif ".k_proj." in name:
                data = interleave_halves(
                    data, cfg.get("num_key_value_heads", heads)
                )
        tensors[gguf_name(name)] = (stored, data)
    scaling = cfg.get("rope_scaling") or {"rope_type": "default"}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "llama3":
        theta = cfg.get("rope_theta", 10000.0)
        factors = rope_factors(scaling, theta, head_dim)
        tensors["rope_freqs.weight"] = ("f32", factors)
    elif kind != "default":
        stop(f"{args.directory}: rope_scaling {kind!r} is not supported")
    write_gguf(
        args.file, metadata(cfg, head_dim, args.dtype), tensors, args.dtype
    )


if __name__ == "__main__":
    main()
