# SPDX-License-Identifier: ISC
# Loaded by every .bats file: `load helpers` at file level.
bats_require_minimum_version 1.5.0

# Loaded for each of a thousand tests: it starts no process.
ROOT=${BASH_SOURCE[0]%/*}
[[ $ROOT == /* ]] || ROOT=$PWD/$ROOT
ROOT=${ROOT%/test}
if [[ $ROOT == *[[:space:]]* ]]; then # many tests split words with it
    ln -sfn "$ROOT" "$BATS_RUN_TMPDIR/root"
    ROOT=$BATS_RUN_TMPDIR/root
fi
SHARED=${TEST_DATA:-$ROOT/../shared/data} # real data, on some machines only
DEMO=$ROOT/demo/qwen3-tiny
PYTHON=${PYTHON:-python3}
export ROOT SHARED DEMO PYTHON
# The order of sort, numbers of awk, and what make and coreutils say.
unset LC_ALL LANGUAGE
export LC_COLLATE=C LC_NUMERIC=C LC_MESSAGES=C
umask 022 # some look at modes

. "$ROOT/scripts/own-make.sh"

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
}

# skip_left_out [COMMANDS]: where a library lacks, make leaves tools out
# ($LEFT_OUT); a test is skipped if the commands name one: its own, with its
# name, its file's and $NEEDS.
skip_left_out() {
    local tool names=${1-}
    [ -n "${LEFT_OUT-}" ] || return 0
    [ $# -gt 0 ] || names="${BATS_TEST_FILENAME##*/} $BATS_TEST_DESCRIPTION $(declare -f "$BATS_TEST_NAME") ${NEEDS-}"
    for tool in ${LEFT_OUT-}; do
        [[ $names != *"$tool"* ]] || skip "$tool was left out: see make deps"
    done
}

# What small_disk mounted goes with its test.
teardown() {
    cd /
    [ ! -d "$BATS_TEST_TMPDIR/disk" ] || umount "$BATS_TEST_TMPDIR/disk" 2>/dev/null || :
}

