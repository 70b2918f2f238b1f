#!/usr/bin/python3
"""Train a TopK SAE on rows from saev-read: sae.py DIR N K < ROWS.f32

    hf-infer MODEL --acts in:up_proj:1 --ctx 64 --file train.txt \
        --acts-meta meta.json | saev-write -m meta.json -o dumps
    saev-read --shuffle --seed 1 --raw dumps/HASH | ./sae.py DIR 1024 32

One pass over the rows, as they come: the shuffle is saev-read's.  DIR gets
EleutherAI sparsify's layout, weights in BF16.
"""
import json
import pathlib
import struct
import sys

import numpy as np
import torch

BATCH = 512
LR = 2e-3
SEED = 3


def read_rows(stream, n, d):
    raw = stream.read(n * d * 4)
    return torch.from_numpy(np.frombuffer(raw, "<f4").reshape(-1, d).copy())


class SAE(torch.nn.Module):
    """top_k(relu(E (x - b) + e)) D + b; E begins as D, of unit rows."""

    def __init__(self, n, d, k, mean):
        super().__init__()
        dec = torch.nn.functional.normalize(torch.randn(n, d), dim=1)
        self.dec = torch.nn.Parameter(dec)
        self.enc = torch.nn.Parameter(dec.clone())
        self.enc_bias = torch.nn.Parameter(torch.zeros(n))
        self.dec_bias = torch.nn.Parameter(mean)
        self.k = k

    def forward(self, x):
        z = torch.relu((x - self.dec_bias) @ self.enc.T + self.enc_bias)
        values, at = z.topk(self.k, dim=1)
        sparse = torch.zeros_like(z).scatter(1, at, values)
        return sparse @ self.dec + self.dec_bias


def save(path, tensors):
    """BF16 safetensors: the upper halves, rounded to nearest even."""
    header, data = {}, b""
    for name, t in sorted(tensors.items()):
        bits = t.detach().to(torch.bfloat16).view(torch.int16).numpy().astype("<i2").tobytes()
        header[name] = {"dtype": "BF16", "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(bits)]}
        data += bits
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main(directory, n, k):
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    stream, directory, d = sys.stdin.buffer, pathlib.Path(directory), 128
    first = read_rows(stream, 8 * BATCH, d)
    sae = SAE(n, d, k, first.mean(0))
    opt = torch.optim.Adam(sae.parameters(), LR)
    step, x = 0, first[:BATCH]
    while len(x) == BATCH:
        loss = (sae(x) - x).pow(2).sum()
        fvu = loss / (x - x.mean(0)).pow(2).sum()
        opt.zero_grad()
        fvu.backward()
        opt.step()
        with torch.no_grad():
            sae.dec /= sae.dec.norm(dim=1, keepdim=True)
        if step % 100 == 0:
            print("step %d: fvu %.4f" % (step, fvu), file=sys.stderr)
        step, x = step + 1, read_rows(stream, BATCH, d)
    directory.mkdir(parents=True, exist_ok=True)
    save(directory / "sae.safetensors", {
        "encoder.weight": sae.enc, "encoder.bias": sae.enc_bias,
        "W_dec": sae.dec, "b_dec": sae.dec_bias})
    (directory / "cfg.json").write_text(json.dumps({
        "activation": "topk", "expansion_factor": n // d, "num_latents": n, "k": k,
        "d_in": d, "normalize_decoder": True, "multi_topk": False,
        "skip_connection": False, "transcode": False}, indent=4) + "\n")
    print("%d steps, fvu %.4f" % (step, fvu), file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
