# SPDX-License-Identifier: ISC
"""A model's files as family_forward.py's fields, for each family.

read() takes every tensor that the family has by its name in the file; what is
left over must be what the family's files have besides (buffers, towers of other
modes).  Where one could read a family wrongly, the wrong way has a name here, a
trap: read(wrong={name}) goes that way, so that a test knows how far off the
logits of a reader with that fault would be.
"""
import math

import numpy as np

import family_forward as ff
import mkst
from family_read_experts import (deepseek_v2, deepseek_v3, glm4_moe, gpt_oss,
                                 mixtral, qwen2_moe, qwen3_moe)
from family_read_hybrids import qwen3_5, qwen3_5_moe, qwen3_next
from family_reader import (ACTS, Reader, decoder, every, head_of, layer, model,
                           prefix_of, rope_of, windows)


def gpt2(r, c):
    h, heads, eps = c["n_embd"], c["n_head"], c["layer_norm_epsilon"]
    at = "transformer." if "transformer.wte.weight" in r.left else ""
    embedding, positions = r.take(at + "wte.weight"), r.take(at + "wpe.weight")
    layers = []
    for i in range(c["n_layer"]):
        name = "%sh.%d." % (at, i)
        w, b = r.linear(name + "attn.c_attn", conv=True)
        parts = list(zip(np.split(w, 3), np.split(b, 3) if b is not None
                         else [None] * 3))
        scale = 1 / math.sqrt(h / heads) if c.get("scale_attn_weights",
                                                  True) else 1.0
        scale = r.trap("scaled by 1/sqrt(d)", scale, 1 / math.sqrt(h / heads))
        if c.get("scale_attn_by_inverse_layer_idx"):
            scale /= r.trap("not by 1 / (i + 1)", i + 1, 1)
        act = ACTS[c.get("activation_function", "gelu_new")]
        layers.append(layer(
            q=parts[0], k=parts[1], v=parts[2], scale=scale,
            pre_attn=r.norm(name + "ln_1", eps, True),
            o=r.linear(name + "attn.c_proj", conv=True),
            pre_mlp=r.norm(name + "ln_2", eps, True),
            gate=r.linear(name + "mlp.c_fc", conv=True),
            down=r.linear(name + "mlp.c_proj", conv=True),
            act=r.trap("gelu by erf", act, ff.gelu_erf)))
    final = r.norm(at + "ln_f", eps, True)
    head = head_of(r, c, "lm_head", embedding, True)
    r.ignore(r"\.attn\.(masked_)?bias$")
    return model(embedding=embedding, head_dim=h // heads, layers=layers,
                 positions=r.trap("no wpe", positions, None),
                 final_norm=final, head=head)


def gpt_neox(r, c):
    h, heads = c["hidden_size"], c["num_attention_heads"]
    eps, d = c.get("layer_norm_eps", 1e-5), h // heads
    at = "gpt_neox."
    c = dict(c, rope_theta=c.get("rotary_emb_base", 1e4),
             partial_rotary_factor=c.get("rotary_pct", 0.25))
    embedding = r.take(at + "embed_in.weight")
    parallel = c.get("use_parallel_residual", True)
    layers = []
    for i in range(c["num_hidden_layers"]):
        name = "%slayers.%d." % (at, i)
        w, b = r.linear(name + "attention.query_key_value")
        # rows by head, of each its q, k and v
        rows = np.arange(3 * h).reshape(heads, 3, d).swapaxes(0, 1)
        rows = r.trap("query_key_value as [q; k; v]", rows,
                      np.arange(3 * h).reshape(3, heads, d)).reshape(3, h)
        q, k, v = ((w[x], None if b is None else b[x]) for x in rows)
        act = ACTS[c.get("hidden_act", "gelu")]
        other = ff.gelu_tanh if act == ff.gelu_erf else ff.gelu_erf
        layers.append(layer(
            q=q, k=k, v=v, scale=1 / math.sqrt(d), rope=rope_of(r, c, d),
            o=r.linear(name + "attention.dense"),
            pre_attn=r.norm(name + "input_layernorm", eps, True),
            pre_mlp=r.norm(name + "post_attention_layernorm", eps, True),
            gate=r.linear(name + "mlp.dense_h_to_4h"),
            down=r.linear(name + "mlp.dense_4h_to_h"),
            act=r.trap("the other gelu", act, other),
            parallel=r.trap("sequential, not parallel" if parallel else
                            "parallel, not sequential", parallel,
                            not parallel)))
    final = r.norm(at + "final_layer_norm", eps, True)
    head = head_of(r, c, "embed_out", embedding, False)
    r.ignore(r"\.attention\.(masked_)?bias$", r"\.rotary_emb\.inv_freq$")
    return model(embedding=embedding, head_dim=d, layers=layers,
                 final_norm=final, head=head)


GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm",
               "pre_feedforward_layernorm", "post_feedforward_layernorm")


