#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Write what torch says about the demo model: expected.py DEMO_DIR

Reads DEMO_DIR/qwen3-tiny and writes, computed in float64 from the weights as
they are stored (BF16):

  expected.json  for each prompt its ids, the greedy answer (ids and text, at
                 most 60 tokens, ended before an end-of-text token), the
                 smallest gap between the first and the second logit on the
                 way, and mean, standard deviation (of the population) and
                 top 5 of the logits after the prompt's last token
  expected.tsv   the same for shell and awk, one prompt a line
  SHA256SUMS     hashes of the model's files, as sha256sum writes them
"""

import hashlib
import json
import pathlib
import sys

import bpe
import qwen3
import torch

N_NEW = 60
PROMPTS = (
    "1+1=",
    "12+34=",
    "7*8=",
    "Hello",
    "What is the capital of France?",
    "The capital of Japan is",
    "What is the capital of Brazil?",
    "Python code to print hello world:",
    "C code to print hello world:",
    "What is head_dim?",
    "What is a KV cache?",
    "<|im_start|>user\nWhat is RoPE?<|im_end|>\n<|im_start|>assistant\n",
)


def describe(model, tok, prompt):
    """Everything about one prompt."""
    stop = qwen3.GENERATION["eos_token_id"]
    ids = tok.encode(prompt)
    out = qwen3.greedy(model, ids, N_NEW, stop)
    with torch.no_grad():
        logits = model(torch.tensor([ids + out]))[0, len(ids) - 1 :]
    first, second = logits.topk(2).values.unbind(-1)
    last = logits[0]
    top = last.topk(5)
    return {
        "prompt": prompt,
        "ids": ids,
        "greedy_ids": out,
        "greedy_text": tok.decode(out),
        "smallest_gap": round(float((first - second).min()), 6),
        "mean": round(float(last.mean()), 6),
        "std": round(float(last.std()), 6),
        "top": [
            {"id": int(i), "token": tok.decode([int(i)]), "logit": round(x, 6)}
            for i, x in zip(top.indices, top.values.tolist())
        ],
    }


def escape(text):
    """A text as printf's %b reads it, on one line."""
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace("\t", "\\t")


def tsv(entries):
    """The table for demo.sh; texts are escaped for printf %b."""
    lines = ["prompt\tids\tanswer_ids\tanswer\tmean\tstd\ttop"]
    for e in entries:
        top = " ".join(f"{t['id']}:{t['logit']:.6f}" for t in e["top"])
        fields = (
            escape(e["prompt"]),
            " ".join(map(str, e["ids"])),
            " ".join(map(str, e["greedy_ids"])),
            escape(e["greedy_text"]),
            f"{e['mean']:.6f}",
            f"{e['std']:.6f}",
            top,
        )
        lines.append("\t".join(fields))
    return "\n".join(lines) + "\n"


def main():
    """Write the three files."""
    demo = pathlib.Path(sys.argv[1])
    directory = demo / "qwen3-tiny"
    tok = bpe.Tokenizer(directory / "tokenizer.json")
    config = json.loads((directory / "config.json").read_text())
    model = qwen3.Qwen3(config).double()
    qwen3.load(directory / "model.safetensors", model)
    entries = [describe(model, tok, p) for p in PROMPTS]
    origin = f"torch {torch.__version__}, float64, weights as stored"
    bpe.write_json(
        demo / "expected.json", {"origin": origin, "prompts": entries}
    )
    (demo / "expected.tsv").write_text(tsv(entries), encoding="utf-8")
    files = (p for p in demo.glob("*/**/*") if p.is_file())
    sums = "".join(
        f"{hashlib.sha256(p.read_bytes()).hexdigest()}"
        f"  {p.relative_to(demo)}\n"
        for p in sorted(files)
        if not p.is_symlink()
    )
    (demo / "SHA256SUMS").write_text(sums)
    for e in entries:
        print(f"{e['smallest_gap']:8.3f}  {e['prompt'] + e['greedy_text']!r}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: expected.py DEMO_DIR")
    main()
