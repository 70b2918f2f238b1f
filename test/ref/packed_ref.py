# SPDX-License-Identifier: ISC
"""packed_ref.py FAMILY FORM DIR | dequantize DIR OUT |
run [FAMILY FORM]... | traps [FORM]...

A tiny random llama, qwen3 or qwen3_moe, packed in a FORM of TABLE as its
library writes it, and DIR.dequantized, the same with F32 numbers, which
'dequantize' reads.  'run' holds hf-infer to these numbers' float64 logits and
to its own bits for them; 'traps' prints how many times what may be the logits
of each way to read a form wrongly are off.
"""
import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import family_ref  # noqa: E402
import mkst  # noqa: E402
import packed_forms as pf  # noqa: E402
import tiny_models  # noqa: E402
import transformer  # noqa: E402

FAMILIES = ("llama", "qwen3", "qwen3_moe")
LISTED = "model.layers.1.self_attn.v_proj"  # is plain, where 'listed'
SIZES = ("hidden_size", "intermediate_size", "moe_intermediate_size",
         "head_dim", "num_key_value_heads")
MULTIPLES = {1: (61, 117, 45, 8, 3), 24: (72, 120, 48, 8, 3),
             32: (96, 160, 64, 16, 2)}
# name, method or format, type, bits, scales, strategy, its size, and more
# ("bias": AutoGPTQ before 0.8 wrote biases of zeros)
TABLE = """
fp8                   fp8             float 8 F32  block   32,40 listed
fp8-bf16              fp8             float 8 BF16 block   16,16
ct-fp8-tensor         float-quantized float 8 F32  tensor  0
ct-fp8-channel        float-quantized float 8 BF16 channel 0 listed
ct-fp8-group          float-quantized float 8 F16  group   24
ct-fp8-block          float-quantized float 8 BF16 block   32,40
ct-int8-channel       int-quantized   int 8 BF16 channel 0
ct-int8-asym          int-quantized   int 8 F32  channel 0 asym
ct-int8-tensor        naive-quantized int 8 F32  tensor  0
ct-int8-group         naive-quantized int 8 BF16 group   24
ct-int4-group         pack-quantized  int 4 BF16 group   24 listed
ct-int4-group-32      pack-quantized  int 4 F16  group   32 weight
ct-int4-asym          pack-quantized  int 4 BF16 group   24 asym
ct-int4-channel       pack-quantized  int 4 F32  channel 0
ct-int4-asym-channel  pack-quantized  int 4 BF16 channel 0 asym
ct-int4-actorder      pack-quantized  int 4 BF16 group   24 order
ct-int4-actorder-asym pack-quantized  int 4 BF16 group   32 order asym
ct-int8-packed        pack-quantized  int 8 BF16 channel 0
ct-int8-packed-asym   pack-quantized  int 8 BF16 group   24 asym
ct-int2               pack-quantized  int 2 BF16 group   24
ct-int3-asym          pack-quantized  int 3 BF16 group   24 asym
ct-int5               pack-quantized  int 5 BF16 group   24
ct-int6               pack-quantized  int 6 BF16 channel 0
ct-mixed              pack-quantized  int 4 BF16 group   24 mixed
ct-mxfp4              mxfp4-pack-quantized float 4 E8M0 group 32
awq                   awq             int 4 F16  group   32 asym listed
awq-channel           awq             int 4 F16  channel 0 asym
gptq2                 gptq            int 2 F16  group   32
gptq3                 gptq            int 3 F16  group   32
gptq4                 gptq            int 4 F16  group   32
gptq8                 gptq            int 8 F16  group   32
gptq4-asym            gptq            int 4 F16  group   32 asym
gptq4-desc            gptq            int 4 F16  group   32 order
gptq4-channel         gptq            int 4 F16  channel 0
gptq4-bias            gptq            int 4 F16  group   32 bias
gptq4-v2              gptq            int 4 F16  group   32 v2 asym
gptq3-v2-desc         gptq            int 3 F16  group   64 v2 asym order
"""


def form_of(name, by, kind, bits, dtype, strategy, block, *more):
    block = [int(x) for x in block.split(",")]
    return SimpleNamespace(
        by=by, kind=kind, bits=int(bits), dtype=dtype, strategy=strategy,
        block=block, size=block[0] if strategy == "group" else None, more=more,
        asym="asym" in more, order="order" in more)


FORMS = {row.split()[0]: form_of(*row.split())
         for row in TABLE.strip().split("\n")}


