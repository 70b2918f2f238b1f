# SPDX-License-Identifier: ISC
"""vision_ref.py list | make NAME DIR | pictures DIR | trap [NAME...] |
pixels DIR SRC... -o F.npy | acts DIR POINT SRC... -o F.npy |
features DIR SRC... -o F.npy | check REF.npy GOT [TOLERANCE] | order DIR

Vision encoders in float64, from the formulas of transformers.  SRC is pictures,
or one .npy of pixel values [n, 3, height, width].  'make' writes a tiny random
model (vision_models.py), 'pictures' a directory of all kinds of small pictures.
POINT is resid:N (-1: what the first block gets), attn:N, mlp:N, in_qkv:N,
in_o:N, in_up:N, in_down:N or norm: rows [image, token, dim] of CLS and patches,
registers left out.  'check' exits 1 where GOT (.npy or raw f32) is further off
than 2e-4 max(1, max|REF| / 5), or TOLERANCE.  'trap' prints for each way to
read a model wrongly how many times that its rows would be off in the model that
shows it best (of activations and epsilons: in each model), and exits 1 where
this is less than 20.  'order' lists a directory as ImageFolder does.
"""
import argparse
import json
import math
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402
import vision_models  # noqa: E402
import vision_pixels  # noqa: E402

erf = np.vectorize(math.erf, otypes=[float])
ACTS = {
    "quick_gelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "gelu": lambda x: x * (1 + erf(x / math.sqrt(2))) / 2,
    "gelu_pytorch_tanh": lambda x: x / 2 * (1 + np.tanh(
        math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}
BASE = dict(hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
            image_size=224)
CLIP = dict(BASE, intermediate_size=3072, patch_size=32,
            hidden_act="quick_gelu", layer_norm_eps=1e-5)
DINOV2 = dict(BASE, mlp_ratio=4, patch_size=14, hidden_act="gelu",
              layer_norm_eps=1e-6, use_swiglu_ffn=False)
DEFAULTS = {
    "clip": CLIP,
    "siglip": dict(CLIP, patch_size=16, hidden_act="gelu_pytorch_tanh",
                   layer_norm_eps=1e-6, vision_use_head=True),
    "dinov2": DINOV2,
    "dinov2_with_registers": dict(DINOV2, patch_size=16,
                                  num_register_tokens=4),
    "dinov3_vit": dict(hidden_size=384, intermediate_size=1536,
                       num_hidden_layers=12, num_attention_heads=6,
                       image_size=224, patch_size=16, hidden_act="gelu",
                       layer_norm_eps=1e-5, rope_theta=100.0,
                       num_register_tokens=0, use_gated_mlp=False),
    "vit": dict(CLIP, patch_size=16, hidden_act="gelu", layer_norm_eps=1e-12),
}
SELF = {x: "self_attn.%s_proj" % x for x in "qkv"}
QUERY = dict(q="attention.attention.query", k="attention.attention.key",
             v="attention.attention.value", o="attention.output.dense")
CLIP_NAMES = dict(SELF, layer="encoder.layers.%d.", ln1="layer_norm1",
                  o="self_attn.out_proj", ln2="layer_norm2", up="mlp.fc1",
                  down="mlp.fc2", cls="embeddings.class_embedding",
                  pos="embeddings.position_embedding.weight",
                  patch="embeddings.patch_embedding", final="post_layernorm")
TOKENS = dict(cls="embeddings.cls_token", pos="embeddings.position_embeddings",
              patch="embeddings.patch_embeddings.projection",
              registers="embeddings.register_tokens")
NORMS = dict(ln1="norm1", ln2="norm2", ls1="layer_scale1.lambda1",
             ls2="layer_scale2.lambda1", up="mlp.fc1", down="mlp.fc2")
DINOV2_NAMES = dict(TOKENS, **NORMS, **QUERY, layer="encoder.layer.%d.",
                    fused="mlp.weights_in", fused_down="mlp.weights_out",
                    final="layernorm")
NAMES = {
    "clip": dict(CLIP_NAMES, before="pre_layrnorm"),
    "siglip": CLIP_NAMES,
    "dinov2": DINOV2_NAMES,
    "dinov2_with_registers": DINOV2_NAMES,
    "dinov3_vit": dict(
        dict(TOKENS, **NORMS), patch="embeddings.patch_embeddings",
        q="attention.q_proj", k="attention.k_proj", v="attention.v_proj",
        o="attention.o_proj", gate="mlp.gate_proj", up="mlp.up_proj",
        down="mlp.down_proj", layer="layer.%d.", final="norm"),
    "vit": dict(TOKENS, **QUERY, layer="encoder.layer.%d.",
                ln1="layernorm_before", ln2="layernorm_after",
                up="intermediate.dense", down="output.dense",
                final="layernorm"),
}
WRONG = {
    "act": "another activation", "eps": "another family's epsilon",
    "antialias": "the other interpolation of positions",
    "scale-factor": "positions interpolated by (n + 0.1) / N",
    "trained": "the trained positions without interpolation",
    "no-layer-scale": "none", "heads": "half as many heads",
    "registers-first": "positions by place, registers counted",
    "rope-swapped": "w before h", "rope-pairs": "neighbours rotated",
    "rope-all": "CLS and registers rotated", "rope-corner": "i, not i + .5",
    "theta": "RoPE's theta 10000", "halves": "SwiGLU's halves exchanged",
    "no-bias": "q, k, v without", "no-before": "no pre_layrnorm",
    "patches": "column by column", "channels": "BGR", "conv-bias": "none",
    "post-norm": "the last residual after the norm",
}


class Model:
    """A directory: family, c (its keys, defaults filled in), t (tensors)."""

    def __init__(self, directory, wrong=()):
        with open(os.path.join(directory, "config.json")) as f:
            c = json.load(f)
        kind = c["model_type"]
        self.whole = kind in ("clip", "siglip")
        if self.whole:
            c = c.get("vision_config_dict") or c["vision_config"]
        self.family = kind.replace("_vision_model", "")
        self.c = dict(DEFAULTS[self.family], **c)
        self.wrong, self.names = set(wrong), NAMES[self.family]
        self.t = {}
        for name, x in mkst.read(
                os.path.join(directory, "model.safetensors"))[0].items():
            name = re.sub("^(vision_model|vit|dinov2(_with_registers)?)[.]", "",
                          name)
            name = re.sub("^model[.]layer[.]", "layer.", name)
            assert name not in self.t, name
            self.t[name] = x
        if "act" in wrong:
            self.c["hidden_act"] = {
                "gelu": "gelu_pytorch_tanh", "silu": "gelu"}.get(
                    self.c["hidden_act"], "gelu")
        if "eps" in wrong:
            self.c["layer_norm_eps"] = {1e-6: 1e-5}.get(
                self.c["layer_norm_eps"], 1e-6)
        if "heads" in wrong:
            self.c["num_attention_heads"] //= 2
        self.n_registers = (self.c.get("num_register_tokens") or 0)
        self.cls = self.family != "siglip"

    def get(self, which, layer=""):
        return self.t.get(layer + self.names[which]) if (
            which in self.names) else None

    def linear(self, x, name):
        # row by row, for which Debian's BLAS takes half of the time
        y = x @ np.ascontiguousarray(self.t[name + ".weight"].T)
        return y + self.t.get(name + ".bias", 0)

    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True)
                        + self.c["layer_norm_eps"])
        return x * self.t[name + ".weight"] + self.t[name + ".bias"]


