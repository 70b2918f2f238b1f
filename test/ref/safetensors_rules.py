# SPDX-License-Identifier: ISC
"""The rules of the safetensors format, as plainly as Python can say them.

Written from the format's text alone, to be compared with core/format/st.c:
Python's json module reads, explicit rules judge.  check(file) returns a dump
of the tensors, or raises Refused.
"""
import json
import struct

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
    "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}


class Refused(Exception):
    pass


def need(condition, why):
    if not condition:
        raise Refused(why)


class Number(str):
    """A number as it is written: 1, 1.0, 1e0 and -0 are four things."""


class Pairs(list):
    """An object's members, duplicates included."""


def no_constant(name):
    raise Refused(name + " is not JSON")


def depth_of(value):
    """Levels of nesting, without recursion; strings are checked on the way."""
    deepest, todo = 0, [(value, 1)]
    while todo:
        v, depth = todo.pop()
        if isinstance(v, Pairs):
            deepest = max(deepest, depth)
            for key, item in v:
                todo += [(key, depth + 1), (item, depth + 1)]
        elif isinstance(v, list):
            deepest = max(deepest, depth)
            todo += [(item, depth + 1) for item in v]
        elif isinstance(v, str):
            need(not any("\ud800" <= c <= "\udfff" for c in v), "surrogate")
    return deepest


def parse(text):
    try:
        root = json.loads(text.decode("utf-8", "strict"),
                          object_pairs_hook=Pairs, parse_int=Number,
                          parse_float=Number, parse_constant=no_constant)
    except (ValueError, RecursionError) as e:
        raise Refused(str(e)) from None
    need(depth_of(root) <= 128, "nested too deep")
    return root


def is_string(v):
    return isinstance(v, str) and not isinstance(v, Number)


def is_array(v):
    return isinstance(v, list) and not isinstance(v, Pairs)


def u64(v):
    need(isinstance(v, Number) and v.isascii() and v.isdigit(), "no integer")
    need(len(v) <= 20 and int(v) < 2**64, "over 64 bits")
    return int(v)


def unique(pairs, keys=None):
    names = [k for k, _ in pairs if keys is None or k in keys]
    need(len(names) == len(set(names)), "a name twice")
    return dict(pairs)


def tensor(name, entry):
    need(isinstance(entry, Pairs), "no object")
    fields = unique(entry, ("dtype", "shape", "data_offsets"))
    need({"dtype", "shape", "data_offsets"} <= set(fields), "a field missing")
    need(is_string(fields["dtype"]) and fields["dtype"] in BITS, "dtype")
    need(is_array(fields["shape"]), "shape")
    shape = [u64(d) for d in fields["shape"]]
    need(is_array(fields["data_offsets"]), "data_offsets")
    need(len(fields["data_offsets"]) == 2, "two data_offsets")
    begin, end = (u64(o) for o in fields["data_offsets"])
    n = 1
    for d in shape:
        n *= d
        need(n < 2**64, "the product overflows")
    bits = n * BITS[fields["dtype"]]
    need(bits < 2**64 and bits % 8 == 0, "bits")
    need(begin <= end and end - begin == bits // 8, "span")
    return name, fields["dtype"], shape, begin, end


def check(file):
    need(len(file) >= 8, "under 8 bytes")
    n = struct.unpack("<Q", file[:8])[0]
    need(n <= 100_000_000, "header length")
    need(8 + n <= len(file), "file too short")
    root = parse(file[8:8 + n])
    need(isinstance(root, Pairs), "no object")
    members = unique(root)
    meta = []
    if members.get("__metadata__", Ellipsis) not in (None, Ellipsis):
        need(isinstance(members["__metadata__"], Pairs), "__metadata__")
        meta = list(members["__metadata__"])
        unique(meta)
        need(all(is_string(v) for _, v in meta), "__metadata__ value")
    tensors = [tensor(k, v) for k, v in root if k != "__metadata__"]
    at = 0
    for t in sorted(tensors, key=lambda t: t[3:]):
        need(t[3] == at, "hole or overlap")
        at = t[4]
    need(8 + n + at == len(file), "file size")
    return dump(meta, tensors)


def dump(meta, tensors):
    """The same text that test/unit/st.c makes of what st.c has read."""
    out = b""
    for k, v in meta:
        out += b"meta %s = %s\n" % (k.encode(), v.encode())
    for name, dtype, shape, begin, end in tensors:
        out += b"%s %s %s %d+%d\n" % (
            name.encode(), dtype.encode(), str(shape).replace(" ", "").encode(),
            begin, end - begin)
    return out
