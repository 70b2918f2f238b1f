# SPDX-License-Identifier: ISC
# saev-read verify --deep in parts, and stopped in the middle.
load helpers

@test "saev-read verify --deep --shard: the parts tell what the whole tells, each of its own shards" {
    py - <<'END'
import subprocess
from saev_dump import *
dump("d", "padded", n=20, imgs_a_shard=2) # 10 shards and one of zeros
def spoil(shard, what):
    np.array([what], "<f4").tofile(f := open("d/acts%06d.bin" % shard, "r+b")); f.close()
bad = {0: np.nan, 3: np.inf, 7: np.nan, 9: np.inf, 10: 1}
for shard, what in bad.items():
    spoil(shard, what)
for shard in 1, 2: # neighbours with one problem
    os.truncate("d/acts%06d.bin" % shard, 0)
    os.truncate("d/acts%06d.bin" % shard, 320)
os.truncate("d/acts000005.bin", 3)
def verify(*more):
    p = subprocess.run(["saev-read", "verify", "-q", "--deep", *more, "d"], capture_output=True)
    assert p.returncode == 1 and not p.stderr, p
    return p.stdout.decode().splitlines()[1:]
def each(lines): # (shard, what), one by one
    for name, what in (l.split("\t")[1].split(": ", 1) for l in lines):
        for shard in range(int(name[4:10]), int(name[-10:-4]) + 1):
            yield shard, what
whole = verify()
assert len(whole) == 7 and "d\tacts000001.bin .. acts000002.bin: all its images are zeros, as in a hole" in whole, whole
wrong = {1, 2, *bad}
for n in 1, 2, 3, 7, 11, 12:
    lines = []
    for i in range(n):
        part = verify("--shard", f"{i}/{n}")
        begin, end = i * 10 // n, 11 if i == n - 1 else (i + 1) * 10 // n
        assert sorted(s for s, _ in each(part)) == sorted(
            [5, *(s for s in wrong if begin <= s < end)]), (i, n, part)
        lines += part
    assert set(each(lines)) == set(each(whole))
    cut = 2 in (i * 10 // n for i in range(n))
    assert len(set(lines)) == 7 + cut and (set(lines) == set(whole)) == (not cut)
END
    py -c 'from saev_dump import *; dump("e", "padded", layers=[0, 1], n=20, imgs_a_shard=2)'
    run -0 saev-read verify -v --deep --shard 1/2 e
    [ "$output" = "saev-read: e: part 1/2 is sound, 6 shards, 1920 bytes" ]
    run -2 saev-read verify --shard 1/2 e
    [ "${lines[0]}" = "saev-read: --shard is for --deep" ]
    run -2 saev-read verify --deadline 1 e
    run -2 saev-read verify --deep --shard 2/2 e
}

# A dump whose first shard is cut and has a NaN, and whose others take hours.
make_huge() {
    py - <<'END'
from saev_dump import *
os.mkdir("d")
m = meta(layers=[0], p=1, cls=False, d=8, n=3 << 36, imgs_a_shard=(1 << 36) - 1)
json.dump(m, open("d/metadata.json", "w"), indent=4)
np.array([np.nan] + [1] * 15, "<f4").tofile("d/acts000000.bin")
for i in 1, 2:
    open(f"d/acts00000{i}.bin", "wb").truncate(1 << 41)
END
    printf 'dump\tproblem\nd\tacts000000.bin: 64 bytes (expected 2199023255552)\nd\tacts000000.bin: 1 NaN, 0 infinite (the first in image 0)\n' >want
}

@test "saev-read verify --deep: who is stopped tells what was found so far" {
    make_huge || skip "no file of 2 TiB here"
    run -75 --separate-stderr timeout 30 saev-read verify -q --deep -j 1 --deadline 1 d d
    diff - want <<<"$output"
    [ "$stderr" = "saev-read: stopped by the deadline: 1 of 3 shards of d read, run it again" ]
    run -75 --separate-stderr timeout 30 saev-read verify -q --deep --json --deadline 1 d
    py -c 'import json, sys
got = json.load(sys.stdin)
assert got["dumps"][0]["status"] == 75 and len(got["dumps"][0]["problems"]) == 2 and got["checked"] == 1' <<<"$output"
    saev-read verify -q --deep -j 1 -o out d 2>err 3>&- &
    until readlink /proc/$!/fd/* | grep -q acts000001; do kill -0 $!; sleep 0.01; done
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ $status = 75 ]
    [ ! -e out ]
    [ "$(cat err)" = "saev-read: stopped by SIGTERM: 1 of 3 shards of d read, run it again" ]
    # what is there stays
    echo old >out
    run -75 --separate-stderr timeout 30 saev-read verify -q --deep -f -o out --deadline 1 d
    [ "$(cat out)" = old ] && [ -z "$output" ] && [ -z "$(find . -name '.out*')" ]
}

# slow_dir COMMAND...: it waits two seconds for the first names in d (an
# emulator, too, lists a directory as it starts: not that one).
slow_dir() {
    strace -o /dev/null -P "$PWD/d" -e trace=getdents64 \
        -e inject=getdents64:delay_enter=2000000:when=1 "$@"
}

@test "saev-read verify --deep: a stop before the first shard is no problem of the dump" {
    py - <<'END'
from saev_dump import *
dump("d", n=7)
m = {k: v for k, v in meta(n=7).items() if k != "seed"} | {"dtype": "float32", "protocol": "1.0.0"}
json.dump(m, open("d/metadata.json", "w"))
json.dump([{"name": "acts%06d.bin" % i, "n_imgs": n} for i, n in enumerate([3, 3, 1])], open("d/shards.json", "w"))
END
    run -0 saev-read verify -q --deep d
    run -75 saev-read verify -q --deep --deadline 0 d d
    [ "$output" = "saev-read: stopped by the deadline: no shard of d was read, run it again" ]
    not_sanitized "LeakSanitizer does not run under strace"
    strace -o /dev/null true 2>/dev/null || skip "no strace here"
    # the directory is listed after the metadata, and before shards.json
    for part in "" "--shard 0/12"; do
        # shellcheck disable=SC2086
        run -75 slow_dir saev-read verify -q --deep --deadline 1 $part d
        [ "$output" = "saev-read: stopped by the deadline: no shard of d was read, run it again" ]
    done
}

@test "saev-read verify --deep: what cannot be read is told by who is stopped there, too" {
    not_sanitized "LeakSanitizer does not run under strace"
    strace -o /dev/null -P /dev/null -e trace=pread64 -e inject=pread64:error=EIO:signal=TERM:when=1 true 2>/dev/null ||
        skip "no strace here that fails calls"
    py -c 'from saev_dump import *; dump("d", n=20, imgs_a_shard=2)' # 10 shards
    : >d/acts000001.bin
    printf 'dump\tproblem\nd\tacts000001.bin: 0 bytes (expected 320)\nd\tacts000002.bin: cannot be read: Input/output error\n' >want
    fail() { # WHAT SHARD...: reads of these do
        local i paths=()
        for i in "${@:2}"; do paths+=(-P "$PWD/d/acts00000$i.bin"); done
        strace -f -o /dev/null "${paths[@]}" -e trace=pread64 -e inject="pread64:error=EIO$1" saev-read verify -q --deep -j 1 d
    }
    run -75 --separate-stderr fail :signal=TERM:when=1 2
    diff - want <<<"$output"
    [ "$stderr" = "saev-read: stopped by SIGTERM: 2 of 10 shards of d read, run it again" ]
    # without a stop, the first of them
    run -1 --separate-stderr fail "" 2 3 7
    diff - want <<<"$output"
}

# bats test_tags=long
@test "saev-read verify --deep: who waits for the reader of a pipe ends by SIGTERM" {
    py - <<'END'
from saev_dump import *
import fcntl, signal, struct, termios, time
# every second of 8000 shards has a NaN: 4000 lines are more than a pipe takes
dump("d", layers=[0], p=1, cls=False, d=1, n=8000, imgs_a_shard=1)
for i in range(0, 8000, 2):
    np.array([np.nan], "<f4").tofile("d/acts%06d.bin" % i)
r, w = os.pipe()
p = subprocess.Popen(["saev-read", "verify", "-q", "--deep", "d"], stdout=w)
full = fcntl.fcntl(w, 1031, 1 << 16) # F_SETPIPE_SZ
try:
    while struct.unpack("i", fcntl.ioctl(r, termios.FIONREAD, bytes(4)))[0] < full:
        assert p.poll() is None
        time.sleep(0.05)
    p.send_signal(signal.SIGTERM)
    assert p.wait(20) == -signal.SIGTERM
finally:
    p.kill()
END
}