def plain_bicubic(n_in, n_out, scale=None):
    """torch's bicubic: a = -0.75, taps clamped to the ends, no antialias."""
    m, weight = np.zeros((n_out, n_in)), vision_pixels.cubic(-0.75)
    for i in range(n_out):
        c = (i + 0.5) * (scale or n_in / n_out) - 0.5
        for j in range(math.floor(c) - 1, math.floor(c) + 3):
            m[i, min(max(j, 0), n_in - 1)] += weight(j - c)
    return m


def positions(m, gh, gw):
    """Of CLS (if there is one), and of a gh x gw grid of patches."""
    pos = m.get("pos")
    pos = pos.reshape(-1, pos.shape[-1])
    first, pos = pos[:m.cls], pos[m.cls:]
    n = math.isqrt(len(pos))
    assert n * n == len(pos)
    if "trained" in m.wrong:
        return np.concatenate([first, np.resize(pos, (gh * gw, pos.shape[1]))])
    if (m.family == "dinov2_with_registers") != ("antialias" in m.wrong):
        by = [vision_pixels.antialias(n, g, 2, vision_pixels.cubic(-0.5))
              for g in (gh, gw)]
    else:
        by = [plain_bicubic(n, g, n / (g + 0.1) if "scale-factor" in m.wrong
                            else None) for g in (gh, gw)]
    grid = np.einsum("ia,abd,jb->ijd", by[0], pos.reshape(n, n, -1), by[1])
    return np.concatenate([first, grid.reshape(gh * gw, -1)])


