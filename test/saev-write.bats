# SPDX-License-Identifier: ISC
# saev-write against dumps that numpy made: test/ref/saev_dump.py.
load helpers

# make_stream [KEY=VALUE,...]: m.json, c.json (without n_imgs), a.f32, a.f16,
# a.bf16, a.npy, and want/ and padded/, the dump as numpy and as saev write it.
make_stream() {
    py - "$1" <<'END'
import json, sys, numpy as np
from saev_dump import *
kw = eval(f"dict({sys.argv[1]})")
m = meta(**kw)
a = dump("want", **kw)
dump("padded", form="padded", **kw)
json.dump(m, open("m.json", "w"))
json.dump({k: v for k, v in m.items() if k != "n_imgs"}, open("c.json", "w"))
a.tofile("a.f32")
np.save("a.npy", a)
a.astype("<f2").tofile("a.f16")
(a.view("<u4") >> 16).astype("<u2").tofile("a.bf16")
END
    H=$(saev-write -q --hash -m m.json)
    IMG=$(py -c 'import json; m = json.load(open("m.json"))
print(len(m["layers"]) * (m["n_patches_per_img"] + m["cls_token"]) * m["d_vit"] * 4)')
}

# imgs FIRST N: those images of the stream.
imgs() {
    tail -c +$(($1 * IMG + 1)) a.f32 | head -c $(($2 * IMG))
}

@test "saev-write: the command lines work as written" {
    make_stream
    cp m.json META.json
    cp a.f32 acts.f32
    saev-write -m META.json -o DIR < acts.f32
    diff -r want "DIR/$H"
    [ "$(saev-write --hash -m META.json)" = "$H" ]
    [ "$(saev-write --hash -m META.json -o DIR//)" = "$(printf '%s\t%s' "$H" "DIR/$H")" ]
    [ "$(py -c 'import hashlib, json; print(hashlib.sha256(json.dumps(
        json.load(open("m.json")), sort_keys=True).encode()).hexdigest())')" = "$H" ]
    rm -r DIR
    read -r first n <<<"$(saev-write --images -m META.json --shard 2/8)"
    imgs "$first" "$n" >part
    saev-write -m META.json -o DIR --shard 2/8 < part
    for i in 0 1 3 4 5 6 7; do
        read -r first n <<<"$(saev-write --images -m META.json -o DIR --shard $i/8)"
        imgs "$first" "$n" | saev-write -m META.json -o DIR --shard $i/8
    done
    run -0 --separate-stderr saev-write --finish -m META.json -o DIR
    [ "$output" = "DIR/$H" ]
    diff -r want "DIR/$H"
    [ "$(ls -A DIR)" = "$H" ]
}

@test "saev-write: any number of images is numpy's dump, counted or known, padded or not" {
    for n in 0 1 2 3 5 6 7; do
        make_stream "n=$n"
        # none at all are not counted: see below
        for meta in m $([ $n = 0 ] || echo c); do
            run -0 --separate-stderr saev-write -q -m $meta.json -o plain$meta a.f32
            [ "$output" = "plain$meta/$H" ]
            diff -r -x metadata.json want "plain$meta/$H"
            # without n_imgs the key comes last, and the hash is the same
            py -c "import json, sys; assert list(json.load(open('$output/metadata.json')).items()) == sorted(
                json.load(open('m.json')).items(), key=lambda k: (k[0] == 'n_imgs' and '$meta' == 'c'))"
            saev-write -q --pad -m $meta.json -o padded$meta <a.f32
            diff -r -x metadata.json padded "padded$meta/$H"
            saev-write -q -m $meta.json -o npy$meta <a.npy
            diff -r -x metadata.json want "npy$meta/$H"
        done
        diff -r want "plainm/$H"
        rm -r want padded plain? padded? npy?
    done
}

@test "saev-write: f16, bf16 and .npy of f16 become f32 exactly" {
    make_stream "d=4001, n=3"
    saev-write -q --dtype f16 -m m.json -o f16 <a.f16
    saev-write -q --dtype bf16 -m m.json -o bf16 <a.bf16
    py - "$H" <<'END'
import sys, numpy as np
a = np.fromfile("a.f32", "<f4")
got = lambda d: np.fromfile(f"{d}/{sys.argv[1]}/acts000000.bin", "<u4")
assert (got("f16") == a.astype("<f2").astype("<f4").view("<u4")).all()
assert (got("bf16") == a.view("<u4") >> 16 << 16).all()
np.save("half.npy", a.reshape(-1, 4001).astype("<f2"))
END
    saev-write -q -m m.json -o npy half.npy
    cmp "npy/$H/acts000000.bin" "f16/$H/acts000000.bin"
}

