#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Write the demo's pictures: pictures.py DIR

DIR/SHAPE/COLOUR.png, twenty of 96 x 96: one shape, a bit turned, on light grey.
Numbers come from random.Random, so the pixels are the same everywhere.
"""

import math
import pathlib
import random
import sys

import numpy as np
from PIL import Image

SEED = 7
SIZE = 96
SHAPES = ("circle", "cross", "square", "triangle")  # as ImageFolder has them
COLOURS = {
    "blue": (40, 90, 220),
    "green": (40, 170, 70),
    "orange": (240, 140, 30),
    "red": (215, 40, 45),
    "violet": (140, 60, 190),
}
FINE = 3  # points of a pixel's side that are in the shape or not


def is_inside(shape, x, y):
    """Which points are in a shape around 0 with an area of about 3."""
    if shape == "circle":
        return x * x + y * y < 1
    if shape == "triangle":
        return (y < 0.7) & (math.sqrt(3) * abs(x) - y < 1.4)
    x, y = abs(x), abs(y)
    if shape == "square":
        return np.maximum(x, y) < 0.9
    return (np.minimum(x, y) < 0.35) & (np.maximum(x, y) < 1.3)


def draw(rng, shape, colour, size=SIZE):
    """A picture, uint8 [size, size, 3], and how much of each pixel is shape."""
    r = rng.uniform(0.24, 0.36)
    x0, y0 = (rng.uniform(r * 1.3, 1 - r * 1.3) for _ in "xy")
    turn = rng.uniform(-0.3, 0.3)
    back = [rng.randrange(190, 250) for _ in "rgb"]
    at = (np.arange(size * FINE) + 0.5) / (size * FINE)
    x, y = (at[None] - x0) / r, (at[:, None] - y0) / r
    c, s = math.cos(turn), math.sin(turn)
    inside = is_inside(shape, c * x + s * y, c * y - s * x).astype(np.int64)
    n = inside.reshape(size, FINE, size, FINE).sum((1, 3))[..., None]
    all_of_it = FINE * FINE
    pixels = (n * np.array(colour) + (all_of_it - n) * np.array(back)) // all_of_it
    return pixels.astype(np.uint8), n[..., 0] / all_of_it


def main():
    """Write the twenty."""
    out, rng = pathlib.Path(sys.argv[1]), random.Random(SEED)
    for shape in SHAPES:
        (out / shape).mkdir(parents=True, exist_ok=True)
        for name, colour in COLOURS.items():
            pixels, _ = draw(rng, shape, colour)
            path = out / shape / f"{name}.png"
            Image.fromarray(pixels).save(path, optimize=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: pictures.py DIR")
    main()
