# SPDX-License-Identifier: ISC
"""LoRA fine-tuning of a layer's experts in float64, and data for it.

moe.py DIR [NAME=VALUE...]   writes base.safetensors, lora.safetensors,
                             batch.safetensors, hf/ and peft/ into DIR
moe.py family TYPE DIR [NAME=VALUE...]   the same layer as a model_type has it:
                             DIR/config.json and model.safetensors, and TYPE.batch.safetensors
                             next to DIR, the batch as its router has it; of
                             gpt_oss DIR.mxfp4, too, the same numbers in blocks
moe.py forward OUT BASE LORA BATCH LIMIT
moe.py backward OUT BASE LORA BATCH LIMIT
                             compares with the reference; prints what is over
                             LIMIT, every expert and tensor by itself
"""

import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst
import packed_forms
from mkst import read

PROJ = ["gate", "up", "down"]
LORA = [p + "_lora_" + m for p in PROJ for m in "ab"]
SIZES = dict(E=4, k=2, H=96, I=80, r=5, qlen=37, seed=1, alpha=10.0, layer=3)


def read_dir(path):
    """All tensors of a file, or of a directory's files."""
    if not os.path.isdir(path):
        return read(path)[0]
    tensors = {}
    for name in sorted(os.listdir(path)):
        if name.endswith(".safetensors"):
            tensors.update(read(os.path.join(path, name))[0])
    return tensors


def round_bf16(x):
    return mkst.from_bf16(mkst.bf16(x)[2]).reshape(np.shape(x))


def make(E, k, H, I, r, qlen, seed, alpha, layer, ids=None):
    """Numbers whose LoRA is about half of every projection."""
    g = np.random.default_rng(seed)
    s = alpha / r
    base, lora = {}, {}
    for p in PROJ:
        n_in, n_out = (I, H) if p == "down" else (H, I)
        base[p + "_proj"] = g.standard_normal((E, n_out, n_in)) / n_in ** .5
        lora[p + "_lora_a"] = g.standard_normal((E, r, n_in)) / n_in ** .5
        lora[p + "_lora_b"] = g.standard_normal((E, n_out, r)) / r ** .5 / s
    x = g.standard_normal((qlen, H))
    if ids is None:
        ids = np.argsort(g.random((qlen, E)), axis=1)[:, :k]
    w = g.random((qlen, ids.shape[1])) + .1
    w /= w.sum(1, keepdims=True)
    batch = dict(input=mkst.bf16(x), expert_ids=ids.astype("<i8"),
                 weights=w.astype("<f4"),
                 grad_output=mkst.bf16(g.standard_normal((qlen, H))),
                 target=g.standard_normal((qlen, H)).astype("<f4"))
    pack = lambda d: {n: mkst.bf16(v) for n, v in d.items()}
    return pack(base), pack(lora), batch


def save_all(directory, **given):
    c = dict(SIZES, **given)
    base, lora, batch = make(**c)
    meta = dict(lora_alpha=str(c["alpha"]), lora_rank=str(c["r"]),
                expert_num=str(c["E"]), hidden_size=str(c["H"]),
                intermediate_size=str(c["I"]), layer_idx=str(c["layer"]))
    os.makedirs(directory, exist_ok=True)
    path = lambda name: os.path.join(directory, name)
    mkst.save(path("base.safetensors"), base)
    mkst.save(path("lora.safetensors"), lora, meta)
    mkst.save(path("batch.safetensors"), batch)
    save_hf(path("hf"), c, base)
    save_peft(path("peft"), c, lora)


def slices(value):
    """The matrices of a stacked tensor, by expert."""
    dtype, shape, data = value
    n = len(data) // shape[0]
    return [(dtype, shape[1:], data[e * n:e * n + n])
            for e in range(shape[0])]


