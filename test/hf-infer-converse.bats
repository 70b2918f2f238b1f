# SPDX-License-Identifier: ISC
# hf-infer --chat on a terminal: a conversation, typed by test/ref/conversation.py.
# What is expected of an answer is what --messages gets for the same messages in
# a pipe, or the words that a model was made to say.
load helpers

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    unset NO_COLOR
    EDITS=$(ldd "$BUILD/hf-infer" | grep -c libedit) || :
    export EDITS
}

# typed ARGUMENT...: Python, which types.
typed() {
    py - "$@"
}

@test "hf-infer --chat: each answer is the one that --messages gets in a pipe for all before it" {
    typed "$DEMO" <<'END'
import json, subprocess, sys
from conversation import Conversation, TEMPLATE, TERMS
demo = sys.argv[1]
open("t.jinja", "w").write(TEMPLATE)
lines = ["What is the capital of France?", "And 12+34=", "Hé, 你好 \N{GRINNING FACE}", "1+1="]
for how in [], ["--system", "Be brief."], ["--system", ""], ["--compute", "bf16"], ["--kv-dtype", "f16", "--chunk", "3", "-j", "1"]:
    term = TERMS[0 if how else -1]
    how = how + ["--chat", "--template", "t.jinja", "--greedy", "-n", "24"]
    c = Conversation(["hf-infer", demo, "-v", *how], TERM=term)
    c.wait("\n> ")
    messages, before = [], 0
    for line in lines:
        c.type(line + "\n")
        n, kept = map(int, c.wait(r"prompt (\d+) tokens?, (\d+) of them cached\r\n")[1].groups())
        answer = c.wait(r"\r\n> ")[0].replace("\r\n", "\n")
        messages.append({"role": "user", "content": line})
        json.dump(messages, open("m.json", "w"))
        want = subprocess.run(["hf-infer", demo, "--messages", "m.json", *how],
                              check=True, capture_output=True, text=True).stdout
        assert answer == want.rstrip("\n") and want, (term, how, line, answer, want)
        # the last prompt is not computed again, nor is its answer, unless it
        # would have other bits as part of a prompt
        assert kept < n and (kept == before if "bf16" in how else kept > before or kept == before == 0), (before, kept, n)
        messages.append({"role": "assistant", "content": want})
        before = n
    c.type("/quit\n")
    assert c.end() == 0
END
}

@test "hf-infer --chat: --session gives the first answer its beginning, and changes none" {
    typed "$DEMO" <<'END'
import subprocess, sys
from conversation import Conversation, parrot
demo = sys.argv[1]
how = ["hf-infer", demo, "--chat", "--system", "Be brief.", "--greedy", "-n", "24", "-v"]
subprocess.run([*how, "-p", "1+1=", "-n", "0", "--save-session", "s"], check=True, capture_output=True)
got = {}
for more in [], ["--session", "s"]:
    c = Conversation([*how, *more], TERM="dumb")
    c.wait("\n> ")
    got[len(more)] = []
    for line in "1+2=", "What is the capital of France?":
        c.type(line + "\n")
        said, kept = c.wait(r"prompt \d+ tokens?, (\d+) of them cached\r\n")
        got[len(more)].append((int(kept[1]), c.wait(r"\r\n> ")[0]))
        assert ("s: the conversation begins with " in said) == (bool(more) and line == "1+2="), said
    c.type("\x04")
    assert c.end() == 0
(none, a), b = got[0]
(some, c), d = got[2]
assert none == 0 and some > 8 and (a, b) == (c, d), got
parrot("m", ["Yes."])
c = Conversation(["hf-infer", "m", "--chat", "--session", "s"])
assert c.end() == 65 and c.seen.startswith("hf-infer: s: ") and c.seen.count("\n") == 1, c.seen
END
}

