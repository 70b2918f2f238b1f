# SPDX-License-Identifier: ISC
"""Checkpoints as torch.save() writes them, made without torch.

Tensor and Storage stand for torch's; dumps() pickles a tree of them, archive()
and legacy() put it into a file.  tree() says what must come out of that file,
in the notation of test/unit/pth.c; numpy resolves the strides.
Zip archives are written here byte by byte: zipfile fills in the local headers,
which torch leaves at 0.
"""
import collections
import io
import pickle
import pickletools
import struct
import sys
import types
import zlib

import numpy as np

# Storage class, torch.dtype, name in safetensors, numpy's type of its bits.
TYPES = [
    ("FloatStorage", "float32", "F32", "<f4"),
    ("HalfStorage", "float16", "F16", "<f2"),
    ("BFloat16Storage", "bfloat16", "BF16", "<u2"),
    ("DoubleStorage", "float64", "F64", "<f8"),
    ("LongStorage", "int64", "I64", "<i8"),
    ("IntStorage", "int32", "I32", "<i4"),
    ("ShortStorage", "int16", "I16", "<i2"),
    ("CharStorage", "int8", "I8", "i1"),
    ("ByteStorage", "uint8", "U8", "u1"),
    ("BoolStorage", "bool", "BOOL", "u1"),
    ("ComplexFloatStorage", "complex64", "C64", "<c8"),
    (None, "uint16", "U16", "<u2"),
    (None, "uint32", "U32", "<u4"),
    (None, "uint64", "U64", "<u8"),
    (None, "float8_e4m3fn", "F8_E4M3", "u1"),
    (None, "float8_e5m2", "F8_E5M2", "u1"),
    (None, "float8_e8m0fnu", "F8_E8M0", "u1"),
]
# Bits of a tensor that say that its storage holds other numbers.
OPAQUE_HOW = {"neg": "_rebuild_tensor_v2", "conj": "_rebuild_tensor_v2",
              "neg3": "_rebuild_tensor_v3"}
OPAQUE_TYPES = [("ComplexDoubleStorage", 16), ("QUInt8Storage", 1)]


def fake(module, name, base=object):
    """A class that pickle finds as module.name."""
    m = sys.modules.setdefault(module, types.ModuleType(module))
    c = type(name, (base,), {"__module__": module, "__qualname__": name})
    setattr(m, name, c)
    return c


STORAGES = {s: fake("torch", s) for s, *_ in TYPES if s}
STORAGES.update({s: fake("torch", s) for s, _ in OPAQUE_TYPES})
UNTYPED = fake("torch.storage", "UntypedStorage")
DTYPES = {d: fake("torch", d) for _, d, _, _ in TYPES}
V1, V2, V3, PARAMETER, PARAMETER_STATE = (
    fake("torch._utils", n) for n in (
        "_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3",
        "_rebuild_parameter", "_rebuild_parameter_with_state"))
FROM_TYPE = fake("torch._tensor", "_rebuild_from_type_v2")
SIZE = fake("torch", "Size")
SCALAR = fake("numpy.core.multiarray", "scalar")
NAMESPACE = fake("argparse", "Namespace")


class Storage:
    def __init__(self, array, cls="FloatStorage", key=None, numel=None):
        self.array, self.cls, self.key = array, cls, key
        self.numel = len(array) if numel is None else numel


class Tensor:
    def __init__(self, storage, offset, shape, strides, how="v2", name="F32",
                 dtype=None):
        self.storage, self.offset = storage, offset
        self.shape, self.strides = shape, strides
        self.how, self.name, self.dtype = how, name, dtype

    def array(self):
        a, size = self.storage.array, self.storage.array.itemsize
        return np.lib.stride_tricks.as_strided(
            a[self.offset:], self.shape, [s * size for s in self.strides])

    def reduce(self):
        args = (self.storage, self.offset, tuple(self.shape),
                tuple(self.strides))
        hooks = collections.OrderedDict()
        if self.how == "v1":
            return V1, args
        if self.how == "v3":
            return V3, args + (False, hooks, DTYPES[self.dtype], None)
        if self.how == "meta":
            return V2, args + (False, hooks, {"a": 1})
        if self.how in ("neg", "conj"):
            return V2, args + (False, hooks, {"a": 1, self.how: True})
        if self.how == "neg3":
            return V3, args + (False, hooks, DTYPES[self.dtype], {"neg": True})
        if self.how == "subclass":
            return FROM_TYPE, (V2, SIZE, args + (False, hooks), {"x": 1})
        return V2, args + (False, hooks)


