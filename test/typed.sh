#!/bin/sh
# typed.sh SECTION: what tensorutils(7) shows to type in a section, as a script.
sed -n "/^\.Sh $1\$/,/^\.Sh /{
    /^\.Bd -literal/,/^\.Ed/{/^\./!p}
}" "$(dirname "$0")/../man/tensorutils.7" | sed 's/\\e/\\/g'
