#!/bin/sh
# SPDX-License-Identifier: ISC
# limits.sh [GLOB...]: runs the commands of test/fault/cases.sh whose names match
# with too little memory, stack, files, room or threads, with streams that are
# closed or full, inputs that are changed while they are read, clocks that jump,
# inputs and outputs that are pipes, devices, links or in nobody's directories, and
# file systems that are no local disk: test/fault/limits.py judges.  Ends with
# "limits: N runs, N bad", and with status 1 if any was bad.
#   BUILD  where the tools are; PYTHON with numpy; CONDITIONS="streams stops":
#   these functions of limits.py alone
set -eu
cd "$(dirname "$0")/.."
BUILD=${BUILD:-$PWD/build} PYTHON=${PYTHON:-python3}
export BUILD PYTHON PATH="$BUILD:$PATH" LC_ALL=C
. test/fault/cases.sh

[ $# -gt 0 ] || set -- '*'
work=$(new_dir)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp "$BUILD/test/fault/"*.so "$work"
make_cases "$work/in"
cp -RL "$work/in" "$work/own" # files of its own, that may be changed
rm -rf "$work/in"
mv "$work/own" "$work/in"
export HASH
cases "$@" >"$work/cases"
"$PYTHON" test/fault/limits.py "$work" <"$work/cases"