def save_hf(directory, c, base):
    """The layer as transformers names it, in two shards, with a router."""
    os.makedirs(directory, exist_ok=True)
    g = np.random.default_rng(c["seed"] + 1000)
    root = "model.layers.%d.mlp." % c["layer"]
    H, I, layer = c["H"], c["I"], c["layer"]
    shards = [{}, {"model.norm.weight": mkst.bf16(np.ones(H))}]
    shards[1][root + "gate.weight"] = mkst.bf16(
        g.standard_normal((c["E"], H)))
    # what is not of the experts
    shards[0]["model.embed_tokens.weight"] = mkst.bf16(np.ones((16, H)))
    for i in range(layer + 1):
        for name, shape in (("input_layernorm", H), ("self_attn.q_norm", 8),
                            ("self_attn.k_norm", 8), ("post_attention_layernorm", H),
                            ("self_attn.q_proj", (8, H)), ("self_attn.k_proj", (8, H)),
                            ("self_attn.v_proj", (8, H)), ("self_attn.o_proj", (H, 8)),
                            ("mlp.gate_proj", (I, H)), ("mlp.up_proj", (I, H)),
                            ("mlp.down_proj", (H, I))):
            if i < layer or ".mlp." not in "." + name:
                shards[1]["model.layers.%d.%s.weight" % (i, name)] = mkst.bf16(
                    np.zeros(shape))
    for p in base:
        for e, m in enumerate(slices(base[p])):
            shards[e % 2][root + "experts.%d.%s.weight" % (e, p)] = m
    names = {}
    for i, shard in enumerate(shards):
        name = "model-%05d-of-00002.safetensors" % (i + 1)
        mkst.save(os.path.join(directory, name), shard)
        names.update({t: name for t in shard})
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": names}, f)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(dict(model_type="qwen3_moe", num_experts=c["E"],
                       num_experts_per_tok=c["k"], norm_topk_prob=True,
                       hidden_size=H, intermediate_size=I,
                       moe_intermediate_size=I, num_hidden_layers=layer + 1,
                       mlp_only_layers=list(range(layer)), head_dim=8,
                       num_attention_heads=1, num_key_value_heads=1,
                       vocab_size=16, tie_word_embeddings=True), f)


def save_peft(directory, c, lora):
    os.makedirs(directory, exist_ok=True)
    tensors = {}
    for n, value in lora.items():
        for e, m in enumerate(slices(value)):
            tensors["base_model.model.model.layers.%d.mlp.experts.%d.%s_proj."
                    "lora_%s.weight" % (c["layer"], e, n.split("_")[0],
                                        n[-1].upper())] = m
    mkst.save(os.path.join(directory, "adapter_model.safetensors"), tensors)
    with open(os.path.join(directory, "adapter_config.json"), "w") as f:
        json.dump(dict(peft_type="LORA", r=c["r"], lora_alpha=c["alpha"],
                       bias="none", use_rslora=False, use_dora=False,
                       layers_to_transform=[c["layer"]], layers_pattern="layers",
                       target_modules=["gate_proj", "up_proj", "down_proj"]),
                  f)


# ---- families ----

# names of gate, up, down and the router on disk
NAMES = {t: ("layers.%d.mlp.experts.", ["gate_proj", "up_proj", "down_proj"],
             "layers.%d.mlp.gate") for t in
         ("qwen2_moe", "glm4_moe", "deepseek_v2", "deepseek_v3")}
NAMES["mixtral"] = ("layers.%d.block_sparse_moe.experts.", ["w1", "w3", "w2"],
                    "layers.%d.block_sparse_moe.gate")
NAMES["qwen3_5_moe"] = ("layers.%d.mlp.experts.", None, "layers.%d.mlp.gate")
GROUPS = dict(n_group=2, topk_group=1, routed_scaling_factor=2.5,
              norm_topk_prob=True)
NAMES["gpt_oss"] = ("layers.%d.mlp.experts.", PROJ, "layers.%d.mlp.router")
KEYS = {
    "gpt_oss": dict(num_local_experts="E", swiglu_limit=7.0),
    "mixtral": dict(num_local_experts="E"),
    "qwen2_moe": dict(num_experts="E", norm_topk_prob=False),
    "glm4_moe": dict(GROUPS, n_routed_experts="E"),
    "deepseek_v2": dict(GROUPS, n_routed_experts="E",
                        topk_method="group_limited_greedy",
                        norm_topk_prob=False),
    "deepseek_v3": dict(GROUPS, n_routed_experts="E"),
    "qwen3_5_moe": dict(num_experts="E"),
}


