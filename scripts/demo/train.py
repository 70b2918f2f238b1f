#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Train the demo model: train.py CORPUS_DIR MODEL_DIR [STEPS]

CORPUS_DIR holds corpus.py's train.txt and held-out.txt, MODEL_DIR the
tokenizer that bpe.py wrote.  Adds config.json, generation_config.json and
model.safetensors; a checkpoint is written every 500 steps, so that a stopped
run leaves a usable model.  One thread and one seed: the same machine and the
same torch give the same weights.
"""

import math
import pathlib
import random
import re
import sys
import time

import bpe
import qwen3
import torch
from torch.nn import functional

SEED = 20
STEPS = 3000
WINDOW = 128
BATCH = 16
PEAK_LR = 3e-3
WARMUP = 100
# Windows in which a document sees the earlier ones, as in a long prompt.
OPEN_SHARE = 0.25
ASK = (
    "1+1=",
    "12+34=",
    "What is the capital of France?",
    "Python code to print hello world:",
    "What is head_dim?",
)
SUM = re.compile(r"\d+[+-]\d+=")


def read_docs(path, tok):
    """Token ids of each document, the separator included."""
    text = path.read_bytes().decode("utf-8")
    end = tok.special[bpe.SPECIALS[0]]
    return [tok.encode(d) + [end] for d in text.split(bpe.SPECIALS[0])]


class Windows:
    """Documents in shuffled order, packed end to end into windows."""

    def __init__(self, docs, rng):
        self.docs, self.rng = docs, rng
        self.order, self.ids, self.doc = [], [], []

    def one(self):
        """WINDOW + 1 ids and their document numbers."""
        while len(self.ids) < WINDOW + 1:
            if not self.order:
                self.order = list(range(len(self.docs)))
                self.rng.shuffle(self.order)
            i = self.order.pop()
            self.ids += self.docs[i]
            self.doc += [len(self.order)] * len(self.docs[i])
        ids, doc = self.ids[: WINDOW + 1], self.doc[: WINDOW + 1]
        # The next window begins with a whole document.
        del self.ids[: WINDOW + 1], self.doc[: WINDOW + 1]
        while self.doc and self.doc[0] == doc[-1]:
            del self.ids[0], self.doc[0]
        if self.rng.random() < OPEN_SHARE:
            doc = [0] * len(doc)
        return ids, doc

    def batch(self):
        """Inputs, targets and document numbers, each [BATCH, WINDOW]."""
        ids, doc = zip(*(self.one() for _ in range(BATCH)))
        ids, doc = torch.tensor(ids), torch.tensor(doc)
        return ids[:, :-1], ids[:, 1:], doc[:, :-1]


@torch.no_grad()
def held_out_loss(model, docs):
    """Mean negative log-likelihood of a held-out token."""
    total = count = 0
    for doc in docs:
        logits = model(torch.tensor([doc[:-1]]))[0]
        targets = torch.tensor(doc[1:])
        total += float(functional.cross_entropy(logits, targets) * len(targets))
        count += len(targets)
    return total / count


def learning_rate(step, steps):
    """Linear warm-up, then a cosine down to a fiftieth."""
    if step < WARMUP:
        return PEAK_LR * (step + 1) / WARMUP
    x = (step - WARMUP) / max(1, steps - WARMUP)
    return PEAK_LR * (0.02 + 0.98 * (1 + math.cos(math.pi * x)) / 2)


def optimizer(model):
    """AdamW; only matrices decay."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [
        {"params": matrices, "weight_decay": 0.05},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=PEAK_LR, betas=(0.9, 0.98))


def answers(model, tok):
    """Print greedy answers to a few prompts."""
    for prompt in ASK:
        ids = qwen3.greedy(model, tok.encode(prompt), 40, (1021, 1023))
        print(f"    {prompt}{tok.decode(ids)!r}")


def held_out_sums(model, tok, path):
    """How many held-out sums and differences the model gets right."""
    text = path.read_bytes().decode("utf-8")
    right = total = 0
    for doc in text.split(bpe.SPECIALS[0]):
        match = SUM.match(doc)
        if match:
            ids = tok.encode(match.group())
            ids = qwen3.greedy(model, ids, 5, (1021, 1023))
            right += tok.decode(ids) == doc[match.end() :]
            total += 1
    return f"{right} of {total}"


def report(model, tok, held, step, loss, began):
    """One line about the training, and some answers."""
    print(
        f"step {step}: loss {loss:.3f},"
        f" held out {held_out_loss(model, held):.3f},"
        f" {time.monotonic() - began:.0f} s",
        flush=True,
    )
    answers(model, tok)


def train(model, windows, steps, each_500):
    """Run all steps; call each_500(step, loss) now and then."""
    opt = optimizer(model)
    mean = 0.0
    for step in range(steps):
        for group in opt.param_groups:
            group["lr"] = learning_rate(step, steps)
        loss = model.loss(*windows.batch())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        mean += float(loss.detach())
        if (step + 1) % 500 == 0 or step + 1 == steps:
            each_500(step + 1, mean / (step % 500 + 1))
            mean = 0.0


def main():
    """Train and write the model directory."""
    corpus, out = map(pathlib.Path, sys.argv[1:3])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else STEPS
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    tok = bpe.Tokenizer(out / "tokenizer.json")
    docs = read_docs(corpus / "train.txt", tok)
    held = read_docs(corpus / "held-out.txt", tok)
    model = qwen3.Qwen3(qwen3.CONFIG)
    bpe.write_json(out / "config.json", qwen3.CONFIG)
    bpe.write_json(out / "generation_config.json", qwen3.GENERATION)
    n_params = sum(p.numel() for p in model.parameters())
    print(f"{n_params} weights, {sum(map(len, docs))} tokens an epoch")
    began = time.monotonic()

    def each_500(step, loss):
        qwen3.save(out / "model.safetensors", model)
        report(model, tok, held, step, loss, began)

    train(model, Windows(docs, random.Random(SEED)), steps, each_500)
    qwen3.round_bf16(model)
    print("rounded to BF16:", f"held out {held_out_loss(model, held):.3f}")
    sums = held_out_sums(model, tok, corpus / "held-out.txt")
    print(f"held-out sums and differences: {sums} right")
    answers(model, tok)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: train.py CORPUS_DIR MODEL_DIR [STEPS]")
    main()
