# SPDX-License-Identifier: ISC
# What strings of files, and a model's text, bring to a terminal.
load helpers

# m: the demo model, whose tokens drive a terminal: it answers "1+1=" with the
# first of them, which sets a window's title and clears the screen.
hostile_model() {
    cp -r "$DEMO" m
    "$PYTHON" - <<'END'
import json
def spelled(text):  # as vocabularies of the ByteLevel kind spell bytes
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return "".join(chr(b) if b in plain else chr(256 + rest.index(b)) for b in text.encode())
t = json.load(open("m/tokenizer.json"))
by_id = {i: k for k, i in t["model"]["vocab"].items()}
texts = {17: "\x1b]0;owned\x07\x1b[2J", 900: "a\rb\x08\x0c\x7f\n\tc\\x1b", 901: "\x9b2J\x85",
         902: "\u202eab\u2066\u2069", 903: "\u2764\ufe0f\U0001f469\u200d\U0001f52c\u200e"}
merges = t["model"]["merges"]
for i, text in texts.items():
    merges = [p for p in merges if by_id[i] not in ("".join(p), *p)]
    by_id[i] = spelled(text)
t["model"].update(vocab={k: i for i, k in by_id.items()}, merges=merges)
json.dump(t, open("m/tokenizer.json", "w"))
END
}

@test "hf-infer: on a terminal control characters of a text are shown, not obeyed" {
    hostile_model
    py - <<'END'
import json, subprocess, terminal
def check(args, raw, shown, end=b""):
    run = ["hf-infer", "m"] + args
    assert subprocess.run(run, check=True, capture_output=True).stdout == raw, args
    for more, want in ([], shown), (["--raw-text"], raw):
        status, said = terminal.run(run + more, stdout=True)
        assert status == 0 and said == want.replace(b"\n", b"\r\n") + end, (args, more, said)
title = b"\x1b]0;owned\x07\x1b[2J", rb"\x1b]0;owned\x07\x1b[2J"
check(["-p", "1+1=", "--greedy"], *title, b"\r\n")
check(["-p", "1+1=", "--greedy", "--stop", "zzz"], *title, b"\r\n")
check(["--decode", "--ids", "17"], *title)
check(["--decode", "--ids", "900"], b"a\rb\x08\x0c\x7f\n\tc\\x1b", rb"a\rb\x08\x0c\x7f" + b"\n\tc\\x1b")
check(["--decode", "--ids", "901"], "\x9b2J\x85".encode(), rb"\u{009b}2J\u{0085}")
check(["--decode", "--ids", "902"], "\u202eab\u2066\u2069".encode(), rb"\u{202e}ab\u{2066}\u{2069}")
# what emoji are made of, and marks of direction that texts need
emoji = "\u2764\ufe0f\U0001f469\u200d\U0001f52c\u200e".encode()
check(["--decode", "--ids", "903"], emoji, emoji)
# one whose bytes are three tokens, that the model says one after another
t = json.load(open("m/tokenizer.json"))
by_id = {i: k for k, i in t["model"]["vocab"].items()}
ids = subprocess.run(["hf-infer", "m", "--ids", "301", "--greedy", "-n", "3", "--ids-out"],
                     check=True, capture_output=True, text=True).stdout
for i, c in zip(map(int, ids.split()), "\xe2\u0122\xae"):
    j = t["model"]["vocab"][c]
    by_id[i], by_id[j] = by_id[j], by_id[i]
t["model"].update(vocab={k: i for i, k in by_id.items()}, merges=[])
json.dump(t, open("m/tokenizer.json", "w"))
check(["--ids", "301", "--greedy", "-n", "3"], "\u202e".encode(), rb"\u{202e}", b"\r\n")
check(["--ids", "301", "--greedy", "-n", "2"], "\ufffd".encode(), "\ufffd".encode(), b"\r\n")
END
    hf-infer m -p "1+1=" --greedy -o /dev/stdout | cmp - <(printf '\033]0;owned\007\033[2J')
    hf-infer m -p "1+1=" --greedy -o file
    cmp file <(printf '\033]0;owned\007\033[2J')
}

