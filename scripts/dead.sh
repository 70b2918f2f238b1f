#!/bin/sh
# dead.sh BUILD: fails where a function or table is public and nothing but its
# own file refers to it, neither the tools' objects nor the text of a test.
status=0
for f in $(git ls-files 'core/*.c' 'cmd/*.c'); do
    o=$1/${f%.c}.o # none for another machine's kernels
    [ ! -e "$o" ] || nm "$o" | sed "s|^|$f |"
done | awk '
    $2 == "U" { used[$3] = 1 }
    $3 ~ /^[TDRB]$/ && $4 != "main" { from[$4] = $1 }
    END { for (s in from) if (!(s in used)) print s, from[s] }' | {
    while read -r symbol file; do
        git grep -qwF -e "$symbol" -- 'test/*.c' 'test/*.h' && continue
        echo "dead: $file: nothing else refers to $symbol" >&2
        status=1
    done
    exit $status
}
