# SPDX-License-Identifier: ISC
"""vision_run.py acts|pixels PICTURES NAME...: hf-infer held to vision_ref.py.

Of each tiny model, given the directory PICTURES.  acts: rows at each place and
layer, features, the same bytes with other threads and batches and without CLS,
and metadata of SAEV.  pixels: the values of each picture.  Prints a line for
each model.
"""
import json
import os
import sys
import tempfile

import numpy as np

import family_run
import vision_models
import vision_pixels
import vision_ref

PLACES = {"resid": "resid", "attn": "attn", "mlp": "mlp",
          "in_qkv": "in:q_proj", "in_o": "in:o_proj", "in_up": "in:up_proj",
          "in_down": "in:down_proj"}
WAYS = (("-j", "1", "--batch", "1"), ("-j", "3", "--batch", "2"))


def metadata(m, path, n, layers, pixels, cls):
    """What SAEV's own keys must be; data apart."""
    p = m.c["patch_size"]
    return dict(
        vit_family={"dinov2_with_registers": "dinov2",
                    "dinov3_vit": "dinov3"}.get(m.family, m.family),
        vit_ckpt=os.path.basename(path), layers=layers,
        n_patches_per_img=(pixels.shape[2] // p) * (pixels.shape[3] // p),
        cls_token=cls, d_vit=m.c["hidden_size"], seed=0, n_imgs=n,
        max_patches_per_shard=2400000)


def held(what, got, ref):
    return family_run.held(what, got, ref, vision_ref.tolerance)


def check(name, path, pictures):
    m = vision_ref.Model(path)
    files = [os.path.join(pictures, x[2])
             for x in vision_pixels.image_folder(pictures)]
    if "defaults" in name: # whose images are larger
        files, pictures = files[1:3], path + ".list"
        with open(pictures, "w") as f:
            f.write("\n".join(files) + "\n")
    x = vision_ref.pixels_of(path, files)
    seen = [vision_ref.forward(m, image) for image in x]
    n, skip, worst = m.c["num_hidden_layers"], m.cls + m.n_registers, 0

    def ref(place, layers, cls=m.cls):
        a = np.array([[y["%s:%d" % (place, i) if place != "norm" else place]
                       for i in layers] for y in seen])
        return np.concatenate([a[:, :, :int(cls)], a[:, :, skip:]], 2)

    def acts(place, *more):
        return family_run.output(path, "--images", pictures, "--acts", place,
                                 *more)

    with tempfile.TemporaryDirectory() as tmp:
        file = os.path.join(tmp, "m.json"), os.path.join(tmp, "f.npy")
        for place, word in PLACES.items():
            layers = list(range(-(place == "resid"), n))
            want = ref(place, layers)
            spec = "%s:%s" % (word, ",".join(map(str, layers)))
            more = () if place != "resid" else (
                "--acts-meta", file[0], "--features", file[1])
            raw = acts(spec, *more)
            got = np.frombuffer(raw, "<f4").reshape(want.shape)
            worst = max(worst, held(word, got, want))
            if place != "resid":
                continue
            for way in WAYS:
                assert acts(spec, *way) == raw, "%s: other bytes" % (way,)
            got = np.frombuffer(acts(spec, "--no-cls"), "<f4")
            want = ref(place, layers, False)
            held("--no-cls", got.reshape(want.shape), want)
            with open(file[0]) as f:
                meta = json.load(f)
            data = meta.pop("data")
            want = metadata(m, path, len(x), layers, x, m.cls)
            assert meta == want, (meta, want)
            assert list(meta) == list(want), list(meta)
            assert isinstance(data, dict), data
        want = ref("norm", [0])
        got = np.frombuffer(acts("norm"), "<f4").reshape(want.shape)
        worst = max(worst, held("norm", got, want))
        features = held("features", np.load(file[1]),
                        np.array([y["features"] for y in seen]))
    print("%s: places %.2g, features %.2g of what may be" % (
        name, worst, features))


def off_pixels(p, got, want, file):
    """How far off a picture's values are, in what may be: every resized byte of
    a PNG is PIL's; two decoders of JPEG may differ by 3 levels, and by a third
    of one on average."""
    step = (p["rescale_factor"] if p["do_rescale"] else 1) / (
        min(p["image_std"]) if p["do_normalize"] else 1)
    off = np.abs(got - want)
    if file.lower().endswith(".png"):
        return off.max() / (2e-5 * max(1, 50 * step))
    return max(off.max() / (3 * step + 2e-5), off.mean() / (step / 3))


def pixels(name, path, pictures):
    files = [os.path.join(pictures, x[2])
             for x in vision_pixels.image_folder(pictures)]
    p = vision_pixels.processor(path)
    want = vision_ref.pixels_of(path, files)
    file = os.path.join(path, "p.npy")
    family_run.output(path, "--images", pictures, "--pixels", file)
    got = np.load(file)
    assert got.dtype == "<f4" and got.shape == want.shape, got.shape
    worst, where = max((off_pixels(p, *x), x[2]) for x in zip(got, want, files))
    assert worst <= 1, "%s: %s: %.3g times what may be" % (name, where, worst)
    print("%s: pixels %s %.2g of what may be" % (name, got.shape, worst))


def main():
    verb, pictures, *names = sys.argv[1:]
    for name in names:
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, "some-model")
            vision_models.make(name, path)
            dict(acts=check, pixels=pixels)[verb](name, path, pictures)


if __name__ == "__main__":
    main()
