# SPDX-License-Identifier: ISC
# saev-read's verbs about dumps: meta, verify, info, stats.  Dumps are made by numpy
# (test/ref/saev_dump.py); what is expected comes from Python.
load helpers

@test "saev-read meta: any view of any version is json.dump's bytes of what Python makes of it" {
    py - <<'END'
import json, os, subprocess
from saev_cases import CASES, OLD
NAMES = dict(model="vit_ckpt", model_family="vit_family", model_ckpt="vit_ckpt",
             family="vit_family", ckpt="vit_ckpt", n_layers="layers",
             patches_per_ex="n_patches_per_img", content_tokens_per_example="n_patches_per_img",
             d_model="d_vit", n_ex="n_imgs", n_examples="n_imgs",
             n_patches_per_shard="max_patches_per_shard", patches_per_shard="max_patches_per_shard",
             max_tokens_per_shard="max_patches_per_shard")
def own(d):
    out = {NAMES.get(k, k): v for k, v in d.items() if k != "protocol"}
    if "protocol" in d:
        del out["dtype"]
    if "n_layers" in d:
        out["layers"] = list(range(-d["n_layers"], 0))
    out.setdefault("vit_family", "")
    out.setdefault("cls_token", True)
    out.setdefault("seed", 0)
    return out
n = 0
for name, d in [*CASES.items(), *((k, v[0]) for k, v in OLD.items())]:
    os.mkdir(name)
    json.dump(d, open(name + "/metadata.json", "w"), ensure_ascii=True)
    d = own(d)
    for view in "all", "cls", "image":
        for layer in ["all", *d["layers"]]:
            e = dict(d)
            if view == "cls" and not d["cls_token"]:
                continue
            if view == "cls":
                e["n_patches_per_img"] = 0
            elif view == "image":
                e["cls_token"] = False
            if layer != "all":
                e["layers"] = [layer]
            for more in [], ["--max-patches", "1000"]:
                if more:
                    e["max_patches_per_shard"] = 1000
                got = subprocess.run(["saev-read", "meta", "-q", "--view", view, "--layer", str(layer), *more, name],
                                     check=True, capture_output=True).stdout
                assert got == json.dumps(e, indent=4).encode(), (name, view, layer, got)
                n += 1
assert n > 100
END
}

@test "saev-read, saev-write: metadata nested 64 deep are json.dump's, 65 are refused with 65" {
    py - <<'END'
import json, os, subprocess
from saev_dump import meta
def run(*args):
    return subprocess.run(args, capture_output=True)
for name, open_, close in ("arrays", '[', ']'), ("objects", '{"a":', '}'):
    for depth in 64, 65, 890:  # the document is the first level
        text = json.dumps(meta(n=0))[:-1] + ', "x": ' + open_ * (depth - 1) + ",".join("0" * 30000) * (name == "arrays") \
            + ('"%s"' % ("y" * 60000)) * (name == "objects") + close * (depth - 1) + "}"
        d = f"{name}{depth}"
        os.mkdir(d)
        with open(d + "/metadata.json", "w") as f:
            f.write(text)
        got = run("saev-read", "meta", "-q", d), run("saev-write", "-q", "-m", d + "/metadata.json", "-o", d, "/dev/null")
        if depth == 64:
            want = json.dumps(json.loads(text), indent=4).encode()
            assert got[0].returncode == got[1].returncode == 0, got
            assert got[0].stdout == want and len(want) < 256 * len(text)
            with open(got[1].stdout.decode().rstrip("\n") + "/metadata.json", "rb") as f:
                assert f.read() == want
            continue
        what = b"metadata.json: line 1, column %d: nested 65 levels deep (expected at most 64)\n" % (
            text.index('"x": ') + 6 + 63 * len(open_))
        for g in got:
            assert g.returncode == 65 and not g.stdout and g.stderr.endswith(what), g.stderr
        assert os.listdir(d) == ["metadata.json"]
END
}

