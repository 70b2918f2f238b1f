# SPDX-License-Identifier: ISC
"""Random safetensors files, most of them broken, and what the rules say.

usage: safetensors_mutate.py SEED COUNT >records
Each record: u32 bytes of file, u32 bytes of dump (2^32 - 1: refused), both
little-endian, the file, the dump.
"""
import random
import struct
import sys

from safetensors_rules import BITS, Refused, check

WORDS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b"\t",
    b"\r", b"\x00", b"\x1f", b"\x7f", b"\x80", b"\xff", b"\xc0\xaf",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\xc3\xa9",
    b"\\u0041", b"\\u0000", b"\\ud800", b"\\ud83d\\ude00", b"\\udc00",
    b"\\x", b"\\u12", b"\\n", b"\\/", b"0", b"1", b"00", b"-0", b"1.0",
    b"1e0", b"-1", b".", b"e", b"18446744073709551615",
    b"18446744073709551616", b"9223372036854775808", b"NaN", b"Infinity",
    b"true", b"false", b"null", b"nul", b"{}", b"[]", b'""', b'"a":1,',
    b'"dtype":"F32",', b'"shape":[],', b'"data_offsets":[0,0],',
    b'"__metadata__":null,', b'"__metadata__":{"a":"b"},', b',"x":[1,{}]',
    b'"e":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},', b"//", b"'",
    b"[" * 120, b'{"a":' * 126, b"]" * 120, b"0" * 30,
]
NAMES = ["a", "b", "model.layers.0.w", "", "\u00e9", "\U0001f600", "x" * 70,
         "__metadata__", "nul\0", 'quo"te', "back\\slash", "tab\t", "dtype"]


def quoted(r, s):
    out = ""
    for c in s:
        if c in '"\\' or c < " " or r.random() < 0.05:
            for unit in struct.unpack(
                    ">%dH" % (len(c.encode("utf-16-be")) // 2),
                    c.encode("utf-16-be")):
                out += "\\u%04x" % unit
        else:
            out += c
    return '"' + out + '"'


def entry(r, dtype, shape, begin, end):
    fields = ['"dtype":"%s"' % dtype, '"shape":%s' % shape,
              '"data_offsets":[%d,%d]' % (begin, end)]
    if r.random() < 0.1:
        fields.append('"extra":%s' % r.choice(
            ["1", "-0.5e+3", '{"a":[1,2,{"b":null}]}', '"s"', "[true,false]"]))
    if r.random() < 0.3:
        r.shuffle(fields)
    return "{" + r.choice([",", ", ", ",\n"]).join(fields) + "}"


def near(r, n):
    return max(0, n + r.choice([-8, -1, 1, 8])) if r.random() < 0.02 else n


def valid(r):
    """A file that is valid, but for rare slips in its numbers."""
    members, at = [], 0
    names = r.sample(NAMES, r.randrange(6))
    for name in names:
        if name == "__metadata__":
            members.append('"__metadata__":' + r.choice(
                ["null", "{}", '{"format":"pt"}', '{"a":"b","c":"\\u00e9"}']))
            continue
        dtype = r.choice(list(BITS))
        shape = [r.choice([0, 1, 1, 2, 3, 4, 8])
                 for _ in range(r.choice([0, 1, 1, 2, 2, 3]))]
        n = 1
        for d in shape:
            n *= d
        nbytes = n * BITS[dtype] // 8
        begin = near(r, at)
        members.append(quoted(r, name) + ":" + entry(
            r, dtype, shape, begin, near(r, begin + nbytes)))
        at += nbytes
    r.shuffle(members)
    return ("{" + ",".join(members) + "}").encode(), at


def mutate(r, text):
    i = r.randrange(len(text) + 1)
    k = min(len(text), i + r.choice([0, 1, 1, 2, 5, 20]))
    return r.choice([
        lambda: text[:i] + r.choice(WORDS) + text[i:],
        lambda: text[:i] + r.choice(WORDS) + text[k:],
        lambda: text[:i] + text[k:],
        lambda: text[:k] + text[i:],
        lambda: text[:i] + bytes([r.randrange(256)]) + text[i + 1:],
    ])()


def build(r):
    text, nbytes = valid(r)
    for _ in range(r.choice([0, 0, 1, 1, 1, 2, 4])):
        text = mutate(r, text)
    if r.random() < 0.3:
        text += b" " * (-len(text) % 8)
    n = len(text)
    if r.random() < 0.03:
        n = r.choice([0, n - 1, n + 1, 2**63, 2**64 - 1, 100_000_001]) % 2**64
    file = struct.pack("<Q", n) + text + bytes(nbytes)
    if r.random() < 0.03:
        file = r.choice([file + b"\0", file[:-1], file[:r.randrange(9)]])
    return file


def main():
    r = random.Random(int(sys.argv[1]))
    for _ in range(int(sys.argv[2])):
        file = build(r)
        try:
            dump = check(file)
            sizes = struct.pack("<II", len(file), len(dump))
        except Refused:
            dump, sizes = b"", struct.pack("<II", len(file), 2**32 - 1)
        sys.stdout.buffer.write(sizes + file + dump)


main()
