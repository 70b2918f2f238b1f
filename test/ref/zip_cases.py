# SPDX-License-Identifier: ISC
"""zip_cases.py DIR: zip archives, and what Python's zipfile finds in them.

DIR/cases has a line for each: its name.  DIR/NAME is the archive,
DIR/NAME.want a line for each member, sorted by name: name and bytes in hex.
Some archives are zipfile's own, some pth_make.py's; zipfile reads them all.
"""
import io
import os
import random
import sys
import zipfile

from pth_make import Member, zip_bytes

dir = sys.argv[1]
cases = open(os.path.join(dir, "cases"), "w")
rng = random.Random(3)


def case(name, data):
    with open(os.path.join(dir, name), "wb") as f:
        f.write(data)
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        names = sorted(z.namelist(), key=str.encode)
        with open(os.path.join(dir, name + ".want"), "w") as f:
            for n in names:
                f.write("%s %s\n" % (n, z.read(n).hex()))
    cases.write(name + "\n")


def zipped(files, method=zipfile.ZIP_STORED, comment=b"", zip64=False):
    f = io.BytesIO()
    with zipfile.ZipFile(f, "w", method) as z:
        z.comment = comment
        for name, data in files:
            with z.open(name, "w", force_zip64=zip64) as m:
                m.write(data)
    return f.getvalue()


FEW = [("r/data.pkl", b"\x80\x02N."), ("r/data/0", bytes(range(40))),
       ("r/empty", b""), ("r/b", b"b" * 300), ("r/\u00e9", b"utf-8")]
case("stored", zipped(FEW))
case("deflated", zipped(FEW, zipfile.ZIP_DEFLATED))
case("zip64-local", zipped(FEW, zip64=True))
case("comment", zipped(FEW, comment=b"what a comment" * 9))
case("comment-long", zipped(FEW, comment=b"c" * 65535))
case("big", zipped([("r/a", rng.randbytes(300000)), ("r/z", bytes(1000000)),
                    ("r/half", rng.randbytes(70000) + bytes(70000))],
                   zipfile.ZIP_DEFLATED))
case("many", zipped([("r/%d" % (i * 7919 % 70001), b"%d" % i)
                     for i in range(70000)]))

MADE = [Member("r/data.pkl", b"\x80\x02N."), Member("r/empty", b""),
        Member("r/data/0", bytes(range(100))), Member("r/z", b"z" * 99, 8)]
case("made", zip_bytes(MADE))
case("made-zip64", zip_bytes(MADE, zip64=True))
case("made-plain", zip_bytes(MADE, align=0))
