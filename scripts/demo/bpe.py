#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Train the demo model's byte-level BPE: bpe.py TRAIN.TXT MODEL_DIR

Writes MODEL_DIR/tokenizer.json and tokenizer_config.json in the form of
Qwen3's: 256 bytes, then one token a merge, then the special tokens; and
chat_template.jinja, which puts chats into the form of the corpus.

Pieces are cut by Qwen2's regex, which stands in the file as QWEN2_SPLIT.
Python's re has no \\p{L} and \\p{N}, so the trainer uses SPLIT, the same
alternatives with [^\\W\\d_] for a letter and \\d for a number.  The two differ
only on numbers that are not decimal digits (superscripts, Roman numerals) and
on a few control characters that Python counts as space: check() refuses such
a corpus, and one that is not in NFC.
"""

import collections
import json
import pathlib
import re
import sys
import unicodedata

VOCAB_SIZE = 1024
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLIT = re.compile(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|(?:[^\w\r\n]|_)?[^\W\d_]+"
    r"|\d"
    r"| ?(?:[^\s\w]|_)+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEMPLATE = """\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' -}}
    {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""
SPECIAL = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")


def byte_letters():
    """GPT-2's table: a printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {b: chr(b) for b in plain}
    rest = (b for b in range(256) if b not in table)
    table.update({b: chr(256 + i) for i, b in enumerate(rest)})
    return table


LETTER = byte_letters()
BYTE = {c: b for b, c in LETTER.items()}


def check(text):
    """Refuse a text on which SPLIT and QWEN2_SPLIT could differ."""
    odd = {
        c
        for c in set(text)
        if unicodedata.category(c) in ("Nl", "No") or "\x1c" <= c <= "\x1f"
    }
    if odd or not unicodedata.is_normalized("NFC", text):
        sys.exit(f"bpe.py: corpus is not NFC or has {sorted(odd)}")


def pieces(text):
    """Cut a text without special tokens into words of byte letters."""
    for piece in SPLIT.findall(text):
        yield tuple(LETTER[b] for b in piece.encode())


def join(word, pair):
    """Replace each occurrence of the pair in the word, from the left."""
    out, i = [], 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(word[i] + word[i + 1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def ends_line(pair):
    """Would this merge join a newline to what stands before it?

    Prompts often end where a line does: with a token ":\\n" the model would
    never have seen a ":" with the newline still to come.
    """
    newline = LETTER[ord("\n")]
    return pair[1][0] == newline and pair[0][-1] != newline


def learn(text, n_merges):
    """The most frequent pair, again and again; ties go to the lesser pair."""
    words = collections.Counter()
    for part in SPECIAL.split(text)[::2]:
        words.update(pieces(part))
    merges = []
    while len(merges) < n_merges:
        count = collections.Counter()
        for word, n in words.items():
            for pair in zip(word, word[1:]):
                if not ends_line(pair):
                    count[pair] += n
        best = min(count, key=lambda pair: (-count[pair], pair))
        merges.append(best)
        joined = collections.Counter()
        for word, n in words.items():
            joined[join(word, best)] += n
        words = joined
    return merges


class Tokenizer:
    """Encode and decode with a tokenizer.json that this script wrote."""

    def __init__(self, path):
        spec = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        self.ids = dict(spec["model"]["vocab"])
        merges = spec["model"]["merges"]
        self.rank = {tuple(m): i for i, m in enumerate(merges)}
        self.special = {t["content"]: t["id"] for t in spec["added_tokens"]}
        self.tokens = {i: t for t, i in self.ids.items()}
        self.cache = {}

    def word(self, word):
        """Ids of one word: always the merge of the lowest rank."""
        if word not in self.cache:
            parts = word
            while True:
                pairs = [p for p in zip(parts, parts[1:]) if p in self.rank]
                if not pairs:
                    break
                parts = join(parts, min(pairs, key=self.rank.get))
            self.cache[word] = [self.ids[t] for t in parts]
        return self.cache[word]

    def encode(self, text):
        """Ids of a text that may hold special tokens."""
        ids = []
        for part in SPECIAL.split(text):
            if part in self.special:
                ids.append(self.special[part])
            else:
                for word in pieces(part):
                    ids += self.word(word)
        return ids

    def decode(self, ids):
        """Text of ids; special tokens are left out."""
        letters = "".join(self.tokens.get(i, "") for i in ids)
        return bytes(BYTE[c] for c in letters).decode("utf-8", "replace")


def tokenizer_json(merges):
    """The file's object, keys in the order of Qwen3's file."""
    vocab = {LETTER[b]: i for i, b in enumerate(sorted(LETTER, key=LETTER.get))}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    split = {
        "type": "Split",
        "pattern": {"Regex": QWEN2_SPLIT},
        "behavior": "Isolated",
        "invert": False,
    }
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": len(vocab) + i, "content": text, **flags}
            for i, text in enumerate(SPECIALS)
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, byte_level],
        },
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(m) for m in merges],
        },
    }


CONFIG = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
    "bos_token": None,
    "clean_up_tokenization_spaces": False,
    "eos_token": "<|im_end|>",
    "errors": "replace",
    "model_max_length": 512,
    "pad_token": "<|endoftext|>",
    "split_special_tokens": False,
    "tokenizer_class": "Qwen2Tokenizer",
    "unk_token": None,
}


def write_json(path, value):
    """Write a small JSON file as Hugging Face's tools do."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8")


def main():
    """Train on the first argument, write into the second."""
    text = pathlib.Path(sys.argv[1]).read_bytes().decode("utf-8")
    out = pathlib.Path(sys.argv[2])
    check(text)
    out.mkdir(parents=True, exist_ok=True)
    merges = learn(text, VOCAB_SIZE - 256 - len(SPECIALS))
    write_json(out / "tokenizer.json", tokenizer_json(merges))
    write_json(out / "tokenizer_config.json", CONFIG)
    (out / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    n = len(Tokenizer(out / "tokenizer.json").encode(text))
    print(f"{len(merges)} merges, {n} tokens, {len(text) / n:.2f} letters each")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: bpe.py TRAIN.TXT MODEL_DIR")
    main()
