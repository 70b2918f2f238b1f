#!/bin/sh
# Runs the unit tests named as arguments, then every .bats file, as many side
# by side as there are CPUs; ends with one line that counts them all:
# "N passed, N failed, N skipped".
case ${TMPDIR-} in *[[:space:]]*) unset TMPDIR ;; esac # many tests split words
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
status=0
for t in "$@"; do
    echo "# $t"
    "$t" >"$logs/unit" || {
        status=1
        echo "# $t: failed"
    }
    cat "$logs/unit" >>"$logs/all"
    grep -v '^ok' "$logs/unit"
done
# The longest first: none of them is then left alone at the end.  Each file's
# words come together, when it has ended.
# shellcheck disable=SC2011,SC2012,SC2016
ls -S test/*.bats | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I '{}' sh -c '
    to=$1/$(basename "$2")
    bats --tap "$2" >"$to" || { touch "$1/failed"; echo "# $2: failed"; }
    grep -v "^ok" "$to"
    exit 0' sh "$logs" '{}' || status=1 # one was killed: its file was not counted
[ ! -e "$logs/failed" ] || status=1
cat "$logs"/*.bats >>"$logs/all"
skipped=$(grep -ci '^ok .*# skip' "$logs/all")
passed=$(($(grep -c '^ok ' "$logs/all") - skipped))
failed=$(grep -c '^not ok ' "$logs/all")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || status=1
exit $status
