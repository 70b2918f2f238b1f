#!/bin/sh
# SPDX-License-Identifier: ISC
# dead.sh BUILD: fails where a function or table is public and no other file of
# core, cmd or lib refers to it: unless its own file uses it and a test calls it, it
# is dead, or can be static.  A test alone is no user.
status=0

# "SYMBOL: why", one a line: what only tests call, and has a reason.
exceptions='
sig_reason: ranks_mpi.c, which MPI=1 links
sig_adopt: as sig_reason
'

# How often the code of a file, without its comments, has a word.
count() { # count WORD FILE
    sed 's|/\*.*\*/||; /\/\*/,/\*\//d' "$2" | grep -cw -e "$1"
}

for f in $(git ls-files 'core/*.c' 'cmd/*.c' 'lib/*.c'); do
    o=$1/${f%.c}.o # none for another machine's kernels
    [ ! -e "$o" ] || echo "$o"
done | xargs nm -A | awk -v build="$1/" '
    $2 == "U" { used[$3] = 1 }
    $2 ~ /^[TDRB]$/ && $3 != "main" {
        file = substr($1, length(build) + 1)
        sub(/\.o:.*/, ".c", file)
        from[$3] = file
    }
    END { for (s in from) if (!(s in used)) print s, from[s] }' | {
    while read -r symbol file; do
        case $symbol in tu_*) continue ;; esac # for programs
        printf '%s\n' "$exceptions" | grep -q "^$symbol: ." && continue
        if [ "$(count "$symbol" "$file")" -lt 2 ]; then
            echo "dead: $file: nothing but tests refers to $symbol" >&2
        elif git grep -qwF -e "$symbol" -- 'test/*.c' 'test/*.h'; then
            continue
        else
            echo "dead: $file: $symbol is public, but nothing else refers to it" >&2
        fi
        status=1
    done
    exit $status
}
