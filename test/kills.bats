# SPDX-License-Identifier: ISC
# kill -9 at any moment, and a power cut, of all that writes: scripts/kills.sh,
# with all of either in make check-kills and check-power.
# It takes minutes, and waits for most of them.
# bats file_tags=long
load helpers
NEEDS=${LEFT_OUT-} # every tool

@test "kills: of every writer, what is published is whole, and the next run is as ever" {
    not_sanitized "they slow what is killed at a moment"
    run -0 bash "$ROOT/scripts/kills.sh" -n 1
    [[ $output == *"writers, "*" kills, "*" of them before the end: all sound" ]]
}

@test "kills: of every writer, what a power cut may leave is whole, and nothing is lost" {
    not_sanitized "no shim is preloaded there"
    run -0 bash "$ROOT/scripts/kills.sh" -p -n 4
    [[ $output == *"writers, "*" things that a power cut may leave: all sound" ]]
    FAULT_FS=no-link run -0 bash "$ROOT/scripts/kills.sh" -p -n 4
}

@test "kills: what a run was killed in replacing is lost to no power cut, as the next one removes its waste" {
    [ -e "$BUILD/test/fault/power.so" ] || skip "no shim in this build"
    strace -f -e inject=fsync:signal=KILL -o /dev/null true 2>/dev/null || skip "no strace here"
    cd "$BATS_TEST_TMPDIR"
    cp "$BUILD/test/fault/"{power,netfs}.so . # LD_PRELOAD takes no spaces
    export POWER_SHIMS="./power.so ./netfs.so"
    py -c 'from saev_dump import *; import json
kw = dict(n=4, d=8)
a = dump("dump", **kw)
a.tofile("new.f32")
(a + 1).tofile("old.f32")
json.dump(meta(**kw), open("m.json", "w"))'
    saev-write -q -m m.json -o old old.f32
    saev-write -q -m m.json -o new new.f32
    hash=$(ls new)
    cp -a old out
    n=$(LD_PRELOAD=./netfs.so strace -f -qq -e trace=fsync -o /dev/stdout saev-write -q -f -m m.json -o out new.f32 |
        grep -c 'fsync(.* = 0')
    rm -rf out cuts
    cp -a old out
    echo "strace -f -qq -o /dev/null -e trace=fsync -e inject=fsync:signal=KILL:when=$n \\
        saev-write -q -f -m m.json -o out new.f32 && exit 1
        exec saev-write -q -f -m m.json -o out new.f32" >twice
    "$PYTHON" "$ROOT/test/fault/power.py" out cuts "sh twice"
    for s in cuts/*/out; do
        is=$s/$hash
        [ -e "$is" ] || is=$s/.$hash.old
        diff -rq "$is" "old/$hash" >differs || diff -rq "$is" "new/$hash"
    done
    rm -rf out
}
