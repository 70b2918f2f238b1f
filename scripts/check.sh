#!/bin/sh
# SPDX-License-Identifier: ISC
# check.sh FILE...: runs unit tests and .bats files, one more at a time than
# there are CPUs, for many wait, and mandoc on man pages.  A line for each test
# file as it ends; at the end what failed, why tests were skipped, and one line
# that counts all: "N passed, N failed, N skipped".  With SKIPS=FILE, as
# test/skips, a reason that the file does not list is a failure.  Tests with the
# tag "long" are left out; LONG=only: those alone, LONG=yes: all.  $PYTHON of the
# tests is $WARM, if given, with its server: test/warm/python.c.
list=${SKIPS-}
case ${LONG-} in
yes) tags='' ;;
only) tags=long ;;
*)
    tags='!long'
    export TU_WAYS="${TU_WAYS-one}" # test/unit/tap.h
    ;;
esac
unset SKIPS LONG # tests run this file, too
case ${TMPDIR-} in *[[:space:]]*) unset TMPDIR ;; esac # many tests split words

# count PATTERN FILE...: lines of TAP that match.
count() {
    pattern=$1
    shift
    cat "$@" | grep -ci "$pattern"
}
passed='^ok ' skipped='^ok .*# skip' failed='^not ok '

# tally FILE...: "N passed, N failed, N skipped".
tally() {
    skips=$(count "$skipped" "$@")
    echo "$(($(count "$passed" "$@") - skips)) passed," \
        "$(count "$failed" "$@") failed, $skips skipped"
}

# log LOGS FILE: where its logs begin, a name for each file.
log() {
    echo "$1/$(echo "$2" | tr / +)"
}

# check.sh -1 LOGS FILE: one of them.  LOG.tap is what it said, .err its standard
# error, .status is there when it has ended.
if [ "${1-}" = -1 ]; then
    log=$(log "$2" "$3") name=${3##*test/} status=0 began=$(date +%s)
    case $3 in
    *.bats) set -- bats --tap ${4:+--filter-tags "$4"} "$3" ;;
    *) set -- "$3" ;;
    esac
    "$@" >"$log.tap" 2>"$log.err" || status=$?
    said=$(tally "$log.tap" | sed 's/, 0 failed//; s/, 0 skipped//')
    took=$(($(date +%s) - began))
    [ $took -lt 10 ] || said="$said, $took s"
    case $status,$said in
    0,*) ;;
    *failed*) said="$said  <<<" ;;
    *) said="$said, ended with status $status  <<<" ;;
    esac
    [ "$said" = "0 passed" ] && [ $status -eq 0 ] || printf '%-28s %s\n' "$name" "$said"
    echo "$status" >"$log.status"
    exit 0
fi

lacks=
command -v bats >/dev/null || lacks=' bats'
"${PYTHON:-python3}" -c 'import numpy' 2>/dev/null || lacks="$lacks numpy"
if [ -n "$lacks" ]; then
    echo "check: the tests need$lacks: make deps-check installs it, or says how" >&2
    exit 1
fi
logs=$(mktemp -d)
trap 'rm -rf "$logs"; [ -z "${server-}" ] || kill "$server"' EXIT
if [ -x "${WARM-}" ] && [ -z "${WARM_SERVER-}" ]; then
    export WARM_PYTHON="${PYTHON:-python3}" WARM_SERVER="$logs/python" PYTHON="$WARM"
    "$WARM_PYTHON" test/warm/server.py "$WARM_SERVER" </dev/null >/dev/null 2>&1 &
    server=$!
fi
units='' bats='' pages=''
for t; do
    case $t in
    *.bats) bats="$bats $t" ;;
    *.[1-9]) pages="$pages $t" ;;
    *) units="$units $t" ;;
    esac
done
# each FILE...: several at a time.  The longest first, those that say so and then
# by size: none of them is then left alone at the end.  xargs does not wait for
# the others when one of its own is killed: a shell between them hides that.
each() {
    # shellcheck disable=SC2011,SC2012
    { grep -l '^# It takes .*minute' "$@"; ls -S "$@"; } | awk '!begun[$0]++' | xargs -P $(($(getconf _NPROCESSORS_ONLN) + 1)) -I '{}' sh -c 'sh "$@"; :' sh "$0" -1 "$logs" '{}' "$tags"
}
# shellcheck disable=SC2086 # names without spaces
[ -z "$units$bats" ] || each $units $bats
status=0
if [ -n "$pages" ] && command -v mandoc >/dev/null; then
    # shellcheck disable=SC2086
    mandoc -Tlint -Wwarning $pages >"$logs/mandoc" 2>&1 || status=1
elif [ -n "$pages" ]; then
    echo 'man pages: skipped, no mandoc here'
fi

for t in $units $bats; do
    log=$(log "$logs" "$t")
    [ "$(cat "$log.status" 2>/dev/null)" != 0 ] || continue
    status=1
    printf '\n%s failed' "$t"
    if [ -e "$log.status" ]; then echo; else echo ': it was killed'; fi
    awk '/^ok /{ of = 0 } /^not ok /{ of = 1 } of' "$log.tap"
    tail -n 40 "$log.err"
done
if [ -s "$logs/mandoc" ]; then
    printf '\nman pages:\n'
    cat "$logs/mandoc"
fi
echo
sed -n "s/${skipped%skip}[Ss][Kk][Ii][Pp] *//p" "$logs"/*.tap | sort >"$logs/skips"
uniq -c "$logs/skips" | sed 's/^ */skipped: /'
if [ -n "$list" ]; then
    sed '/^#/d; s/ *#.*//' "$list" >"$logs/listed"
    if grep -vxEf "$logs/listed" "$logs/skips" | uniq | sed "s|.*|$list does not list \"&\"  <<<|" | grep .; then
        status=1
    fi
fi
tally "$logs"/*.tap
exit $status
