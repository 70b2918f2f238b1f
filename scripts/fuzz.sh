#!/bin/sh
# SPDX-License-Identifier: ISC
# fuzz.sh NAME SECONDS: builds test/fuzz/NAME.c with clang's libFuzzer, ASan
# and UBSan, and runs it from the seeds in test/fuzz/NAME.seeds/.  Fails if it
# finds anything; the input then lies in build/fuzz/NAME.found/.
name=$1 seconds=$2
# shellcheck source=scripts/own-make.sh
. "$(dirname "$0")/own-make.sh"
b=build/fuzz
if ! command -v clang >/dev/null; then
    echo "fuzz: clang is not installed (Debian: clang libclang-rt-14-dev)" >&2
    exit 1
fi
mkdir -p "$b/$name.corpus" "$b/$name.found"
# with make -j, others build the same objects
flock "$b/lock" make -s SAN=fuzz "$b/test/fuzz/$name" || exit
[ ! -w /dev/shm ] || export TMPDIR="${TMPDIR:-/dev/shm}" # files in memory: half as much again
echo "fuzz: $name, $seconds s"
nice "$b/test/fuzz/$name" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix="$b/$name.found/" \
    "$b/$name.corpus" "test/fuzz/$name.seeds" >"$b/$name.log" 2>&1
status=$?
grep -E 'number_of_executed_units|new_units_added' "$b/$name.log"
[ "$status" -eq 0 ] || tail -n 40 "$b/$name.log"
exit $status
