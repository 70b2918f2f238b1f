# SPDX-License-Identifier: ISC
"""A page of sae-look html, read strictly, and what it must say of a RUN.

read(PAGE) is the page as a dict; it asserts that every element is closed, that
there are no elements, attributes, ids, classes and URLs but those expected,
and that all that comes before the first string of a file is fixed.

look_page.py check RUN PAGE [model=DIR] [latents=3,17] [examples=N] [quantiles=Q] [grid=WxH images=LIST]
    compares it with what numpy makes of the RUN
"""
import base64
import html.parser
import json
import math
import os
import re
import sys

import numpy as np

import look_ref
import mkst

START = ("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
         "style-src 'unsafe-inline'; img-src data:\">\n")
NUMBER = r"-?\d+(\.\d+)?(e[-+]\d+)?"
INT = r"-?\d+"
URL = r"data:image/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/]*={0,2}"
ELEMENTS = {  # attributes, and what they may be; a * may be absent
    "html": {"lang": "en"}, "head": {}, "body": {}, "title": {}, "style": {}, "h1": {}, "h2": {}, "h3": {},
    "meta": {"charset*": "utf-8", "http-equiv*": "Content-Security-Policy", "content*": ".*", "name*": "viewport"},
    "a": {"href": r"#l\d+|#index", "class*": "up"}, "dl": {"class": "facts"}, "dt": {}, "dd": {},
    "div": {"class*": "index|top|hist|lens|images"}, "table": {"id": "index"}, "thead": {}, "tbody": {}, "tr": {},
    "th": {"class*": "c"}, "td": {"class*": "c"}, "section": {"id": r"l\d+"}, "details": {}, "summary": {},
    "svg": {"viewbox": r"0 0 \d+ \d+"}, "ol": {"class": "plus|minus"}, "li": {"data-id": r"\d+"},
    "rect": {"data-bin*": INT, "data-count*": INT, "class*": r"a([1-9]|10)", "x": INT, "y": NUMBER, "width": INT,
             "height": NUMBER},
    "image": {"width": INT, "height": INT, "preserveaspectratio": "none", "href": URL},
    "p": {"class": "x|x q", "data-row": INT, "data-value": NUMBER, "data-quantile*": INT},
    "figure": {"class*": "q", "data-row": INT, "data-value": NUMBER, "data-quantile*": INT},
    "span": {"class*": r"label|a(\d|10)( p)?", "title*": NUMBER + "|left out"},
}


class Reader(html.parser.HTMLParser):
    """A tree of (element, attributes, children)."""

    def __init__(self):
        super().__init__(convert_charrefs=False)
        self.root = ("", {}, [])
        self.open = [self.root]
        self.ids = set()

    def handle_starttag(self, tag, attrs, closed=False):
        text = self.get_starttag_text()
        assert re.fullmatch(r'<[A-Za-z0-9]+( [A-Za-z-]+="[^"<>]*")*/?>', text), text
        want = ELEMENTS[tag]
        assert len(dict(attrs)) == len(attrs)
        for name, value in attrs:
            pattern = want.get(name, want.get(name + "*"))
            assert pattern and re.fullmatch(pattern, value), (tag, name, value)
        for name in want:
            assert name.endswith("*") or name in dict(attrs), (tag, name)
        if "id" in dict(attrs):
            assert dict(attrs)["id"] not in self.ids
            self.ids.add(dict(attrs)["id"])
        element = (tag, dict(attrs), [])
        self.open[-1][2].append(element)
        if tag != "meta" and not closed:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        assert tag == "image"
        self.handle_starttag(tag, attrs, True)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, tag

    def handle_data(self, data):
        assert self.open[-1][0] == "style" or not set(data) & set("<>&"), data
        assert not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", data), data
        self.open[-1][2].append(data)

    def handle_entityref(self, name):
        self.open[-1][2].append({"amp": "&", "lt": "<", "gt": ">", "quot": '"'}[name])

    def handle_charref(self, name):
        assert name == "39", name
        self.open[-1][2].append("'")

    def handle_decl(self, decl):
        assert decl == "DOCTYPE html"

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_pi = unknown_decl = handle_comment


def text(element):
    return "".join(c if isinstance(c, str) else text(c) for c in element[2])


def all_of(element, tag, **attrs):
    """Those of that name, at any depth."""
    for child in element[2]:
        if isinstance(child, str):
            continue
        if child[0] == tag and all(child[1].get(k) == v for k, v in attrs.items()):
            yield child
        yield from all_of(child, tag, **attrs)


