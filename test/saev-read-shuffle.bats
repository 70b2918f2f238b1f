# SPDX-License-Identifier: ISC
# saev-read --shuffle: orders are numpy's argsort of Philox's words.
# It takes half a minute.
load helpers

@test "saev-read --shuffle: numpy's order of every view, in memory and by way of the disk" {
    py - <<'END'
import itertools
from saev_dump import *
cases = (dict(), dict(n=0), dict(n=1), dict(n=600, p=16, d=20, cls=False),
         dict(n=300, p=7, d=200, layers=(1, 2, 3)), dict(n=60, d=7000),
         dict(n=40000, p=2, d=1, imgs_a_shard=9000))
for i, kw in enumerate(cases):
    a, m = dump(f"d{i}", ("short", "padded")[i % 2], **kw), meta(**kw)
    for view, layer in itertools.product(("cls", "image", "all"), (str(m["layers"][0]), "all")):
        if view == "cls" and not m["cls_token"]:
            continue
        want = rows(a, m, view, layer)
        for epoch, mem in ((0, "1G"), (0, "1500K"), (5, "2M")):
            got = saev_read(f"d{i}", "--view", view, "--layer", layer, "--raw", "--shuffle",
                            "--seed", 7, "--epoch", epoch, "--mem", mem, "--tmpdir", ".",
                            "-j", 1 + i % 3)
            assert got == want[order(len(want), 7, epoch)].tobytes(), (i, view, layer, mem)
END
    [ -z "$(find . -maxdepth 1 -type f)" ]
}

@test "saev-read --shuffle: .npy, --batch, --dtype and --imgs as without it" {
    py - <<'END'
import io
from saev_dump import *
a = dump("d", n=40, d=4000)
a = a[3:33].reshape(-1, 4000)[order(30 * 8, 2**64 - 1, 2**63)]
def read(*more):
    return saev_read("d", "--shuffle", "--imgs", "3-32", "--seed", 2**64 - 1, "--epoch", 2**63, *more)
for mem in ("1G", "1M"):
    assert (np.load(io.BytesIO(read("--mem", mem))) == a).all()
    assert read("--raw", "--direct", "--mem", mem) == a.tobytes()
    assert read("--raw", "--dtype", "f16", "--mem", mem) == a.astype("<f2").tobytes()
    f = io.BytesIO(read("--batch", 100, "--mem", mem))
    for want in np.split(a, (100, 200)):
        assert (np.load(f) == want).all()
    assert not f.read()
END
}

@test "saev-read --shuffle --index: the same places in that order" {
    py - <<'END'
from saev_dump import *
dump("d", n=10000, p=3, d=1, imgs_a_shard=1000)
head, *want = saev_read("d", "--index").decode().splitlines()
for mem in ("2M", "1M"):
    got = saev_read("d", "--index", "--shuffle", "--seed", 3, "--mem", mem).decode().splitlines()
    assert got == [head] + [want[i] for i in order(80000, 3)]
END
    run -2 saev-read -q --shuffle d 0-9
    [ "${lines[0]}" = "saev-read: --shuffle, --window and --sample take all rows, or those of --rows: no INDEX" ]
}

# bats test_tags=long
@test "saev-read --shuffle: all 24 orders of 4 rows are as likely" {
    [ -z "$TU_RUN" ] || skip "480 runs: test/unit/perm counts orders, too"
    py - <<'END'
from collections import Counter
from saev_dump import *
dump("d", n=2, p=1, d=1, layers=(0,))
seen = Counter(saev_read("d", "--raw", "--shuffle", "--seed", s, "--epoch", e)
               for s in range(24) for e in range(20))
chi2 = sum((k - 20)**2 / 20 for k in seen.values())
# 23 degrees of freedom: 99.9 % lie below 49.7; the seeds are fixed
assert len(seen) == 24 and 7 < chi2 < 49.7, (len(seen), chi2)
END
}

