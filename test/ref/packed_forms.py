# SPDX-License-Identifier: ISC
"""Packed weights: from codes to the tensors of a file, and from these to numbers.

The two ways are written apart, from the layouts of compressed-tensors, AutoAWQ,
GPTQModel and transformers: pack_...() from q, z and s, which mean
f32((q - z) * s), and dequantize() from the bits on disk.
"""
import re

import numpy as np

import mkst

# Numbers from 0 on in the order of their codes, of which each has one.
E4M3 = np.unique([m * 2.0 ** e for m in range(16) for e in range(-9, 6)
                  if m * 2.0 ** e <= 448])
E2M1 = np.unique([m * 2.0 ** e for m in range(4) for e in range(-1, 2)])
# Ways to read a form wrongly, and which forms show it.
WRONG = {
    "high half of a byte first": "ct-mxfp4",
    "E8M0's bias 128": "ct-mxfp4",
    "E4M3's bias 8": "(ct-)?fp8",
    "no subnormals of E4M3": "fp8|ct-fp8-(group|block|channel)",
    "divided by the scale": "",
    "scales transposed": "fp8|ct-fp8-(group|block)|ct-int.-group|gptq4$|awq$",
    "high bits first": "ct-int[24]|ct-int8-packed|gptq[24]|awq",
    "bits not over words": "ct-int[3567]|gptq3",
    "no offset": "ct-int[2-7]|ct-int8-packed",
    "zero points added": "ct-int8-asym|ct-int4-asym|gptq4-asym|awq",
    "zero points along in": "ct-int[34]-asym$|ct-int8-packed-asym",
    "g_idx ignored": "ct-int4-actorder|gptq.*desc",
    "v1 and v2 exchanged": "gptq",
    "a v1 zero point of 0 is 2^bits": "gptq4-asym", # AutoGPTQ's qlinear_cuda
    "AWQ's order ignored": "awq",
}


def nearest(x, table):
    """Codes of the nearest, without the sign."""
    return np.searchsorted((table[1:] + table[:-1]) / 2, np.abs(x))