def read(path):
    with open(path, encoding="utf-8", newline="") as f:
        page = f.read()
    assert page.startswith(START) and page.endswith("</body>\n</html>\n")
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == [reader.root]
    for link in all_of(reader.root, "a"):
        assert link[1]["href"][1:] in reader.ids, link
    return reader.root


def escaped(data):
    """What a person sees of bytes from a file."""
    def one(c):
        o = ord(c)
        if c in "\n\t\r\\":
            return {"\n": "\u23ce", "\t": "\u21e5", "\r": "\\r", "\\": "\\\\"}[c]
        if 0xdc80 <= o < 0xdd00:
            return "\\x%02x" % (o - 0xdc00)
        if o < 0x20 or o == 0x7f:
            return "\\x%02x" % o
        if re.match("[\x80-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]", c):
            return "\\u{%04x}" % o
        return c
    return "".join(map(one, data.decode("utf-8", "surrogateescape")))


def spellings(model):
    """The bytes of each id, of a tokenizer that is ByteLevel's."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    others = [b for b in range(256) if b not in kept]
    byte = {chr(b): b for b in kept}
    byte.update({chr(256 + i): b for i, b in enumerate(others)})
    with open(os.path.join(model, "tokenizer.json"), encoding="utf-8") as f:
        t = json.load(f)
    names = {}
    for name, i in t["model"]["vocab"].items():
        names[i] = bytes(byte[c] for c in name) if all(c in byte for c in name) else name.encode()
    for added in t["added_tokens"]:
        names[added["id"]] = added["content"].encode()
    return names


def window(meta, acts, ids, row):
    """Where the places of an example's own sequence are."""
    a, b = meta["context"]
    at = row % meta["T"]
    first, end = max(0, a - at), a + 1 + min(b, meta["T"] - 1 - at)
    while ids is not None and first < a and ids[first] < 0:
        first += 1
    while ids is not None and end > a + 1 and ids[end - 1] < 0:
        end -= 1
    return first, end


def level(f, largest):
    return 0 if f <= 0 else min(10, math.ceil(10 * float(f) / float(largest)))