def embed(m, pixels):
    p = m.c["patch_size"]
    if "channels" in m.wrong:
        pixels = pixels[::-1]
    gh, gw = pixels.shape[1] // p, pixels.shape[2] // p
    x = pixels[:, :gh * p, :gw * p].reshape(3, gh, p, gw, p)
    x = x.transpose(1, 3, 0, 2, 4)
    if "patches" in m.wrong:
        x = x.swapaxes(0, 1)
    x = x.reshape(gh * gw, 3 * p * p)
    name = m.names["patch"]
    x = x @ m.t[name + ".weight"].reshape(-1, 3 * p * p).T
    if "conv-bias" not in m.wrong:
        x = x + m.t.get(name + ".bias", 0)
    if m.cls:
        x = np.concatenate([m.get("cls").reshape(1, -1), x])
    if m.get("pos") is not None:
        x = x + positions(m, gh, gw)
    if m.n_registers:
        registers = m.get("registers").reshape(m.n_registers, -1)
        if "registers-first" in m.wrong and m.get("pos") is not None:
            registers = registers + m.get("pos").reshape(
                -1, x.shape[1])[1:1 + m.n_registers]
        x = np.concatenate([x[:1], registers, x[1:]])
    if "before" in m.names and "no-before" not in m.wrong:
        x = m.norm(x, m.names["before"])
    return x, gh, gw


