# SPDX-License-Identifier: ISC
# sae-look html: pages of RUNs that test/ref/look_ref.py makes, read and
# compared with numpy by test/ref/look_page.py.
load helpers
load look

page_is() {
    py "$ROOT/test/ref/look_page.py" check "$@"
}

setup_file() {
    cd "$BATS_FILE_TMPDIR" || return
    ref sae 24 8 4 1 sae
    ref rows 120 8 2 x.npy
    # all ids but some of the last, which would be padding
    py -c 'import numpy as np
a = np.random.default_rng(3).permutation(np.arange(120) % 104).reshape(12, 10)
a[[4, 8], 6:] = -1
a[6, :4] = 17
np.save("ids.npy", a.astype("<i4"))'
    ref scan sae x.npy run ids=ids.npy skip_ids=3,5 top=4 sample=9 context=2,3 pairs=2,7
    ref scan sae x.npy plain tokens=10 top=12 sample=3 context=all latents=2,7,9,20
    ref scan sae x.npy images tokens=10 top=3 sample=4 context=all
    py - <<'END'
import json, os, shutil, numpy as np, mkst
rng = np.random.default_rng(4)
ids, values = rng.integers(0, 1100, (24, 2, 3)), rng.normal(size=(24, 2, 3)) * 5
mkst.save("run/lens.safetensors", {"lens_id": ids.astype("<i4"), "lens_value": values.astype("<f4"),
                                   "lens_mean": np.zeros(24, "<f4"), "lens_std": np.ones(24, "<f4")}, {"sae_xxh3": "0" * 32})
# a model whose tokens are a stranger's
demo = os.environ["DEMO"]
os.mkdir("evil")
shutil.copy(demo + "/config.json", "evil")
t = json.load(open(demo + "/tokenizer.json", encoding="utf-8"))
kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
others = [b for b in range(256) if b not in kept]
alphabet = {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(others)}}
tokens = [s.encode() for s in (
    "<script>alert(1)</script>", "</p>", "-->", "<!--", "]]>", '" onclick="x', "' style='x", "&lt;", "&#60;", "</style>", "</svg>",
    "javascript:x", "\n", "\t", "\r\n", "\0", "\x1b[31m", "\x7f", "\x85", "\u202etxt", "\u2066", "\u200b", "\ufeff", "\u2028",
    "\\x1b", "\u05d0\u05d1", "\u65e5\u672c", "\U0001f600", " ", "  a  ", "x" * 300, "\u3042" * 90)]
tokens += [b"\xff", b"\xe2\x82", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x80b", b"<\xff>"]
tokens += [bytes([b]) for b in b"&<>\"'`=/"]
vocab = {}
for i in range(100):
    data = tokens[i] if i < len(tokens) else b"token %d" % i
    vocab["".join(alphabet[b] for b in data)] = i
assert len(vocab) == 100
t["model"].update(vocab=vocab, merges=[])
t["added_tokens"] = [{"id": 100, "content": "<|\u202eevil\n\"|>", "special": True, "single_word": False, "lstrip": False,
                      "rstrip": False, "normalized": False}]
json.dump(t, open("evil/tokenizer.json", "w"))
END
    # what the first bytes of each kind are, by its standard
    mkdir pictures
    cd pictures || return
    printf '\211PNG\r\n\032\n' >a.png
    head -c 1000 "$DEMO/model.safetensors" >>a.png
    printf '\377\330\377\340x' >b.jpg
    printf 'RIFF\1\2\3\4WEBPVP8 ' >c.webp
    printf 'GIF89a..' >d.gif
    printf 'GIF87a...' >'e "<x>'
    for i in a.png b.jpg c.webp d.gif 'e "<x>' a.png b.jpg c.webp d.gif a.png a.png b.jpg; do
        echo "pictures/$i"
    done >../list
}

@test "sae-look html: all that a page says is numpy's, with a model and without" {
    sae-look html run -o a.html
    page_is run a.html
    sae-look html run -m "$DEMO" -o b.html
    page_is run b.html model="$DEMO"
    sae-look html plain -o c.html
    page_is plain c.html
    sae-look html plain >d.html
    cmp c.html d.html
    run -1 cmp a.html b.html
}

@test "sae-look html: a page without examples, with few, with all, in 1 to 7 parts" {
    sae-look html run --examples 0 --quantiles 1 -o a.html
    page_is run a.html examples=0 quantiles=1
    sae-look html run --examples 3 --quantiles 7 -o b.html
    page_is run b.html examples=3 quantiles=7
    sae-look html plain --examples 4096 --quantiles 4096 -o c.html
    page_is plain c.html examples=4096 quantiles=4096
}

