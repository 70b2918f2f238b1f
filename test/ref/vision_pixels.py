# SPDX-License-Identifier: ISC
"""Pictures to pixel values as a preprocessor_config.json asks, by PIL's own
decoders and resize, in the order of transformers' slow processors; and the
order in which torchvision's ImageFolder lists a directory.  float64.
"""
import io
import json
import os
import re
import tarfile

import numpy as np
from PIL import Image, ImageOps

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff",
            ".webp")
OPENAI = dict(image_mean=[0.48145466, 0.4578275, 0.40821073],
              image_std=[0.26862954, 0.26130258, 0.27577711])
IMAGENET = dict(image_mean=[0.485, 0.456, 0.406],
                image_std=[0.229, 0.224, 0.225])
HALF = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3)
SQUARE = dict(height=224, width=224)
# What a processor does where its file does not say.
KINDS = {
    "CLIP": dict(OPENAI, size=dict(shortest_edge=224), resample=3,
                 do_center_crop=True, crop_size=224),
    "Siglip": dict(HALF, size=SQUARE, resample=3),
    "Bit": dict(OPENAI, size=dict(shortest_edge=224), resample=3,
                do_center_crop=True, crop_size=224),
    "ViT": dict(HALF, size=SQUARE, resample=2),
    "DINOv3ViT": dict(IMAGENET, size=SQUARE, resample=2),
}
OF_MODEL = dict(clip="CLIP", siglip="Siglip", dinov2="Bit", vit="ViT",
                dinov3_vit="DINOv3ViT")


def processor(directory, size=None):
    """The rules of DIR's preprocessor_config.json; size: (height, width), in
    place of its size and crop_size: of a square, a shortest edge stays one."""
    with open(os.path.join(directory, "preprocessor_config.json")) as f:
        file = json.load(f)
    name = file.get("image_processor_type") or file.get(
        "feature_extractor_type")
    if name:
        kind = re.sub("(ImageProcessor|FeatureExtractor)(Fast|Pil)?$", "", name)
    else:
        with open(os.path.join(directory, "config.json")) as f:
            model = re.sub("_vision_model$|_with_registers$", "",
                           json.load(f)["model_type"])
        kind = OF_MODEL[model]
    p = dict(do_resize=True, do_center_crop=False, do_rescale=True,
             do_normalize=True, rescale_factor=1 / 255, kind=kind)
    p.update(KINDS[kind])
    p.update(file)
    if isinstance(p["size"], int):
        n = p["size"]
        p["size"] = (dict(shortest_edge=n) if kind in ("CLIP", "Bit") else
                     dict(height=n, width=n))
    if isinstance(p.get("crop_size"), int):
        p["crop_size"] = dict(height=p["crop_size"], width=p["crop_size"])
    if size:
        p["crop_size"] = dict(height=size[0], width=size[1])
        p["size"] = (dict(shortest_edge=size[0]) if "shortest_edge" in p["size"]
                     and size[0] == size[1] else p["crop_size"])
    return p


def decode(file, exif=False):
    """A path or bytes to an RGB image."""
    image = Image.open(io.BytesIO(file) if isinstance(file, bytes) else file)
    if exif:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"): # 16-bit grey: the high byte, not PIL's white
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image.convert("RGB")


def antialias(n_in, n_out, support, weight):
    """The matrix [n_out, n_in] of a resize whose filter widens to shrink."""
    m = np.zeros((n_out, n_in))
    s = n_in / n_out
    k = max(s, 1)
    for i in range(n_out):
        c = s * (i + 0.5)
        at = np.arange(max(int(c - support * k + 0.5), 0),
                       min(int(c + support * k + 0.5), n_in))
        w = weight((at - c + 0.5) / k)
        m[i, at] = w / w.sum()
    return m


def triangle(x):
    return np.maximum(1 - np.abs(x), 0)


def cubic(a):
    def weight(x):
        x = np.abs(x)
        return np.where(x < 1, ((a + 2) * x - (a + 3)) * x * x + 1, np.where(
            x < 2, (((x - 5) * x + 8) * x - 4) * a, 0))
    return weight


def resize_floats(x, height, width, resample):
    support, weight = {2: (1, triangle), 3: (2, cubic(-0.5))}[resample]
    rows = antialias(x.shape[0], height, support, weight)
    cols = antialias(x.shape[1], width, support, weight)
    return np.einsum("ih,hwc,jw->ijc", rows, x, cols, optimize=True)


def new_size(size, height, width):
    if "shortest_edge" not in size:
        return size["height"], size["width"]
    n, short = size["shortest_edge"], min(height, width)
    long = int(n * max(height, width) / short)
    return (n, long) if height <= width else (long, n)


def center_crop(x, height, width):
    """A smaller image is first put in the middle of zeros."""
    h, w = max(height, x.shape[0]), max(width, x.shape[1])
    padded = np.zeros((h, w, 3), x.dtype)
    top, left = -((x.shape[0] - h) // 2), -((x.shape[1] - w) // 2)
    padded[top:top + x.shape[0], left:left + x.shape[1]] = x
    top, left = (h - height) // 2, (w - width) // 2
    return padded[top:top + height, left:left + width]


def resized(p, image):
    """The 8-bit image that the model sees."""
    if p["do_resize"]:
        h, w = new_size(p["size"], image.height, image.width)
        image = image.resize((w, h), p["resample"])
    x = np.asarray(image)
    if p["do_center_crop"]:
        x = center_crop(x, **p["crop_size"])
    return x


def pixel_values(p, image):
    """[3, height, width]"""
    scale = p["rescale_factor"] if p["do_rescale"] else 1
    if p["kind"] == "DINOv3ViT":
        x = np.asarray(image) * np.float64(scale)
        if p["do_resize"]:
            x = resize_floats(x, *new_size(p["size"], *x.shape[:2]),
                              p["resample"])
        if p["do_center_crop"]:
            x = center_crop(x, **p["crop_size"])
    else:
        x = resized(p, image) * np.float64(scale)
    if p["do_normalize"]:
        x = (x - p["image_mean"]) / p["image_std"]
    return x.transpose(2, 0, 1)


def is_image(name):
    return name.lower().endswith(SUFFIXES)


def image_folder(root):
    """(class, label, path below root) of each image, in their order."""
    rows = []
    for at, _, names in os.walk(root, followlinks=True):
        at = os.path.relpath(at, root)
        at = "" if at == "." else at
        rows += [(at.split("/")[0], at, name) for name in names
                 if is_image(name)]
    rows.sort(key=lambda row: [os.fsencode(x) for x in row])
    classes = sorted({c for c, _, _ in rows if c}, key=os.fsencode)
    return [(c, classes.index(c) if c else -1, os.path.join(at, name))
            for c, at, name in rows]


def tar_images(path):
    """(label or -1, name, bytes) of each image of a shard, in their order."""
    with tarfile.open(path) as tar:
        files = [(m.name, tar.extractfile(m).read()) for m in tar if m.isfile()]

    def key(name):
        at, _, base = name.rpartition("/")
        return at, base.partition(".")[0]
    labels = {key(n): int(b) for n, b in files if n.endswith(".cls")}
    return [(labels.get(key(n), -1), n, b) for n, b in files
            if n.lower().endswith((".png", ".jpg", ".jpeg"))]
