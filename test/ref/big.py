# SPDX-License-Identifier: ISC
"""Files over 4 GiB that cost no disk: they are holes but for some numbers.

big.py FUNCTION ARGUMENT...: see each of them.
"""
import importlib.util
import json
import os
import struct
import sys
import zipfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402

G4 = 1 << 32


def holed(path, head, size, pieces):
    """A file of 'size' bytes: 'head', and (offset, bytes) pieces."""
    with open(path, "wb") as f:
        f.write(head)
        for at, data in pieces:
            f.seek(at)
            f.write(data)
        f.truncate(size)


def st_file(path, tensors, meta=None):
    """tensors: name -> (dtype, shape, {offset: bytes}), most of it a hole."""
    head, at, pieces = {}, 0, []
    if meta:
        head["__metadata__"] = meta
    for name, (dtype, shape, data) in tensors.items():
        n = int(np.prod(shape, dtype=object)) * mkst.BITS[dtype] // 8
        head[name] = {"dtype": dtype, "shape": list(shape),
                      "data_offsets": [at, at + n]}
        pieces += [(at + o, b) for o, b in data.items()]
        at += n
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    holed(path, struct.pack("<Q", len(text)) + text, start + at,
          [(start + o, b) for o, b in pieces])


def st(path):
    """Tensors about 2^32 bytes and 2^31 elements."""
    last = np.array([1, 2, 3, 4], "<f4").tobytes()
    st_file(path, {
        "bytes": ("U8", [G4 + 8], {G4: b"\1\2\3\4\5\6\7\x08"}),
        "rows": ("BF16", [1 << 16, (1 << 15) + 1],
                 {(((1 << 16) - 1) * ((1 << 15) + 1)) * 2: b"\x80\x3f"}),
        "tail": ("F32", [4], {0: last})})


def grow(path, out, n):
    """A safetensors with a hole of n bytes before its tensors."""
    with open(path, "rb") as f:
        old = struct.unpack("<Q", f.read(8))[0]
        head = json.loads(f.read(old))
        data = f.read()
    meta = head.pop("__metadata__", None)
    new = {} if meta is None else {"__metadata__": meta}
    new["hole"] = {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}
    for name, t in head.items():
        t["data_offsets"] = [o + n for o in t["data_offsets"]]
        new[name] = t
    text = json.dumps(new).encode()
    text += b" " * (-len(text) % 8)
    holed(out, struct.pack("<Q", len(text)) + text,
          8 + len(text) + n + len(data), [(8 + len(text) + n, data)])


def saev(directory):
    """One image of a layer, 2^21 + 2 tokens of 1024: row i is all i."""
    os.makedirs(directory)
    t, d = (1 << 21) + 2, 1024
    meta = {"vit_family": "clip", "vit_ckpt": "c", "layers": [0],
            "n_patches_per_img": t, "cls_token": False, "d_vit": d, "seed": 0,
            "n_imgs": 1, "max_patches_per_shard": t, "data": "hole"}
    with open(os.path.join(directory, "metadata.json"), "w") as f:
        json.dump(meta, f, indent=4)
    rows = [1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, t - 1]
    holed(os.path.join(directory, "acts000000.bin"), b"", t * d * 4,
          [(i * d * 4, np.full(d, i, "<f4").tobytes()) for i in rows])


def saev_meta(path):
    """Shards of 2^21 images of one activation, 8 GiB; the dump has one."""
    with open(path, "w") as f:
        json.dump({"vit_family": "clip", "vit_ckpt": "c", "layers": [0],
                   "n_patches_per_img": 1, "cls_token": False, "d_vit": 1024,
                   "seed": 0, "n_imgs": 1, "max_patches_per_shard": 1 << 21,
                   "data": "hole"}, f)


def npy(path, tensor):
    """u8 [2^32 + 2], of which the last two are not 0, and as safetensors."""
    last = {G4: b"\1\2"}
    head = "{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }"
    head = (head % (G4 + 2)).ljust(117) + "\n"
    head = b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode()
    holed(path, head, len(head) + G4 + 2,
          [(len(head) + at, b) for at, b in last.items()])
    st_file(tensor, {"x": ("U8", [G4 + 2], last)})