def gemma_of(r, c, **fields):
    """What all Gemmas have: 1 + w, a tanh gelu whatever hidden_act says, and
    embeddings times sqrt(h) in their own dtype."""
    exact = math.sqrt(c["hidden_size"])
    rounded = exact
    if r.dtype[prefix_of(r) + "embed_tokens.weight"] == "BF16":
        rounded = float(mkst.from_bf16(mkst.bf16([exact])[2])[0])
    scale = r.trap("embed scale not rounded", rounded, exact)
    return decoder(r, c, **dict(dict(
        tied=True, offset=1, act=ff.gelu_tanh,
        embed_scale=r.trap("embeddings not scaled", scale, 1.0)), **fields))


def gemma(r, c):
    return gemma_of(r, c)


def gemma2(r, c):
    n = c["num_hidden_layers"]
    return gemma_of(
        r, c, norms=GEMMA_NORMS, attn_cap=c.get("attn_logit_softcapping", 50.0),
        scale=c.get("query_pre_attn_scalar", 256) ** -0.5,
        final_cap=r.trap("no softcap of logits",
                         c.get("final_logit_softcapping", 30.0), None),
        window_of=windows(r, c.get("layer_types") or every(n, 2),
                          c.get("sliding_window", 4096)))


def gemma3_text(r, c):
    c = dict(dict(num_attention_heads=8, num_key_value_heads=4, head_dim=256,
                  sliding_window=4096), **c)
    n, eps = c["num_hidden_layers"], c.get("rms_norm_eps", 1e-6)
    kinds = c.get("layer_types") or every(n, c.get("sliding_window_pattern", 6))
    by_kind = c.get("rope_parameters") or {}
    ropes = {
        "full_attention": dict(c, rope_parameters=by_kind.get("full_attention")),
        "sliding_attention": dict(
            rope_theta=c.get("rope_local_base_freq", 1e4),
            rope_parameters=by_kind.get("sliding_attention"))}
    other = dict(zip(ropes, reversed(ropes)))
    kind_of = r.trap("thetas swapped", kinds, [other[k] for k in kinds])
    kind_of = r.trap("one theta", kind_of, ["full_attention"] * n)
    return gemma_of(
        r, c, norms=GEMMA_NORMS, scale=c.get("query_pre_attn_scalar", 256) ** -0.5,
        attn_cap=c.get("attn_logit_softcapping"),
        final_cap=c.get("final_logit_softcapping"),
        qk=lambda name, heads: r.norm(name + "_norm", eps, offset=1),
        rope_of_layer=lambda i, d: rope_of(r, ropes[kind_of[i]], d, 1e6),
        window_of=windows(r, kinds, c["sliding_window"]))


def phi3(r, c):
    n = c["num_hidden_layers"]
    window = c.get("sliding_window")
    return decoder(r, c, fused_qkv=True, fused_mlp=True, window_of=windows(
        r, ["sliding_attention" if window else "full_attention"] * n, window))


def granite(r, c):
    c = dict(dict(attention_multiplier=1.0, embedding_multiplier=1.0,
                  residual_multiplier=1.0, logits_scaling=1.0), **c)
    return decoder(
        r, c, scale=c["attention_multiplier"],
        embed_scale=r.trap("no embedding_multiplier",
                           c["embedding_multiplier"], 1.0),
        residual_scale=r.trap("no residual_multiplier",
                              c["residual_multiplier"], 1.0),
        logit_scale=r.trap("logits times logits_scaling",
                           r.trap("no logits_scaling",
                                  1 / c["logits_scaling"], 1.0),
                           c["logits_scaling"]))


def smollm3(r, c):
    n = c["num_hidden_layers"]
    has = c.get("no_rope_layers")
    if has is None:
        period = c.get("no_rope_layer_interval", 4)
        has = [int((i + 1) % period != 0) for i in range(n)]
    kinds = c.get("layer_types") or ["sliding_attention" if c.get(
        "use_sliding_window") and not x else "full_attention" for x in has]
    has = r.trap("RoPE on every layer", has, [1] * n)
    has = r.trap("NoPE on the other layers", has, [1 - x for x in has])
    return decoder(r, c, tied=True, window_of=windows(
        r, kinds, c.get("sliding_window")), rope_of_layer=lambda i, d: rope_of(
            r, c, d, 2e6) if has[i] else None)


def olmo(r, c, **fields):
    eps = c.get("rms_norm_eps", 1e-5)
    d = c["hidden_size"] // c["num_attention_heads"]

    def qk(name, heads):
        norm = r.norm(name + "_norm", eps)
        norm.weight = norm.weight.reshape(heads, d)
        norm.whole = r.trap("q_norm of each head", True, False)
        if norm.whole:
            norm.weight = norm.weight.reshape(-1)
        return norm

    return decoder(r, c, qk=qk, eps=eps, outs_before_norm=True, norms=(
        None, "post_attention_layernorm", None, "post_feedforward_layernorm"),
        **fields)


def olmo2(r, c):
    return olmo(r, c, theta=5e5)


def olmo3(r, c):
    kinds = c.get("layer_types") or every(c["num_hidden_layers"], 4)
    plain = r.trap("yarn on windowed layers", False, True)
    return olmo(r, c, window_of=windows(r, kinds, c["sliding_window"]),
                rope_of_layer=lambda i, d: rope_of(
                    r, c, d, 5e5, scaled=kinds[i] == "full_attention" or plain))


