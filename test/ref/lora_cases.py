# SPDX-License-Identifier: ISC
"""lora_cases.py DIR: small models with adapters, and their float64 logits.

Each case is DIR/NAME/, a model as tiny_models.py writes it, ids.i32, and
logits.f64 of the model whose weights are W + s B A; "adapters" lists what
--lora is to be given, a path a line.  DIR/cases lists the names; DIR/bad has
"PATH<tab>MESSAGE" a line: adapters of DIR/moe that must be refused so.

What an adapter adds is about half of what its layer gives.
"""
import json
import math
import os
import re
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402
import tiny_models as tiny  # noqa: E402
import transformer  # noqa: E402

ROOT = "base_model.model."
CONFIG = dict(peft_type="LORA", task_type="CAUSAL_LM", r=4, lora_alpha=10,
              bias="none", use_dora=False, use_rslora=False,
              fan_in_fan_out=False, modules_to_save=None, rank_pattern={},
              alpha_pattern={}, init_lora_weights=True,
              megatron_config=None, megatron_core="megatron.core",
              lora_dropout=0.1, layers_to_transform=None, loftq_config={},
              layer_replication=None, runtime_config=None)


def pattern_value(patterns, module, default):
    """As PEFT finds a module's own rank or alpha."""
    for pattern, value in patterns.items():
        if re.match(r"(.*\.)?(%s)$" % pattern, module):
            return value
    return default


def sizes(config, module):
    r = pattern_value(config["rank_pattern"], module, config["r"])
    alpha = pattern_value(config["alpha_pattern"], module,
                          config["lora_alpha"])
    return r, alpha / (math.sqrt(r) if config["use_rslora"] else r)


def pair(rng, rows, cols, r, s):
    return (rng.normal(0, 1 / math.sqrt(cols), (r, cols)),
            rng.normal(0, 0.7 / (s * math.sqrt(r)), (rows, r)))


def write_peft(directory, config, tensors, dtype="F32"):
    os.makedirs(directory)
    with open(os.path.join(directory, "adapter_config.json"), "w") as f:
        json.dump(config, f)
    tiny.write_safetensors(os.path.join(directory, "adapter_model.safetensors"),
                           tensors, lambda name: dtype, pad=1)


def peft(rng, weights, modules, dtype="F32", **change):
    """A PEFT directory's config and tensors, and its dtype."""
    targets = sorted({m.split(".")[-1] for m in modules})
    config, tensors = dict(CONFIG, target_modules=targets, **change), {}
    for module in modules:
        rows, cols = weights[module + ".weight"].shape
        a, b = pair(rng, rows, cols, *sizes(config, module))
        tensors[ROOT + module + ".lora_A.weight"] = a
        tensors[ROOT + module + ".lora_B.weight"] = b
    return config, tensors, dtype


def merge_peft(weights, directory):
    """weights += s B A, from the files."""
    with open(os.path.join(directory, "adapter_config.json")) as f:
        config = json.load(f)
    tensors = mkst.read(
        os.path.join(directory, "adapter_model.safetensors"))[0]
    for name, a in tensors.items():
        module = name[len(ROOT):].removesuffix(".lora_A.weight")
        if name.endswith(".lora_A.weight"):
            b = tensors[ROOT + module + ".lora_B.weight"]
            s = sizes(config, module)[1]
            module = module if module + ".weight" in weights else (
                "model." + module)
            weights[module + ".weight"] += s * b @ a


def stacked(rng, config, r, alpha):
    n, h = config["num_experts"], config["hidden_size"]
    inner = config["moe_intermediate_size"]
    tensors = {}
    for name, rows, cols in (("gate", inner, h), ("up", inner, h),
                             ("down", h, inner)):
        pairs = [pair(rng, rows, cols, r, alpha / r) for _ in range(n)]
        tensors[name + "_lora_a"] = np.stack([a for a, _ in pairs])
        tensors[name + "_lora_b"] = np.stack([b for _, b in pairs])
    return tensors


def merge_stacked(weights, path, layer, s):
    tensors = mkst.read(path)[0]
    for name in ("gate", "up", "down"):
        a, b = tensors[name + "_lora_a"], tensors[name + "_lora_b"]
        for e in range(len(a)):
            weights["model.layers.%d.mlp.experts.%d.%s_proj.weight"
                    % (layer, e, name)] += s * b[e] @ a[e]