def ct_group(f, target):
    args = dict(actorder="group" if f.order else "weight" if "weight" in f.more
                else None, dynamic=False, group_size=f.size, num_bits=f.bits,
                block_structure=f.block if f.strategy == "block" else None,
                observer="minmax", observer_kwargs={}, strategy=f.strategy,
                symmetric=not f.asym, type=f.kind)
    inputs = None if "pack" in f.by else dict(
        args, block_structure=None, dynamic=True, group_size=None,
        strategy="token", symmetric=True)
    return dict(input_activations=inputs, output_activations=None,
                targets=[target], weights=args)


def quantization_config(f, routers):
    plain = [LISTED] * ("listed" in f.more)
    if f.by == "fp8":
        c = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                 weight_block_size=f.block)
        return dict(c, modules_to_not_convert=["lm_head"] + routers + plain + [
            "model.layers.0.input_layernorm"]) if plain else c
    if f.by == "awq":
        return dict(bits=4, group_size=f.size or -1, quant_method="awq",
                    modules_to_not_convert=routers + plain or None,
                    version="gemm", zero_point=True)
    if f.by == "gptq":
        v2 = "v2" in f.more
        c = dict(bits=f.bits, checkpoint_format="gptq_v2" if v2 else "gptq",
                 desc_act=f.order, group_size=f.size or -1, lm_head=False,
                 quant_method="gptq", sym=not f.asym, true_sequential=True)
        return dict(c, meta=dict(quantizer=["gptqmodel:4.0.0"]),
                    pack_dtype="int32") if v2 else dict(  # else AutoGPTQ's
                        c, damp_percent=0.01, static_groups=False)
    groups = dict(group_0=ct_group(f, "Linear"))
    if "mixed" in f.more:
        groups["group_1"] = ct_group(FORMS["ct-int8-packed"],
                                     "re:.*mlp.*down_proj$")
    return dict(config_groups=groups, format=f.by, ignore=["lm_head"] + plain
                + ["re:.*mlp.gate$"] * bool(routers), kv_cache_scheme=None,
                global_compression_ratio=None, quant_method="compressed-tensors",
                quantization_status="compressed")


