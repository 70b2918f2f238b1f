# SPDX-License-Identifier: ISC
# scripts/bench-gguf.py: a model as GGUF, for llama-bench.

load helpers
export PYTHONPATH=$ROOT/test/ref

gguf() {
    "$PYTHON" "$ROOT/scripts/bench-gguf.py" "$@"
}

@test "bench-gguf.py: Qwen3's tensors and keys, in BF16, F16 and F32" {
    for dtype in bf16 f16 f32; do
        gguf --dtype "$dtype" "$ROOT/demo/qwen3-tiny" "$dtype.gguf"
    done
    "$PYTHON" - <<'END'
import os
from gguf_ref import *

want = source(os.environ["ROOT"] + "/demo/qwen3-tiny/model.safetensors")
of = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
      "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
      "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
      "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
      "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
      "mlp.down_proj": "ffn_down"}
names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
for i in range(4):
    for theirs, ours in of.items():
        names["blk.%d.%s" % (i, ours)] = "model.layers.%d.%s" % (i, theirs)
for dtype, kind, file_type in ("bf16", 30, 32), ("f16", 1, 1), ("f32", 0, 0):
    g = Gguf(dtype + ".gguf")
    assert sorted(g.tensors) == sorted(n + ".weight" for n in names)
    for name, hf in names.items():
        got, x = g.tensors[name + ".weight"], want[hf + ".weight"]
        assert got.shape == x.shape, name
        matrix = x.ndim == 2
        assert g.types[name + ".weight"] == (kind if matrix else 0), name
        if dtype == "f16" and matrix:
            x = x.astype(np.float16).astype(np.float32)
        assert (got == x).all(), name
    eps, theta = g.keys.pop("qwen3.attention.layer_norm_rms_epsilon"), 10000
    assert eps == np.float32(1e-6)
    assert g.keys == {
        "general.architecture": "qwen3", "general.name": "qwen3",
        "general.file_type": file_type, "tokenizer.ggml.model": "none",
        "qwen3.vocab_size": 1024, "qwen3.context_length": 512,
        "qwen3.embedding_length": 128, "qwen3.block_count": 4,
        "qwen3.feed_forward_length": 384, "qwen3.attention.head_count": 4,
        "qwen3.attention.head_count_kv": 2, "qwen3.attention.key_length": 32,
        "qwen3.attention.value_length": 32, "qwen3.rope.dimension_count": 32,
        "qwen3.rope.freq_base": theta}, g.keys
END
}

@test "bench-gguf.py: llama's neighbours rotate as Hugging Face's halves do" {
    "$PYTHON" "$ROOT/scripts/random-model.py" --shape llama-3.2-1b \
        --set vocab_size=8 --set hidden_size=32 --set head_dim=8 \
        --set num_attention_heads=4 --set num_key_value_heads=2 \
        --set intermediate_size=16 --set num_hidden_layers=1 m
    gguf m m.gguf
    "$PYTHON" - <<'END'
import math
from gguf_ref import *

g, hf = Gguf("m.gguf"), source("m/model.safetensors")
x = np.random.default_rng(1).standard_normal((2, 32))
# modeling_rope_utils' llama3, of Llama-3.2-1B: factor 32, 1 and 4 of 8192
freqs, factors = [], []
for i in range(4):
    f = 500000.0 ** (-2 * i / 8)
    length, smooth = 2 * math.pi / f, (8192 * f / (2 * math.pi) - 1) / (4 - 1)
    new = (f if length < 8192 / 4 else f / 32 if length > 8192
           else (1 - smooth) * f / 32 + smooth * f)
    freqs.append(f)
    factors.append(f / new)
assert np.allclose(g.tensors["rope_freqs.weight"], factors, 1e-6)
assert len(set(factors)) > 2  # one is between


def heads(w, row, at, theirs):
    """Row 'row' of x, projected and rotated, at a position: [heads, 8]."""
    y = (w.astype(np.float64) @ x[row]).reshape(-1, 8).copy()
    for i in range(4):
        angle = at * freqs[i] / factors[i]
        a, b = (i, i + 4) if theirs else (2 * i, 2 * i + 1)
        u, v = y[:, a].copy(), y[:, b].copy()
        y[:, a] = u * math.cos(angle) - v * math.sin(angle)
        y[:, b] = u * math.sin(angle) + v * math.cos(angle)
    return y


def scores(q, k, theirs):
    q, k = heads(q, 0, 7, theirs), heads(k, 1, 3, theirs)
    return (q * k.repeat(2, 0)).sum(1)


layer = "model.layers.0.self_attn.%s_proj.weight"
a = scores(hf[layer % "q"], hf[layer % "k"], True)
b = scores(g.tensors["blk.0.attn_q.weight"], g.tensors["blk.0.attn_k.weight"],
           False)
assert np.allclose(a, b, 1e-9, 0), (a, b)
assert (g.tensors["blk.0.attn_v.weight"] == hf[layer % "v"]).all()
END
}

@test "bench-gguf.py: a model of experts is refused by its model_type" {
    run -1 --separate-stderr gguf "$ROOT/demo/qwen3-moe-tiny" out.gguf
    [ "$stderr" = "bench-gguf.py: $ROOT/demo/qwen3-moe-tiny: model_type 'qwen3_moe' is not one of llama, mistral, qwen2, qwen3" ]
    [ ! -e out.gguf ]
}
