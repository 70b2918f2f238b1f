# SPDX-License-Identifier: ISC
"""peft_stacks.py MODEL DIR: adapters of MODEL's experts as PEFT's ParamWrapper
lays them out, target_parameters: of the stack [E, out, in] of a layer

  lora_A [r E, in], lora_B [out, r E], delta = scale
      einsum("o r e, e r i -> e o i", B.reshape(out, r, E), A.reshape(E, r, in))

or, as PEFT up to 0.18 has such stacks, of in and out swapped,

  lora_A [r E, out], lora_B [in, r E], delta = scale
      einsum("o r e, e r i -> e i o", B.reshape(in, r, E), A.reshape(E, r, out))

Each case is DIR/NAME, an adapter, DIR/NAME.merged, MODEL in F32 with that
delta, and DIR/NAME.npz, each expert's own A and B where gate and up have the
same rank as down.

peft_stacks.py stack MODEL DIR: MODEL with its experts in stacks, by rows.
peft_stacks.py merge MODEL ADAPTER DIR: MODEL in F32 with what PEFT 0.20 adds to
its modules and its stacks: gpt_oss has these [E, in, out], others [E, out, in].
"""
import json
import os
import re
import shutil
import sys

import mkst
import numpy as np

ROOT = "base_model.model.model.layers.%d.mlp.experts."


def stack(t, layer, words, E):
    """[E, out, in] of the model's tensors: rows of all the words."""
    name = "model.layers.%d.mlp.experts.%d.%s_proj.weight"
    return np.stack([np.concatenate([mkst.values(*t[name % (layer, e, w)])
                                     for w in words]) for e in range(E)])


