# SPDX-License-Identifier: ISC
# saev-read --skip: an order gone on with.
load helpers

@test "saev-read --skip: the rest is the tail of the whole order, in memory, by way of the disk, through slots" {
    py - <<'END'
import subprocess
from saev_dump import *
cases = dict(n=7), dict(n=600, p=16, d=20, cls=False), dict(n=60, d=7000), dict(n=20000, p=2, d=1, imgs_a_shard=9000)
for i, kw in enumerate(cases):
    a = dump(f"d{i}", **kw)
    n, row = a.size // a.shape[-1], a.shape[-1] * 4
    for how in ["--shuffle"], ["--shuffle", "--mem", "1500K", "--tmpdir", "."], ["--window", "50"]:
        how += ["--seed", 7, "--raw", "-j", 1 + i % 3, f"d{i}"]
        whole = saev_read(*how)
        assert len(whole) == n * row
        for skip in 0, 1, n // 3, n - 1, n:
            assert saev_read("--skip", skip, *how) == whole[skip * row:], (i, how, skip)
        head, *places = saev_read("--index", *how[:-4], *how[-3:]).splitlines()
        assert saev_read("--index", "--skip", n // 2, *how[:-4], *how[-3:]).splitlines() == [head] + places[n // 2:]
END
    saev-read -q --shuffle --raw d0 >whole
    saev-read -q --shuffle --raw --skip 20 d0 | cmp - <(tail -c $((36 * 20)) whole)
    saev-read -q --shuffle --skip 20 d0 >rest.npy
    py -c 'import numpy as np; assert np.load("rest.npy").shape == (36, 5)'
    run -65 saev-read -q --shuffle --skip 57 d0
    [ "$output" = "saev-read: d0: --skip 57, but 56 rows" ]
    run -2 saev-read -q --skip 1 d0
    [ "${lines[0]}" = "saev-read: --skip is for --shuffle and --window" ]
    run -2 saev-read -q --skip 1 --shuffle --sample 3 d0
    [ "${lines[0]}" = "saev-read: --skip does not go with --sample" ]
}

@test "saev-read --skip: what is left out takes no room in --tmpdir" {
    py -c 'from saev_dump import *; dump("d", n=600, p=16, d=200)'
    for skip in 0 10000 20000; do
        saev-read -v --shuffle --raw --mem 2M --tmpdir . --skip $skip d 2>said >/dev/null
        # "... by way of .: BYTES bytes in PARTS parts"
        sed -n 's/.*: \([0-9]*\) bytes in .*/\1/p' said
    done >sizes
    # 20400 rows of 808 bytes; a part has some thousand
    awk 'NR == 1 && $1 == 20400 * 808 { n++ }
         NR == 2 && $1 >= 10400 * 808 && $1 < 13400 * 808 { n++ }
         NR == 3 && $1 >= 400 * 808 && $1 < 3400 * 808 { n++ }
         END { exit n != 3 }' sizes
}