@test "saev-write: a stream one byte short or long publishes nothing" {
    make_stream
    size=$((7 * IMG))
    run -65 --separate-stderr saev-write -q -m m.json -o D < <(head -c -1 a.f32)
    [ "$stderr" = "saev-write: standard input: ended after $((size - 1)) of $size bytes (image 6 of 7)" ]
    [ -z "$output$(ls -A D)" ]
    run -65 saev-write -q -m m.json -o D < <(cat a.f32; printf x)
    [ "$output" = "saev-write: standard input: continues after $size bytes (7 images, as the metadata says)" ]
    [ -z "$(ls -A D)" ]
    run -65 saev-write -q -m c.json -o D < <(cat a.f32; printf x)
    [ "$output" = "saev-write: standard input: ended after $((size + 1)) bytes, in the middle of image 7 (an image has $IMG)" ]
    run -65 saev-write -q -m c.json -o D --manifest < <(head -c $((6 * IMG)) a.f32; printf x)
    run -65 saev-write -q --dtype f16 -m m.json -o D < <(head -c -1 a.f16)
    [ "$output" = "saev-write: standard input: ended after $((size / 2 - 1)) of $((size / 2)) bytes (image 6 of 7)" ]
    run -65 saev-write -q -m m.json -o D a.npy < <(:) --first 3
    [ "$output" = "saev-write: a.npy: has 7 images (expected 4)" ]
    run -2 saev-write -q -m m.json -o D a.npy --first 9
    [ "${lines[0]}" = "saev-write: --first: 9 is not the first image of a shard here (expected a multiple of 3 from 0 to 7)" ]
    [ -z "$(ls -A D)" ]
}

@test "saev-write: a .npy that does not fit is refused before anything is written" {
    make_stream
    py -c 'import numpy as np; a = np.load("a.npy"); np.save("f8.npy", a.astype("f8")); np.save("one.npy", a.sum())
np.save("six.npy", a[:6]); np.save("dims.npy", a.reshape(-1, 4)); np.save("part.npy", a.reshape(-1, 5)[:9])'
    run -65 saev-write -q -m m.json -o D f8.npy
    [ "$output" = "saev-write: f8.npy: dtype is F64 (expected F32 or F16)" ]
    run -65 saev-write -q -m m.json -o D six.npy
    [ "$output" = "saev-write: six.npy: has 6 images (expected 7)" ]
    run -65 saev-write -q -m m.json -o D dims.npy
    [ "$output" = "saev-write: dims.npy: the last of 2 dims is 4 (expected d_vit, 5)" ]
    run -65 saev-write -q -m m.json -o D one.npy
    [ "$output" = "saev-write: one.npy: is a scalar (expected images of d_vit, 5)" ]
    run -65 saev-write -q -m c.json -o D part.npy
    [ "$output" = "saev-write: part.npy: has 45 numbers (expected whole images of 40)" ]
    run -65 saev-write -q -m c.json -o D < <(cat six.npy; printf x)
    [[ $output == "saev-write: standard input: continues after "*" (6 images, as its header says)" ]]
    [ ! -e D ] || [ -z "$(ls -A D)" ]
    # with --raw the header is data, and then there is too much of it
    run -65 saev-write -q --raw -m m.json -o D a.npy
    [[ $output == "saev-write: a.npy: continues after "* ]]
}

@test "saev-write: an existing dump is refused, kept, or replaced as asked" {
    make_stream
    saev-write -q -m m.json -o D a.f32
    run -73 saev-write -q -m m.json -o D a.f32
    [ "$output" = "saev-write: D/$H: exists already (--force replaces it)" ]
    run -0 saev-write -q -m m.json -o D --if-missing </dev/null
    [ "$output" = "D/$H" ]
    head -c $((7 * IMG)) /dev/zero | saev-write -q -m m.json -o D -f
    [ "$(tr -d '\0' <"D/$H/acts000001.bin" | wc -c)" -eq 0 ]
    [ "$(ls -A D)" = "$H" ]
    rm -f "D/$H/acts000001.bin"
    run -73 saev-write -q -m m.json -o D --if-missing a.f32
    [ "$output" = "saev-write: D/$H: exists already, but is broken: D/$H/acts000001.bin: missing (--force replaces it)" ]
    saev-write -q -m m.json -o D -f a.f32
    diff -r want "D/$H"
    # whole, but not what its name says
    sed -i 's/ViT-B/ViT-L/' "D/$H/metadata.json"
    run -73 saev-write -q -m m.json -o D --if-missing a.f32
    [ "$output" = "saev-write: D/$H: exists already, but is broken: its metadata.json is another's (--force replaces it)" ]
    saev-write -q -m m.json -o D -f a.f32
    # counted: the name is known only at the end
    run -73 saev-write -q -m c.json -o D a.f32
    run -0 saev-write -q -m c.json -o D --if-missing a.f32
    [ "$output" = "D/$H" ]
    [ "$(ls -A D)" = "$H" ]
}

