# SPDX-License-Identifier: ISC
"""What templates use, by Jinja's own parser, and what the published ones use:
test/templates must use all of it.
"""
import json
import os
import re

import jinja2
from jinja2 import nodes

# Of 33 published chat templates; {% generation %} is transformers' own.
USED = """
for if set not and or elif else set-ns macro macro-call default-value
keyword-argument conditional conditional-without-else for-unpack for-if
slice slice-step negative-step unary-minus tuple list dict break
continue generation set-block comment concatenated-strings
loop.last loop.first loop.index0 loop.index loop.previtem loop.nextitem
loop.length loop.revindex0
compare-eq compare-ne compare-in compare-notin compare-gt compare-lt
operator-+ operator-- operator-% operator-~
test-defined test-undefined test-string test-none test-iterable test-mapping
test-sequence test-false test-true test-boolean
filter-tojson filter-length filter-trim filter-string filter-items
filter-default filter-list filter-safe filter-join filter-selectattr
filter-rejectattr filter-select filter-reject filter-map filter-dictsort
filter-lower filter-upper
method-split method-lstrip method-rstrip method-strip method-endswith
method-startswith method-get method-items method-replace method-append
method-pop method-join
call-raise_exception call-strftime_now call-range call-namespace
attribute item item-of-attribute-name
{%- -%} {{- -}} {#- -#} {%+
""".split()

# What is there beside it; the rest may be refused by name.
MORE = """
conditional subscript compare-gteq compare-lteq operator-* operator-//
filter-count filter-capitalize filter-first filter-last filter-replace
filter-int
test-boolean test-integer test-float test-number test-callable test-eq
test-equalto test-== test-ne test-!= test-in test-lt test-gt test-le test-ge
method-upper method-lower method-title method-capitalize
method-keys method-values loop.revindex
""".split()

COMPARE = {"eq": "eq", "ne": "ne", "in": "in", "notin": "notin", "gt": "gt",
           "lt": "lt", "gteq": "gteq", "lteq": "lteq"}
PLAIN = {nodes.If: "if", nodes.For: "for", nodes.Assign: "set",
         nodes.AssignBlock: "set-block", nodes.Macro: "macro",
         nodes.Not: "not", nodes.And: "and", nodes.Or: "or",
         nodes.NSRef: "set-ns", nodes.Keyword: "keyword-argument",
         nodes.CondExpr: "conditional", nodes.Slice: "slice",
         nodes.Neg: "unary-minus", nodes.Tuple: "tuple", nodes.List: "list",
         nodes.Dict: "dict", nodes.Break: "break", nodes.Continue: "continue",
         nodes.Add: "operator-+", nodes.Sub: "operator--",
         nodes.Mod: "operator-%", nodes.Concat: "operator-~",
         nodes.CallBlock: "generation", nodes.Getattr: "attribute",
         nodes.Getitem: "item", nodes.Mul: "operator-*",
         nodes.Div: "operator-/", nodes.FloorDiv: "operator-//",
         nodes.Pow: "operator-**", nodes.Pos: "unary-plus", nodes.With: "with",
         nodes.FilterBlock: "filter-block"}


def of_node(node, macros):
    if type(node) in PLAIN:
        yield PLAIN[type(node)]
    if isinstance(node, nodes.If):
        yield from ["elif"] * bool(node.elif_) + ["else"] * bool(node.else_)
    elif isinstance(node, nodes.For):
        yield from ["for-if"] * bool(node.test)
        yield from ["for-else"] * bool(node.else_)
        yield from ["for-recursive"] * bool(node.recursive)
        if isinstance(node.target, nodes.Tuple):
            yield "for-unpack"
    elif isinstance(node, nodes.CondExpr) and node.expr2 is None:
        yield "conditional-without-else"
    elif isinstance(node, nodes.Macro) and node.defaults:
        yield "default-value"
    elif isinstance(node, nodes.Slice) and node.step:
        yield "slice-step"
        if isinstance(node.step, nodes.Neg):
            yield "negative-step"
    elif isinstance(node, nodes.Operand):
        yield "compare-" + COMPARE[node.op]
    elif isinstance(node, (nodes.Filter, nodes.Test)):
        yield type(node).__name__.lower() + "-" + node.name
    elif isinstance(node, nodes.Getattr) and isinstance(node.node, nodes.Name):
        if node.node.name == "loop":
            yield "loop." + node.attr
    elif isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        if node.arg.value == "items":
            yield "item-of-attribute-name"
    elif isinstance(node, nodes.Tuple) and node.ctx == "store":
        if any(isinstance(n, nodes.Tuple) for n in node.items):
            yield "unpack-in-unpack"
    elif isinstance(node, nodes.AssignBlock) and node.filter:
        yield "set-block-filter"
    elif isinstance(node, nodes.CallBlock):
        if not isinstance(node.call.node, nodes.ExtensionAttribute):
            yield "call-block"
    elif isinstance(node, nodes.Call):
        yield from ["dynamic-arguments"] * bool(node.dyn_args or
                                                node.dyn_kwargs)
        if isinstance(node.node, nodes.Getattr):
            yield "method-" + node.node.attr
        elif isinstance(node.node, nodes.Name):
            name = node.node.name
            yield "macro-call" if name in macros else "call-" + name


