# SPDX-License-Identifier: ISC
"""picture_cases.py DIR: pictures, and the RGB that Pillow finds in them.

DIR/cases has a line for each: its name.  DIR/NAME is the file, DIR/NAME.want
a line "WIDTH HEIGHT ORIENTATION GREY16", then its bytes in RGB, and
DIR/NAME.turned the same of ImageOps.exif_transpose() (where that differs).
DIR/refused has a line for each file that is broken: its name, a tab, the
reason.  Pillow writes no PNG of some kinds and no JPEG with some sampling, so
PNG is written here, and JPEG patched.
"""
import io
import os
import random
import struct
import sys
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps

dir = sys.argv[1]
cases = open(os.path.join(dir, "cases"), "w")
refusals = open(os.path.join(dir, "refused"), "w")
rng = np.random.default_rng(7)
warnings.simplefilter("ignore")


def put(name, data):
    with open(os.path.join(dir, name), "wb") as f:
        f.write(data)


def want(name, image, orientation, grey16):
    rgb = image if isinstance(image, np.ndarray) else np.asarray(image.convert("RGB"))
    head = b"%d %d %d %d\n" % (rgb.shape[1], rgb.shape[0], orientation, grey16)
    put(name, head + rgb.tobytes())


def case(name, data, grey=None, rgb=None):
    """grey: the picture's high bytes, where Pillow's are wrong; rgb: its
    pixels, where Pillow refuses it."""
    put(name, data)
    cases.write(name + "\n")
    if rgb is not None:
        want(name + ".want", rgb.astype(np.uint8), 1, False)
        return
    image = Image.open(io.BytesIO(data))
    image.load()
    try:
        o = image.getexif().get(0x0112)
    except (SyntaxError, struct.error):
        o = None
    o = int(o) if isinstance(o, int) and 1 <= o <= 8 else 1
    if grey is not None:
        image = np.repeat(grey[:, :, None], 3, axis=2)
    want(name + ".want", image, o, grey is not None)
    if o > 1:
        copy = Image.fromarray(np.asarray(image))  # whose EXIF can be written again
        copy.getexif()[0x0112] = o
        want(name + ".turned", ImageOps.exif_transpose(copy), 1, False)


def refused(name, data, why):
    put(name, data)
    refusals.write("%s\t%s\n" % (name, why))


# ---- PNG ----

def chunk(name, data=b"", crc=0):
    return (struct.pack(">I", len(data)) + name + data +
            struct.pack(">I", zlib.crc32(name + data) ^ crc))