class Wrap:
    """A Parameter, or another call around a tree."""

    def __init__(self, fn, args, inner=None, state=None):
        self.fn, self.args, self.inner, self.state = fn, args, inner, state


def parameter(t, state=False):
    hooks = collections.OrderedDict()
    if state:
        return Wrap(PARAMETER_STATE, (t, True, hooks, {"x": 1}), t)
    return Wrap(PARAMETER, (t, True, hooks), t)


class Pickler(pickle.Pickler):
    def __init__(self, f, protocol, storages):
        super().__init__(f, protocol)
        self.storages = storages

    def reducer_override(self, obj):
        if isinstance(obj, Tensor):
            return obj.reduce()
        if isinstance(obj, Wrap):
            return (obj.fn, obj.args) + ((obj.state,) if obj.state else ())
        return NotImplemented

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        if obj.key is None:
            obj.key = str(len(self.storages))
        self.storages[obj.key] = obj
        cls = UNTYPED if obj.cls == "UntypedStorage" else STORAGES[obj.cls]
        id = ("storage", cls, obj.key, "cpu", obj.numel)
        return id + (None,) if self.legacy else id


def dumps(tree, protocol=2, legacy=False):
    """The pickle, and the storages by key."""
    storages = {}
    f = io.BytesIO()
    p = Pickler(f, protocol, storages)
    p.legacy = legacy
    p.dump(tree)
    return f.getvalue(), storages


class Member:
    def __init__(self, name, data, method=0, crc=None, **over):
        self.name, self.data, self.method = name.encode(), data, method
        self.crc = zlib.crc32(data) if crc is None else crc
        self.over = over  # flags, size, packed, header, local_name, local_flags, ...


def deflate(data):
    c = zlib.compressobj(9, zlib.DEFLATED, -15)
    return c.compress(data) + c.flush()


def zip_bytes(members, zip64=False, align=64, comment=b"", tail=b"", count=None,
              shift=0):
    """An archive as miniz makes it for torch."""
    out, directory = b"", b""
    for m in members:
        packed = deflate(m.data) if m.method == 8 else m.data
        packed = m.over.get("bytes", packed)
        at = m.over.get("header", len(out))
        pad = -(len(out) + 30 + len(m.name) + 4) % align if align else 0
        extra = struct.pack("<HH", 0x4246, pad) + b"Z" * pad if align else b""
        local = m.over.get("local_name", m.name)
        flags = m.over.get("flags", 8)
        out += struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 0, m.over.get("local_flags", flags),
                           m.over.get("local_method", m.method), 0, 0, 0,
                           0, 0, len(local), len(extra)) + local + extra
        out += packed
        size = m.over.get("size", len(m.data))
        n = m.over.get("packed", len(packed))
        extra = b""
        if zip64:
            extra = struct.pack("<HHQQQ", 1, 24, size, n, at)
            size = n = at = 0xffffffff
        directory += struct.pack(
            "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0, 0, flags,
            m.method, 0, 0, m.crc, n, size, len(m.name), len(extra), 0, 0, 0, 0,
            at) + m.name + extra
    n = len(members) if count is None else count
    at = len(out) + shift
    end = b""
    if zip64:
        end = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, n, n,
                          len(directory), at)
        end += struct.pack("<4sIQI", b"PK\6\7", 0, len(out) + len(directory), 1)
        n, size, at = 0xffff, 0xffffffff, 0xffffffff
    else:
        size = len(directory)
    end += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, n, n, size, at,
                       len(comment)) + comment
    return out + directory + end + tail


