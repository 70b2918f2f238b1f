# SPDX-License-Identifier: ISC
"""inputs.py DIR: small inputs of every tool, for scripts/faults.sh."""
import json
import os
import shutil
import sys

import numpy as np

REF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ref")
sys.path.insert(0, os.path.abspath(REF))
directory = sys.argv.pop(1)
import kvc_model  # noqa: E402
import kvc_pth  # noqa: E402
import kvc_ref  # noqa: E402
import lora_cases  # noqa: E402
import lut_apply_ref  # noqa: E402
import lut_cases  # noqa: E402
import lut_model  # noqa: E402
import lut_ref  # noqa: E402
import mkst  # noqa: E402
import moe  # noqa: E402
import moe_train  # noqa: E402
import saev_dump  # noqa: E402
import tiny_models  # noqa: E402
import vision_models  # noqa: E402

os.makedirs(directory)
os.chdir(directory)
rng = np.random.default_rng(8)

# safetensors: two files that differ, and one that was cut
two = {"a": np.arange(7, dtype="<i4"),
       "b": rng.standard_normal((3, 5)).astype("<f4")}
mkst.save("two.safetensors", two, {"format": "pt"})
mkst.save("other.safetensors", dict(two, b=two["b"] + 1))
shutil.copy("two.safetensors", "cut.safetensors")
os.truncate("cut.safetensors", os.path.getsize("cut.safetensors") - 3)

# models: m with tables of all layers, one in shards, and autoencoders
lut_model.make("m", lut_model.SINGLE)
config = tiny_models.config_of("llama", num_hidden_layers=1)
tiny_models.write_model("shards", config,
                        tiny_models.weights_of(config, rng), shards=2)
lut_cases.make("cases")
shutil.move("cases/model", "shards2")
for layer in "self_attn.q_proj", "mlp.up_proj":
    layer = "layers.0." + layer
    shutil.move("cases/sparsify/" + layer, "saes/" + layer)
shutil.rmtree("cases")
kvc_ref.save("c.bin", kvc_model.average(3, 8, 2), 8, 2)

# activations
saev_dump.dump("dump")
saev_dump.dump("unsound")
os.truncate("unsound/acts000001.bin", 470)
saev_dump.dump("labelled", protocol="1.1")
with open("labelled/shards.json", "w") as f:
    json.dump([{"name": "acts%06d.bin" % i, "n_imgs": n}
               for i, n in enumerate((3, 3, 1))], f)
with open("labelled/labels.bin", "wb") as f:
    f.write(bytes(20))  # of 21
saev_dump.dump("listed")
with open("listed/manifest.xxh3", "w") as f:
    f.write("%032x  acts000000.bin\n" % 1)
saev_dump.dump("large", d=128, n=1500, p=1, imgs_a_shard=700)
a = saev_dump.numbers(saev_dump.meta())
a.tofile("a.f32")
np.save("ids.npy", np.zeros((a.shape[0], a.shape[2]), "<i4"))
a[:3].tofile("first")
np.save("a.npy", a)
np.save("acts.npy", rng.standard_normal((3, 2, 4, 6)).astype("<f4"))
np.save("wide-ids.npy", np.arange(18, dtype="<i4").reshape(3, 6))
np.save("wide.npy", rng.standard_normal((18, config["hidden_size"]), "f4"))
with open("saev.json", "w") as f:
    json.dump(saev_dump.meta(), f)
np.save("rows.npy", np.array([5, 0, 7, 7]))
with open("rows", "w") as f:
    f.write("5\n0-3\n7\n")

# tables, caches, adapters
lut_apply_ref.Case("over_case", rows=6, over="each")
case = lut_apply_ref.Case("case", rows=6)
np.save("x.npy", case.x)
state, values = kvc_pth.build()
for name, how in (("c.pth", {}), ("deflated.pth", {"method": 8})):
    with open(name, "wb") as f:
        f.write(kvc_pth.archive(state, **how))
for name, seed in ("k.bin", 0), ("k2.bin", 1):
    mlps = kvc_ref.random_mlps(np.random.default_rng(seed), 2, 4, 8, 5, 24, 12)
    kvc_ref.save(name, mlps, 8, 5)
sizes = dict(E=3, k=2, H=24, I=20, r=2, qlen=9)
here = os.getcwd()
moe_train.make("e", **sizes)
os.chdir(here)
moe.save_all("e", **sizes)

# a model of experts with adapters: PEFT's, a stacked file, a directory of both
lora = lora_cases.Case(".", "l", rng, tiny_models.config_of(
    "qwen3_moe", decoder_sparse_step=2, **tiny_models.EXPERTS), 3)
lora.peft(lora_cases.layers(["self_attn.q_proj"]))
lora.stacked(1, 5, 32, "BF16", {"lora_alpha": "32"})
shutil.copytree("l/lora0", "l/both")
shutil.copy("l/lora1", "l/both/lora.safetensors")

# a vision encoder and pictures of all kinds
vision_models.make("siglip", "siglip")
vision_models.pictures("pics")

with open("text", "w") as f:
    f.write("1+1=2\nThe sun is a star.\n")
with open("p.jsonl", "w") as f:
    for i, text in enumerate(("1+1=", "The sun", "Hello")):
        f.write(json.dumps({"id": i, "prompt": text}) + "\n")
with open("e/peft/adapter_config.json") as f:
    config = json.load(f)
config["rank_pattern"] = {"no.such.module": 4}
with open("e/peft/adapter_config.json", "w") as f:
    json.dump(config, f)