def filtered(rows, bpp, filter):
    """The bytes of rows [height, nbytes], each by a filter: 5 is all in turn."""
    out = b""
    last = np.zeros(rows.shape[1], np.int32)
    for y, row in enumerate(rows.astype(np.int32)):
        left = np.concatenate([np.zeros(bpp, np.int32), row])[:len(row)]
        corner = np.concatenate([np.zeros(bpp, np.int32), last])[:len(row)]
        f = y % 5 if filter == 5 else filter
        p = left + last - corner
        a, b, c = abs(p - left), abs(p - last), abs(p - corner)
        paeth = np.where((a <= b) & (a <= c), left, np.where(b <= c, last, corner))
        by = [0, left, last, (left + last) // 2, paeth][f]
        out += bytes([f]) + ((row - by) & 255).astype(np.uint8).tobytes()
        last = row
    return out


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4),
         (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
MAGIC = b"\x89PNG\r\n\x1a\n"


def pixels(samples, depth, interlaced, filter):
    """What IDAT inflates to, of samples [height, width, channels]."""
    out = b""
    for x, y, dx, dy in ADAM7 if interlaced else [(0, 0, 1, 1)]:
        part = samples[y::dy, x::dx]
        if part.size == 0:
            continue
        h, n = part.shape[0], part.shape[1] * part.shape[2]
        if depth == 16:
            rows = part.astype(">u2").reshape(h, n).view(np.uint8)
        elif depth == 8:
            rows = part.astype(np.uint8).reshape(h, n)
        else:
            bits = (part.reshape(h, n)[:, :, None] >> np.arange(depth)[::-1]) & 1
            rows = np.packbits(bits.reshape(h, -1).astype(np.uint8), axis=1)
        out += filtered(rows, max(1, depth * samples.shape[2] // 8), filter)
    return out


def ihdr(width, height, depth, type, interlaced=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, type, 0, 0, interlaced))


def around(samples, depth, type, data, interlaced=0, before=b"", after=b""):
    """data: the IDAT chunks"""
    return (MAGIC + ihdr(samples.shape[1], samples.shape[0], depth, type, interlaced) +
            before + data + after + chunk(b"IEND"))


def png(samples, depth, type, interlaced=0, filter=5, before=b"", after=b"", idat=0, between=b""):
    """idat: bytes of each IDAT, 0 for one."""
    data = zlib.compress(pixels(samples, depth, interlaced, filter))
    step = idat or len(data)
    data = between.join(chunk(b"IDAT", data[i:i + step]) for i in range(0, len(data), step))
    return around(samples, depth, type, data, interlaced, before, after)


def samples(width, height, depth, type):
    shape = height, width, CHANNELS[type]
    return rng.integers(0, 1 << depth, shape, dtype=np.int64)


def palette(n):
    return chunk(b"PLTE", rng.integers(0, 256, 3 * n, dtype=np.uint8).tobytes())


KINDS = [(0, d) for d in (1, 2, 4, 8, 16)] + [(2, 8), (2, 16), (4, 8), (4, 16), (6, 8), (6, 16)]
KINDS += [(3, d) for d in (1, 2, 4, 8)]
SIZES = [(1, 1), (3, 2), (7, 9), (8, 8), (33, 17), (5, 64)]
for type, depth in KINDS:
    for interlaced in 0, 1:
        for i, (w, h) in enumerate(SIZES):
            s = samples(w, h, depth, type)
            case("png-%d-%d-%d-%dx%d" % (type, depth, interlaced, w, h),
                 png(s, depth, type, interlaced, i % 6,
                     before=palette(1 << depth) if type == 3 else b""),
                 (s[:, :, 0] >> 8).astype(np.uint8) if (type, depth) == (0, 16) else None)
grey16 = samples(6, 5, 16, 0)
case("png-trns-grey", png(samples(9, 9, 2, 0), 2, 0, before=chunk(b"tRNS", b"\0\2")))
case("png-trns-grey16", png(grey16, 16, 0, before=chunk(b"tRNS", b"\0\2")),
     (grey16[:, :, 0] >> 8).astype(np.uint8))
case("png-trns-rgb", png(samples(9, 9, 8, 2) % 2, 8, 2, before=chunk(b"tRNS", b"\0\1\0\1\0\0")))
case("png-trns-palette", png(samples(9, 9, 2, 3), 2, 3, 1, before=palette(4) + chunk(b"tRNS", b"\0\x80\xff")))
case("png-palette-short", png(samples(9, 9, 8, 3) % 5, 8, 3, before=palette(5)))
case("png-palette-suggested", png(samples(9, 9, 8, 2), 8, 2, before=palette(200)))
case("png-idat-many", png(samples(40, 40, 8, 6), 8, 6, idat=7))
case("png-idat-empty", png(samples(4, 4, 8, 2), 8, 2, before=chunk(b"IDAT")))
case("png-colours", png(samples(9, 9, 8, 2), 8, 2, before=chunk(b"gAMA", b"\0\0\0\1") +
                        chunk(b"sBIT", b"\1\1\1") + chunk(b"bKGD", bytes(6))))
case("png-behind", png(samples(4, 4, 8, 2), 8, 2) + b"behind" * 99)
case("png-text-after", png(samples(4, 4, 8, 2), 8, 2, after=chunk(b"tEXt", b"a\0b")))
case("png-profile-broken", png(samples(4, 4, 8, 2), 8, 2, before=chunk(b"iCCP", b"p\0\0" + b"x" * 9)))

small = samples(4, 4, 8, 2)
case("png-profile-bomb", png(small, 8, 2, before=chunk(b"iCCP", b"p\0\0" + zlib.compress(bytes(1 << 26)))),
     rgb=small)
case("png-text-bomb", png(small, 8, 2, before=chunk(b"zTXt", b"t\0\0" + zlib.compress(bytes(1 << 26)))),
     rgb=small)
case("png-text-crc", png(small, 8, 2, before=chunk(b"tEXt", b"t\0t", crc=1)), rgb=small)
case("png-text-crc-after", png(small, 8, 2, after=chunk(b"tEXt", b"t\0t", crc=1)), rgb=small)
case("png-text-long", png(small, 8, 2, before=chunk(b"tEXt", b"t\0" + bytes(9 << 20)),
                          after=chunk(b"tEXt", b"t\0" + bytes(9 << 20))), rgb=small)

inside = pixels(small, 8, 0, 0)
packed = zlib.compress(inside)
BAD = "broken PNG: "
refused("empty", b"", "it is empty")
refused("gif", b"GIF89a" + bytes(99), "neither a PNG nor a JPEG")
refused("png-magic", MAGIC, BAD + "the file ends too early")
refused("png-bomb", MAGIC + ihdr(60000, 60000, 8, 2) + chunk(b"IDAT", packed) + chunk(b"IEND"),
        "60000 x 60000 = 3600000000 pixels (at most 268435456: --max-pixels)")
for w, h in (65536, 1), (1, 65536), (2**31 - 1, 2**31 - 1):
    refused("png-wide-%d-%d" % (w, h), MAGIC + ihdr(w, h, 8, 2) + chunk(b"IDAT", packed) + chunk(b"IEND"),
            "%d x %d pixels (at most 65535 on a side)" % (w, h))
for w, h, depth, type in (0, 4, 8, 2), (4, 0, 8, 2), (4, 4, 4, 2), (4, 4, 16, 3), (4, 4, 8, 1):
    refused("png-header-%d-%d-%d-%d" % (w, h, depth, type), MAGIC + ihdr(w, h, depth, type) +
            palette(4) + chunk(b"IDAT", packed) + chunk(b"IEND"), BAD + "*")
refused("png-no-header", MAGIC + chunk(b"IDAT", packed) + chunk(b"IEND"), BAD + "*")
refused("png-palette-first", MAGIC + chunk(b"PLTE"), BAD + "*")
refused("png-no-palette", png(samples(4, 4, 8, 3), 8, 3), BAD + "*")
refused("png-palette-index", png(np.full((1, 9, 1), 5), 8, 3, before=palette(5)),
        BAD + "a pixel has colour 5 of a palette of 5")
refused("png-palette-bits", png(np.arange(8).reshape(2, 4, 1), 4, 3, 1, before=palette(7)),
        BAD + "a pixel has colour 7 of a palette of 7")
refused("png-chunk-bomb", MAGIC + ihdr(4, 4, 8, 2) + b"\x7e\0\0\0eXIf" + bytes(99),
        BAD + "the file ends too early")
refused("png-critical", png(small, 8, 2, before=chunk(b"ABCD")), BAD + "*")
refused("png-crc-header", png(small, 8, 2).replace(b"\x08\2\0\0\0", b"\x08\2\0\0\1", 1), BAD + "*")
refused("png-crc-palette", png(samples(4, 4, 1, 3), 1, 3, before=chunk(b"PLTE", bytes(6), crc=1)), BAD + "*")
refused("png-crc-pixels", around(small, 8, 2, chunk(b"IDAT", packed, crc=1)), BAD + "IDAT: CRC error")
refused("png-crc-end", png(small, 8, 2)[:-1] + b"\0", BAD + "IEND: CRC error")
refused("png-pixels-few", around(small, 8, 2, chunk(b"IDAT", zlib.compress(inside[:-1]))), BAD + "*")
refused("png-pixels-many", around(small, 8, 2, chunk(b"IDAT", zlib.compress(inside + b"x"))), BAD + "*")
refused("png-pixels-bomb", around(small, 8, 2, chunk(b"IDAT", zlib.compress(inside + bytes(1 << 26)))), BAD + "*")
# not inflated to its end, where the sum is wrong
packed_more = bytearray(zlib.compress(inside + bytes(1 << 25)))
packed_more[-1] ^= 1
refused("png-pixels-rest", around(small, 8, 2, chunk(b"IDAT", bytes(packed_more))),
        BAD + "IDAT: Too much image data")
refused("png-pixels-after", around(small, 8, 2, chunk(b"IDAT", packed + b"x")), BAD + "*")
refused("png-pixels-apart", png(small, 8, 2, idat=9, between=chunk(b"tEXt", b"a\0b")), BAD + "*")
refused("png-pixels-sum", around(small, 8, 2, chunk(b"IDAT", packed[:-1] + bytes([packed[-1] ^ 1]))), BAD + "*")
refused("png-filter", around(small, 8, 2, chunk(b"IDAT", zlib.compress(b"\5" + inside[1:]))), BAD + "*")

# ---- JPEG ----


def picture(width, height, channels):
    """A smooth picture with some noise, as bytes."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [np.sin(x / (5 + 2 * c) + c) + np.cos(y / (4 + c)) for c in range(channels)]
    p = 127 + 50 * np.stack(planes, 2) + rng.normal(0, 12, (height, width, channels))
    return np.clip(p, 0, 255).astype(np.uint8)


def jpeg(a, **options):
    f = io.BytesIO()
    mode = {1: "L", 3: "RGB", 4: "CMYK"}[a.shape[2]]
    Image.fromarray(a[:, :, 0] if mode == "L" else a, mode).save(f, "JPEG", **options)
    return f.getvalue()


def segments(data):
    """(marker, offset of its FF, end) up to the scan."""
    at = 2
    while True:
        end = at + 2 + struct.unpack(">H", data[at + 2:at + 4])[0]
        yield data[at + 1], at, end
        if data[at + 1] == 0xDA:
            return
        at = end


def frame(data, width=None, height=None, sampling=None, ids=None):
    """Patches the frame header."""
    data = bytearray(data)
    at = next(a for m, a, _ in segments(data) if m in (0xC0, 0xC1, 0xC2))
    if width:
        data[at + 5:at + 9] = struct.pack(">HH", height, width)
    if sampling:
        data[at + 11] = sampling
    if ids:
        scan = next(a for m, a, _ in segments(data) if m == 0xDA)
        for i, c in enumerate(ids):
            data[at + 10 + 3 * i] = data[scan + 5 + 2 * i] = c
    return bytes(data)


def without(data, *markers):
    keep, last = b"\xff\xd8", 0
    for m, a, end in segments(data):
        if m not in markers:
            keep += data[a:end]
        last = end
    return keep + data[last:]


def put_first(data, *parts, at=2):
    return data[:at] + b"".join(parts) + data[at:]


def segment(marker, data):
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(data) + 2) + data


def adobe(transform):
    return segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))


for w, h in (1, 1), (8, 8), (17, 9), (16, 31), (75, 50), (3, 100):
    for sub in 0, 1, 2:
        for progressive in False, True:
            case("jpeg-%d-%d-%dx%d" % (sub, progressive, w, h),
                 jpeg(picture(w, h, 3), subsampling=sub, progressive=progressive, quality=75 + 7 * sub))
    case("jpeg-grey-%dx%d" % (w, h), jpeg(picture(w, h, 1), progressive=w % 2 == 0))
    case("jpeg-cmyk-%dx%d" % (w, h), jpeg(picture(w, h, 4), progressive=w % 2 == 1))
for q in 1, 30, 100:
    case("jpeg-quality-%d" % q, jpeg(picture(40, 40, 3), quality=q, optimize=True))
case("jpeg-440", frame(jpeg(picture(64, 40, 3), subsampling=1), 32, 80, 0x12))
case("jpeg-440-odd", frame(jpeg(picture(64, 40, 3), subsampling=1), 27, 67, 0x12))
case("jpeg-411", frame(jpeg(picture(64, 48, 3), subsampling=2), 123, 23, 0x41))
case("jpeg-rgb-adobe", put_first(without(jpeg(picture(20, 20, 3), subsampling=0), 0xE0), adobe(0)))
case("jpeg-ycc-adobe", put_first(without(jpeg(picture(20, 20, 3)), 0xE0), adobe(1)))
case("jpeg-adobe-9", put_first(without(jpeg(picture(20, 20, 3)), 0xE0), adobe(9)))
case("jpeg-rgb-ids", frame(without(jpeg(picture(20, 20, 3), subsampling=0), 0xE0), ids=b"RGB"))
case("jpeg-ids", frame(without(jpeg(picture(20, 20, 3)), 0xE0), ids=b"\0\7\3"))
for transform in 0, 1, 2:
    case("jpeg-cmyk-adobe-%d" % transform,
         put_first(without(jpeg(picture(20, 20, 4)), 0xE0, 0xEE), adobe(transform)))
case("jpeg-cmyk-plain", without(jpeg(picture(20, 20, 4)), 0xE0, 0xEE))
case("jpeg-behind", jpeg(picture(20, 20, 3)) + b"\xff\xd8\xff behind")
case("jpeg-comments", put_first(jpeg(picture(20, 20, 3)), segment(0xFE, b"c" * 65533),
                                segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + b" " * 60000)))

# Strips of one row of blocks, each a JPEG, are parts between restart markers.
strips = [jpeg(picture(40, 16, 3), subsampling=2) for i in range(11)]
first, = (end for m, _, end in segments(strips[0]) if m == 0xDA)
start, = (a for m, a, _ in segments(strips[0]) if m == 0xDA)
case("jpeg-restart", frame(strips[0][:start] + segment(0xDD, b"\0\3") + strips[0][start:first] +
                           b"".join(s[first:-2] + bytes([0xFF, 0xD0 + i % 8]) for i, s in enumerate(strips))[:-2] +
                           b"\xff\xd9", 37, 170))



def scan(components, blocks, first=0, last=0):
    """A scan of n blocks, all zero: of the tables of blank(), a bit 0 for each."""
    bits = "0" * blocks + "1" * (-blocks % 8)
    return segment(0xDA, bytes([len(components)]) + b"".join(bytes([c, 0]) for c in components) +
                   bytes([first, last, 0])) + bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def blank(width, height, sampling, *scans, sof=0xC2, precision=8):
    """A grey JPEG; its tables have one code, 0: no difference, or the end of a block."""
    return (b"\xff\xd8" + segment(0xDB, bytes(1) + b"\1" * 64) +
            segment(sof, struct.pack(">BHHB", precision, height, width, len(sampling)) +
                    b"".join(bytes([i + 1, s, 0]) for i, s in enumerate(sampling))) +
            segment(0xC4, b"\0\1" + bytes(15) + b"\0") + segment(0xC4, b"\x10\1" + bytes(15) + b"\0") +
            b"".join(scans) + b"\xff\xd9")


# 4 x 2 blocks of the first component to one of the others, which cost little.
wide, dc, cb = (0x42, 0x11, 0x11), scan([1, 2, 3], 10), scan([2], 1, 1, 63)
case("jpeg-scans-500", blank(32, 16, wide, dc, cb * 499))
case("jpeg-work-100", blank(8, 8, [0x11], scan([1], 1), scan([1], 1, 1, 63) * 99))
case("jpeg-work-padded", blank(1, 1, wide, dc, cb * 400))
case("jpeg-garbage-in-header", put_first(jpeg(picture(9, 9, 3)), b"garbage", at=20))
body = jpeg(picture(9, 9, 3))
BAD = "broken JPEG: "
refused("jpeg-scans", blank(32, 16, wide, dc, cb * 500), BAD + "more than 500 scans")
refused("jpeg-work", blank(8, 8, [0x11], scan([1], 1), scan([1], 1, 1, 63) * 100),
        BAD + "101 scans go over more than 100 times its pixels")
refused("jpeg-bomb", blank(60000, 60000, [0x11], scan([1], 8000)),
        "60000 x 60000 = 3600000000 pixels (at most 268435456: --max-pixels)")
refused("jpeg-wide", blank(65535, 1, [0x11], scan([1], 8192)), BAD + "*")
refused("jpeg-low", blank(9, 0, [0x11], scan([1], 8192)), BAD + "*")
refused("jpeg-components", blank(8, 8, [0x11, 0x11], scan([1, 2], 2)), "JPEG of 2 components (expected 1, 3 or 4)")
refused("jpeg-12-bits", blank(8, 8, [0x11], scan([1], 1), precision=12), BAD + "*")
refused("jpeg-lossless", blank(8, 8, [0x11], scan([1], 64), sof=0xC3), BAD + "*")
refused("jpeg-no-end", body[:-2], BAD + "*")
refused("jpeg-half", body[:len(body) - 20] + b"\xff\xd9", BAD + "*")
refused("jpeg-garbage-in-scan", body[:-2] + b"garbage\xff\xd9", BAD + "*")
refused("jpeg-second-picture", body[:-2] + body[2:], BAD + "*")
refused("jpeg-app1", body[:20] + b"\xff\xe1\0\1" + body[20:], BAD + "*")
refused("jpeg-app1-cut", b"\xff\xd8\xff\xe1\xff", BAD + "*")

# ---- EXIF ----


def tiff(entries, order="<", head=None, at=8, more=b"", count=None):
    """entries: (tag, type, count, 4 bytes of the value)"""
    out = head or {"<": b"II*\0", ">": b"MM\0*"}[order]
    out += struct.pack(order + "I", at) + bytes(max(0, at - 8))
    out += struct.pack(order + "H", len(entries) if count is None else count)
    for tag, type, n, value in entries:
        out += struct.pack(order + "HHI", tag, type, n) + value
    return out + struct.pack(order + "I", 0) + more


def turned(o, order="<", type=3):
    value = struct.pack(order + {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 13: "I"}[type], o)
    return 0x0112, type, 1, value.ljust(4, b"\0")


# With a resolution before it Pillow reads EXIF as it is asked to, not on opening.
plain = jpeg(picture(13, 6, 3), dpi=(72, 72))
block = samples(6, 9, 8, 2)


def exif(name, data):
    case("jpeg-exif-" + name, put_first(plain, segment(0xE1, b"Exif\0\0" + data), at=20))
    case("png-exif-" + name, png(block, 8, 2, before=chunk(b"eXIf", data)))


for o in range(10):
    for order in "<>":
        exif("%d%s" % (o, "le" if order == "<" else "be"), tiff([turned(o, order)], order))
other = 0x010F, 2, 4, b"abc\0"
for type in 1, 4, 6, 8, 9, 13:
    exif("type-%d" % type, tiff([other, turned(6, ">", type)], ">"))
exif("twice", tiff([turned(6), other, turned(3)]))
exif("then-text", tiff([turned(6), (0x0112, 2, 2, b"3\0\0\0")]))
exif("two-values", tiff([(0x0112, 3, 2, b"\6\0\3\0")]))
exif("three-values", tiff([(0x0112, 3, 3, b"\x1a\0\0\0")], more=b"\6\0\3\0\4\0"))
exif("no-value", tiff([(0x0112, 3, 0, b"\6\0\0\0")]))
exif("unknown-type", tiff([(0x0112, 99, 1, b"\6\0\0\0")]))
exif("long8", tiff([(0x0112, 16, 1, b"\x1a\0\0\0")], more=b"\6" + bytes(7)))
exif("bad-before", tiff([(0x010F, 2, 400, b"\x1a\0\0\0"), turned(6)]))
exif("bad-after", tiff([turned(6), (0x010F, 2, 400, b"\x1a\0\0\0")]))
exif("count-high", tiff([turned(6)], count=50))
exif("count-0", tiff([turned(6)], count=0))
exif("far", tiff([turned(6)], at=100))
exif("swapped", tiff([turned(6)], head=b"II\0*"))
exif("big", tiff([turned(6)], head=b"II+\0"))
exif("big-mm", tiff([turned(6, ">")], ">", head=b"MM\0+"))
exif("other-head", tiff([turned(6)], head=b"IM*\0"))
exif("outside", tiff([turned(6)])[:4] + b"\xff\xff\xff\xff" + tiff([turned(6)])[8:])
whole = tiff([other, turned(6), other])
for n in range(len(whole)):
    exif("cut-%d" % n, whole[:n])
random.seed(5)
for i in range(80):
    data = bytearray(tiff([other, turned(random.randrange(10), "<", random.choice([1, 3, 4])),
                           (0x0100, 4, 2, b"\x26\0\0\0")], more=bytes(9)))
    for _ in range(random.randrange(1, 5)):
        data[random.randrange(len(data))] = random.choice([0, 1, 3, 4, 6, 18, 42, 255, random.randrange(256)])
    for order in data[:2], b"MM":
        exif("mutated-%d%s" % (i, "" if order == data[:2] else "-mm"), bytes(order + data[2:]))
case("jpeg-exif-two", put_first(plain, segment(0xE1, b"http://x\0"), segment(0xE1, b"Exif\0\0" + tiff([turned(6)])),
                                segment(0xE1, b"Exif\0\0" + tiff([turned(3)])), at=20))
case("jpeg-exif-unpadded", put_first(plain, segment(0xE1, b"Exif\0" + tiff([turned(6)])), at=20))
case("jpeg-exif-short", put_first(plain, segment(0xE1, b"Exif\0"), segment(0xE1, b"Exif\0\0" + tiff([turned(6)])), at=20))
case("png-exif-after", png(block, 8, 2, after=chunk(b"eXIf", tiff([turned(8)]))))
case("png-exif-padded", png(block, 8, 2, before=chunk(b"eXIf", b"Exif\0\0" + tiff([turned(8)]))))