@test "hf-infer --chat: Ctrl-C ends an answer, which stays as far as it came" {
    typed <<'END'
import json, re, subprocess
from conversation import Conversation, TERMS, parrot
parrot("m", ["one ", "two ", "three "], endless=True)
for term in TERMS:
    c = Conversation(["hf-infer", "m", "--chat", "--greedy"], TERM=term)
    c.wait("> ")
    for turn in range(2):
        c.type("Count!\n")
        c.wait(r"one two three one ")
        begun = c.at
        c.type("\x03")
        c.wait(r"\r\n> ")
        said = c.seen[begun - len("one two three one "):c.at - 4].replace("^C", "")
        assert said.endswith("\x1b[22m") == (term != "dumb") # should dim's end be lost
        said = said.replace("\x1b[22m", "")
        assert len(said.encode()) < 100000, "it did not stop"
        c.type(f"/save {term}{turn}\n")
        c.wait(r"messages\r\n> ")
        messages = json.load(open(f"{term}{turn}"))["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant"] * (turn + 1)
        # the terminal drops with Ctrl-C what it has not shown yet
        got = messages[-1]["content"]
        assert re.fullmatch("(one two three )+(one )?(two )?", got) and len(said) <= len(got) <= len(said) + 4096, (got, said)
    # the program is none the worse
    c.type("/quit\n")
    assert c.end() == 0
END
}

@test "hf-infer --chat: Ctrl-C before the first word takes the message back" {
    typed <<'END'
import json
from conversation import Conversation, parrot
parrot("m", ["Yes."])
c = Conversation(["hf-infer", "m", "--chat", "--chunk", "1", "-v"], TERM="dumb")
c.wait("> ")
c.type("Hi\n")
assert c.wait(r"\r\n> ")[0].endswith("Yes.")
for _ in range(10):  # lines of 4000 bytes, as a terminal takes them
    c.type("x" * 4000 + "\\\n")
    c.wait("\n  ")
c.type("x\n")
c.wait("of them cached\r\n")
c.type("\x03")
assert "Yes" not in c.wait(r"\r\n> ")[0]
c.type("Hi\n")
assert c.wait(r"\r\n> ")[0].endswith("Yes.")
c.type("/save f\n/quit\n")
assert c.end() == 0
assert json.load(open("f"))["messages"] == [
    {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}] * 2
END
}

@test "hf-infer --chat: Ctrl-D, /quit and two Ctrl-C leave with 0" {
    typed <<'END'
from conversation import Conversation, TERMS, edits, parrot
parrot("m", ["Yes."])
for term in *TERMS, "none-such":
    for keys in [["\x04"], ["/quit\n"], ["\x03", "\x03"], ["Hi\n", "\x04"], ["a", "\x03", "\x04"], ["\x03", "Hi\n", "\x03", "\x03"]]:
        c = Conversation(["hf-infer", "m", "--chat"], TERM=term)
        c.wait("> ")
        for i, key in enumerate(keys):
            c.type(key)
            if key == "a":
                c.wait("a")
            elif i + 1 < len(keys):
                c.wait(r"\r\n> ")
        assert c.end() == 0, (term, keys, c.seen)
        assert c.seen.count("Yes.") == keys.count("Hi\n") and c.seen.endswith("\r\n"), c.seen
        assert c.seen.count("Ctrl-C again, Ctrl-D or /quit leaves") == (keys.count("\x03") + 1) // 2 - (keys[0] == "a" and edits(term)), (term, keys, c.seen)
END
}