@test "saev-write --force: what fails says why, though a dump is there" {
    make_stream
    saev-write -q -m m.json -o D a.f32
    imgs 0 1 >short
    for how in '' --resume '--shard 0/2'; do
        run -65 saev-write -q -m m.json -o D -f $how short
        [[ $output == "saev-write: short: ended after $IMG of "* ]]
    done
    mkdir -p "D/.$H.part"
    run -65 saev-write -q --finish -m m.json -o D -f
    [[ $output == "saev-write: D/.$H.part/acts000000.bin .. acts000002.bin: missing" ]]
    diff -r want "D/$H"
}

@test "saev-write --manifest: libxxhash's sums, as xxhsum -H2 prints them" {
    make_stream
    for pad in '' --pad; do
        saev-write -q -m m.json -o "D$pad" --manifest $pad a.f32
        cd "D$pad/$H"
        "$PYTHON" - <<'END'
import ctypes, glob
class H(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]
f = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
f.restype, f.argtypes = H, [ctypes.c_char_p, ctypes.c_size_t]
def line(name):
    b = open(name, "rb").read()
    h = f(b, len(b))
    return "%016x%016x  %s\n" % (h.high, h.low, name)
assert open("manifest.xxh3").read() == "".join(map(line, sorted(glob.glob("acts*"))))
END
        if command -v xxhsum; then
            xxhsum -c manifest.xxh3
        fi
        cd ../..
    done
    for i in 0 1; do
        read -r first n <<<"$(saev-write -q --images -m m.json --shard $i/2)"
        imgs "$first" "$n" | saev-write -q -m m.json -o S --shard $i/2
    done
    saev-write -q --finish --manifest -m m.json -o S
    cmp "S/$H/manifest.xxh3" "D/$H/manifest.xxh3"
}

# reads_pipe PIPE [OPTION...]: a run to R that reads PIPE, which it makes.
reads_pipe() {
    mkfifo "$1"
    saev-write -q -m m.json -o R --resume "${@:2}" "$1" 2>said 3>&- &
    pid=$!
}

@test "saev-write --manifest: of what is published, though another run pads it meanwhile" {
    make_stream "n=5, imgs_a_shard=3"
    for ours in '' --pad; do
        reads_pipe one --manifest $ours
        first=$pid
        exec 7>one
        cat a.f32 >&7
        until [ -e "R/.$H.part/acts000001.bin" ]; do kill -0 $first; sleep 0.01; done
        size=$(stat -c %s "R/.$H.part/acts000001.bin")
        reads_pipe other $([ "$ours" ] || echo --pad) 7>&-
        exec 8>other
        cat a.f32 >&8
        until [ "$(stat -c %s "R/.$H.part/acts000001.bin")" != "$size" ]; do kill -0 $pid; sleep 0.01; done
        exec 7>&-
        wait "$first"
        saev-read -q verify --deep "R/$H"
        exec 8>&-
        status=0
        wait $pid || status=$?
        [ $status = 75 ]
        [ "$(cat said)" = "saev-write: R/$H: another run has just published it" ]
        [ "$(ls -A R)" = "$H" ]
        rm -r R one other
    done
}