@test "hf-infer: a terminal that -o names gets what standard output would" {
    hostile_model
    py - <<'END'
import os, pty, sys
for args, want in ([], rb"\x1b]0;owned\x07\x1b[2J"), (["--raw-text"], b"\x1b]0;owned\x07\x1b[2J"):
    child, ours = pty.fork()
    if child == 0:
        out = os.open("out", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.execvp("hf-infer", ["hf-infer", "m", "-p", "1+1=", "--greedy", "-o", "/dev/tty"] + args)
    said = b""
    try:
        while True:
            said += os.read(ours, 4096)
    except OSError:
        pass
    assert os.waitpid(child, 0)[1] == 0 and said == want + b"\r\n", said
assert os.path.getsize("out") == 0
END
}

@test "hf-infer --raw-text is for text alone" {
    for mode in --encode --nll '--top 1'; do
        # shellcheck disable=SC2086
        run -2 --separate-stderr hf-infer "$DEMO" -p a $mode --raw-text
        [[ ${stderr_lines[0]} == "hf-infer: option --raw-text has no meaning for "* ]]
    done
    for how in --json --ids-out; do
        run -2 --separate-stderr hf-infer "$DEMO" -p a $how --raw-text
        [ "${stderr_lines[0]}" = "hf-infer: --raw-text is about text: not with --json, --jsonl or --ids-out" ]
    done
    run -2 hf-infer "$DEMO" --jsonl --raw-text <<<'{"ids":[1]}'
}

@test "hf-infer: tokens are one field of a TSV row, escaped, and JSON strings of their text" {
    hostile_model
    py - <<'END'
import json, subprocess, terminal
def out(*args):
    return subprocess.run(["hf-infer", "m", *args], check=True, capture_output=True).stdout
def fields(text):
    rows = [l.split("\t") for l in text.decode().split("\n")]
    assert rows.pop() == [""] and {len(r) for r in rows} == {len(rows[0])}
    return rows[1:]
for r in fields(out("--nll", "-q", "--ids", "1,17,900,901,902,903")) + fields(out("--top", "1024", "-p", "1+1=")):
    assert not terminal.raw("".join(r).encode()), r
for args in ["--greedy"], ["--top", "1024"]:
    assert not terminal.raw(out("-p", "1+1=", "--json", *args))
assert json.loads(out("-p", "1+1=", "--greedy", "--json"))["text"] == "\x1b]0;owned\x07\x1b[2J"
END
}

@test "hf-infer --jsonl: ids come back as the same JSON, without what a terminal obeys" {
    py - <<'END'
import json, os, subprocess, terminal
ids = [terminal.HOSTILE, {terminal.HOSTILE: [terminal.HOSTILE, "\u00e4\u4e2d\U0001f600", 1.5]},
       "\U0010fffe\x00\\\"/", [1, "\r"]]
lines = [json.dumps({"id": i, "ids": [1]}, ensure_ascii=False) for i in ids]
lines.append('{"id":[1,\r\t 2 ], "ids": [1]}')
lines.append('{"\u202e":{"id":0},"id":"\\u202e\u202e\\\\\u202e","ids":[1]}')
ids += [[1, 2], "\u202e\u202e\\\u202e"]
with open("p.jsonl", "w", encoding="utf-8", newline="") as f:
    f.write("\n".join(lines) + "\n")
got = subprocess.run(["hf-infer", os.environ["DEMO"], "--jsonl", "-n", "1", "--file", "p.jsonl"],
                     check=True, capture_output=True).stdout
assert not terminal.raw(got), terminal.raw(got)
assert [json.loads(l)["id"] for l in got.decode().split("\n")[:-1]] == ids, got
assert "\u00e4\u4e2d\U0001f600".encode() in got # the rest as it was written
END
}

# h: what all tools read, with hostile strings wherever a name or a text can be.
hostile_files() {
    py - "$DEMO" <<'END'
import json, os, shutil, sys, numpy as np
import kvc_model, kvc_ref, look_ref, lut_apply_ref, mkst, saev_dump, terminal
h = terminal.HOSTILE
directory = os.fsencode(h) + b"\xff"  # a name that is no UTF-8, either
os.mkdir(directory)
os.symlink(directory, "h")
os.chdir(directory)
t = {h: np.arange(6, dtype="f4"), "a." + h + ".1": np.zeros(2, "f4"), "a." + h + ".2": np.zeros(2, "f4")}
mkst.save("x.safetensors", t, {h: h, "format": "pt"})
mkst.save("y.safetensors", {**t, h: np.arange(5, dtype="f4"), "b" + h: np.zeros(3, "f4")})
saev_dump.dump("dump", vit_family=h, vit_ckpt=h, data={h: [h]}, more={h: h}, **{"x" + h: h})
kvc_ref.save("k.bin", kvc_model.average(3, 8, 2), 8, 2)
c = lut_apply_ref.Case("case", rows=6, meta={"creation_info": {h: h}, h: h})
np.save("x.npy", c.x)
shutil.copytree(sys.argv[1], "model")
config = json.load(open("model/config.json"))
os.mkdir("other")
json.dump({**config, "model_type": h, "architectures": [h]}, open("other/config.json", "w"))
json.dump({}, open("other/tokenizer.json", "w"))
os.mkdir("act")
json.dump({**config, "hidden_act": h}, open("act/config.json", "w"))
json.dump({"model": {"type": h}}, open("act/tokenizer.json", "w"))
os.mkdir("lora")
json.dump({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": [h]}, open("lora/adapter_config.json", "w"))
look_ref.sae(8, 4, 2, 1, "sae")
meta, look = look_ref.scan("sae", look_ref.rows(20, 4, 2), top=2, sample=2)
look_ref.write("run", {**meta, "sae": h, "hook": h, h: h}, look)
open("run/labels.tsv", "w", newline="").write("latent\tlabel\n3\t" + h.replace("\n", "") + "\n")
mkst.save("lora/adapter_model.safetensors", {h + ".lora_A.weight": np.zeros((1, 4), "f4")})
END
}

@test "every tool: no string of a file, nor a file's name, drives a terminal or hides in it" {
    every_tool
    hostile_files
    py - <<'END'
import os, terminal
h = os.readlink(b"h")
def commands():
    for json in "", " --json":
        for verb in "list", "list --fold", "tree", "meta", "hash", "stats", "stats --hist", "verify", "diff D/y.safetensors":
            yield f"st-inspect {verb}{json} D/x.safetensors"
        for verb in "info", "verify", "stats", "rows --index":
            yield f"saev-read {verb}{json} D/dump"
        yield f"st-inspect meta{json} D/model"
        yield f"kvc-convert --info{json} D/k.bin"
        yield f"lut-apply --report{json} -m D/case -i D/x.npy D/case/lut model.layers.0.self_attn.q_proj"
        yield f"moe-sft info{json} -b D/x.safetensors"
        yield f"hf-infer D/model -p D -n 3{json} -v --raw"
        yield f"sae-look show{json} D/run 3"
        yield f"sae-look compare{json} D/run D/x.safetensors"
    yield "sae-look list D/run"
    yield "sae-look diff D/run D/lora"
    yield "sae-look lens -s D/sae -m D/model --hook D"
    for m in "other", "act", "no":
        yield f"hf-infer D/{m} -p a"
        yield f"hf-infer D/{m} --ids 1,2"
    for with_ in "--lora D/lora", "--lut D/case/lut", "--kvc D/k.bin", "--kvc D/x.npy":
        yield f"hf-infer D/model -p a {with_}"
    yield "saev-read meta D/dump"
    yield "saev-read D/x.safetensors -o x"
    yield "hf-infer D/model --jsonl --file D/x.npy"
    yield "hf-infer D/act --decode --ids 1"
    yield "hf-infer D/model --decode --ids D"
    yield "hf-infer D/model -p 1 --acts D -o x"
    yield "kvc-convert --check D/k.bin D/x.npy"
    yield "kvc-convert --input D/x.safetensors --output x.bin"
    yield "kvc-convert --input D/model --output x.bin"
    yield "lut-precompute -m D/case -s D/x.safetensors -o x --layers D"
    yield "lut-precompute -m D/case -s D/dump -o x"
    yield "lut-apply -i D/x.safetensors:D -o x D/case/lut D"
    yield "saev-write -m D/lora/adapter_config.json -o out D/x.npy"
    yield "moe-sft train -b D/x.safetensors -l D/x.safetensors -n 1 -o run D/x.safetensors"
    yield "moe-sft merge -b D/model -l D/lora -o x"
    yield "sae-train -o x D/x.safetensors"
    yield "sae-train -o x --init D/x.safetensors D/x.npy"
    yield "sae-train -o x/D D/x.npy"
    yield "sae-train eval -s D/x.safetensors D/x.npy"
    yield "sae-train info D"
n = n_named = 0
for line in commands():
    args = [w.encode().replace(b"D", h) for w in line.split()]
    status, said = terminal.run(args, stdout=True)
    assert status in (0, 1, 2, 65, 66, 73), (line, status, said)
    assert not terminal.raw(said), (line, terminal.raw(said), said[:2000])
    n += 1
    n_named += b"\\u{202e}" in said or b"\\u202e" in said
assert n_named > 0.8 * n, (n_named, n)
END
}

@test "names: what is invisible is escaped, and JSON keeps the value" {
    py - <<'END'
import json, subprocess, numpy as np, mkst, terminal
# by Unicode's charts: the property Default_Ignorable_Code_Point, U+2800, and what XML forbids
names = [0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x17b4, 0x17b5, 0x180b, 0x180f, 0x200b, 0x2060, 0x2065, 0x2800,
         0x3164, 0xfe00, 0xfe0f, 0xfeff, 0xffa0, 0xfff0, 0xfff8, 0xfffe, 0xffff, 0x1bca0, 0x1d17a, 0xe0000, 0xe0fff]
names = ["a" + chr(c) for c in names]
mkst.save("x.safetensors", {n: np.zeros(1, "f4") for n in names})
def out(*args):
    return subprocess.run(["st-inspect", *args, "x.safetensors"], check=True, capture_output=True, text=True).stdout
rows = [l.split("\t") for l in out("list").split("\n")[1:-1]]
want = sorted("a\\u{%04x}" % ord(n[1]) for n in names)
assert sorted(r[4] for r in rows) == want, rows
assert not terminal.raw(out("list", "--json").encode())
assert sorted(t["name"] for t in json.loads(out("list", "--json"))["tensors"]) == sorted(names)
open("sums", "w").write(out("hash"))
got = subprocess.run(["st-inspect", "hash", "--check", "sums"], check=True, capture_output=True, text=True).stdout
assert got.count("a\\u{") == len(names), got
END
}

@test "st-inspect stats --svg: a name of any characters leaves the picture well-formed" {
    py - <<'END'
import re, subprocess, xml.dom.minidom as dom, numpy as np, mkst
chars = [chr(c) for c in (*range(0xd800), *range(0xe000, 0x10000), *range(0x1fff0, 0x20000), 0x10fffe, 0x10ffff)]
names = ["".join(chars[i:i + 256]) for i in range(0, len(chars), 256)]
mkst.save("x.safetensors", {n: np.zeros(1, "f4") for n in names})
subprocess.run(["st-inspect", "stats", "--svg", "x.svg", "x.safetensors"], check=True, stdout=subprocess.DEVNULL)
def name(title):
    simple = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}
    return re.sub(r"\\(?:x(..)|u\{(\w+)\}|(.))",
                  lambda m: simple[m[3]] if m[3] else chr(int(m[1] or m[2], 16)), title)
titles = [t.firstChild.data for t in dom.parse("x.svg").getElementsByTagName("title")]
assert sorted(map(name, titles)) == sorted(names)
END
    if command -v xmllint >/dev/null; then xmllint --noout x.svg; fi
}

@test "lut-precompute: what metadata.json quotes of the model is its JSON, with escapes" {
    py "$ROOT/test/ref/lut_cases.py" .
    py - <<'END'
import json, os, subprocess, terminal
c = json.load(open("model/config.json"))
json.dump({**c, "model_type": terminal.HOSTILE}, open("model/config.json", "w"))
name = terminal.HOSTILE
os.rename("model", name)
subprocess.run(["lut-precompute", "-q", "-m", name, "-s", "one/sparsify", "--layers", "*.0.self_attn.q_proj", "-o", "lut"],
               check=True)
text = open("lut/metadata.json", "rb").read()
assert not terminal.raw(text), terminal.raw(text)
m = json.loads(text)
assert m["model_config"]["model_type"] == terminal.HOSTILE
assert m["creation_info"]["source_model"] == name
END
}
