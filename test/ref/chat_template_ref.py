# SPDX-License-Identifier: ISC
"""chat_template_ref.py MODE: chat templates as Jinja2 renders them.

For test/unit/template_ref.c: a JSON object a line, {"template", "vars"} and
what they must give: "expected", a text; "raised", the message of
raise_exception; or "error", of any kind, "line" and "says" of it.  With
"of", how many bytes are whose, and "said", what {% generation %} has rendered.
Jinja2 is set up as transformers sets it up for apply_chat_template.  Modes:

  own               test/templates/*.jinja with each of conversations.json
  shared DIR        published templates and the texts that they must give
  forms             small templates: chat_template_forms.py
  random N SEED     N templates: chat_template_random.py
  features          what test/templates uses, a line each, and what it lacks
"""
import copy
import datetime
import functools
import json
import os
import re
import sys
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
try:
    import jinja2
except ImportError:
    print(json.dumps({"skip": "no jinja2 here"}))
    sys.exit(0)
from jinja2 import nodes  # noqa: E402
from jinja2.ext import Extension, loopcontrols  # noqa: E402
from jinja2.sandbox import ImmutableSandboxedEnvironment  # noqa: E402

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)  # SOURCE_DATE_EPOCH of the test
TEMPLATES = os.path.join(os.path.dirname(HERE), "templates")


class Raised(jinja2.TemplateError):
    """What raise_exception() raises."""


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None,
           sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


class Generation(Extension):
    """{% generation %}: notes where its text begins and ends."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"],
                                       drop_needle=True)
        call = self.call_method("note")
        return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def note(self, caller):
        text = caller()
        begin = len("".join(self.environment.blocks))
        self.environment.said.append((begin, begin + len(text)))
        return text


def environment(cls=ImmutableSandboxedEnvironment, **more):
    env = cls(trim_blocks=True, lstrip_blocks=True,
              extensions=[Generation, loopcontrols], **more)
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.blocks, env.said, env.compiled = [], [], {}
    return env


ENV = environment()


class Spelled(Exception):
    """A list, a mapping or whatever else has Python's spelling as a text."""


class Beyond(Exception):
    """What is not compared: numbers of more than 64 bits, and formats."""


def plain(x):
    if x is not None and not isinstance(x, (str, int, float,
                                            jinja2.Undefined)):
        raise Spelled(type(x).__name__)
    return x


def on_plain(f):
    """A filter that makes a text of its argument, which must be plain."""
    @functools.wraps(f)
    def filter_(*args, **kwargs):
        at = isinstance(args[0], (nodes.EvalContext, jinja2.Environment))
        plain(args[at])
        return f(*args, **kwargs)
    return filter_


class Strict(ImmutableSandboxedEnvironment):
    """Raises Spelled where Jinja would give Python's spelling."""
    intercepted_binops = frozenset("+ - * / // % **".split())

    def call_binop(self, context, operator, left, right):
        if isinstance(left, str) and operator in "%*" or \
                isinstance(right, str) and operator == "*":
            raise Beyond("a format, or a text times a number")
        if isinstance(left, float) or isinstance(right, float):
            raise Beyond("real numbers")
        if operator == "*" and isinstance(left, (str, list, int)) and \
                isinstance(right, (str, list, int)):
            n = [x if isinstance(x, int) else len(x) for x in (left, right)]
            if abs(n[0] * n[1]) > (10000 if {type(left), type(right)} &
                                   {str, list} else 2 ** 62):
                raise Beyond("much")
        if operator == "**" and not abs(right) < 64:
            raise Beyond("a power")
        out = super().call_binop(context, operator, left, right)
        if isinstance(out, int) and abs(out) >= 2 ** 63:
            raise Beyond("an integer")
        return out


def strict():
    env = environment(Strict, finalize=plain, optimized=False)
    for name in "string upper lower trim replace capitalize title safe " \
                "center wordcount indent truncate escape e".split():
        env.filters[name] = on_plain(env.filters[name])
    join = env.filters["join"]

    @jinja2.pass_eval_context
    def join_plain(eval_ctx, value, d="", attribute=None):
        if attribute is not None:
            get = jinja2.filters.make_attrgetter(eval_ctx.environment,
                                                 attribute)
            value = map(get, value)
        return join(eval_ctx, [plain(x) for x in value], plain(d))

    env.filters["join"] = join_plain
    # what ~ calls
    jinja2.runtime.str_join = lambda parts: "".join(str(plain(x))
                                                    for x in parts)
    return env



def render(text, variables, env=ENV):
    """What a template gives: "expected" and "said", "raised", or "error"."""
    env.blocks.clear()
    env.said.clear()
    try:
        if text not in env.compiled:
            env.compiled[text] = env.from_string(text)
        template = env.compiled[text]
        for block in template.generate(**copy.deepcopy(variables)):
            env.blocks.append(block)
        out = "".join(env.blocks)
        out.encode()
        return {"expected": out, "said": list(env.said)}
    except Raised as e:
        return {"raised": str(e)}
    except Exception as e:
        line = getattr(e, "lineno", None)
        for frame in traceback.extract_tb(e.__traceback__):
            if frame.filename == "<template>":
                line = frame.lineno
        return {"error": "%s: %s" % (type(e).__name__, e), "line": line}