# bats test_tags=long
@test "saev-write --shard: any order, any repetition, any N gives the one writer's bytes" {
    make_stream "n=20, imgs_a_shard=2"
    for N in 1 3 7 10 11; do
        for i in $(seq 0 $((N - 1)) | shuf --random-source=a.f32) 0; do
            read -r first n <<<"$(saev-write -q --images -m m.json --shard "$i/$N")"
            imgs "$first" "$n" | saev-write -q -m m.json -o "S$N" --shard "$i/$N"
        done
        saev-write -q --finish -m m.json -o "S$N"
        diff -r want "S$N/$H"
        [ "$(ls -A "S$N")" = "$H" ]
    done
    saev-write -q --finish -m m.json -o S3 --if-missing
    # nothing is missing: a task that runs once more has nothing to do
    [ "$(saev-write -q --images -m m.json -o S3 --shard 1/3)" = "$(printf '12\t0')" ]
    [ "$(saev-write -q --images -m m.json -o S3 --shard 1/3 -f)" = "$(printf '6\t6')" ]
    mv "S3/$H/acts000001.bin" kept
    run -73 saev-write -q --images -m m.json -o S3
    mv kept "S3/$H/acts000001.bin"
    run -73 saev-write -q --finish -m m.json -o S3
    run -66 saev-write -q --finish -m m.json -o none
    [ "$output" = "saev-write: none/$H: no part of it has been written" ]
}

@test "saev-write --finish: names what is missing and publishes nothing" {
    make_stream "n=20, imgs_a_shard=2"
    imgs 0 6 | saev-write -q -m m.json -o S --shard 0/3
    run -65 saev-write -q --finish -m m.json -o S
    [ "$output" = "saev-write: S/.$H.part/acts000003.bin .. acts000009.bin: missing" ]
    imgs 12 8 | saev-write -q -m m.json -o S --shard 2/3
    [ "$(saev-write -q --images -m m.json -o S --shard 1/3)" = "$(printf '6\t6')" ]
    [ "$(saev-write -q --images -m m.json -o S --shard 2/3)" = "$(printf '20\t0')" ]
    run -65 saev-write -q --finish -m m.json -o S
    imgs 6 6 | saev-write -q -m m.json -o S --shard 1/3
    saev-write -q --finish -m m.json -o S --pad
    diff -r padded "S/$H"
}

@test "saev-write --finish: --manifest can be stopped while it reads" {
    make_stream "n=1"
    sed 's/"d_vit": 5/"d_vit": 1000000000/' m.json >big.json
    H=$(saev-write -q --hash -m big.json)
    mkdir -p "S/.$H.part"
    truncate -s 32000000000 "S/.$H.part/acts000000.bin"
    run -75 saev-write -q --finish --manifest --deadline 0.3 -m big.json -o S
    [ "$output" = "saev-write: stopped by the deadline: all shards are kept, run it again" ]
    run -0 saev-write -q --finish -m big.json -o S
    [ "$output" = "S/$H" ]
    [ "$(ls -A S S/*)" = "$(printf 'S:\n%s\n\nS/%s:\nacts000000.bin\nmetadata.json' "$H" "$H")" ]
}

@test "saev-write --shard: a part that is too long leaves nothing of it" {
    make_stream "n=20, imgs_a_shard=2"
    run -65 saev-write -q -m m.json -o S --shard 0/3 < <(imgs 0 7)
    [ "$output" = "saev-write: standard input: continues after $((6 * IMG)) bytes (6 images, as the metadata says)" ]
    [ -z "$(ls -A "S/.$H.part")" ]
}

# late_begins [OPTION...]: a run to R that will wait for its stream in fd 7, and
# for which R has no dump yet.
late_begins() {
    mkfifo pipe meta
    saev-write -q -m meta -o R --resume "$@" pipe 2>said 3>&- &
    late=$!
    exec 7>pipe
    head -c 1 a.f32 >&7
    cat m.json >meta
    # it has read META, and sleeps
    until ! ls -l /proc/$late/fd | grep -q meta && grep -q '^State:.S' /proc/$late/status; do
        kill -0 $late
        sleep 0.01
    done
}

late_ends() {
    tail -c +2 a.f32 >&7
    exec 7>&-
    wait $late
}

@test "saev-write --resume: who comes too late leaves nothing but the other's dump" {
    make_stream "n=20, imgs_a_shard=2"
    late_begins
    saev-write -q -m m.json -o R a.f32
    status=0
    late_ends || status=$?
    [ $status = 75 ]
    [ "$(cat said)" = "saev-write: R/$H: another run has just published it" ]
    diff -r want "R/$H"
    [ "$(ls -A R)" = "$H" ]
    rm -r R pipe meta
    late_begins --if-missing
    saev-write -q -m m.json -o R a.f32
    late_ends
    diff -r want "R/$H"
    [ "$(ls -A R)" = "$H" ]
}