class Case:
    """A model directory, its adapters so far, and its merged weights."""

    def __init__(self, root, name, rng, config, n, change=None, **options):
        self.directory, self.rng = os.path.join(root, name), rng
        self.name, self.n, self.adapters = name, n, []
        weights = tiny.weights_of(config, rng)
        tiny.write_model(self.directory, config,
                         change(weights) if change else weights, **options)
        self.config, self.weights = transformer.load(self.directory)

    def path(self):
        return os.path.join(self.directory, "lora%d" % len(self.adapters))

    def peft(self, modules, saved=(), **options):
        path = self.path()
        config, tensors, dtype = peft(self.rng, self.weights, modules,
                                      **options)
        for module in saved:  # as save_pretrained() does with an lm_head
            tensors[ROOT + module + ".base_layer.weight"] = np.array(
                self.weights[module + ".weight"])
        write_peft(path, config, tensors, dtype)
        merge_peft(self.weights, path)
        self.adapters.append(path)

    def stacked(self, layer, r, alpha, dtype, meta, suffix=""):
        path = self.path()
        tiny.write_safetensors(path, stacked(self.rng, self.config, r, alpha),
                               lambda name: dtype, meta=meta)
        merge_stacked(self.weights, path, layer, alpha / r)
        self.adapters.append(path + suffix)

    def done(self):
        ids = self.rng.integers(0, self.config["vocab_size"], self.n)
        logits = transformer.forward(self.config, self.weights, ids)
        ids.astype("<i4").tofile(os.path.join(self.directory, "ids.i32"))
        logits.astype("<f8").tofile(os.path.join(self.directory, "logits.f64"))
        with open(os.path.join(self.directory, "adapters"), "w") as f:
            f.write("".join(a + "\n" for a in self.adapters))
        return self.name


def layers(names, numbers=(0, 1, 2)):
    return ["model.layers.%d.%s" % (i, n) for i in numbers for n in names]


ATTENTION = ["self_attn.%s_proj" % x for x in "qkvo"]
MLP = ["mlp.%s_proj" % x for x in ("gate", "up", "down")]


def cases(root, rng):
    case = Case(root, "llama", rng, tiny.config_of("llama"), 70)
    case.peft(layers(ATTENTION + MLP), dtype="BF16")
    yield case
    case = Case(root, "qwen3-patterns", rng, tiny.config_of(
        "qwen3", tie_word_embeddings=False), 70)
    case.peft(
        layers(ATTENTION + MLP) + ["lm_head"], ["lm_head"], use_rslora=True,
        r=7,
        rank_pattern={"q_proj": 1, r"layers\.[02]\.mlp\..*": 9,
                      "mlp.up_proj": 70},
        alpha_pattern={"^model.layers.1.self_attn.o_proj": 3.5, "head": 1,
                       "v_proj|up_proj": 20})
    yield case
    case = Case(root, "qwen3-two-no-prefix", rng, tiny.config_of(
        "qwen3", architectures=["Qwen3Model"], tie_word_embeddings=True), 40,
        change=lambda w: tiny.rename(w, "model.", ""))
    case.peft(layers(["self_attn.q_proj", "mlp.down_proj"]), dtype="F16")
    case.peft(layers(["mlp.down_proj", "self_attn.k_proj"]), r=13)
    yield case
    config = tiny.config_of("qwen3_moe", decoder_sparse_step=2, **tiny.EXPERTS)
    case = Case(root, "moe", rng, config, 70)
    case.peft(layers(MLP, (0, 2)) + layers(ATTENTION) + layers(
        ["mlp.gate"] + ["mlp.experts.%d.%s_proj" % e for e in (
            (0, "gate"), (0, "down"), (3, "up"), (6, "gate"), (6, "up"))],
        (1,)))
    yield case
    case = Case(root, "moe-stacked", rng, config, 70)
    case.stacked(1, 5, 32, "BF16", dict(lora_alpha="32", lora_rank="5"))
    yield case
    config = tiny.config_of("qwen3_moe", **dict(
        tiny.EXPERTS, norm_topk_prob=False))
    case = Case(root, "moe-three", rng, config, 70, dtype="F32")
    case.stacked(2, 4, 8.5, "F16", dict(
        lora_alpha="8.5", layer_idx="2", expert_num="7"))
    case.stacked(0, 3, 6, "F32", dict(lora_alpha="6"), "@0")
    case.peft(layers(["mlp.experts.%d.down_proj" % e for e in range(7)]))
    yield case


