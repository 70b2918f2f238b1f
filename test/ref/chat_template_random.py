# SPDX-License-Identifier: ISC
"""Random templates from a grammar of what chat templates use, and variables.

chat_template_ref.py prints them with what Jinja2 makes of them.  Most are
right; some add a number to a text or ask for what is not there.
"""
import random
import re

from jinja2 import idtracking

import chat_template_forms
from chat_template_features import is_more

TEXTS = ["", "a", "user", "assistant", "Hello, World", " x ", "\n", "a\nb\n",
         "  two  words ", "Grün", "世界", "👩‍🚀!", "<b>&'\"", "a,b,,c", "\\n",
         "ẞ İi Ωω ǆ", "\t\u3000\x1f", "0", "-12", "3.5", "<|end|>", "aXbXc",
         "role", "UPPER lower", "<think>\nx\n</think>\n\ny", "é", "e\u0301"]
PIECES = ["", "a", " ", "\n", "  ", "\n\n", "x y", " \n", "\n  ", "<|im|>",
          "é", "\t", "{", "}", "%", "#", "'", '"', "\r\n", "\\"]
KEYS = ["role", "content", "name", "x", "items", "B", "get", "a b"]
ATTRS = ["role", "content", "name", "x", "n", "nope"]


def quoted(rng, s):
    q = rng.choice("'\"")
    out = s.replace("\\", "\\\\").replace(q, "\\" + q)
    if rng.random() < 0.7:
        out = out.replace("\n", "\\n").replace("\t", "\\t")
    return q + out + q