@test "sae-look html: latents are those of --latents or the first of an order" {
    sae-look html run --latents 3,7-9,20,0 -o a.html
    page_is run a.html latents=0,3,7,8,9,20
    for sort in index density mean max; do
        sae-look html run --sort $sort -n 5 -o b.html -f
        page_is run b.html "latents=$(sae-look list run --sort $sort -n 5 | awk 'NR > 1 { print $1 }' | paste -sd,)"
    done
    sae-look html run --min-density 0.1 -o b.html -f
    page_is run b.html "latents=$(sae-look list run --min-density 0.1 | awk 'NR > 1 { print $1 }' | paste -sd,)"
    run -2 sae-look html run --latents 24
    [ "${lines[0]}" = "sae-look: --latents: latent 24, but there are 24 (from 0)" ]
    run -2 sae-look html plain --latents 2,3
    [ "${lines[0]}" = "sae-look: --latents: latent 3 is not in plain, which has 4 of 24" ]
    run -2 sae-look html run --latents 3 --sort max
}

# bats test_tags=long
@test "sae-look html: more than 200 latents are shown only where -n says so" {
    ref sae 300 8 4 1 big
    ref scan big x.npy many tokens=10 top=1 sample=1
    sae-look html many -o a.html
    page_is many a.html
    sae-look html many -n 300 -o b.html
    page_is many b.html "latents=$(seq -s, 0 299)"
}

@test "sae-look html: no token of a stranger is more than text" {
    sae-look html run -m evil -o a.html
    page_is run a.html model=evil
    for says in '&lt;script&gt;alert(1)&lt;/script&gt;' '\x1b[31m' '\\x1b' '\u{202e}txt' '\xff' '⏎' '⇥' '\xe2\x82' '&quot; onclick=&quot;x'; do
        grep -qF ">$says</span>" a.html || { echo "$says"; false; }
    done
    run -1 grep -aqi '<script\|onclick="\|<!--' a.html
    # bytes of the page: lines end in \n, and nothing else controls anything
    run -1 grep -aqP '[\x00-\x09\x0b-\x1f\x7f]|\xe2\x80[\x8b-\x8f\xa8-\xae]' a.html
}

@test "sae-look html: no label, hook or path of a stranger is more than text" {
    printf 'latent\tlabel\n2\t</span><b onload="x">\033]0;x\007 & \xff \xe2\x80\xae\x00 it'"'"'s\t"q"\n3\t<img src=x onerror=y>\n' >run/labels.tsv
    py - <<'END'
import json
m = json.load(open("run/look.json"))
m.update(hook="</dd><script>\u2028x\n\u202e", sae="</title><script>alert('1')</script>\x9b\n&amp;")
open("run/look.json", "w").write(json.dumps(m) + "\n")
END
    mv run '<b>"'
    sae-look html '<b>"' -m evil -o a.html
    page_is '<b>"' a.html model=evil
    grep -q '&lt;img src=x onerror=y&gt;' a.html
    run -1 grep -aqi '<script\|<img\|<b[> ]' a.html
}

@test "sae-look html: pictures lie under the patches that are active" {
    sae-look html images --images list --grid 3x3 -o a.html
    page_is images a.html grid=3x3 images=list
    sae-look html images --images list --grid 5x2 -o b.html
    page_is images b.html grid=5x2 images=list
    sae-look html images --images - --grid 2x5 <list >c.html
    page_is images c.html grid=2x5 images=list
    # as hf-infer --acts-images writes it
    odd=$'pictures/tab\there \\ t.png'
    cp "$(sed 1q list)" "$odd"
    { printf 'row\tlabel\tclass\tpath\n0\t-1\ta b\tpictures/tab\\there \\\\ t.png\n'
        sed 1d list | awk '{ print NR "\t7\tc\t" $0 }'; } >rows.tsv
    sae-look html images --images rows.tsv --grid 5x2 -o rows.html
    cmp b.html rows.html
    sed -i 3d rows.tsv
    run -65 sae-look html images --images rows.tsv --grid 5x2 -o no.html
    [ "$output" = "sae-look: rows.tsv: line 3 is no path" ]
    printf 'row\tlabel\tclass\tpath\n0\t1\tx\n' >rows.tsv
    run -65 sae-look html images --images rows.tsv --grid 5x2 -o no.html
    [ "$output" = "sae-look: rows.tsv: line 2 is no path" ]
    for type in png jpeg webp gif; do
        grep -q "href=\"data:image/$type;base64," a.html
    done
    # a part of a sequence: the patches that are known
    ref scan sae x.npy some tokens=10 top=3 sample=4 context=2,1
    sae-look html some --images list --grid 3x3 -o d.html
    page_is some d.html grid=3x3 images=list
}

