# SPDX-License-Identifier: ISC
# Packed weights that hf-infer refuses, by name: config.json that asks for more
# than is read, and tensors that lie.
load helpers

@test "hf-infer: packed weights that lie, and options that are not known, are refused by name with 65" {
    for form in fp8 ct-int8-asym ct-int4-asym ct-int4-actorder ct-mxfp4 awq gptq3 gptq4-desc; do
        py "$ROOT/test/ref/packed_ref.py" llama "$form" "$form"
    done
    run -0 py - <<'END'
import copy, json, os, shutil, subprocess, numpy as np, mkst
UP = "model.layers.0.mlp.up_proj."


def load(path):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    head = json.loads(data[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in head.items()}


def refused(form, what, tensors=None, **keys):
    """The form's model with tensors of up_proj (None: none) and keys of
    quantization_config in place of its own: one line, that has 'what'."""
    t, c = load(form + "/model.safetensors"), json.load(open(form + "/config.json"))
    for name, by in (tensors or {}).items():
        dtype, shape, data = t.pop(UP + name, ("F32", [], b""))
        if by is not None:
            t[UP + name] = by(dtype, list(shape), data)
    weights = c["quantization_config"].get("config_groups", {}).get("group_0", {}).get("weights", {})
    for key, v in keys.items():
        if key.startswith("w_"):
            weights[key[2:]] = v
        elif v == "absent":
            del c["quantization_config"][key]
        else:
            c["quantization_config"][key] = v
    os.makedirs("bad", exist_ok=True)
    mkst.save_raw("bad/model.safetensors", mkst.header(t), b"".join(v[2] for v in t.values()))
    json.dump(c, open("bad/config.json", "w"))
    run = subprocess.run(["hf-infer", "bad", "--ids", "1", "--logits", "out.npy"], stderr=subprocess.PIPE, text=True)
    assert run.returncode == 65 and run.stderr.count("\n") == 1 and what in run.stderr, (form, what, run)
    assert not os.path.exists("out.npy")


def cut(dtype, shape, data):
    """One row less."""
    return dtype, [shape[0] - 1] + shape[1:], data[:len(data) // shape[0] * (shape[0] - 1)]


def first(number):
    """The first number is this one."""
    return lambda dtype, shape, data: (dtype, shape, number + data[len(number):])


def typed(other):
    return lambda dtype, shape, data: (other, shape, data)


def i32(n): return np.int32(n).tobytes()


SHAPE, BF16, F16 = [160, 96], b"\x80\x7f", b"\x00\x7e"
# config.json
for method in "bitsandbytes", "hqq", "torchao", "auto-round", "modelopt":
    refused("fp8", f'bad/config.json: quantization_config.quant_method "{method}" is not supported (fp8, compr', quant_method=method)
refused("fp8", "quant_method is 5 (expected", quant_method=5)
refused("fp8", "quant_method is missing", quant_method="absent")
refused("fp8", 'fmt "e5m2" is not supported (e4m3', fmt="e5m2")
refused("fp8", "weight_block_size[0] is 0 (expected", weight_block_size=[0, 128])
refused("fp8", "weight_block_size is", weight_block_size=[128])
refused("fp8", "quantization_config.rotation is not known", rotation="hadamard")
refused("fp8", "quantization_config.desc_act is not known", desc_act=True)
refused("awq", "quantization_config.weight_block_size is not known", weight_block_size=[128, 128])
refused("awq", 'format "marlin" is not supported (gemm)', format="marlin")
refused("ct-int4-asym", "quantization_config.bits is not known", bits=8)
refused("ct-int4-asym", "weights.targets is not known", w_targets=["Linear"])
refused("ct-int4-asym", 'format "nvfp4-pack-quantized" is not supported (float-quantized, int', format="nvfp4-pack-quantized")
refused("ct-int4-asym", 'quantization_status "frozen" is not supported', quantization_status="frozen")
refused("ct-int4-asym", "sparsity_config.format", sparsity_config={"format": "sparse-24-bitmask"})
refused("ct-int4-asym", "transform_config.config_groups is", transform_config={"config_groups": {"R1": {}}})
refused("ct-int4-asym", "config_groups is missing", config_groups="absent")
refused("ct-int4-asym", "weights.num_bits is 9 (expected", w_num_bits=9)
refused("ct-int4-asym", "weights.group_size is 0 (expected", w_group_size=0)
refused("ct-int4-asym", 'strategy "token" is not supported', w_strategy="token")
refused("ct-int4-asym", "dynamic is true (expected false)", w_dynamic=True)
refused("ct-int4-asym", 'type is "float"', w_type="float")
refused("ct-int4-asym", 'ignore[0] is 1 (expected a string)', ignore=[1])
refused("ct-int4-asym", "ignore[0]", ignore=["re:("])
refused("ct-mxfp4", "num_bits is 8 (expected 4)", w_num_bits=8)
refused("awq", 'version "gemv" is not supported (gemm)', version="gemv")
refused("awq", "zero_point is false (expected true)", zero_point=False)
refused("awq", "bits is 8 (expected", bits=8)
refused("awq", "group_size is 0 (expected", group_size=0)
refused("gptq3", 'checkpoint_format "marlin" is not supported', checkpoint_format="marlin")
refused("gptq3", "bits is 5 (expected 2, 3, 4 or 8)", bits=5)
refused("gptq3", "dynamic is 4 (expected an object)", dynamic=4)
refused("gptq3", "dynamic", dynamic={"+:.*up_proj": {"bits": 8}})
# which modules
refused("fp8", UP + "weight is packed, but quantization_config of bad/config.json says that it is not",
        modules_to_not_convert=["mlp.up_proj"])
refused("ct-int4-asym", "says that it is not", ignore=["re:.*up_proj$"])
refused("ct-int4-asym", "says that it is not", ignore=["Linear"])
refused("gptq3", "says that it is not", dynamic={r"-:.*\.up_proj": {}})
# tensors
refused("fp8", UP + "weight_scale_inv is missing", {"weight_scale_inv": None})
refused("fp8", UP + "weight is F8_E5M2 (expected F8_E4M3)", {"weight": typed("F8_E5M2")})
refused("fp8", UP + "weight is of [", {"weight": cut})
refused("fp8", UP + "weight_scale_inv is [", {"weight_scale_inv": cut})
refused("fp8", UP + "weight_scale_inv is I32", {"weight_scale_inv": typed("I32")})
refused("fp8", UP + "weight_scale_inv has NaN or Inf", {"weight_scale_inv": first(np.float32("inf").tobytes())})
refused("ct-int8-asym", UP + "weight_zero_point is missing", {"weight_zero_point": None})
refused("ct-int8-asym", UP + "weight_zero_point is F", {"weight_zero_point": typed("F8_E4M3")})
refused("ct-int4-asym", UP + "weight_packed is U32 (expected I32)", {"weight_packed": typed("U32")})
refused("ct-int4-asym", UP + "weight_shape is [", {"weight_packed": cut})
refused("ct-int4-asym", UP + "weight_shape is missing", {"weight_shape": None})
refused("ct-int4-asym", UP + "weight_shape is [-1,", {"weight_shape": first(np.int64(-1).tobytes())})
refused("ct-int4-asym", UP + "weight_scale is [", {"weight_scale": cut})
refused("ct-int4-asym", UP + "weight_scale has NaN or Inf", {"weight_scale": first(BF16)})
refused("ct-int4-asym", UP + "weight_zero_point is [", {"weight_zero_point": cut})
refused("ct-int4-actorder", UP + "weight_g_idx[0] is 99 (expected 0 to ", {"weight_g_idx": first(i32(99))})
refused("ct-int4-actorder", UP + "weight_g_idx[0] is -2 (expected 0 to ", {"weight_g_idx": first(i32(-2))})
refused("ct-int4-actorder", UP + "weight_g_idx is [", {"weight_g_idx": cut})
refused("ct-int4-actorder", UP + "weight_g_idx is missing", {"weight_g_idx": None})
refused("ct-mxfp4", UP + "weight_scale has NaN or Inf", {"weight_scale": first(b"\xff")})
refused("awq", UP + "qzeros is missing", {"qzeros": None})
refused("awq", UP + "scales is [", {"scales": cut})
refused("awq", UP + "scales has NaN or Inf", {"scales": first(F16)})
refused("gptq3", UP + "qweight has 8 rows (expected a multiple of 3", {"qweight": cut})
refused("gptq3", UP + "qzeros is [", {"qzeros": cut})
refused("gptq4-desc", UP + "g_idx is missing", {"g_idx": None})
refused("gptq4-desc", UP + "g_idx[0] is 7777 (expected", {"g_idx": first(i32(7777))})
END
}