def route(kind, logits, bias, k, c):
    """experts and weights of each token, as the model_type's own code."""
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    if kind in ("glm4_moe", "deepseek_v3"):
        p = 1 / (1 + np.exp(-logits))
    choice = p + (bias if kind in ("glm4_moe", "deepseek_v3") else 0)
    if "n_group" in c:
        n = c["n_group"]
        groups = np.sort(choice.reshape(len(p), n, -1), axis=2)
        best = groups[..., -1] if kind == "deepseek_v2" \
            else groups[..., -2:].sum(2)
        kept = np.argsort(-best, axis=1)[:, :c["topk_group"]]
        mask = np.zeros(best.shape, bool)
        np.put_along_axis(mask, kept, True, axis=1)
        choice = np.where(np.repeat(mask, p.shape[1] // n, axis=1), choice, 0)
    ids = np.argsort(-choice, axis=1)[:, :k]
    w = np.take_along_axis(p, ids, axis=1)
    if c.get("norm_topk_prob", True):
        w = w / (w.sum(1, keepdims=True) + 1e-20)
    return ids, w * c.get("routed_scaling_factor", 1)


def gpt_oss_stacks(at, base, g):
    """Stacks of MXFP4, of whose gates and ups some are beyond 7, and the same
    numbers in BF16; both with biases."""
    w = {p: mkst.values(*base[p + "_proj"]) for p in PROJ}
    packed, plain = {}, {}
    for name, of in (("gate_up_proj", [2.5 * w["gate"], 2.5 * w["up"]]),
                     ("down_proj", [w["down"]])):
        x = np.stack(of, axis=2)  # rows take turns
        x = x.reshape(len(x), -1, x.shape[3] // 32, 32)
        s = 2 ** (np.ceil(np.log2(np.abs(x).max(-1) / 6))
                  + g.integers(-1, 2, x.shape[:3]))
        q = packed_forms.E2M1[packed_forms.nearest(x / s[..., None],
                                                   packed_forms.E2M1)]
        blocks = packed_forms.pack_fp4(np.copysign(q, x))
        scales = packed_forms.real(s, "E8M0")
        for tail, a in (("_blocks", blocks), ("_scales", scales)):
            packed[at + name + tail] = "U8", list(a.shape), a.tobytes()
        plain[at + name] = mkst.bf16(
            packed_forms.mxfp4(blocks, scales).swapaxes(1, 2))
        for t in packed, plain:
            t[at + name + "_bias"] = mkst.bf16(
                np.random.default_rng(len(of)).standard_normal(x.shape[:2]) / 2)
    return packed, plain


def save_dir(directory, t, config):
    os.makedirs(directory)
    mkst.save(os.path.join(directory, "model.safetensors"), t)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f)


def save_family(kind, directory, **given):
    c = dict(SIZES, **given)
    base, _, batch = make(**c)
    g = np.random.default_rng(c["seed"] + 2000)
    prefix, words, router = NAMES[kind]
    root = "model." if words else "model.language_model."
    t = {}
    if words:
        for p, word in zip(PROJ, words):
            for e, m in enumerate(slices(base[p + "_proj"])):
                t[root + prefix % c["layer"] + "%d.%s.weight" % (e, word)] = m
    else:  # gate's rows, then up's
        v = {p: mkst.values(*base[p + "_proj"]) for p in PROJ}
        t[root + prefix % c["layer"] + "gate_up_proj"] = mkst.bf16(
            np.concatenate([v["gate"], v["up"]], axis=1))
        t[root + prefix % c["layer"] + "down_proj"] = base["down_proj"]
    gate = mkst.bf16(g.standard_normal((c["E"], c["H"])) / 4)
    bias = g.standard_normal(c["E"]).astype("<f4") / 4
    t[root + router % c["layer"] + ".weight"] = gate
    if kind in ("glm4_moe", "deepseek_v3"):
        t[root + router % c["layer"] + ".e_score_correction_bias"] = bias
    # what is not of the experts
    t[root + "layers.0.mlp.gate_proj.weight"] = mkst.bf16(np.zeros((3, c["H"])))
    t[root + "layers.%d.mlp.shared_experts.gate_proj.weight"
      % c["layer"]] = mkst.bf16(np.zeros((5, c["H"])))
    keys = {n: c["E"] if v == "E" else v for n, v in KEYS[kind].items()}
    keys.update(num_experts_per_tok=c["k"], hidden_act="silu",
                model_type=kind + ("" if words else "_text"))
    bias_of_logits = 0
    if kind == "gpt_oss":
        rest = {n: v for n, v in t.items() if ".experts." not in n}
        rest[root + router % c["layer"] + ".bias"] = mkst.bf16(bias)
        bias_of_logits = round_bf16(bias)
        packed, t = gpt_oss_stacks(root + prefix % c["layer"], base, g)
        save_dir(directory + ".mxfp4", dict(packed, **rest), dict(
            keys, quantization_config=dict(quant_method="mxfp4")))
        t.update(rest)
    save_dir(directory, t, keys if words else dict(model_type=kind,
                                                   text_config=keys))
    logits = mkst.values(*batch["input"]) @ mkst.values(*gate).T
    logits = logits + bias_of_logits
    ids, w = route(kind, logits, bias, c["k"], KEYS[kind])
    mkst.save(os.path.join(directory, "..", kind + ".batch.safetensors"),
              dict(batch, expert_ids=ids.astype("<i8"), weights=w.astype("<f4")))


# ---- the reference ----

def linear(x, w, a, b, s, bias):
    return x @ w.T + s * ((x @ a.T) @ b.T) + bias


class Expert:
    """One expert on the rows that come to it; with biases, GptOssExperts'."""

    def __init__(self, base, lora, s, e, x):
        self.x, self.s = x, s
        self.w = {p: base[p + "_proj"][e] for p in PROJ}
        self.bias = {p: base[p + "_bias"][e] for p in PROJ if p + "_bias" in base}
        self.a = {p: lora[p + "_lora_a"][e] for p in PROJ}
        self.b = {p: lora[p + "_lora_b"][e] for p in PROJ}
        self.g = self.apply("gate", x)
        self.u = self.apply("up", x)
        self.slopes = [1, 1]
        self.alpha = 1
        if self.bias:
            self.slopes = [self.g <= 7, np.abs(self.u) <= 7]
            self.alpha = 1.702
            self.g = np.minimum(self.g, 7)
            self.u = np.clip(self.u, -7, 7) + 1
        self.sig = 1 / (1 + np.exp(-self.alpha * self.g))
        self.h = self.g * self.sig * self.u
        self.y = self.apply("down", self.h)

    def apply(self, p, x):
        return linear(x, self.w[p], self.a[p], self.b[p], self.s,
                      self.bias.get(p, 0))

    def back(self, p, x, dy):
        """dx, dA, dB of one projection."""
        db = self.s * dy.T @ (x @ self.a[p].T)
        da = self.s * (dy @ self.b[p]).T @ x
        dx = dy @ self.w[p] + self.s * (dy @ self.b[p]) @ self.a[p]
        return dx, da, db

    def backward(self, dy):
        grads = {}
        dh, grads["down_lora_a"], grads["down_lora_b"] = self.back(
            "down", self.h, dy)
        dg = dh * self.u * self.sig * self.slopes[0] * (
            1 + self.alpha * self.g * (1 - self.sig))
        du = dh * self.g * self.sig * self.slopes[1]
        dx, grads["gate_lora_a"], grads["gate_lora_b"] = self.back(
            "gate", self.x, dg)
        dx2, grads["up_lora_a"], grads["up_lora_b"] = self.back(
            "up", self.x, du)
        return dx + dx2, grads


def reference(base, lora, alpha, batch):
    """output, and the gradients if the batch has a grad_output."""
    E, r = lora["gate_lora_a"].shape[:2]
    x, ids, w = batch["input"], batch["expert_ids"], batch["weights"]
    go = batch.get("grad_output")
    out = {"output": np.zeros(x.shape)}
    if go is not None:
        out["grad_input"] = np.zeros(x.shape)
        out["grad_weights"] = np.zeros(w.shape)
        for n in LORA:
            out["grad_" + n] = np.zeros(lora[n].shape)
    for e in range(E):
        i, j = np.nonzero(ids == e)
        if i.size == 0:
            continue
        ex = Expert(base, lora, alpha / r, e, x[i])
        np.add.at(out["output"], i, w[i, j][:, None] * ex.y)
        if go is None:
            continue
        out["grad_weights"][i, j] = (go[i] * ex.y).sum(1)
        dx, grads = ex.backward(w[i, j][:, None] * go[i])
        np.add.at(out["grad_input"], i, dx)
        for n in LORA:
            out["grad_" + n][e] = grads[n]
    return out


def relative(got, want):
    scale = np.abs(want).mean() if want.size else 0
    if scale == 0:
        return 0.0 if not np.abs(got).any() else np.inf
    return np.abs(got - want).mean() / scale


def stacked(base):
    """Weights of a directory of one layer as stacked tensors, and biases."""
    if "gate_proj" in base:
        return base
    out = {}
    at = next((n[:-len("gate_up_proj")] for n in base
               if n.endswith("gate_up_proj")), None)
    if at:  # gpt_oss
        for p, n in zip(PROJ, ["gate_up_proj"] * 2 + ["down_proj"]):
            step = slice(PROJ.index(p), None, 2) if p != "down" else slice(None)
            out[p + "_proj"] = base[at + n].swapaxes(1, 2)[:, step]
            out[p + "_bias"] = base[at + n + "_bias"][:, step]
        return out
    for p in PROJ:
        found = {int(n.split(".experts.")[1].split(".")[0]): v
                 for n, v in base.items()
                 if ".experts." in n and n.endswith(p + "_proj.weight")}
        out[p + "_proj"] = np.stack([found[e] for e in range(len(found))])
    return out


def compare(got, want, names, limit, n_experts):
    """Lines of what is over the limit; LoRA's tensors expert by expert."""
    lines = []
    for n in names:
        if got[n].shape != want[n].shape:
            lines.append("%s is %s, not %s" % (n, got[n].shape, want[n].shape))
            continue
        parts = [("", got[n], want[n])]
        if "lora" in n:
            parts = [(" of expert %d" % e, got[n][e], want[n][e])
                     for e in range(n_experts)]
        for what, a, b in parts:
            d = relative(a, b)
            if not d < limit:
                lines.append("%s%s: %.5f" % (n, what, d))
    return lines


def judge(which, out, base, lora, batch, limit):
    got = read(out)[0]
    weights, meta = read(lora)
    want = reference(stacked(read_dir(base)), weights,
                     float(meta["lora_alpha"]), read(batch)[0])
    names = ["output"]
    if which == "backward":
        names = ["grad_input", "grad_weights"] + ["grad_" + n for n in LORA]
    if sorted(got) != sorted(names):
        return ["has " + " ".join(sorted(got))]
    return compare(got, want, names, float(limit),
                   weights["gate_lora_a"].shape[0])


if __name__ == "__main__":
    if sys.argv[1] in ("forward", "backward"):
        bad = judge(*sys.argv[1:])
        print("\n".join(bad), end="\n" if bad else "")
        sys.exit(bool(bad))
    at = 4 if sys.argv[1] == "family" else 2
    options = dict(a.split("=") for a in sys.argv[at:])
    options = {n: type(SIZES[n])(v) for n, v in options.items()}
    if at == 4:
        save_family(sys.argv[2], sys.argv[3], **options)
    else:
        save_all(sys.argv[1], **options)