def glm4(r, c):
    norms = ("input_layernorm", "post_self_attn_layernorm",
             "post_attention_layernorm", "post_mlp_layernorm")
    swapped = (norms[0], norms[2], norms[1], norms[3])
    return decoder(r, c, partial=0.5, pairs=True, fused_mlp=True, norms=r.trap(
        "post_attention_layernorm after attention", norms, swapped))


ONE_NORM = ("input_layernorm", None, None, None)


def phi(r, c):
    eps = c.get("layer_norm_eps", 1e-5)

    def qk(name, heads):
        return r.norm(name + "_layernorm", eps, True)

    return decoder(r, c, norms=ONE_NORM, parallel=True, centred=True,
                   partial=0.5, eps=eps, o="dense",
                   qk=qk if c.get("qk_layernorm") else None,
                   mlp=("fc1", "fc2"), final="final_layernorm",
                   act=ACTS[c.get("hidden_act", "gelu_new")])


def stablelm(r, c):
    eps, parallel = c.get("layer_norm_eps", 1e-5), c["use_parallel_residual"]

    def qk(name, heads):
        norms = [r.norm("%s_layernorm.norms.%d" % (name, i), eps, True)
                 for i in range(heads)]
        weight = np.array([x.weight for x in norms])
        norms[0].weight = r.trap("the first head's norm for all", weight,
                                 weight[:1])
        return norms[0]

    return decoder(r, c, centred=True, partial=0.25, eps=eps, parallel=parallel,
                   norms=ONE_NORM if parallel else None,
                   qk=qk if c.get("qk_layernorm") else None)


def starcoder2(r, c):
    n = c["num_hidden_layers"]
    window = c.get("sliding_window")
    return decoder(
        r, c, tied=True, centred=True, eps=c["norm_epsilon"],
        mlp=("c_fc", "c_proj"),
        act=ACTS[c.get("hidden_act", "gelu_pytorch_tanh")], window_of=windows(
            r, ["sliding_attention" if window else "full_attention"] * n,
            window))


def cohere_of(r, c, **fields):
    eps = c.get("layer_norm_eps", 1e-5)
    scale = c.get("logit_scale", 0.0625)
    return decoder(r, c, **dict(dict(
        tied=True, norms=ONE_NORM, parallel=True, centred=True, eps=eps,
        pairs=True, qk=(lambda name, heads: r.norm(name + "_norm", eps, True))
        if c.get("use_qk_norm") else None,
        logit_scale=r.trap("logits / logit_scale", r.trap(
            "no logit_scale", scale, 1.0), 1 / scale)), **fields))


def cohere(r, c):
    return cohere_of(r, c)


def cohere2(r, c):
    kinds = c.get("layer_types") or every(c["num_hidden_layers"],
                                          c.get("sliding_window_pattern", 4))
    turned = [k == "sliding_attention" for k in kinds]
    turned = r.trap("RoPE on full layers, too", turned, [True] * len(kinds))
    return cohere_of(
        r, c, window_of=windows(r, kinds, c["sliding_window"]),
        rope_of_layer=lambda i, d: rope_of(r, c, d, pairs=True)
        if turned[i] else None)


def qwen3(r, c):
    return decoder(r, c, qk=lambda name, heads: r.norm(
        name + "_norm", c["rms_norm_eps"]))


def mistral(r, c):
    window = c.get("sliding_window", 4096)
    return decoder(r, c, window_of=[window] * c["num_hidden_layers"])


FAMILIES = dict(
    gpt2=gpt2, gpt_neox=gpt_neox, gemma=gemma, gemma2=gemma2,
    gemma3_text=gemma3_text, phi3=phi3, granite=granite, smollm3=smollm3,
    olmo2=olmo2, olmo3=olmo3, glm4=glm4, phi=phi, stablelm=stablelm,
    starcoder2=starcoder2, cohere=cohere, cohere2=cohere2, llama=decoder,
    mistral=mistral, qwen2=decoder, qwen3=qwen3, qwen2_5_vl=decoder,
    qwen2_5_vl_text=decoder, mixtral=mixtral, qwen2_moe=qwen2_moe,
    gpt_oss=gpt_oss, deepseek_v3=deepseek_v3, kimi_k2=deepseek_v3,
    deepseek_v2=deepseek_v2,
    qwen3_next=qwen3_next, qwen3_5_text=qwen3_5, qwen3_5_moe_text=qwen3_5_moe,
    glm4_moe=glm4_moe, qwen3_moe=qwen3_moe)


def read(directory, n, wrong=(), instead={}):
    """The model for sequences of n tokens, and the traps that its family has;
    'wrong' are those to go into.  instead: tensors, by name, for the file's."""
    r = Reader(directory, n, wrong, instead)
    c = r.top
    if "text_config" in c: # what is said only beside it is said of both
        c = dict({k: c[k] for k in ("tie_word_embeddings",) if k in c},
                 **c["text_config"])
    found = FAMILIES[c["model_type"]](r, c)
    return found, r.traps
