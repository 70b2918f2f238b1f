# SPDX-License-Identifier: ISC
"""vision_cases.py DIR: for test/unit/vision.c, each tiny vision model at the
size that its processor makes, and at another one that is no square: NAME is the
model, NAME.I.size "height width", NAME.I.x the pixels of three images, f32, and
NAME.I.y what float64 has at each place, of all images' tokens, as it is
computed: resid:-1, then in_qkv, in_o, attn, in_up, in_down, mlp, resid of each
layer, norm, features."""
import os
import sys

import numpy as np

import vision_models
import vision_ref

POINTS = ("in_qkv", "in_o", "attn", "in_up", "in_down", "mlp", "resid")


def main():
    d = sys.argv[1]
    rng = np.random.default_rng(5)
    with open(os.path.join(d, "cases"), "w") as cases:
        for name in vision_models.MODELS:
            path = os.path.join(d, name)
            vision_models.make(name, path)
            m = vision_ref.Model(path)
            h, w = vision_models.used(path)
            p = m.c["patch_size"]
            for i, size in enumerate(((h, w), (h + 2 * p - 1, w - p))):
                x = rng.normal(0, 1, (3, 3) + size).astype("<f4")
                seen = [vision_ref.forward(m, y.astype(float)) for y in x]
                places = ["resid:-1"] + [
                    "%s:%d" % (point, j)
                    for j in range(m.c["num_hidden_layers"])
                    for point in POINTS] + ["norm", "features"]
                at = "%s.%d" % (path, i)
                x.tofile(at + ".x")
                with open(at + ".size", "w") as f:
                    f.write("%d %d" % size)
                with open(at + ".y", "wb") as f:
                    for place in places:
                        np.array([s[place] for s in seen], "<f8").tofile(f)
            cases.write(name + "\n")


main()