def bad_peft(root, rng, weights):
    """Yields the directory's name, its message, config, tensors."""
    config, t, _ = peft(rng, weights, layers(["self_attn.q_proj"], (0,)))
    a, b = sorted(t)

    def change(name, message, **keys):
        return (name, "adapter_config.json: " + message, dict(config, **keys),
                t)

    yield change("use_dora", "use_dora is true (expected nothing: it is not "
                 "supported)", use_dora=True)
    yield change("ia3", 'peft_type is "IA3" (expected "LORA")',
                 peft_type="IA3")
    yield change("target", "target_modules has no model.layers.0.self_attn."
                 "q_proj, but the tensors do", target_modules=["v_proj"])
    yield change("no-alpha", "lora_alpha is null (expected a number)",
                 lora_alpha=None)
    yield change("pattern", r'rank_pattern: "^(?:.*\.)?(?:q_()$": regex: missing '
                 "closing parenthesis (at byte 18)", rank_pattern={"q_(": 3})
    yield change("pattern-rank", "rank_pattern.q_proj is 0 (expected a whole "
                 "number from 1 to 2147483647)", rank_pattern={"q_proj": 0})
    model = "adapter_model.safetensors: "
    yield ("rank", model + a + " is [4, 60] (expected [5, 60])",
           dict(config, r=5), t)
    yield ("empty", model + "has no tensors", config, {})
    yield ("no-b", model + "tensor %s is missing" % b, config, {a: t[a]})
    yield ("no-a", model + "tensor %s is missing" % a, config, {b: t[b]})
    for old, new in (("layers.0", "layers.3"), ("q_proj", "x_proj"),
                     ("layers.0.self_attn.q_proj",
                      "layers.1.mlp.experts.7.up_proj"),
                     ("layers.0.self_attn.q_proj", "layers.1.mlp.up_proj"),
                     ("model.layers.0.self_attn.q_proj", "x")):
        yield ("name-" + new.replace(".", "-"), model + a.replace(
            old, new) + " is of no linear layer of ",
            config, {n.replace(old, new): x for n, x in t.items()})
    yield ("wide", model + a + " is [4, 61] (expected [4, 60])",
           config, dict(t, **{a: np.zeros((4, 61))}))
    q = "model.layers.0.self_attn.q_proj"
    other = np.array(weights[q + ".weight"])
    other[-1, -1] += 1
    base = ROOT + q + ".base_layer.weight"
    yield ("base", model + base + " is not %s.weight of " % q, config,
           dict(t, **{base: other}))
    yield ("base-shape", model + base + " is [3, 3] (expected [48, 60])",
           config, dict(t, **{base: np.zeros((3, 3))}))
    yield ("base-name", model + ROOT + "x.base_layer.weight is of no linear "
           "layer of ", config, dict(t, **{
               ROOT + "x.base_layer.weight": other}))
    for name in (ROOT + "model.embed_tokens.lora_embedding_A",
                 ROOT + "model.layers.0.self_attn.q_proj."
                 "lora_magnitude_vector", "lm_head.weight"):
        yield ("more-" + name.split(".")[-1], model + name
               + " is not supported (base_model.model.MODULE.lora_A.weight, "
               ".lora_B.weight)", config, dict(t, **{name: np.zeros((3, 3))}))


def bad_stacked(root, rng, config):
    """Yields name, suffix of the path, message, tensors, metadata."""
    t = stacked(rng, config, 4, 8)
    meta = dict(lora_alpha="8", lora_rank="4", layer_idx="1")
    yield "s-no-alpha", "", "__metadata__ has no lora_alpha", t, dict(x="y")
    yield ("s-alpha", "", '__metadata__ lora_alpha is "x" (expected a number)',
           t, dict(meta, lora_alpha="x"))
    yield ("s-rank", "", '__metadata__ lora_rank is "5", but the tensors have 4',
           t, dict(meta, lora_rank="5"))
    yield ("s-dense", "", "is of experts, but layer 0 of %s has none"
           % os.path.join(root, "moe"), t, dict(meta, layer_idx="0"))
    yield ("s-layer", "", "is of experts, but layer 3 of %s has none"
           % os.path.join(root, "moe"), t, dict(meta, layer_idx="3"))
    yield ("s-at", "@0", "is of experts, but layer 0 of %s has none"
           % os.path.join(root, "moe"), t, dict(lora_alpha="8"))
    yield ("s-other", "@2", "is for layer 1 by its metadata, but @2 asks for "
           "another", t, meta)
    yield ("s-missing", "", "tensor up_lora_b is missing",
           tiny.without(t, "up_lora_b"), meta)
    yield ("s-more", "", "has 7 tensors (expected gate_lora_a to down_lora_b, "
           "6)", dict(t, x=np.zeros(2)), meta)
    yield ("s-shape", "", "down_lora_a is [7, 4, 43] (expected "
           "[7, 4, 44])", dict(t, down_lora_a=np.zeros((7, 4, 43))), meta)
    yield ("s-experts", "", "gate_lora_a is [6, 4, 60] (expected "
           "[7, rank, 60])", {n: x[:6] for n, x in t.items()}, meta)
    yield ("s-scale", "", '__metadata__ lora_alpha is "1e300", more than F32 '
           "holds", t, dict(meta, lora_alpha="1e300"))


def bad(root, rng):
    config, weights = transformer.load(os.path.join(root, "moe"))
    for name, message, peft_config, tensors in bad_peft(root, rng, weights):
        path = os.path.join(root, "bad-" + name)
        write_peft(path, peft_config, tensors)
        if message.endswith(" of "):
            message += os.path.join(root, "moe")
        if name == "base":
            message += ": trained on another model"
        yield path, "%s/%s" % (path, message)
    for name, at, message, tensors, meta in bad_stacked(root, rng, config):
        path = os.path.join(root, "bad-" + name)
        tiny.write_safetensors(path, tensors, lambda name: "F32", meta=meta)
        yield path + at, "%s: %s" % (path, message)


def main(root):
    rng = np.random.default_rng(21)
    names = [case.done() for case in cases(root, rng)]
    lines = ["\t".join(x) for x in bad(root, rng)]
    for file, what in (("cases", names), ("bad", lines)):
        with open(os.path.join(root, file), "w") as f:
            f.write("".join(x + "\n" for x in what))


if __name__ == "__main__":
    main(sys.argv[1])
