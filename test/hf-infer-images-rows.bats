# SPDX-License-Identifier: ISC
# hf-infer --images: sources, rows, outputs and what is refused.  Values of the
# encoders are those of test/ref/vision_ref.py.
load helpers

ref() {
    "$PYTHON" -W ignore "$ROOT/test/ref/vision_ref.py" "$@"
}

# npy EXPRESSION: prints it; l() loads a .npy, j() a JSON file.
npy() {
    "$PYTHON" -c "import json, numpy as np
l = np.load
j = lambda p: json.load(open(p))
print($1)"
}

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    for m in clip dinov3_vit vit; do ref make "$m" "$m"; done
    ref pictures pics
    # a list of the same images, as a person would write it
    ref order pics | sed 's/.*\t/pics\//' >list
    tar -cf pics.tar --no-recursion -T list
}

setup() {
    cd "$BATS_TEST_TMPDIR" || return
    for f in "$BATS_FILE_TMPDIR"/{clip,dinov3_vit,vit,pics,list,pics.tar}; do ln -s "$f" .; done
}

# one_line STATUS MESSAGE COMMAND...: says just that.
one_line() {
    local status_wanted=$1 message=$2
    shift 2
    run --separate-stderr "$@"
    [ "$status" = "$status_wanted" ] && [ -z "$output" ] &&
        [ "${stderr_lines[0]}" = "hf-infer: $message" ] || {
        echo "$status: $stderr, not $message"
        return 1
    }
}

@test "hf-infer --images --no-cls: the same rows without token 0" {
    hf-infer dinov3_vit --images pics --acts resid:0,1 -o a.npy -q
    hf-infer dinov3_vit --images pics --acts resid:0,1 --no-cls -o b.npy -q --acts-meta m.json
    [ "$(npy "(l('a.npy')[:, :, 1:] == l('b.npy')).all(), l('b.npy').shape[2] == j('m.json')['n_patches_per_img'],
        j('m.json')['cls_token']")" = "True True False" ]
}

@test "hf-infer --images: the same bytes for any -j and --batch" {
    hf-infer vit --images pics --acts resid:all --features f1 --pixels p1 -q -j 1 --batch 1 >a1
    for o in "-j 2" "-j 5 --batch 7" "-j 3 --batch 1024"; do
        # shellcheck disable=SC2086 # words
        hf-infer vit --images pics --acts resid:all --features f2 --pixels p2 -q -f $o | cmp a1 -
        cmp f1 f2
        cmp p1 p2
    done
}

# bats test_tags=long
@test "hf-infer --images: images that are ready wait for one that takes long" {
    "$PYTHON" -c "from PIL import Image
import numpy as np
Image.fromarray(np.random.default_rng(1).integers(0, 256, (4000, 4000, 3), np.uint8)).save('slow.png')"
    { echo slow.png; yes pics/top.png | head -n 60; echo slow.png; } >l
    hf-infer clip --images l --pixels one.npy -j 1 --batch 1
    timeout 60 hf-infer clip --images l --pixels many.npy -j 4 --batch 2
    cmp one.npy many.npy
}

@test "hf-infer --images: a broken image ends the run with its name, and nothing is there" {
    mkdir -p bad/a
    cp pics/top.png bad/a/1.png
    head -c 60 pics/top.png >bad/a/2.png
    echo text >bad/a/3.gif
    echo text >bad/a/4.webp
    for o in "--acts resid:0 -o x" "--features x" "--pixels x --acts-images y"; do
        # shellcheck disable=SC2086 # words
        run -65 --separate-stderr hf-infer clip --images bad $o
        [ "${#stderr_lines[@]}" = 1 ]
        [[ $stderr == "hf-infer: bad: a/2.png: broken PNG: "* ]]
        [ ! -e x ] && [ ! -e y ]
    done
    printf 'bad/a/1.png\nnot-there.png\n' >l
    one_line 65 "l: not-there.png: No such file or directory" hf-infer clip --images l --features x
    rm bad/a/2.png
    one_line 65 "bad: a/4.webp: neither a PNG nor a JPEG" hf-infer clip --images bad --features x
    one_line 65 "bad: a/1.png: 48 x 48 = 2304 pixels (at most 2303: --max-pixels)" \
        hf-infer clip --images bad --max-pixels 2303 --features x
    rm bad/a/1.png
    run -65 --separate-stderr hf-infer clip --images bad --skip-bad --features x
    [ "${stderr_lines[0]}" = "hf-infer: bad: a/4.webp: neither a PNG nor a JPEG: skipped" ]
    [ "${stderr_lines[1]}" = "hf-infer: bad: no image is left, as 1 is broken" ]
    [ ! -e x ]
}

