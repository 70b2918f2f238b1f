# SPDX-License-Identifier: ISC
# saev-read and what it stands on: versions of dumps, pipes, disks, memory.
load helpers

@test "saev-read: dumps of every version on disk are read, with one warning" {
    mkdir cases
    py "$ROOT/test/ref/saev_cases.py" cases
    py - <<'END'
import io, json, os, subprocess, numpy as np
# 7 images of two layers, CLS and 3 patches
a = np.random.default_rng(5).standard_normal((7, 2, 4, 5)).astype("<f4")
for name in "plain 2024-10 2024-11 2025-06-09 1.0.0 1.1 1.1-ex 1.1-later 2.0-ex 2.0 2.1".split():
    os.mkdir(name)
    os.rename(f"cases/{name}.json", f"{name}/metadata.json")
    m = json.load(open(f"{name}/metadata.json"))
    for i in range(3):
        a[3 * i:3 * i + 3].tofile(f"{name}/acts{i:06d}.bin")
    if "protocol" in m:
        json.dump([{"name": f"acts{i:06d}.bin", "n_imgs": min(3, 7 - 3 * i)} for i in range(3)],
                  open(f"{name}/shards.json", "w"))
        np.zeros((7, 3), "u1").tofile(f"{name}/labels.bin")
    layer = m.get("layers", [-2, -1])[1] # the first version kept the last n_layers
    p = subprocess.run(["saev-read", "--view", "image", "--layer", str(layer), name, "0", "20", f"4:{layer}:1"],
                       check=True, capture_output=True)
    assert np.array_equal(np.load(io.BytesIO(p.stdout)), a[[0, 6, 4], 1, [1, 3, 2]]), name
    breaking = ["breaking" in s for s in p.stderr.decode().splitlines()]
    assert breaking == [False] if name == "plain" else breaking == [True], (name, p.stderr)
END
    sed 's/"2.1"/"3.0"/' 2.1/metadata.json >2.0/metadata.json
    run -65 saev-read 2.0
    [[ $output == *'protocol is "3.0" (expected "1.x" or "2.x")' ]]
    # a minor version that is not known is read as the last of its major one
    saev-read -q 2.1 >want
    for minor in 2.7:2.1 2.10:2.1 1.9:1.1; do
        name=${minor%:*}
        if [ "$name" = 1.9 ]; then from=1.1; else from=2.1; fi
        sed "s/\"$from\"/\"$name\"/" $from/metadata.json >2.0/metadata.json
        run -0 --separate-stderr saev-read info 2.0
        [[ $output == *$'\n2.0\tprotocol\t'"$name"$'\n'* ]]
        [ "$stderr" = "saev-read: 2.0/metadata.json: breaking: protocol $name, not 2025-06-17: read as ${minor#*:} means it" ]
        saev-read -q 2.0 | cmp - want
    done
}