def rotate(m, x, gh, gw):
    """x [tokens, heads, d]: the patches by where they are."""
    d = x.shape[-1]
    theta = 10000 if "theta" in m.wrong else m.c["rope_theta"]
    f = theta ** (-4 * np.arange(d // 4) / d)
    half = 0 if "rope-corner" in m.wrong else 0.5
    h = np.repeat(2 * (np.arange(gh) + half) / gh - 1, gw)
    w = np.tile(2 * (np.arange(gw) + half) / gw - 1, gh)
    if "rope-swapped" in m.wrong:
        h, w = w, h
    angle = 2 * np.pi * np.concatenate([np.outer(h, f), np.outer(w, f)], 1)
    first = len(x) - gh * gw
    if "rope-all" in m.wrong:
        first, angle = 0, np.resize(angle, (len(x), d // 2))
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    y = x.copy()
    if "rope-pairs" in m.wrong:
        a, b = x[first:, :, ::2], x[first:, :, 1::2]
        y[first:, :, ::2] = a * cos - b * sin
        y[first:, :, 1::2] = b * cos + a * sin
        return y
    a, b = x[first:, :, :d // 2], x[first:, :, d // 2:]
    y[first:] = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    return y


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attend(q, k, v):
    """[tokens, heads, d] each, without a mask."""
    scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(q.shape[-1])
    return np.einsum("hqk,khd->qhd", softmax(scores), v).reshape(len(q), -1)


def mlp(m, x, at, seen, i):
    act = ACTS[m.c["hidden_act"]]
    n = m.names
    if m.c.get("use_swiglu_ffn"):
        a, b = np.split(m.linear(x, at + n["fused"]), 2, 1)
        a, b = (b, a) if "halves" in m.wrong else (a, b)
        seen["in_down:%d" % i] = inner = ACTS["silu"](a) * b
        return m.linear(inner, at + n["fused_down"])
    inner = m.linear(x, at + n["up"])
    if m.c.get("use_gated_mlp"):
        inner = act(m.linear(x, at + n["gate"])) * inner
    else:
        inner = act(inner)
    seen["in_down:%d" % i] = inner
    return m.linear(inner, at + n["down"])


def block(m, x, i, gh, gw, seen):
    at, n, heads = m.names["layer"] % i, m.names, m.c["num_attention_heads"]
    y = seen["in_qkv:%d" % i] = m.norm(x, at + n["ln1"])
    q, k, v = ((y @ m.t[at + n[z] + ".weight"].T if "no-bias" in m.wrong else
                m.linear(y, at + n[z])).reshape(len(x), heads, -1)
               for z in "qkv")
    if m.family == "dinov3_vit":
        q, k = rotate(m, q, gh, gw), rotate(m, k, gh, gw)
    seen["in_o:%d" % i] = z = attend(q, k, v)
    scaled = "ls1" in n and "no-layer-scale" not in m.wrong
    y = m.linear(z, at + n["o"]) * (m.get("ls1", at) if scaled else 1)
    seen["attn:%d" % i] = y
    x = x + y
    seen["in_up:%d" % i] = y = m.norm(x, at + n["ln2"])
    y = mlp(m, y, at, seen, i) * (m.get("ls2", at) if scaled else 1)
    seen["mlp:%d" % i] = y
    seen["resid:%d" % i] = x + y
    return x + y


def map_head(m, x):
    """SigLIP's: a learned query over all patches, by torch's module."""
    w, b = (m.t["head.attention.in_proj_" + z] for z in ("weight", "bias"))
    heads, at = m.c["num_attention_heads"], np.split(w, 3)
    q, k, v = ((y @ a.T + c).reshape(len(y), heads, -1) for y, a, c in zip(
        (m.t["head.probe"].reshape(1, -1), x, x), at, np.split(b, 3)))
    a = m.linear(attend(q, k, v), "head.attention.out_proj")
    y = ACTS[m.c["hidden_act"]](m.linear(m.norm(a, "head.layernorm"),
                                         "head.mlp.fc1"))
    return (a + m.linear(y, "head.mlp.fc2"))[0]


def features(m, x):
    """x: after the final norm."""
    if m.family == "siglip":
        if m.c["vision_use_head"]:
            return map_head(m, x)
        return x.mean(0)
    if "visual_projection.weight" in m.t:
        return m.linear(x[0], "visual_projection")
    if "pooler.dense.weight" in m.t:
        return np.tanh(m.linear(x[0], "pooler.dense"))
    return x[0]


def forward(m, pixels):
    """The places of one image -> its rows, of all tokens; and "features"."""
    x, gh, gw = embed(m, pixels)
    seen = {"resid:-1": x}
    for i in range(m.c["num_hidden_layers"]):
        x = block(m, x, i, gh, gw, seen)
    seen["norm"] = m.norm(x, m.names["final"])
    if "post-norm" in m.wrong:
        seen["resid:%d" % i] = seen["norm"]
    seen["features"] = features(m, seen["norm"])
    return seen


def rows(m, pixels, point, cls=True):
    """[image, token, dim] as SAEV has them; features: [image, dim]."""
    out = []
    for x in pixels:
        x = forward(m, x)[point]
        if point != "features":
            skip = m.cls + m.n_registers
            x = np.concatenate([x[:m.cls and cls], x[skip:]])
        out.append(x)
    return np.array(out)


def pixels_of(directory, files, size=None, exif=False):
    if len(files) == 1 and str(files[0]).endswith(".npy"):
        return np.load(files[0]).astype(np.float64)
    p = vision_pixels.processor(directory, size)
    return np.array([vision_pixels.pixel_values(p, vision_pixels.decode(
        f, exif)) for f in files])


def tolerance(ref):
    return 2e-4 * max(1, np.abs(ref).max() / 5)


def check(ref, got, most=None):
    """Prints the worst; False where it is more than may be.  got: an array, or
    a .npy or raw f32."""
    if not isinstance(got, np.ndarray):
        with open(got, "rb") as f:
            is_npy = f.read(6) == b"\x93NUMPY"
        got = np.load(got) if is_npy else np.fromfile(got, "<f4")
        if not is_npy and got.size == ref.size:
            got = got.reshape(ref.shape)
    if got.shape != ref.shape:
        print("%s (expected %s)" % (got.shape, ref.shape))
        return False
    off = np.abs(got - ref.astype(np.float64))
    off[~np.isfinite(off)] = np.inf
    at = np.unravel_index(off.argmax(), off.shape)
    most = most or tolerance(ref)
    print("worst at %s: %.7g (expected %.7g): %.2g of what may be" % (
        list(map(int, at)), got[at], ref[at], off[at] / most))
    return bool(off[at] <= most)


def trap(names):
    best = {}
    for name in names:
        with tempfile.TemporaryDirectory() as tmp:
            vision_models.make(name, tmp)
            x = np.random.default_rng(3).normal(0, 1, (3, *vision_models.used(
                tmp)))
            right = forward(Model(tmp), x)
            for wrong in ("act", "eps") if "defaults" in name else WRONG:
                try:
                    got = forward(Model(tmp, [wrong]), x)
                except (KeyError, ValueError):
                    continue
                off = max(np.abs(got[k] - right[k]).max() / tolerance(right[k])
                          for k in right if k[:5] in ("resid", "featu"))
                key = (wrong, name if wrong in ("act", "eps") else "")
                if off: # else it has none of that
                    best[key] = max(best.get(key, (0, "")), (off, name))
    for (wrong, _), (off, name) in sorted(best.items()):
        print("%s\t%.3g\t%s\t%s" % (wrong, off, name, WRONG[wrong]))
    return min(off for off, _ in best.values()) >= 20


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("verb", choices=(
        "list", "make", "pictures", "trap", "pixels", "acts", "features",
        "check", "order"))
    p.add_argument("names", nargs="*")
    p.add_argument("-o", dest="out")
    p.add_argument("--exif", action="store_true")
    p.add_argument("--no-cls", action="store_true")
    p.add_argument("--image-size", help="HxW or N")
    o = p.parse_intermixed_args()
    size = o.image_size and (o.image_size.split("x") * 2)[:2]
    size = size and tuple(map(int, size))
    if o.verb == "list":
        print("\n".join("%s\t%s" % x for x in vision_models.MODELS.items()))
    elif o.verb == "make":
        vision_models.make(*o.names)
    elif o.verb == "pictures":
        vision_models.pictures(o.names[0])
    elif o.verb == "trap":
        sys.exit(not trap(o.names or vision_models.MODELS))
    elif o.verb == "order":
        for i, row in enumerate(vision_pixels.image_folder(o.names[0])):
            print("%d\t%d\t%s\t%s" % (i, row[1], row[0], row[2]))
    elif o.verb == "check":
        sys.exit(not check(np.load(o.names[0]), o.names[1],
                           float(o.names[2]) if o.names[2:] else None))
    else:
        files = o.names[2 if o.verb == "acts" else 1:]
        x = pixels_of(o.names[0], files, size, o.exif)
        if o.verb != "pixels":
            x = rows(Model(o.names[0]), x,
                     o.names[1] if o.verb == "acts" else "features",
                     not o.no_cls)
        np.save(o.out, x)


if __name__ == "__main__":
    main()
