# saev-read's verbs about dumps: meta.  Dumps are made by numpy
# (test/ref/saev_dump.py); what is expected comes from Python.
load helpers

# py: python3 with test/ref in its path.
py() {
    PYTHONPATH=$ROOT/test/ref "$PYTHON" "$@"
}

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
    run -65 saev-read meta -q --view image nopatch
    [ "$output" = "saev-read: nopatch/metadata.json: n_patches_per_img is 0: the view has no tokens" ]
    run -65 saev-read meta -q --layer 5 a
    run -2 saev-read meta --imgs 0 a a
    [ "${lines[0]}" = "saev-read: --imgs takes images of one DUMP" ]
    run -2 saev-read meta
    run -66 saev-read meta -q a nowhere
    run -0 --separate-stderr saev-read meta a x # another model: said, and done
    [ "${stderr_lines[-1]}" = 'saev-read: x/metadata.json: vit_ckpt is "other": "ViT-B/16" of a/metadata.json is kept' ]
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
    command -v saev-write >/dev/null || skip "no saev-write"
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
