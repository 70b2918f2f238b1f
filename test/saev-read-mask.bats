# SPDX-License-Identifier: ISC
# Which rows of a dump count: the reference selects from the raw shards by numpy.
load helpers

# text NAME: 40 padded windows of 6 tokens, layers 3 and 7, with ids and norms
# from a seed; NAME/ids.npy.json says that 1 and 2 are special.
text() {
    py - "$1" <<'END'
import json, sys, numpy as np
from saev_dump import *
kw = dict(layers=(3, 7), p=6, cls=False, n=40, imgs_a_shard=7, d=20,
          data={"of": {"windows": "padded"}})
a = dump(sys.argv[1], **kw)
rng = np.random.default_rng(5)
ids = rng.integers(0, 9, (40, 6)).astype("<i4")
a *= rng.choice([0.5, 1, 3], (40, 2, 6, 1)).astype("<f4")
n = rng.integers(0, 7, 40)
for x, i, k in zip(a, ids, n):
    x[:, k:] = 0
    i[k:] = -1
for i in range(0, 40, 7):
    a[i:i + 7].tofile("%s/acts%06d.bin" % (sys.argv[1], i // 7))
np.save(sys.argv[1] + "/ids.npy", ids)
json.dump({"special": [2, 1]}, open(sys.argv[1] + "/ids.npy.json", "w"))
END
}

# kept: Python that selects: kept(DUMP, layer places, ids, positions, norm) is
# the numbers of rows of the view that count, and the view's rows.
cat >"$BATS_FILE_TMPDIR/kept.py" <<'END'
import glob, json, numpy as np
def kept(dump, layers=(0, 1), ids=(), positions=0, norm=np.inf):
    m = json.load(open(dump + "/metadata.json"))
    a = np.concatenate([np.fromfile(f, "<f4") for f in sorted(glob.glob(dump + "/acts*"))])
    a = a.reshape(-1, len(m["layers"]), m["n_patches_per_img"], m["d_vit"])
    id = np.load(dump + "/ids.npy")
    stays = (id >= 0) & ~np.isin(id, list(ids))
    stays[:, :positions] = False
    a = a[:, list(layers)]
    row = np.linalg.norm(a.astype("f8"), axis=3) <= norm
    return np.flatnonzero((row & stays[:, None]).ravel()), a.reshape(-1, a.shape[3])
END

@test "saev-read: ids, special tokens, first positions and long rows are left out, as numpy does" {
    text d
    PYTHONPATH=$BATS_FILE_TMPDIR py - <<'END'
from kept import *
from saev_dump import *
import json
both, one = ("--layer", "all"), ("--layer", 7)
for view, layers in ((both, (0, 1)), (one, (1,))):
    for options, kw in (
            (("--skip-ids", "3"), dict(ids=[3])),
            (("--skip-ids", "special"), dict(ids=[1, 2])),
            (("--skip-ids", "8,special,0,8"), dict(ids=[0, 1, 2, 8])),
            (("--skip-positions", 2), dict(positions=2)),
            (("--max-norm", 5), dict(norm=5)),
            (("--skip-ids", "special,5", "--skip-positions", 1, "--max-norm", 4.5),
             dict(ids=[1, 2, 5], positions=1, norm=4.5))):
        at, x = kept("d", layers, **kw)
        assert 0 < len(at) < len(x) - 60
        read = lambda *o: saev_read("d", "--raw", *view, *options, *o)
        rows = lambda b: np.frombuffer(b, "<f4").reshape(-1, x.shape[1])
        for j in (1, 3):
            assert (rows(read("-j", j)) == x[at]).all()
        n = len(at)
        assert (rows(read("--shuffle", "--seed", 4)) == x[at][order(n, 4)]).all()
        assert (rows(read("--shuffle", "--seed", 4, "--skip", 7)) == x[at][order(n, 4)[7:]]).all()
        assert (rows(read("--sample", 9, "--seed", 4)) == x[at][sorted(order(n, 4)[:9])]).all()
        got = rows(read("--window", 5, "--seed", 4))
        assert sorted(map(tuple, got)) == sorted(map(tuple, x[at]))
        # images 10 to 24 alone
        img = at // (len(layers) * 6)
        assert (rows(read("--imgs", "10-24")) == x[at[(img >= 10) & (img < 25)]]).all()
        s = json.loads(saev_read("stats", "d", "--json", *view, *options))
        assert s["n_rows"] == n
        assert np.allclose([i["mean"] for i in s["dims"]], x[at].astype("f8").mean(0), atol=1e-12)
END
}

@test "saev-read --max-norm: rows longer than what is read at a time, and any view" {
    py - <<'END'
from saev_dump import *
for name, d, n in (("wide", 70001, 5), ("narrow", 3000, 70), ("short", 50, 400)):
    a = dump(name, d=d, n=n, p=3, cls=True, imgs_a_shard=33)
    norm = np.linalg.norm(a.astype("f8"), axis=3)
    most = np.median(norm)
    for view, tokens in (("all", slice(None)), ("cls", slice(0, 1)), ("image", slice(1, None))):
        for layer, layers in (("all", slice(None)), (13, slice(0, 1)), (-2, slice(1, 2))):
            want = a[:, layers, tokens][norm[:, layers, tokens] <= most]
            assert 0 < len(want) < n * 8
            got = saev_read(name, "--raw", "--view", view, "--layer", layer, "--max-norm", most)
            assert got == want.tobytes(), (name, view, layer)
END
}

@test "saev-read --shuffle: the external shuffle leaves out the same rows" {
    py - <<'END'
import json
from saev_dump import *
a = dump("d", layers=[0], p=100, cls=False, n=1000, d=1, imgs_a_shard=300)
ids = np.random.default_rng(2).integers(0, 10, (1000, 100)).astype("<i4")
np.save("d/ids.npy", ids)
want = a.ravel()[~np.isin(ids, (4, 7)).ravel()]
for mem in ("1M", "1G"):
    got = saev_read("d", "--raw", "--shuffle", "--seed", 3, "--mem", mem, "--skip-ids", "4,7")
    assert (np.frombuffer(got, "<f4") == want[order(len(want), 3)]).all()
END
}

@test "saev-read --rows --shuffle: the rows of the file, each once, without those that are left out" {
    text d
    PYTHONPATH=$BATS_FILE_TMPDIR py - <<'END'
from kept import *
from saev_dump import *
# padding that is named stays, as without --shuffle
at, x = kept("d")
id = np.load("d/ids.npy")[:, None].repeat(2, 1).ravel()
at = np.flatnonzero(~np.isin(id, (1, 2, 6)))
rows = np.random.default_rng(1).integers(0, 480, 200)
np.save("rows.npy", rows)
open("rows", "w").write("".join("%d\n" % r for r in rows))
for file in ("rows", "rows.npy"):
    read = lambda *o: np.frombuffer(saev_read("d", "--raw", "--rows", file, *o), "<f4").reshape(-1, 20)
    all = np.unique(rows)
    assert (read("--shuffle", "--seed", 1) == x[all][order(len(all), 1)]).all()
    some = np.intersect1d(rows, at)
    assert 10 < len(some) < len(all)
    assert (read("--shuffle", "--seed", 1, "--skip-ids", "special,6") == x[some][order(len(some), 1)]).all()
    assert (read("--sample", 8, "--seed", 1) == x[all][sorted(order(len(all), 1)[:8])]).all()
# of images 20 to 29, counted from their first row
at = np.unique(rows[rows < 120])
np.save("few.npy", at)
got = saev_read("d", "--raw", "--imgs", "20-29", "--rows", "few.npy", "--shuffle", "--seed", 1)
assert (np.frombuffer(got, "<f4").reshape(-1, 20) == x[at + 240][order(len(at), 1)]).all()
END
}

@test "saev-read: what cannot be left out is refused in one line that says why" {
    text d
    py -c "from saev_dump import *; dump('none')"
    run -65 --separate-stderr saev-read -q --skip-ids special none
    [ "$stderr" = "saev-read: none: has no ids.npy, so which tokens its rows are of is unknown (hf-infer --acts-ids FILE writes them: copy it there)" ]
    rm d/ids.npy.json
    run -65 --separate-stderr saev-read -q --skip-ids special d
    [ "$stderr" = "saev-read: d: ids.npy.json does not list special tokens (--skip-ids with their ids leaves them out)" ]
    for list in '' , 1,, 1,x -1 2147483648 99999999999 specials 1-3; do
        run -2 --separate-stderr saev-read -q --skip-ids "$list" d
        [[ ${stderr_lines[0]} == 'saev-read: --skip-ids: "'*'" is not an id or "special"' ]]
    done
    for words in '3' '--rows /dev/null'; do
        # shellcheck disable=SC2086 # words
        run -2 --separate-stderr saev-read -q --max-norm 3 d $words
        [[ ${stderr_lines[0]} == *"are not for an INDEX, nor for --rows without --shuffle"* ]]
    done
    for verb in rows "rows --shuffle" stats; do
        # shellcheck disable=SC2086 # words
        run -65 --separate-stderr saev-read ${verb/#rows/} -q --skip-positions 6 d
        [ "$stderr" = "saev-read: d: no row is left by --skip-ids, --skip-positions and --max-norm" ]
    done
    head -c 200 d/ids.npy >cut
    cp cut d/ids.npy
    run -65 --separate-stderr saev-read -q --skip-ids 1 d
    [[ $stderr == "saev-read: d/ids.npy: "* ]]
}