def joined(g, E, r, out, n_in):
    """gate's and up's own adapters, as PEFT joins them into one."""
    a = g.normal(0, 1, (E, 2 * r, n_in)) / n_in ** .5
    b = np.zeros((E, out, 2 * r))
    b[:, :out // 2, :r] = g.normal(0, 1, (E, out // 2, r)) / r ** .5
    b[:, out // 2:, r:] = g.normal(0, 1, (E, out // 2, r)) / r ** .5
    return a, b


def case(model, directory, name, r=3, alpha=4.5, swapped=False, only=None,
         join=False, rslora=False, dtype="<f4", **more):
    t = mkst.load(model + "/model.safetensors")
    conf = json.load(open(model + "/config.json"))
    E, n_layers = conf["num_experts"], conf["num_hidden_layers"]
    g = np.random.default_rng(len(name))
    path = os.path.join(directory, name)
    merged = {n: mkst.values(*v).astype("<f4") for n, v in t.items()}
    tensors, own = {}, {}
    config = dict(peft_type="LORA", r=r, lora_alpha=alpha, use_rslora=rslora,
                  bias="none", target_modules=[], rank_pattern={},
                  alpha_pattern={}, target_parameters=[])
    for layer in range(n_layers):
        for parameter, words in (("gate_up_proj", ["gate", "up"]),
                                 ("down_proj", ["down"])):
            if only and parameter != only:
                continue
            w = stack(t, layer, words, E)
            out, n_in = w.shape[1:]
            both = join and parameter == "gate_up_proj"
            k = 2 * r if both else r
            if both:
                a, b = joined(g, E, r, out, n_in)
                config["rank_pattern"][r".*\.gate_up_proj"] = k
                config["alpha_pattern"][r".*\.gate_up_proj"] = 2 * alpha
            else:
                a = g.normal(0, 1, (E, k, n_in)) / n_in ** .5
                b = g.normal(0, 1, (E, out, k)) / k ** .5
            a, b = a.astype(dtype), b.astype(dtype)
            A, B = a.reshape(E * k, n_in), b.transpose(1, 2, 0).reshape(out, -1)
            if swapped:  # PEFT's A has out columns, its B in rows
                A = b.transpose(0, 2, 1).reshape(E * k, out)
                B = a.transpose(2, 1, 0).reshape(n_in, -1)
            scale = (2 if both else 1) * alpha / (k ** .5 if rslora else k)
            A3 = A.reshape(E, -1, A.shape[1]).astype("f8")
            B3 = B.reshape(B.shape[0], -1, E).astype("f8")
            delta = scale * np.einsum("ore,eri->" + ("eio" if swapped else "eoi"),
                                      B3, A3)
            inner = "base_layer." if parameter == "gate_up_proj" and not only else ""
            tensors[ROOT % layer + inner + "lora_A.weight"] = A
            tensors[ROOT % layer + inner + "lora_B.weight"] = B
            target = "mlp.experts." + parameter
            if target not in config["target_parameters"]:
                config["target_parameters"].append(target)
            rows = out // len(words)
            for e in range(E):
                for i, word in enumerate(words):
                    at = slice(i * rows, i * rows + rows)
                    merged["model.layers.%d.mlp.experts.%d.%s_proj.weight"
                           % (layer, e, word)] = (w + delta)[e, at].astype("<f4")
            for i, word in enumerate(words):
                half = slice(i * r, i * r + r) if both else slice(None)
                own["%d.%s_lora_a" % (layer, word)] = a[:, half]
                own["%d.%s_lora_b" % (layer, word)] = \
                    b[:, i * rows:i * rows + rows, half]
    os.makedirs(path)
    os.makedirs(path + ".merged")
    mkst.save(path + "/adapter_model.safetensors", tensors)
    with open(path + "/adapter_config.json", "w") as f:
        json.dump(dict(config, **more), f)
    for f in os.listdir(model):
        if f != "model.safetensors":
            shutil.copy(os.path.join(model, f), path + ".merged")
    mkst.save(path + ".merged/model.safetensors", merged)
    np.savez(path + ".npz", **own)


def square(model, directory):
    """The same model with experts whose matrices are square."""
    shutil.copytree(model, directory)
    conf = json.load(open(directory + "/config.json"))
    t = mkst.load(directory + "/model.safetensors")
    g = np.random.default_rng(7)
    h = conf["moe_intermediate_size"] = conf["hidden_size"]
    for n in t:
        if ".experts." in n:
            t[n] = mkst.bf16(g.normal(0, 1, (h, h)) / h ** .5)
    mkst.save(directory + "/model.safetensors", t)
    json.dump(conf, open(directory + "/config.json", "w"))


def copy(model, directory, tensors):
    shutil.copytree(model, directory)
    mkst.save(directory + "/model.safetensors", tensors)


def stacked(model, directory):
    t = mkst.load(model + "/model.safetensors")
    E = json.load(open(model + "/config.json"))["num_experts"]
    for layer in {int(n.split(".")[2]) for n in t if ".experts." in n}:
        for parameter, words in (("gate_up_proj", ["gate", "up"]),
                                 ("down_proj", ["down"])):
            w = stack(t, layer, words, E)
            t["model.layers.%d.mlp.experts.%s" % (layer, parameter)] = mkst.bf16(w)
    copy(model, directory, {n: v for n, v in t.items()
                            if not re.search(r"experts\.\d", n)})


def pattern(of, key, default):
    """PEFT's get_pattern_key()."""
    return next((v for k, v in of.items()
                 if re.match(r"(.*\.)?(%s)$" % k, key)), default)


def merge(model, adapter, directory):
    t = {n: mkst.values(*v).astype("f8") for n, v in
         mkst.load(model + "/model.safetensors").items()}
    add = {n: mkst.values(*v).astype("f8") for n, v in
           mkst.load(adapter + "/adapter_model.safetensors").items()}
    c = json.load(open(adapter + "/adapter_config.json"))
    is_transposed = json.load(open(model + "/config.json"))["model_type"] == "gpt_oss"
    for n in [n for n in add if n.endswith("lora_A.weight")]:
        A, B = add.pop(n), add.pop(n.replace("lora_A", "lora_B"))
        key = n[len("base_model.model."):-len(".lora_A.weight")]
        if key.endswith("experts") or key.endswith("base_layer"):
            key = key.replace(".base_layer", "")
            both = key + ".gate_up_proj", key + ".down_proj"
            has = [any(k.endswith("." + p) for p in c["target_parameters"])
                   for k in both]
            # the first is wrapped first, and is what the second one wraps
            key = both[0] if "base_layer" in n or not has[1] else both[1]
            assert "base_layer" not in n or all(has)
        else:
            key += ".weight"
            assert any(key.endswith("." + m + ".weight")
                       for m in c["target_modules"]), key
        name = key.replace(".weight", "")
        r, alpha = (pattern(c[k], name, c[d]) for k, d in (
            ("rank_pattern", "r"), ("alpha_pattern", "lora_alpha")))
        scale = alpha / (r ** .5 if c["use_rslora"] else r)
        if key.endswith(".weight"):
            assert len(A) == r
            t[key] += scale * B @ A
            continue
        E = len(t[key])
        assert len(A) == E * r
        t[key] += scale * np.einsum(
            "ore,eri->eio" if is_transposed else "ore,eri->eoi",
            B.reshape(len(B), -1, E), A.reshape(E, -1, A.shape[1]))
    assert not add
    copy(model, directory, {n: v.astype("<f4") for n, v in t.items()})


if __name__ == "__main__" and sys.argv[1] in ("stack", "merge"):
    dict(stack=stacked, merge=merge)[sys.argv[1]](*sys.argv[2:])
elif __name__ == "__main__":
    model, d = sys.argv[1:]
    case(model, d, "now")
    case(model, d, "before", swapped=True)
    case(model, d, "half", dtype="<f2", rslora=True)
    case(model, d, "joined", join=True)
    case(model, d, "down", only="down_proj")
    case(model, d, "gate-up", only="gate_up_proj", swapped=True)
    square(model, d + "/square")
    case(d + "/square", d, "square-now")
    case(d + "/square", d, "square-before", swapped=True)
    case(d + "/square", d, "square-down", only="down_proj")
    case(d + "/square", d, "square-020", only="down_proj",
         peft_version="0.20.0")
    case(d + "/square", d, "square-018", only="down_proj", swapped=True,
         peft_version="0.18.1")