@test "saev-write --resume: who counts and comes too late says so" {
    make_stream "n=20, imgs_a_shard=2"
    mkfifo pipe
    saev-write -q -m c.json -o R --resume pipe 2>said 3>&- &
    late=$!
    exec 7>pipe
    imgs 0 3 >&7
    until [ -e R/.*.counted.part/acts000000.bin ]; do kill -0 $late; sleep 0.01; done
    part=$(echo R/.*.counted.part)
    saev-write -q -m c.json -o R --resume a.f32 7>&-
    imgs 3 17 >&7
    exec 7>&-
    status=0
    wait $late || status=$?
    [ $status = 75 ]
    [ "$(cat said)" = "saev-write: $part: another run has just published it" ]
    py -c 'import json, sys
a, b = (json.load(open(f"{d}/metadata.json")) for d in sys.argv[1:])
assert a == b' want "R/$H"
    cmp want/acts000009.bin "R/$H/acts000009.bin"
    [ "$(ls -A R)" = "$H" ]
}

@test "saev-write: who publishes alone removes the parts of others, who then say so" {
    make_stream "n=20, imgs_a_shard=2"
    mkfifo part
    for more in '' --if-missing; do
        # shellcheck disable=SC2086
        saev-write -q -m m.json -o R --shard 0/2 $more part 2>said 3>&- &
        other=$!
        exec 8>part
        imgs 0 3 >&8
        until [ -e "R/.$H.part/acts000000.bin" ]; do kill -0 $other; sleep 0.05; done
        saev-write -q -m m.json -o R a.f32 8>&-
        [ "$(ls -A R)" = "$H" ]
        (imgs 3 7 >&8) || : # it may end before that
        exec 8>&-
        status=0
        wait $other || status=$?
        [ "$status $(cat said)" = "$([ "$more" ] && echo "0 " ||
            echo "75 saev-write: R/$H: another run has just published it")" ]
        diff -r want "R/$H"
        [ "$(ls -A R)" = "$H" ]
        rm -r R
    done
}

@test "saev-write --resume: another stream than the one before is noticed" {
    make_stream "n=20, imgs_a_shard=2"
    run -65 saev-write -q -m m.json -o R --resume < <(imgs 0 9)
    [ "$(ls "R/.$H.part" | wc -l)" = 4 ]
    [ "$(saev-write -q --images -m m.json -o R --resume)" = "$(printf '8\t12')" ]
    run -65 saev-write -q -m m.json -o R --resume < <(imgs 0 3; imgs 0 17)
    [ "$output" = "saev-write: standard input: differs from R/.$H.part/acts000001.bin, written before, in activation 8 of it (another stream? then remove R/.$H.part)" ]
    run -2 saev-write -q -m m.json -o R --resume --first 7 < <(imgs 7 13)
    [ "${lines[0]}" = "saev-write: --first: 7 is not the first image of a shard here (expected a multiple of 2 from 0 to 20)" ]
    run -2 saev-write -q -m m.json -o R --resume --first 10 < <(imgs 10 10)
    [ "${lines[0]}" = "saev-write: --first: 10 leaves out images from 8 on, which are not there yet" ]
    saev-write -q -m m.json -o R --resume --first 8 < <(imgs 8 12)
    diff -r want "R/$H"
    [ "$(ls -A R)" = "$H" ]
}

@test "saev-write: TERM, USR1 and --deadline keep what is complete, status 75" {
    make_stream "n=20, imgs_a_shard=2"
    for how in TERM USR1 INT deadline; do
        for meta in m c; do
            more=()
            [ $how != deadline ] || more=(--deadline 2)
            mkfifo pipe
            (imgs 0 9; exec sleep 60) >pipe &
            producer=$!
            # a background job ignores INT unless a subshell lets it in
            "$PYTHON" -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' saev-write -q -m $meta.json -o R "${more[@]}" <pipe 2>said &
            pid=$!
            until [ "$(ls R/.*/ 2>/dev/null | grep -c '^acts')" = 4 ]; do kill -0 $pid; sleep 0.05; done
            [ $how = deadline ] || kill -$how $pid
            s=0
            wait $pid || s=$?
            kill $producer
            [ $s -eq 75 ]
            grep -q "^saev-write: stopped by .*: 4 shards are kept, run it again with --resume (--first 8: the stream may start there)\$" said
            [ -z "$(ls R)" ]
            [ "$(saev-write -q --images -m $meta.json -o R --resume | cut -f1)" = 8 ]
            saev-write -q -m $meta.json -o R --resume <a.f32
            diff -r -x metadata.json want "R/$H"
            [ "$(ls -A R)" = "$H" ]
            rm -r R pipe
        done
    done
}