# bats test_tags=long
@test "saev-read --shuffle: memory stays within --mem and 64 MiB" {
    py -c 'from saev_dump import *; dump("d", n=300, p=15, d=2048, layers=(0, 1, 2), imgs_a_shard=50)'
    "$PYTHON" - <<'END' # its own memory counts until exec(2)
import resource, subprocess
p = subprocess.Popen(["saev-read", "--raw", "--shuffle", "--mem", "6M", "d"], stdout=subprocess.PIPE)
n = sum(map(len, iter(lambda: p.stdout.read(1 << 20), b"")))
assert p.wait() == 0 and n == 300 * 48 * 8192
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
assert peak < 70 << 10, peak
END
}

@test "saev-read --shuffle: nothing stays in --tmpdir, nor is seen there" {
    py -c 'from saev_dump import *; dump("d", n=100, d=4000)'
    mkdir tmp
    saev-read --raw --shuffle --mem 1M --tmpdir tmp d >want
    mkfifo pipe
    for signal in KILL TERM; do
        saev-read --raw --shuffle --mem 1M --tmpdir tmp d >pipe &
        pid=$!
        exec 5<pipe
        head -c 100000 <&5 | cmp -n 100000 - want # pass 2 has begun
        [ -z "$(ls -A tmp)" ]
        readlink /proc/$pid/fd/* | grep -q "/tmp/.*(deleted)"
        kill -$signal $pid
        wait $pid || :
        exec 5<&-
        [ -z "$(ls -A tmp)" ]
    done
}

@test "saev-read --shuffle: a shard that is cut short while it is read" {
    py - <<'END'
from saev_dump import *
for cut in 1, 12 << 20:
    a = dump(f"d{cut}", n=1000, d=2048, imgs_a_shard=500).reshape(-1, 2048)
    shard = f"d{cut}/acts000000.bin"
    p = subprocess.Popen(["saev-read", "-q", "--raw", "--shuffle", f"d{cut}"],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    got = p.stdout.read(1000)
    size = os.path.getsize(shard)
    os.truncate(shard, size - cut)
    got += p.stdout.read()
    said = p.stderr.read().decode()
    if p.wait() == 0: # where all was read before
        assert got == a[order(len(a), 0)].tobytes()
    else:
        assert p.returncode == 65 and said == (f"saev-read: {shard}: ended at byte {size - cut} "
            f"while it was read (expected {size})\n"), (p.returncode, said)
END
}

# bats test_tags=long
@test "saev-read --shuffle by disk: a shard that is cut short is no row of zeros" {
    py - <<'END'
from saev_dump import *
import time
a = dump("d", n=1000, d=2048, imgs_a_shard=1000).reshape(-1, 2048)
shard = "d/acts000000.bin"
size = os.path.getsize(shard)
whole = open(shard, "rb").read()
want = a[order(len(a), 0)].tobytes()
failed = 0
for i in range(24):
    p = subprocess.Popen(["saev-read", "-q", "--raw", "--shuffle", "--mem", "20M", "d"],
                         stdout=open("out", "wb"), stderr=subprocess.PIPE)
    time.sleep(0.004 * i)
    os.truncate(shard, size - 1000)
    said = p.stderr.read().decode()
    if p.wait() == 0: # all was read before
        assert open("out", "rb").read() == want, i
    else:
        assert p.returncode in (65, 74) and shard in said, (p.returncode, said)
        failed += 1
    open(shard, "wb").write(whole)
print(failed, "of 24 were cut in time")
END
}

@test "saev-read --shuffle -o: a signal ends it, and leaves no part of a file" {
    mkdir d
    py -c 'from saev_dump import *
json.dump(meta(n=1 << 21, p=7, d=1, imgs_a_shard=1 << 21), open("d/metadata.json", "w"))'
    truncate -s $((1 << 27)) d/acts000000.bin # 2^25 rows
    saev-read -q --shuffle -o out d &
    until [ -e "$(echo .out.tmp.*)" ]; do kill -0 $!; sleep 0.01; done
    kill -TERM $!
    status=0
    wait $! || status=$?
    [ "$status" -eq 75 ]
    [ "$(echo ./* .out*)" = "./d .out*" ]
}

@test "saev-read --shuffle: a full disk is one line and status 74" {
    py -c 'from saev_dump import *; dump("d", n=100, d=4000)'
    small_disk 8m
    run -74 --separate-stderr saev-read -q --raw --shuffle --mem 1M --tmpdir disk d
    [ -z "$output" ]
    [ "$stderr" = "saev-read: disk: 12806400 bytes are needed, 8388608 are free" ]
    limited() (
        ulimit -f 8 # KiB
        TMPDIR=$PWD saev-read -q --raw --shuffle --mem 1M d
    )
    run -74 --separate-stderr limited
    [ -z "$output" ]
    [ "$stderr" = "saev-read: $PWD: no room for 12806400 bytes: File too large" ]
    run -73 saev-read -q --raw --shuffle --mem 1M --tmpdir nowhere d
    [ "$output" = "saev-read: nowhere: no file can be made there: No such file or directory" ]
}

@test "saev-read --shuffle: head -c ends it quietly" {
    py -c 'from saev_dump import *; dump("d", n=100, d=4000)'
    cut() {
        saev-read -q --raw "$@" d | head -c 10 >/dev/null
        echo "${PIPESTATUS[0]}"
    }
    for order in "--shuffle" "--shuffle --mem 1M" "--window 10" "--sample 700 --shuffle"; do
        for dtype in f32 f16; do
            # shellcheck disable=SC2086
            run cut $order --dtype $dtype
            [ "$output" = 141 ]
        done
    done
    run -74 --separate-stderr bash -c 'saev-read -q --raw --shuffle d >/dev/full'
    [ "$stderr" = "saev-read: standard output: cannot be written: No space left on device" ]
}

@test "saev-read --shuffle -v: seed, epoch and the way, on stderr" {
    py -c 'from saev_dump import *; dump("d", n=100, d=4000)'
    saev-read -v --shuffle --seed 4 d 2>err >out
    grep -qx "saev-read: shuffle: seed 4, epoch 0, in memory" err
    saev-read -v --shuffle --epoch 9 --mem 1M --tmpdir . d 2>err >out
    grep -qxE "saev-read: shuffle: seed 0, epoch 9, by way of \.: 12806400 bytes in [0-9]+ parts" err
    saev-read -v --window 7 d 2>err >out
    grep -qx "saev-read: shuffle: seed 0, epoch 0, through 7 slots" err
    saev-read --shuffle --layer all --mem 1M d 2>err >out
    [ "$(cat err)" = "saev-read: d/metadata.json: layers is not ascending: its order is kept" ]
}

@test "saev-read --shuffle: too little --mem says how much will do" {
    py -c 'from saev_dump import *; dump("d", n=200, d=20000, p=0, layers=(1,))'
    run -2 --separate-stderr saev-read --raw --shuffle --mem 1000K d
    [ -z "$output" ]
    least=$(sed -n 's/.*: \([0-9]*\) will do/\1/p' <<<"$stderr")
    [ "${stderr_lines[0]}" = "saev-read: --mem: 1024000 bytes are too few for 200 rows of 80000: $least will do" ]
    run -2 saev-read --raw --shuffle --mem $((least - 1)) d
    saev-read --raw --shuffle --mem "$least" d | cmp - <(saev-read --raw --shuffle d)
    saev-read --raw --shuffle --mem 64MiB d | cmp - <(saev-read --raw --shuffle d)
    run -2 saev-read --seed 5 d
    [ "${lines[0]}" = "saev-read: --seed is for --shuffle, --window and --sample" ]
    run -2 saev-read --shuffle --mem x d
    [ "${lines[0]}" = 'saev-read: --mem: "x" is not a size such as 100000, 64M or 2GiB' ]
}

# The definition of saev-read(1) in Python.
@test "saev-read --window: row by row as the manual says" {
    py - <<'END'
from saev_dump import *
def below(seed, epoch, n):
    x = [np.random.Philox(key=seed | epoch << 64, counter=[0, t, 1, 0]).random_raw(n).tolist()
         for t in range(3)]
    def draw(k, m):
        return next(x[t][k] * m >> 64 for t in range(3) if x[t][k] * m % 2**64 >= 2**64 % m)
    return draw
def windowed(n, w, draw):
    rows, slots = iter(range(n)), []
    for k in range(n + w):
        if len(slots) < w and (row := next(rows, None)) is not None:
            slots.append(row)
            continue
        if not slots:
            return
        j = draw(windowed.k, len(slots))
        windowed.k += 1
        yield slots[j]
        row = next(rows, None)
        if row is None:
            slots[j] = slots[-1]
            slots.pop()
        else:
            slots[j] = row
for i, kw in enumerate((dict(n=0), dict(n=50, d=3), dict(n=40, d=4000), dict(n=1, d=70000))):
    a, m = dump(f"d{i}", **kw), meta(**kw)
    a = rows(a, m, "image", "13")
    for w in (1, 2, 100, 10**9):
        windowed.k = 0
        o = list(windowed(len(a), min(w, len(a)), below(9, 1, len(a))))
        assert sorted(o) == list(range(len(a))) and (w > 1 or o == sorted(o))
        more = f"d{i}", "--view", "image", "--layer", 13, "--window", w, "--seed", 9, "--epoch", 1
        assert saev_read(*more, "--raw") == a[o].tobytes(), (i, w)
        places = saev_read("--index", *more[:5]).splitlines()
        assert saev_read("--index", *more).splitlines() == places[:1] + [places[1 + j] for j in o]
END
    run -2 saev-read --window 5 --shuffle d0
    [ "${lines[0]}" = "saev-read: --window does not go with --shuffle" ]
}

@test "saev-read(5): its lines of numpy give the orders, with the largest seed and epoch, too" {
    py - "$ROOT/man/saev-read.5" <<'END'
import sys
from saev_dump import *
numpy, t = np, 0
lines = [line[4:] for line in open(sys.argv[1]) if line.startswith(".Dl ") and "Philox" in line]
assert len(lines) == 3, lines
a = dump("d", n=40, d=1).reshape(-1, 1)
for S, E in ((0, 0), (7, 3), (2**63 - 1, 0), (2**63, 0), (2**64 - 1, 2**64 - 1), (5, 2**64 - 1)):
    def got(*args):
        return saev_read("d", "--raw", "--seed", S, "--epoch", E, *args)
    keys, whole, draws = (eval(line, {"numpy": np, "S": S, "E": E, "t": 0, "rows": a})
                          for line in lines)
    assert got("--shuffle") == whole.tobytes(), (S, E)
    assert got("--shuffle") == a[np.argsort(keys.random_raw(len(a)))].tobytes(), (S, E)
    # two slots: the higher half of the numbers sends the second on its way
    slots, sent = [0, 1], []
    for k, x in enumerate(draws.random_raw(len(a) - 2)):
        j = int(x) >> 63
        sent.append(slots[j])
        slots[j] = k + 2
    assert got("--window", 2)[:4 * len(sent)] == a[sent].tobytes(), (S, E)
END
}

# bats test_tags=long
@test "saev-read --sample: the first of --shuffle, in the dump's order or theirs" {
    py - <<'END'
from saev_dump import *
a = dump("d", n=70000, p=3, d=1, imgs_a_shard=20000).reshape(-1, 1)
o = order(len(a), 5)
for k in (1, 2, 1000, len(a) - 1, len(a)):
    assert saev_read("d", "--raw", "--sample", k, "--seed", 5) == a[sorted(o[:k])].tobytes()
    assert saev_read("d", "--raw", "--sample", k, "--seed", 5, "--shuffle") == a[o[:k]].tobytes()
all = saev_read("d", "--index").splitlines()
assert saev_read("d", "--index", "--sample", 7, "--seed", 5).splitlines() == \
    all[:1] + [all[1 + i] for i in sorted(o[:7])]
END
    run -65 saev-read -q --sample 560001 d
    [ "$output" = "saev-read: d: --sample 560001, but 560000 rows" ]
    run -2 saev-read --sample 0 d
    run -2 saev-read --sample 3 --mem 1M d
    [ "${lines[0]}" = "saev-read: --mem does not go with --sample" ]
    run -2 saev-read --sample 3 --shuffle --tmpdir . d
    [ "${lines[0]}" = "saev-read: --tmpdir does not go with --sample" ]
    run -2 saev-read --window 3 --mem 1M d
    [ "${lines[0]}" = "saev-read: --mem is for --shuffle" ]
}
