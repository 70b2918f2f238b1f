# SPDX-License-Identifier: ISC
"""Training a layer's adapter: data to learn from, and torch's way of it.

moe_train.py make DIR [NAME=VALUE...]  base, teacher and student (A of the
    teacher, B zero), b0 .. b3.safetensors whose target is what the teacher
    makes of them; x.npy, y.npy and hf/ for --input and --target
moe_train.py nan FILE OUT              a batch with a NaN in its target
moe_train.py compare DIR LOG STEPS NAME=VALUE... BATCH...
    trains student.safetensors of the working directory by torch's AdamW, in
    float64 but for the adapter, whose matrices are rounded to bf16 where they
    are used; prints what of DIR/state.safetensors and LOG is out of tolerance
"""
import math
import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import mkst
import moe

HYPER = dict(lr=1e-4, warmup=0, clip=0.0, wd=0.01, b1=0.9, b2=0.999, eps=1e-8,
             accumulate=1, schedule="constant")


def given(defaults, words):
    pairs = [w.split("=") for w in words]
    return {n: type(defaults[n])(v) for n, v in pairs}


def teach(name, batch, base, teacher, alpha):
    """Writes the batch with the teacher's output as its target."""
    batch.pop("grad_output")
    mkst.save(name, batch)
    tensors = moe.read(name)[0]
    target = moe.reference(base, teacher, alpha, tensors)["output"]
    batch["target"] = target.astype("<f4")
    mkst.save(name, batch)


def make(directory, **options):
    c = dict(moe.SIZES, **options)
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)
    moe.save_all(".", **options)
    os.rename("lora.safetensors", "teacher.safetensors")
    os.remove("batch.safetensors")
    base = moe.read("base.safetensors")[0]
    teacher, meta = moe.read("teacher.safetensors")
    student = {n: mkst.bf16(v * (n[-1] == "a")) for n, v in teacher.items()}
    mkst.save("student.safetensors", student, meta)
    for i in range(4):
        batch = moe.make(**dict(c, seed=100 + i))[2]
        teach("b%d.safetensors" % i, batch, base, teacher, c["alpha"])
    g = np.random.default_rng(9)
    for name in "xy":
        np.save(name + ".npy",
                g.standard_normal((70, c["H"])).astype("<f4"))


def spoil(name, out):
    tensors = {n: v for n, v in moe.read(name)[0].items()}
    tensors["target"][1, 2] = np.nan
    mkst.save(out, dict(input=mkst.bf16(tensors["input"]),
                        expert_ids=tensors["expert_ids"].astype("<i8"),
                        weights=tensors["weights"].astype("<f4"),
                        target=tensors["target"].astype("<f4")))


# ---- torch ----

def rate(h, step, total):
    """transformers' get_*_schedule_with_warmup."""
    if step < h["warmup"]:
        return h["lr"] * step / max(1, h["warmup"])
    past = (step - h["warmup"]) / max(1, total - h["warmup"])
    if h["schedule"] == "cosine":
        return h["lr"] * max(0.0, 0.5 * (1 + math.cos(math.pi * past)))
    return h["lr"] * (max(0.0, 1 - past) if h["schedule"] == "linear" else 1)


def forward(torch, base, masters, alpha, batch):
    lora = {}
    for n, p in masters.items():
        rounded = p.detach().to(torch.bfloat16).double()
        lora[n] = p + (rounded - p).detach()
    s = alpha / lora["gate_lora_a"].shape[1]
    x, ids, w = (torch.from_numpy(np.array(batch[n])) for n in (
        "input", "expert_ids", "weights"))
    out = torch.zeros(x.shape, dtype=torch.float64)
    for e in range(len(base["gate_proj"])):
        def project(p, v):
            y = v @ base[p + "_proj"][e].T
            return y + s * ((v @ lora[p + "_lora_a"][e].T)
                            @ lora[p + "_lora_b"][e].T)
        h = torch.nn.functional.silu(project("gate", x)) * project("up", x)
        out = out + (w * (ids == e)).sum(1, keepdim=True) * project("down", h)
    return out


def train(steps, h, files):
    """The log's columns, and the masters."""
    import torch
    base = {n: torch.from_numpy(np.array(v))
            for n, v in moe.read("base.safetensors")[0].items()}
    tensors, meta = moe.read("student.safetensors")
    batches = [moe.read(f)[0] for f in files]
    masters = {n: torch.from_numpy(np.array(v)).requires_grad_()
               for n, v in tensors.items()}
    adamw = torch.optim.AdamW(list(masters.values()), h["lr"],
                              (h["b1"], h["b2"]), h["eps"], h["wd"])
    rows, n = [], 0
    for step in range(steps):
        adamw.param_groups[0]["lr"] = rate(h, step, steps)
        adamw.zero_grad()
        total = 0
        for _ in range(h["accumulate"]):
            b = batches[n % len(batches)]
            n += 1
            out = forward(torch, base, masters, float(meta["lora_alpha"]), b)
            loss = torch.nn.functional.mse_loss(
                out, torch.from_numpy(np.array(b["target"])))
            (loss / h["accumulate"]).backward()
            total += loss.item() / h["accumulate"]
        norm = torch.nn.utils.clip_grad_norm_(
            list(masters.values()), h["clip"] or math.inf)
        adamw.step()
        rows.append((total, rate(h, step, steps), float(norm)))
    return np.array(rows), {n: p.detach().numpy() for n, p in masters.items()}


def compare(directory, log, steps, words):
    h = dict(HYPER, **given(HYPER, [w for w in words if "=" in w]))
    files = [w for w in words if "=" not in w]
    rows, masters = train(int(steps), h, files)
    got = np.loadtxt(log, skiprows=1, ndmin=2)[:, 1:4]
    state = moe.read(os.path.join(directory, "state.safetensors"))[0]
    start = moe.read("student.safetensors")[0]
    lines = []
    for i, (name, limit) in enumerate((("loss", 1e-3), ("lr", 1e-8),
                                       ("grad_norm", 5e-3))):
        worst = (np.abs(got[:, i] - rows[:, i])
                 / np.maximum(np.abs(rows[:, i]), 1e-30)).max()
        print("%s: %.3g" % (name, worst), file=sys.stderr)
        if not worst < limit:
            lines.append("%s is off by %.3g" % (name, worst))
    for n in moe.LORA:
        # how far it went, against how far it should have gone
        far = np.abs(masters[n] - start[n]).mean()
        off = np.abs(state[n + ".master"] - masters[n]).mean() / far
        print("%s: %.3g of %.3g" % (n, off, far), file=sys.stderr)
        if not off < 0.02:
            lines.append("%s is off by %.3g of its way" % (n, off))
    return lines


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "make":
        make(words[0], **given(moe.SIZES, words[1:]))
    elif verb == "nan":
        spoil(*words)
    else:
        bad = compare(words[0], words[1], words[2], words[3:])
        print("\n".join(bad), end="\n" if bad else "")
        sys.exit(bool(bad))
