# SPDX-License-Identifier: ISC
"""pixels.py DIR: pictures resized by PIL, every filter, up and down; and pixel_values by the rules of
transformers' slow image processors, in float64.  For test/unit/processor.c.

resize: for each case six u32 (width, height, new width, new height, filter, floats), the picture, the result.
N/preprocessor_config.json, N/pictures, each four u32 (width, height of the picture and of the pixels), the picture,
f64 [3, height, width].  cases: one N a line."""
import json
import math
import os
import sys

import numpy as np
from PIL import Image

rng = np.random.default_rng(50)


def picture(width, height):
    """Noise, edges of black and white, and slopes: overshoots are clipped, small errors show."""
    noise = rng.integers(0, 256, (height, width, 3))
    edges = 255 * rng.integers(0, 2, (height, width, 1)) + 0 * noise
    slopes = (np.arange(width)[None, :, None] * 3 + np.arange(height)[:, None, None] * 2 + noise // 64) % 256
    return np.ascontiguousarray([noise, edges, slopes][int(rng.integers(3))], dtype=np.uint8)


def pil_resize(a, width, height, resample):
    return np.asarray(Image.fromarray(a).resize((width, height), resample=resample))


def torch_axis(n, m, support, weight):
    """The matrix of torch's antialiased interpolation (UpSampleKernel.cpp), [m, n]."""
    scale = n / m
    stretch = max(scale, 1)
    matrix = np.zeros((m, n))
    for i in range(m):
        centre = scale * (i + 0.5)
        first = max(int(centre - support * stretch + 0.5), 0)
        end = min(int(centre + support * stretch + 0.5), n)
        w = np.array([weight((j - centre + 0.5) / stretch) for j in range(first, end)])
        matrix[i, first:end] = w / w.sum()
    return matrix


def triangle(x):
    return max(1 - abs(x), 0)


def cubic(x, a=-0.5):
    x = abs(x)
    if x < 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a if x < 2 else 0


def float_resize(a, width, height, resample):
    support, weight = {2: (1, triangle), 3: (2, cubic)}[resample]
    rows = torch_axis(a.shape[0], height, support, weight)
    cols = torch_axis(a.shape[1], width, support, weight)
    return np.einsum("yh,hwc,xw->yxc", rows, a.astype(np.float64), cols, optimize=True)


def resize_cases(path):
    sizes = [(1, 1), (1, 7), (7, 1), (2, 3), (5, 5), (16, 9), (33, 65), (100, 61), (127, 200), (301, 17)]
    news = [(1, 1), (2, 5), (16, 16), (17, 31), (64, 48), (224, 3), (7, 129)]
    with open(path, "wb") as f:
        for size in sizes:
            for new in news + [(size[0], 11), (9, size[1]), size]:
                for resample in range(6):
                    a = picture(*size)
                    f.write(np.array([*size, *new, resample, 0], "<u4").tobytes() + a.tobytes())
                    f.write(np.ascontiguousarray(pil_resize(a, *new, resample)).tobytes())
                    if resample in (2, 3):
                        f.write(np.array([*size, *new, resample, 1], "<u4").tobytes() + a.tobytes())
                        f.write(float_resize(a, *new, resample).astype("<f4").tobytes())


CLIP = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALF = [0.5] * 3, [0.5] * 3
IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def pixels(a, floats, shortest, size, crop, resample, rescale, mean, std):
    """One picture's pixel_values: 'size' is (height, width), or None, or shortest an edge."""
    height, width = a.shape[:2]
    if shortest:
        long = int(shortest * max(height, width) / min(height, width))
        size = (long, shortest) if width <= height else (shortest, long)
    if size:
        a = (float_resize if floats else pil_resize)(a, size[1], size[0], resample)
    if crop:  # transformers.image_transforms.center_crop()
        height, width = a.shape[:2]
        top, left = (height - crop[0]) // 2, (width - crop[1]) // 2
        if top < 0 or left < 0:
            padded = np.zeros((max(height, crop[0]), max(width, crop[1]), 3), a.dtype)
            above = math.ceil((padded.shape[0] - height) / 2)
            before = math.ceil((padded.shape[1] - width) / 2)
            padded[above : above + height, before : before + width] = a
            top, left, a = top + above, left + before, padded
        a = a[top : top + crop[0], left : left + crop[1]]
    return ((a.astype(np.float64) * rescale - np.array(mean)) / np.array(std)).transpose(2, 0, 1)


def processor_cases(folder):
    r = 1 / 255
    small = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 18}}
    # the file; whose it is; what that means
    cases = [
        ({"image_processor_type": "CLIPImageProcessor"}, (0, 224, None, (224, 224), 3, r, *CLIP)),
        ({"feature_extractor_type": "CLIPFeatureExtractor", "size": 30, "crop_size": 28, "resample": 3},
         (0, 30, None, (28, 28), 3, r, *CLIP)),
        ({"image_processor_type": "CLIPImageProcessorFast", **small}, (0, 20, None, (16, 18), 3, r, *CLIP)),
        ({"image_processor_type": "BitImageProcessor", **small, "image_mean": IMAGENET[0], "image_std": IMAGENET[1]},
         (0, 20, None, (16, 18), 3, r, *IMAGENET)),
        ({"image_processor_type": "BitImageProcessor", "size": {"height": 30, "width": 22}, "crop_size": 21,
          "resample": 2}, (0, 0, (30, 22), (21, 21), 2, r, *CLIP)),
        ({"image_processor_type": "SiglipImageProcessor", "size": {"height": 27, "width": 40}},
         (0, 0, (27, 40), None, 3, r, *HALF)),
        ({"image_processor_type": "ViTImageProcessor"}, (0, 0, (224, 224), None, 2, r, *HALF)),
        ({"image_processor_type": "ViTImageProcessor", "size": 33, "resample": 1, "do_normalize": False},
         (0, 0, (33, 33), None, 1, r, [0] * 3, [1] * 3)),
        ({"image_processor_type": "ViTImageProcessor", "size": 33, "resample": 0, "do_rescale": False},
         (0, 0, (33, 33), None, 0, 1, *HALF)),
        ({"image_processor_type": "ViTImageProcessor", "size": 32, "resample": 4, "rescale_factor": 0.0078125,
          "image_mean": [1.0, 1, 1.5], "image_std": [1, -2, 0.5]},
         (0, 0, (32, 32), None, 4, 1 / 128, [1, 1, 1.5], [1, -2, 0.5])),
        ({"image_processor_type": "CLIPImageProcessor", "do_resize": False, "crop_size": {"height": 40, "width": 31}},
         (0, 0, None, (40, 31), 3, r, *CLIP)),
        ({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 9}, "crop_size": 30, "resample": 5},
         (0, 9, None, (30, 30), 5, r, *CLIP)),
        ({"image_processor_type": "DINOv3ViTImageProcessorFast"}, (1, 0, (224, 224), None, 2, r, *IMAGENET)),
        ({"image_processor_type": "DINOv3ViTImageProcessorFast", "size": {"height": 48, "width": 19}, "resample": 3},
         (1, 0, (48, 19), None, 3, r, *IMAGENET)),
        ({"image_processor_type": "DINOv3ViTImageProcessor", "size": {"shortest_edge": 24}, "crop_size": 22,
          "do_center_crop": True}, (1, 24, None, (22, 22), 2, r, *IMAGENET)),
    ]
    sizes = [(50, 37), (37, 50), (20, 20), (1, 1), (3, 90), (61, 8)]
    for n, (config, meaning) in enumerate(cases):
        os.mkdir(f"{folder}/{n}")
        with open(f"{folder}/{n}/preprocessor_config.json", "w") as f:
            json.dump(config, f)
        with open(f"{folder}/{n}/pictures", "wb") as f:
            for width, height in sizes:
                a = picture(width, height)
                v = pixels(a, *meaning)
                f.write(np.array([width, height, v.shape[2], v.shape[1]], "<u4").tobytes() + a.tobytes())
                f.write(np.ascontiguousarray(v, "<f8").tobytes())
    with open(f"{folder}/cases", "w") as f:
        f.write("".join(f"{n}\n" for n in range(len(cases))))


resize_cases(sys.argv[1] + "/resize")
processor_cases(sys.argv[1])
