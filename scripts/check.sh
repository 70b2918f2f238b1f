#!/bin/sh
# Runs the unit tests named as arguments, then every .bats file; ends with one
# line that counts them all: "N passed, N failed, N skipped".
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
for t in "$@"; do
    echo "# $t"
    "$t" >"$log.1" || status=1
    cat "$log.1" >>"$log"
    grep -v '^ok' "$log.1"
done
rm -f "$log.1"
jobs= # bats runs files side by side by means of GNU parallel alone
if command -v parallel >/dev/null; then
    jobs='-j 2 --no-parallelize-within-files'
fi
# shellcheck disable=SC2086
bats $jobs --tap test >"$log.2" || status=1
cat "$log.2" >>"$log"
grep -v '^ok' "$log.2"
rm -f "$log.2"
skipped=$(grep -ci '^ok .*# skip' "$log")
passed=$(($(grep -c '^ok ' "$log") - skipped))
failed=$(grep -c '^not ok ' "$log")
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] || status=1
exit $status
