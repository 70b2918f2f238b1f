# SPDX-License-Identifier: ISC
# saev-read DUMP INDEX...: rows by number and place, against numpy's indexing.
load helpers

@test "saev-read INDEX: rows, ranges and places in the order asked, twice if asked twice" {
    py - <<'END'
import io, subprocess, numpy as np
from saev_dump import *
def read(*run):
    return np.load(io.BytesIO(subprocess.run(["saev-read", "-q", *run], check=True, capture_output=True).stdout))
for form in "short", "padded":
    a, m = dump(form, form, n=25, d=6), meta(n=25, d=6)
    x = rows(a, m, "cls", "-2")
    assert np.array_equal(read("--view", "cls", "--layer", "-2", form, "0", "5", "17-20"), x[[0, 5, 17, 18, 19, 20]])
    x = rows(a, m, "all", "all")
    assert np.array_equal(read(form, "199", "0", "7-9", "7-9", "0"), x[[199, 0, 7, 8, 9, 7, 8, 9, 0]])
    # by place: image 24, layer -2, patch 2 is token 3
    want = np.stack([a[24, 1, 3], a[0, 0, 0], a[3, 1, 0], a[3, 0, 1]])
    assert np.array_equal(read(form, "24:-2:2", "0:13:-1", "3:-2:-1", "3:13:0"), want)
    # rows count from the first image of --imgs; places are the dump's own
    want = np.stack([a[9, 1, 1], a[11, 1, 3], a[10, 1, 2]])
    assert np.array_equal(read("--view", "image", "--layer", "-2", "--imgs", "9-11", form, "0", "8", "10:-2:1"), want)
END
}

@test "saev-read --rows: text, .npy of any integers, standard input, a pipe" {
    py - <<'END'
import io, os, subprocess, numpy as np
from saev_dump import *
def read(*run, **kw):
    return np.load(io.BytesIO(subprocess.run(["saev-read", "-q", *run], check=True, capture_output=True, **kw).stdout))
a, m = dump("d", n=25), meta(n=25)
x = rows(a, m, "image", "all")
text = b"3\n\n 140-149\r\n3:13:0\n0\n149"
open("list", "wb").write(text)
want = x[[3, *range(140, 150), 18, 0, 149]] # image 3 begins at row 3 * 2 * 3
assert np.array_equal(read("--view", "image", "--rows", "list", "d"), want)
assert np.array_equal(read("--view", "image", "--rows", "-", "d", input=text), want)
assert np.array_equal(read("--view", "image", "--rows", "list", "d", "5", "8-9"), np.concatenate([x[[5, 8, 9]], want]))
os.mkfifo("fifo")
p = subprocess.Popen("cat list >fifo", shell=True)
assert np.array_equal(read("--view", "image", "--rows", "fifo", "d"), want)
p.wait()
i = np.random.default_rng(3).integers(0, 128, 1000)
for t in "u1 i1 u2 i2 u4 i4 u8 i8".split():
    np.save("i.npy", i.astype("<" + t))
    assert np.array_equal(read("--view", "image", "--rows", "i.npy", "d"), x[i]), t
assert np.array_equal(read("--view", "image", "--rows", "-", "d", stdin=open("i.npy")), x[i])
np.save("none.npy", i[:0])
assert read("--rows", "none.npy", "d").shape == (0, 5)
assert read("--rows", "/dev/null", "d").shape == (0, 5)
np.save("f.npy", i * 0.5)
np.save("minus.npy", np.int64([3, -1]))
np.save("big.npy", np.uint64([3, 2 ** 63]))
np.save("cut.npy", i)
os.truncate("cut.npy", 200)
with open("more.npy", "wb") as f:
    np.save(f, i)
    np.save(f, i)
END
    run -65 saev-read -q --rows f.npy d
    [ "$output" = "saev-read: f.npy: is F64 (expected integers)" ]
    run -65 saev-read -q --rows minus.npy d
    [ "$output" = "saev-read: minus.npy: element 2: d: index -1, but the view has 200 rows" ]
    run -65 saev-read -q --rows big.npy d
    [ "$output" = "saev-read: big.npy: element 2: d: index 9223372036854775808, but the view has 200 rows" ]
    run -65 saev-read -q --rows cut.npy d
    [ "$output" = "saev-read: cut.npy: has 72 bytes of data (expected 8000 by its header)" ]
    run -65 saev-read -q --rows more.npy d
    [ "$output" = "saev-read: more.npy: has 16128 bytes of data (expected 8000 by its header)" ]
    run -66 saev-read -q --rows nowhere d
}

