# SPDX-License-Identifier: ISC
"""saev_cases.py DIR: metadata of activation dumps, and what Python says of it.

DIR/NAME.json is the document as a writer would get or leave it; DIR/cases has
a line each, separated by tabs: name, hash ("-": another form), shards and
images of a full one.  DIR/NAME.out is what json.dump(indent=4) writes.
DIR/rows: every row of every view of some small dumps, by numpy indexing:
name, view, layer, row, img, layer place, token, patch, shard, offset.
"""
import hashlib
import json
import os
import sys

import numpy as np

BASE = dict(vit_family="clip", vit_ckpt="ViT-B-32/openai", layers=[13, -2],
            n_patches_per_img=3, cls_token=True, d_vit=5, seed=42, n_imgs=7,
            max_patches_per_shard=24, data="ImageFolder(root='/x')")


def change(**kw):
    d = dict(BASE)
    d.update(kw)
    return {k: v for k, v in d.items() if v is not None}


CASES = {
    "plain": BASE,
    "unicode": change(vit_ckpt="é\u007f\u2028\U0001f600/\"\\\n\x01",
                      data={"ключ": "\ud800", "a": "/"}),
    "floats": change(data={"x": [0.1, 1e16, 1e-5, 2 ** -24, 5e-324, 1e22,
                                 1.7976931348623157e308, -0.0, 123456.789,
                                 1e15, 0.0001, 1.0, float("nan"),
                                 float("-inf")]}),
    "ints": change(data={"big": 10 ** 40, "neg": -(2 ** 63) - 1}, seed=2 ** 80),
    "nested": change(data={"b": {"z": [], "a": {}, "m": [{"k": None}]},
                           "": [True, False]}),
    "unknown-keys": change(zz=1, aa=[1, 2], vit={"x": 1}),
    "one-layer": change(layers=[0], cls_token=False, n_patches_per_img=1,
                        max_patches_per_shard=1, n_imgs=0),
    "exact": change(n_imgs=6),
}

OLD = {
    "2024-10": (dict(width=224, height=224, model="clip/ViT-B-32", n_layers=2,
                     n_patches_per_img=3, d_vit=5, seed=42, n_imgs=7,
                     n_patches_per_shard=24, data="x"), True),
    "2024-11": (dict(model_family="clip", model_ckpt="c", layers=[1, 2],
                     n_patches_per_img=3, cls_token=True, d_vit=5, seed=4,
                     n_imgs=7, n_patches_per_shard=24, data="x"), True),
    "2025-06-09": (dict(vit_family="clip", vit_ckpt="c", layers=[1, 2],
                        n_patches_per_img=3, cls_token=True, d_vit=5, seed=4,
                        n_imgs=7, n_patches_per_shard=24, data="x"), True),
    "1.0.0": (dict(vit_family="clip", vit_ckpt="c", layers=[1, 2],
                   n_patches_per_img=3, cls_token=True, d_vit=5, n_imgs=7,
                   max_patches_per_shard=24, data={}, dtype="float32",
                   protocol="1.0.0"), False),
    "1.1": (dict(vit_family="clip", vit_ckpt="c", layers=[1, 2],
                 n_patches_per_img=3, cls_token=True, d_vit=5, n_imgs=7,
                 max_patches_per_shard=24, data={}, dtype="float32",
                 protocol="1.1", pixel_agg=None), False),
    "1.1-ex": (dict(family="clip", ckpt="c", layers=[1, 2], patches_per_ex=3,
                    cls_token=True, d_model=5, n_ex=7, patches_per_shard=24,
                    data={}, dataset="/d", dtype="float32", protocol="1.1"),
               False),
    "1.1-later": (dict(family="clip", ckpt="c", layers=[1, 2],
                       content_tokens_per_example=3, cls_token=True, d_model=5,
                       n_examples=7, max_tokens_per_shard=24, data={},
                       dataset="/d", dtype="float32", protocol="1.1"), False),
    "2.0-ex": (dict(family="clip", ckpt="c", layers=[1, 2], patches_per_ex=3,
                    cls_token=True, d_model=5, n_ex=7, patches_per_shard=24,
                    data={}, dataset="/d", dtype="float32", protocol="2.0"),
               False),
    "2.0": (dict(family="clip", ckpt="c", layers=[1, 2],
                 content_tokens_per_example=3, cls_token=True, d_model=5,
                 n_examples=7, max_tokens_per_shard=24, data={}, dataset="/d",
                 dtype="float32", protocol="2.0"), False),
    "2.1": (dict(family="clip", ckpt="c", layers=[1, 2],
                 content_tokens_per_example=3, cls_token=True, d_model=5,
                 n_examples=7, max_tokens_per_shard=24, data="gASV", dataset="/",
                 dtype="float32", protocol="2.1"), False),
}


def geometry(d):
    t = d["n_patches_per_img"] + d["cls_token"]
    s = d["max_patches_per_shard"] // (len(d["layers"]) * t)
    return -(-d["n_imgs"] // s), s


def rows(name, d):
    """The dump as one array of byte offsets, viewed as numpy views it."""
    _, s = geometry(d)
    n, layers, p = d["n_imgs"], len(d["layers"]), d["n_patches_per_img"]
    t = p + d["cls_token"]
    where = np.arange(n * layers * t).reshape(n, layers, t)
    for view in ("cls", "image", "all"):
        if view == "cls" and not d["cls_token"]:
            continue
        tokens = where[:, :, {"cls": slice(0, 1),
                              "image": slice(d["cls_token"], t),
                              "all": slice(0, t)}[view]]
        for layer in ["all"] + d["layers"]:
            part = tokens if layer == "all" else \
                tokens[:, d["layers"].index(layer):][:, :1]
            for row, at in enumerate(part.ravel()):
                img, place, token = np.unravel_index(at, where.shape)
                yield [name, view, layer, row, img, place, token,
                       token - d["cls_token"], img // s,
                       (at - img // s * s * layers * t) * d["d_vit"] * 4]


def main(directory):
    lines, all_rows = [], []
    for name, d in CASES.items():
        text = json.dumps(d, ensure_ascii=name != "nested")
        digest = hashlib.sha256(
            json.dumps(d, sort_keys=True).encode()).hexdigest()
        with open(os.path.join(directory, name + ".json"), "w") as f:
            f.write(text)
        with open(os.path.join(directory, name + ".out"), "w") as f:
            json.dump(d, f, indent=4)
        lines.append([name, digest, *geometry(d)])
        all_rows += rows(name, d)
    for name, (d, hashed) in OLD.items():
        with open(os.path.join(directory, name + ".json"), "w") as f:
            json.dump(d, f)
        with open(os.path.join(directory, name + ".out"), "w") as f:
            json.dump(d, f, indent=4)
        digest = hashlib.sha256(
            json.dumps(d, sort_keys=True).encode()).hexdigest()
        lines.append([name, digest if hashed else "-", 3, 3])
    for file, what in (("cases", lines), ("rows", all_rows)):
        with open(os.path.join(directory, file), "w") as f:
            for line in what:
                f.write("\t".join(map(str, line)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