class Writer:
    def __init__(self, rng, names):
        self.rng = rng
        self.names = names  # kind: list of names
        self.depth = 0
        self.loops = 0
        self.macros = {}

    def one(self, *ways):
        """A way at random, or, deep down, the first."""
        if self.depth > 3:
            return ways[0]()
        self.depth += 1
        try:
            return self.rng.choice(ways)()
        finally:
            self.depth -= 1

    def pick(self, kind):
        if self.rng.random() < 0.02:
            return self.rng.choice(["missing", "n", "s", "xs", "d", "nil"])
        if self.rng.random() < 0.02 and kind != "any":
            return self.any()
        return self.rng.choice(self.names[kind] or ["missing"])

    # ---- expressions ----

    def any(self):
        return self.one(self.text, self.number, self.list, self.dict,
                        self.bool, lambda: self.pick("any"),
                        lambda: "none", self.item)

    def literal(self):
        return quoted(self.rng, self.rng.choice(TEXTS))

    def text(self):
        c = self.rng.choice
        return self.one(
            self.literal, lambda: self.pick("text"), lambda: self.pick("text"),
            lambda: "%s + %s" % (self.text(), self.text()),
            lambda: "%s ~ %s" % (self.any_text(), self.any_text()),
            lambda: "(%s)" % self.text(),
            lambda: "(%s if %s else %s)" % (self.text(), self.bool(),
                                            self.text()),
            lambda: "(%s or %s)" % (self.any_text(), self.text()),
            lambda: "(%s if %s)" % (self.text(), self.bool()),
            lambda: "%s | %s" % (self.in_brackets(self.text), c(
                ["upper", "lower", "trim", "string", "string",
                 "capitalize", "first", "last", "tojson",
                 "replace('a', 'bb')", "replace(%s, %s)" % (
                     self.literal(), self.literal()),
                 "default('d')", "default('d', true)"])),
            lambda: "%s.%s" % (self.in_brackets(self.text), c(
                ["strip()", "lstrip()", "rstrip()", "upper()", "lower()",
                 "strip(%s)" % self.literal(), "rstrip('\\n')", "title()",
                 "lstrip(%s)" % self.literal(), "capitalize()",
                 "replace(%s, %s)" % (self.literal(), self.literal()),
                 "replace(%s, %s, %d)" % (self.literal(), self.literal(),
                                          self.rng.randint(-1, 3)),
                 "split(%s)[%d]" % (self.literal(), self.rng.randint(-2, 2)),
                 "split()[0]", "join(%s)" % self.list()])),
            lambda: "%s[%s]" % (self.in_brackets(self.text), self.slice()),
            lambda: "%s[%s]" % (self.in_brackets(self.text), self.number()),
            lambda: "%s | join(%s)" % (self.in_brackets(self.list),
                                       self.literal()),
            lambda: "%s | tojson%s" % (self.in_brackets(self.any), c(
                ["", "", "(indent=2)", "(separators=(',', ':'))",
                 "(ensure_ascii=true)", "(indent=0)"])),
            self.item, self.call, self.loop_text)

    def in_brackets(self, of):
        out = of()
        return out if self.rng.random() < 0.15 or out.isidentifier() \
            else "(%s)" % out

    def any_text(self):
        return self.one(self.text, self.number, self.text, self.bool,
                        lambda: "none", lambda: self.pick("plain"))

    def item(self):
        key = self.rng.choice(KEYS)
        of = self.in_brackets(self.dict)
        return self.rng.choice(["ns.x", "ns['y']",
                                "%s.%s" % (of, self.rng.choice(ATTRS)),
                                "%s['%s']" % (of, key),
                                "%s.get('%s')" % (of, key),
                                "%s.get('%s', %s)" % (of, key, self.any()),
                                "%s[%s]" % (self.in_brackets(self.list),
                                            self.number())])

    def loop_text(self):
        if not self.loops:
            return self.literal()
        return "loop." + self.rng.choice(
            "index index0 first last length revindex revindex0 previtem "
            "nextitem".split())

    def call(self):
        if not self.macros:
            return self.literal()
        name = self.rng.choice(sorted(self.macros))
        args = [self.any() for _ in range(self.macros[name])]
        if args and self.rng.random() < 0.3:
            args[-1] = "p%d=%s" % (len(args) - 1, args[-1])
        if self.rng.random() < 0.2:
            args = args[:-1]
        return "%s(%s)" % (name, ", ".join(args))

    def slice(self):
        def end():
            return self.rng.choice(["", "", str(self.rng.randint(-5, 5)),
                                    self.one(lambda: "1", self.number)])
        step = self.rng.choice(["", "", "", ":", ":-1", ":2", ":-2"])
        return "%s:%s%s" % (end(), end(), step)

    def number(self):
        c = self.rng.choice
        return self.one(
            lambda: str(self.rng.randint(-3, 9)), lambda: self.pick("number"),
            lambda: c(["1.5", "2.0", "true", "100", "0x1f"]),
            lambda: "%s %s %s" % (self.number(), c("+-*"), self.number()),
            lambda: "(%s %s %s)" % (self.number(), c("+-*"), self.number()),
            lambda: "%s %s %s" % (self.in_brackets(self.number),
                                  c(["//", "%"]),
                                  self.in_brackets(self.number)),
            lambda: "-%s" % self.in_brackets(self.number),
            lambda: "%s | length" % self.in_brackets(self.list),
            lambda: "%s | length" % self.in_brackets(self.text),
            lambda: "%s | int" % self.in_brackets(self.any_text),
            lambda: "loop.index0" if self.loops else "0",
            lambda: "(%s if %s else %s)" % (self.number(), self.bool(),
                                            self.number()))

    def bool(self):
        c = self.rng.choice
        return self.one(
            lambda: c(["true", "false", "yes", "no"]),
            lambda: "%s %s %s" % (self.in_brackets(self.text),
                                  c(["==", "!=", "in", "not in", "<", ">="]),
                                  self.in_brackets(self.text)),
            lambda: "%s %s %s" % (self.in_brackets(self.number),
                                  c(["==", "!=", "<", "<=", ">", ">="]),
                                  self.in_brackets(self.number)),
            lambda: "%s %s %s" % (self.in_brackets(self.any),
                                  c(["==", "!=", "=="]),
                                  self.in_brackets(self.any)),
            lambda: "%s %s %s" % (self.any(), c(["in", "not in"]),
                                  self.in_brackets(self.list)),
            lambda: "%s in %s" % (self.literal(), self.in_brackets(self.dict)),
            lambda: "not %s" % self.bool(),
            lambda: "(%s)" % self.bool(),
            lambda: "%s %s %s" % (self.bool(), c(["and", "or"]), self.bool()),
            lambda: "%s %s %s" % (self.any(), c(["and", "or"]), self.any()),
            lambda: "%s is %s%s" % (
                self.in_brackets(self.any), c(["", "", "not "]), c(
                    "defined undefined string none iterable mapping sequence "
                    "number boolean true false integer float".split())),
            lambda: "%s is %s" % (self.in_brackets(self.number), c(
                ["eq 3", "gt(1)", "lt 5", "in [1, 2]", "ne 0"])),
            lambda: "%s.%s(%s)" % (self.in_brackets(self.text),
                                   c(["startswith", "endswith"]),
                                   self.literal()),
            lambda: "loop.first" if self.loops else "yes",
            lambda: "loop.last" if self.loops else "no")

    def list(self):
        c = self.rng.choice
        return self.one(
            lambda: self.pick("list"), lambda: self.pick("list"),
            lambda: "[%s]" % ", ".join(self.any() for _ in range(
                self.rng.randint(0, 3))),
            lambda: "(%s, %s)" % (self.any(), self.any()),
            lambda: "%s[%s]" % (self.in_brackets(self.list), self.slice()),
            lambda: "%s + %s" % (self.in_brackets(self.list),
                                 self.in_brackets(self.list)),
            lambda: "%s.split(%s)" % (self.in_brackets(self.text), c(
                ["", "' '", "','", "'X', 1", "none, 1", self.literal()])),
            lambda: "%s | list" % self.in_brackets(self.any),
            lambda: "%s | %s | list" % (self.in_brackets(self.list), c(
                ["map(attribute='%s')" % c(ATTRS), "map('upper')",
                 "map('string')", "map('length')", "map('trim')",
                 "map('tojson')",
                 "reject('equalto', %s)" % self.any(),
                 "selectattr('%s')" % c(ATTRS), "rejectattr('role')",
                 "selectattr('role', 'equalto', 'user')",
                 "selectattr('%s', 'defined')" % c(ATTRS),
                 "rejectattr('%s', 'undefined')" % c(ATTRS),
                 "selectattr('content', 'string')"])),
            # generators, which cannot fail late
            lambda: "%s | %s" % (self.in_brackets(self.list), c(
                ["select('string')", "reject('string')", "select",
                 "select('defined')"])),
            lambda: "%s | %s" % (self.in_brackets(self.dict),
                                 c(["items | list", "dictsort", "list",
                                    "items"])),
            lambda: "%s.%s" % (self.in_brackets(self.dict),
                                 c(["items()", "keys() | list", "values()"])),
            lambda: "range(%s) | list" % self.rng.randint(-1, 4))

    def dict(self):
        return self.one(
            lambda: self.pick("dict"), lambda: self.pick("dict"),
            lambda: "ms[%s]" % self.number(),
            lambda: "{%s}" % ", ".join(
                "%s: %s" % (quoted(self.rng, self.rng.choice(KEYS)),
                            self.any()) for _ in range(
                                self.rng.randint(0, 3))),
            lambda: "{'x': %s}" % self.any())

    # ---- statements ----

    def tag(self, body):
        begin = self.rng.choice(["{%", "{%", "{%-", "{%+"])
        end = self.rng.choice(["%}", "%}", "-%}", "+%}"])
        space = self.rng.choice([" ", " ", " ", "", "\n  "])
        gap = " " if begin[-1] == "+" else space
        return begin + gap + body + (space if body[-1] not in "+-" else " ") \
            + end

    def body(self, n=3):
        return "".join(self.statement()
                       for _ in range(self.rng.randint(0, n)))

    def output(self):
        what = self.rng.choice([self.text, self.text, self.any_text])()
        return self.rng.choice(["{{ %s }}", "{{ %s }}", "{{- %s }}",
                                "{{ %s -}}", "{{- %s -}}", "{{%s}}"]) % (
                                    " %s " % what if what[0] in "-+{" or
                                    what[-1] in "-}" else what)

    def piece(self):
        out = "".join(self.rng.choice(PIECES) for _ in range(3))
        for mark in "{{", "{%", "{#", "#}":
            out = out.replace(mark, mark[0])
        return out + (" " if out[-1:] == "{" else "")

    def branch(self):
        out = self.tag("if " + self.bool()) + self.body()
        for _ in range(self.rng.choice([0, 0, 1])):
            out += self.tag("elif " + self.bool()) + self.body()
        if self.rng.random() < 0.5:
            out += self.tag("else") + self.body()
        return out + self.tag("endif")

    def scoped(self, kind, name, body):
        saved = {k: list(v) for k, v in self.names.items()}
        macros = dict(self.macros)
        self.names[kind] = self.names[kind] + [name] * 2
        self.names["any"] = self.names["any"] + [name]
        out = body()
        self.names, self.macros = saved, macros
        return out

    def loop(self):
        kind = self.rng.choice(["any", "dict", "text", "kv"])
        over, name = self.list(), self.rng.choice(["v", "w", "m", "s"])
        if kind == "dict":
            over = self.rng.choice(["ms", "ms", "ms[1:]", "ms[::-1]",
                                    "ms | selectattr('role', 'equalto', "
                                    "'user')"])
        elif kind == "kv":
            of = self.in_brackets(self.dict)
            over = self.rng.choice(["%s.items()", "%s | items",
                                    "%s | dictsort"]) % of
            kind, name = "any", "k, " + name
        head = "for %s in %s" % (name, over)

        def within():
            out = ""
            if self.rng.random() < 0.2:
                out = " if " + self.bool()
            out = self.tag(head + out)
            self.loops += 1
            out += self.body()
            if self.rng.random() < 0.2:
                out += self.tag("if " + self.bool()) + self.tag(
                    self.rng.choice(["break", "continue"])) + self.tag("endif")
            out += self.body(1)
            self.loops -= 1
            return out
        return self.scoped(kind, name.split(", ")[-1], within) + \
            self.tag("endfor")

    def set(self):
        name = self.rng.choice(["a", "b", "s", "n", "xs"])
        kind = self.rng.choice(["text", "number", "list", "dict", "any"])
        out = "set %s = %s" % (name, getattr(self, kind)())
        if self.rng.random() < 0.1:
            out = "set %s, c = %s, %s" % (name, self.any(), self.any())
        self.names[kind].append(name)
        self.names["any"].append(name)
        return self.tag(out)

    def set_block(self):
        out = self.tag("set a")
        out += self.body() + self.tag("endset")
        self.names["text"].append("a")
        return out

    def set_member(self):
        return self.tag("set ns.%s = %s" % (self.rng.choice("xy"), self.any()))

    def macro(self):
        name = self.rng.choice(["f", "g", "h"])
        n = self.rng.randint(0, 3)
        params = ["p%d" % i for i in range(n)]
        if n and self.rng.random() < 0.4:
            params[-1] += "=" + self.any()
        loops, self.loops = self.loops, 0

        def within():
            return self.body()
        out = self.tag("macro %s(%s)" % (name, ", ".join(params)))
        out += self.scoped("text", "p0", within) + self.tag("endmacro")
        self.loops = loops
        self.macros[name] = n
        return out

    def comment(self):
        return self.rng.choice(["{# c #}", "{#- c -#}", "{#c\n#}\n",
                                "{# {{ x }} -#}", "{#+ c #}"])

    def raw(self):
        return self.rng.choice(["{% raw %}", "{%- raw -%}", "{%raw%}"]) + \
            self.rng.choice(["{{ x }}", " \n{% y %}", "{# z #} "]) + \
            self.rng.choice(["{% endraw %}", "{%- endraw -%}", "{%endraw%}"])

    def generation(self):
        loops, self.loops = self.loops, 0
        out = self.tag("generation") + self.body() + self.tag("endgeneration")
        self.loops = loops
        return out

    def statement(self):
        if self.depth > 2:
            return self.piece() + self.output()
        self.depth += 1
        try:
            way = self.rng.choice(
                [self.output] * 6 + [self.piece] * 4 + [self.branch] * 3 +
                [self.loop] * 3 + [self.set] * 3 + [self.set_block,
                 self.set_member, self.macro, self.comment, self.raw,
                 self.generation])
            return way()
        finally:
            self.depth -= 1


