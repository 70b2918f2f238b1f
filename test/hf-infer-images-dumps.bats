# SPDX-License-Identifier: ISC
# hf-infer --images: from pictures to dumps, SAEs and their users, as typed; and
# what a run leaves that does not come to its end.
load helpers

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    py - <<'END'
import vision_models as vm
vm.pictures("pictures")
for name in "clip", "dinov2:swiglu", "dinov3_vit", "siglip", "vit":
    vm.make(name, name.partition(":")[0])
for name, n in ("clip", 23), ("dinov2_with_registers", 12):
    vm.SIZES.update(num_hidden_layers=n, hidden_size=16)
    vm.make(name, "deep-" + name[:4])
END
    # so that a run takes long enough to be stopped
    yes pictures/a/type2-08.png | sed 20000q >many
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    ln -s "$BATS_FILE_TMPDIR"/* .
}

# python LINES: what they print.  rows() is the reference's [image, layer, token,
# dim] of pictures, dump() reads one by SAEV's own formula.
python() {
    py -c "import json, os, sys, numpy as np, vision_ref as ref, vision_pixels as vp
def order(root):
    return [os.path.join(root, r[2]) for r in vp.image_folder(root)]
def rows(model, files, point, layers, cls=True):
    m = ref.Model(model)
    seen = [ref.forward(m, x) for x in ref.pixels_of(model, files)]
    a = np.array([[x['%s:%d' % (point, i)] for i in layers] for x in seen])
    return np.concatenate([a[:, :, :int(cls)], a[:, :, m.cls + m.n_registers:]], 2)
def dump(path):
    m = json.load(open(path + '/metadata.json'))
    n_layers, tokens = len(m['layers']), m['n_patches_per_img'] + m['cls_token']
    per_shard = m['max_patches_per_shard'] // tokens // n_layers
    def image(i, layer, token):
        shard = np.memmap('%s/acts%06d.bin' % (path, i // per_shard), '<f4', 'r').reshape(
            -1, n_layers, tokens, m['d_vit'])
        return shard[i % per_shard, m['layers'].index(layer), token]
    return np.array([[[image(i, l, t) for t in range(tokens)] for l in m['layers']]
                     for i in range(m['n_imgs'])])
$1"
}

@test "hf-infer --images: the command lines of the page do as it says" {
    ln -s deep-clip CLIP
    ln -s deep-dino DINO
    ln -s siglip SIGLIP
    ln -s vit VIT
    ln -s pictures DIR
    mkdir photos
    cp pictures/[aZc]/*.jpg photos/
    cp pictures/top.png one.png
    tar -C pictures -cf shard-000001.tar a/type2-08.png Z/labels.csv a-b/strip.PNG top.png c/d/e/type0-16.png
    hf-infer CLIP --images DIR --acts resid:11 --acts-meta meta.json | saev-write -m meta.json -o acts
    mv acts dir
    hf-infer DINO --images DIR --acts resid:5,11 --acts-meta m.json --acts-images rows.tsv -o acts.f32
    find photos -name '*.jpg' | sort | hf-infer SIGLIP --images - --features f.npy
    rm m.json
    hf-infer CLIP --images shard-000001.tar --skip-bad --acts resid:22 --no-cls --acts-meta m.json | saev-write -m m.json -o acts
    hf-infer VIT --images one.png --pixels p.npy
    saev-read verify dir/* acts/*
    python '
import glob
(a,), (b,) = glob.glob("dir/*"), glob.glob("acts/*")
files = order("DIR")
assert ref.check(rows("CLIP", files, "resid", [11]), dump(a))
want = rows("DINO", files, "resid", [5, 11])
assert ref.check(want, "acts.f32")
assert len(open("rows.tsv").readlines()) == 1 + len(files) == 28
photos = sorted("photos/" + f for f in os.listdir("photos"))
m = ref.Model("SIGLIP")
assert len(photos) == 3 and ref.check(ref.rows(m, ref.pixels_of("SIGLIP", photos), "features"), "f.npy")
tar = [data for _, name, data in vp.tar_images("shard-000001.tar")]
assert len(tar) == 4 and ref.check(rows("CLIP", tar, "resid", [22], False), dump(b))
assert ref.check(ref.pixels_of("VIT", ["one.png"]), "p.npy", 2e-5)
'
}

@test "hf-infer --images: dumps in shards are the reference's by SAEV's own formula, and saev-read's views" {
    hf-infer dinov3_vit --images pictures/a --acts resid:2,-1,0 -o a.npy --acts-meta m.json -q
    sed -i 's/2400000/400/' m.json # 5 images of 3 x 26 rows
    saev-write -q -m m.json -o d a.npy
    [ "$(ls d/*/acts*.bin | wc -l)" -eq 3 ]
    saev-read verify d/*
    saev-read --raw --view cls --layer 0 d/* >cls.f32
    saev-read --raw --view image --layer 2 d/* >patches.f32
    python '
import glob
(path,) = glob.glob("d/*")
got, want = dump(path), rows("dinov3_vit", order("pictures/a"), "resid", [2, -1, 0])
assert got.shape == (13, 3, 26, 48) and ref.check(want, got)
assert (np.load("a.npy") == got).all()
assert (np.fromfile("cls.f32", "<f4") == got[:, 2, 0].ravel()).all()
assert (np.fromfile("patches.f32", "<f4") == got[:, 0, 1:].ravel()).all()
'
}

@test "hf-infer --images: the same bytes by any instruction set, threads and batch; bf16 is near" {
    isas_here
    for m in clip dinov2 dinov3_vit siglip vit; do
        for isa in $ISAS; do
            TU_ISA=$isa hf-infer $m --images pictures/a-b --acts resid:all -q -j 1 --features f.npy -f >got
            cat f.npy >>got
            [ -e $m.all ] || mv got $m.all
            [ ! -e got ] || cmp got $m.all
        done
    done
    hf-infer clip --images pictures/a-b --acts resid:2 -q --compute bf16 >near
    hf-infer clip --images pictures/a-b --acts resid:2 -q >exact
    python '
a, b = np.fromfile("near", "<f4"), np.fromfile("exact", "<f4")
off = np.linalg.norm(a - b) / np.linalg.norm(b)
assert 1e-4 < off < 0.03, off
'
}

@test "hf-infer --images: an image's row is the same among others and alone" {
    hf-infer dinov2 --images pictures/a --acts resid:all -q >all
    sed 1d <(hf-infer dinov2 --images pictures/a --features f.npy --acts-images /dev/stdout -q) | cut -f 4 >list
    while read -r file; do
        hf-infer dinov2 --images "$file" --acts resid:all -q
    done <list | cmp all
}

@test "hf-infer --images: memory is that of a batch, not of all images" {
    not_sanitized "it has its own memory"
    head -n 20 many >few
    head -n 1500 many >more
    few=$(peak hf-infer vit --images few --acts resid:0 -q)
    more=$(peak hf-infer vit --images more --acts resid:0 -q)
    [ "$more" -lt $((few + 4096)) ]
}

@test "hf-infer --images | sae-train: an SAE of images knows its hook from the dump's metadata" {
    hf-infer clip --images pictures --acts mlp:1 --acts-meta m.json -q | saev-write -q -m m.json -o d
    sae-train -q --latents 64 -k 4 --batch 64 -n 5 -o sae d/*
    grep -q '"hook": "encoder.layers.1.mlp"' sae/cfg.json
    sae-look scan -q -s sae -o looked d/*
    run -65 --separate-stderr sae-train -q --latents 64 -k 4 -n 5 -o other --hook layers.1 d/*
    [[ $stderr == "sae-train: d/"*": is of encoder.layers.1.mlp, not of layers.1" ]]
}

@test "hf-infer --images: a run that is stopped leaves nothing, and one that is killed nothing by its name" {
    mkdir out
    for sig in TERM KILL; do
        hf-infer vit --images many --acts resid:all -o out/x --acts-meta out/m --features out/f --pixels out/p \
            --acts-images out/t -q 2>err &
        for _ in $(seq 500); do
            [ "$(ls -A out | wc -l)" -lt 5 ] || break
            sleep 0.01
        done
        [ "$(ls -A out | wc -l)" -ge 5 ]
        kill -$sig $!
        wait $! || status=$?
        [ -z "$(ls out)" ]
        if [ $sig = TERM ]; then
            [ "$status" -eq 75 ]
            [ -z "$(ls -A out)" ]
            [ "$(cat err)" = "hf-infer: stopped by SIGTERM: run it again" ]
        fi
    done
}

@test "hf-infer --images: a full disk is 74 and leaves nothing; a reader that goes away ends the run" {
    hf-infer vit --images many --acts resid:all -q --acts-meta m.json | head -c 4096 >/dev/null
    [ "${PIPESTATUS[0]}" -eq 141 ]
    for o in '--acts resid:0' '--acts resid:0 -o /dev/full' '--features f.npy --acts-images /dev/full'; do
        # shellcheck disable=SC2086
        run -74 --separate-stderr bash -c "hf-infer vit --images pictures -q $o >/dev/full"
        [ "${#stderr_lines[@]}" -eq 1 ]
        [ ! -e f.npy ]
    done
    small_disk 100k
    for o in '--acts resid:all -o disk/x' '--pixels disk/p.npy' '--features f.npy --pixels disk/x --acts-images disk/t'; do
        # shellcheck disable=SC2086
        run -74 --separate-stderr hf-infer vit --images many $o -q
        [[ ${#stderr_lines[@]} -eq 1 && $stderr == "hf-infer: disk/"*"No space left on device" ]]
        [ -z "$(ls -A disk)" ]
        [ ! -e f.npy ]
    done
}