def pack_bits(q, bits):
    """Rows of q < 2^bits, low bits first, in 32-bit words without gaps."""
    b = (q[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    b = b.reshape(len(q), -1)
    b = np.pad(b, ((0, 0), (0, -b.shape[1] % 32)))
    return np.packbits(b, axis=1, bitorder="little").view("<i4")


def pack_e4m3(x):
    q = (nearest(x, E4M3) + 128 * np.signbit(x)).astype(np.uint8)
    return "F8_E4M3", list(q.shape), q.tobytes()


def pack_fp4(x):
    """[..., k] of E2M1's numbers -> bytes [..., k / 2]"""
    q = (nearest(x, E2M1) + 8 * np.signbit(x)).astype(np.uint8)
    return q[..., ::2] + 16 * q[..., 1::2]


def real(x, dtype):
    if dtype == "E8M0":
        return np.rint(np.log2(x) + 127).astype(np.uint8)
    if dtype == "BF16":
        return mkst.bf16(x)
    return np.asarray(x, {"F32": "<f4", "F16": "<f2"}[dtype])


def pack_compressed(q, z, s, bits, dtype, asymmetric, g_idx):
    """q [n, k], z and s [n, groups]; q and z from -2^(bits-1) on."""
    half = 1 << bits - 1
    t = {"weight_packed": pack_bits(q + half, bits),
         "weight_scale": real(s, dtype), "weight_shape": np.array(q.shape)}
    if asymmetric:
        t["weight_zero_point"] = np.ascontiguousarray(
            pack_bits((z + half).T, bits).T)
    if g_idx is not None:
        t["weight_g_idx"] = np.asarray(g_idx, "<i4")
    return t


def pack_gptq(q, z, s, bits, version, g_idx):
    """q and z from 0 on"""
    z = z if version == 2 else (z - 1) % 2 ** bits
    return {"qweight": np.ascontiguousarray(pack_bits(q, bits).T),
            "qzeros": pack_bits(z.T, bits), "scales": real(s.T, "F16"),
            "g_idx": np.asarray(g_idx, "<i4")}


def pack_awq(q, z, s):
    def words(a):
        w = np.zeros((len(a), a.shape[1] // 8), np.uint32)
        for i, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            w |= a[:, column::8].astype(np.uint32) << np.uint32(4 * i)
        return w.view("<i4")
    return {"qweight": words(q.T), "qzeros": words(z.T),
            "scales": real(s.T, "F16")}


def fields(words, bits, n, wrong=()):
    """The first n fields of each row of 32-bit words."""
    w = np.pad(words.astype(np.int64) & 0xffffffff, ((0, 0), (0, 8)))
    at, low = np.divmod(np.arange(n) * bits, 32)
    if "bits not over words" in wrong:
        at, low = np.divmod(np.arange(n), 32 // bits) * np.array([[1], [bits]])
    low = 32 - bits - low if "high bits first" in wrong else low
    return ((w[:, at] | w[:, at + 1] << 32) >> low) & (1 << bits) - 1


def e4m3(b, wrong=()):
    b, bias = b.astype(np.int64), 8 if "E4M3's bias 8" in wrong else 7
    e, m = (b & 127) >> 3, b & 7
    x = np.where(e > 0, np.ldexp(1 + m / 8, e - bias),
                 m / 512 * ("no subnormals of E4M3" not in wrong))
    x = np.where((b & 127) == 127, np.nan, x)
    return np.where(b >= 128, -x, x)


def fp4(b, wrong=()):
    """bytes [..., k / 2] -> numbers [..., k]"""
    halves = (b & 15, b >> 4)
    if "high half of a byte first" in wrong:
        halves = halves[::-1]
    q = np.stack(halves, -1).reshape(*b.shape[:-1], -1).astype(np.int64)
    e, m = q >> 1 & 3, q & 1
    x = np.where(e > 0, np.ldexp(1 + m / 2, e - 1), m / 2)
    return np.where(q >= 8, -x, x)


def e8m0(b, wrong=()):
    bias = 128 if "E8M0's bias 128" in wrong else 127
    return np.ldexp(1.0, b.astype(np.int64) - bias)


def mxfp4(blocks, scales, wrong=()):
    """gpt-oss: blocks [E, n, k / 32, 16], scales [E, n, k / 32] -> [E, n, k]"""
    x = fp4(blocks, wrong) * e8m0(scales, wrong)[..., None]
    return x.reshape(*blocks.shape[:2], -1).astype(np.float32)


def numbers(q, z, s, rows, group, wrong):
    """z and s [blocks of rows, groups], group [k] -> f32((q - z) * s)"""
    if "scales transposed" in wrong:
        s = s.ravel(order="F").reshape(s.shape)
    at = np.ix_(np.arange(len(q)) // rows, group)
    z = np.broadcast_to(z, s.shape)[at]
    z = -z if "zero points added" in wrong else z
    s = 1 / s[at] if "divided by the scale" in wrong else s[at]
    return ((q - z) * s).astype(np.float32)


def compressed_tensors(t, args, wrong):
    bits, z, s = args["num_bits"], 0, t["weight_scale"]
    if "weight_packed" not in t:
        q = t["weight"].astype(np.int64)
        q = e4m3(q, wrong) if args["type"] == "float" else q
    elif args["type"] == "float":
        q, s = fp4(t["weight_packed"], wrong), e8m0(s, wrong)
    else:
        q = fields(t["weight_packed"], bits, t["weight_shape"][1], wrong)
        assert len(q) == t["weight_shape"][0]
        z = 0 if "no offset" in wrong else 1 << bits - 1
    n, k = q.shape
    rows, columns = {"group": (1, args.get("group_size")), "channel": (1, k),
                     "tensor": (n, k), "block": args.get("block_structure")
                     }[args["strategy"]]
    s = s.reshape(-(-n // rows), -(-k // columns))
    if not args.get("symmetric", True):
        z = t["weight_zero_point"].astype(np.int64)
        if "zero points along in" in wrong:
            z = np.resize(fields(z, bits, z.shape[1] * 32 // bits), s.shape)
        elif "weight_packed" in t:
            z = fields(z.T, bits, n, wrong).T
            z = z + (1 << bits - 1) if "no offset" in wrong else z
    group = np.arange(k) // columns
    if args.get("actorder") == "group" and "g_idx ignored" not in wrong:
        group = t["weight_g_idx"]
    return numbers(q, z, s, rows, group, wrong)


def awq(t, c, wrong):
    def columns(w): # column 8 i + j: even j from the low 16 bits of word i
        j = np.arange(w.shape[1] * 8)
        at = (j % 8 if "AWQ's order ignored" in wrong else
              j % 2 * 4 + j % 8 // 2)
        at = 7 - at if "high bits first" in wrong else at
        return w[:, j // 8].astype(np.int64) >> 4 * at & 15
    q = columns(t["qweight"]).T
    size = c["group_size"] if c["group_size"] > 0 else q.shape[1]
    return numbers(q, columns(t["qzeros"]).T, t["scales"].T, 1,
                   np.arange(q.shape[1]) // size, wrong)


def gptq(t, c, wrong):
    bits, group = c["bits"], t["g_idx"]
    q = fields(t["qweight"].T, bits, len(group), wrong)
    z = fields(t["qzeros"], bits, len(q), wrong).T
    v1 = c.get("checkpoint_format", "gptq") == "gptq"
    if v1 != ("v1 and v2 exchanged" in wrong):
        z = z + 1
        if "a v1 zero point of 0 is 2^bits" not in wrong:
            z %= 2 ** bits
    if "g_idx ignored" in wrong:
        group = np.arange(len(group)) // c["group_size"]
    return numbers(q, z, t["scales"].T, 1, group, wrong)


def args_of(c, module):
    """compressed-tensors: a target by name or "re:" goes before a class."""
    found = None
    for group in c["config_groups"].values():
        for target in group["targets"]:
            if target == module or (target.startswith("re:") and
                                    re.match(target[3:], module)):
                return group["weights"]
            found = group["weights"] if target == "Linear" else found
    return found


def dequantize(t, c, module="", wrong=()):
    """A module's tensors by the quantization_config c -> f32 [out, in]"""
    if c["quant_method"] == "compressed-tensors":
        return compressed_tensors(t, args_of(c, module), wrong)
    if c["quant_method"] == "fp8":
        q, (rows, columns) = e4m3(t["weight"], wrong), c["weight_block_size"]
        return numbers(q, 0, t["weight_scale_inv"], rows,
                       np.arange(q.shape[1]) // columns, wrong)
    return {"awq": awq, "gptq": gptq}[c["quant_method"]](t, c, wrong)