@test "hf-infer --chat: /save writes what --messages reads, whole or not at all" {
    typed "$DEMO" <<'END'
import json, os, subprocess, sys
from conversation import Conversation, TEMPLATE
demo = sys.argv[1]
open("t.jinja", "w").write("{{ greeting }}" + TEMPLATE)
how = ["--chat", "--template", "t.jinja", "--greedy", "-n", "20"]
c = Conversation(["hf-infer", demo, "--template-var", "greeting=Hello", "--system", "S é", *how])
c.wait("> ")
def typed(line):
    c.type(line + "\n")
    return c.wait(r"\r\n((?:[^\r]|\r(?!\n> ))*)\r\n> ")[1][1]
said = typed("What is the capital of France?")
assert typed("/save a b.json") == "hf-infer: a b.json: 3 messages"
saved = json.load(open("a b.json"))
assert saved == {"greeting": "Hello", "messages": [
    {"role": "system", "content": "S é"}, {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": said}]}, saved
said = typed("And of Spain?")
# the same, as a program continues it
saved["messages"].append({"role": "user", "content": "And of Spain?"})
json.dump(saved, open("more.json", "w"))
assert subprocess.run(["hf-infer", demo, "--messages", "more.json", *how], check=True, capture_output=True,
                      text=True).stdout == said
before = open("a b.json").read()
assert typed("/save a b.json") == "hf-infer: a b.json: exists already (--force replaces it)"
assert open("a b.json").read() == before
assert typed("/save -f  a b.json") == "hf-infer: a b.json: 5 messages"
assert len(json.load(open("a b.json"))["messages"]) == 5
assert typed("/save") == typed("/save -") == typed("/save -f ") == "hf-infer: /save needs the name of a file"
open("in-the-way", "w").close()
assert typed("/save -f /dev/full").startswith("hf-infer: /dev/full: ")
assert typed("/save in-the-way/x").startswith("hf-infer: in-the-way/x: ")
assert typed(f"/save -f {demo}/config.json").startswith(f"hf-infer: {demo}/config.json: ")
assert typed("/reset now") == "hf-infer: /reset takes nothing"
c.type("/reset\n")
c.wait("\r\n> ")
assert typed("/save new.json") == "hf-infer: new.json: 1 message"
assert [m["role"] for m in json.load(open("new.json"))["messages"]] == ["system"]
c.type("/quit\n")
assert c.end() == 0
assert sorted(os.listdir()) == ["a b.json", "in-the-way", "more.json", "new.json", "t.jinja"], os.listdir()
# a NUL, too, which another one than a person types
c = Conversation(["hf-infer", demo, *how], TERM="dumb")
c.wait("> ")
typed("a\0b")
typed("/save nul.json")
c.type("/quit\n")
assert c.end() == 0
assert json.load(open("nul.json"))["messages"][0]["content"] == "a\0b"
assert subprocess.run(["hf-infer", demo, "--chat", "--template", "t.jinja", "--render", "--messages", "nul.json"],
                      check=True, capture_output=True).stdout.startswith(b"<|im_start|>user\na\0b<|im_end|>")
# -f is of /save
c = Conversation(["hf-infer", demo, "-f", *how])
assert c.end() == 2 and "--force needs an output file" in c.seen
END
}

@test "hf-infer --chat: what is typed: lines that go on, commands, slashes, nothing" {
    typed <<'END'
import json
from conversation import Conversation, TERMS, parrot
parrot("m", ["Yes."])
for term in TERMS:
    c = Conversation(["hf-infer", "m", "--chat"], TERM=term)
    c.wait("> ")
    for line in "\n", "  \n":
        c.type(line)
        assert "Yes" not in c.wait(r"\r\n> ")[0]
    c.type("/nonsense x\n")
    assert c.wait(r"\r\n> ")[0].endswith("hf-infer: /nonsense is not known: /help lists what is, // begins a message with /")
    c.type("/help\n")
    said = c.wait(r"\r\n> ")[0]
    assert all(word in said for word in ["/reset", "/save [-f] FILE", "/quit", "/help", "Ctrl-C", "//"])
    for line in "//usr/bin\n", "a \\\nb/c\\\n/d\n", " /quit\n", "é\\ü\n":
        c.type(line)
        assert c.wait(r"\r\n> ")[0].endswith("Yes.")
    # dropped, on its second line
    c.type("no\\\n")
    c.wait("\n  ")
    c.type("\x03")
    c.wait(r"\r\n> ")
    c.type("/save -f f\n\x04")
    assert c.end() == 0
    assert [m["content"] for m in json.load(open("f"))["messages"][::2]] == ["/usr/bin", "a \nb/c\n/d", " /quit", "é\\ü"]
END
}

@test "hf-infer --chat: thinking is dim, by tags in text, in special tokens, or in the prompt" {
    typed <<'END'
import json
from conversation import Conversation, TEMPLATE, parrot
texts = ["\n<", "th", "ink>hm", "m </", "x></thin", "k>Y", "es <think> </think>."]
special = ["<think>", "so, ", "hm", "</think>", "Yes."]
parrot("text", texts)
parrot("special", special, special=special[0::3])
parrot("prompt", ["hm</", "x</think>", "Yes."], template=TEMPLATE.replace("assistant\n{%", "assistant\n<think>\n{%"))
parrot("none", [" ", "<thi", "s>", "<think>", "no"])
parrot("only", ["<think>", "hmm"])
parrot("cut", ["<think>", "hmm</thi"])
dim = "\x1b[2m", "\x1b[22m"
for model, want in [("text", "\r\n[<think>hm][m ][</x>][</think>]Yes <think> </think>."),
                    ("special", "[<think>][so, ][hm][</think>]Yes."), ("prompt", "[hm][</x</think>]Yes."),
                    ("none", " <this><think>no"), ("only", "[<think>][hmm]"), ("cut", "[<think>][hmm][</thi]")]:
    for how in {}, {"TERM": "dumb"}, {"NO_COLOR": "1"}:
        c = Conversation(["hf-infer", model, "--chat"], **how)
        c.wait("> ")
        c.type("Hi\n")
        c.wait("Hi\r\n")
        said = c.wait(r"\r\n> ")[0]
        plain = want.replace("[", "").replace("]", "")
        assert said == (plain if how else want.replace("[", dim[0]).replace("]", dim[1])), (model, how, said)
        c.type("/save -f f\n\x04")
        assert c.end() == 0
        assert json.load(open("f"))["messages"][1]["content"] == plain.replace("\r", "")
END
}

@test "hf-infer --chat: an answer drives no terminal" {
    typed <<'END'
import json
from conversation import Conversation, parrot
from terminal import HOSTILE
words = [c for c in dict.fromkeys(HOSTILE) if c != "\n" and not 0x80 <= ord(c) < 0xa0]
parrot("m", words + ["end"])
c = Conversation(["hf-infer", "m", "--chat"], TERM="dumb")
c.wait("> ")
c.type("Hi\n")
said = c.wait(r"end\r\n> ")[0]
assert not {"\x1b", "\x01", "\x7f", "\u202e", "\u2066"} & set(said) and "\\x1b" in said and "\\u{202e}" in said, said
c.type("/save \x1b[31m/x\n")
assert "hf-infer: \\x1b[31m/x: " in c.wait(r"\r\n> ")[0]
c.type("/\x1b[31m\n")
assert "hf-infer: /\\x1b[31m is not known" in c.wait(r"\r\n> ")[0]
c.type("/save f\n\x04")
assert c.end() == 0
assert json.load(open("f"))["messages"][1]["content"] == "".join(words) + "end"
END
}

@test "hf-infer --chat: a line is edited, as wide as the terminal is, and comes back" {
    [ "$EDITS" != 0 ] || skip "built without libedit"
    typed <<'END'
import json, signal
from conversation import Conversation, parrot
parrot("m", ["Yes."])
c = Conversation(["hf-infer", "m", "--chat"], columns=20)
c.wait("> ")
long = "Ä long line, 你好 \N{GRINNING FACE}, which is wider than the terminal: " + "é" * 70
want = [long, "abc", long + "!", "xé", "z" * 50]
c.type(long + "\n")
c.wait("Yes.\r\n> ")
c.type("bx\x7fc\x01a\n")  # backspace; to the beginning
c.wait("Yes.\r\n> ")
c.type("\x1b[A\x1b[A!\n")  # up, twice
c.wait("Yes.\r\n> ")
c.type("xéü\x7f\n")  # backspace over two bytes
c.wait("Yes.\r\n> ")
c.type("z" * 25)
c.resize(11)
c.kill(signal.SIGWINCH)
c.type("z" * 25 + "\n")
c.wait("Yes.\r\n> ")
c.type("typed, and dropped\x03")
c.wait("\r\n> ")
c.type("/save f\n\x04")
assert c.end() == 0
got = [m["content"] for m in json.load(open("f"))["messages"][::2]]
assert got == want, got
END
}

@test "hf-infer --chat: the terminal is as it was after Ctrl-Z, at the end, and after signals" {
    need_commands pkill
    typed <<'END'
import re, signal, subprocess
from conversation import Conversation, TERMS, edits, parrot
parrot("m", ["Yes."])
parrot("on", ["a "], endless=True)
for term in TERMS:
    for model, number in ("m", signal.SIGTERM), ("m", signal.SIGHUP), ("m", signal.SIGQUIT), ("on", signal.SIGTERM):
        c = Conversation(["hf-infer", model, "--chat"], TERM=term)
        c.wait("> ")
        if model == "on":
            c.type("Hi\n")
            c.wait("a a a ")
        c.kill(number)
        assert c.end() == -number, (term, number)
        assert c.modes() == c.first_modes
    # a shell stops it, goes on with it, and has a terminal after kill -9
    c = Conversation(["bash", "--norc", "--noprofile", "-i"], TERM=term, PS1="ready$ ", NO_COLOR="1")
    c.wait("ready[$] ")
    c.type("stty -g; hf-infer m --chat\n")
    c.wait("\n> ")
    c.type("ab")
    if edits(term):
        c.wait("ab")
    c.type("\x1a")
    c.wait("Stopped.*ready[$] ")
    c.type("fg\n")
    c.wait("fg\r\n.*--chat\r\n")
    if edits(term):
        c.wait("ab")
        c.type("c\n")
        c.wait("c\r\nYes.\r\n> ")
    else: # what was typed went with Ctrl-Z
        c.type("abc\n")
        c.wait("abc\r\nYes.\r\n> ")
    c.type("/save -f f\n")
    c.wait("messages\r\n> ")
    assert '"abc"' in open("f").read()
    if edits(term):
        c.type("half a li")
        c.wait("half a li")
    subprocess.run(["pkill", "-KILL", "-P", str(c.pid), "hf-infer"], check=True)
    c.wait("Killed.*ready[$] ")
    c.type("stty -g; echo it works\nexit\n")
    c.wait("\nit works\r\n")
    c.end()
    modes = re.findall("[\\r\\n]([0-9a-f]+:[0-9a-f:]+)\r", c.seen)
    assert len(modes) == 2 and modes[0] == modes[1], (modes, c.seen)
END
}

@test "hf-infer --chat: a full context is said, and the conversation stays" {
    typed <<'END'
import json
from conversation import Conversation, parrot
parrot("m", ["one ", "two "], endless=True, max_position_embeddings=100)
full = "hf-infer: the context of 100 tokens is full: /reset begins a new conversation, /save FILE keeps this one\r\n> "
c = Conversation(["hf-infer", "m", "--chat", "-n", "5"], TERM="dumb")
c.wait("> ")
answers = 0
while True:
    c.type("Hi\n")
    said = c.wait(r"\r\n> ")[0]
    if "full" in said:
        break
    assert said.endswith("one two one two one "), said
    answers += 1
assert full.startswith(said[said.index("hf-infer"):])
c.type("Hi\n") # as before
assert "full" in c.wait(r"\r\n> ")[0]
c.type("/save f\n")
c.wait(r"\r\n> ")
messages = json.load(open("f"))["messages"]
assert len(messages) % 2 == 0 and len(messages) // 2 in (answers, answers + 1), messages
c.type("/reset\n")
c.wait(r"\r\n> ")
c.type("Hi\n")
assert c.wait(r"\r\n> ")[0].endswith("one two one two one ")
c.type("\x04")
assert c.end() == 0
# without -n an answer goes on to the end of the context: 3 + 5 bytes, ..
c = Conversation(["hf-infer", "m", "--chat"], TERM="dumb")
c.wait("> ")
c.type("Hi\n")
said = c.wait(r"\r\n> ")[0]
n_prompt = len("^user\nHi^\n^assistant\n")
assert said.count("one ") + said.count("two ") == 100 - n_prompt and "full" in said, (n_prompt, said)
c.type("\x04")
assert c.end() == 0
END
}

@test "hf-infer --chat: an error of the template is a line, and takes the message back" {
    typed <<'END'
import json
from conversation import Conversation, TEMPLATE, parrot
parrot("m", ["Yes."], template="{% for m in messages %}{% if 'bad' in m.content %}{{ raise_exception('Not so.') }}{% endif %}{% endfor %}" + TEMPLATE)
c = Conversation(["hf-infer", "m", "--chat"], TERM="dumb")
c.wait("> ")
for line, want in ("Hi", "Yes."), ("bad", "hf-infer: m/chat_template.jinja: line 1: raise_exception: Not so."), ("good", "Yes."):
    c.type(line + "\n")
    said = c.wait(r"\r\n> ")[0]
    assert said.endswith(want) and said.count("\n") == 1, said
c.type("/save f\n\x04")
assert c.end() == 0
assert [m["content"] for m in json.load(open("f"))["messages"]] == ["Hi", "Yes.", "good", "Yes."]
END
}

@test "hf-infer --chat: sampled, the same lines give the same answers, and no two draws are alike" {
    endless
    typed <<'END'
from conversation import Conversation, TEMPLATE
open("m/chat_template.jinja", "w").write(TEMPLATE)
got = []
for seed in "1", "1", "2":
    c = Conversation(["hf-infer", "m", "--chat", "--temperature", "3", "--seed", seed, "-n", "12"], TERM="dumb")
    c.wait("> ")
    got.append([])
    for _ in range(2):
        c.type("Hi\n")
        got[-1].append(c.wait(r"\r\n> ")[0])
        c.type("/reset\n")
        c.wait(r"\r\n> ")
    c.type("\x04")
    assert c.end() == 0
assert got[0] == got[1] and len({*got[0], *got[2]}) == 4, got
END
}

@test "hf-infer --chat: where a prompt is given, or one end is no terminal, it is as ever" {
    typed <<'END'
import os, pty, subprocess
from conversation import Conversation, parrot
parrot("m", ["Yes."])
# standard output is a terminal
c = Conversation(["sh", "-c", "echo Hi | hf-infer m --chat"])
assert c.end() == 0 and c.seen == "Yes.\r\n", c.seen
c = Conversation(["hf-infer", "m", "--chat", "-p", "Hi"])
assert c.end() == 0 and c.seen == "Yes.\r\n", c.seen
# standard input is
for tail in "| cat", "-o f", "--json", "--ids-out", "--nll", "--encode", "--kvc f", "--save-session f":
    c = Conversation(["bash", "-o", "pipefail", "-c", "hf-infer m --chat " + tail])
    assert c.end() == 2, (tail, c.seen)
    assert "no prompt: give -p" in c.seen or tail.endswith(" f") and "not in a conversation" in c.seen, (tail, c.seen)
c = Conversation(["hf-infer", "m"])
assert c.end() == 2 and "no prompt: give -p" in c.seen
END
}
