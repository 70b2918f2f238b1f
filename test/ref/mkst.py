# SPDX-License-Identifier: ISC
"""An independent safetensors writer, and numbers in the types numpy lacks."""

import json
import struct

import numpy as np

NAMES = {
    "|b1": "BOOL", "|u1": "U8", "|i1": "I8", "<u2": "U16", "<i2": "I16",
    "<f2": "F16", "<u4": "U32", "<i4": "I32", "<f4": "F32", "<u8": "U64",
    "<i8": "I64", "<f8": "F64", "<c8": "C64",
}
BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
    "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


def bf16(x):
    """Nearest bfloat16, ties to even, as ('BF16', shape, bytes)."""
    x = np.asarray(x, np.float32)
    u = x.view(np.uint32).astype(np.uint64)
    r = ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype("<u2")
    r = np.where(np.isnan(x), np.uint16(0x7FC0), r).astype("<u2")
    return ("BF16", list(x.shape), r.tobytes())


def from_bf16(data):
    """float64 values of bfloat16 bytes."""
    u = np.frombuffer(data, "<u2").astype(np.uint32) << 16
    return u.view(np.float32).astype(np.float64)


def entry(value):
    """An array, or (dtype, shape, bytes), as the latter."""
    if isinstance(value, tuple):
        return value
    a = np.asarray(value)
    return (NAMES[a.dtype.str], list(a.shape), a.tobytes())


def header(tensors, metadata=None):
    head, at = {}, 0
    if metadata is not None:
        head["__metadata__"] = metadata
    for name, value in tensors.items():
        dtype, shape, data = entry(value)
        head[name] = {"dtype": dtype, "shape": list(shape),
                      "data_offsets": [at, at + len(data)]}
        at += len(data)
    return head


def save_raw(path, head, data):
    """head: a dict or bytes, written as it is, sound or not."""
    if not isinstance(head, bytes):
        head = json.dumps(head, separators=(",", ":")).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + data)


def save(path, tensors, metadata=None):
    data = b"".join(entry(v)[2] for v in tensors.values())
    save_raw(path, header(tensors, metadata), data)


def load(path):
    """name -> (dtype, shape, bytes)"""
    return load_all(path)[0]


def load_all(path):
    """The same, and the metadata."""
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(n))
        data = f.read()
    meta = head.pop("__metadata__", {})
    return {k: (v["dtype"], v["shape"], data[slice(*v["data_offsets"])])
            for k, v in head.items()}, meta


def values(dtype, shape, data):
    """Bytes as an array: float64 of floats, integers as they are."""
    if dtype == "BF16":
        return from_bf16(data).reshape(shape)
    a = np.frombuffer(data, {v: k for k, v in NAMES.items()}[dtype])
    a = a.astype(np.float64) if a.dtype.kind == "f" else a
    return a.reshape(shape)


def read(path):
    """name -> array, and the metadata"""
    tensors, meta = load_all(path)
    return {k: values(*v) for k, v in tensors.items()}, meta
