# SPDX-License-Identifier: ISC
"""Tiny random vision models of each family, with the files, keys and names of
the Hub; and a directory of small pictures of all kinds.

Values are such that each step moves a result: biases are not 0, weights of
norms not 1, epsilons large.  Where a model leaves keys to defaults, what enters
its first block is so small that the family's epsilon is seen.
"""
import json
import os
import struct
import zlib

import numpy as np
from PIL import Image

import family_models
import mkst

EPS = 0.02
SIZES = dict(hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
             layer_norm_eps=EPS, attention_dropout=0.0,
             initializer_range=0.02)
MODELS = {
    "clip": "whole, a projection, quick_gelu, crop",
    "clip:openai": "vision_config_dict in place of vision_config, f16, ints",
    "clip:vision": "alone, hidden_act gelu, no projection, bf16",
    "clip:defaults": "vision_config without what equals the defaults",
    "siglip": "whole, MAP head, a remainder of 3 pixels",
    "siglip:vision": "alone, no head (vision_use_head false)",
    "siglip:defaults": "alone, names without vision_model.",
    "dinov2": "a larger trained grid, layer scale, crop",
    "dinov2:swiglu": "SwiGLU, resized to a square",
    "dinov2:classifier": "names under dinov2., no biases of q, k, v",
    "dinov2:defaults": "patches of 14, 16 x 16 of them",
    "dinov2_with_registers": "a larger trained grid, antialias",
    "dinov2_with_registers:swiglu": "a smaller trained grid",
    "dinov2_with_registers:defaults": "4 registers, a classifier's names",
    "dinov3_vit": "RoPE, registers, no bias of k, plain MLP",
    "dinov3_vit:gated": "silu, gate, blocks under model.",
    "dinov3_vit:defaults": "no registers, theta 100",
    "vit": "a pooler",
    "vit:classifier": "names under vit., a classifier, no biases of q, k, v",
    "vit:defaults": "the only eps of 1e-12",
}
# The size of what the model gets, as its preprocessor_config.json says.
INPUT = {"clip": (32, 32), "siglip": (31, 31), "dinov2": (39, 39),
         "dinov2_with_registers": (32, 32), "dinov3_vit": (40, 40),
         "vit": (24, 24)}
PATCH = {"clip": 8, "siglip": 7, "dinov2": 9, "dinov2_with_registers": 8,
         "dinov3_vit": 8, "vit": 6}


def encoder(m, c, names, gelu_mlp, bias=True, scale=False, k_bias=True,
            gated=False, swiglu=False):
    """Blocks: names are of ln1, q, k, v, o, ln2, up, down."""
    h, size = c["hidden_size"], c["intermediate_size"]
    ln1, q, k, v, o, ln2, up, down = names
    for i in range(c["num_hidden_layers"]):
        at = c["layer"] % i
        m.norm(at + ln1, h, True)
        m.norm(at + ln2, h, True)
        for x in q, k, v:
            m.matrix(at + x, h, h, bias and (x != k or k_bias))
        m.matrix(at + o, h, h, True)
        if scale:
            for x in "12":
                m.t["%s%slayer_scale%s.lambda1" % (m.at, at, x)] = m.rng.normal(
                    0.7, 0.3, h)
        if swiglu:
            width = (int(int(h * c["mlp_ratio"]) * 2 / 3) + 7) // 8 * 8
            m.matrix(at + "mlp.weights_in", 2 * width, h, True)
            m.matrix(at + "mlp.weights_out", h, width, True)
            continue
        if gated:
            m.matrix(at + gated, size, h, True)
        if gelu_mlp:
            m.gelu_mlp(at + up, at + down, size, h)
        else:
            m.matrix(at + up, size, h, True)
            m.matrix(at + down, h, size, True)


def embeddings(m, name, h, p, small, bias=True):
    n = 3 * p * p
    w = m.rng.normal(0, 1 / np.sqrt(n), (h, 3, p, p))
    m.t[m.at + name + ".weight"] = w * small
    if bias:
        m.t[m.at + name + ".bias"] = m.rng.normal(0, 0.3, h) * small


