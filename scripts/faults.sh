#!/bin/sh
# SPDX-License-Identifier: ISC
# faults.sh [-n MOST] [GLOB...]: makes each call of libc that can fail do so, in
# one run after another of every tool, and judges what the tool makes of it:
# test/fault/run.c says how.  GLOB: only cases of such names.  -n: MOST faults
# of a kind in a case, spread over the run (default: all).  Ends with
# "faults: N injected, N bad", and with status 1 if any was bad.
#   BUILD  where the tools are; PYTHON with numpy; JOBS cases side by side
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-$PWD/build} PYTHON=${PYTHON:-python3}
export BUILD PYTHON PATH="$BUILD:$PATH" LC_ALL=C
most=${most:-0}
. test/fault/cases.sh

# one LINE: a case of the table, in a directory of its own.
one() {
    name=${1%%|*}
    name=${name%%[ ]*}
    rest=${1#*|}
    before=${rest%%|*}
    rest=${rest#*|}
    options=${rest%%|*}
    command=${rest#*|}
    mkdir -p "$work/$name/out"
    cd "$work/$name"
    ln -s ../in in
    eval "$before"
    set -f
    # shellcheck disable=SC2086 # words, and no globs
    set -- $options -- $command
    [ "$most" = 0 ] || set -- -q "$most" "$@"
    status=0
    nice "$BUILD/test/fault/run" -p "$work/shim.so" -n "$name" "$@" || status=$?
    [ $status -le 1 ] || printf '%s\t0\t1\n' "$name"
}

if [ "${1:-}" = one ]; then
    one "$2"
    exit
fi
while getopts n: o; do
    case $o in
    n) most=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- '*'
work=$(new_dir)
trap 'rm -rf "$work"' EXIT
cp "$BUILD/test/fault/shim.so" "$work"
trap 'exit 130' INT
trap 'exit 143' TERM
make_cases "$work/in"
export work most
cases "$@" | tr '\n' '\0' | xargs -0 -P "${JOBS:-$(getconf _NPROCESSORS_ONLN)}" -n 1 sh scripts/faults.sh one |
    tee "$work/said"
awk -F '\t' '!/^#/ && NF == 3 { cases++; n += $2; bad += $3 }
    END { print "faults: " n + 0 " injected, " bad + 0 " bad"; exit bad > 0 || !cases }' "$work/said"