@test "saev-read INDEX: what is not there is named, and nothing is written" {
    py -c 'from saev_dump import *; dump("d", n=7)'
    fails() { # STATUS MESSAGE ARGUMENT...
        run "-$1" --separate-stderr saev-read -q "${@:3}"
        [ -z "$output" ] || return 1
        [ "${stderr_lines[0]}" = "saev-read: $2" ] || { echo "$stderr" && return 1; }
    }
    fails 65 'd: index 56, but the view has 56 rows' d 0 56
    fails 65 'd: index 7, but the view has 7 rows' --view cls --layer 13 d 5-7
    fails 65 'd: image:layer:patch 7:13:0 is not among the view'"'"'s 56 rows' d 7:13:0
    fails 65 'd: image:layer:patch 0:13:3 is not among the view'"'"'s 56 rows' d 0:13:3
    fails 65 'd: image:layer:patch 0:13:9223372036854775807 is not among the view'"'"'s 56 rows' d 0:13:9223372036854775807
    fails 65 'd: image:layer:patch 9223372036854775807:13:0 is not among the view'"'"'s 56 rows' d 9223372036854775807:13:0
    fails 65 'd: image:layer:patch 0:12:0 is not among the view'"'"'s 56 rows' d 0:12:0
    fails 65 'd: image:layer:patch -1:13:0 is not among the view'"'"'s 56 rows' -- d -1:13:0
    fails 65 'd: image:layer:patch 0:13:-1 is not among the view'"'"'s 42 rows' --view image d 0:13:-1
    fails 65 'd: image:layer:patch 0:13:0 is not among the view'"'"'s 28 rows' --layer -2 d 0:13:0
    fails 65 'd: image:layer:patch 2:13:0 is not among the view'"'"'s 16 rows' --imgs 3-4 d 2:13:0
    fails 2 '"3-1" is not INDEX, A-B or IMG:LAYER:PATCH' d 3-1
    fails 2 '"1:2" is not IMG:LAYER:PATCH' d 1:2
    fails 2 '"1:2:3:4" is not IMG:LAYER:PATCH' d 1:2:3:4
    fails 2 '"1:2:" is not IMG:LAYER:PATCH' d 1:2:
    fails 2 '"99999999999999999999" is not INDEX, A-B or IMG:LAYER:PATCH' d 99999999999999999999
    printf '1\n\n2 3\n' >list
    fails 65 'list: line 3: "2 3" is not INDEX, A-B or IMG:LAYER:PATCH' --rows list d
    printf '1\n\n56' >list
    fails 65 'list: line 3: d: index 56, but the view has 56 rows' --rows list d
    printf '0\0005\0007\000' >list # what find -print0 and the like write
    fails 65 'list: line 1: "0" is followed by a NUL byte' --rows list d
    printf '0\n5\000\n' >list
    fails 65 'list: line 2: "5" is followed by a NUL byte' --rows list d
}

