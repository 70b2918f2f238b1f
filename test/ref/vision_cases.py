# SPDX-License-Identifier: ISC
"""vision_cases.py DIR: for test/unit/vision.c, each tiny vision model at the
size that its processor makes, and at another one that is no square, and a
DINOv2 whose own size is no square: NAME is the model, NAME.I.size
"height width", NAME.I.x the pixels of three images, f32, and NAME.I.y what
float64 has at each place, of all images' tokens, as f32, as it is
computed: resid:-1, then in_qkv, in_o, attn, in_up, in_down, mlp, resid of each
layer, norm, features.  "refused" has lines NAME, tab, what is wrong with it."""
import json
import os
import sys

import numpy as np

import mkst
import vision_models
import vision_ref

POINTS = ("in_qkv", "in_o", "attn", "in_up", "in_down", "mlp", "resid")


# 16 positions, which are 4 x 4 to transformers: interpolated to their own size
WIDE = ("c['image_size'] = [2 * c['patch_size'], 8 * c['patch_size']]; "
        "x = 'embeddings.position_embeddings'; t[x] = t[x][:, :17]")
REFUSED = [  # a model, what is done to its config c and tensors t, the message
    ("vit", "t['vit.layernorm.weight'] = t['layernorm.weight']",
     ": layernorm.weight and vit.layernorm.weight are both there (expected one "
     "of them)"),
    ("clip", "t['encoder.layers.1.mlp.fc1.bias'] = np.ones(100)",
     ": encoder.layers.1.mlp.fc1.bias and vision_model.encoder.layers.1.mlp."
     "fc1.bias are both there (expected one of them)"),
    ("dinov3_vit:gated", "t['layer.0.norm1.bias'] = np.ones(48)",
     ": layer.0.norm1.bias and model.layer.0.norm1.bias are both there "
     "(expected one of them)"),
    ("dinov2", "del t['encoder.layer.2.layer_scale2.lambda1']",
     ": tensor encoder.layer.2.layer_scale2.lambda1 is missing"),
    ("vit", "t['encoder.layer.0.layer_scale1.lambda1'] = np.ones(48)",
     ": tensor encoder.layer.0.layer_scale1.lambda1 is in a layer that is "
     "computed, but vit has no such weight: it is another model's"),
    ("siglip", "del t['vision_model.head.probe']",
     ": tensor head.probe is missing"),
    ("clip", "del t['vision_model.embeddings.class_embedding']",
     ": tensor embeddings.class_embedding is missing"),
    ("vit", "x = 'embeddings.patch_embeddings.projection.weight'; t[x] = "
     "t[x].reshape(48, -1)", "/model.safetensors: embeddings.patch_embeddings."
     "projection.weight is [48, 108] (expected [48, 3, 6, 6] by "
     "config.json)"),
    ("vit", "c['patch_size'] = 8", "/model.safetensors: embeddings."
     "patch_embeddings.projection.weight is [48, 3, 6, 6] (expected "
     "[48, 3, 8, 8] by config.json)"),
    ("vit", "c['image_size'] = 30", "/model.safetensors: embeddings."
     "position_embeddings is [1, 17, 48] (expected [1, 26, 48] by "
     "config.json)"),
    ("vit", "c['image_size'] = 9000", "/config.json: image_size is 9000 "
     "(expected a whole number from 1 to 8192)"),
    ("vit", "c['patch_size'] = 25", "/config.json: patch_size is 25 (expected "
     "a whole number from 1 to 24)"),
    ("vit", "c['pooler_act'] = 'gelu'", "/config.json: pooler_act is \"gelu\" "
     "(expected tanh)"),
    ("vit", "c['num_channels'] = 1", "/config.json: num_channels is 1 "
     "(expected 3)"),
    ("vit", "c['num_attention_heads'] = 5", "/config.json: num_attention_heads "
     "is 5 (expected a divisor of hidden_size)"),
    ("dinov3_vit", "c['num_attention_heads'] = 8", "/config.json: "
     "num_attention_heads is 8 (expected a divisor of hidden_size, heads of 4 "
     "i numbers)"),
    ("dinov2", "c['mlp_ratio'] = .01", "/config.json: mlp_ratio is 0.01 "
     "(expected a ratio that makes 1 to 1048576 rows)"),
    ("vit", "c['hidden_act'] = 'mish'", '/config.json: hidden_act "mish" is '
     "not supported (silu, gelu, gelu_pytorch_tanh, relu, quick_gelu)"),
    ("clip", "c['vision_config'] = 3", "/config.json: vision_config is 3 "
     "(expected an object)"),
    ("siglip", "c['model_type'] = 'siglip2'", '/config.json: model_type '
     '"siglip2" is not supported ('),
    ("vit", "c['model_type'] = 'swin'", '/config.json: model_type "swin" is '
     "not supported ("),
    ("vit", "c.update(model_type='llama', vocab_size=9, architectures=None)",
     '/config.json: model_type "llama" is no vision encoder, and reads no '
     "images"),
    ("vit", "c['image_size'] = [12, 48]; x = 'embeddings.position_embeddings'; "
     "t[x] = t[x][:, :17]", ""),
    ("vit", "c['image_size'] = [12, 24]; x = 'embeddings.position_embeddings'; "
     "t[x] = t[x][:, :9]", ": has 2 x 4 positions, which are not a square and "
     "not interpolated to 5 x 5"),
    ("vit", "c['quantization_config'] = {'quant_method': 'hqq'}",
     '/config.json: quantization_config.quant_method "hqq" is not supported '
     '(fp8, compressed-tensors, awq, gptq, mxfp4; or weights in BF16, F16 or '
     'F32)'),
]


def spoil(path, name, what):
    vision_models.make(name, path)
    with open(path + "/config.json") as f:
        c = json.load(f)
    t = {k: np.asarray(v, "<f4") for k, v in
         mkst.read(path + "/model.safetensors")[0].items()
         if "position_ids" not in k}
    exec(what, {"c": c, "t": t, "np": np})
    with open(path + "/config.json", "w") as f:
        json.dump(c, f)
    mkst.save(path + "/model.safetensors", {
        k: np.asarray(v, "<f4") for k, v in t.items()}, {"format": "pt"})


def main():
    d = sys.argv[1]
    rng = np.random.default_rng(5)
    with open(os.path.join(d, "cases"), "w") as cases:
        for name in list(vision_models.MODELS) + ["wide"]:
            path = os.path.join(d, name)
            if name == "wide":
                spoil(path, "dinov2", WIDE)
            else:
                vision_models.make(name, path)
            m = vision_ref.Model(path)
            h, w = vision_models.used(path)
            p = m.c["patch_size"]
            sizes = ((h, w), (h + 2 * p - 1, w - p))
            if name.endswith(":defaults"):  # 224 x 224 takes most of the time
                sizes = ((h, w), (6 * p - 1, 3 * p))
            if name == "wide":
                sizes = (m.c["image_size"], (8 * p, 2 * p))
            for i, size in enumerate(map(tuple, sizes)):
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
                        np.array([s[place] for s in seen], "<f4").tofile(f)
            cases.write(name + "\n")
    with open(os.path.join(d, "refused"), "w") as refused:
        for i, (name, what, says) in enumerate(REFUSED):
            spoil("%s/bad.%d" % (d, i), name, what)
            refused.write("bad.%d\t%s\n" % (i, says))


main()
