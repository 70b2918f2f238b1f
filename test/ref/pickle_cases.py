# SPDX-License-Identifier: ISC
"""pickle_cases.py DIR: pickles, and what Python's pickle.loads() makes of them.

DIR/cases has a line for each: its name.  DIR/NAME is the pickle, DIR/NAME.want
the tree in the notation of pth_make.py.
"""
import os
import pickle
import pickletools
import random
import sys

from pth_make import tree

dir = sys.argv[1]
cases = open(os.path.join(dir, "cases"), "w")
rng = random.Random(11)


def case(name, data):
    with open(os.path.join(dir, name), "wb") as f:
        f.write(data)
    with open(os.path.join(dir, name + ".want"), "w") as f:
        f.write(tree(pickle.loads(data, encoding="utf-8")))
    cases.write(name + "\n")


def value(depth):
    kind = rng.randrange(12 if depth else 7)
    if kind < 2:
        return rng.choice([0, 1, -1, 2, 255, 256, 65535, 65536, -129, 2**31,
                           -2**31 - 1, 2**63 - 1, -2**63, 2**63, 10**40])
    if kind == 2:
        return rng.choice([0.0, -0.0, 1e308, -1.5, 5e-324, float("inf")])
    if kind == 3:
        return rng.choice([None, True, False])
    if kind < 7:
        return rng.choice("abcd") * rng.choice([0, 1, 7, 255, 256, 300])
    n = rng.randrange(6)
    if kind < 9:
        return [value(depth - 1) for _ in range(n)]
    if kind == 9:
        return tuple(value(depth - 1) for _ in range(n))
    return {rng.choice([rng.randrange(50), "k%d" % rng.randrange(50)]):
            value(depth - 1) for _ in range(n)}


for protocol in (2, 3, 4, 5):
    for i in range(25):
        data = pickle.dumps(value(5), protocol)
        case("random-%d-%d" % (protocol, i), data)
        case("optimized-%d-%d" % (protocol, i), pickletools.optimize(data))

# Opcodes that Python 3 reads, but writes no more.
for i, data in enumerate((
        b"I0\n.", b"I-12\n.", b"I00\n.", b"I01\n.", b"I9223372036854775807\n.",
        b"I-9223372036854775808\n.", 
        b"U\3abc.", b"T\3\0\0\0abc.", b"(lI1\naI2\na.", b"(I1\nI2\nl.",
        b"(U\1aI1\nd.", b"(U\1aI1\nU\1bI2\nd.", b"(I1\nI2\nt.", b"(t.",
        b"]q\7h\x070.", b"N0K\1.", b"K\x012\x86.", b"(K\1K\x021K\3.",
        b"((K\1t(K\2tl.", b"(0K\1.", b"K\1q\xff0h\xff.",
        b"K\1r\0\0\0\x010j\0\0\0\1.", b"\x8b\2\0\0\0\xff\x7f.",
        # longer than they need to be, up to 2^63 - 1 and from -2^63 on
        b"\x8a\x09\5" + bytes(8) + b".", b"\x8a\x09\xfb" + b"\xff" * 8 + b".",
        b"\x8a\xff\x80" + bytes(254) + b".", b"\x8b\0\4\0\0" + bytes(1024) + b".",
        b"\x8a\x09" + bytes(7) + b"\x80\xff.", b"\x8a\x09" + bytes(7) + b"\x80\0.",
        b"\x8a\x0a" + b"\xff" * 7 + b"\x7f\0\0.", b"\x8a\2\0\0.",
        b"}\x8a\x09\1" + bytes(8) + b"K\2sK\1K\3s.",
        b"\x8a\0.", b"\x8a\1\x80.", b"\x8a\x08\0\0\0\0\0\0\0\x80.",
        b"M\xff\xff.", b"J\0\0\0\x80.", b"X\2\0\0\0\xc3\xa9.",
        b"\x8d\1\0\0\0\0\0\0\0a.", b"\x8f(K\1\x90.", b"(K\1\x91.",
        b"K\1\x94K\2\x94h\0h\1\x87.", b"\x95\2\0\0\0\0\0\0\0N..",
        b"}(K\1K\2K\1K\3u.", b"}K\1K\2sK\3K\4s.", b"](K\1K\2eK\3a.")):
    case("text-%d" % i, b"\x80\x05" + data)
