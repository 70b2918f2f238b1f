#!/bin/sh
# SPDX-License-Identifier: ISC
# typed.sh PAGE SECTION: what a section of a man page shows to type, as a
# script, for EXAMPLES after those at the top of DESCRIPTION; fails where a
# reader would see something else.
page=$(dirname "$0")/../man/$1
text=$(sed -n "/^\.Sh $2\$/,/^\.Sh /p" "$page")
top=
[ "$2" = EXAMPLES ] && top=$(sed -n '/^\.Sh DESCRIPTION$/,/^\.[SI][hst] /p' "$page")
no() {
    echo "typed.sh: $1: $2" >&2
    exit 1
}
script=$(printf '%s\n' "$top" "$text" | sed -n '/^\.Bd -literal/,/^\.Ed/{/^\.[BE]d/!p}')
[ -n "$script" ] || no "$1" "$2 shows nothing to type"
printf '%s\n' "$text" | grep -E '^\.(D[1l]|Bd( |$))' | grep -vq 'Bd -literal' &&
    no "$1" "$2 has a display that is not .Bd -literal"
printf '%s\n' "$script" | grep -qE '^\.|\\([^e]|$)' &&
    no "$1" "$2 shows a macro, or an escape that is not \\e"
printf '%s\n' "$script" | sed 's/\\e/\\/g'