@test "saev-write: a run that is stopped takes nothing from the parts that are there" {
    make_stream "n=20, imgs_a_shard=2"
    imgs 10 10 | saev-write -q -m m.json -o R --shard 1/2
    for n in 4 12; do
        feed() { imgs 0 $n; }
        late_enough ": $((n / 2)) shards are kept, " saev-write -q -m m.json -o R
    done
    [ "$(ls R/.*.part | wc -l)" = 10 ]
    saev-write -q -m m.json -o R --finish
    diff -r want "R/$H"
}

# bats test_tags=long
@test "saev-write: a counted run that ended before it was published continues, padded or not" {
    for n in 5 6 7; do
        make_stream "n=$n"
        for more in '' --pad '--pad --manifest'; do
            for a in a.f32 a.npy; do
                mkdir -p "R/$H/x" # in its way: all is written but the name
                # shellcheck disable=SC2086
                run -73 saev-write -q -m c.json -o R --resume --manifest --pad $a
                rm -r "R/$H"
                [ "$(saev-write -q --images -m c.json -o R --resume)" = "$(printf '%d\t-' $((n / 3 * 3)))" ]
                # shellcheck disable=SC2086
                imgs $((n / 3 * 3)) 3 | saev-write -q -m c.json -o R --resume --first $((n / 3 * 3)) $more
                diff -r -x metadata.json -x manifest.xxh3 "$([ "$more" ] && echo padded || echo want)" "R/$H"
                [ ! -e "R/$H/manifest.xxh3" ] || saev-read -q verify --deep "R/$H"
                [ "$(ls -A R)" = "$H" ]
                rm -r R
            done
        done
        rm -r want padded
    done
}

@test "saev-write: what a counted run left goes when the dump is there" {
    make_stream "n=20, imgs_a_shard=2"
    for a in a.f32 a.npy; do
        size=$(stat -c %s $a)
        feed() { head -c $((size - IMG - 1)) $a; }
        late_enough ": 9 shards are kept, " saev-write -q -m c.json -o R
        [ "$(saev-write -q --images -m c.json -o R --resume)" = "$(printf '18\t-')" ]
        saev-write -q -m c.json -o R $a
        [ "$(ls -A R)" = "$H" ]
        # as large as it is, nobody needs it
        saev-write -q -m c.json -o R --resume --if-missing $a
        [ "$(ls -A R)" = "$H" ]
        rm -r R
    done
}

@test "saev-write: stopped behind the last image, --first is one that --resume takes" {
    make_stream
    for meta in m c; do
        feed() { cat a.f32; }
        first=$([ $meta = m ] && echo 7 || echo 6)
        late_enough "(--first $first: the stream may start there)" saev-write -q -m $meta.json -o R
        imgs "$first" 7 | saev-write -q -m $meta.json -o R --resume --first "$first"
        diff -r -x metadata.json want "R/$H"
        rm -r R
    done
}

# bats test_tags=long
@test "saev-write: a pipe without a writer keeps nobody from stopping it" {
    make_stream
    mkfifo pipe
    for args in "-m m.json -o R pipe" "-m pipe -o R a.f32" "-m - -o R a.f32" "-m m.json -o R"; do
        for how in "--deadline 0.1" TERM; do
            s=0
            # --foreground: no SIGCONT, which would take away the SIGSTOP that LeakSanitizer waits for
            # shellcheck disable=SC2086
            timeout --foreground -k 15 2 saev-write -q $args $([ "$how" = TERM ] || echo "$how") < <(exec sleep 30 3>&-) 2>said || s=$?
            [ $s = 75 ] || [ "$s $how" = "124 TERM" ] # 124: ended by TERM; 137: by KILL
            grep -qx 'saev-write: stopped by .*: .*run it again' said
        done
    done
    (sleep 0.3; cat a.f32 >pipe) &
    saev-write -q -m m.json -o R pipe
    diff -r want "R/$H"
}

# bats test_tags=long
@test "saev-write: 200 kills with -9, then --resume: never broken, never lost" {
    make_stream "n=40, imgs_a_shard=2, d=500"
    whole() { # the dump is there: then it is numpy's
        [ ! -e "K/$H" ] || diff -r want "K/$H"
    }
    for i in $(seq 200); do
        mode=--resume
        [ $((i % 2)) = 0 ] || mode=--no-sync # alone
        saev-write -q -m m.json -o K $mode <a.f32 2>/dev/null >&2 &
        pid=$!
        sleep "0.0$(printf %02d $((i * 7 % 40)))"
        kill -9 $pid 2>/dev/null || :
        wait $pid 2>/dev/null || :
        whole
        # a dump that is published is taken away, so that the next one starts
        rm -rf "K/$H"
    done
    saev-write -q -m m.json -o K --resume <a.f32
    diff -r want "K/$H"
    saev-write -q -m m.json -o K -f <a.f32 # alone: sweeps what the dead left
    [ "$(ls -A K)" = "$H" ]
}