@test "saev-read meta: some images and merged dumps name the HASH they are of" {
    py - <<'END'
import hashlib, json, subprocess
from saev_dump import *
def meta_of(*args):
    out = subprocess.run(["saev-read", "meta", "-q", *args], check=True, capture_output=True).stdout
    assert out == json.dumps(json.loads(out), indent=4).encode()
    return json.loads(out)
def sha(m):
    return hashlib.sha256(json.dumps(m, sort_keys=True).encode()).hexdigest()
dump("a", n=7), dump("b", n=2, seed=1)
a, b = meta(n=7), meta(n=2)
assert meta_of("--imgs", "2-4", "a") == {**a, "n_imgs": 3, "subset": {"of": sha(a), "imgs": [2, 4]}}
assert meta_of("--imgs", "0-6", "a") == a  # all are no subset
assert meta_of("a", "b", "a") == {**a, "n_imgs": 16, "merged": [sha(a), sha(b), sha(a)]}
# a subset of a subset, and one that is merged: the newest key alone
s = {**a, "subset": {"of": sha(a), "imgs": [0, 6]}}
json.dump(s, open("a/metadata.json", "w"))
assert meta_of("--imgs", "5", "a") == {**a, "n_imgs": 1, "subset": {"of": sha(s), "imgs": [5, 5]}}
assert meta_of("a", "b") == {**a, "n_imgs": 9, "merged": [sha(s), sha(b)]}
assert meta_of("--layer", "13", "a") == {**s, "layers": [13]}
# another version's HASH is that of its translation
old = {k: v for k, v in a.items() if k != "seed"} | {"dtype": "float32", "protocol": "1.1"}
json.dump(old, open("a/metadata.json", "w"))
new = {k: v for k, v in a.items() if k != "seed"} | {"seed": 0}
assert meta_of("--imgs", "0-1", "a") == {**new, "n_imgs": 2, "subset": {"of": sha(new), "imgs": [0, 1]}}
END
}

@test "saev-read meta: what cannot be merged or cut is refused with both values" {
    py -c 'from saev_dump import *
dump("a"), dump("l", layers=(13, 2)), dump("p", p=4), dump("c", cls=False, p=4), dump("d", d=6), dump("n", layers=(1,))
dump("nopatch", p=0), dump("x", vit_ckpt="other")'
    run -65 saev-read meta -q a l
    [ "$output" = "saev-read: l/metadata.json: layer 1 of the list is 2, but -2 in a/metadata.json" ]
    run -65 saev-read meta -q a n
    [ "$output" = "saev-read: n/metadata.json: the number of layers is 1, but 2 in a/metadata.json" ]
    run -65 saev-read meta -q a p
    [ "$output" = "saev-read: p/metadata.json: n_patches_per_img is 4, but 3 in a/metadata.json" ]
    run -65 saev-read meta -q p c
    [ "$output" = "saev-read: c/metadata.json: cls_token is false, but true in p/metadata.json" ]
    run -65 saev-read meta -q a d
    [ "$output" = "saev-read: d/metadata.json: d_vit is 6, but 5 in a/metadata.json" ]
    run -65 saev-read meta -q --imgs 5-7 a
    [ "$output" = "saev-read: a/metadata.json: --imgs 5-7, but n_imgs is 7" ]
    run -65 saev-read meta -q --max-patches 7 a
    [ "$output" = "saev-read: a/metadata.json: --max-patches is 7, but an image has 2 layers x 4 tokens (expected at least 8)" ]
    run -65 saev-read meta -q --layer 13 --max-patches 3 a
    [ "$output" = "saev-read: a/metadata.json: --max-patches is 3, but an image has 1 layer x 4 tokens (expected at least 4)" ]
    run -65 saev-read meta -q --view image nopatch
    [ "$output" = "saev-read: nopatch/metadata.json: n_patches_per_img is 0: the view has no tokens" ]
    run -65 saev-read meta -q --layer 5 a
    run -2 saev-read meta --imgs 0 a a
    [ "${lines[0]}" = "saev-read: --imgs takes images of one DUMP" ]
    run -2 saev-read meta
    run -66 saev-read meta -q a nowhere
    run -0 --separate-stderr saev-read meta a x # another model: said, and done
    [ "${stderr_lines[-1]}" = 'saev-read: x/metadata.json: vit_ckpt is "other": "ViT-B/16" of a/metadata.json is kept' ]
    py -c 'from saev_dump import *
dump("now", data={"arithmetic": "f32, 8 lanes"}), dump("old", data={"file": "t", "isa": "avx2"})'
    run -0 --separate-stderr saev-read meta now old # other bits, too
    [ "${stderr_lines[-1]}" = 'saev-read: old/metadata.json: has isa "avx2": arithmetic "f32, 8 lanes" of now/metadata.json is kept' ]
    run -0 --separate-stderr saev-read meta a old now old
    [[ $stderr != *"json is kept"* ]]
    run -0 --separate-stderr saev-read meta old old
    [[ $stderr != *"json is kept"* ]]
}

@test "saev-read meta: sums beyond 2^63 bytes are refused" {
    py - <<'END'
import json, os
from saev_dump import *
os.mkdir("a")
json.dump(meta(n=2**54), open("a/metadata.json", "w"))
END
    run -0 saev-read meta -q a # 2^54 images of 160 bytes
    run -65 saev-read meta -q a a a a
    [ "$output" = "saev-read: a/metadata.json: so many images are beyond 2^63 bytes" ]
}

