# SPDX-License-Identifier: ISC
# File systems that are no local disk: what their clients lack or do otherwise,
# as test/fault/netfs.c makes every call do it.
# It takes minutes, and waits for most of them.
# bats file_tags=long
load helpers
NEEDS=${LEFT_OUT-} # every tool

setup() {
    skip_left_out
    [ -e "$BUILD/test/fault/netfs.so" ] || skip "no shim in this build"
    cd "$BATS_TEST_TMPDIR" || return
    cp "$BUILD/test/fault/netfs.so" . # LD_PRELOAD takes no spaces
}

# on QUIRKS COMMAND...: it runs on such a file system.
on() {
    FAULT_FS=$1 LD_PRELOAD=./netfs.so "${@:2}"
}

@test "file systems: every command does the same on NFS, Lustre, GPFS, SMB, FUSE" {
    # shellcheck disable=SC2086 # words
    CONDITIONS=file_systems run -0 sh "$ROOT/scripts/limits.sh" ${LIMITS:-}
    [[ ${lines[-1]} == "limits: "*" runs, 0 bad" ]]
}

@test "file systems: where modes do not change, shards can be written, and are the same" {
    py -c 'from saev_dump import *; import json
kw = dict(n=4, d=8)
dump("padded", form="padded", **kw)
dump("want", **kw).tofile("a.f32")
json.dump(meta(**kw), open("m.json", "w"))'
    saev-write -q -m m.json -o parts --shard 0/1 a.f32
    for quirk in no-chmod no-chmod:95; do # EOPNOTSUPP
        cp -r parts out
        [ "$(id -u)" = 0 ] || chmod -R u+w out # they were made here
        on $quirk saev-write -q -m m.json -o out --finish --pad # root: 0444
        diff -r padded out/*
        rm -r out
        on $quirk saev-write -q -m m.json -o out a.f32
        diff -r want out/*
        [ "$(stat -c %a out/*/acts000000.bin)" = 644 ]
        rm -r out
    done
}

@test "file systems: a directory is replaced whole where unions say that a rename in part was done" {
    py -c 'from saev_dump import *; import json
kw = dict(n=4, d=8)
dump("want", **kw).tofile("a.f32")
json.dump(meta(**kw), open("m.json", "w"))'
    saev-write -q -m m.json -o out a.f32
    echo old >>"$(echo out/*/acts000000.bin)"
    on no-over:0 saev-write -q -m m.json -o out -f a.f32
    diff -r want out/*
    [ "$(ls -A out | wc -l)" = 1 ]
}

@test "file systems: where a server's answer is lost, a file is there, and a directory whole" {
    py -c 'from saev_dump import *; import json, mkst
kw = dict(n=4, d=8)
a = dump("want", **kw)
a.tofile("a.f32")
json.dump(meta(**kw), open("m.json", "w"))
mkst.save("x.safetensors", {"a": a})'
    for how in '' -f; do
        on twice st-inspect cat $how -o got.npy x.safetensors a
        cmp <(tail -c "$(wc -c <a.f32)" got.npy) a.f32
        status=0
        on twice saev-write -q -m m.json -o out $how a.f32 || status=$?
        [ $status = 0 ] || [ $status = 75 ] # it may look as if another had published it
        diff -r want out/*
        [ "$(ls -A out | wc -l)" = 1 ]
    done
    rm got.npy
}

@test "file systems: a server that is gone is not taken for another run" {
    py -c 'from saev_dump import *; import json
kw = dict(n=4, d=8)
dump("want", **kw).tofile("a.f32")
json.dump(meta(**kw), open("m.json", "w"))'
    run -74 --separate-stderr on dead saev-write -q -m m.json -o out a.f32
    [[ $stderr == "saev-write: out/"*": cannot be synced: Input/output error" ]]
    saev-write -q -m m.json -o out a.f32
    diff -r want out/*
    [ "$(ls -A out | wc -l)" = 1 ]
}

@test "file systems: a file on lease to another is waited for" {
    py - <<'END'
import fcntl, os, signal, subprocess, sys
import mkst, numpy as np
mkst.save("x.safetensors", {"a": np.ones(3, np.float32)})
fd = os.open("x.safetensors", os.O_RDWR)
try:
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
except OSError:
    sys.exit() # not on this one
signal.signal(signal.SIGIO, lambda *_: os.close(fd))
p = subprocess.Popen(["st-inspect", "verify", "-q", "x.safetensors"])
sys.exit(p.wait())
END
}

@test "file systems: where names have 143 bytes, all of them can be used" {
    py -c 'import mkst, numpy as np
mkst.save("x.safetensors", {"a": np.ones(3, np.float32)})'
    name=$(printf '%0143d' 7)
    st-inspect cat -o want x.safetensors a
    for i in "" -f; do
        on short st-inspect cat $i -o "$name" x.safetensors a
        cmp want "$name"
    done
    run -73 --separate-stderr on short st-inspect cat -o "x$name" x.safetensors a
    [ "$stderr" = "st-inspect: x$name: cannot be created: File name too long" ]
}

@test "moe-sft train --resume: a checkpoint that is not told of is not written over" {
    py -c 'import moe_train; moe_train.make("t", qlen=16)'
    train() {
        "${@:2}" moe-sft train -q -b t/base.safetensors -l t/student.safetensors -o run -n "$1" --resume \
            t/b0.safetensors
    }
    train 2 env
    train 3 on blind >steps
    [ "$(cut -f 1 steps)" = "$(printf 'step\n3')" ]
}

# another COMMAND...: it runs where PIDs are others, as in a container.
another() {
    unshare --pid --fork --mount-proc "$@"
}

@test "file systems: what a container writes, its host does not remove, nor the reverse" {
    another true 2>/dev/null || skip "no PID namespaces here"
    py -c 'from saev_dump import *; import json
kw = dict(n=4, d=8)
dump("want", **kw).tofile("a.f32")
json.dump(meta(**kw), open("m.json", "w"))'
    for slow in "" another; do
        fast=$([ $slow ] || echo another)
        mkfifo stream
        $slow saev-write -q -m m.json -o out <stream 2>said 9>&- &
        exec 9>stream
        head -c 100 a.f32 >&9
        until ls out/.*.tmp.*/.*.tmp.* 2>/dev/null; do kill -0 $!; sleep .01; done
        $fast saev-write -q -m m.json -o out a.f32
        ls out/.*.tmp.*/.*.tmp.* # it is still there
        rm -r out/[0-9a-f]*
        tail -c +101 a.f32 >&9
        exec 9>&-
        wait $!
        diff -r want out/*
        [ "$(ls -A out | wc -l)" = 1 ]
        rm -r out stream
    done
}