@test "hf-infer --images: metadata before the first row of a pipe, a dump that saev-write takes" {
    hf-infer clip --images pics --acts resid:1 --acts-meta m.json -q | saev-write -m m.json -o acts
    saev-read verify acts/*
    hf-infer clip --images pics --acts resid:1 -q | cmp - acts/*/acts000000.bin
    [ "$(npy "[j('m.json')[k] for k in ('vit_family', 'vit_ckpt', 'layers', 'n_patches_per_img', 'cls_token', 'd_vit', 'seed', 'n_imgs', 'max_patches_per_shard')]")" = \
        "['clip', 'clip', [1], 16, True, 48, 0, $(wc -l <list), 2400000]" ]
    [ "$(npy "[j('m.json')['data'][k] for k in ('point', 'images')] + sorted(set(j('m.json')['data']) - {'point', 'images'})")" = \
        "['resid', 'pics', 'arithmetic', 'images_xxh3', 'model_xxh3', 'pixels']" ]
    # an archive's are not counted beforehand, nor those that may be skipped
    hf-infer clip --images pics.tar --acts resid:1 --acts-meta t.json -q | saev-write -m t.json -o tar
    cmp tar/*/acts000000.bin acts/*/acts000000.bin
    hf-infer clip --images pics --skip-bad --acts resid:1 --acts-meta s.json -q >s
    [ "$(npy "'n_imgs' in j('t.json'), 'images_xxh3' in j('t.json')['data'], 'n_imgs' in j('s.json'), 'skipped' in j('s.json')['data']")" = "False False False False" ]
    hf-infer clip --images pics.tar --acts resid:1 --acts-meta o.json -q -o t.f32
    hf-infer clip --images list --acts resid:1 --acts-meta l.json -q >l.f32
    [ "$(npy "j('o.json')['n_imgs'] == j('l.json')['n_imgs'], j('o.json')['data']['images_xxh3'] == j('l.json')['data']['images_xxh3']")" = "True True" ]
}

@test "hf-infer --images: a pipe that a broken image ends is no dump, even of an archive" {
    mkdir t
    cp pics/a/b/type6-16.png t/1.png
    head -c 60 t/1.png >t/2.png
    tar -cf bad.tar -C t 1.png 2.png
    # 1.png has more bytes than a buffer: they are in the pipe when 2.png is found
    status=0
    hf-infer clip --images bad.tar --image-size 512 --batch 1 --acts resid:1 --acts-meta m.json 2>err |
        saev-write -m m.json -o D 2>err2 || status=$?
    [ $status = 65 ]
    grep -q '^hf-infer: bad.tar: 2.png: broken PNG' err
    [ -s m.json ] # saev-write(1) may read it after that
    n=$((4097 * 48 * 4))
    [ "$(cat err2)" = "saev-write: standard input: ended after $((n - 4)) bytes, in the middle of image 0 (an image has $n)" ]
    [ -z "$(ls -A D)" ]
}

@test "hf-infer --hash-images: another picture of the same size is another dump" {
    mkdir d
    cat pics/top.png - >d/1.png <<<first
    for k in 1 2; do
        hf-infer clip --images d --acts resid:0 --acts-meta m$k.json -q >a
        hf-infer clip --images d --acts resid:0 --hash-images --acts-meta h$k.json -q >a
        cat pics/top.png - >d/1.png <<<other
    done
    cmp m1.json m2.json
    [ "$(npy "j('h1.json')['data']['images_xxh3'] != j('h2.json')['data']['images_xxh3']")" = True ]
}