@test "saev-read meta: its output and the rows make a dump with saev-write" {
    py -c 'from saev_dump import *; dump("a", n=7), dump("b", n=2, seed=1)'
    mkdir out
    view="--view image --layer 13"
    d=$(saev-read -q $view --raw a | saev-write -m <(saev-read -q meta $view a) -o out)
    cmp <(saev-read -q $view --raw a) <(saev-read -q --raw "$d")
    d=$(saev-read -q --raw --imgs 2-4 a | saev-write -m <(saev-read -q meta --imgs 2-4 a) -o out)
    cmp <(saev-read -q --imgs 2-4 --raw a) <(saev-read -q --raw "$d")
    d=$(saev-read -q --raw a | saev-write -m <(saev-read -q meta --max-patches 8 a) -o out)
    cmp <(saev-read -q --raw a) <(saev-read -q --raw "$d")
    [ -e "$d/acts000006.bin" ]
    d=$(cat <(saev-read -q --raw a) <(saev-read -q --raw b) | saev-write -m <(saev-read -q meta a b) -o out)
    cmp <(saev-read -q --raw a && saev-read -q --raw b) <(saev-read -q --raw "$d")
}

@test "saev-read verify: dumps of every form are sound, by sizes and by data" {
    py - <<'END'
import itertools
from saev_dump import *
for form, imgs in itertools.product(("short", "padded"), (0, 1, 6, 7)):
    dump(f"{form}{imgs}", form, n=imgs)
END
    run -0 --separate-stderr saev-read verify -v {short,padded}{0,1,6,7}
    [ -z "$output" ]
    [ "${#stderr_lines[@]}" -eq 16 ] # and 8 warnings of the order of layers
    [[ "$stderr" == *"saev-read: padded6: sound, 3 shards, 1440 bytes"* ]]
    run -0 saev-read verify -q --deep {short,padded}{0,1,6,7}
    [ -z "$output" ]
    run -0 saev-read verify -q --deep --json short7 padded0
    "$PYTHON" -c 'import json, sys
assert json.load(sys.stdin) == {"checked": 2, "bad": 0, "dumps": [
    {"dump": d, "status": 0, "problems": []} for d in ("short7", "padded0")]}' <<<"$output"
}

@test "saev-read verify: all problems of sizes and names come in one pass, neighbours on one line" {
    py -c 'from saev_dump import *
dump("d", n=31), dump("good")'
    rm d/acts00000[345].bin
    truncate -s 3 d/acts000001.bin
    truncate -s 480 d/acts000012.bin
    printf 'dump\tproblem\n' >want
    printf 'd\tacts000001.bin: 3 bytes (expected 480)
d\tacts000003.bin .. acts000005.bin: missing
d\tacts000012.bin: beyond the last shard (n_imgs is 31, 3 a shard)\n' >>want
    for deep in "" --deep; do
        run -1 --separate-stderr saev-read verify $deep d good
        diff want - <<<"$output"
    done
    touch d/acts18446744073709551615.bin # the last number of 64 bits
    printf 'd\tacts18446744073709551615.bin: beyond the last shard (n_imgs is 31, 3 a shard)\n' >>want
    run -1 --separate-stderr saev-read verify -q d
    diff want - <<<"$output"
    run -1 saev-read verify -q --json d good nowhere
    "$PYTHON" -c 'import json, sys
m = json.load(sys.stdin)
want = [x.split("\t")[1] for x in open("want").read().splitlines()[1:]]
assert (m["checked"], m["bad"]) == (3, 2), m
assert m["dumps"][0] == {"dump": "d", "status": 1, "problems": want}, m
assert m["dumps"][2]["status"] == 66' <<<"$output"
    run -66 saev-read verify -q good nowhere
    [ "${lines[1]}" = "$(printf 'nowhere\tmetadata.json: No such file or directory')" ]
    echo '{}' >good/metadata.json
    run -65 saev-read verify -q good
    [ "${lines[1]}" = "$(printf 'good\tmetadata.json: the key vit_family is missing')" ]
}

@test "saev-read verify: a FIFO in a file's place is told, and not waited for" {
    py -c 'from saev_dump import *; dump("d"), dump("v1", protocol="1.0.0")'
    mkfifo d/manifest.xxh3 v1/shards.json
    run -66 timeout 20 saev-read verify -q d
    [ "${lines[1]}" = "$(printf 'd\tmanifest.xxh3: is not a regular file')" ]
    run -1 timeout 20 saev-read verify -q v1
    [ "${lines[1]}" = "$(printf 'v1\tshards.json: is not a regular file')" ]
    rm d/metadata.json
    mkfifo d/metadata.json
    run -66 timeout 20 saev-read d
    [ "$output" = "saev-read: d/metadata.json: is not a regular file" ]
}

