#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# kills.sh [-s SECONDS] [-n KILLS] [NAME...]: kills every writer of
# test/writers.bash, or those named, with -9: at random moments, and where
# strace may, at system calls that change a file.  What is published must be
# whole, the next run's output what it always is, and nothing else may be left.
# -n: so many kills of either kind for each; default: all such calls, 10 random
# ones.  -s: rounds of -n (default 2) until then.
# -p: what a power cut may leave at each step, instead (test/fault/power.py); with
# -n, so many of these for each, spread over the run, the end among them.
# For make check-kills, make check-power and test/kills.bats.
set -euo pipefail

top=$(mktemp -d)
trap 'cd /; rm -rf "$top"' EXIT
ln -s "$(cd "$(dirname "$0")/.." && pwd)" "$top/root" # no space in words
ROOT=$top/root
DEMO=$ROOT/demo/qwen3-tiny
PYTHON=${PYTHON:-python3}
export ROOT DEMO
CALLS=openat,write,pwrite64,writev,pwritev,fsync,rename,renameat,renameat2,link,unlink,unlinkat,mkdir,fallocate,ftruncate,fchmod,sync_file_range,copy_file_range,splice,sendfile,vmsplice
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # ptrace
# shellcheck source=/dev/null
. "$ROOT/test/writers.bash"

seconds='' kills=0 power=''
SECONDS=0 # make SECONDS=N puts N into the environment, where bash begins
while getopts ps:n: opt; do
    case $opt in
    p) power=1 ;;
    s) seconds=$OPTARG kills=${kills/#0/2} ;;
    n) kills=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
mkdir "$top/work"
cd "$top/work"

fail() {
    echo "kills.sh: $*" >&2
    exit 1
}

in_time() {
    [ ! "$seconds" ] || [ "$SECONDS" -lt "$seconds" ]
}

# run COMMAND: as a user types it.
run() {
    eval "$1" <in >said 2>err
}

# make_want NAME COMMAND: want/NAME as an undisturbed run leaves it, and
# old/NAME, files of the same names with other bytes.
make_want() {
    prepare "$1"
    run "$2" || fail "$1: status $?: $(cat err)"
    rm -rf "want/$1" "old/$1"
    cp -a out "want/$1"
    cp -a out "old/$1"
    find "old/$1" -type f | while read -r f; do
        [[ $1 != look-l* || $f != */look.* ]] || continue # this RUN is read
        chmod u+w "$f"
        if [[ $f == *.json ]]; then echo; else echo old; fi >>"$f"
    done
}

# points COMMAND: "CALL N" for each call that changes a file, the N-th of its
# name in its thread.
points() {
    eval "strace -f --seccomp-bpf -qq -e trace=$CALLS -o trace $1" <in >said 2>err || fail "$1: $(cat err)"
    sed 's/^\([0-9]*\) *\([a-z0-9_]*\)(/\1 \2 /' trace |
        awk '$2 ~ /^[a-z]/ { n = ++seen[$1, $2] }
            $2 ~ /^[a-z]/ && ($2 != "openat" || /O_CREAT|O_TMPFILE/) && !done[$2, n]++ { print $2, n }'
}

# same [OPTION...] A B: are two files or directories the same?
same() {
    diff -rq "$@" >/dev/null 2>&1
}

# whole NAME ENTRY: is out/ENTRY, which is published, what it should be?
whole() {
    local f
    same "out/$2" "want/$1/$2" || same "out/$2" "old/$1/$2" || case $1/$2 in
    # directories that are made first, or are there
    moe-train/run | moe-tune/run | look-l*/run | moe-tune/run/best | lut-new/new | lut-new/new/lut | sae/run | sae-many/run | sae-many/run/[ab] | lut-dims/t)
        for f in "out/$2"/*; do
            [ ! -e "$f" ] || whole "$1" "${f#out/}" || return 1
        done
        ;;
    # checkpoints on the way, and the log until then
    moe-train/run/*.safetensors | moe-tune/run/*.safetensors | sae*/state.safetensors) st-inspect verify -q "out/$2" ;;
    moe-train/run/log | moe-tune/run/log.tsv | sae*/log.tsv) cmp -s -n "$(wc -c <"out/$2")" "out/$2" "want/$1/$2" ;;
    moe-train/run/x.svg | moe-tune/run/x.svg | sae/run/x.svg) [ "$(tail -n 1 "out/$2")" = '</svg>' ] ;;
    # as it was before
    lut-dims/t/metadata.json) same "out/$2" lut/metadata.json ;;
    # what is hidden is not finished
    saev-new/new) [ -z "$(ls out/new)" ] || same -x '.*' out/new "want/$1/new" || same -x '.*' out/new "old/$1/new" ;;
    *) false ;;
    esac
}

# stage NAME OVER: out/ before the run: empty, or with OVER (-f), old files.
stage() {
    prepare "$1"
    [ "$2" ] || return 0
    rm -rf out
    cp -a "old/$1" out
}