@test "hf-infer --images: several points go into a directory, a file and metadata each" {
    hf-infer vit --images pics --acts attn:1,mlp:1,norm -o dir -q
    [ "$(ls dir | wc -l)" = 6 ]
    hf-infer vit --images pics --acts mlp:1 -o mlp.npy -q
    hf-infer vit --images pics --acts norm -o norm.npy -q
    for f in mlp norm; do
        n=0
        for g in dir/*.npy; do cmp -s $f.npy "$g" && n=$((n + 1)); done
        [ $n = 1 ]
    done
    one_line 2 "--acts attn:1,norm: places of different points need -o DIR, which gets a file of each" \
        hf-infer vit --images pics --acts attn:1,norm
}

@test "hf-infer --images: 16-bit grey is counted" {
    run -0 --separate-stderr hf-infer clip --images pics --pixels p.npy
    [[ $stderr == *" of 16-bit grey: the high byte counts"* ]]
}

@test "hf-infer --image-size: another size is refused without it where positions have one" {
    mkdir other
    cp clip/* other
    echo '{"size": {"shortest_edge": 40}, "crop_size": 40}' >other/preprocessor_config.json
    makes="makes images of 40 x 40 (expected 32 x 32, config.json's image_size; --image-size interpolates positions)"
    one_line 65 "other/preprocessor_config.json: $makes" hf-infer other --images pics --features f.npy
    echo "{\"image_processor\": $(cat other/preprocessor_config.json)}" >other/processor_config.json
    one_line 65 "other/processor_config.json: $makes" hf-infer other --images pics --features f.npy
    hf-infer other --images pics --features f.npy --image-size 40 -q
    for v in 0 x 8193 3x 3x0 3x4x5 -1 1e3; do
        one_line 2 "--image-size $v: must be N or HxW, of numbers from 1 to 8192" \
            hf-infer clip --images pics --features g.npy --image-size $v
    done
}

@test "hf-infer --images: options of text, and language models, are usage errors that say which" {
    n=0
    while read -r option value; do
        # shellcheck disable=SC2086 # words, if any
        one_line 2 "$option does not go with --images" hf-infer clip --images pics --acts resid:0 $option $value
        n=$((n + 1))
    done <<'X'
-p x
--file x
--ids 1
--raw
--chat
--jsonl
--ctx 4
--acts-ids x
--chunk 3
--lora x
--steer x:1=2
--lut x
X
    [ $n = 12 ]
    one_line 2 "-n does not go with --images" hf-infer clip --images pics --features x -n 3
    one_line 2 "option --images has no meaning for --nll" hf-infer clip --images pics --nll
    one_line 2 "--images: $DEMO is a language model (qwen3), which takes text" hf-infer "$DEMO" --images pics --features x
    one_line 2 "--images needs --acts, --features or --pixels" hf-infer clip --images pics
    one_line 2 "-o is for --acts: --features and --pixels name their files" hf-infer clip --images pics --features x -o y
    one_line 2 "--features is for --images" hf-infer clip --features x -p x
    one_line 2 "option --batch has no meaning for --acts of text" hf-infer "$DEMO" --acts resid:0 --jsonl --batch 3
    one_line 2 '--acts resid:-2: "-2" is not a layer (-1, the embedding and not the last, to 2, A-B, or all)' \
        hf-infer clip --images pics --acts resid:-2
    run -2 hf-infer clip --images pics --acts norm:2
    for o in features pixels; do
        one_line 2 "--$o -: must be a file, whose header is written at the end" hf-infer clip --images pics --$o -
    done
}

@test "hf-infer --images: an input is never replaced" {
    mkdir d
    cp pics/top.png d/1.png
    cp d/1.png before
    run -2 --separate-stderr hf-infer clip --images d --pixels d/1.png -f
    [[ ${stderr_lines[0]} == *"is both an input and an output of this command" ]]
    run -2 --separate-stderr hf-infer clip --images d/1.png --acts resid:0 -o d/1.png -f
    cmp before d/1.png
    # nor is a file of the model that is not read for that
    cp -rL clip m
    mv m/model.safetensors m/model-00001-of-00002.safetensors
    md5sum m/* >sums
    for file in m/*; do
        run -2 --separate-stderr hf-infer m --images d --pixels "$file" -f
        [ "${stderr_lines[0]}" = "hf-infer: $file: is both an input and an output of this command" ]
    done
    md5sum --quiet -c sums
}

@test "hf-infer --images --sae: what follows is of the reconstruction" {
    hf-infer clip --images pics --pixels p.npy -q
    cat >sae.py <<'X'
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np, sae_files, vision_ref as v
sae, _ = sae_files.random_sae(96, 48, 1)
if len(sys.argv) == 2:
    sae_files.write("sae", "sparsify", sae, k=5)
    sys.exit()
m, bad = v.Model("clip"), 0
x = v.embed(m, np.load("p.npy")[3].astype(float))[0]
x = v.block(m, x, 0, 4, 4, {}) - sae["decoder_bias"]
z = x @ sae["encoder_weight"].T + sae["encoder_bias"]
z *= sae_files.active("sparsify", z, 5, None)
x = z @ sae["decoder_weight"] + sae["decoder_bias"]
for i in range(3):
    x = v.block(m, x, i, 4, 4, {}) if i else x
    bad += not v.check(x, np.load("a.npy")[3, i])
sys.exit(bad + (not v.check(v.features(m, m.norm(x, m.names["final"])), np.load("f.npy")[3])))
X
    "$PYTHON" sae.py "$ROOT/test/ref"
    hf-infer clip --images pics --acts resid:all --features f.npy --acts-meta m.json -o a.npy -q --sae sae@encoder.layers.0
    "$PYTHON" sae.py "$ROOT/test/ref" check
    [ "$(npy "j('m.json')['data']['sae']")" = "['sae@encoder.layers.0']" ]
    cp m.json before.json
    printf '\1' | dd of=sae/sae.safetensors bs=1 seek=999 conv=notrunc status=none
    hf-infer clip --images pics --acts resid:all --acts-meta m.json -o a.npy -q -f --sae sae@encoder.layers.0
    [ "$(npy "[k for k, v in j('m.json')['data'].items() if j('before.json')['data'][k] != v]")" = "['sae_xxh3']" ]
    one_line 2 "--sae: --pixels alone runs no model" hf-infer clip --images pics --pixels q.npy --sae sae@encoder.layers.0
    echo '{"activation":"topk","k":5,"num_latents":96,"d_in":48,"exclude_special_tokens":true}' >sae/cfg.json
    one_line 65 "sae/sae.safetensors: leaves out rows of a text (expected an SAE of all rows)" \
        hf-infer clip --images pics --features q.npy --sae sae@encoder.layers.0
}

@test "hf-infer(5): the examples run as typed" {
    ln -s "$ROOT/demo" .
    ln -s clip VIT
    cp -r pics/. photos
    ln -s pics.tar shard-000001.tar
    ln -s pics/top.png one.png
    examples hf-infer.5 >script
    run -0 --separate-stderr bash -eo pipefail script
    grep -q '"id":"a"' answers.1
    [ "$(cat answers.[023] | wc -c)" -eq 0 ]
    [ "$(stat -c %s acts.f32)" -gt 0 ]
    [ -s meta.json ] && [ -s ids.npy.json ]
    [ "$(wc -l <<<"$output")" = 2 ] # dumps
    [ "$(npy "l('p.npy').shape, len(l('f.npy'))")" = "(1, 3, 32, 32) $(grep -c 'jpg$' list)" ]
    [ "$(stat -c %s resid.npy)" -gt $((2 * 2 * 4 * 4)) ]
}

@test "jobs: a list of pictures in parts, by cron and by make is the dump of one pipe" {
    hf-infer clip --images "$PWD/list" --acts resid:1 --hash-images --acts-meta m.json -q |
        saev-write -q -m m.json -o one
    mkdir cron
    TU_BIN=$(dirname "$(command -v hf-infer)")
    export TU_BIN MAX_PATCHES=170
    "$ROOT/jobs/acts-cron.sh" clip list resid:1 images cron
    run -0 "$ROOT/jobs/acts-cron.sh" clip list resid:1 images cron
    [ -z "$output" ]
    cat cron/*/acts*.bin | cmp - one/*/acts000000.bin
    grep -q '"max_patches_per_shard": 170' cron/*/metadata.json
    grep -q "\"n_imgs\": $(wc -l <list)" cron/*/metadata.json
    mkdir make
    for f in list clip pics; do ln -s "$PWD/$f" make; done
    make -s -C make -f "$ROOT/jobs/batch.mk" MODEL=clip DOCS=list SPEC=resid:1 CTX=images PARTS=3
    cat make/acts/*/acts*.bin | cmp - one/*/acts000000.bin
    # another picture of the same size is another dump
    cp -r pics/. other
    sed 's/^pics/other/' list >l
    a=$("$ROOT/jobs/acts-meta.sh" clip l resid:1 images make)
    printf x >>"$(head -n 1 l)"
    b=$("$ROOT/jobs/acts-meta.sh" clip l resid:1 images make)
    truncate -s -1 "$(head -n 1 l)"
    printf y >>"$(head -n 1 l)"
    c=$("$ROOT/jobs/acts-meta.sh" clip l resid:1 images make)
    [ "$a" != "$b" ] && [ "$b" != "$c" ]
    echo >>l
    run -65 "$ROOT/jobs/acts-meta.sh" clip l resid:1 images make
    [ "$output" = "acts-meta.sh: $PWD/l: line $(wc -l <l) is empty (expected a picture in each line)" ]
}
