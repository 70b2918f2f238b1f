# SPDX-License-Identifier: ISC
"""A reader of GGUF after ggml's docs/gguf.md, for what bench-gguf.py wrote."""

import json
import struct

import numpy as np

WIDTH = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?",
         10: "Q", 11: "q", 12: "d"}


def widened(words):
    return (words.astype(np.uint32) << 16).view(np.float32)


class Gguf:
    """keys, and tensors as float32, all of whose bytes lie in order."""

    def __init__(self, path):
        self.data, self.at = open(path, "rb").read(), 0
        assert self.data[:4] == b"GGUF"
        self.at = 4
        version, n_tensors, n_keys = (self.number(c) for c in "IQQ")
        assert version == 3
        self.keys = {}
        for _ in range(n_keys):
            key, kind = self.text(), self.number("I")
            value = self.text() if kind == 8 else self.number(WIDTH[kind])
            assert key not in self.keys
            self.keys[key] = value
        infos = []
        for _ in range(n_tensors):
            name, n_dims = self.text(), self.number("I")
            shape = [self.number("Q") for _ in range(n_dims)][::-1]
            infos.append((name, shape, self.number("I"), self.number("Q")))
        align = self.keys.get("general.alignment", 32)
        base = (self.at + align - 1) // align * align
        self.types = {name: kind for name, _, kind, _ in infos}
        self.tensors, end = {}, 0
        for name, shape, kind, offset in infos:
            assert offset % align == 0 and 0 <= offset - end < align, name
            n = int(np.prod(shape))
            dtype = {0: "<f4", 1: "<f2", 30: "<u2"}[kind]
            x = np.frombuffer(self.data, dtype, n, base + offset)
            x = widened(x) if kind == 30 else x.astype(np.float32)
            self.tensors[name] = x.reshape(shape)
            end = offset + n * np.dtype(dtype).itemsize
        assert 0 <= len(self.data) - base - end < align

    def number(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()


def source(path):
    """A safetensors file's BF16 tensors as float32."""
    data = open(path, "rb").read()
    (n,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    out = {}
    for name, t in header.items():
        assert t["dtype"] == "BF16"
        begin, end = (8 + n + i for i in t["data_offsets"])
        x = widened(np.frombuffer(data[begin:end], "<u2"))
        out[name] = x.reshape(t["shape"])
    return out