def sizes(c, v, family, **more):
    """c with the family's small sizes, or what has no small default."""
    c.update(SIZES, patch_size=PATCH[family], image_size=INPUT[family][0],
             **more)
    if v == "defaults":
        for key in list(c):
            if key not in ("model_type", "architectures", "hidden_size",
                           "num_hidden_layers", "layer_scale"):
                del c[key]
        c["num_hidden_layers"] = 1
    return c


def full(c, p, **defaults):
    """c and the defaults that it leaves out, to make tensors by."""
    return dict(dict(dict(intermediate_size=3072, image_size=224, patch_size=p,
                          num_hidden_layers=12), **defaults), **c)


def openai_names(seed, v, family, at, p):
    """clip and siglip."""
    clip = family == "clip"
    c = sizes({}, v, family, intermediate_size=100, hidden_act="quick_gelu"
              if clip else "gelu_pytorch_tanh", num_channels=3)
    if v == "vision" and clip:
        c["hidden_act"] = "gelu"
    if v == "vision" and not clip:
        c["vision_use_head"] = False
    made = full(c, p, layer="encoder.layers.%d.")
    small = 1e-3 if v == "defaults" else 1
    m, h = family_models.Maker(seed, at), made["hidden_size"]
    n = (made["image_size"] // made["patch_size"]) ** 2
    if clip:
        m.t[m.at + "embeddings.class_embedding"] = m.rng.normal(
            0, small, h)
        m.norm("pre_layrnorm", h, True)
        if small != 1:
            for x in "weight", "bias":
                m.t[m.at + "pre_layrnorm." + x] *= small
    embeddings(m, "embeddings.patch_embedding", h, made["patch_size"], small,
               not clip)
    m.embedding("embeddings.position_embedding", n + clip, h, 0.5 * small)
    m.t[m.at + "embeddings.position_ids"] = np.arange(n + clip).reshape(1, -1)
    encoder(m, made, ["layer_norm1"] + ["self_attn.%s_proj" % x for x in (
        "q", "k", "v", "out")] + ["layer_norm2", "mlp.fc1", "mlp.fc2"],
        clip or c.get("hidden_act"))
    m.norm("post_layernorm", h, True)
    if not clip and c.get("vision_use_head", True):
        m.t[m.at + "head.probe"] = m.rng.normal(0, 1, (1, 1, h))
        m.matrix("head.attention.in_proj", 3 * h, h, True)
        for x in "weight", "bias":
            m.t[m.at + "head.attention.in_proj_" + x] = m.t.pop(
                m.at + "head.attention.in_proj." + x)
        m.matrix("head.attention.out_proj", h, h, True)
        m.norm("head.layernorm", h, True)
        m.gelu_mlp("head.mlp.fc1", "head.mlp.fc2", made["intermediate_size"], h)
    return c, m


def whole(c, m, v, family):
    """The configuration of images and text; tensors of the text part."""
    m.at = ""
    text = dict(SIZES, model_type=family + "_text_model", hidden_size=32)
    m.embedding("text_model.embeddings.token_embedding", 11, 32)
    for x in "weight", "bias":
        m.t["text_model.encoder.layers.0.layer_norm1." + x] = np.ones(32)
    m.t["logit_scale"] = np.array(4.6)
    top = dict(model_type=family, text_config=text, architectures=[
        dict(clip="CLIPModel", siglip="SiglipModel")[family]])
    if family == "clip":
        m.matrix("visual_projection", 20, c["hidden_size"])
        m.matrix("text_projection", 20, 32)
        top["projection_dim"] = 20
    top["vision_config"] = dict(c, model_type=family + "_vision_model")
    if v == "openai":
        top["vision_config_dict"] = c
        top["vision_config"] = dict(c, hidden_act="gelu", hidden_size=64,
                                    num_attention_heads=8)
        del c["hidden_act"]
    return top, m.t


def clip(seed, v):
    at = "" if v == "vision" else "vision_model."
    c, m = openai_names(seed, v, "clip", at, 32)
    if v == "vision":
        return dict(c, model_type="clip_vision_model", torch_dtype="bfloat16",
                    architectures=["CLIPVisionModel"]), m.t
    c, t = whole(c, m, v, "clip")
    return dict(c, torch_dtype="float16" if v == "openai" else "float32"), t


def siglip(seed, v):
    at = "" if v == "defaults" else "vision_model."
    c, m = openai_names(seed, v, "siglip", at, 16)
    if not v:
        return whole(c, m, v, "siglip")
    return dict(c, model_type="siglip_vision_model",
                architectures=["SiglipVisionModel"]), m.t


QUERY = ["attention.attention." + x for x in ("query", "key", "value")] + [
    "attention.output.dense"]


def dinov2(seed, v, family="dinov2", n_registers=0):
    c = sizes(dict(model_type=family), v, family, mlp_ratio=4,
              hidden_act="gelu", use_swiglu_ffn=v == "swiglu",
              layerscale_value=1.0, drop_path_rate=0.0, num_channels=3,
              qkv_bias=v != "classifier")
    if v == "swiglu" and family == "dinov2":
        c.update(mlp_ratio=3, num_attention_heads=6)
    p, small = c.get("patch_size"), 1e-3 if v == "defaults" else 1
    if n_registers:
        p = p or 16
        if v != "defaults":
            c["num_register_tokens"] = n_registers
    else:
        p = p or 14
    trained = dict(swiglu=3 if n_registers else 4, defaults=224 // p).get(
        v, 7 if n_registers else 6)
    if v != "defaults":
        c["image_size"] = trained * p + 1
    h = c["hidden_size"]
    is_class = v == "classifier" or n_registers and v == "defaults"
    m = family_models.Maker(seed, family + "." if is_class else "")
    m.t[m.at + "embeddings.cls_token"] = m.rng.normal(0, small, (1, 1, h))
    m.t[m.at + "embeddings.mask_token"] = np.ones((1, h))
    if n_registers:
        m.t[m.at + "embeddings.register_tokens"] = m.rng.normal(
            0, small, (1, n_registers, h))
    m.t[m.at + "embeddings.position_embeddings"] = m.rng.normal(
        0, 0.5 * small, (1, trained ** 2 + 1, h))
    embeddings(m, "embeddings.patch_embeddings.projection", h, p, small)
    encoder(m, full(dict(c, layer="encoder.layer.%d.", intermediate_size=int(
        h * c.get("mlp_ratio", 4))), p), ["norm1"] + QUERY + [
            "norm2", "mlp.fc1", "mlp.fc2"], True, v != "classifier",
        scale=True, swiglu=v == "swiglu")
    m.norm("layernorm", h, True)
    m.at = ""
    if is_class:
        m.matrix("classifier", 5, 2 * h, True)
    return dict(c, architectures=["Dinov2Model"], torch_dtype="float32"), m.t


def dinov2_with_registers(seed, v):
    return dinov2(seed, v, "dinov2_with_registers",
                  4 if v == "defaults" else 3)


def dinov3_vit(seed, v):
    gated = v == "gated"
    c = sizes(dict(model_type="dinov3_vit"), v, "dinov3_vit",
              intermediate_size=100, hidden_act="silu" if gated else "gelu",
              use_gated_mlp=gated, num_register_tokens=3, rope_theta=30.0,
              layerscale_value=1.0, query_bias=True, key_bias=False,
              value_bias=True, proj_bias=True, mlp_bias=True, num_channels=3,
              drop_path_rate=0.0, pos_embed_rescale=2.0)
    small = 1e-3 if v == "defaults" else 1
    made, h = full(c, 16, intermediate_size=1536), c["hidden_size"]
    m = family_models.Maker(seed)
    m.t["embeddings.cls_token"] = m.rng.normal(0, small, (1, 1, h))
    m.t["embeddings.mask_token"] = np.ones((1, 1, h))
    if v != "defaults":
        m.t["embeddings.register_tokens"] = m.rng.normal(0, 1, (1, 3, h))
    embeddings(m, "embeddings.patch_embeddings", h, made["patch_size"], small)
    m.at = "model." if gated else ""
    encoder(m, dict(made, layer="layer.%d."), ["norm1"] + [
        "attention.%s_proj" % x for x in "qkvo"] + [
            "norm2", "mlp.up_proj", "mlp.down_proj"], not gated, scale=True,
        k_bias=False, gated=gated and "mlp.gate_proj")
    m.at = ""
    m.norm("norm", h, True)
    return dict(c, architectures=["DINOv3ViTModel"], torch_dtype="float32"), m.t


def vit(seed, v):
    c = sizes(dict(model_type="vit"), v, "vit", intermediate_size=100,
              hidden_act="gelu", qkv_bias=v != "classifier", num_channels=3,
              hidden_dropout_prob=0.0, encoder_stride=16)
    small = 1e-3 if v == "defaults" else 1
    made, h = full(c, 16), c["hidden_size"]
    n = (made["image_size"] // made["patch_size"]) ** 2
    m = family_models.Maker(seed, "vit." if v == "classifier" else "")
    m.t[m.at + "embeddings.cls_token"] = m.rng.normal(0, small, (1, 1, h))
    m.t[m.at + "embeddings.position_embeddings"] = m.rng.normal(
        0, 0.5 * small, (1, n + 1, h))
    embeddings(m, "embeddings.patch_embeddings.projection", h,
               made["patch_size"], small)
    encoder(m, dict(made, layer="encoder.layer.%d."), ["layernorm_before"]
            + QUERY + ["layernorm_after", "intermediate.dense",
                       "output.dense"], True, v != "classifier")
    m.norm("layernorm", h, True)
    if v != "classifier":
        m.matrix("pooler.dense", h, h, True, gain=0.7)
    m.at = ""
    if v == "classifier":
        m.matrix("classifier", 5, h, True)
    return dict(c, architectures=["ViTModel"], torch_dtype="float32"), m.t


HALF, IMAGENET = [0.5] * 3, [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]]


def processor(name):
    """preprocessor_config.json: of each kind, with other keys of each."""
    family, _, v = name.partition(":")
    n, m = INPUT[family]
    square = dict(height=n, width=m)
    made = {
        "clip": dict(crop_size=square, do_center_crop=True, do_resize=True,
                     do_normalize=True, do_rescale=True, do_convert_rgb=True,
                     image_processor_type="CLIPImageProcessor", resample=3,
                     rescale_factor=0.00392156862745098,
                     size=dict(shortest_edge=n)),
        "clip:openai": dict(crop_size=n, size=n, do_center_crop=True,
                            do_normalize=True, do_resize=True, resample=3,
                            feature_extractor_type="CLIPFeatureExtractor",
                            image_mean=[0.48, 0.46, 0.41],
                            image_std=[0.27, 0.26, 0.28]),
        "clip:vision": dict(size=dict(shortest_edge=n - 4), crop_size=square),
        "siglip": dict(image_processor_type="SiglipImageProcessor", size=square,
                       image_mean=HALF, image_std=HALF, resample=3),
        "siglip:vision": dict(image_processor_type="SiglipImageProcessorFast",
                              size=square, resample=1, do_normalize=False),
        "dinov2": dict(image_processor_type="BitImageProcessor",
                       size=dict(shortest_edge=n + 5), crop_size=square,
                       image_mean=IMAGENET[0], image_std=IMAGENET[1]),
        "dinov2:swiglu": dict(image_processor_type="BitImageProcessor",
                              size=dict(height=45, width=45), resample=2,
                              do_center_crop=False),
        "dinov2:classifier": dict(image_processor_type="BitImageProcessorFast",
                                  size=dict(height=33, width=30),
                                  crop_size=dict(height=30, width=45)),
        "dinov2_with_registers": dict(
            size=dict(shortest_edge=n), crop_size=n, resample=4,
            image_processor_type="BitImageProcessor", do_rescale=False,
            image_mean=[127] * 3, image_std=[60] * 3),
        "dinov2_with_registers:swiglu": dict(
            size=dict(shortest_edge=n + 9), crop_size=n + 1, resample=5),
        "dinov3_vit": dict(size=square, resample=2, image_mean=IMAGENET[0],
                           image_processor_type="DINOv3ViTImageProcessorFast",
                           image_std=IMAGENET[1], data_format="channels_first"),
        "dinov3_vit:gated": dict(size=dict(height=24, width=43)),
        "vit": dict(image_processor_type="ViTImageProcessor", size=square,
                    image_mean=HALF, image_std=HALF, do_rescale=True,
                    do_resize=True, do_normalize=True, resample=2),
        "vit:classifier": dict(feature_extractor_type="ViTFeatureExtractor",
                               size=n, resample=0),
    }
    return made[name] if name in made and v != "defaults" else {}


def used(directory):
    """The size of what the model gets."""
    with open(os.path.join(directory, "preprocessor_config.json")) as f:
        p = json.load(f)
    size = p.get("crop_size", p.get("size", 224))
    if p.get("do_center_crop") is False:
        size = p["size"]
    return ((size["height"], size["width"]) if isinstance(size, dict)
            else (size, size))


def make(name, directory, seed=1):
    family, _, variant = name.partition(":")
    if name not in MODELS:
        raise SystemExit("vision_ref: no %s (see list)" % name)
    config, tensors = globals()[family](seed, variant)
    os.makedirs(directory, exist_ok=True)
    for file, value in ("config", config), ("preprocessor_config",
                                            processor(name)):
        with open(os.path.join(directory, file + ".json"), "w") as f:
            json.dump(value, f, indent=2)
    encode = {"bfloat16": mkst.bf16, "float16": lambda t: np.asarray(t, "<f2"),
              "float32": lambda t: np.asarray(t, "<f4")}[
                  config.get("torch_dtype", "float32")]
    mkst.save(os.path.join(directory, "model.safetensors"), {
        x: t if t.dtype.kind == "i" else encode(t)
        for x, t in tensors.items()}, {"format": "pt"})


def png(samples, depth, color, palette=None, trns=None, interlace=False,
        more=()):
    """A PNG file of samples [height, width, channels], by all five filters."""
    h, w, n = samples.shape
    step = max(n * depth // 8, 1)

    def packed(a):
        if depth == 16:
            return a.astype(">u2").reshape(len(a), -1).view(np.uint8)
        a = a.reshape(len(a), -1).astype(np.uint8)
        bits = np.unpackbits(a[..., None], -1)[..., 8 - depth:]
        return np.packbits(bits.reshape(len(a), -1), -1)

    def filtered(a):
        out, above = b"", np.zeros(a.shape[1], int)
        for y, row in enumerate(a.astype(int)):
            left, corner = (np.concatenate([np.zeros(step, int), r])[:len(row)]
                            for r in (row, above))
            p = left + above - corner
            da, db, dc = (abs(p - z) for z in (left, above, corner))
            paeth = np.where((da <= db) & (da <= dc), left,
                             np.where(db <= dc, above, corner))
            guess = [0 * row, left, above, (left + above) // 2, paeth][y % 5]
            out += bytes([y % 5]) + ((row - guess) % 256).astype(
                np.uint8).tobytes()
            above = row
        return out

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    passes = [(0, 0, 1, 1)]
    if interlace:
        passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4),
                  (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    parts = [samples[y::dy, x::dx] for y, x, dy, dx in passes]
    raw = b"".join(filtered(packed(a)) for a in parts if a.size)
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(
        ">IIBBBBB", w, h, depth, color, 0, 0, bool(interlace)))
    for kind, data in more:
        out += chunk(kind, data)
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    if trns is not None:
        out += chunk(b"tRNS", trns)
    z = zlib.compress(raw)
    return (out + chunk(b"IDAT", z[:40]) + chunk(b"IDAT", z[40:])
            + chunk(b"IEND", b""))


def scene(rng, h, w, channels=3, most=255):
    """Waves with some noise: [h, w, channels] of 0..most."""
    y, x = np.mgrid[:h, :w][..., None] / 9
    a = np.sin(x * rng.uniform(0.3, 2, channels) + rng.uniform(0, 6, channels)
               ) + np.cos(y * rng.uniform(0.3, 2, channels))
    a = a / 4 + 0.5 + rng.normal(0, 0.06, a.shape)
    return np.clip(np.rint(a * most), 0, most).astype(int)


def all_png(rng):
    """name, bytes: each type and depth, some interlaced."""
    for color, n, depths in ((0, 1, (1, 2, 4, 8, 16)), (2, 3, (8, 16)),
                             (3, 1, (1, 2, 4, 8)), (4, 2, (8, 16)),
                             (6, 4, (8, 16))):
        for depth in depths:
            h, w = rng.integers(30, 70, 2)
            most = 2 ** depth - 1
            a, palette, trns = scene(rng, h, w, n, most), None, None
            if color == 3:
                palette = rng.integers(0, 256, (most + 1, 3))
                trns = bytes(rng.integers(0, 256, most).tolist())
            elif color in (0, 2) and depth == 8:
                trns = struct.pack(">%dH" % n, *a[0, 0])
            yield "type%d-%02d.png" % (color, depth), png(
                a, depth, color, palette, trns, depth in (2, 8))


def pictures(root, seed=1):
    """Classes whose order is not that of paths; files that are no pictures."""
    rng = np.random.default_rng(seed)
    places = ("a", "a-b", "a/z", "a/b", "Z", "c/d/e")
    for place in places + ("empty", "words"):
        os.makedirs(os.path.join(root, place), exist_ok=True)

    def path(name):
        path.n += 1
        return os.path.join(root, places[path.n % len(places)], name)
    path.n = 0
    for name, data in all_png(rng):
        with open(path(name), "wb") as f:
            f.write(data)
    for name, shape, mode, options in (
            ("grey.jpg", (41, 67, 1), "L", {}),
            ("half.JPEG", (67, 41, 3), "RGB", dict(subsampling="4:2:0")),
            ("wide.jpeg", (33, 90, 3), "RGB", dict(subsampling="4:2:2")),
            ("whole.JPG", (52, 52, 3), "RGB", dict(subsampling="4:4:4")),
            ("steps.jpg", (50, 39, 3), "RGB", dict(progressive=True)),
            ("ink.jpg", (40, 48, 4), "CMYK", {})):
        a = scene(rng, *shape).astype(np.uint8)
        Image.fromarray(a[..., 0] if mode == "L" else a, mode).save(
            path(name), quality=90, **options)
    for turn in 3, 6, 7:
        exif = Image.Exif()
        exif[0x112] = turn
        Image.fromarray(scene(rng, 45, 61).astype(np.uint8)).save(
            path("turned%d.jpg" % turn), exif=exif, quality=90)
    Image.fromarray(scene(rng, 20, 300).astype(np.uint8)).save(
        path("strip.PNG"))
    Image.fromarray(scene(rng, 9, 7).astype(np.uint8)).save(path("tiny.png"))
    Image.fromarray(scene(rng, 48, 48).astype(np.uint8)).save(
        os.path.join(root, "top.png"))
    for name in "words/notes.txt", "a/README", "Z/labels.csv":
        with open(os.path.join(root, name), "w") as f:
            f.write("no picture\n")