# sound NAME WHEN: is what is there published, and whole?
sound() {
    local f
    for f in out/*; do
        [ ! -e "$f" ] || whole "$1" "${f#out/}" || fail "$1: $2: $f is broken"
    done
}

# again NAME FLAGS COMMAND OVER WHEN: the next run, which has the last word.
again() {
    local status=0 force=$4
    [[ $2 == *r* || $force ]] || force=' -f'
    run "${FAULT_FS:+LD_PRELOAD=$top/netfs.so }$3$force" || status=$?
    # 73: it had just been published
    [ $status = 0 ] || [[ $status == 73 && ! $4 ]] || fail "$1: $5: then status $status: $(cat err)"
    diff -r "want/$1" out >differs || fail "$1: $5 before: $(cat differs)"
}

n_kills=0 n_hits=0
# strike NAME FLAGS COMMAND OVER HOW...: one kill, at a random moment until HOW
# milliseconds, or at HOW's system call.
strike() {
    local name=$1 flags=$2 command=$3 over=$4 status=0
    shift 4
    stage "$name" "$over"
    if [ $# = 2 ]; then
        run "strace -f -qq -o /dev/null -e trace=$1 -e inject=$1:signal=KILL:when=$2 $command$over" || status=$?
    else
        (eval "exec $command$over") <in >said 2>err &
        sleep "$(awk -v r=$RANDOM -v m="$1" 'BEGIN { print r / 32768 * m / 1000 }')"
        kill -9 $! 2>/dev/null || :
        wait $! 2>/dev/null || status=$?
    fi
    n_kills=$((n_kills + 1))
    [ $status != 137 ] || n_hits=$((n_hits + 1))
    [ $status = 137 ] || [ $status = 0 ] || fail "$name: killed at $*: status $status: $(cat err)"
    sound "$name" "killed at $*"
    again "$name" "$flags" "$command" "$over" "killed at $*"
}

n_cuts=0
# cut_all NAME FLAGS COMMAND OVER: each thing that a power cut may leave.  Old
# files stay until new ones are there, and these once it has ended.  FAULT_FS:
# on a file system as of test/fault/netfs.c.
cut_all() {
    local s f when at n
    stage "$1" "$4"
    rm -rf cuts
    run "\"\$PYTHON\" \"\$ROOT/test/fault/power.py\" out cuts '$3$4'" || fail "$1: status $?: $(cat err)"
    n=$(find cuts -path 'cuts/*/out' -prune | wc -l)
    for ((at = n; at > 0; at -= kills && n > kills ? (n + kills - 1) / kills : 1)); do
        s=cuts/$at/out
        n_cuts=$((n_cuts + 1))
        when="power cut at \"$(cat "${s%/out}/when")\" ($n_cuts)"
        rm -rf out
        cp -a "$s" out
        sound "$1" "$when"
        for f in "old/$1"/*; do
            [[ ! $4 || -e out/${f##*/} || -e out/.${f##*/}.old ]] || fail "$1: $when: ${f##*/} is lost"
        done
        [[ $when != *'"end"'* ]] || ! { diff -r "want/$1" out || :; } | grep -v '^Only in out' >differs ||
            fail "$1: $when: $(cat differs)"
        again "$@" "$when"
    done
}

# chosen: the writers to kill.
chosen() {
    local n
    [ $# != 0 ] || echo "$WRITERS"
    for n; do
        grep "^$n " <<<"$WRITERS" || fail "$n: no such writer"
    done
}

# all_points NAME COMMAND OVER: those that -n leaves.
all_points() {
    local c=$CALLS
    [ "$traced" ] || return 0
    stage "$1" "$3"
    [[ $1 != moe-t* ]] || c=${c//openat,/}
    CALLS=$c points "$2$3" | if [ "$kills" = 0 ]; then cat; else shuf -n "$kills"; fi
}

# strike_all NAME FLAGS COMMAND OVER: by calls, then by the clock.
strike_all() {
    local call n i
    if [ "$power" ]; then
        cut_all "$@"
        return
    fi
    all_points "$1" "$3" "$4" >points
    while read -r call n <&5 && in_time; do
        strike "$@" "$call" "$n"
    done 5<points
    for ((i = 0; i < (kills ? kills : 10); i++)); do
        in_time || return 0
        strike "$@" $took
    done
}

make_inputs
mkdir -p want old
if [ "$power" ]; then
    cp "$BUILD/test/fault/"{power,netfs}.so "$top" # LD_PRELOAD takes no spaces
    export POWER_SHIMS="$top/power.so $top/netfs.so"
fi
echo >in
traced=$(strace -f --seccomp-bpf -qq -e trace=write -o /dev/null true 2>/dev/null && echo 1) || :
chosen "$@" >writers
n_writers=$(wc -l <writers)
while :; do
    while read -r name flags command <&4; do
        stdin_for "$name" >in
        began=$(date +%s%N)
        make_want "$name" "$command"
        took=$((($(date +%s%N) - began) / 1000000))
        strike_all "$name" "$flags" "$command" ""
        [[ $flags != *f* ]] || strike_all "$name" "$flags" "$command" " -f"
    done 4<writers
    if [ ! "$seconds" ] || ! in_time; then break; fi
done
if [ "$power" ]; then
    [ $n_cuts -gt 0 ] || fail "no power cut left anything"
    echo "$n_writers writers, $n_cuts things that a power cut may leave: all sound"
    exit
fi
[ $n_hits -gt 0 ] || fail "none of $n_kills kills came before the end"
echo "$n_writers writers, $n_kills kills, $n_hits of them before the end: all sound"
