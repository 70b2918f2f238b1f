# SPDX-License-Identifier: ISC
"""Can a picture be read: svg.py FILE N_PLOTS.  It has a background of its own,
and colors for a dark viewer; each plot three ticks on both axes; a line has two
points, as one alone is not shown; no text leaves it (0.62 em a character, which is wide for a sans-serif), or is upon another
(0.5 em, which is usual for digits)."""
import re
import sys
import xml.dom.minidom as dom

root = dom.parse(sys.argv[1]).documentElement
n_plots = int(sys.argv[2])
width, height = (float(root.getAttribute(a)) for a in ("width", "height"))


def elements(node, x=0.0, y=0.0):
    for e in node.childNodes:
        if e.nodeType != e.ELEMENT_NODE:
            continue
        move = re.match(r"translate\(([^,]+),([^,]+)\)", e.getAttribute("transform"))
        dx, dy = map(float, move.groups()) if move else (0, 0)
        yield e, x + dx, y + dy
        yield from elements(e, x + dx, y + dy)


every = list(elements(root))
back = every[0][0]
assert back.tagName == "rect" and back.getAttribute("fill") == "#fff", back.toxml()
assert [float(back.getAttribute(a)) for a in ("width", "height")] == [width, height]
assert "prefers-color-scheme:dark" in every[1][0].firstChild.data
for axis in "xy":
    ticks = [e for e, *_ in every if e.getAttribute("class") == axis]
    assert len(ticks) >= 3 * n_plots, (axis, len(ticks))
for e, *_ in every:
    if e.tagName == "polyline":
        assert len(set(e.getAttribute("points").split())) > 1, e.toxml()
boxes = []
for e, x, y in every:
    if e.tagName != "text":
        continue
    size = float(e.getAttribute("font-size") or root.getAttribute("font-size"))
    n = 0.62 * size * len(e.firstChild.data)
    x += float(e.getAttribute("x") or 0)
    y += float(e.getAttribute("y"))
    before = {"middle": 0.5, "end": 1}.get(e.getAttribute("text-anchor"), 0)
    half = n * 0.5 / 0.62
    boxes.append((x - half * before, x + half * (1 - before), y - 0.7 * size, y, e.toxml()))
    x -= n * before
    assert x >= 0 and x + n <= width and size <= y <= height - 2, e.toxml()
for i, (left, right, top, bottom, text) in enumerate(boxes):
    for l, r, t, b, other in boxes[:i]:
        assert right <= l or r <= left or bottom <= t or b <= top, (text, other)
