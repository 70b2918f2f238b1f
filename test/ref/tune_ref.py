# SPDX-License-Identifier: ISC
"""tune_ref.py steps MODEL DATA N [NAME=VALUE...]: moe-sft tune's N steps in numpy.

Each step's gradients are those that moe-sft tune --grads gives for its lines,
from the adapter so far; AdamW, clipping, the schedule and the order of lines
are done here, and the adapter and the log compared with those of moe-sft tune.
"""
import json
import math
import os
import subprocess
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst  # noqa: E402


def f32(x):
    return x.astype(np.float32).astype(np.float64)


def rate(step, total, o):
    """transformers' get_*_schedule_with_warmup."""
    warmup = int(o["warmup"])
    if step < warmup:
        return o["lr"] * step / max(1, warmup)
    if o["schedule"] == "constant":
        return o["lr"]
    if o["schedule"] == "linear":
        return o["lr"] * max(0.0, (total - step) / max(1, total - warmup))
    return o["lr"] * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))


def idle(g, k):
    """An expert's projection that no token has reached has no gradient: torch
    leaves it as it is."""
    other = k.replace(".lora_A.", ".lora_B.") if ".lora_A." in k else k.replace(".lora_B.", ".lora_A.")
    return ".experts." in k and not g[k].any() and not g[other].any()


def steps(model, data, total, o):
    lines = [l for l in open(data) if l.strip()]
    command = ["moe-sft", "tune", "-m", model, "--compute", "f32"]
    options = ["-n", str(total), "--lr", repr(o["lr"]), "--batch", str(o["batch"]),
               "--accumulate", str(o["accumulate"]), "--schedule", o["schedule"], "--warmup", str(o["warmup"]),
               "--clip", repr(o["clip"]), "--weight-decay", repr(o["decay"]), "--seed", str(o["seed"])]
    if o["shuffle"]:
        options.append("--shuffle")
    subprocess.run(["rm", "-rf", "want", "peft", "g.safetensors"], check=True)
    subprocess.run(command + ["-d", data, "-o", "want", "--rank", "4"] + options, check=True)
    # where it begins
    subprocess.run(command + ["-d", data, "-o", "peft", "--rank", "4", "-n", "1", "--lr", "0",
                              "--seed", str(o["seed"])], check=True)
    p = {k: v.astype(np.float64) for k, v in mkst.read("peft/adapter_model.safetensors")[0].items()}
    m = {k: np.zeros_like(v) for k, v in p.items()}
    v = {k: np.zeros_like(x) for k, x in p.items()}
    each = o["batch"] * o["accumulate"]
    n_idle = 0
    per_epoch = -(-len(lines) // each)
    log = [l.rstrip("\n").split("\t") for l in open("want/log.tsv")][1:]
    assert len(log) == total
    for step in range(total):
        order = list(range(len(lines)))
        if o["shuffle"]:
            words = np.random.Philox(key=[o["seed"], step // per_epoch]).random_raw(len(lines))
            order = list(np.argsort(words))
        first = step % per_epoch * each
        chosen = order[first:first + each]
        with open("step.jsonl", "w") as f:
            f.writelines(lines[i] for i in chosen)
        subprocess.run(command + ["-d", "step.jsonl", "--init", "peft", "--grads", "g.safetensors", "-f",
                                  "--batch", str(each)], check=True)
        g = {k: x.astype(np.float64) for k, x in mkst.read("g.safetensors")[0].items()}
        loss = float(g.pop("loss"))
        norm = math.sqrt(sum((x * x).sum() for x in g.values()))
        scale = min(1.0, o["clip"] / (norm + 1e-6)) if o["clip"] else 1.0
        lr, t = rate(step, total, o), step + 1
        said = [float(x) for x in log[step]]
        for name, want, found in (("loss", loss, said[1]), ("lr", lr, said[2]), ("grad_norm", norm, said[3])):
            assert abs(want - found) <= 1e-6 * abs(want), (step, name, want, found)
        for k in p:  # each kept as f32, of a step in f64
            if idle(g, k):
                n_idle += 1
                continue
            x = g[k] * scale
            m64 = 0.9 * m[k] + 0.1 * x
            v64 = 0.999 * v[k] + 0.001 * x * x
            step64 = (m64 / (1 - 0.9 ** t)) / (np.sqrt(v64 / (1 - 0.999 ** t)) + 1e-8)
            p[k] = f32(p[k] * (1 - lr * o["decay"]) - lr * step64)
            m[k], v[k] = f32(m64), f32(v64)
        mkst.save("peft/adapter_model.safetensors", {k: x.astype(np.float32) for k, x in p.items()})
    found = mkst.read("want/adapter_model.safetensors")[0]
    for k in p:
        off = np.linalg.norm(found[k] - p[k]) / np.linalg.norm(p[k])
        assert off < 1e-6, (k, off)
    if n_idle:
        print(n_idle // 2, "pairs of matrices did not move")


if __name__ == "__main__":
    options = dict(lr=1e-3, batch=8, accumulate=1, schedule="constant", warmup=0, clip=1.0, decay=0.0,
                   shuffle=0, seed=0)
    for arg in sys.argv[5:]:
        name, value = arg.split("=")
        options[name] = type(options[name])(value)
    if sys.argv[1] == "steps":
        steps(sys.argv[2], sys.argv[3], int(sys.argv[4]), options)
