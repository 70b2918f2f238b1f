#!/bin/sh
# SPDX-License-Identifier: ISC
# Prints the lines of each room, and the most that it may have: a capability
# makes the next one cheaper, or pays for itself elsewhere.  Fails over that.  A
# commit that raises a number says why.  A licence's line is not counted.
budgets='core 11788
core/format 13414
core/kernel 12001
core/model 30170
core/text 7761
core/image 2379
cmd 40983
lib 2742'
# shellcheck disable=SC2046 # file names here have no spaces
awk -v budgets="$budgets" '
    BEGIN {
        n = split(budgets, budget, "\n")
    }
    FNR == 1 {
        n_parts = split(FILENAME, part, "/")
        room = part[1] == "core" && n_parts > 2 ? part[1] "/" part[2] : part[1]
    }
    !/SPDX-License-Identifier/ { n_lines[room]++ }
    END {
        printf "%-12s %7s %7s\n", "lines", "now", "most"
        for (i = 1; i <= n; i++) {
            split(budget[i], b, " ")
            printf "%-12s %7d %7d\n", b[1], n_lines[b[1]], b[2]
            all += n_lines[b[1]]
            most += b[2]
            if (n_lines[b[1]] > b[2]) {
                print "lines: " b[1] " has " n_lines[b[1]] " lines (at most " b[2] ", in scripts/lines.sh)" >"/dev/stderr"
                over = 1
            }
        }
        printf "%-12s %7d %7d\n", "all", all, most
        exit over
    }' $(git ls-files 'core/*.[ch]' 'cmd/*.[ch]' 'lib/*.[ch]') </dev/null