# bats test_tags=long
@test "saev-write: of two writers at once one publishes, the other says so" {
    make_stream "n=40, imgs_a_shard=2, d=500"
    for _ in $(seq 10); do
        saev-write -q -m m.json -o T <a.f32 2>1 >&2 &
        a=$!
        saev-write -q -m m.json -o T <a.f32 2>2 >&2 &
        b=$!
        s=0 t=0
        wait $a || s=$?
        wait $b || t=$?
        # 73: it began when the other had ended
        [[ "$s $t" == "0 7"[35] || "$s $t" == "7"[35]" 0" ]]
        cat 1 2 | grep -q "exists already\|another run has just published it"
        diff -r want "T/$H"
        [ "$(ls -A T)" = "$H" ]
        rm -r T
        saev-write -q -m m.json -o T --if-missing <a.f32 &
        a=$!
        saev-write -q -m m.json -o T --if-missing <a.f32
        wait $a
        diff -r want "T/$H"
        rm -r T
    done
}

# bats test_tags=long
@test "saev-write: of two that publish the same parts one does, and leaves nothing of the other" {
    make_stream "n=40, imgs_a_shard=2, d=500"
    for _ in $(seq 20); do
        saev-write -q -m m.json -o T --shard 0/1 a.f32
        saev-write -q -m m.json -o T --if-missing --finish 2>1 >&2 &
        a=$!
        saev-write -q -m m.json -o T --if-missing --finish --pad 2>2 >&2
        wait $a
        diff -r want "T/$H" || diff -r padded "T/$H"
        [ "$(ls -A T)" = "$H" ]
        rm -r T
    done
}

@test "saev-write: what a killed run left goes with the next one, though another published" {
    make_stream "n=5, imgs_a_shard=3"
    for more in '' --if-missing; do
        mkfifo pipe
        saev-write -q -m m.json -o R pipe 3>&- &
        killed=$!
        exec 7>pipe
        imgs 0 4 >&7
        until [ "$(ls R/.*.tmp.*/acts000000.bin 2>/dev/null)" ]; do kill -0 $killed; sleep 0.01; done
        saev-write -q -m m.json -o R a.f32 7>&-
        kill -9 $killed
        status=0
        wait $killed || status=$?
        [ $status = 137 ]
        exec 7>&-
        [ "$(ls -A R | wc -l)" = 2 ]
        status=0
        saev-write -q -m m.json -o R $more a.f32 || status=$?
        [ $status = $([ "$more" ] && echo 0 || echo 73) ]
        [ "$(ls -A R)" = "$H" ]
        rm -r R pipe
    done
}

@test "saev-write: a full disk is one line, status 74, and leaves nothing" {
    make_stream "n=40, imgs_a_shard=4, d=500"
    small_disk 300k
    run -74 --separate-stderr saev-write -q -m m.json -o disk <a.f32
    [[ $stderr == "saev-write: disk: no room for $((40 * IMG)) bytes ("*" are free)" ]]
    [ -z "$output$(ls -A disk)" ]
    run -74 --separate-stderr saev-write -q -m c.json -o disk <a.f32
    [ "${#stderr_lines[@]}" = 1 ]
    [[ $stderr == *"No space left on device" ]]
    [ -z "$output$(ls -A disk)" ]
    # what is complete stays where it is asked for
    run -74 saev-write -q -m c.json -o disk --resume <a.f32
    n=$(ls disk/.*.part | grep -c '^acts')
    [ "$n" -ge 1 ]
    mount -o remount,size=20m disk
    [ "$(saev-write -q --images -m c.json -o disk --resume)" = "$(printf '%d\t-' $((n * 4)))" ]
    saev-write -q -m c.json -o disk --resume <a.f32
    diff -r -x metadata.json want "disk/$H"
}

