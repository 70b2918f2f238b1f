# SPDX-License-Identifier: ISC
"""What numpy.save() writes, as records for test/unit/npy.c.

Each record is the line "DTYPE VERSION NBYTES OFFSET DIM...", with the name
that safetensors gives the dtype or "-" where npy.h does not read the array,
then NBYTES bytes: the file up to 16 bytes of its data.
"""
import io
import sys

import numpy as np

NAMES = {
    "?": "BOOL", "u1": "U8", "i1": "I8", "<i2": "I16", "<u2": "U16",
    "<f2": "F16", "<i4": "I32", "<u4": "U32", "<f4": "F32", "<c8": "C64",
    "<f8": "F64", "<i8": "I64", "<u8": "U64",
}
SHAPES = [(), (0,), (1,), (7,), (2, 3), (0, 5), (3, 0, 2), (1,) * 32,
          (10, 1, 1, 1), (123456,), (2, 3, 4, 5, 6)]


def record(array, name, version=None):
    f = io.BytesIO()
    np.lib.format.write_array(f, array, version=version, allow_pickle=True)
    file = f.getvalue()
    offset = len(file) - array.nbytes
    if array.dtype.hasobject:
        offset = 128
    part = file[:offset + 16]
    line = [name, file[6], len(part), offset] + list(array.shape)
    sys.stdout.buffer.write(" ".join(map(str, line)).encode() + b"\n" + part)


for descr, name in NAMES.items():
    for shape in SHAPES:
        for version in ((1, 0), (2, 0), (3, 0)):
            record(np.zeros(shape, descr), name, version)
# Every length of the dict: the padding has a case of its own at 64.
for n in range(33):
    record(np.zeros((1,) * n, "<f4"), "F32")
    record(np.zeros((0,) + (10,) * min(n, 15), "<f4"), "F32")
    # Blanks stand in for the digits that the first dim may get.
    record(np.zeros((10**9, 0) + (1,) * min(n, 30), "<f4"), "F32")
record(np.zeros((2, 3), "<f4", order="F"), "-")
record(np.zeros((2, 3), ">f4"), "-")
record(np.zeros((2, 3), "<f4", order="F").T, "F32")
record(np.zeros(3, "<c16"), "-")
record(np.zeros(3, "<U4"), "-")
record(np.zeros(3, "S4"), "-")
record(np.zeros(3, "<M8[s]"), "-")
record(np.zeros(3, [("a", "<f4"), ("b", "<i2")]), "-")
record(np.array([None, 1]), "-")