@test "sae-look html: what is no picture, too large or missing is refused before anything is written" {
    refused() {
        run "-$1" sae-look html images --images list --grid 3x3 -o no.html
        [ "$output" = "sae-look: $2" ]
        [ ! -e no.html ]
    }
    for head in '<svg xmlns="http://www.w3.org/2000/svg"/>' '<?xml version="1.0"?><svg/>' 'GIF88a' '\211PN' 'RIFF....WAVE' '<html>' ''; do
        printf "$head" >pictures/a.png
        refused 65 "pictures/a.png: is no PNG, JPEG, WebP or GIF"
    done
    { printf 'GIF89a'; head -c 1048570 /dev/zero; } >pictures/a.png
    sae-look html images --images list --grid 3x3 --max-bytes 1G -o max.html
    printf 'x' >>pictures/a.png
    run -65 sae-look html images --images list --grid 3x3 --max-bytes 1G -o no.html
    [[ $output == "sae-look: pictures/a.png: "*1048576* ]]
    rm pictures/a.png
    refused 66 "pictures/a.png: No such file or directory"
    mkfifo pictures/a.png
    refused 66 "pictures/a.png: is not a regular file"
    sed -i 11,12d list
    refused 65 "list: 10 images, but images has rows of 12"
    printf 'pictures/b.jpg\n\n' >list
    refused 65 "list: line 2 is no path"
    run -65 sae-look html images --images list --grid 2x2 -o no.html
    [ "$output" = "sae-look: images: images have 10 tokens, but --grid has 4 patches (expected as many, or one less)" ]
    for grid in 0x3 3 3x 3x3x3 -1x3 3x2000; do
        run -2 sae-look html images --images list --grid=$grid
    done
    run -2 sae-look html images --images list
    run -2 sae-look html images --grid 3x3
}

@test "sae-look html: a page over --max-bytes is refused with both numbers, nothing is written" {
    sae-look html run -o a.html
    n=$(stat -c %s a.html)
    sae-look html run --max-bytes "$n" -o b.html
    cmp a.html b.html
    run -65 sae-look html run --max-bytes $((n - 1)) -o c.html
    [ "$output" = "sae-look: run: the page has $n bytes, but --max-bytes is $((n - 1))" ]
    [ ! -e c.html ]
    run -65 --separate-stderr sae-look html run --max-bytes 1
    [ -z "$output" ]
    run -73 sae-look html run -o a.html
    cmp a.html b.html
}

@test "sae-look html: an example or a lens that cannot be is refused" {
    py - <<'END'
import shutil, numpy as np, look_ref
meta, t = look_ref.read("run")
i = int(np.argmax(t["rows_active"]))
at = int(np.flatnonzero(t["top_acts"][i, 0] == t["top_value"][i, 0])[0])
for name, place, value in ("top_acts", (i, 0, at), 1e9), ("top_acts", (i, 0, at), np.nan), ("sample_ids", (i, 0, 2), -2):
    bad = {k: v.copy() for k, v in t.items()}
    bad[name][place] = value
    shutil.rmtree("bad", ignore_errors=True)
    look_ref.write("bad", meta, bad)
    import subprocess
    p = subprocess.run(["sae-look", "html", "bad", "-o", "no.html"], capture_output=True, text=True)
    assert p.returncode == 65 and p.stderr.startswith("sae-look: bad/look.safetensors: "), p
END
    py - <<'END'
import subprocess, numpy as np, mkst
ids, values = np.zeros((24, 2, 3), "<i4"), np.zeros((24, 2, 3), "<f4")
def refused(says, tensors):
    mkst.save("run/lens.safetensors", tensors, {"sae_xxh3": "0" * 32})
    p = subprocess.run(["sae-look", "html", "run", "-o", "no.html"], capture_output=True, text=True)
    assert p.returncode == 65 and p.stderr == f"sae-look: run/lens.safetensors: {says}\n", p
def changed(a, value):
    a = a.copy()
    a[4, 1, 2] = value
    return a
refused("[4, 1, 2] is id -1, logit 0", {"lens_id": changed(ids, -1), "lens_value": values})
refused("[4, 1, 2] is id 0, logit nan", {"lens_id": ids, "lens_value": changed(values, np.nan)})
refused("tensor lens_value is missing", {"lens_id": ids})
refused("lens_id is [23, 2, 3] (expected [24, 2, 3])", {"lens_id": ids[:23].copy(), "lens_value": values})
refused("lens_id is F32 (expected I32)", {"lens_id": values, "lens_value": values})
refused("lens_value is [24, 2, 2] (expected [24, 2, 3])", {"lens_id": ids, "lens_value": values[..., :2].copy()})
END
    [ ! -e no.html ]
}

@test "sae-look html: the examples of its page work as typed" {
    ln -s "$ROOT/demo" demo
    examples sae-look-html.1 >script
    bash -e script
    page_is run three.html model="$DEMO" latents=3,7,8 examples=4096
    page_is run latents.html model="$DEMO"
}

@test "sae-look html: a token of 16 KiB in all places is refused soon, in little memory" {
    py - <<'END'
import json, numpy as np, look_ref
t = json.load(open("evil/tokenizer.json"))
vocab = t["model"]["vocab"]
t["model"]["vocab"] = {"<" * (1 << 14) if i == 60 else name: i for name, i in vocab.items()}
json.dump(t, open("evil/tokenizer.json", "w"))
np.save("all.npy", np.full((12, 10), 60, "<i4"))
END
    ref scan sae x.npy long ids=all.npy
    [[ $BUILD == */*san ]] || ulimit -v 400000
    run -65 sae-look html long -m evil --max-bytes 1M -o no.html
    [[ $output == "sae-look: long: the page has over "*" bytes, but --max-bytes is 1048576" ]]
    [ ! -e no.html ]
}