def members(pkl, storages, method=0, crc=None, byteorder=b"little"):
    m = [Member("archive/data.pkl", pkl, method, crc)]
    if byteorder:
        m.append(Member("archive/byteorder", byteorder))
    for key, s in storages.items():
        m.append(Member("archive/data/" + key, s.array.tobytes(), method, crc))
    m.append(Member("archive/version", b"3\n"))
    return m


def archive(tree, protocol=2, method=0, crc=None, **how):
    pkl, storages = dumps(tree, protocol)
    return zip_bytes(members(pkl, storages, method, crc), **how)


def python2(pkl):
    """The pickle with Python 2's str, which are bytes, for all strings."""
    out, ops = b"", list(pickletools.genops(pkl))
    ends = [at for _, _, at in ops[1:]] + [len(pkl)]
    for (op, arg, at), end in zip(ops, ends):
        if op.name == "BINUNICODE":
            arg = arg.encode()
            out += (b"U" + bytes([len(arg)]) if len(arg) < 256 else
                    b"T" + struct.pack("<i", len(arg))) + arg
        else:
            out += pkl[at:end]
    return out


MAGIC = 0x1950a86a20f9469cfc6c


def legacy_bytes(pkl, storages, protocol=2, magic=MAGIC, version=1001,
                 little=True, keys=None, change=lambda pkl: pkl):
    info = dict(protocol_version=1001, little_endian=little,
                type_sizes=dict(short=2, int=4, long=4))
    if keys is None:
        keys = sorted(storages)
    out = b"".join(change(pickle.dumps(x, protocol))
                   for x in (magic, version, info))
    out += change(pkl) + change(pickle.dumps(keys, protocol))
    for k in keys:
        out += struct.pack("<q", storages[k].numel)
        out += storages[k].array.tobytes()
    return out


def legacy(tree, protocol=2, **how):
    return legacy_bytes(*dumps(tree, protocol, legacy=True), protocol, **how)


def tree(v, path=""):
    """What test/unit/pth.c must print."""
    head = (path or ".") + " "
    if isinstance(v, Wrap):
        if v.inner is not None:
            return tree(v.inner, path)
        return head + "OPAQUE %s.%s\n" % (v.fn.__module__, v.fn.__qualname__)
    if isinstance(v, Tensor) and v.how in OPAQUE_HOW:
        return head + "OPAQUE torch._utils.%s\n" % OPAQUE_HOW[v.how]
    if isinstance(v, Tensor) and v.storage.cls in dict(OPAQUE_TYPES):
        return head + "OPAQUE torch.%s\n" % v.storage.cls
    if isinstance(v, Tensor):
        return head + tensor(v.name, v.array())
    if isinstance(v, type):
        return head + "OPAQUE %s.%s\n" % (v.__module__, v.__qualname__)
    if isinstance(v, dict):
        return head + "DICT %d\n" % len(v) + "".join(
            tree(v[k], "%s.%s" % (path, k) if isinstance(k, (str, int))
                 else "%s[%d]" % (path, i)) for i, k in enumerate(v))
    if isinstance(v, (list, tuple, set, frozenset)):
        return head + "LIST %d\n" % len(v) + "".join(
            tree(x, "%s[%d]" % (path, i)) for i, x in enumerate(v))
    return head + plain(v) + "\n"


def plain(v):
    if v is None:
        return "NONE"
    if isinstance(v, bool):
        return "BOOL %d" % v
    if isinstance(v, int) and -2**63 <= v < 2**63:
        return "INT %d" % v
    if isinstance(v, float):
        return "FLOAT %016x" % struct.unpack("<Q", struct.pack("<d", v))
    if isinstance(v, str):
        return "STR " + v
    return "OPAQUE ."


def tensor(name, array):
    shape = "".join(" %d" % n for n in array.shape)
    return "TENSOR %s%s :%s\n" % (name, shape, array.tobytes().hex())
