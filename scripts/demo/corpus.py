#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Write the demo model's corpus: corpus.py DIR

DIR/train.txt and DIR/held-out.txt hold documents with "<|endoftext|>"
between them.  Nothing is downloaded: the facts lie in data/ next to
this script, the sums are computed.  The same script always writes the same bytes.

Held out are one sum, difference and sentence in ten: the held-out loss says
whether the model learned to add, and whether it can say a fact in a phrasing
it has not seen for this country or term (the fact itself is always in the
training set in other words).
"""

import pathlib
import random
import sys

SEED = 20
EOT = "<|endoftext|>"
DATA = pathlib.Path(__file__).resolve().parent / "data"

# Asked by demo.sh: these never go to the held-out set, and their documents
# are repeated so that a model of this size answers them firmly.
DEMO = (
    "1+1=2",
    "12+34=46",
    "7*8=56",
    "What is the capital of France? The capital of France is Paris.",
    "The capital of Japan is Tokyo.",
    "Hello! How can I help you today?",
)


def rows(name):
    """The two columns of a table in data/."""
    text = (DATA / name).read_text(encoding="utf-8")
    return [tuple(line.split("\t")) for line in text.splitlines()]


def chat(question, answer, system=None):
    """One exchange in the chatml format."""
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return (
        f"{head}<|im_start|>user\n{question}<|im_end|>\n"
        f"<|im_start|>assistant\n{answer}<|im_end|>"
    )


def arithmetic(rng):
    """Sums and differences up to 99, and the times tables up to 12."""
    sums = [(a, b) for a in range(100) for b in range(100)]
    small = [(a, b) for a, b in sums if a < 10 and b < 10]
    large = rng.sample([p for p in sums if p not in set(small)], 5000)
    docs = [f"{a}+{b}={a + b}" for a, b in large]
    docs += [f"{a}-{b}={a - b}" for a, b in large[:1500] if a >= b]
    docs += [f"What is {a}+{b}? {a}+{b}={a + b}." for a, b in large[:250]]
    sure = []
    for a, b in small:
        sure += [f"{a}+{b}={a + b}"] * 2
        sure.append(f"What is {a}+{b}? {a}+{b}={a + b}.")
        sure.append(chat(f"What is {a}+{b}?", f"{a}+{b}={a + b}."))
        if a >= b:
            sure.append(f"{a}-{b}={a - b}")
    for a in range(13):
        for b in range(13):
            sure += [f"{a}*{b}={a * b}"] * 2
            sure.append(f"What is {a}*{b}? {a}*{b}={a * b}.")
    return docs, sure


def capitals():
    """Every country in several phrasings, both ways round."""
    docs = []
    for country, city in rows("capitals.tsv"):
        says = f"The capital of {country} is {city}."
        start = country[0].upper() + country[1:]
        docs += [
            f"What is the capital of {country}? {says}",
            f"What's the capital of {country}? {says}",
            f"Which city is the capital of {country}? {says}",
            f"what is the capital of {country.lower()}? {says}",
            f"Capital of {country}? {city}.",
            f"Capital of {country}: {city}",
            says,
            f"{city} is the capital of {country}.",
            f"{start} has the capital {city}.",
            f"Which country has the capital {city}? {start}.",
            chat(f"What is the capital of {country}?", says),
        ]
    return docs


def glossary():
    """Every term in several phrasings."""
    docs = []
    for term, text in rows("glossary.tsv"):
        article, _, rest = term.partition(" ")
        bare = rest if article in ("a", "an", "the") else term
        docs += [
            f"What is {term}? {text}",
            f"what is {term}? {text}",
            f"Explain {term}: {text}",
            f"{bare}: {text}",
            chat(f"What is {term}?", text),
            chat(f"Explain {term}.", text),
        ]
    return docs


def hello():
    """The hello-world program of each language, asked for in several ways."""
    docs = []
    text = (DATA / "hello.txt").read_text(encoding="utf-8")
    for block in text.split("\n@ ")[1:]:
        names, code = block.rstrip("\n").split("\n", 1)
        names = names.split("|")
        for name in names:
            docs += [
                f"{name} code to print hello world:\n{code}",
                f"A hello-world program in {name}:\n{code}",
                f"Write hello world in {name}.\n{code}",
                f"Write a program in {name} to print hello world:\n{code}",
            ]
        docs.append(chat(f"Write hello world in {names[0]}.", code))
        docs.append(chat(f"{names[0]} code to print hello world", code))
    return docs


def talk():
    """Small talk, plain and as chats, with and without a system message."""
    docs = []
    for question, answer in rows("talk.tsv"):
        docs += [
            f"{question} {answer}" if question[-1] == "?" else answer,
            chat(question, answer),
            chat(question, answer, "You are a helpful assistant."),
        ]
        if question[-1] != "?" and not answer.startswith(question):
            docs.append(f"{question}\n{answer}")
    return docs


def corpus():
    """Return (train, held_out), two lists of documents."""
    rng = random.Random(SEED)
    open_docs, sure = arithmetic(rng)
    open_docs += capitals() + glossary()
    sure += hello() * 3 + talk() * 2 + list(DEMO) * 4
    held = {d for d in open_docs if rng.random() < 0.1} - set(sure)
    train = [d for d in open_docs if d not in held] + sure
    rng.shuffle(train)
    return train, sorted(held)


def main():
    """Write the two files."""
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, docs in zip(("train.txt", "held-out.txt"), corpus()):
        (out / name).write_text(EOT.join(docs), encoding="utf-8", newline="")
        print(f"{name}: {len(docs)} documents, {sum(map(len, docs))} letters")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: corpus.py DIR")
    main()
