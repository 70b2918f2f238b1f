# SPDX-License-Identifier: ISC
"""source_cases.py DIR: sources of images, and what Python finds in them.

DIR/cases has a line for each: its name.  DIR/NAME is the source,
DIR/NAME.want a line for each image: path, class, label and bytes in hex, with
tabs between.  Directories are walked as torchvision's ImageFolder does
(find_classes() and make_dataset() of datasets/folder.py, 0.14); archives are
tarfile's, which reads them, too, and the labels are webdataset's.
"""
import io
import os
import re
import sys
import tarfile

top = sys.argv[1]
cases = open(os.path.join(top, "cases"), "w")
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif",
              ".tiff", ".webp")


def case(name, rows):
    with open(os.path.join(top, name + ".want"), "wb") as f:
        for path, cls, label, data in rows:
            f.write(os.fsencode(path) + b"\t" + os.fsencode(cls) +
                    b"\t%d\t" % label + data.hex().encode() + b"\n")
    cases.write(name + "\n")


def image_folder(root):
    """Files directly in root first, which torchvision does not look at."""
    rows = [(os.path.join(root, n), "", -1) for n in sorted(os.listdir(root))
            if n.lower().endswith(EXTENSIONS)
            and not os.path.isdir(os.path.join(root, n))]
    classes = sorted(e.name for e in os.scandir(root) if e.is_dir())
    label = 0
    for c in classes:
        found = []
        for d, _, names in sorted(os.walk(os.path.join(root, c),
                                          followlinks=True)):
            for n in sorted(names):
                if n.lower().endswith(EXTENSIONS):
                    found.append((os.path.join(d, n), c, label))
        label += len(found) > 0
        rows += found
    return [(p, c, k, open(p, "rb").read()) for p, c, k in rows]


def tree(name, files, links=()):
    root = os.path.join(top, name)
    os.mkdir(root)
    for f in files:
        path = os.path.join(root, f)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(f.encode())
    for link, to in links:
        os.symlink(to, os.path.join(root, link))
    case(name, image_folder(root))


tree("one-class", ["a/1.png"])
tree("order", ["a-b/1.png", "a/z.png", "a/b/1.png", "a/b-c/1.png", "A/x.PNG",
               "a/b/c/1.jpeg", "a.b/q.Jpg", "b/2.png", "b/10.png", "b/1.webp",
               "b/notes.txt", "b/x.png.txt", "b/.hidden.tiff", "b/.bmp",
               "none/readme", "none/x/y", "z/é.png", "z/z.pgm", "z/tab\t.ppm",
               "z/new\nline.tif"])
tree("direct", ["2.png", "10.png", "b/1.png", "a/1.png"])
tree("links", ["a/1.png", "a/c/2.png", "other/3.png"],
     [("b", "a"), ("a/z", "../other"), ("a/4.png", "1.png")])
tree("hash", ["2/a.png", "c/b.png"])
os.mkdir(os.path.join(top, "named"))
for n in ("one-class", "direct"):
    os.rename(os.path.join(top, n), os.path.join(top, "named", n + ".png"))
    os.symlink(os.path.join("named", n + ".png"), os.path.join(top, n))
case("named", image_folder(os.path.join(top, "named")))

# A list: empty lines count for nothing, the last needs no end.
paths = [r[0] for r in image_folder(os.path.join(top, "order"))]
plain = [p for p in paths if "\n" not in p]
for name, text in (("list", "\n".join(plain) + "\n"),
                   ("list-end", "\n\n" + "\n\n".join(plain[:3] * 2))):
    with open(os.path.join(top, name), "w") as f:
        f.write(text)
    case(name, [(p, "", -1, open(p, "rb").read())
                for p in text.split("\n") if p])

# One picture, which is known by how it begins.
for name, data in (("picture", b"\x89PNG\r\n\x1a\n" + bytes(5000)),
                   ("photo.txt", b"\xff\xd8\xff\xe0" + bytes(100))):
    path = os.path.join(top, name)
    with open(path, "wb") as f:
        f.write(data)
    case(name, [(path, "", -1, data)])


def webdataset(data):
    """Names as base_plus_ext() of webdataset 0.2 cuts them."""
    groups = []
    with tarfile.open(fileobj=io.BytesIO(data)) as t:
        for m in t:
            cut = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", m.name, re.S)
            if not m.isreg() or not cut:
                continue
            key, ext = cut.groups()
            if not groups or groups[-1][0] != key:
                groups.append((key, [], [-1]))
            if ext == "cls":
                groups[-1][2][0] = int(t.extractfile(m).read())
            elif ext.lower().endswith(("png", "jpg", "jpeg")):
                groups[-1][1].append((m.name, t.extractfile(m).read()))
    return [(n, "", k[0], d) for _, found, k in groups for n, d in found]


def tar(name, members, format):
    f = io.BytesIO()
    with tarfile.open(fileobj=f, mode="w", format=format) as t:
        for n, data in members:
            m = tarfile.TarInfo(n)
            if isinstance(data, str):
                m.type, m.linkname = data[0].encode(), data[1:]
                t.addfile(m)
            else:
                m.size = len(data)
                if format == tarfile.PAX_FORMAT and n == "no-label.png":
                    m.pax_headers = {"comment": "a=b"}
                t.addfile(m, io.BytesIO(data))
    with open(os.path.join(top, name), "wb") as out:
        out.write(f.getvalue())
    case(name, webdataset(f.getvalue()))
    return f.getvalue()


long_name = "d" * 90 + "/" + "e" * 60 + "/" + "k" * 20
members = [
    ("x/0001.cls", b"7\n"), ("x/0001.png", b"1" * 700), ("x", "5"),
    ("x/0002.JPG", b"2" * 512), ("x/0002.txt", b"text"),
    ("x/0002.cls", b" -12 "), ("x/0003.jpeg", b""), ("x/0003.json", b"{}"),
    ("x/0004.seg.png", b"s"), ("x/0004.png", b"p" * 1024),
    ("x/0004.cls", b"3"), ("x/0003.cls", b"9"), ("x/0003.png", b"again"),
    (long_name + ".png", b"long" * 300), (long_name + ".cls", b"40"),
    ("x/link.png", "2x/0001.png"), ("x/hard.png", "1x/0001.png"),
    ("x/.hidden.png", b"h"), (".top.png", b"t"), ("plain", b"no dot"), ("a.b/c.png", b"c"),
    ("x/caf\u00e9.png", b"utf"), ("no-label.png", b"n"),
]
for n, f in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT),
             ("pax", tarfile.PAX_FORMAT)):
    tar(n, members, f)
very_long = "v" * 3000 + "/" + "w" * 300 + ".png"
for n, f in (("gnu-long", tarfile.GNU_FORMAT), ("pax-long", tarfile.PAX_FORMAT)):
    tar(n, [(very_long, b"v"), ("after.png", b"a")], f)
# A header of before ustar.
old = bytearray(tar("small", [("a.png", b"abc")], tarfile.USTAR_FORMAT))
old[257:345] = bytes(88)
old[156] = 0
old[148:156] = b" " * 8
old[148:156] = b"%06o\0 " % sum(old[:512])
with open(os.path.join(top, "old"), "wb") as out:
    out.write(old)
case("old", webdataset(bytes(old)))
