# SPDX-License-Identifier: ISC
"""pth_hostile.py DIR: files that must be refused.

DIR/hostile has a line for each: its name, a tab, what the message must say.
DIR/unread has those that open, but whose tensors cannot be read.
"""
import gzip
import io
import os
import pickle
import struct
import sys
import tarfile

import numpy as np

from pth_make import (MAGIC, Member, Storage, Tensor, archive, deflate, dumps,
                      legacy_bytes, members, zip_bytes)

dir = sys.argv[1]
cases = open(os.path.join(dir, "hostile"), "w")


def case(name, data, message):
    with open(os.path.join(dir, name), "wb") as f:
        f.write(data)
    cases.write("%s\t%s\n" % (name, message))


def pkl(name, data, message, storages={}, how=zip_bytes):
    case(name, how(members(data, storages)), message)


def tensors():
    s = Storage(np.arange(24, dtype="<f4"))
    return {"a": Tensor(s, 0, (4, 6), (6, 1))}


# Globals that could run code, however they are named or used.
RUN = "could run code"
for i, data in enumerate((
        b"\x80\x02cposix\nsystem\nU\x02ls\x85R.",
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x02}U\x01acsys\nmodules\ns.",
        b"\x80\x02cnt\nsystem\n0N.",
        b"\x80\x02csubprocess\nPopen\n)\x81.",
        b"\x80\x02c__builtin__\neval\n.",
        b"\x80\x02cbuiltins\nexec\n.",
        b"\x80\x03cbuiltins\ngetattr\n.",
        b"\x80\x03cbuiltins\n__import__\n.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93.",
        b"\x80\x04\x8c\x08builtins\x8c\x13list.__subclasses__\x93.",
        b"\x80\x02csix.moves.builtins\neval\n.",
        b"\x80\x02cos.path\njoin\n.",
        b"\x80\x02(cos\nsystem\nU\x02lso.",
        b"\x80\x02crunpy\nrun_module\n.")):
    pkl("global-%d" % i, data, RUN)
# And what is not on the list, whatever it may do.
for module, name in (("torch", "load"), ("types", "CodeType"), ("uuid", "_get_command_stdout"),
                     ("torch.storage", "_load_from_bytes"), ("pandas", "read_pickle"), ("mine", "Config"),
                     ("torch", "PaperStorage"), ("numpy", "load")):
    said = "global %s.%s is not one that weights need" % (module, name)
    pkl("other-%s-%s" % (module, name), b"\x80\2c%s\n%s\n0N." % (module.encode(), name.encode()), said)
    pkl("other-%s-%s-4" % (module, name), b"\x80\4\x8c%c%s\x8c%c%s\x930N." % (
        len(module), module.encode(), len(name), name.encode()), said)
pkl("global-offset", b"\x80\x02NNN000cposix\nsystem\n.",
    "data.pkl: byte 8: global posix.system could run code")
pkl("global-nul", b"\x80\x02ca\0b\nx\n.", "has a NUL")
pkl("global-long", b"\x80\x02cx\n" + b"a." * 501 + b"\n.",
    "a global's name of 1002 bytes (expected at most 1000)")

