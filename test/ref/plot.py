# SPDX-License-Identifier: ISC
"""What a picture of characters shows: plot.py reads --plot's output back.

columns(text): of each column its height, as a number on the axis, and an eighth
of a row.  line(text): {x from 0 to 1: (lowest, highest)} where there are dots,
how far these can be off, and what the axis shows of a number: itself or, if the
heading says so, its logarithm.  Numbers are told from the ticks, each of which
is beside its row.
"""
import math
import re

BLOCKS = " ▁▂▃▄▅▆▇█"


def rows_of(text):
    """Heading; the rows between the axes, from the top; ticks {row: number}."""
    lines = text.split("\n")
    first = next(i for i, s in enumerate(lines) if re.match(r" *[-+.e0-9]* ?[│┤]", s))
    end = next(i for i, s in enumerate(lines) if "└" in s)
    at_axis = lines[end].split("└")[0].strip()
    rows, ticks = [], {}
    for i, s in enumerate(lines[first:end]):
        number, bar, inside = re.match(r" *([-+.e0-9]*) ?([│┤])(.*)", s).groups()
        assert bool(number) == (bar == "┤") and len(s) <= 80, s
        rows.append(inside)
        if number:
            ticks[i] = float(number)
    if at_axis:
        ticks[end - first] = float(at_axis)
    width = len(lines[end]) - lines[end].index("└") - 1
    assert all(len(s) <= 80 for s in lines)
    return lines[first - 1], [s.ljust(width) for s in rows], ticks


def columns(text):
    _, rows, ticks = rows_of(text)
    n = len(rows)
    top = ticks[0]
    assert top == max(ticks.values()) and ticks[n] == 0, ticks
    rows_of_ticks = sorted(ticks)  # as many rows, and as much, between each two
    assert len({b - a for a, b in zip(rows_of_ticks, rows_of_ticks[1:])}) == 1, ticks
    assert all(abs(ticks[r] - top * (n - r) / n) <= 1e-9 * top for r in ticks), ticks
    for column in zip(*rows):  # nothing hangs in the air
        assert set("".join(column).lstrip()[1:]) <= {"█"}, column
    return [sum(map(BLOCKS.index, c)) * top / (8 * n) for c in zip(*rows)], top / (8 * n)


def line(text):
    heading, rows, ticks = rows_of(text)
    f = math.log10 if "log scale" in heading else float
    low, high = max(ticks), min(ticks)  # rows
    per_dot = (f(ticks[high]) - f(ticks[low])) / (4 * (low - high))
    dots = {}
    for r, row in enumerate(rows):
        for c, ch in enumerate(row):
            bits = ord(ch) - 0x2800 if ch > "\u2800" else 0
            for y, pair in enumerate(((1, 8), (2, 16), (4, 32), (64, 128))):
                for x, bit in enumerate(pair):
                    if bits & bit:
                        dots.setdefault(2 * c + x, []).append(4 * r + y)
    last = 2 * len(rows[0]) - 1

    def number(dot):
        return f(ticks[low]) + (4 * low + 1.5 - dot) * per_dot

    return {x / last: (number(max(d)), number(min(d))) for x, d in dots.items()}, 5 * per_dot, f


def check(text, x, y):
    """Is the curve that of these points, as far as its dots tell?"""
    found, slack, f = line(text)
    span = x[-1] - x[0]
    for at, v in zip(x, y):
        near = [d for c, d in found.items() if abs(c - (at - x[0]) / span) < 1 / 127]
        assert near and min(d[0] for d in near) - slack <= f(v) <= max(d[1] for d in near) + slack, (at, v, near)
    for c, (low, high) in found.items():  # nor anything else
        i = [k for k, at in enumerate(x) if abs((at - x[0]) / span - c) <= 1 / 127 + max(x[1] - x[0], 1) / span]
        assert min(f(y[k]) for k in i) - slack <= low and high <= max(f(y[k]) for k in i) + slack, (c, low, high)