# not_sanitized [WHY]: skips the test in a build that has sanitizers.
not_sanitized() {
    [[ $BUILD != */*san ]] || skip "sanitized: ${1:-it is no part of what is tested}"
}

# linux_only: what a build for every Unix (core/compat.h) does without.
linux_only() {
    [ -z "${PORTABLE-}" ] || skip "of Linux alone"
}

# small_disk SIZE: disk/ is a file system of its own; skips where none can be.
small_disk() {
    mkdir disk
    mount -t tmpfs -o "size=$1" tmpfs disk 2>/dev/null || skip "cannot mount"
}

# py ARGUMENT...: Python that finds the references in test/ref.
py() {
    PYTHONPATH=$ROOT/test/ref${PYTHONPATH:+:$PYTHONPATH} "$PYTHON" "$@"
}

# isas_here: ISAS, the instruction sets that can be tried here.
isas_here() {
    local isa
    export ISAS=
    for isa in $ALL_ISAS; do
        has_isa "$isa" || continue
        ISAS="$ISAS $isa"
    done
}

# endless: m, the demo model without an end of text: draws are as many as -n
# says, whatever they are.
endless() {
    cp -r "$DEMO" m
    rm m/generation_config.json
    sed -i '/eos_token_id/d' m/config.json
}

# same_for OPTIONS... -- COMMAND...: it prints the same bytes with each of them,
# and some.
same_for() {
    local ways=() o
    while [ "$1" != -- ]; do
        ways+=("$1")
        shift
    done
    shift
    : >sums
    for o in "${ways[@]}"; do
        # shellcheck disable=SC2086
        "$@" $o >bytes
        [ -s bytes ]
        cksum <bytes >>sums
    done
    [ "$(sort -u sums | wc -l)" = 1 ]
}

# same_in_batches ARGUMENT...: hf-infer's prompts in batches as each alone, from
# 'lines' to 'one'.
same_in_batches() {
    local i
    for i in 1 2 3 4 5; do
        printf '{"id":%d,"ids":[%s]}\n' $i "$(seq -s, $i $((i * 9)))"
    done >lines
    hf-infer "$@" --jsonl --greedy --batch 1 <lines >one
    hf-infer "$@" --jsonl --greedy --batch 4 <lines >four
    [ "$(wc -l <four)" = 5 ]
    cmp one four
}

# late_enough SAYS COMMAND...: a deadline stops it, after it has read what
# feed() prints, and that it says: on a slow machine a later one.
late_enough() {
    local s
    for s in 0 5 50; do
        run -75 "${@:2}" --deadline $s.5 < <(feed; exec sleep $((2 * s + 5)) 3>&-)
        [[ $output != *"$1"* ]] || return 0
    done
    echo "$output"
    return 1
}

# kept SCRIPT [ARGUMENT...] DIR: see test/unit/kept.sh.
kept() {
    mkdir -p "${!#}"
    (cd "$ROOT" && sh test/unit/kept.sh "$@")
}

# peak COMMAND...: its largest resident set in KiB; its output goes nowhere.
peak() {
    "$PYTHON" -c 'import ctypes, resource, subprocess, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # no huge pages, which come by chance
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)' "$@"
}

# A model of two layers and ten, in an order that bytes would sort wrongly.
make_layers() {
    py - "$1" <<'END'
import sys, numpy as np, mkst
t = {}
for i in list(range(12)):
    for m in ("self_attn.q_proj", "mlp.up_proj"):
        t["model.layers.%d.%s.weight" % (i, m)] = mkst.bf16(
            np.full((4, 2), i, np.float32))
t["model.norm.weight"] = np.ones(4, np.float32)
mkst.save(sys.argv[1], t, {"format": "pt", "note": "a\tb\x1b[31m"})
END
}

# every_tool: skips the test where one was left out.
every_tool() {
    [ -z "${LEFT_OUT-}" ] || skip "$LEFT_OUT: left out, see make deps"
}

# need_commands NAME...: skips the test where one is not installed.
need_commands() {
    local c
    for c; do
        command -v "$c" >/dev/null || skip "no $c here"
    done
}

# Every instruction set, this machine's and others'.
ALL_ISAS=
while IFS=' ,' read -r name isa _; do
    [[ $name != ISA\(?* ]] || ALL_ISAS+=${ALL_ISAS:+$'\n'}$isa
done <"$ROOT/core/kernel/isa.def"
unset name isa

# has_isa NAME: does this machine have it?  A tool that fails for any other
# reason than that ends the test.
has_isa() {
    local status=0 said
    said=$(TU_ISA=$1 lut-apply -i none none none 2>&1) || status=$?
    [ "$status" -ne 66 ] || return 0
    [[ $status == 2 && $said == "lut-apply: TU_ISA is \"$1\", but this machine's best is "* ]] && return 1
    echo "TU_ISA=$1: status $status: $said" >&2
    exit 1
}

# need_shared PATH: skips the test where the real data are not there.
need_shared() {
    [ -e "$SHARED/$1" ] || skip "no $1 in TEST_DATA, $SHARED"
}

# examples PAGE: what a man page shows to type, as a script.
examples() {
    local script
    script=$(sh "$ROOT/test/typed.sh" "$1" EXAMPLES)
    skip_left_out "$script"
    printf '%s\n' "$script"
}

# this_host: HOST in the names of this machine's temporaries.
this_host() {
    local ns
    ns=$(readlink /proc/self/ns/pid) || :
    case $ns in
    "" | "pid:[4026531836]") uname -n ;;
    *) echo "$(uname -n)-${ns//[^0-9]/}" ;;
    esac
}

# as_user COMMAND...: runs it without root's rights.
as_user() {
    if [ "$(id -u)" = 0 ]; then
        setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
    else
        "$@"
    fi
}

# need_torch: skips the test where python3 has none.
need_torch() {
    "$PYTHON" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' || skip "no torch here"
}

# refuses_patterns COMMAND...: with rank_patterns of a kilobyte in ./peft that
# ask for gigabytes, or for ever; the command's messages name that directory.
refuses_patterns() {
    local said="$1: peft/adapter_config.json: rank_pattern: " p
    # groups that call each other, and 60 that capture: a kilobyte a frame
    for p in '((?:|q){20})((?61){20})((?62){20})((?63){20})[xy]' '(?:(?:l|[a-z.0-9])+)+[xy]'; do
        py -c 'import json, sys
path = "peft/adapter_config.json"
config = json.load(open(path))
config["rank_pattern"] = {"()" * 60 + sys.argv[1]: 2}
json.dump(config, open(path, "w"))' "$p"
        [ "$(stat -c %s peft/adapter_config.json)" -lt 1024 ]
        run -65 --separate-stderr bash -c 'ulimit -v 500000; ulimit -t 60; "$@"' - "$@"
        [[ $stderr =~ ^"$said".*': regex takes more than '[0-9]+' '(bytes of memory|steps)' for '[0-9]+' bytes of text'$ ]]
    done
}