# Depth, cycles, bombs, and memo indices of 4 G.
N = 400000
DEEP = "nested deeper than 128"
pkl("deep-list", b"\x80\x02" + b"]" * N + b"a" * (N - 1) + b".", DEEP)
pkl("deep-tuple", b"\x80\x02N" + b"\x85" * N + b".", DEEP)
pkl("deep-dict", b"\x80\x02N" + (b"}U\x01k" * (N // 4)) + b"N" +
    b"s" * (N // 4) + b".", DEEP)
pkl("deep-mark", b"\x80\x02" + b"(" * N + b".", "STOP has nothing")
pkl("deep-mark-tuples", b"\x80\x02" + b"(" * N + b"t" * N + b".", DEEP)
pkl("deep-129", b"\x80\x02N" + b"\x85" * 129 + b".", DEEP)
pkl("cycle-list", b"\x80\x02]q\0h\0a.", DEEP)
pkl("cycle-dict", b"\x80\x02}q\0U\x01kh\0s.", DEEP)
pkl("cycle-tuple", b"\x80\x02]q\0h\0\x85a.", DEEP)
pkl("cycle-two", b"\x80\x02]q\0]q\1h\0ah\1e.", "APPENDS without a MARK")
pkl("bomb-memo", b"\x80\x02]q\0N\x85q\1" +
    b"".join(b"0h\1h\1\x86q\1" for i in range(60)) + b".", "more values than")
pkl("bomb-dup", b"\x80\x02N\x85" + b"2\x86" * 100 + b".", "more values than")
pkl("bomb-ids", b"\x80\x02N" + b"".join(
    b"r" + struct.pack("<I", i * 40503 * 65537 & 0xffffffff)
    for i in range(100000)) + b".", "need more than 40 MiB")
pkl("bomb-stack", b"\x80\x02" + b"N" * 7000000 + b".", "need more than 40 MiB")
pkl("bomb-marks", b"\x80\x02" + b"(" * 7000000 + b".", "need more than 40 MiB")
pkl("bomb-lists", b"\x80\x02" + b"]" * 2000000 + b".", "need more than 40 MiB")
pkl("bomb-copies", b"\x80\x02c__builtin__\nset\nq\0]q\1(" + b"N" * 50000 +
    b"e" + b"0h\0h\1\x85R" * 100000 + b".", "need more than 40 MiB")
pkl("memo-4g-unset", b"\x80\x02j\xff\xff\xff\xff.", "memo 4294967295 was never")
pkl("memo-unset", b"\x80\x02h\0.", "byte 2: memo 0 was never set")
pkl("memo-nothing", b"\x80\x02q\0.", "BINPUT has nothing on the stack")

# Broken pickles.
for name, data, message in (
        ("proto-0", b"(dp0\n.", "no pickle of protocol 2 to 5"),
        ("proto-1", b"\x80\x01N.", "protocol 1 (expected 2 to 5)"),
        ("proto-6", b"\x80\x06N.", "protocol 6 (expected 2 to 5)"),
        ("proto-again", b"\x80\x02\x80\x09N.", "protocol 9"),
        ("empty", b"", "no pickle"),
        ("no-stop", b"\x80\x02N", "the pickle is cut short: 1 byte missing"),
        ("stop-empty", b"\x80\x02.", "byte 2: STOP has nothing on the stack"),
        ("opcode", b"\x80\x02\xff.", "byte 2: opcode 0xff is unknown"),
        ("ext", b"\x80\x02\x82\x01.", "opcode 0x82 is not supported"),
        ("buffer", b"\x80\x05\x97.", "opcode 0x97 is not supported"),
        ("persid-text", b"\x80\x02Px\n.", "PERSID is an opcode of protocol 0"),
        ("string-text", b"\x80\x02S'a'\n.", "STRING is an opcode of protocol 0 "
         "(torch.load() and torch.save() write it anew)"),
        ("inst", b"\x80\x02(U\x02lsios\nsystem\n.",
         "INST is an opcode of protocol 0"),
        ("put-text", b"\x80\x02Np4\n.", "PUT is an opcode of protocol 0"),
        ("str-long", b"\x80\x02X\xff\xff\xff\x7fabc.",
         "2147483647 bytes are promised, but 4 are left"),
        ("str-8", b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
         "bytes are promised, but 2 are left"),
        ("bytes-8", b"\x80\x04\x8e\0\0\0\0\1\0\0\0a.", "bytes are promised"),
        ("long4", b"\x80\x02\x8b\xff\xff\xff\xff.", "bytes are promised"),
        ("frame", b"\x80\x04\x95\xff\0\0\0\0\0\0\0N.", "FRAME of 255 bytes"),
        ("line", b"\x80\x02I123", "a line without an end"),
        ("int", b"\x80\x02I12x\n.", "characters that are not digits"),
        ("int-64", b"\x80\x02I9223372036854775808\n.", "INT exceeds 64 bits"),
        ("pop", b"\x80\x020.", "POP has nothing"),
        ("append", b"\x80\x02]a.", "APPEND has nothing"),
        ("append-none", b"\x80\x02NNa.", "APPEND on what is not a list"),
        ("setitem-list", b"\x80\x02]NNs.", "SETITEM on what is not a dict"),
        ("odd", b"\x80\x02}(Nu.", "a key without a value"),
        ("odd-dict", b"\x80\x02(Nd.", "DICT with a key without a value"),
        ("mark", b"\x80\x02t.", "TUPLE without a MARK"),
        ("below-mark", b"\x80\x02N(\x85.", "TUPLE1 has nothing"),
        ("reduce", b"\x80\x02NNR.", "REDUCE with arguments that are not a tuple"),
        ("obj", b"\x80\x02(o.", "OBJ without a class"),
        ("stack-global", b"\x80\x04NN\x93.", "values that are not strings"),
        ("build", b"\x80\x02Nb.", "BUILD has nothing"),
        ("no-pairs", b"\x80\x02ccollections\nOrderedDict\n]Na\x85R.",
         "a dict is made of items that are not pairs"),
        ("persid", b"\x80\x02NQ.", "a persistent id is not"),
        ("persid-short", b"\x80\x02U\x07storage\x85Q.", "a persistent id")):
    pkl("pickle-" + name, data, message)

# Storages and tensors.
HEAD = b"(U\x07storagectorch\nFloatStorage\nU\x010U\x03cpu"


def rebuilt(storage, offset, shape, strides):
    args = b"".join(pickle.dumps(x, 2)[2:-1] for x in (offset, shape, strides))
    return (b"\x80\x02ctorch._utils\n_rebuild_tensor\n(" + storage + args +
            b"tR.")


def storage(n):
    return HEAD + pickle.dumps(n, 2)[2:-1] + b"tQ"


FOUR = {"0": Storage(np.zeros(4, "<f4"))}
for name, data, message in (
        ("class", b"\x80\x02" + HEAD.replace(b"FloatStorage", b"Size") + b"K\4tQ.",
         "storage class torch.Size is not known"),
        ("id", b"\x80\x02" + HEAD + b"NtQ.", "a storage's id is not"),
        ("negative", b"\x80\x02" + HEAD + b"J\xff\xff\xff\xfftQ.",
         "a storage's id is not"),
        ("overflow", b"\x80\x02" + storage(2**62) + b".", "overflows 63 bits"),
        ("larger", b"\x80\x02" + storage(5) + b".",
         "5 elements of 4 bytes, but its member has 16"),
        ("smaller", b"\x80\x02" + storage(3) + b".", "member has 16 bytes"),
        ("none", b"\x80\x02" + storage(4).replace(b"\x010", b"\x019") + b".",
         "storage 9 is not in the archive"),
        ("key", b"\x80\x02" + HEAD.replace(b"\x010", b"\x65" + b"0" * 101) +
         b"K\4tQ.", "a storage's key of 101 bytes"),
        ("view", b"\x80\x02" + HEAD + b"K\4U\x01vK\2K\3\x87tQ.",
         "a storage that is a part of another, as torch before 0.4"),
        ("no-storage", rebuilt(b"N", 0, (4,), (1,)), "a tensor without"),
        ("no-args", b"\x80\x02ctorch._utils\n_rebuild_tensor\n)R.",
         "a tensor without"),
        ("beyond", rebuilt(storage(4), 0, (5,), (1,)),
         "element 4 of a storage of 4"),
        ("offset", rebuilt(storage(4), 1, (4,), (1,)), "element 4 of"),
        ("offset-huge", rebuilt(storage(4), 2**63 - 1, (4,), (1,)),
         "element 9223372036854775810 of"),
        ("offset-long", rebuilt(storage(4), 2**64, (4,), (1,)), "offset is no"),
        ("offset-negative", rebuilt(storage(4), -1, (4,), (1,)),
         "offset is no"),
        ("stride", rebuilt(storage(4), 0, (2, 2), (3, 1)), "element 4 of"),
        ("stride-negative", rebuilt(storage(4), 3, (4,), (-1,)),
         "strides[0] is not a number >= 0"),
        ("stride-wraps", rebuilt(storage(4), 0, (2**32 + 1,), (2**32,)),
         "overflow 63 bits"),
        ("stride-sums", rebuilt(storage(4), 0, (2, 2, 2),
                                (2**63 - 1, 2**63 - 1, 2)), "overflow 63 bits"),
        ("shape-wraps", rebuilt(storage(4), 0, (2**32, 2**32, 2), (0, 0, 1)),
         "overflow 63 bits"),
        ("shape-bytes", rebuilt(storage(4), 0, (2**62,), (0,)),
         "overflow 63 bits"),
        ("shape-negative", rebuilt(storage(4), 0, (-4,), (1,)),
         "shape[0] is not a number >= 0"),
        ("shape-float", rebuilt(storage(4), 0, (4.0,), (1,)), "shape[0] is no"),
        ("shape-none", rebuilt(storage(4), 0, None, (1,)), "shape is not a tuple"),
        ("strides-count", rebuilt(storage(4), 0, (2, 2), (1,)),
         "2 dims with 1 strides"),
        ("dims", rebuilt(storage(4), 0, (1,) * 65, (1,) * 65), "65 dims"),
        ("parameter", b"\x80\x02ctorch._utils\n_rebuild_parameter\nN\x85R.",
         "a Parameter without a tensor")):
    pkl("tensor-" + name, data, message, FOUR)

# The archive.
DATA, STORAGES = dumps(tensors())
GOOD = members(DATA, STORAGES)


def changed(i, **over):
    m = members(DATA, STORAGES)
    old = m[i]
    m[i] = Member(over.pop("name", old.name.decode()), over.pop("data",
                  old.data), over.pop("method", 0), over.pop("crc", None),
                  **over)
    return m


whole = zip_bytes(GOOD)
case("zip-crc", zip_bytes(changed(0, crc=1)), "is damaged: its CRC is")
case("zip-crc-byteorder", zip_bytes(changed(1, crc=1)), "its CRC is")
case("zip-overlap", zip_bytes(changed(2, header=0)), "a member is in another")
case("zip-overlap-part", zip_bytes(changed(2, header=200)), "a member is in another")
case("zip-beyond", zip_bytes(changed(2, header=10**6)), "a member is in another")
case("zip-size", zip_bytes(changed(2, size=2**31, packed=2**31)),
     "a member is in another")
case("zip-stored", zip_bytes(changed(2, size=95)), "a stored member has two sizes")
case("zip-twice", zip_bytes(GOOD + [GOOD[2]]), "data/0 occurs twice")
case("zip-method", zip_bytes(changed(0, method=12)), "another way than by")
case("zip-encrypted", zip_bytes(changed(0, flags=1)), "is encrypted")
case("zip-local", zip_bytes(changed(0, local_name=b"archive/evil.pkl")),
     "a member has no header of its own")
case("zip-local-flags", zip_bytes(changed(0, local_flags=0)),
     "a member's two headers differ")
case("zip-local-method", zip_bytes(changed(0, method=8, local_method=0)),
     "a member's two headers differ")
case("zip-tail", whole + b"x", "what follows is not the end's comment")
case("zip-prefix", whole[:4] + whole, "the directory is not before its end")
case("zip-count", zip_bytes(GOOD, count=3), "the directory goes on here")
case("zip-count-more", zip_bytes(GOOD, count=5), "is damaged at byte")
case("zip-count-max", zip_bytes(GOOD, count=65535), "the directory is not before its end")
case("zip-count-64", zip_bytes(GOOD, zip64=True, count=2**40), "at most 131072")
case("zip-shift", zip_bytes(GOOD, shift=1), "the directory is not before its end")
case("zip-shift-64", zip_bytes(GOOD, zip64=True, shift=2**62), "the directory is not before its end")
case("zip-locator", zip_bytes(GOOD, zip64=True).replace(b"PK\6\6", b"PK\6\5"),
     "no zip64 end record is where it points")
case("zip-cut", whole[:-30], "without an end record")
case("zip-no-root", zip_bytes([Member("data.pkl", DATA)]), "no data.pkl")
case("zip-nothing", zip_bytes([]), "without members")
case("zip-deflate", zip_bytes(changed(0, method=8, bytes=b"\xff\xff")),
     "its bytes are not DEFLATE's")
case("zip-deflate-cut", zip_bytes(changed(0, method=8,
                                          bytes=deflate(DATA)[:-5])),
     "archive/data.pkl is damaged")
case("zip-deflate-more", zip_bytes(changed(0, method=8, size=len(DATA) - 1)),
     "unpacks to more than its size")
case("zip-deflate-less", zip_bytes(changed(0, method=8, size=len(DATA) + 1)),
     "unpacks to less than its size")
case("zip-deflate-behind", zip_bytes(changed(0, method=8,
                                             bytes=deflate(DATA) + b"x")),
     "unpacks to less than its size")
case("zip-bomb", zip_bytes(changed(0, method=8, size=2**28)),
     "cannot unpack to")
case("zip-bomb-pkl", zip_bytes(changed(
    0, method=8, data=b"\x80\x02" + b"N0" * 10000000 + b".")),
     "byte 20000002: STOP has nothing")
case("zip-pkl-size", zip_bytes(changed(0, size=2**28 + 1, method=8, bytes=bytes(2**28 // 1032 + 1))),
     "data.pkl has 268435457 bytes (expected at most 268435456)")

# What is something else.
case("big-endian", zip_bytes(members(DATA, STORAGES, byteorder=b"big")),
     "its byte order is big (expected little)")
case("byteorder-long", zip_bytes(members(DATA, STORAGES,
                                          byteorder=b"little" * 3)),
     'member byteorder has 18 bytes (expected 6, "little")')
case("big-endian-legacy", legacy_bytes(DATA, STORAGES, little=False),
     "its byte order is big (expected little)")
case("torchscript", zip_bytes(GOOD + [Member("archive/constants.pkl", b"x"),
                                      Member("archive/code/m.py", b"x")]),
     "is a TorchScript archive")
case("docx", zip_bytes([Member("word/document.xml", b"x")]), "no data.pkl")
f = io.BytesIO()
tarfile.open(fileobj=f, mode="w", format=tarfile.GNU_FORMAT).addfile(
    tarfile.TarInfo("storages"))
case("tar", f.getvalue(), "a tar archive")
case("gzip", gzip.compress(whole), "is gzip-compressed")
case("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
     "is a git-lfs pointer")
case("html", b"<!DOCTYPE html>\n<html></html>\n", "is an HTML page")
case("nothing", b"", "is empty (0 bytes)")
case("one", b"\x80", "is not a PyTorch checkpoint (found byte 0x80")
case("zeros", bytes(1000), "is nothing but zeros")
case("text", b"hello, this is text\n", "is a text file")
case("noise", b"\xfe\xdc" * 20, "is not a PyTorch checkpoint (found byte 0xfe")
case("plain-pickle", pickle.dumps({"a": 1}, 2), "its magic number is missing")

# The old stream.
LEGACY, OLD = dumps(tensors(), legacy=True)
for name, data, message in (
        ("magic", legacy_bytes(LEGACY, OLD, magic=MAGIC + 1), "magic number"),
        ("version", legacy_bytes(LEGACY, OLD, version=1000),
         "torch.save()'s protocol is 1000 (expected 1001)"),
        ("version-type", legacy_bytes(LEGACY, OLD, version="1001"),
         "torch.save()'s protocol is not an integer (expected 1001)"),
        ("global", legacy_bytes(b"\x80\x02cposix\nsystem\n.", {}), RUN),
        ("global-keys", legacy_bytes(LEGACY, {})[:-4] +
         b"\x80\x02cposix\nsystem\n.", RUN),
        ("missing", legacy_bytes(LEGACY, OLD, keys=[]), "0 is not in the file"),
        ("unknown", legacy_bytes(LEGACY, dict(OLD, x=OLD["0"])),
         "key 1 of the storages is not in the tree"),
        ("twice", legacy_bytes(LEGACY, OLD, keys=["0", "0"]), "occurs twice"),
        ("keys", legacy_bytes(LEGACY, {}, keys=None)[:-4] + b"\x80\x02N.",
         "keys are not a list"),
        ("key-type", legacy_bytes(LEGACY, {0: OLD["0"]}), "not in the tree")):
    case("legacy-" + name, data, message)
data = legacy_bytes(LEGACY, OLD)
for n, message in ((2**61, "has 2305843009213693952 elements of 4 bytes, but"),
                   (2**64 - 1, "has 18446744073709551615 elements"),
                   (25, "but 96 bytes are left"),
                   (23, "has 23 elements of 4 bytes (expected 24 of 4")):
    case("legacy-count-%d" % n, data[:-104] + struct.pack("<Q", n) + data[-96:],
         message)

# Storages are looked at when they are needed, not before.
cases.close()
cases = open(os.path.join(dir, "unread"), "w")
case("read-crc", zip_bytes(changed(2, crc=1)), "data/0 is damaged: its CRC is")
case("read-local", zip_bytes(changed(2, local_name=b"archive/data/1")),
     "a member has no header of its own")
case("read-local-encrypted", zip_bytes(changed(2, local_flags=9)),
     "a member's two headers differ")
case("read-local-method", zip_bytes(changed(2, local_method=8)),
     "a member's two headers differ")
case("read-method", zip_bytes(changed(2, method=12)), "another way than by")
case("read-encrypted", zip_bytes(changed(2, flags=1)), "is encrypted")
case("read-deflate", zip_bytes(changed(2, method=8, bytes=b"\xff")),
     "its bytes are not DEFLATE's")
case("read-more", zip_bytes(changed(2, method=8, bytes=deflate(bytes(97)))),
     "unpacks to more than its size")
case("read-less", zip_bytes(changed(2, method=8, bytes=deflate(bytes(95)))),
     "unpacks to less than its size")
case("read-crc-deflate", zip_bytes(changed(2, method=8, crc=1)),
     "data/0 is damaged: its CRC is")
huge = {"a": Tensor(Storage(np.zeros(2000000, "<f4")), 0, (1,), (1,))}
pkl_huge, storages = dumps(huge)
m = members(pkl_huge, storages, method=8)
m[2].crc = 1
case("read-crc-scratch", zip_bytes(m), "data/0 is damaged: its CRC is")