def quantize(w, rng, f):
    """A module's tensors by suffix, and its numbers.  Scales, zero points and
    groups are random, so that it matters which is used where."""
    n, k = w.shape
    rows, columns = {"tensor": (n, k), "channel": (1, k), "group": (1, f.size),
                     "block": f.block}[f.strategy]
    group = np.arange(k) // columns
    group = rng.permutation(group) if f.order else group
    shape = -(-n // rows), group.max() + 1
    half, table = 1 << f.bits - 1, None
    if f.kind == "float":
        table = pf.E2M1 if f.bits == 4 else pf.E4M3
    s = rng.uniform(0.5, 1, shape) * np.abs(w).max() / (
        half - 1 if table is None else table[-1])
    if table is pf.E4M3 and s.size > 1:
        s.ravel()[::3] *= 3e4  # only subnormals there
    s = np.exp2(rng.integers(-6, -4, shape)) if f.dtype == "E8M0" else (
        mkst.values(*mkst.entry(pf.real(s, f.dtype))))
    z = np.zeros(shape, np.int64)
    if f.asym:
        z = rng.integers(-half // 2, half // 2, shape)
        z.flat[::5], z.flat[1::5] = -half, half - 1
    at = np.ix_(np.arange(n) // rows, group)
    if table is None:
        q = np.rint(w / s[at]).astype(np.int64) + z[at]
        q = np.clip(q, -half, half - 1)
    else:
        q = np.copysign(table[pf.nearest(w / s[at], table)], w)
    right = ((q - z[at]) * s[at]).astype(np.float32)
    if f.by == "awq":
        return pf.pack_awq(q + half, z + half, s), right
    if f.by == "gptq":
        t = pf.pack_gptq(q + half, z + half, s, f.bits, 1 + ("v2" in f.more),
                         group)
        return dict(t, bias=np.zeros(n, "<f2")) if "bias" in f.more else t, right
    if f.by == "pack-quantized":
        return pf.pack_compressed(q, z, s, f.bits, f.dtype, f.asym,
                                  group if f.order else None), right
    scale = pf.real(s.reshape(1) if f.strategy == "tensor" else s, f.dtype)
    if f.bits == 4:
        return {"weight_packed": pf.pack_fp4(q), "weight_scale": scale}, right
    t = {"weight": q.astype(np.int8) if table is None else pf.pack_e4m3(q),
         "weight_scale" + "_inv" * (f.by == "fp8"): scale}
    return dict(t, weight_zero_point=z.astype(np.int8)) if f.asym else t, right


def save(path, config, tensors):
    os.makedirs(path)
    with open(os.path.join(path, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
    mkst.save(os.path.join(path, "model.safetensors"), tensors)


def make(family, form, directory):
    f, rng = FORMS[form], np.random.default_rng(1)
    of = 32 if f.by in ("awq", "gptq") else f.size or 1
    config = tiny_models.config_of(
        family, **dict(zip(SIZES, MULTIPLES[of])), num_hidden_layers=2,
        vocab_size=97, num_experts=4, num_experts_per_tok=2,
        norm_topk_prob=True)
    weights = tiny_models.weights_of(config, rng)
    routers = [x[:-7] for x in weights if x.endswith("mlp.gate.weight")]
    config["quantization_config"] = quantization_config(f, routers)
    tensors, right = {}, {}
    for name, w in weights.items():
        module = name[:-7]
        if "_proj" not in name or ("listed" in f.more and module == LISTED):
            tensors[name] = pf.real(w, "F16" if f.dtype == "F16" else "BF16")
            continue
        mixed = "mixed" in f.more and module.endswith("down_proj")
        t, right[name] = quantize(w, rng, FORMS["ct-int8-packed"] if mixed
                                  else f)
        tensors.update({module + "." + x: a for x, a in t.items()})
    save(directory, config, tensors)
    config, got = dequantized(directory)
    save(directory + ".dequantized", config, got)
    for name, w in right.items(): # what the writer meant is what is read
        assert got[name] == mkst.entry(w), (form, name)


def dequantized(directory, wrong=()):
    """config and tensors as mkst has them, with F32 for what is packed"""
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    c, modules, out = config.pop("quantization_config"), {}, {}
    for file in sorted(os.listdir(directory)):
        if file.endswith(".safetensors"):
            for name, t in mkst.load(os.path.join(directory, file)).items():
                module, _, suffix = name.rpartition(".")
                modules.setdefault(module, {})[suffix] = t
    for module, t in modules.items():
        if t.keys() & {"weight_scale_inv", "weight_scale", "qweight"}:
            a = {x: mkst.values("U8" if v[0].startswith("F8") else v[0], *v[1:])
                 for x, v in t.items()}
            t = {"bias": t["bias"]} if "bias" in t and a["bias"].any() else {}
            t["weight"] = mkst.entry(pf.dequantize(a, c, module, wrong))
        out.update({module + "." + x: v for x, v in t.items()})
    return config, out


IDS = np.random.default_rng(7).integers(0, 97, 19)


def logits(directory, wrong=()):
    config, tensors = dequantized(directory, wrong)
    tensors = {x: mkst.values(*t) for x, t in tensors.items()}
    with np.errstate(over="ignore"):
        return transformer.forward(config, tensors, IDS)


def run(tmp, pairs):
    ids = ",".join(map(str, IDS))
    for family, form in pairs:
        path = os.path.join(tmp, form + "-" + family)
        make(family, form, path)
        ref, got = logits(path), []
        for way in ([path], [path, "--chunk", "1"], [path + ".dequantized"]):
            subprocess.run(["hf-infer", *way, "--ids", ids, "-f", "--logits",
                            tmp + "/got.npy"], check=True)
            got.append(np.load(tmp + "/got.npy"))
        off = np.abs(got[0] - ref).max() / family_ref.tolerance(ref)
        print("%s %s: %.2g of what may be" % (family, form, off))
        assert off <= 1
        assert np.array_equal(got[0], got[1]), "other bits token by token"
        assert np.array_equal(got[0], got[2]), "other bits than of F32"


def traps(tmp, forms):
    seen = True
    for form in forms:
        path = os.path.join(tmp, form)
        make("llama", form, path)
        ref = logits(path)
        for wrong, where in pf.WRONG.items():
            if pf.re.match(where, form):
                off = np.abs(logits(path, [wrong]) - ref).max()
                off /= family_ref.tolerance(ref)
                seen &= off >= family_ref.VISIBLE
                print("%s\t%s\t%.3g" % (form, wrong, off))
    return seen


def main(verb, *args):
    # each form with one family, in turn; a few with all
    pairs = list(zip(args[::2], args[1::2])) or [
        (family, form) for i, form in enumerate(FORMS)
        for j, family in enumerate(FAMILIES) if i % 3 == j or form in (
            "fp8", "ct-int8-channel", "ct-int4-asym", "ct-mxfp4", "gptq4-desc")]
    if verb == "dequantize":
        save(args[1], *dequantized(args[0]))
    elif verb in ("run", "traps"):
        with tempfile.TemporaryDirectory() as tmp:
            if verb == "traps":
                return traps(tmp, args or FORMS)
            run(tmp, pairs)
    else:
        make(verb, *args)
    return True


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: " + __doc__)
    sys.exit(not main(*sys.argv[1:]))
