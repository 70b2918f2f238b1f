# SPDX-License-Identifier: ISC
"""pyjson_corpus.py [--few] DIR: writes JSON texts and what Python makes of them into
DIR/corpus, for test/unit/pyjson.c.

Three lines a case: the text, then json.dumps(json.loads(text), sort_keys=True),
and with indent=4, or "!" where Python refuses the text.  Seeded: the same corpus every time;
--few has an eighth of what is drawn.
"""
import json
import random
import struct
import sys

rng = random.Random(20)
FEW = 8 if sys.argv[1] == "--few" else 1
out = []


def case(text):
    try:
        value = json.loads(text)
        want = json.dumps(value, sort_keys=True)
        indented = json.dumps(value, indent=4).replace("\n", "\x01")
    except (ValueError, RecursionError):
        want = indented = "!"
    assert "\n" not in text
    out.append(text + "\n" + want + "\n" + indented + "\n")


def from_bits(u):
    return struct.unpack("<d", struct.pack("<Q", u))[0]


def floats():
    """All classes: each power of two and ten with neighbours, random bits."""
    for e in range(-1074, 1024):
        v = 2.0 ** e
        u = struct.unpack("<Q", struct.pack("<d", v))[0]
        for k in (-1, 0, 1):
            yield from_bits(max(u + k, 0))
    for e in range(-330, 320):
        for m in ("1", "9.999999999999999", "5", "2.2250738585072014"):
            yield float(f"{m}e{e}")
    for i in range(60):
        yield float(2 ** i + 1)
        yield float(10 ** min(i, 22) - 1)
    for _ in range(45000 // FEW):
        yield from_bits(rng.getrandbits(64))
    for _ in range(10000 // FEW):
        yield rng.uniform(-1, 1) * 10 ** rng.randint(-6, 18)
    for _ in range(5000 // FEW):
        yield round(rng.uniform(-1000, 1000), rng.randint(0, 6))
    for _ in range(3000 // FEW):
        yield from_bits(rng.getrandbits(52))


def number_texts():
    for v in floats():
        yield repr(v).replace("inf", "Infinity").replace("nan", "NaN")
        yield "%.20e" % v if v == v and abs(v) != float("inf") else "NaN"
    for _ in range(5000 // FEW):
        yield str(rng.getrandbits(rng.choice((1, 8, 31, 63, 64, 65, 200, 900)))
                  * rng.choice((1, -1)))
    for t in ("-0", "-0.0", "0e0", "-0e-5", "1e400", "-1e400", "1e-400",
              "-1e-400", "1E5", "1E+5", "1e05", "0.1e1", "00", "01", "-", "+1",
              ".5", "5.", "1.e5", "1e", "1e+", "--1", "0x10", "1_000", "NaN",
              "-NaN", "Infinity", "-Infinity", "+Infinity", "inf", "nan",
              "9" * 4300, "9" * 4301, "-" + "9" * 4300, "1" * 4301 + ".0",
              "1.7976931348623157e308", "1.7976931348623159e308",
              "4.9e-324", "2.4e-324", "9007199254740993", "123456789012345678",
              "1e22", "1e23", "0.1", "0.30000000000000004"):
        yield t


ALPHABET = ['"', "\\", "/", "\b", "\f", "\n", "\r", "\t", "\x00", "\x1f",
            "\x7f", "\x80", "\xff", "a", "z", " ", "~", "\u0100", "\u2028",
            "\ud800", "\udbff", "\udc00", "\udfff", "\ufffe", "\uffff",
            "\U00010000", "\U0001f600", "\U0010ffff", "\u00e9", "e\u0301"]


def spell(c):
    """One character as JSON may spell it."""
    o = ord(c)
    short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n",
             "\r": "\\r", "\t": "\\t", "/": "\\/"}
    if o > 0xffff and rng.random() < 0.5:
        o -= 0x10000
        return "\\u%04x\\u%04X" % (0xd800 + (o >> 10), 0xdc00 + (o & 0x3ff))
    if o <= 0xffff and (0xd800 <= o < 0xe000 or rng.random() < 0.3):
        return "\\u%04x" % o
    if c in short and (o < 0x20 or c in '"\\' or rng.random() < 0.5):
        return short[c]
    return "\\u%04x" % o if o < 0x20 else c


def string_text():
    cs = "".join(rng.choice(ALPHABET) for _ in range(rng.randrange(7)))
    return '"' + "".join(spell(x) for c in cs for x in c) + '"'


def space():
    return rng.choice(("", "", "", " ", "\t", "\r", "  "))


NUMBERS = ["0", "-0", "-1.5", "1e5", "1e400", "NaN", "12345678901234567890123"]


def value_text(depth):
    k = rng.randrange(8 if depth else 5)
    if k == 0:
        return rng.choice(("null", "true", "false"))
    if k <= 2:
        return rng.choice(NUMBERS)
    if k <= 4:
        return string_text()
    n = rng.randrange(4)
    if k == 5:
        return "[" + ",".join(space() + value_text(depth - 1) + space()
                              for _ in range(n)) + space() + "]"
    keys = [string_text() for _ in range(n)]
    keys += rng.sample(keys, rng.randrange(len(keys) + 1))
    return "{" + ",".join(space() + key + space() + ":" + space()
                          + value_text(depth - 1) + space()
                          for key in keys) + "}"


def mutate(text):
    """One character dropped, doubled, or replaced: mostly refused."""
    i = rng.randrange(len(text))
    return rng.choice((text[:i] + text[i + 1:], text[:i] + text[i] + text[i:],
                       text[:i] + rng.choice('{}[],:"\\0e-.u \x01') + text[i + 1:],
                       text[:i]))


for t in number_texts():
    case(t)
for _ in range(20000 // FEW):
    case(space() + value_text(4) + space())
for _ in range(20000 // FEW):
    t = mutate(value_text(3))
    try:
        t.encode()
    except UnicodeEncodeError:
        continue
    case(t)
for t in ("", " ", "\ufeff1", "[1,]", '{"a":1,}', "{,}", "[,]", '{"a"}',
          "{1:2}", '"\\u12"', '"\\ud83d\\u"', '"\\ud83d\\ude"', '"\\x"', "nul",
          "truefalse", "[1 2]", "{'a':1}", '"\x7f"', '{"\\u0000":1,"":2}',
          '{"\\ud800":1,"\\uffff":2,"\U00010000":3,"\\ue000":4}', "[" * 64 +
          "]" * 64, '{"a":{"a":{"b":[{}],"a":[]}}}'):
    case(t)
with open(sys.argv[-1] + "/corpus", "wb") as f:
    f.write("".join(out).encode("utf-8"))