ARGUMENTS = {"dictsort": 0, "int": 0, "trim": 0, "join": 1, "first": 0}


NAMED = {"select": 0, "reject": 0, "selectattr": 1, "rejectattr": 1, "map": 0}
ODD = re.compile(r"\b0[0xob]|\d[a-zA-Z_]|\d{20}|\\[0-7]|\{%[-+]?\s*raw")


def is_more(env, text):
    """Does a template use what may be refused by name?"""
    try:
        tree = env.parse(text)
    except jinja2.TemplateError:
        return False
    if ODD.search(text):
        return True
    known = {*USED, *MORE}
    macros = {m.name for m in tree.find_all(nodes.Macro)}
    loops = [n.node for n in tree.find_all(nodes.Getattr)]
    for node in tree.find_all(nodes.Node):
        if not known.issuperset(of_node(node, macros)):
            return True
        if isinstance(node, nodes.Filter) and (
                len(node.args) > ARGUMENTS.get(node.name, 9) or
                node.name in ARGUMENTS and node.kwargs):
            return True
        if isinstance(node, nodes.Filter) and \
                len(node.args) > NAMED.get(node.name, 9):
            name = getattr(node.args[NAMED[node.name]], "value", None)
            kind = "filter-%s" if node.name == "map" else "test-%s"
            if kind % name not in known:
                return True
        if isinstance(node, nodes.Filter) and node.name == "tojson" and (
                node.args or any(k.key in ("ensure_ascii", "sort_keys") or
                                 isinstance(getattr(k.value, "value", 0), str)
                                 for k in node.kwargs)):
            return True
        if isinstance(node, nodes.Filter) and any(
                re.match(r"\d|.*[.]", str(getattr(a, "value", "")))
                for a in
                node.args[:1] + [k.value for k in node.kwargs]):
            return True
        if isinstance(node, nodes.Call) and \
                isinstance(node.node, nodes.Getattr) and (
                    node.node.attr in ("startswith", "endswith") and
                    (len(node.args) > 1 or
                     isinstance(node.args[0] if node.args else 0,
                                nodes.Tuple)) or
                    node.node.attr == "replace" and
                    getattr(node.args[0] if node.args else 0, "value", 1)
                    == ""):
            return True
        if isinstance(node, nodes.Filter) and node.name == "replace" and \
                getattr(node.args[0] if node.args else 0, "value", 1) == "":
            return True
        if isinstance(node, nodes.Name) and (
                node.name in ("varargs", "kwargs", "caller", "dict") or
                node.name == "loop" and all(n is not node for n in loops)):
            return True
        if isinstance(node, nodes.Getattr) and \
                getattr(node.node, "name", None) in macros:
            return True
        # a constant is folded as 1[:2] is: nothing
        if isinstance(node, nodes.Getitem) and (
                isinstance(node.arg, nodes.Tuple) or
                isinstance(node.arg, nodes.Slice) and isinstance(
                    node.node, (nodes.Const, nodes.And, nodes.Or,
                                nodes.CondExpr))):
            return True
    return False


def of_template(env, text):
    tree = env.parse(text)
    macros = {m.name for m in tree.find_all(nodes.Macro)}
    last = None
    for node in tree.find_all(nodes.Node):
        yield from of_node(node, macros)
    for _, kind, token in env.lex(text):
        if kind.endswith(("_begin", "_end")):
            token = token.strip()
            yield token
            yield from ["raw"] * (kind == "raw_begin")
            yield from ["comment"] * (kind == "comment_begin")
        elif kind == "string" and last == "string":
            yield "concatenated-strings"
        last = last if kind == "whitespace" else kind


def cases(env, folder):
    used = set()
    for name in sorted(os.listdir(folder)):
        if name.endswith(".jinja"):
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                used.update(of_template(env, f.read()))
    print(json.dumps({"features": len(set(USED) & used),
                      "lacks": sorted(set(USED) - used)}))