def examples(meta, t, i, quantiles):
    """(top or sample, j, quantile or None) in the order of a page."""
    n_top = int((t["top_row"][i] >= 0).sum())
    yield from (("top", j, None) for j in range(n_top))
    n = int((t["sample_row"][i] >= 0).sum())
    ranked = sorted(range(n), key=lambda j: (-t["sample_value"][i, j], t["sample_row"][i, j]))
    yield from (("sample", j, place * quantiles // n) for place, j in enumerate(ranked))


def check_section(section, meta, t, i, names, o):
    latent = int(t["latent"][i])
    assert section[1]["id"] == f"l{latent}"
    facts = dict(zip((text(e) for e in all_of(section, "dt")), (text(e) for e in all_of(section, "dd"))))
    n = int(t["rows_active"][i])
    assert list(facts) == ["density", "rows", "sequences", "mean", "max"]
    np.testing.assert_allclose(
        [float(v) for v in facts.values()],
        [n / meta["rows"] if n else 0, n, t["seqs_active"][i], t["sum"][i] / n if n else 0, t["max"][i]], rtol=1e-5)
    bars = [(int(r[1]["data-bin"]), int(r[1]["data-count"]), float(r[1]["height"])) for r in all_of(section, "rect")
            if "data-bin" in r[1]]
    assert [b[:2] for b in bars] == [(int(b), int(t["hist"][i, b])) for b in np.flatnonzero(t["hist"][i])]
    for _, count, height in bars:
        assert abs(height - max(1, 40 * count / t["hist"][i].max())) < 0.01

    def spelled(k):
        return "\u00b7" if k < 0 else escaped(names[k]) or "\u00b7" if k in names else str(k)

    for sign, name in enumerate(("plus", "minus")):
        lists = list(all_of(section, "ol", **{"class": name}))
        assert len(lists) == ("lens_id" in t)
        for found in lists:
            items = list(all_of(found, "li"))
            assert [int(e[1]["data-id"]) for e in items] == t["lens_id"][latent, sign].tolist()
            assert [text(next(all_of(e, "span"))) for e in items] == [spelled(k) for k in t["lens_id"][latent, sign].tolist()]
            np.testing.assert_allclose([float(e[2][-1]) for e in items], t["lens_value"][latent, sign], rtol=1e-5)

    shown = [e for tag in ("p", "figure") for e in all_of(section, tag)]
    want = [e for e in examples(meta, t, i, o["quantiles"]) if e[0] == "sample" or e[1] < o["examples"]]
    assert len(shown) == len(want), (len(shown), len(want))
    for element, (kind, j, quantile) in zip(shown, want):
        tag, attrs, _ = element
        row, acts = int(t[kind + "_row"][i, j]), t[kind + "_acts"][i, j]
        ids = t[kind + "_ids"][i, j] if kind + "_ids" in t else None
        assert int(attrs["data-row"]) == row and np.float32(attrs["data-value"]) == t[kind + "_value"][i, j]
        assert attrs.get("data-quantile") == (None if quantile is None else str(quantile))
        assert ("q" in attrs.get("class", "").split()) == (quantile is not None)
        first, end = window(meta, acts, ids, row)
        largest = t["max"][i]
        if "grid" in o:
            w, h = map(int, o["grid"].split("x"))
            begin = meta["T"] - w * h
            url = next(all_of(element, "image"))[1]["href"]
            with open(o["images"]) as f:
                picture = f.read().splitlines()[row // meta["T"]]
            with open(picture, "rb") as f:
                assert base64.b64decode(url.split(",")[1], validate=True) == f.read()
            patches = [(row % meta["T"] - meta["context"][0] + k - begin, acts[k]) for k in range(first, end)]
            patches = [(p, f) for p, f in patches if p >= 0 and f > 0]
            got = [(int(r[1]["y"]) * w + int(r[1]["x"]), r[1]["class"], np.float32(text(r))) for r in all_of(element, "rect")]
            assert got == [(p, f"a{level(f, largest)}", f) for p, f in patches], (got, patches)
            assert tag == "figure"
            continue
        assert tag == "p" and attrs["class"] == ("x" if quantile is None else "x q")
        spans = list(all_of(element, "span"))
        assert len(spans) == end - first and sum("p" in s[1]["class"].split() for s in spans) == 1
        for k, span in zip(range(first, end), spans):
            peak = " p" if k == meta["context"][0] else ""
            assert span[1]["class"] == f"a{level(acts[k], largest)}{peak}", (span, acts[k], largest)
            assert (span[1]["title"] == "left out") if acts[k] < 0 else np.float32(span[1]["title"]) == acts[k]
            place = row % meta["T"] - meta["context"][0] + k
            assert text(span) == (str(place) if ids is None else spelled(int(ids[k]))), (span, ids[k])
        apart = "" if names and ids is not None else " "
        assert "".join(c for c in element[2] if isinstance(c, str)) == apart * (len(spans) - 1)


def check(run, path, **o):
    meta, t = look_ref.read(run)
    o = {"examples": 10, "quantiles": 5, **{k: int(v) if v.isdigit() and k != "latents" else v for k, v in o.items()}}
    if os.path.exists(os.path.join(run, "lens.safetensors")):
        types = {v: k for k, v in mkst.NAMES.items()}
        t.update({name: np.frombuffer(data, types[dtype]).reshape(shape) for name, (dtype, shape, data)
                  in mkst.load(os.path.join(run, "lens.safetensors")).items()})
    labels = {}
    if os.path.exists(os.path.join(run, "labels.tsv")):
        with open(os.path.join(run, "labels.tsv"), "rb") as f:
            labels = dict((int(k), v) for k, v in (line.split(b"\t", 1) for line in f.read().split(b"\n")[1:] if line))
    names = spellings(o["model"]) if "model" in o else {}
    latents = [int(k) for k in o["latents"].split(",")] if "latents" in o else t["latent"].tolist()[:200]
    root = read(path)
    title = "Latents of " + escaped(meta["sae"].encode())
    assert text(next(all_of(root, "title"))) == text(next(all_of(root, "h1"))) == title
    assert (escaped(meta["hook"].encode()) if meta["hook"] else None) == \
        dict(zip((text(e) for e in all_of(root, "dt")), (text(e) for e in all_of(root, "dd")))).get("hook")
    rows = list(all_of(next(all_of(root, "tbody")), "tr"))
    sections = list(all_of(root, "section"))
    assert len(rows) == len(sections) == len(latents), (len(rows), len(sections), len(latents))
    for latent, row, section in zip(latents, rows, sections):
        i = t["latent"].tolist().index(latent)
        cells = [text(c) for c in all_of(row, "td")]
        assert cells[0] == str(latent) and next(all_of(row, "a"))[1]["href"] == f"#l{latent}"
        n = int(t["rows_active"][i])
        np.testing.assert_allclose([float(c) for c in cells[1:5]],
                                   [n / meta["rows"], n, t["sum"][i] / max(n, 1), t["max"][i]], rtol=1e-3)
        label = escaped(labels.get(latent, b""))
        assert cells[5] == label == text(next(all_of(section, "span", **{"class": "label"})))
        check_section(section, meta, t, i, names, o)


if __name__ == "__main__":
    assert sys.argv[1] == "check"
    check(sys.argv[2], sys.argv[3], **dict(word.split("=", 1) for word in sys.argv[4:]))
