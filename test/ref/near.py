# SPDX-License-Identifier: ISC
"""near.py LIMIT A B: are two outputs equal but for the last digits of numbers?

A and B are files or directories with the same names: .safetensors (equal headers),
.npy (equal shapes) or text (equal words).  Each float of B may be LIMIT times
the largest of A's tensor, or word, from that of A; all else must be equal.
"""
import os
import re
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
NUMBER = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?")


def tensors(path):
    """name -> array of floats, or bytes."""
    if path.endswith(".npy"):
        return {"": np.load(path)}
    if not path.endswith(".safetensors"):
        text = open(path, errors="surrogateescape").read()
        found = {"": NUMBER.sub("#", text).encode(errors="surrogateescape")}
        for i, word in enumerate(NUMBER.findall(text)):
            found[i] = np.float64(word).reshape(1)
        return found
    found = {}
    for name, (dtype, shape, data) in mkst.load(path).items():
        if dtype == "BF16":
            data = mkst.from_bf16(data).reshape(shape)
        elif dtype in FLOATS:
            data = np.frombuffer(data, FLOATS[dtype]).reshape(shape)
        found[name, dtype, tuple(shape)] = data
    return found


def far(a, b, limit):
    """Why not, or None."""
    if isinstance(a, bytes) or a.dtype.kind != "f":
        return None if np.array_equal(a, b) else "differs"
    if a.shape != b.shape or a.dtype != b.dtype:
        return "%s %s, not %s %s" % (b.dtype, b.shape, a.dtype, a.shape)
    a, b = a.astype("f8"), b.astype("f8")
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return "NaN and Inf differ"
    scale = np.abs(a[finite]).max(initial=0) or 1
    worst = np.abs(a[finite] - b[finite]).max(initial=0) / scale
    return None if worst <= limit else "%.3g of the largest apart" % worst


def compare(a, b, limit):
    if os.path.isdir(a):
        if sorted(os.listdir(a)) != sorted(os.listdir(b)):
            return ["%s: %s, not %s" % (a, os.listdir(b), os.listdir(a))]
        return sum((compare(os.path.join(a, n), os.path.join(b, n), limit)
                    for n in sorted(os.listdir(a))), [])
    x, y = tensors(a), tensors(b)
    if x.keys() != y.keys():
        return ["%s: other words or tensors" % a]
    why = ((n, far(x[n], y[n], limit)) for n in x)
    return ["%s: %s: %s" % (a, n, w) for n, w in why if w]


if __name__ == "__main__":
    wrong = compare(sys.argv[2], sys.argv[3], float(sys.argv[1]))
    print("\n".join(wrong), end="\n" if wrong else "")
    sys.exit(bool(wrong))