# ---- whose bytes they are ----

FIXED = {"role", "type", "required"}  # values that templates compare with


def other_letter(c):
    """A letter of two bytes, in its case, for one of ASCII."""
    if "a" <= c <= "z":
        return chr(0x430 + ord(c) - ord("a"))
    if "A" <= c <= "Z":
        return chr(0x410 + ord(c) - ord("A"))
    return c


def swapped(value, fixed):
    """The value with other letters in its texts; notes what keeps its own."""
    if isinstance(value, dict):
        fixed.update(value)
        for k in FIXED & value.keys():
            fixed.update(value[k] if isinstance(value[k], list) else
                         [str(value[k])])
        return {k: v if k in FIXED else swapped(v, fixed)
                for k, v in value.items()}
    if isinstance(value, list):
        return [swapped(v, fixed) for v in value]
    if isinstance(value, str) and "<" not in value and "/" not in value:
        return "".join(map(other_letter, value))
    if isinstance(value, str):
        fixed.update(re.findall("[A-Za-z]+", value))
    return value


def sources(variables):
    """Each source of text: its number, the variables with it swapped, and the
    texts of it that were left."""
    for name, value in variables.items():
        if name.endswith("_token"):
            continue
        if name != "messages":
            fixed = set()
            yield -2, {**variables, name: swapped(value, fixed)}, fixed
            continue
        for i, message in enumerate(value):
            fixed = set()
            parts = list(value)
            parts[i] = swapped(message, fixed)
            yield i + 1, {**variables, name: parts}, fixed


def whose(text, variables, out):
    """Runs of [bytes, of]: 0 the template's, i + 1 of message i, -2 of another
    variable, -1: unknown, such as what is no letter.  None if what the texts
    are decides what is rendered."""
    of = [0 if c.isascii() and c.isalpha() else -1 for c in out]
    for i in range(1, len(out)):
        if out[i - 1] == "\\":
            of[i] = -1
    for number, changed, fixed in sources(variables):
        got = render(text, changed).get("expected", "")
        if len(got) != len(out):
            return None
        for i, (a, b) in enumerate(zip(out, got)):
            if a != b:
                if not a.isalpha() or of[i] > 0:
                    return None
                of[i] = number
        for word in fixed.union(map(str.upper, fixed), map(str.lower, fixed)):
            at = out.find(word) if word else -1
            while at >= 0:
                for i in range(at, at + len(word)):
                    of[i] = -1 if of[i] == 0 else of[i]
                at = out.find(word, at + 1)
    runs = []
    for c, number in zip(out, of):
        n = len(c.encode())
        if runs and runs[-1][1] == number:
            runs[-1][0] += n
        else:
            runs.append([n, number])
    return runs


# ---- cases ----

def put(name, text, variables, want, **more):
    case = {"name": name, "template": text, "vars": variables, **want, **more}
    if "expected" in case and "said" in case:
        out = case["expected"]
        case["said"] = [[len(out[:at].encode()) for at in span]
                        for span in case["said"]]
    print(json.dumps(case))


def read(path):
    # newlines as they are in the file
    with open(path, encoding="utf-8", newline="") as f:
        return f.read()


def own():
    env = strict()
    conversations = json.loads(read(os.path.join(TEMPLATES,
                                                 "conversations.json")))
    for name in sorted(os.listdir(TEMPLATES)):
        if not name.endswith(".jinja"):
            continue
        text = read(os.path.join(TEMPLATES, name))
        for case, variables in conversations.items():
            want = render(text, variables, env)
            more = {}
            if "expected" in want:
                more["of"] = whose(text, variables, want["expected"])
            put(name + ", " + case, text, variables, want, **more)


def shared(folder):
    conversations = json.loads(read(os.path.join(folder,
                                                 "conversations.json")))
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        text = read(os.path.join(folder, name))
        cases = os.path.join(folder, name[:-len("jinja")] + "cases.jsonl")
        for line in read(cases).splitlines():
            case = json.loads(line)
            variables = {"tools": None, "documents": None,
                         "add_generation_prompt": True,
                         **conversations[case["case"]],
                         "bos_token": case["bos_token"],
                         "eos_token": case["eos_token"]}
            more = {"judge": case.get("judge", True)}
            if "expected" in case:
                want = {"expected": case["expected"]}
                more["of"] = whose(text, variables, case["expected"])
            elif case["error"] == "raised":
                want = {"raised": case["message"]}
            else:
                want = {"error": case["error"] + ": " + case["message"]}
            # the file's texts are this reference's, too
            here = render(text, variables)
            if more["judge"] and any(here.get(k) != v for k, v in want.items()
                                     if k != "error"):
                more["reference"] = here
            put(name + ", " + case["case"], text, variables, want, **more)


def main():
    mode, args = sys.argv[1], sys.argv[2:]
    if mode == "own":
        own()
    elif mode == "shared":
        shared(args[0])
    elif mode == "forms":
        import chat_template_forms
        chat_template_forms.cases(put, render, strict())
    elif mode == "random":
        import chat_template_random
        chat_template_random.cases(put, render, strict(), *map(int, args))
    elif mode == "features":
        import chat_template_features
        chat_template_features.cases(ENV, TEMPLATES)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