@test "saev-read --direct: what is read does not fill the page cache" {
    linux_only
    py - <<'END'
import ctypes, os, subprocess, sys
from saev_dump import *
kw = dict(n=64, d=4099, p=9, imgs_a_shard=64)
a, m = dump("d", **kw), meta(**kw)
path = "d/acts000000.bin"
fd = os.open(path, os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
at = libc.mmap(None, a.nbytes, 1, 1, fd, 0) # PROT_READ, MAP_SHARED
def cached(): # pages; reading would fill the cache
    pages = ctypes.create_string_buffer(-(-a.nbytes // 4096))
    assert libc.mincore(at, a.nbytes, pages) == 0
    return sum(p & 1 for p in pages.raw)
try:
    os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
except OSError:
    sys.exit() # no O_DIRECT here
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
if cached():
    sys.exit() # a file system in memory
def read(*more):
    return subprocess.run(["saev-read", "-q", "--raw", *more], check=True, capture_output=True).stdout
want = rows(a, m, "image", "-2")
view = ["--view", "image", "--layer", "-2", "d"]
assert read("--direct", *view) == want.tobytes()
assert read("--direct", *view, "5", "2-40", "0") == want[[5, *range(2, 41), 0]].tobytes()
assert read("--direct", "--dtype", "f16", "d") == a.astype("<f2").tobytes()
assert cached() == 0
assert read("d") == a.tobytes()
assert cached() > 0
END
}

@test "saev-read: what is not in the page cache is the same, near or far" {
    py - <<'END'
import os, subprocess, numpy as np
from saev_dump import *
def forget(d):
    for f in os.listdir(d):
        fd = os.open(f"{d}/{f}", os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
g = np.random.default_rng(2)
# rows of 20 bytes, of 4 KiB and of 68 KiB; /dev/shm mostly has no RWF_NOWAIT
for k, (d, n, p) in enumerate([(5, 5000, 9), (1024, 300, 9), (17001, 40, 3)]):
    for top in ".", "/dev/shm":
        if not os.access(top, os.W_OK) or (top != "." and k != 1):
            continue
        name = f"{top}/saev-read-{os.getpid()}-{k}"
        kw = dict(d=d, n=n, p=p, imgs_a_shard=n // 3)
        a, m = dump(name, **kw), meta(**kw)
        def read(*more):
            forget(name)
            return subprocess.run(["saev-read", "-q", "--raw", *more, name], check=True, capture_output=True).stdout
        try:
            for view in "cls", "image", "all":
                x = rows(a, m, view, "-2")
                one = ["--view", view, "--layer", "-2"]
                assert read(*one, "--dtype", "f16") == x.astype("<f2").tobytes(), (d, view)
                i = g.integers(0, len(x), 3000 if d < 9999 else 300)
                np.save("i.npy", i)
                assert read(*one, "-j", "3", "--rows", "i.npy") == x[i].tobytes(), (d, view)
        finally:
            for f in os.listdir(name):
                os.unlink(f"{name}/{f}")
            os.rmdir(name)
END
}

@test "saev-read: a shard that is cut short while it is read" {
    py -c 'from saev_dump import *; dump("d", n=7, d=1000)'
    mkfifo list
    for more in "--raw" "--direct" "--dtype f16"; do
        # sizes have been checked when the list is opened
        # shellcheck disable=SC2086
        saev-read -q $more -o out --rows list d 2>err &
        exec 7>list
        truncate -s 95999 d/acts000000.bin
        printf '0-55\n' >&7
        exec 7>&-
        status=0
        wait $! || status=$?
        [ "$status" -eq 65 ] || { cat err && return 1; }
        grep -qE '^saev-read: d/acts000000.bin: ended at byte 95999 while it was read \(expected 96000\)$' err
        [ "$(wc -l <err)" -eq 1 ]
        [ ! -e out ]
        truncate -s 96000 d/acts000000.bin
    done
}

@test "saev-read -o: room that is not there is asked for before the first byte" {
    py -c 'from saev_dump import *; dump("d", n=7, d=1000)'
    run -74 bash -c 'ulimit -f 16; saev-read -q -o out d'
    [ "$output" = "saev-read: out: no room for 224000 bytes: File too large" ]
    [ "$(echo out* .out*)" = "out* .out*" ]
}

@test "saev-read: a closed pipe ends it quietly, a full disk does not" {
    py -c 'from saev_dump import *; dump("d", n=640, d=409, p=9, imgs_a_shard=200)'
    for more in "d" "--dtype f16 --raw d" "--batch 7 d" "--view cls d" "--index d" "d 0-1200" "--direct d"; do
        run -141 bash -c "saev-read -q $more | head -c 100 >head; exit \"\${PIPESTATUS[0]}\""
        [ -z "$output" ]
        [ "$(wc -c <head)" -eq 100 ]
        run -74 bash -c "saev-read -q $more >/dev/full"
        [ "$output" = "saev-read: standard output: cannot be written: No space left on device" ]
    done
}

@test "saev-read -o: whole or not at all" {
    py -c 'from saev_dump import *; dump("d", n=7)'
    saev-read -q -o out.npy d
    saev-read -q d | cmp - out.npy
    run -73 saev-read -q -o out.npy d
    saev-read -q -f -o out.npy d 0
    [ "$(wc -c <out.npy)" -eq $((128 + 20)) ]
    run -65 saev-read -q -o other.npy d 99
    truncate -s -1 d/acts000000.bin
    run -65 saev-read -q -o other.npy d
    [ "$(echo -- *.npy .*.tmp.*)" = "-- out.npy .*.tmp.*" ]
}

@test "saev-read: a signal leaves no part of a file, and asks to be run again" {
    py - <<'END'
import json, os
from saev_dump import meta
os.mkdir("sparse") # 2^30 rows, 64 GiB of a hole
json.dump(meta(n=1 << 20, p=511, d=16, imgs_a_shard=1 << 20), open("sparse/metadata.json", "w"))
os.truncate(os.open("sparse/acts000000.bin", os.O_CREAT | os.O_WRONLY), 64 << 30)
END
    for what in "TERM --index" "INT --dtype f16 --imgs 0-65535" "USR1 --index"; do
        sig=${what%% *} more=${what#* }
        # python: bash starts background jobs with INT ignored
        # shellcheck disable=SC2086
        "$PYTHON" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' saev-read -q $more -o out sparse 2>err &
        until [ -e "$(echo .out.tmp.*)" ]; do kill -0 $!; sleep 0.01; done
        sleep 0.05
        kill -s "$sig" $!
        status=0
        wait $! || status=$?
        [ "$status" -eq 75 ] || { echo "$sig: $status" && cat err && return 1; }
        [ "$(cat err)" = "saev-read: stopped by SIG$sig: run it again" ]
        [ "$(echo ./* .out*)" = "./err ./sparse .out*" ]
    done
    # a pipe's reader that does not read cannot hold it up; TSan can, and QEMU,
    # which ends no splice(2) for a signal
    [[ $BUILD == */tsan || ${TU_RUN-} == qemu ]] || run -143 bash -c 'saev-read -q sparse > >(sleep 2) & sleep 0.1; kill $!; wait $!'
}

# bats test_tags=long
@test "saev-read: memory under 64 MiB and an image, whatever the dump claims" {
    not_sanitized "sanitizers keep memory"
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    py - <<'END'
import json, os, subprocess, numpy as np
from saev_dump import meta
def peak(*run):
    p = subprocess.Popen(["saev-read", "-q", *run], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(p.pid, 0)
    return os.waitstatus_to_exitcode(status), used.ru_maxrss >> 10
def claim(name, n, **kw):
    os.mkdir(name)
    json.dump(meta(n=n, **kw), open(f"{name}/metadata.json", "w"))
# 2^40 images, not one of which is there
claim("claim", 1 << 40)
for more in ["claim"], ["--index", "claim"], ["claim", "0", "5"], ["--dtype", "f16", "claim"]:
    code, mib = peak(*more)
    assert code == 65 and mib < 64, (more, code, mib)
# 16 shards of 1 GiB, holes all; an image is 2 MiB
claim("sparse", 16 * 512, p=255, d=1024, imgs_a_shard=512)
for i in range(16):
    os.truncate(os.open(f"sparse/acts{i:06d}.bin", os.O_CREAT | os.O_WRONLY), 512 * 2 * 256 * 4096)
np.save("i.npy", np.random.default_rng(0).integers(0, 1 << 21, 100000))
few = ["--imgs", "500-600", "sparse"]
for more in (few, ["--dtype", "f16", *few], ["--direct", *few], ["--batch", "100000", *few],
             ["--view", "cls", "--layer", "13", "sparse"], ["--view", "image", "--layer", "13", *few],
             ["--rows", "i.npy", "sparse"], ["--rows", "i.npy", "-j", "64", "--direct", "sparse", "5-70000"]):
    code, mib = peak(*more)
    assert code == 0 and mib < 64 + 2, (more, code, mib)
# slots of 4 KiB
code, mib = peak("--window", "8192", *few)
assert code == 0 and 32 < mib < 32 + 64 + 2, (code, mib)
END
}

@test "saev-read -o, --svg: nothing in a dump is changed, nor what --rows names" {
    py -c 'from saev_dump import *; dump("dump")'
    cp -r dump as_it_was
    echo 1 >rows
    ln -s dump/acts000000.bin link
    for o in dump/acts000000.bin ./dump/../dump/metadata.json dump/new.npy link; do
        for verb in '' info meta stats 'verify -q'; do
            # shellcheck disable=SC2086
            run -2 saev-read $verb -f -o $o dump
            [[ ${lines[0]} == "saev-read: "*": would be written into dump, an input of this command" ]]
        done
        run -2 saev-read stats -f --svg $o dump
    done
    run -2 saev-read meta -f -o dump/metadata.json as_it_was dump
    (cd dump && run -2 saev-read -f -o acts000000.bin .)
    run -2 --separate-stderr saev-read -q -f -o ./rows --rows rows dump
    [ "${stderr_lines[0]}" = "saev-read: rows: is both an input and an output of this command" ]
    diff -r as_it_was dump
    [ "$(cat rows)" = 1 ]
    # an index is no directory; a device is not in one
    mkdir 1
    saev-read -o 1/row.npy dump 1
    saev-read -o dump.npy dump
    saev-read -o /dev/null dump
}