@test "saev-write --pad: more zeros than a file can have are not written one by one" {
    make_stream
    for budget in 100000000000000000 400000000000000000; do
        sed "s/\"max_patches_per_shard\": 25/\"max_patches_per_shard\": $budget/" m.json >big.json
        for more in '' --manifest; do
            # shellcheck disable=SC2086
            run timeout -k 1 20 saev-write -q -m big.json -o D --pad --deadline 1 $more a.f32
            # a file system may take them all: then the sum is not done in time
            [ "$status" = 74 ] || [ "$status" = 0 ] || [ "$status$more" = 75--manifest ]
        done
        rm -rf D
    done
}

@test "saev-write: metadata may come from a pipe, and after the stream begins" {
    make_stream
    (sleep 0.3; cp m.json late.json; cat a.f32) | saev-write -q -m late.json -o A
    saev-write -q -m <(cat m.json) -o B a.f32
    saev-write -q -m - -o C a.f32 <m.json
    for d in A B C; do diff -r want "$d/$H"; done
}

@test "saev-write: an empty stream is a dump only where the metadata says 0" {
    make_stream
    for more in "" --resume; do
        # shellcheck disable=SC2086
        run -65 saev-write -q -m c.json -o D $more </dev/null
        [ "$output" = "saev-write: standard input: is empty (expected images, as c.json has no n_imgs)" ]
        [ -z "$(find D -type f)" ]
    done
    sed 's/"n_imgs": 7/"n_imgs": 0/' m.json >none.json
    cmp -s m.json none.json && false
    dump=$(saev-write -q -m none.json -o D </dev/null)
    [ "$(ls -A "$dump")" = metadata.json ]
}

@test "saev-write: bad metadata, options and directories are one line" {
    make_stream
    run -65 saev-write -q --hash -m c.json
    [ "$output" = "saev-write: c.json: the key n_imgs is missing (HASH is known when the images are counted)" ]
    run -65 saev-write -q --images -m c.json -o D
    [ "$output" = "saev-write: c.json: the key n_imgs is missing (--images needs it, or --resume)" ]
    run -65 saev-write -q -m c.json -o D --shard 0/2 a.f32
    [ "$output" = "saev-write: c.json: the key n_imgs is missing (--shard needs it)" ]
    run -66 saev-write -m none.json -o D a.f32
    [ "$output" = "saev-write: none.json: No such file or directory" ]
    # by the pipe's other end, which has failed
    run -66 saev-write -m none.json -o D < <(:)
    [ "$output" = "saev-write: none.json: is not there, and standard input is empty: did the program that writes them fail?" ]
    run -66 saev-write -m none.json -o D <a.f32
    [ "$output" = "saev-write: none.json: No such file or directory" ]
    run -66 saev-write -m m.json -o D none
    [ "$output" = "saev-write: none: No such file or directory" ]
    run -73 saev-write -q -m m.json -o a.f32/where a.f32
    [[ $output == "saev-write: a.f32/where: "*": Not a directory" ]]
    for bad in '-o D' '-m m.json' '-m m.json -o D --shard 2/2' '-m m.json -o D --shard 1' \
        '-m m.json -o D --shard 0/2 --pad' '-m m.json -o D --shard 0/2 --manifest' \
        '-m m.json -o D --hash --finish' '-m m.json -o D --if-missing -f' '-m m.json -o D a b' \
        '-m m.json -o D --dtype f64' '-m m.json -o D --finish a.f32' '-m - -o D'; do
        # shellcheck disable=SC2086
        run -2 saev-write $bad </dev/null
        [ "${lines[1]}" = "Try 'saev-write --help'" ]
    done
    saev-write -q -m m.json -o "a b
c" a.f32
    diff -r want "a b
c/$H"
}

# bats test_tags=long
@test "saev-write: memory does not grow with n_imgs or the stream" {
    make_stream "n=2000, d=5000, imgs_a_shard=700"
    [ "$(stat -c %s a.f32)" -gt 300000000 ]
    [ "$(peak saev-write -q --no-sync -m m.json -o A <a.f32)" -lt 65536 ]
    [ "$(peak saev-write -q --no-sync --manifest -m c.json -o B <a.f32)" -lt 65536 ]
    rm -r A B
}

@test "saev-write(1): the examples run as typed" {
    ln -s "$ROOT/demo" .
    examples saev-write.1 >script
    run -0 bash -euxo pipefail script
    [ "$(ls two again)" = "$(saev-write --hash -m m.json | sed 's/.*/again:\n&\n\ntwo:\n&/')" ]
    cmp two/*/acts000002.bin again/*/acts000002.bin
    [ "$(find dumps -name metadata.json | wc -l)" = 2 ]
}