def kvc(path):
    """Ten layers of text alone: factor 2^15, head_dim 2^10, two hidden units."""
    layers, factor, dk, rows = 10, 1 << 15, 1 << 10, 2
    head = struct.pack("<IIHHIIIIIIII", 0x4b56434d, 1, 2, 0, layers, 1, dk,
                       factor * dk, factor, 2, 6, 0)
    at, pieces = len(head), []
    for i in range(layers * 2):
        for shape in ((rows, factor * dk), (rows, rows), (dk, rows)):
            pieces.append((at, struct.pack("<III", *shape, 1)))
            at += 12 + 4 * shape[0] * shape[1]
            pieces.append((at, np.full(shape[0], i + 1, "<f4").tobytes()))
            at += 4 * shape[0]
    holed(path, head, at, pieces)


def lut(directory, x):
    """A table of 2^20 latents and 1024 outputs in F32; the last latent alone
    is active for the row of ones in 'x', and y is 3 everywhere."""
    n, d, out = 1 << 20, 8, 1024
    layer = "model.layers.0.self_attn.q_proj"
    one = np.eye(1, d, dtype="<f4").tobytes()
    os.makedirs(directory)
    st_file(os.path.join(directory, layer + ".lut.safetensors"), {
        "encoder_weight": ("F32", [n, d], {(n - 1) * d * 4: one}),
        "encoder_bias": ("F32", [n], {}),
        "decoder_weight": ("F32", [n, d], {(n - 1) * d * 4: one}),
        "decoder_bias": ("F32", [d], {}),
        "precomputed_products": ("F32", [n, out], {
            (n - 1) * out * 4: np.full(out, 3, "<f4").tobytes()}),
        "bias_product": ("F32", [out], {})})
    with open(os.path.join(directory, "metadata.json"), "w") as f:
        json.dump({"version": "1.0",
                   "sae_config": {"num_basis": n, "k_active": 4},
                   "layers": {layer: {
                       "input_dim": d, "output_dim": out,
                       "file": layer + ".lut.safetensors",
                       "encoder": {"input_centering": False}}}}, f)
    np.save(x, np.ones((1, d), "<f4"))


def model(directory, shape, *settings):
    """A model of one of scripts/random-model.py's shapes, of zeros."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                        "scripts", "random-model.py")
    spec = importlib.util.spec_from_file_location("random_model", path)
    random_model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(random_model)
    config = {**random_model.BASE, **random_model.SHAPES[shape]}
    config.update((k, json.loads(v)) for k, _, v in
                  (s.partition("=") for s in settings))
    os.makedirs(directory)
    with open(os.path.join(directory, "config.json"), "w") as f:
        json.dump(config, f)
    st_file(os.path.join(directory, "model.safetensors"), {
        name: ("BF16", size, {}) for name, size in
        random_model.tensors(config, False).items()})


def pth(far, near, n):
    """A checkpoint as zip64, behind a member of n bytes, or of none."""
    import pth_make
    state = [("compress_%s.%d.%d.%s" % (p, i, slot, w), a)
             for i in range(2) for p in ("tk", "tv", "ik", "iv")
             for slot, rows, cols in ((0, 8, 40), (3, 6, 8), (6, 8, 6))
             for w, a in (("weight", np.arange(rows * cols, dtype="<f4")
                           .reshape(rows, cols) / 16 + i + slot),
                          ("bias", np.arange(rows, dtype="<f4")))]
    pkl, storages = pth_make.dumps(dict(
        (name, pth_make.Tensor(pth_make.Storage(a.reshape(-1)), 0, a.shape,
                               [s // 4 for s in a.strides]))
        for name, a in state))
    hole = pth_make.Member("archive/data/hole", b"")
    members = [hole] + pth_make.members(pkl, storages)
    with open(near, "wb") as f:
        f.write(pth_make.zip_bytes(members, zip64=True))
    with zipfile.ZipFile(near) as z:
        at = [i.header_offset for i in z.infolist()]
    for m, offset in zip(members[1:], at[1:]):
        m.over["header"] = offset + n
    hole.over.update(size=n, packed=n)
    data = bytearray(pth_make.zip_bytes(members, zip64=True, shift=n))
    end = data.rindex(b"PK\6\7") + 8
    data[end:end + 8] = struct.pack(
        "<Q", struct.unpack_from("<Q", data, end)[0] + n)
    holed(far, data[:at[1]], len(data) + n, [(at[1] + n, data[at[1]:])])


if __name__ == "__main__":
    globals()[sys.argv[1]](*(int(a) if a.isdigit() else a
                             for a in sys.argv[2:]))
