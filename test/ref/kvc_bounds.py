# SPDX-License-Identifier: ISC
"""kvc_bounds.py CASE...: small checkpoints that ask for much, as CASE.pth.

Their pickles are written by hand.
"""
import pickle
import pickletools
import struct
import sys

import numpy as np

import kvc_ref
import mkst
from pth_make import Storage, members, zip_bytes

P4 = ["compress_tk", "compress_tv", "compress_ik", "compress_iv"]
REBUILD = b"ctorch._utils\n_rebuild_tensor\n"


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def value(v):
    return pickletools.optimize(pickle.dumps(v, 2))[2:-1]


def put(id):
    return b"r" + struct.pack("<I", id)


def get(id):
    return b"j" + struct.pack("<I", id)


def storage(key, n):
    return b"(U\x07storagectorch\nFloatStorage\n" + text(key) + b"U\x03cpu" + value(n) + b"tQ"


def tensor(key, n, shape, strides):
    return REBUILD + b"(" + storage(key, n) + value(0) + value(shape) + value(strides) + b"tR"


def state(weight, bias, layers):
    """All weights are one tensor, all biases another."""
    d = weight + put(0) + b"0" + bias + put(1) + b"0}("
    for layer in range(layers):
        for p in P4:
            for slot in 0, 3, 6:
                d += text("%s.%d.%d.weight" % (p, layer, slot)) + get(0)
                d += text("%s.%d.%d.bias" % (p, layer, slot)) + get(1)
    return d + b"u"


def save(name, pkl, sizes, method=8):
    """sizes: of the storages, which are zeros in f32, by key."""
    storages = {key: Storage(np.zeros(n, "<f4")) for key, n in sizes.items()}
    with open(name + ".pth", "wb") as f:
        f.write(zip_bytes(members(b"\x80\x02" + pkl + b".", storages, method), align=0))


def lazy():
    """100 000 tensors whose metadata is one dict of 500 000 keys: 3 KB."""
    meta = b"}" + put(2) + b"(" + b"NN" * 500000 + b"u0"
    args = b"(" + storage("0", 1) + b"K\0K\1\x85K\1\x85N}" + get(2) + b"t" + put(3)
    more = b"ctorch._utils\n_rebuild_tensor_v2\n" + put(4) + b"0" + (get(4) + get(3) + b"R0") * 100000
    one = tensor("0", 1, (1, 1), (1, 1)), tensor("0", 1, (1,), (1,))
    save("lazy", meta + args + b"0" + more + state(*one, 1), {"0": 1})


def turns():
    """40 layers whose weights lie in one storage of 16 MB and biases in another: 34 KB."""
    n = 4000000
    save("turns", state(tensor("0", n, (1, 1), (1, 1)), tensor("1", n, (1,), (1,)), 40), {"0": n, "1": n})


def turns_memory():
    """The same in 2 MB, which need no scratch."""
    n = 500000
    save("turns_memory", state(tensor("0", n, (1, 1), (1, 1)), tensor("1", n, (1,), (1,)), 200), {"0": n, "1": n})


def claims():
    """Two storages of 64 GB, says the directory, which 2 KB cannot unpack to."""
    n = 16 << 30
    s = {k: Storage(np.zeros(1, "<f4")) for k in "01"}
    pkl = b"\x80\2" + state(tensor("0", n, (1, 1), (1, 1)), tensor("1", n, (1,), (1,)), 2) + b"."
    m = members(pkl, s, 8)
    for x in m:
        if b"data/" in x.name:
            x.over["size"] = 4 * n
    with open("claims.pth", "wb") as f:
        f.write(zip_bytes(m, zip64=True, align=0))


def views():
    """Two f32, and the one after it one f32, viewed as 12 weights of 12 x 233016 and their biases: as f16,
    24 * 12 * 233017 = 67108896 bytes, which are 4 * 8 + 64 MiB."""
    for name, n in ("views_most", 2), ("views_more", 1):
        save(name, state(tensor("0", n, (12, 233016), (0, 0)), tensor("0", n, (12,), (0,)), 1), {"0": n}, 0)


def views_sum():
    """20 layers whose sum fills a disk, none of them alone: in f16 32 GB from 1.7 KB; and more than 2^64."""
    save("views_sum", state(tensor("0", 1, (8192, 8192), (0, 0)), tensor("0", 1, (8192,), (0,)), 20), {"0": 1})
    n = 2**30
    save("views_64", state(tensor("0", 1, (n, n), (0, 0)), tensor("0", 1, (n,), (0,)), 1), {"0": 1})


def names():
    """400 000 times one name of 60 KB, which has no end of zeros, and as many that are None: 6 KB."""
    more = text("compress_tk." + "0" * 60000) + put(2) + b"N" + (get(2) + b"N" + b"NN") * 400000 + b"u"
    one = tensor("0", 1, (1, 1), (1, 1)), tensor("0", 1, (1,), (1,))
    save("names", state(*one, 1)[:-1] + more, {"0": 1})


def blocks():
    """Blocks of one number, 14 bytes each, in 500 000 and in more than safetensors can name."""
    for name, layers in ("blocks", 41667), ("many", 130209):
        with open(name + ".bin", "wb") as f:
            f.write(kvc_ref.header(layers, head_dim=1, hidden=1, factor=1))
            f.write((struct.pack("<III", 1, 1, 0) + b"\0\0") * 12 * layers)


def prefixes():
    """Safetensors that name one MLP 16 times."""
    w = np.zeros((1024, 1024), "<f4")
    mkst.save("prefixes.safetensors", {"p.0.%d.weight" % s: w for s in (0, 3, 6)},
              {"kvc.prefix_order": ",".join(["p"] * 16)})
    mkst.save("long.safetensors", {"p.0.%d.weight" % s: w for s in (0, 3, 6)}, {"kvc.prefix_order": "p" * 257})


for case in sys.argv[1:]:
    globals()[case]()
