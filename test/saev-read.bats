# SPDX-License-Identifier: ISC
# saev-read on dumps that numpy made: test/ref/saev_dump.py.
load helpers

@test "saev-read: rows of several layers without --layer are said, on purpose they are not" {
    py -c 'from saev_dump import *; dump("d", layers=(1, 3)), dump("one", layers=(3,))'
    warned="saev-read: d: the rows of all its layers, 1, 3, are used (one alone: --layer N; all of them: --layer all)"
    for o in "" --shuffle "--window 2" "--sample 3" "--imgs 1-2" "--view cls"; do
        run -0 --separate-stderr bash -c "saev-read $o d | cat"
        [ "$stderr" = "$warned" ]
        for more in "--layer all d" "--layer 3 d" "-q d" one; do
            run -0 --separate-stderr bash -c "saev-read ${o/1-2/0-0} $more | cat"
            [ -z "$stderr" ]
        done
    done
    run -0 --separate-stderr bash -c 'saev-read d 3 | cat; saev-read --rows <(echo 3) d | cat; saev-read --index d; saev-read stats d'
    [ -z "$stderr" ]
}

@test "saev-read: padding of documents is in no stream, sample or statistic, but in what is named" {
    py -c 'from saev_dump import *; padded("d")'
    reads() { # DUMP WANT [OPTION...]
        saev-read -q "${@:3}" "$1" | cmp - "$2"
    }
    reads d all.npy
    reads d 7.npy --layer 7 -j 1
    reads d 3.npy --layer 3 --view image -j 3
    reads d padding.npy --padding
    reads d <(saev-read -q d) --imgs 0-8
    reads d <(saev-read -q d 36-38 42-44) --imgs 3
    sorted='import numpy as np, sys
x = np.load(sys.argv[1]); print(x[np.lexsort(x.T)].tolist())'
    for o in --shuffle "--window 5" "--sample 54"; do
        saev-read -q $o --seed 2 d >some.npy
        [ "$(py -c "$sorted" some.npy)" = "$(py -c "$sorted" all.npy)" ]
    done
    cmp <(saev-read -q --raw --shuffle --skip 50 d) <(saev-read -q --raw --shuffle d | tail -c $((4 * 32)))
    [ "$(saev-read --index d | tail -n 1 | cut -f 1-4)" = "$(printf '8\t7\t3\t3')" ]
    saev-read stats --json d >got
    [ "$(py -c 'import json, numpy as np
s, x = json.load(open("got")), np.load("all.npy").astype("f8")
print(s["n_rows"], max(abs(s["dims"][i]["mean"] - x[:, i].mean()) for i in range(8)) < 1e-12)')" = "54 True" ]
    [ "$(saev-read stats --json --padding d | grep -o 'n_rows":[0-9]*')" = 'n_rows":108' ]
    # zeros of other dumps are data, as are named rows
    reads d <(saev-read -q --padding d) --rows <(seq 0 107)
    py -c 'from saev_dump import *; padded("other", "packed")'
    reads other padding.npy
}

@test "saev-read: padding is looked for in the shards of --imgs alone" {
    py -c 'from saev_dump import *; padded("d")'
    saev-read -q d --imgs 0-7 >want.npy
    chmod 0 d/acts000002.bin
    as_user ls d >/dev/null 2>&1 || skip "the test's directory is closed to others"
    run -66 as_user saev-read -q d
    cmp want.npy <(as_user saev-read -q d --imgs 0-7)
}

@test "saev-read: every view, layer and form of dump is numpy's indexing" {
    py - <<'END'
import itertools, io, subprocess, numpy as np
from saev_dump import *
n = 0
for cls, form, imgs in itertools.product((True, False), ("short", "padded"), (0, 1, 6, 7)):
    name = f"d{n}"
    kw = dict(cls=cls, n=imgs, p=4 if cls else 3)
    a, m = dump(name, form, seed=n, **kw), meta(**kw)
    n += 1
    for view, layer in itertools.product(("cls", "image", "all"), ("13", "-2", "all")):
        if view == "cls" and not cls:
            continue
        run = ["saev-read", "--view", view, "--layer", layer, name]
        got = np.load(io.BytesIO(subprocess.run(run, check=True, capture_output=True).stdout))
        want = rows(a, m, view, layer)
        assert got.dtype == want.dtype and got.shape == want.shape, (run, got.shape)
        assert (got == want).all(), run
        for more in [], ["--direct"]:
            raw = subprocess.run(run + ["--raw"] + more, check=True, capture_output=True).stdout
            assert raw == want.tobytes(), (run, more)
END
}

@test "saev-read: --dtype rounds to nearest, ties to even" {
    py - <<'END'
import subprocess, numpy as np
from saev_dump import *
a = dump("d", d=70000, n=2)
def read(*more):
    return subprocess.run(["saev-read", "--raw", "d", *more], check=True, capture_output=True).stdout
assert read("--dtype", "f16") == a.astype("<f2").tobytes()
u = a.view("<u4").astype("u8")
assert read("--dtype", "bf16") == (u + 0x7fff + (u >> 16 & 1) >> 16).astype("<u2").tobytes()
END
    run -2 saev-read --dtype bf16 d
    [ "${lines[0]}" = "saev-read: .npy has no bf16: --dtype bf16 needs --raw" ]
}

@test "saev-read: a dump that is not what its metadata says is refused with 65" {
    py -c 'from saev_dump import *; dump("d", n=7)'
    truncate -s -1 d/acts000001.bin
    run -65 --separate-stderr saev-read -q d
    [ -z "$output" ]
    [ "$stderr" = "saev-read: d/acts000001.bin: 479 bytes (expected 480)" ]
    rm d/acts000001.bin
    run -65 saev-read -q d
    [ "$output" = "saev-read: d/acts000001.bin: missing" ]
    truncate -s 480 d/acts000001.bin
    truncate -s 480 d/acts000003.bin
    run -65 saev-read -q d
    [ "$output" = "saev-read: d/acts000003.bin: beyond the last shard (n_imgs is 7, 3 a shard)" ]
    run -66 saev-read ./nowhere
    [ "$output" = "saev-read: ./nowhere/metadata.json: No such file or directory" ]
}

@test "saev-read --batch: numpy reads one array after another from a pipe" {
    py - <<'END'
import subprocess, types, numpy as np
from saev_dump import *
def arrays(*run):
    with subprocess.Popen(["saev-read", "-q", *run], stdout=subprocess.PIPE) as p:
        while p.stdout.peek(1):
            yield np.lib.format.read_array(types.SimpleNamespace(read=p.stdout.read))
    assert p.returncode == 0, run
a, m = dump("d", n=7), meta(n=7)
dump("empty", n=0)
for view in "image", "all":
    for dtype in "f32", "f16":
        for n in 1, 4, 9, 41, 42, 43, 56, 57, 1 << 40:
            want = rows(a, m, view, "all").astype("<f" + str(int(dtype[1:]) // 8))
            want = [want[i:i + n] for i in range(0, len(want), n)]
            got = list(arrays("--view", view, "--dtype", dtype, "--batch", str(n), "d"))
            assert len(got) == len(want), (view, n, len(got))
            for x, y in zip(got, want):
                assert x.dtype == y.dtype and np.array_equal(x, y), (view, n)
assert list(arrays("--batch", "3", "empty")) == []
END
    run -2 saev-read --batch 3 --raw d
    [ "${lines[0]}" = "saev-read: --batch needs .npy headers: --raw has none" ]
    run -2 saev-read --batch 0 d
}

@test "saev-read --imgs: as if the dump had no others" {
    py - <<'END'
import io, subprocess, numpy as np
from saev_dump import *
for form in "short", "padded":
    a, m = dump(form, form, n=7), meta(n=7)
    for view in "cls", "image", "all":
        for layer in "13", "-2", "all":
            for lo, hi in (0, 0), (0, 6), (2, 3), (3, 5), (6, 6):
                run = ["saev-read", "-q", "--view", view, "--layer", layer,
                       "--imgs", f"{lo}-{hi}" if hi > lo else str(lo), form]
                got = np.load(io.BytesIO(subprocess.run(run, check=True, capture_output=True).stdout))
                assert np.array_equal(got, rows(a[lo:hi + 1], m, view, layer)), run
END
    run -65 saev-read -q --imgs 3-7 short
    [ "$output" = "saev-read: short: --imgs 3-7, but the dump has 7" ]
    run -65 saev-read -q --imgs 5-18446744073709551615 short
    [ "$output" = "saev-read: short: --imgs 5-18446744073709551615, but the dump has 7" ]
    run -65 saev-read -q meta --imgs 0-18446744073709551615 short
    for bad in 5-3 -1 x 1- 1-2-3 99999999999999999999; do
        run -2 saev-read --imgs "$bad" short
    done
    [ "${lines[0]}" = 'saev-read: --imgs: "99999999999999999999" is not A-B with A <= B' ]
}

@test "saev-read -v: one line sums up; -q is silent" {
    py -c 'from saev_dump import *; dump("d", layers=(1, 2), d=6, n=7)'
    saev-read -v --layer all --dtype f16 --raw d >out 2>err
    grep -qE '^saev-read: 56 rows, 672 bytes in [0-9.]+ s, [0-9.]+ GB/s, .+, [a-z0-9]+, threads: [0-9]+$' err
    [ "$(wc -l <err)" -eq 1 ]
    saev-read --layer all d 2>err >out
    [ ! -s err ]
}

@test "saev-read(1): the examples run as typed" {
    py -c 'from saev_dump import *; dump("dump", layers=(-2, 13), n=21)'
    examples saev-read.1 >script
    PATH=$(dirname "$PYTHON"):$PATH
    run -0 --separate-stderr bash -eo pipefail script
    [ -z "$(grep -v "^saev-read: dump: the rows of all its layers, -2, 13, are used" <<<"$stderr")" ]
    [[ $'\n'$output$'\n' == *$'\nsound\nall parts are sound\n'* ]] # -e does not see what stands before &&
    [ "$(wc -c <some.npy)" -eq $((128 + 6 * 20)) ] && [ "$(wc -c <ten.npy)" -eq $((128 + 10 * 20)) ]
}

@test "saev-read(5): the examples run as typed" {
    py -c 'from saev_dump import *; dump("dump", layers=(-2, 13), n=21)'
    examples saev-read.5 >script
    PATH=$(dirname "$PYTHON"):$PATH
    run -0 --separate-stderr bash -eo pipefail script
    [ -z "$(grep -v "^saev-read: dump: the rows of all its layers, -2, 13, are used" <<<"$stderr")" ]
    [ "$(grep -c $'\t' <<<"$output")" -eq $((1 + 6 + 1 + 3)) ] # two tables of places
    [ "$(wc -l <places.tsv)" -eq 101 ]
    [ -s layer13.json ]
    grep -q '"n_imgs": 10,' ten.json
    run ! grep -q subset ten.json
}
