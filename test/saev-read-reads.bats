# SPDX-License-Identifier: ISC
# saev-read: how it reads, as strace sees it.
load helpers

# reads.py: reads(OPTION...) runs saev-read under strace on dump d, and gives
# its bytes, its reads of the shards that gave what it asked for, as (shard,
# offset, bytes), and how often it said what it will need.
make_reads() {
    not_sanitized "LeakSanitizer does not run under strace"
    strace -f -o /dev/null true 2>/dev/null || skip "no strace here"
    cat >reads.py <<'END'
import ctypes, mmap, os, re, subprocess
from saev_dump import *
CALL = re.compile(r'(\w+)\(\d+<[^>]*/acts(\d+)\.bin>, .*, (\d+)(?:, RWF_NOWAIT)?\) = (-?\d+)')
def reads(*more):
    p = subprocess.run(["strace", "-f", "-y", "-s0", "-o", "trace", "-e", "trace=pread64,preadv2,fadvise64",
                        "saev-read", "-q", "--raw", "-j", "1", *more, "d"], check=True, capture_output=True)
    got, asked = [], 0
    for line in open("trace"):
        m = CALL.search(line)
        asked += "WILLNEED" in line
        if m and m[1] != "fadvise64":
            shard, offset, n = map(int, m.groups()[1:])
            if got and got[-1][:2] == (shard, offset):
                got.pop() # it was not all in the page cache
            got.append((shard, offset, n))
    return p.stdout, [c for c in got if c[2] > 1], asked
def forget(): # it is not in the page cache any more, or the test ends here
    cold = True
    for f in sorted(os.listdir("d")):
        fd = os.open("d/" + f, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        # asked without a read, which would begin to fetch what comes next
        map = np.memmap("d/" + f, np.uint8, "r")
        pages = ctypes.create_string_buffer(-(-map.size // mmap.PAGESIZE))
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(map.ctypes.data), ctypes.c_size_t(map.size), pages) == 0
        cold &= not any(p & 1 for p in pages.raw)
    if not cold:
        open("warm", "w").close()
        raise SystemExit
END
}

skip_warm() {
    [ ! -e warm ] || skip "the page cache keeps what it has here"
}

@test "saev-read: rows that lie together are read together, cold or not" {
    make_reads
    PYTHONPATH=. py - <<'END'
from reads import *
# 2000 rows of 4 KiB in 2 shards: 8 MiB
a = dump("d", layers=[0], p=9, cls=True, d=1024, n=200, imgs_a_shard=100).reshape(-1, 1024)
open("list", "w").write("".join("%d\n" % i for i in range(2000)))
for cold in False, True:
    if cold:
        forget()
    got, calls, _ = reads("--rows", "list")
    assert got == a.tobytes() and sum(c[2] for c in calls) == a.nbytes
    assert 8 <= len(calls) <= 24, calls
END
    skip_warm
}

@test "saev-read: a gap is read where that takes less time than to seek" {
    make_reads
    PYTHONPATH=. py - <<'END'
from reads import *
def count(p, *more): # reads, and what is announced beyond the first of them
    subprocess.run(["rm", "-rf", "d"])
    a = dump("d", layers=[0], p=p, cls=True, d=1024, n=60, imgs_a_shard=60)
    if not more:
        forget()
    got, calls, asked = reads("--view", "cls", *more)
    assert got == a[:, 0, 0].tobytes()
    return calls, asked
# gaps of 100 KiB: 10 rows in a MiB; of 200 KiB: each row for itself
assert 6 <= len(count(25, "--direct")[0]) <= 14
assert len(count(50, "--direct")[0]) == 60
calls, asked = count(25)
assert asked <= 14, (asked, calls)
calls, asked = count(50)
# a fast disk has some there before they are announced
assert len(calls) == 60 and sum(c[2] for c in calls) == 60 * 4096 and asked <= 60, (asked, calls)
# what is cached is not read for the gap
got, calls, _ = reads("--view", "cls")
assert sum(c[2] for c in calls) == 60 * 4096, calls
END
    skip_warm
}

@test "saev-read --shuffle: what is not in the page cache is read from front to end" {
    make_reads
    PYTHONPATH=. py - <<'END'
from reads import *
a = dump("d", layers=[0], p=9, cls=True, d=1024, n=500, imgs_a_shard=100).reshape(-1, 1024)
forget()
got, calls, _ = reads("--shuffle", "--seed", "3")
assert got == a[order(5000, 3)].tobytes()
assert sum(c[2] for c in calls) == a.nbytes and len(calls) <= 64, calls
assert calls == sorted(calls)
END
    skip_warm
}
