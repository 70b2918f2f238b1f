# SPDX-License-Identifier: ISC
# hf-infer --images: pictures, where they are from, and their pixel values,
# against PIL and test/ref/vision_pixels.py; activations: hf-infer-images.bats.
load helpers

vision() {
    py "$ROOT/test/ref/vision_ref.py" "$@"
}

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    py - "$BATS_TEST_DIRNAME" <<'END'
import vision_models
for name in "clip", "vit", "dinov2", "dinov3_vit", "siglip":
    vision_models.make(name, name)
vision_models.pictures("pictures")
END
}

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    ln -s "$BATS_FILE_TMPDIR"/* .
}

# python LINES: what they print; np, f() reads a raw dump, order() a directory.
python() {
    py -c "import json, os, sys, numpy as np, vision_ref as ref, vision_pixels as vp, vision_models as vm
f = lambda p: np.fromfile(p, '<f4')
order = vp.image_folder
$1"
}

@test "hf-infer --pixels: by each processor's rules, of every PNG each byte is PIL's, of JPEG within 3" {
    # shellcheck disable=SC2046 # names are words
    run -0 py "$ROOT/test/ref/vision_run.py" pixels pictures $(vision list | cut -f 1)
    [ "$(grep -c ': pixels ' <<<"$output")" = "$(vision list | wc -l)" ]
    [[ $output == *"clip: pixels (27, 3, 32, 32) "* ]]
}

@test "hf-infer --images DIR: ImageFolder's order and labels, names with tabs and newlines" {
    cp -rL pictures names
    cp names/top.png names/a/$'tab\tnew\nline\\.png'
    mkdir -p names/a/b-c names/.h
    ln -s ../../../pictures/top.png names/a/b-c/.hidden.png
    ln -s ../Z names/.h/Z # a directory
    hf-infer vit --images names --pixels p.npy --acts-images rows.tsv
    python '
def escaped(s):
    return s.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
want = ["row\tlabel\tclass\tpath"] + ["%d\t%d\t%s\t%s" % (
    i, label, escaped(name), escaped("names/" + path)) for i, (name, label, path) in enumerate(order("names"))]
got = open("rows.tsv").read().split("\n")
assert got == want + [""], (got, want)
assert len(want) == 1 + 27 + 2 + 4, len(want)
files = [os.path.join("names", r[2]) for r in order("names")]
p = vp.processor("vit")
for x, file in zip(np.load("p.npy"), files):
    assert np.abs(x - vp.pixel_values(p, vp.decode(file))).max() < 0.03, file
'
    ln -s .. names/a/loop
    run -65 --separate-stderr hf-infer vit --images names --pixels q.npy
    [ "${#stderr_lines[@]}" -eq 1 ]
    [ ! -e q.npy ]
}

@test "hf-infer --images: a list, of paths from here, is its lines; - is standard input" {
    vision order pictures | cut -f 4 | sed 's,^,pictures/,' >list
    hf-infer clip --images pictures --pixels want.npy
    hf-infer clip --images list --pixels got.npy --acts-images rows.tsv
    cmp want.npy got.npy
    cmp <(cut -f 4 rows.tsv | sed 1d) list
    [ "$(cut -f 2,3 rows.tsv | sed 1d | sort -u)" = "-1	" ]
    hf-infer clip --images - --pixels piped.npy -q <list
    cmp want.npy piped.npy
    sed -n '2p;7p;7p' list >three
    hf-infer clip --images three --pixels three.npy
    python 'a = np.load("want.npy"); assert (np.load("three.npy") == a[[1, 6, 6]]).all()'
    hf-infer clip --images pictures/a/type2-08.png --pixels one.npy
    python 'a = np.load("want.npy"); assert np.load("one.npy").shape == (1, 3, 32, 32) and (np.load("one.npy") == a[6]).all()'
    hf-infer clip --images - --pixels piped.npy -f <pictures/a/type2-08.png
    cmp one.npy piped.npy
}

@test "hf-infer --images TAR: ustar, GNU and pax names, labels before and after their images" {
    python '
import io, tarfile
rows = order("pictures")
for kind, form in dict(ustar=tarfile.USTAR_FORMAT, gnu=tarfile.GNU_FORMAT, pax=tarfile.PAX_FORMAT).items():
    with tarfile.open(kind + ".tar", "w", format=form) as tar:
        def add(name, data):
            t = tarfile.TarInfo(name)
            t.size = len(data)
            tar.addfile(t, io.BytesIO(data))
        for i, (_, label, path) in enumerate(rows):
            # over 100 bytes: a prefix, a GNU long name, pax records
            key = "d" * (60 if kind == "ustar" else 130) + "/" * (i % 3 == 0) + "k%03d" % i
            key = key if i % 3 == 0 else "d.x/k%03d" % i
            if kind == "pax" and i == 4:
                key += "é"
            suffix = path.rsplit(".", 1)[1]
            cls = str(label + 5).encode() + b"\n" * (i % 2)
            if i % 4 == 1:
                add(key + ".cls", cls)
            add(key + ".json", b"{}")
            add(key + ("." if i % 5 else ".seg.") + suffix, open("pictures/" + path, "rb").read())
            if i % 4 in (0, 2):
                add(key + ".cls", cls)
'
    hf-infer clip --images pictures --pixels want.npy
    for kind in ustar gnu pax; do
        hf-infer clip --images $kind.tar --pixels $kind.npy --acts-images $kind.tsv
        cmp want.npy $kind.npy
        cat $kind.tar | hf-infer clip --images - --pixels piped.npy --acts-images piped.tsv -q -f
        cmp want.npy piped.npy
        cmp piped.tsv $kind.tsv
    done
    python '
for kind in "ustar", "gnu", "pax":
    want = [(str(i), str(label), name) for i, (label, name, _) in enumerate(vp.tar_images(kind + ".tar"))]
    got = [line.split("\t") for line in open(kind + ".tsv").read().split("\n")[1:-1]]
    assert [(a, b, d) for a, b, c, d in got] == want, (got, want)
    assert sum(b == "-1" for a, b, c, d in got) == 6, got
'
    head -c 20000 gnu.tar >cut.tar
    run -65 --separate-stderr hf-infer clip --images cut.tar --pixels cut.npy
    [[ $stderr == "hf-infer: cut.tar: "* && ${#stderr_lines[@]} -eq 1 ]]
    [ ! -e cut.npy ]
}

@test "hf-infer --image-size: in place of size and crop, N or HxW" {
    for m in clip dinov2 dinov3_vit; do
        for size in 25 40x23; do
            hf-infer $m --images pictures/a-b --image-size $size --pixels $m-$size.npy
        done
    done
    python '
rows = order("pictures/a-b")[:4]
for m in "clip", "dinov2", "dinov3_vit":
    for name, size in ("25", (25, 25)), ("40x23", (40, 23)):
        got = np.load("%s-%s.npy" % (m, name))[:4]
        want = ref.pixels_of(m, ["pictures/a-b/" + r[2] for r in rows], size)
        assert got.shape == want.shape and np.abs(got - want).max() < 2e-5, (m, name)
'
}

@test "hf-infer --exif: pictures are turned as by ImageOps.exif_transpose, else one warning counts them" {
    mkdir turned
    python '
from PIL import Image
a = vm.scene(np.random.default_rng(2), 31, 44).astype("u1")
for i in range(1, 9):
    exif = Image.Exif()
    exif[0x112] = i
    Image.fromarray(a).save("turned/%d.jpg" % i, exif=exif, quality=95)
    Image.fromarray(a).save("turned/%d.png" % i, exif=exif)
'
    run -0 --separate-stderr hf-infer vit --images turned --pixels as-is.npy
    [[ ${#stderr_lines[@]} -eq 1 && $stderr == *"14 "*"--exif"* ]]
    run -0 --separate-stderr hf-infer vit --images turned --exif --pixels turned.npy
    [ -z "$stderr" ]
    python '
files = ["turned/%d.%s" % (i // 2 + 1, "jpg" if i % 2 == 0 else "png") for i in range(16)]
for name in "as-is", "turned":
    got, want = np.load(name + ".npy"), ref.pixels_of("vit", files, exif=name == "turned")
    assert np.abs(got - want)[1::2].max() < 2e-5 and np.abs(got - want).max() < 0.025, name
'
}

# bad NAME: makes bad/NAME of good/NAME.
make_bad() {
    mkdir -p bad
    python '
import struct, zlib
from PIL import Image
png, jpg = (open("pictures/" + f, "rb").read() for f in ("a/type2-08.png", "c/d/e/half.JPEG"))
a = vm.scene(np.random.default_rng(3), 20, 30)
palette = np.zeros((3, 3))
def header(w, h, depth=8, kind=2):
    data = b"IHDR" + struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, 0)
    return png[:8] + struct.pack(">I", 13) + data + struct.pack(">I", zlib.crc32(data))
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
sof = jpg.index(b"\xff\xc0")
bad = dict(
    cut=png[:len(png) // 2], head=png[:40], empty=b"", text=b"no picture at all, but of its name",
    crc=png[:60] + bytes([png[60] ^ 1]) + png[61:], ihdr=png[:20] + b"\1" + png[21:],
    bomb=header(60000, 60000) + chunk(b"IDAT", zlib.compress(bytes(900000))) + chunk(b"IEND", b""),
    much=header(4, 4) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b""),
    few=header(40, 40) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b""),
    zero=header(0, 4) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b""),
    depth=header(4, 4, 3) + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b""),
    palette=vm.png(a[..., :1] % 4, 8, 3, palette), no_palette=vm.png(a[..., :1], 8, 3),
    filter=header(4, 4) + chunk(b"IDAT", zlib.compress(b"\7" * 52)) + chunk(b"IEND", b""))
for name, data in bad.items():
    open("bad/%s.png" % name.replace("_", "-"), "wb").write(data)
bad = dict(cut=jpg[:len(jpg) // 2], head=jpg[:sof + 4], big=jpg[:sof + 5] + b"\xff\xff\xff\xff" + jpg[sof + 9:],
           flat=jpg[:sof + 5] + b"\0\0" + jpg[sof + 7:])
for name, data in bad.items():
    open("bad/%s.jpg" % name, "wb").write(data)
Image.fromarray(a.astype("u1")).save("bad/real.bmp")
Image.fromarray(a.astype("u1")).save("bad/real.webp.tif")
'
}

@test "hf-infer --images: a broken picture ends the run with 65 and its name; no output appears" {
    make_bad
    for file in bad/*; do
        run -65 --separate-stderr hf-infer vit --images "$file" --pixels p.npy
        [ ! -e p.npy ]
        [[ ${#stderr_lines[@]} -eq 1 && $stderr == "hf-infer: $file: "* ]]
    done
    [[ $(hf-infer vit --images bad/bomb.png --pixels p.npy 2>&1) == *60000* ]]
    mkdir some
    cp pictures/a/type2-08.png some/a.png
    cp bad/crc.png some/b.png
    run -65 --separate-stderr hf-infer vit --images some --pixels p.npy --acts-images t.tsv
    [[ ${#stderr_lines[@]} -eq 1 && $stderr == "hf-infer: some: b.png: "* ]]
    run -65 hf-infer vit --images some --pixels p.npy --acts resid:0 -o x --acts-meta m.json --features f.npy
    [ "$(ls -A)" = "$(ls -A | grep -vE 'p.npy|t.tsv|^x|m.json|f.npy|tmp')" ]
}

@test "hf-infer --skip-bad: bad pictures have no row, a warning names each, the end counts them" {
    make_bad
    cp pictures/a/type2-08.png bad/crc2.png
    cp pictures/top.png bad/a.png
    run -0 --separate-stderr hf-infer vit --images bad --skip-bad --pixels p.npy --acts-images t.tsv
    n=$(ls bad | wc -l)
    for file in bad/*; do
        [[ $file == */a.png || $file == */crc2.png || $stderr == *"${file#bad/}: "* ]]
    done
    [ "${#stderr_lines[@]}" -eq $((n - 2 + 1)) ]
    [[ ${stderr_lines[-1]} == *$((n - 2))* ]]
    [ "$(cut -f 1,4 t.tsv)" = "row	path
0	bad/a.png
1	bad/crc2.png" ]
    hf-infer vit --images bad --skip-bad --pixels q.npy --acts norm -o x.f32 --acts-meta m.json -q
    cmp p.npy q.npy
    python "want = ref.pixels_of('vit', ['bad/a.png', 'bad/crc2.png'])
assert np.abs(np.load('p.npy') - want).max() < 2e-5
m = json.load(open('m.json')); assert (m['n_imgs'], m['data']['skipped']) == (2, $n - 2), m"
}

@test "hf-infer --skip-bad: each of many bad pictures among good ones is left out once" {
    head -c 500 pictures/Z/grey.jpg >bad.jpg
    # make SAN=thread check sees what a run seldom shows
    yes $'pictures/top.png\nbad.jpg\npictures/a/z/tiny.png' | sed 1200q >many
    for batch in 1 2 5; do
        hf-infer vit --images many --skip-bad --batch $batch -j 4 --pixels p.npy -f 2>said
        [ "$(tail -n 1 said)" = "hf-infer: many: 400 broken images skipped, 800 left" ]
        python 'x = np.load("p.npy"); assert len(x) == 800 and (x == np.tile(x[:2], (400, 1, 1, 1))).all()'
    done
}

@test "hf-infer --max-pixels: more are refused by number" {
    run -0 hf-infer vit --images pictures/Z/type0-08.png --max-pixels $((66 * 62)) --pixels p.npy
    run -65 --separate-stderr hf-infer vit --images pictures/Z/type0-08.png --max-pixels $((66 * 62 - 1)) --pixels q.npy
    [[ $stderr == "hf-infer: pictures/Z/type0-08.png: "*62*$((66 * 62 - 1))* || $stderr == *4092*4091* ]]
}
