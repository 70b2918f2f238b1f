# SPDX-License-Identifier: ISC
"""pth_cases.py DIR: checkpoints that are read, and what is in them.

DIR/cases has a line for each: its name.  DIR/NAME is the file, DIR/NAME.want
the tree that must come out of it (see pth_make.py).
"""
import collections
import os
import sys

import numpy as np

from pth_make import (DTYPES, NAMESPACE, OPAQUE_TYPES, SCALAR, SIZE, TYPES,
                      Storage, Tensor, Wrap, archive, legacy, members,
                      parameter, python2, tree, zip_bytes)

dir = sys.argv[1]
cases = open(os.path.join(dir, "cases"), "w")
rng = np.random.default_rng(5)


def case(name, value, data):
    with open(os.path.join(dir, name), "wb") as f:
        f.write(data)
    with open(os.path.join(dir, name + ".want"), "w") as f:
        f.write(tree(value))
    cases.write(name + "\n")


def both(name, value, protocols=(2,)):
    for p in protocols:
        v = value()
        case("%s-%d" % (name, p), v, archive(v, p))
        case("%s-%d-legacy" % (name, p), v, legacy(v, p))


def bits(n, descr):
    return np.frombuffer(rng.bytes(n * np.dtype(descr).itemsize), descr)


def dtypes():
    d = {}
    for cls, dtype, name, descr in TYPES:
        a = bits(6, descr)
        s = Storage(a, cls or "UntypedStorage", numel=None if cls else a.nbytes)
        d[dtype] = Tensor(s, 0, (2, 3), (3, 1), "v2" if cls else "v3", name,
                          dtype)
    return d


def typed():
    return {d: t for d, t in dtypes().items() if t.how == "v2"}


def views():
    s = Storage(np.arange(24, dtype="<f4"))
    h = Storage(np.arange(10, dtype="<f2"), "HalfStorage")
    return {
        "whole": Tensor(s, 0, (4, 6), (6, 1)),
        "transposed": Tensor(s, 0, (6, 4), (1, 6)),
        "stepped": Tensor(s, 1, (4, 3), (6, 2)),
        "rows": Tensor(s, 6, (2, 6), (12, 1)),
        "block": Tensor(s, 7, (2, 3), (6, 1)),
        "expanded": Tensor(s, 3, (3, 2, 4), (0, 6, 0)),
        "all equal": Tensor(s, 23, (5, 5), (0, 0)),
        "last": Tensor(s, 23, (1,), (1,)),
        "scalar": Tensor(s, 11, (), ()),
        "empty": Tensor(s, 0, (0, 3), (3, 1)),
        "empty within": Tensor(s, 24, (2, 0, 3), (3, 3, 1)),
        "ones": Tensor(s, 2, (1, 4, 1), (99, 5, 77)),
        "permuted": Tensor(s, 0, (3, 2, 4), (1, 12, 3)),
        "overlapping": Tensor(s, 0, (6, 4), (2, 1)),
        "half": Tensor(h, 1, (3, 3), (3, 1), name="F16"),
        "half stepped": Tensor(h, 0, (5,), (2,), name="F16"),
    }


def how():
    s = Storage(np.arange(4, dtype="<f4"))
    return {h: Tensor(s, 0, (2, 2), (2, 1), h, "F32", "float32")
            for h in ("v1", "v2", "v3", "meta", "subclass", "neg", "conj",
                      "neg3")}


def checkpoint():
    s = [Storage(np.arange(i, i + 6, dtype="<f4")) for i in range(4)]
    state = collections.OrderedDict(
        ("l.%d.weight" % i, Tensor(s[i], 0, (2, 3), (3, 1))) for i in range(4))
    state["p"] = parameter(Tensor(s[0], 1, (2,), (1,)))
    state["q"] = parameter(Tensor(s[1], 1, (2,), (2,)), state=True)
    return {
        "epoch": 3,
        "model_state_dict": {"compressor": state},
        "optimizer_state_dict": {
            "state": {0: {"step": 10, "exp_avg": state["l.0.weight"]}},
            "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.999),
                              "params": [0, 1]}]},
        "loss": Wrap(SCALAR, (DTYPES["float64"], b"\0" * 8)),
        "args": Wrap(NAMESPACE, (), state={"lr": 1, "nested": {"a": [1]}}),
    }


def plain():
    long = {"k%d" % i: i for i in range(2500)}
    return {
        "none": None, "true": True, "false": False, "ints": [0, 1, 255, 256,
        65535, 65536, -1, 2**31 - 1, -2**31, 2**31, 2**62, -2**63, 2**63 - 1],
        "huge": 2**80, "floats": [0.0, -0.0, 1.5, float("inf"), float("nan")],
        "empty": "", "str": "\u00e9\u4e16\U0001f600", "long": "x" * 300,
        "tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)),
        "set": {7}, "frozen": frozenset([8]), "dict": {}, "list": [],
        "ordered": collections.OrderedDict([("z", 1), ("a", 2)]),
        "default": collections.defaultdict(list, {"d": [1]}),
        "size": Wrap(SIZE, ((2, 3),), [2, 3]), "many": long,
        1: "int key", -5: "another", (1, 2): "tuple key", "class": SIZE,
    }


def nameless():
    return {name: Tensor(Storage(np.zeros(2 * size, "u1"), name, numel=2), 0,
                         (2,), (1,)) for name, size in OPAQUE_TYPES}


both("dtypes", dtypes, (2, 5))
both("typed", typed)
both("views", views, (2, 4))
both("how", how)
both("checkpoint", checkpoint, (2, 3, 4, 5))
both("plain", plain, (2, 3, 4, 5))
both("nameless-dtypes", nameless)
both("bytes", lambda: [b"ab", bytearray(b"cd")], (5,))
both("root-none", lambda: None)
both("root-tensor", lambda: views()["stepped"])

value = checkpoint()
case("deflated", value, archive(value, method=8))
case("deflated-views", views(), archive(views(), method=8))
case("crc0", value, archive(value, crc=0))
case("zip64", value, archive(value, zip64=True))
case("unaligned", value, archive(value, align=0))
case("comment", value, archive(value, comment=b"a comment"))
big = {"t": Tensor(Storage(np.arange(1500000, dtype="<f4")), 1499990, (3, 3),
                   (1, 3))}
case("deflated-scratch", big, archive(big, method=8))
# Three storages, two tensors in each but the last, one storage after the other.
flat = [Storage(np.repeat(np.arange(i, i + 50, dtype="<f4"), 20000)) for i in range(3)]
big = {"%d%d" % (k, i): Tensor(s, k * 999990, (3, 3), (1, 3)) for k in range(2) for i, s in enumerate(flat[:3 - k])}
case("deflated-shared", big, archive(big, method=8))
# Memo ids of 4 G, and a tree as deep as may be.
case("memo-4g", [7, 7], zip_bytes(members(
    b"\x80\x02]K\x07r\xff\xff\xff\xffaj\xff\xff\xff\xffa.", {})))
deep = None
for i in range(128):
    deep = (deep,)
case("deep-128", deep, archive(deep))
# Of equal keys the first stays, with the last one's item.
case("equal-keys", {"b": 3, "a": 2, "c": 4}, zip_bytes(members(
    b"\x80\x02}(U\1bK\1U\1aK\2X\1\0\0\0bK\3U\1cK\4u.", {})))
value = checkpoint()
case("python-2", value, legacy(value, change=python2))
case("python-2-plain", plain(), legacy(plain(), change=python2))