@test "saev-read --index: where each row lies, as numpy finds it" {
    py - <<'END'
import json, subprocess, numpy as np
from saev_dump import *
def run(*a):
    return subprocess.run(["saev-read", "-q", "--index", *a], check=True, capture_output=True, text=True).stdout
for cls in True, False:
    d = f"d{cls:d}"
    a, m = dump(d, n=7, cls=cls), meta(n=7, cls=cls)
    L, T, D = a.shape[1:]
    for view in ("cls", "image", "all") if cls else ("image", "all"):
        for layer in "13", "-2", "all":
            at = rows(np.arange(a.size // D, dtype="<i8").reshape(7, L, T, 1), m, view, layer)[:, 0]
            img, l, token = np.unravel_index(at, (7, L, T))
            want = np.stack([img, np.int64([13, -2])[l], token - cls, token, img // 3,
                             (at - img // 3 * 3 * L * T) * D * 4], 1)
            names = ["img", "layer", "patch", "token", "shard", "offset"]
            lines = [s.split("\t") for s in run("--view", view, "--layer", layer, d).splitlines()]
            assert lines[0] == names and np.array_equal(np.int64(lines[1:]), want), (view, layer)
            pick = [len(at) - 1, 0, 3, 4, 5, 0]
            j = json.loads(run("--json", "--view", view, "--layer", layer, d, str(pick[0]), "0", "3-5", "0"))
            assert j["path"] == d and j["n_rows"] == len(at)
            assert [list(r) for r in j["rows"]] == [names] * 6
            assert np.array_equal([list(r.values()) for r in j["rows"]], want[pick])
END
    for more in --raw --direct "--batch 3" "--dtype f16"; do
        # shellcheck disable=SC2086
        run -2 saev-read --index $more d1
        [ "${lines[0]}" = "saev-read: --index prints no numbers: --raw, --dtype, --batch and --direct need them" ]
    done
    run -2 saev-read --json d1
    [ "${lines[0]}" = "saev-read: --json of rows needs --index" ]
}

@test "saev-read --rows: 200000 rows of many shards, any number of threads" {
    py - <<'END'
import subprocess, numpy as np
from saev_dump import *
kw = dict(n=700, d=33, p=9, imgs_a_shard=3)
a, m = dump("d", **kw), meta(**kw)
x = rows(a, m, "image", "-2")
i = np.random.default_rng(1).integers(0, len(x), 200000)
np.save("i.npy", i)
for more in [], ["-j", "1"], ["-j", "7"], ["--direct"], ["--batch", "1000000", "-j", "2"]:
    got = subprocess.run(["saev-read", "-q", "--view", "image", "--layer", "-2", "--rows", "i.npy",
                          *more, "d"], check=True, capture_output=True).stdout
    assert got[128:] == x[i].tobytes(), more
END
}

@test "saev-read: rows longer than a buffer, and views without rows" {
    py - <<'END'
import io, subprocess, numpy as np
from saev_dump import *
def read(*run):
    return np.load(io.BytesIO(subprocess.run(["saev-read", "-q", *run], check=True, capture_output=True).stdout))
kw = dict(n=3, d=700001, p=1, imgs_a_shard=2) # 2.8 MB a row
a, m = dump("wide", **kw), meta(**kw)
x = rows(a, m, "all", "all")
for more in [], ["--direct"], ["-j", "1"]:
    assert np.array_equal(read(*more, "wide"), x), more
    assert np.array_equal(read(*more, "wide", "11", "3-5", "11", "0"), x[[11, 3, 4, 5, 11, 0]]), more
    assert np.array_equal(read(*more, "--dtype", "f16", "wide", "7"), x[7:8].astype("<f2")), more
a = dump("cls", n=7, p=0)
assert read("--view", "image", "cls").shape == (0, 5)
assert read("--view", "image", "--imgs", "2-3", "cls").shape == (0, 5)
assert np.array_equal(read("--view", "cls", "--layer", "-2", "cls", "6", "0"), a[[6, 0], 1, 0])
END
    run -65 saev-read -q --view image cls 0
    [ "$output" = "saev-read: cls: index 0, but the view has 0 rows" ]
    [ "$(saev-read -q --view image --index cls | wc -l)" -eq 1 ]
}

@test "saev-read info: a name mistyped is told before the others' answers" {
    py -c 'from saev_dump import *
dump("d", n=2)'
    run -66 saev-read info d nothing
    [ "$output" = "saev-read: nothing: No such file or directory" ]
}
