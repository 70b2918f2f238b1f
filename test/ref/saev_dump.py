# SPDX-License-Identifier: ISC
"""SAEV dumps made by numpy: dump(DIR, form, ...) returns the array [n_imgs, L, T, D].

form: "short" ends with the last image; "padded" fills the last shard with
zeros and adds a shard of them where the images fill theirs, as the Python
writer does.
"""
import json
import os
import subprocess

import numpy as np


def meta(layers=(13, -2), p=3, cls=True, d=5, n=7, imgs_a_shard=3, **more):
    t = p + cls
    return {
        "vit_family": "clip", "vit_ckpt": "ViT-B/16", "layers": list(layers),
        "n_patches_per_img": p, "cls_token": bool(cls), "d_vit": d, "seed": 42,
        "n_imgs": n, "max_patches_per_shard": imgs_a_shard * len(layers) * t + 1,
        "data": {"type": "ImageFolder", "root": "/d\u00e9"}, **more}


def numbers(m, seed=0):
    t = m["n_patches_per_img"] + m["cls_token"]
    shape = m["n_imgs"], len(m["layers"]), t, m["d_vit"]
    return np.random.default_rng(seed).standard_normal(shape).astype("<f4")


def dump(path, form="short", seed=0, **kw):
    m = meta(**kw)
    a = numbers(m, seed)
    os.makedirs(path)
    with open(os.path.join(path, "metadata.json"), "w") as f:
        json.dump(m, f, indent=4)
    s = m["max_patches_per_shard"] // (a.shape[1] * a.shape[2])
    n_shards = -(-len(a) // s)
    if form == "padded" and len(a) % s == 0:
        n_shards += 1
    for i in range(n_shards):
        x = a[i * s:(i + 1) * s]
        if form == "padded":
            x = np.concatenate([x, np.zeros((s - len(x), *a.shape[1:]), "<f4")])
        x.tofile(os.path.join(path, "acts%06d.bin" % i))
    return a

def padded(name, windows="padded", d=8, n_imgs=9):
    """Documents of 0 to 6 tokens, zeros after their ends: writes the rows of data
    of layers 3 and 7 as 3.npy and 7.npy, of both as all.npy, and all rows, with
    padding, as padding.npy."""
    kw = dict(layers=(3, 7), p=6, cls=False, n=n_imgs, imgs_a_shard=4, d=d,
              data={"of": {"windows": windows}})
    a, n = dump(name, **kw), np.resize([6, 1, 0, 3, 2, 6, 0, 5, 4], n_imgs)
    for x, k in zip(a, n):
        x[:, k:] = 0
    for i in range(0, n_imgs, 4):
        a[i:i + 4].tofile(name + "/acts%06d.bin" % (i // 4))
    np.save("padding.npy", a.reshape(-1, d))
    np.save("all.npy", np.concatenate([x[:, :k].reshape(-1, d) for x, k in zip(a, n)]))
    for i, layer in enumerate(kw["layers"]):
        np.save("%d.npy" % layer, np.concatenate([x[i, :k] for x, k in zip(a, n)]))


def rows(a, m, view, layer):
    """The rows of a view by indexing: [n, D]."""
    if layer != "all":
        i = m["layers"].index(int(layer))
        a = a[:, i:i + 1]
    if view == "cls":
        a = a[:, :, :1]
    elif view == "image":
        a = a[:, :, int(m["cls_token"]):]
    return a.reshape(-1, a.shape[-1])


def saev_read(*args):
    """What saev-read writes."""
    return subprocess.run(["saev-read", "-q", *map(str, args)], check=True,
                          stdout=subprocess.PIPE).stdout


def order(n, seed, epoch=0):
    """The permutation of core/perm.h, but for equal words."""
    return np.argsort(np.random.Philox(key=seed | epoch << 64).random_raw(n))