def some(rng, depth=2):
    """A value of JSON."""
    kind = rng.randrange(9 if depth else 6)
    if kind < 2:
        return rng.choice(TEXTS)
    if kind < 4:
        return rng.randint(-5, 20)
    if kind == 4:
        return rng.choice([True, False, None])
    if kind == 5:
        return rng.choice([0.5, 1.0, -2.25, 1e16, 1e-7, 3.14])
    if kind < 8:
        return [some(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(KEYS): some(rng, depth - 1)
            for _ in range(rng.randint(0, 3))}


def message(rng):
    out = {"role": rng.choice(["user", "assistant", "system", "tool"]),
           "content": rng.choice([rng.choice(TEXTS), rng.choice(TEXTS),
                                  None, [{"type": "text", "text": "hi"}]])}
    if rng.random() < 0.4:
        out[rng.choice(ATTRS)] = some(rng)
    return out


def variables(rng):
    out = {"s": rng.choice(TEXTS), "t": rng.choice(TEXTS),
           "n": rng.randint(-3, 9), "z": rng.choice([0, 1, 2.5]),
           "yes": True, "no": False, "nil": None,
           "xs": [rng.choice(TEXTS) for _ in range(rng.randint(0, 4))],
           "ys": [rng.randint(-3, 9) for _ in range(rng.randint(0, 4))],
           "zs": [some(rng) for _ in range(rng.randint(0, 3))],
           "d": {rng.choice(KEYS): some(rng) for _ in range(3)},
           "ms": [message(rng) for _ in range(rng.randint(0, 4))]}
    if rng.random() < 0.2:
        del out[rng.choice(sorted(out))]
    return out


def template(rng):
    w = Writer(rng, {"text": ["s", "t"], "number": ["n", "z"],
                     "list": ["xs", "ys", "zs", "ms"], "dict": ["d"],
                     "any": ["yes", "no", "nil", "s", "n", "xs", "d", "zs"],
                     "plain": ["s", "n", "yes", "nil", "z"]})
    out = w.tag("set ns = namespace(x=0, y='')")
    n = rng.randint(1, 5)
    for _ in range(n):
        w.depth = 0
        out += w.statement()
    return out


TOKENS = re.compile(r"""\{%[-+]?|[-+]?%\}|\{\{-?|-?\}\}|'[^']*'|"[^"]*"|\w+|"""
                    r"\s+|.")
KNOWN = [text for line in chat_template_forms.FORMS.strip().split("\n")
         for text in chat_template_forms.split(line.replace("␤", "\n"))
         if len(text) < 300]


def mutated(rng):
    """A known form, with a few of its words left out, twice, in another
    place, or of another form."""
    words = TOKENS.findall(rng.choice(KNOWN))
    others = TOKENS.findall(rng.choice(KNOWN))
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at = rng.randrange(len(words) + 1)
        a, b = sorted(rng.randrange(len(others) + 1) for _ in range(2))
        words[at:at + rng.choice([0, 1, 1, 2])] = rng.choice([
            [], words[at:at + 1] * 2, [rng.choice(others)],
            [rng.choice(words or others)], others[a:min(b, a + 6)]])
    return "".join(words)


# Where Jinja 3.1 gives a text by mistake: a comment or raw text that begins at
# the end, an item of nothing, a number's slice; or refuses: "for k, in".
ODD = re.compile(r"""(\{\#[-+]?|\{%[-+]?\s*raw\s*-?%\}\s*)\Z|[\w)\]'"]\s*\[\s*\]|
                 ,\s*in\b|\d\s*\[""", re.X)
# Whose text is not what the template gives at once.
LATER = re.compile(r"\b(macro|set \w+\s*[-+|%]|filter|call)|"
                   r"\bgeneration\b(?:(?!endgeneration).)*\bgeneration\b",
                   re.S)


def store(self, name):
    """As jinja2.idtracking.Symbols does it, but for this: there a name that is
    set later hides the variable from loops and macros before that."""
    if name not in self.refs and (self.parent is None or
                                  self.parent.find_ref(name) is None):
        self._define_ref(name, load=(idtracking.VAR_LOAD_RESOLVE, name))
    STORE(self, name)


STORE = idtracking.Symbols.store


def cases(put, render, env, n, seed):
    idtracking.Symbols.store = store
    for done in range(n):
        rng = random.Random("%d %d" % (seed, done))
        if done % 2:
            text, v = mutated(rng), chat_template_forms.V
        else:
            text, v = template(rng), variables(rng)
        want = render(text, v, env)
        if LATER.search(text):
            want.pop("said", None)
        if not want.get("error", "").startswith(("Beyond", "Recursion")) and \
                not ODD.search(text):
            put("random %d %d" % (seed, done), text, v, want,
                more=is_more(env, text))