@test "saev-read verify: a directory named by a hash has the hash of its metadata" {
    py - <<'END'
import hashlib, json, os
from saev_dump import *
name = hashlib.sha256(json.dumps(meta(), sort_keys=True).encode()).hexdigest()
dump(name), dump("x" + "0" * 63), dump("0" * 64)
os.symlink(name, "link")
open("name", "w").write(name)
END
    name=$(cat name)
    run -0 saev-read verify -q "$name" "$name/" link "x$(printf %063d 0)"
    [ -z "$output" ]
    (cd "$name" && saev-read verify -q .)
    run -1 saev-read verify -q "$(printf %064d 0)"
    [ "${lines[1]}" = "$(printf "%064d\tmetadata.json: has the hash %s (expected the directory's name)" 0 "$name")" ]
    sed -i 's/42/43/' "$name/metadata.json"
    run -1 saev-read verify -q link
}

@test "saev-read verify: shards.json and labels.bin of later versions say what the shards are" {
    py - <<'END'
import json, os
from saev_dump import *
def later(name, entries, key="n_imgs", labels=None, form="short", n=7, protocol="1.1"):
    dump(name, form, n=n)
    m = {k: v for k, v in meta(n=n).items() if k != "seed"} | {"dtype": "float32", "protocol": protocol}
    json.dump(m, open(name + "/metadata.json", "w"))
    if entries is not None:
        json.dump([{"name": "acts%06d.bin" % i, key: x} for i, x in enumerate(entries)], open(name + "/shards.json", "w"))
    if labels is not None:
        open(name + "/labels.bin", "wb").write(bytes(labels))
later("a", [3, 3, 1], labels=21)
later("b", [3, 3, 1], "n_examples", form="padded", protocol="1.0.0", labels=3)  # labels came with 1.1
later("c", [3, 3, 0], form="padded", n=6)
later("d", [3, 4, 4], labels=20)
later("e", [3, 3])
later("f", None)
later("h", [3, 3, "x"])
END
    run -0 saev-read verify -q a b c
    [ -z "$output" ]
    run -1 saev-read verify -q d e f h
    diff - <(echo "$output") <<END
dump	problem
d	acts000001.bin: n_imgs in shards.json is 4 (expected 3)
d	acts000002.bin: n_imgs in shards.json is 4 (expected 1)
d	labels.bin: 20 bytes (expected 21)
e	shards.json: [2].n_examples is missing (expected a whole number from 0 to 9223372036854775807)
f	shards.json: missing
h	shards.json: [2].n_imgs is "x" (expected a whole number from 0 to 9223372036854775807)
END
    # whoever opens a dump that was interrupted would read zeros
    sed -i 's/n_imgs/n_examples/g; s/: 3\(.*\): 3/: 3\1: 0/' a/shards.json
    for verb in '' stats '--shuffle'; do
        run -65 saev-read -q $verb a
        [ "$output" = "saev-read: a/acts000001.bin: n_examples in shards.json is 0 (expected 3)" ]
    done
    saev-read -q b | cmp - <(saev-read -q f) # there is none to ask
}

@test "saev-read verify --deep: NaN, infinities, images of zeros and padding are counted as by numpy" {
    py - <<'END'
import json, subprocess
from saev_dump import *
rng = np.random.default_rng(5)
# images of 320, 65 600 and 1 200 000 bytes: some in a piece, pieces in an image
for k, (d, p, form) in enumerate(((10, 3, "padded"), (2050, 3, "padded"), (50000, 2, "short"))):
    name = f"d{k}"
    a = dump(name, form, d=d, p=p, n=8, seed=k)
    want = []
    for shard, n in enumerate((3, 3, 2)):
        path = f"{name}/acts{shard:06}.bin"
        x = np.fromfile(path, "<f4").reshape(-1, *a.shape[1:])
        flat = x[:n].reshape(-1)
        if shard != 1:
            where = rng.choice(flat.size, 9, replace=False)
            flat[where[:5]] = np.nan
            flat[where[5:7]] = np.inf
            flat[where[7:]] = -np.inf
            flat[where[0]:where[0] + 1].view("<u4")[:] = 0xff800001  # a signalling NaN with a sign
        if shard == 0:
            x[1] = 0
        if shard == 1:
            x[:] = 0
        bad = ~np.isfinite(x[:n])
        if bad.any():
            want.append(f"{path[3:]}: {np.isnan(x[:n]).sum()} NaN, {np.isinf(x[:n]).sum()} infinite "
                        f"(the first in image {3 * shard + np.argwhere(bad)[0][0]})")
        if shard == 0:
            want.append(f"{path[3:]}: 1 of 3 images is zeros, as in a hole (the first is image 1)")
        if shard == 1:
            want.append(f"{path[3:]}: all its images are zeros, as in a hole")
        if shard == 2 and form == "padded":
            x.reshape(-1).view("u1")[x[:n].nbytes + 7] = 1
            want.append(f"{path[3:]}: padding is not zero at byte {x[:n].nbytes + 7}")
        x.tofile(path)
    for j in "1", "2", "7":
        r = subprocess.run(["saev-read", "verify", "-q", "--deep", "--json", "-j", j, name], capture_output=True)
        assert r.returncode == 1
        got = json.loads(r.stdout)["dumps"][0]["problems"]
        assert got == want, (got, want)
END
    py -c 'from saev_dump import *
dump("extra", "padded", n=6)'
    printf x | dd of=extra/acts000002.bin bs=1 seek=479 conv=notrunc 2>/dev/null
    run -0 saev-read verify -q extra
    run -1 saev-read verify -q --deep extra
    [ "${lines[1]}" = "$(printf 'extra\tacts000002.bin: padding is not zero at byte 479')" ]
}

@test "saev-read verify: manifest.xxh3 has every shard once, --deep compares the checksums" {
    py - <<'END'
import ctypes, glob
from saev_dump import *
class Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
xxh = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
xxh.restype, xxh.argtypes = Hash, [ctypes.c_char_p, ctypes.c_size_t]
def line(path):
    h = xxh(x := open(path, "rb").read(), len(x))
    return f"{h.high:016x}{h.low:016x}  {path[2:]}\n"
for name, form, n in ("d", "short", 31), ("e", "padded", 6):
    dump(name, form, n=n, d=5000)
    open(name + "/manifest.xxh3", "w").writelines(line(p) for p in sorted(glob.glob(name + "/acts*")))
END
    if command -v xxhsum; then
        (cd d && xxhsum -q -c manifest.xxh3)
    fi
    run -0 saev-read verify -q --deep d e
    [ -z "$output" ]
    sum=$(sed -n 3p d/manifest.xxh3 | cut -c-32)
    printf x | dd of=d/acts000002.bin bs=1 seek=77 conv=notrunc 2>/dev/null
    run -0 saev-read verify -q d # sizes alone
    run -1 saev-read verify -q --deep d
    [[ "${lines[1]}" == "$(printf 'd\tacts000002.bin: has the checksum ')"*" (expected $sum)" ]]
    cp d/manifest.xxh3 keep
    sed -i -e '5,7d' -e '9p' -e 's/acts000010/acts000077/' d/manifest.xxh3
    printf 'x\n%032d  acts1.bin\n%032d *acts000003.bin\n' 0 0 >>d/manifest.xxh3
    run -1 saev-read verify -q d
    diff - <(echo "$output") <<END
dump	problem
d	acts000008.bin: more than once in manifest.xxh3
d	acts000077.bin: in manifest.xxh3, but missing
d	acts000004.bin .. acts000006.bin: not in manifest.xxh3
d	acts000010.bin: not in manifest.xxh3
d	manifest.xxh3: 3 lines are not HASH, two spaces and a shard's name (the first is line 10)
END
    : >d/manifest.xxh3
    run -1 saev-read verify -q d
    [ "${lines[1]}" = "$(printf 'd\tacts000000.bin .. acts000010.bin: not in manifest.xxh3')" ]
}

@test "saev-read verify --deep: what saev-write made is sound, in all its forms" {
    py -c 'from saev_dump import *
for n in 0, 6, 7:
    json.dump(meta(n=n), open(f"m{n}", "w")), numbers(meta(n=n)).tofile(f"x{n}")'
    mkdir out
    for n in 0 6 7; do
        for more in --manifest "--manifest --pad"; do
            d=$(saev-write -q $more -f -m m$n -o out x$n)
            [ -e "$d/manifest.xxh3" ]
            run -0 saev-read verify -q --deep "$d"
            [ -z "$output" ]
        done
    done
}

@test "saev-read verify: sizes of 1000 shards take less than a second of a CPU" {
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes longer"
    py -c 'from saev_dump import *
dump("d", n=3000)'
    "$PYTHON" - <<'END'
import resource, subprocess
subprocess.run(["saev-read", "verify", "-q", "d"], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
assert used.ru_utime + used.ru_stime < 1, used # 20 ms
END
}

@test "saev-read info: version, shape, rows, form and bytes are what Python computes" {
    py - <<'END'
import hashlib, itertools, json, os, subprocess
from saev_dump import *
from saev_cases import OLD
def info(*dumps, rc=0):
    r = subprocess.run(["saev-read", "info", "-q", "--json", *dumps], capture_output=True)
    assert r.returncode == rc, r
    return json.loads(r.stdout)
for form, n, cls in itertools.product(("short", "padded"), (0, 6, 7), (True, False)):
    name = f"{form}{n}{cls}"
    a, m = dump(name, form, n=n, cls=cls, d=6), meta(n=n, cls=cls, d=6)
    files = [os.path.getsize(f"{name}/{f}") for f in os.listdir(name) if f.startswith("acts")]
    one = {"cls": n * cls, "image": 3 * n, "all": (3 + cls) * n}
    want = {"dump": name, "protocol": "2025-06-17", "folder_hash": None,
            "hash": hashlib.sha256(json.dumps(m, sort_keys=True).encode()).hexdigest(),
            **{k: m[k] for k in m if k not in ("seed", "data")}, "tokens_per_img": 3 + cls, "imgs_per_shard": 3,
            "rows": {k: {"one": v, "all": 2 * v} for k, v in one.items()},
            "shards": -(-n // 3), "shards_found": len(files), "nbytes": a.nbytes, "nbytes_found": sum(files),
            "form": "extra" if form == "padded" and n % 3 == 0 else "full" if n % 3 == 0 else form,
            "data": json.dumps(m["data"], sort_keys=True), "problems": []}
    assert info(name) == [want], (info(name), want)
    rows = subprocess.run(["saev-read", "info", "-q", name], check=True, capture_output=True, text=True).stdout.splitlines()
    assert rows[0] == "dump\tkey\tvalue" and all(r.startswith(name + "\t") for r in rows[1:])
    got = dict(r.split("\t")[1:] for r in rows[1:])
    assert got.pop("layers") == "13,-2" and got.pop("cls_token") == str(cls).lower() and got.pop("folder_hash") == "-"
    assert {k: got.pop(k) for k in list(got) if k.startswith("rows.")} == \
        {f"rows.{k}.{j}": str(x) for k, v in want["rows"].items() for j, x in v.items()}
    assert got == {k: str(v) for k, v in want.items() if k in got} and len(got) == 16, got
# what does not fit is told, and the rest, too
os.remove("short7True/acts000001.bin")
b, g = info("short7True", "short6True", rc=1)
assert b["problems"] == ["acts000001.bin: missing"] and b["form"] == "broken" and b["shards_found"] == 2
assert b["nbytes_found"] == b["nbytes"] - 3 * 2 * 4 * 6 * 4 and g["form"] == "full"
# versions; long and strange data
for name, (m, hashed) in OLD.items():
    os.mkdir(name)
    m["data"] = "\u202e\x1b[2J" + "x" * 300
    json.dump(m, open(name + "/metadata.json", "w"))
    got, = info(name, rc=1)
    assert got["protocol"] == {"2024-11": "2025-06-09"}.get(name, name.split("-ex")[0].split("-later")[0])
    assert (got["hash"] == hashlib.sha256(json.dumps(m, sort_keys=True).encode()).hexdigest()) if hashed else got["hash"] is None
    assert got["problems"] == ["acts000000.bin .. acts000002.bin: missing"]
    assert got["data"] == json.dumps(m["data"])[:200] + "..."
    assert b"\x1b" not in subprocess.run(["saev-read", "info", "-q", name], capture_output=True).stdout
END
    run -2 saev-read info
    run -66 saev-read info -q nowhere
}

@test "saev-read verify, info, meta: what metadata claims costs neither time nor memory" {
    not_sanitized "sanitizers keep memory"
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    py - <<'END'
import json, os, resource, subprocess
from saev_dump import *
for name, kw in dict(imgs=dict(n=2**50), d=dict(d=2**40, n=2**10), p=dict(p=2**40, d=1, n=2**10)).items():
    os.mkdir(name)
    json.dump(meta(**kw), open(name + "/metadata.json", "w"))
    for args, rc in ((["verify"], 1), (["verify", "--deep"], 1), (["info"], 1), (["meta"], 0), (["meta", "--imgs", "5-900"], 0)):
        r = subprocess.run(["saev-read", *args, name], capture_output=True, timeout=60)
        assert r.returncode == rc, r
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 64 << 10  # KiB
END
}

@test "saev-read stats: every view's moments, norms and scalar are numpy's, whatever -j" {
    py - <<'END'
import itertools, json, subprocess
from saev_dump import *
others = itertools.cycle("25")
def stats(*args):
    one, other = (subprocess.run(["saev-read", "stats", "-q", "--json", "-j", j, *args], check=True, capture_output=True).stdout
                  for j in ("1", next(others)))
    assert one == other, args
    return json.loads(one)
def near(a, b, scale=1e-12):
    return np.allclose(np.array(a, float), b, rtol=scale, atol=scale * np.nanmax(np.abs(b)), equal_nan=True)
def check(s, x):
    d = s["dims"]
    assert [k["dim"] for k in d] == list(range(x.shape[1])) and s["n_rows"] == len(x)
    finite, x8 = np.isfinite(x), x.astype("f8")
    n = finite.sum(0)
    def at(v, other):
        return np.where(finite, v, other)
    with np.errstate(all="ignore"):
        mean = at(x8, 0).sum(0) / n
        std = (at(x8 - mean, 0) ** 2).sum(0) / n
    for key, want in (("mean", mean), ("std", std ** .5), ("min", at(x, np.inf).min(0)), ("max", at(x, -np.inf).max(0))):
        assert near([k[key] for k in d], np.where(n, want, np.nan)), key
    assert [k["n_nan"] for k in d] == np.isnan(x).sum(0).tolist()
    assert [k["n_inf"] for k in d] == np.isinf(x).sum(0).tolist()
    rows = x8[finite.all(1)]
    assert s["n_not_finite"] == len(x) - len(rows)
    if len(rows):
        assert near(s["mean_norm"], np.linalg.norm(rows, axis=1).mean())
        assert near(s["scalar"], np.linalg.norm(rows - mean, axis=1).mean() / x.shape[1] ** .5)
    else:
        assert s["mean_norm"] is None and s["scalar"] is None
rng = np.random.default_rng(3)
# dims of one block and of several, with tails of vectors; rows of one block, of several, of several spans
for k, (d, p, n, form) in enumerate(((5, 3, 7, "short"), (1, 90, 900, "padded"), (259, 30, 200, "padded"), (2310, 30, 40, "short"))):
    a, m = dump(f"d{k}", form, d=d, p=p, n=n, imgs_a_shard=3 + n // 3, seed=k), meta(d=d, p=p, n=n)
    a = np.ascontiguousarray(1e3 * np.cos(np.arange(d)) + a * np.exp(2 * np.sin(np.arange(d))), "<f4")
    if k == 1 or k == 3:  # NaN, infinities, a dim without a number, one that is constant
        flat = a.reshape(-1)
        flat[rng.choice(flat.size, 40, replace=False)] = np.repeat([np.nan, np.inf, -np.inf, np.nan], 10)
    if k == 3:
        a[..., 7], a[..., 9] = 0.1, np.nan
    for i, x in enumerate(np.split(a, range(3 + n // 3, n, 3 + n // 3))):
        with open(f"d{k}/acts{i:06}.bin", "r+b") as f:
            f.write(x.tobytes())
    views, layers = ("cls", "image", "all"), ("13", "-2", "all")
    for view, layer in zip(views, layers) if k % 2 else itertools.product(views, layers):
        s = stats("--view", view, "--layer", layer, f"d{k}")
        check(s, rows(a, m, view, layer))
        assert (s["view"], s["layer"]) == (view, layer if layer == "all" else int(layer))
    if k == 3:
        assert s["dims"][7]["std"] == 0 and s["dims"][7]["mean"] == float(np.float32(0.1))
        assert s["dims"][9]["mean"] is None and s["dims"][9]["n_nan"] > 2000
    check(stats("--imgs", "2-5", f"d{k}"), rows(a[2:6], m, "all", "all"))
    tsv = subprocess.run(["saev-read", "stats", "-q", "--layer", "13", f"d{k}"], check=True, capture_output=True, text=True).stdout
    head, *lines = tsv.splitlines()
    s = stats("--layer", "13", f"d{k}")["dims"]
    assert head == "dim\tmean\tstd\tmin\tmax\tnan\tinf"
    for line, want in zip(lines, s, strict=True):
        got = line.split("\t")
        assert [int(got[0]), int(got[5]), int(got[6])] == [want[x] for x in ("dim", "n_nan", "n_inf")]
        assert got[1:5] == ["nan" if want[x] is None else "%.6g" % want[x] for x in ("mean", "std", "min", "max")]
END
}

@test "saev-read stats: no rows give no numbers; a line sums up; what cannot be is refused" {
    py -c 'from saev_dump import *
dump("none", n=0), dump("d", d=4), dump("nocls", cls=False), dump("cls", p=0)
import json, os
for name, d in ("long", 2**19 + 1), ("longest", 2**40):
    dump(name, d=1, n=0)
    json.dump(meta(d=d, n=0), open(name + "/metadata.json", "w"))'
    run -0 saev-read stats -q none
    [ "${#lines[@]}" -eq 6 ]
    [ "${lines[5]}" = "$(printf '4\tnan\tnan\tnan\tnan\t0\t0')" ]
    run -0 saev-read stats -q --view image cls
    [ "${lines[5]}" = "$(printf '4\tnan\tnan\tnan\tnan\t0\t0')" ]
    run -0 --separate-stderr saev-read stats -v d
    [[ "${stderr_lines[-1]}" =~ ^saev-read:\ d:\ 56\ rows\ x\ 4\ dims,\ 0\ rows\ not\ finite,\ mean\ norm\ [0-9.]+,\ scalar\ [0-9.]+,\ two\ passes\ in\ [0-9.]+\ s,\ [0-9.]+\ GB/s\ each$ ]]
    run -65 saev-read stats -q long
    [ "$output" = "saev-read: long/metadata.json: d_vit is 524289 (stats takes at most 524288)" ]
    run -65 saev-read stats -q longest
    run -65 saev-read stats -q --view cls nocls
    run -65 saev-read stats -q --layer 7 d
    run -2 saev-read stats d d
    [ "${lines[0]}" = "saev-read: stats: one DUMP is expected" ]
}

# bats test_tags=long
@test "saev-read stats: memory stays under 64 MiB at the most dims and at one" {
    not_sanitized "sanitizers keep memory"
    [ -z "${TU_RUN:-}" ] || skip "an emulator takes more itself"
    py - <<'END'
import resource, subprocess
from saev_dump import *
dump("d", d=2**19, n=2, p=0, layers=(1,))
dump("e", d=1, n=2**16, p=15, layers=(1,), imgs_a_shard=1000)
for name in "de":
    subprocess.run(["saev-read", "stats", "-q", "-j", "4", name], check=True, stdout=subprocess.DEVNULL)
assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 64 << 10  # KiB
END
}

@test "saev-read stats --svg: a picture that is well-formed and names the outliers" {
    py - <<'END'
import json, os, subprocess
import xml.dom.minidom as dom
from saev_dump import *
def draw(name, *more):
    subprocess.run(["saev-read", "stats", "-qf", "--svg", "p.svg", *more, name], check=True, stdout=subprocess.DEVNULL)
    d = dom.parse("p.svg")
    text = [t.firstChild.data for t in d.getElementsByTagName("text")]
    points = [[float(v) for v in p.split(",")] for l in d.getElementsByTagName("polyline") for p in l.getAttribute("points").split()]
    return text, points
name = "<&\">\n\u202e"
a = dump(name, d=300, n=20)
a[..., 17] *= 50
a[..., 133] *= 9
a[..., 5] = 2
a.tofile(name + "/all")
for i, x in enumerate(np.split(a, range(3, 20, 3))):
    x.tofile(f"{name}/acts{i:06}.bin")
text, points = draw(name, "--layer", "13", "--view", "image")
std = a[:, 0, 1:].reshape(-1, 300).astype("f8").std(0)
assert text[0] == "<&\">\\n\\u{202e}: std of 300 dims, view image, layer 13", text[0]
assert f"dim 17: {std[17]:.4g}" in text and f"dim 133: {std[133]:.4g}" in text
assert sum(t.startswith("dim ") for t in text) == 2
assert f"median {np.median(std[std > 0]):.4g}; 1 dim with std 0, 0 without numbers" in text
assert len(points) == 299
y = np.array(points)
assert (np.diff(y[:, 0]) > 0).all() and (np.diff(y[:, 1]) >= 0).all()
want = np.log10(np.sort(std[std > 0])[::-1])  # a log scale: heights and logarithms lie on a line
fit = np.polyfit(want, y[:, 1], 1)
assert abs(np.polyval(fit, want) - y[:, 1]).max() < 0.1
dump("none", n=0)
text, points = draw("none")
assert not points and "median 0; 0 dims with std 0, 5 without numbers" in text
name = "x" * 40 + "\u00e4" * 40
dump(name, d=5000, n=5)
text, points = draw(name)
assert text[0].startswith("...") and name.endswith(text[0][3:].split(": std of 5000 dims")[0]) and len(text[0]) > 70
assert 500 < len(points) <= 1120
END
    "$PYTHON" "$ROOT/test/ref/svg.py" p.svg 1
    run -73 saev-read stats -q --svg p.svg none
    [ "$output" = "saev-read: p.svg: exists already (--force replaces it)" ]
    run -2 saev-read stats --svg - none
    run -2 saev-read stats -q -f --svg both -o both none
    [ "${lines[0]}" = "saev-read: both: would be two outputs of this command" ]
    [ ! -e both ]
    saev-read stats -q --svg - -o table none | grep -q '^</svg>$'
    [ "$(wc -l <table)" -eq 6 ]
}
