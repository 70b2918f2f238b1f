#!/usr/bin/python3
# SPDX-License-Identifier: ISC
"""Print core/invisible.c from Unicode's DerivedCoreProperties.txt:

    invisible.py /usr/share/unicode/DerivedCoreProperties.txt

The code points are those of Default_Ignorable_Code_Point.  Debian's package
unicode-data has the file, as https://www.unicode.org/Public/ does.
"""

import re
import sys

text = open(sys.argv[1], encoding="utf-8").read()
version = re.match(r"# DerivedCoreProperties-(\d+\.\d+)", text)[1]
found = re.findall(r"^([0-9A-F]+)(?:\.\.([0-9A-F]+))?\s*; "
                   r"Default_Ignorable_Code_Point\b", text, re.M)
ranges = []
for first, last in sorted((int(a, 16), int(b or a, 16)) for a, b in found):
    if ranges and ranges[-1][1] == first - 1:
        ranges[-1][1] = last
    else:
        ranges.append([first, last])
print(f"""\
/* Written by scripts/invisible.py from Unicode {version}. */
#include "core/str.h"

#include <stddef.h>

static const struct {{
    uint32_t first, last;
}} ranges[] = {{
    // clang-format off""")
for first, last in ranges:
    print(f"    {{ 0x{first:04x}, 0x{last:04x} }},")
print("""\
    // clang-format on
};

bool
invisible(uint32_t code_point)
{
    const size_t n = sizeof(ranges) / sizeof(ranges[0]);
    size_t i = 0;

    while (i < n && ranges[i].last < code_point)
        i++;
    return i < n && ranges[i].first <= code_point;
}""")
