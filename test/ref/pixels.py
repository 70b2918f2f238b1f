# SPDX-License-Identifier: ISC
"""pixels.py DIR: pictures resized by PIL, every filter, up and down; and pixel_values by vision_pixels.py, in
float64.  For test/unit/processor.c.

resize: for each case six u32 (width, height, new width, new height, filter, floats), the picture, the result.
N/preprocessor_config.json, N/model_type; N/pictures: two u32 (height and width of --image-size, or 0), then of each four u32 (width,
height of the picture and of the pixels), the picture, f64 [3, height, width].  cases: one N a line."""
import json
import os
import sys

import numpy as np
from PIL import Image

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import vision_pixels  # noqa: E402

rng = np.random.default_rng(50)


def picture(width, height):
    """Noise, edges of black and white, and slopes: overshoots are clipped, small errors show."""
    noise = rng.integers(0, 256, (height, width, 3))
    edges = 255 * rng.integers(0, 2, (height, width, 1)) + 0 * noise
    slopes = (np.arange(width)[None, :, None] * 3 + np.arange(height)[:, None, None] * 2 + noise // 64) % 256
    return np.ascontiguousarray([noise, edges, slopes][int(rng.integers(3))], dtype=np.uint8)


def pil_resize(a, width, height, resample):
    return np.asarray(Image.fromarray(a).resize((width, height), resample=resample))


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
                        f.write(vision_pixels.resize_floats(a, new[1], new[0], resample).astype("<f4").tobytes())


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
SMALL = {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 18}}
TALL = {"height": 1, "width": 200}  # of so many rows that its columns are made in strips
FILES = [
    {"image_processor_type": "CLIPImageProcessor"},
    {"feature_extractor_type": "CLIPFeatureExtractor", "size": 30, "crop_size": 28, "resample": 3},
    {"image_processor_type": "CLIPImageProcessorFast", **SMALL},
    {"image_processor_type": "CLIPImageProcessor", "do_resize": False, "crop_size": {"height": 40, "width": 31}},
    {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 9}, "crop_size": 30, "resample": 5},
    {"image_processor_type": "BitImageProcessor", **SMALL, **IMAGENET},
    {"image_processor_type": "BitImageProcessorPil", "size": {"height": 30, "width": 22}, "crop_size": 21,
     "resample": 2},
    {"image_processor_type": "SiglipImageProcessor", "size": {"height": 27, "width": 40}},
    {"image_processor_type": "ViTImageProcessor"},
    {"image_processor_type": "ViTImageProcessor", "size": 33, "resample": 1, "do_normalize": False},
    {"image_processor_type": "ViTImageProcessor", "size": 33, "resample": 0, "do_rescale": False},
    {"image_processor_type": "ViTFeatureExtractor", "size": 32, "resample": 4, "rescale_factor": 0.0078125,
     "image_mean": [1.0, 1, 1.5], "image_std": [1, -2, 0.5]},
    {"image_processor_type": "ViTImageProcessor", "size": 30, "image_mean": 0.25, "image_std": 2},
    {"image_processor_type": "ViTImageProcessor", "size": TALL},
    {"image_processor_type": "DINOv3ViTImageProcessorFast"},
    {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": {"height": 48, "width": 19}, "resample": 3},
    {"image_processor_type": "DINOv3ViTImageProcessor", "size": {"shortest_edge": 24}, "crop_size": 22,
     "do_center_crop": True},
]
# Whose files may say nothing; the others' name wins over model_type.
MODEL_TYPES = ["clip", "clip_vision_model", "siglip", "siglip_vision_model", "dinov2", "dinov2_with_registers", "vit",
               "dinov3_vit"]
# Of the files above, with --image-size.
SIZES = [(2, (25, 25)), (2, (14, 25)), (3, (12, 12)), (6, (20, 30)), (7, (16, 16)), (16, (30, 30))]


def processor_cases(folder):
    cases = [(config, None, "siglip") for config in FILES] + [(FILES[n], size, "siglip") for n, size in SIZES]
    cases += [({}, None, model_type) for model_type in MODEL_TYPES]
    for n, (config, size, model_type) in enumerate(cases):
        os.mkdir(f"{folder}/{n}")
        with open(f"{folder}/{n}/config.json", "w") as f:
            json.dump({"model_type": model_type}, f)
        with open(f"{folder}/{n}/model_type", "w") as f:
            f.write(model_type)
        with open(f"{folder}/{n}/preprocessor_config.json", "w") as f:
            json.dump(config, f)
        processor = vision_pixels.processor(f"{folder}/{n}", size)
        with open(f"{folder}/{n}/pictures", "wb") as f:
            f.write(np.array(size or (0, 0), "<u4").tobytes())
            sizes = [(50, 37), (37, 50), (20, 20), (1, 1), (3, 90), (61, 8)]
            for width, height in [(3, 65535)] if config.get("size") == TALL else sizes[: 6 if config else 1]:
                a = picture(width, height)
                v = vision_pixels.pixel_values(processor, Image.fromarray(a))
                f.write(np.array([width, height, v.shape[2], v.shape[1]], "<u4").tobytes() + a.tobytes())
                f.write(np.ascontiguousarray(v, "<f8").tobytes())
    with open(f"{folder}/cases", "w") as f:
        f.write("".join(f"{n}\n" for n in range(len(cases))))


resize_cases(sys.argv[1] + "/resize")
processor_cases(sys.argv[1])
