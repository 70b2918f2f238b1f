# SPDX-License-Identifier: ISC
"""KV-cache compressors in numpy: the .bin file and the forward pass, written
from the format's text.

    kvc_ref.py DIR    makes the cases of test/unit/kvc.c there
"""
import struct
import sys

import numpy as np

CODES = {"fp16": 0, "bf16": 1, "fp32": 2}


def to_bf16(x):
    """Nearest, ties to even; as u16."""
    u = np.ascontiguousarray(x, "<f4").view("<u4").astype("u8")
    r = (u + 0x7FFF + (u >> 16 & 1)) >> 16
    nan = (u & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, u >> 16 | 0x40, r).astype("<u2")


def encode(x, dtype):
    with np.errstate(over="ignore"):
        if dtype == "fp16":
            return np.asarray(x, "<f4").astype("<f2").tobytes()
    if dtype == "bf16":
        return to_bf16(np.asarray(x, "<f4")).tobytes()
    return np.asarray(x, "<f4").tobytes()


def header(layers, dtype="fp16", num_heads=0, head_dim=0, hidden=0, factor=0,
           min_seq_len=2, per_layer=12, metadata=0, magic=0x4B56434D, version=1,
           reserved=0):
    return struct.pack("<IIHHIIIIIIII", magic, version, CODES.get(dtype, dtype),
                       reserved, layers, num_heads, head_dim, hidden, factor,
                       min_seq_len, per_layer, metadata)


def block(w, b, dtype):
    rows, cols = w.shape
    out = struct.pack("<III", rows, cols, b is not None) + encode(w, dtype)
    return out if b is None else out + encode(b, dtype)


def random_mlps(rng, layers, prefixes, dk, factor, h0, h1, bias=True):
    """[layers][prefixes][3] of (W, b), in f32."""
    dims = [factor * dk, h0, h1, dk]
    return [[[(rng.standard_normal((dims[i + 1], dims[i])).astype("<f4") / dims[i] ** 0.5,
               rng.standard_normal(dims[i + 1]).astype("<f4") if bias else None)
              for i in range(3)] for _ in range(prefixes)] for _ in range(layers)]


def save(path, mlps, dk, factor, dtype="fp16", metadata=b"", **more):
    with open(path, "wb") as f:
        f.write(header(len(mlps), dtype, head_dim=dk, hidden=factor * dk,
                       factor=factor, per_layer=3 * len(mlps[0]),
                       metadata=len(metadata), **more) + metadata)
        for layer in mlps:
            for mlp in layer:
                for w, b in mlp:
                    f.write(block(w, b, dtype))


def f16(x):
    with np.errstate(over="ignore"):
        return x.astype("<f4").astype("<f2")


def decode(x, dtype):
    """What the numbers of a file are, read back."""
    if dtype == "bf16":
        return (to_bf16(x).astype("<u4") << 16).view("<f4")
    return f16(x).astype("<f4") if dtype == "fp16" else np.asarray(x, "<f4")


def linear(x, w, b, dtype):
    w = f16(decode(w, dtype)).astype("f8")
    y = x.astype("f8") @ w.T
    if b is not None:
        y = y + f16(decode(b, dtype)).astype("f8")
    return f16(y)


def compress(x, mlp, factor, dtype="fp16"):
    """[n, dk] f32 -> [n // factor + n % factor, dk] f32."""
    n, d = x.shape
    g = n // factor
    y = f16(x[:g * factor]).reshape(g, factor * d)
    for i, (w, b) in enumerate(mlp):
        y = linear(y, w, b, dtype)
        if i < 2:
            y = np.maximum(y, 0)
    return np.concatenate([y.astype("<f4"), x[g * factor:]])


def main(path):
    rng = np.random.default_rng(1)
    cases = [("fp16", 2, 4, 8, 5, 24, 12, True, 23),
             ("bf16", 1, 2, 6, 2, 7, 9, False, 9),
             ("fp32", 3, 2, 128, 5, 64, 33, True, 11),
             ("fp16", 1, 2, 1, 1, 1, 1, True, 4)]
    for i, (dtype, layers, prefixes, dk, factor, h0, h1, bias, n) in enumerate(cases):
        mlps = random_mlps(rng, layers, prefixes, dk, factor, h0, h1, bias)
        save(f"{path}/{i}.bin", mlps, dk, factor, dtype)
        x = rng.standard_normal((n, dk)).astype("<f4")
        x.tofile(f"{path}/{i}.x")
        np.concatenate([compress(x, mlp, factor, dtype)
                        for layer in mlps for mlp in layer]).tofile(f"{path}/{i}.y")


if __name__ == "__main__":
    main(sys.argv[1])
