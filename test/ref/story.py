# SPDX-License-Identifier: ISC
"""What the tests of tensorutils(7) need and no tool makes.

    story.py trainer DIR < ROWS.f32    a TopK SAE of rows of 128 numbers, for
                                       batch.mk
    story.py random DIR                one that has learnt nothing
    story.py compressor C.pth          demo/compressor.pth: of a KV cache, the
                                       mean of two tokens, for --head-dim 32
    story.py jsonl TEXT                its documents, one JSON object a line
    story.py damage MODEL              zeros in layer 0's down_proj of experts

The trainer needs no gradients: its latents are the principal axes of the
rows, in both directions, of which a row uses the 32 largest.
"""
import collections
import json
import os
import struct
import sys

import numpy as np

D, K = 128, 32


def write_sae(directory, axes, mean):
    from lut_ref import write_sae as write
    both = np.concatenate([axes, -axes])
    write(directory, "sparsify", dict(encoder_weight=both,
                                      encoder_bias=np.zeros(len(both)),
                                      decoder_weight=both, decoder_bias=mean), K)


def trainer(directory):
    rows = np.frombuffer(sys.stdin.buffer.read(), "<f4").reshape(-1, D).astype("f8")
    rows = rows[rows.any(1)]  # zeros are padding
    assert len(rows) > 10 * D, "too few rows: %d" % len(rows)
    mean = rows.mean(0)
    write_sae(directory, np.linalg.eigh(np.cov((rows - mean).T))[1].T, mean)


def random(directory):
    axes = np.random.default_rng(0).standard_normal((D, D))
    write_sae(directory, axes / np.linalg.norm(axes, axis=1, keepdims=True), np.zeros(D))


def compressor(path):
    from kvc_model import average
    from pth_make import Storage, Tensor, archive
    state = collections.OrderedDict()
    weights = [w for w, _ in average(1, 32, 2)[0][0]] # the same in all layers
    storages = [Storage(np.ascontiguousarray(w).reshape(-1), "FloatStorage") for w in weights]
    for layer in range(4):
        for prefix in ("compress_tk", "compress_tv"):
            for slot, w, s in zip((0, 3, 6), weights, storages):
                name = "%s.%d.%d.weight" % (prefix, layer, slot)
                state[name] = Tensor(s, 0, w.shape, (w.shape[1], 1))
    with open(path, "wb") as f:
        f.write(archive({"compressor": state}))


def damage(model):
    with open(os.path.join(model, "model.safetensors"), "r+b") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        for name, t in json.loads(f.read(n)).items():
            if name.startswith("model.layers.0.mlp.experts.") and "down_proj" in name:
                begin, end = t["data_offsets"]
                f.seek(8 + n + begin)
                f.write(bytes(end - begin))


def jsonl(path):
    with open(path, newline="") as f:
        for text in f.read().split("<|endoftext|>"):
            print(json.dumps({"text": text}))


if __name__ == "__main__":
    {"trainer": trainer, "random": random, "compressor": compressor,
     "jsonl": jsonl, "damage": damage}[sys.argv[1]](sys.argv[2])
