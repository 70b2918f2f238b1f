#!/bin/sh
# SPDX-License-Identifier: ISC
# html.sh BUILD VERSION DIR: all man pages as HTML in DIR, with an index, links
# between them and, where a page has --svg, the picture that the tools in BUILD
# draw of the models in demo/.
set -eu
mkdir -p "$3"
build=$(cd "$1" && pwd) version=$2 to=$(cd "$3" && pwd)
cd "$(dirname "$0")/.."
command -v mandoc >/dev/null || {
    echo 'html: mandoc is missing (make deps)' >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM
PATH=$build:$PATH

# Each named after the page that shows it.
draw() {
    demo=$PWD/demo m=$PWD/demo/qwen3-tiny
    cd "$work"
    st-inspect stats -q --svg st-inspect.1.svg -t '*proj*' "$m"
    hf-infer "$m" -q --acts in:up_proj:1 --ctx 64 --acts-meta m.json \
        --file "$demo/training.txt" -o x.npy
    saev-write -q -m m.json -o acts x.npy
    saev-read stats -q --svg saev-read.1.svg acts/*
    lut-precompute -q -m "$m" -s "$demo/sae" -o lut
    lut-apply -q lut layers.1.mlp.up_proj -m "$m" --report --svg lut-apply.1.svg <x.npy
    sae-train -q -k 8 --latents 512 -n 150 --batch 128 --svg sae-train.1.svg -o sae x.npy
    moe-sft tune -q -m "$m" -d "$demo/facts.jsonl" -o facts -n 40 --lr 3e-3 --svg moe-sft-tune.1.svg
}

# page FILE: links to pages that are not here become text; a picture after
# what describes its option.
page() {
    picture='' toc=''
    [ "$1" != tensorutils.7 ] || toc=,toc
    [ ! -e "$work/$1.svg" ] || picture=$1.svg
    sed "s/^\.Os\$/.Os \"tensorutils $version\"/" "man/$1" |
        mandoc -Thtml -O style=style.css,man=%N.%S.html$toc |
        awk -v ours="$ours" -v picture="$picture" '
            BEGIN { n = split(ours, o); for (i = 1; i <= n; i++) is_ours[o[i] ".html"] = 1 }
            {
                while (match($0, /<a class="Xr" href="[^"]*">[^<]*<\/a>/)) {
                    a = substr($0, RSTART, RLENGTH)
                    split(a, part, "\"")
                    name = a
                    gsub(/<[^>]*>/, "", name)
                    if (part[4] in is_ours)
                        sub(/class="Xr"/, "class=\"page\"", a)
                    else
                        a = "<span>" name "</span>"
                    $0 = substr($0, 1, RSTART - 1) a substr($0, RSTART + RLENGTH)
                }
                print
                if (/^<body/)
                    print "<p class=\"up\"><a href=\"index.html\">All pages</a></p>"
            }
            picture != "" && /^ *<dt id="svg">/ { described = 1 }
            described && /<\/dd>/ {
                print "  <dd><img src=\"" picture "\" alt=\"What --svg draws of the demo\"/></dd>"
                described = 0
            }'
}

# rows PAGE...: a line of the index for each.
rows() {
    echo '<dl class="index">'
    for p; do
        what=$(sed -n 's/^\.Nd //p' "man/$p")
        name=${p%.*}
        printf '<dt><a href="%s.html">%s</a>(%s)</dt><dd>%s</dd>\n' "$p" "$name" "${p##*.}" "$what"
    done
    echo '</dl>'
}

# pages WHICH: those of man/ that the pattern selects, a tool before its verbs.
pages() {
    (cd man && find . -name "$1" ! -name 'tensorutils*' | sed 's:^\./::' | sort -t . -k 1,1)
}

# The names of pages have no spaces.
# shellcheck disable=SC2086
index() {
    cat <<END
<!DOCTYPE html>
<html lang="en">
<head>
  <meta charset="utf-8"/>
  <meta name="viewport" content="width=device-width, initial-scale=1.0"/>
  <link rel="stylesheet" href="style.css"/>
  <title>tensorutils $version</title>
</head>
<body>
<h1>tensorutils $version</h1>
END
    rows tensorutils.7
    echo '<h2>Tools</h2>'
    rows $tools
    echo '<h2>From Python and C</h2>'
    rows $libs
    echo '<h2>Files and reports</h2>'
    rows $files
    echo '<h2>What is computed, and what it costs</h2>'
    rows $costs
    printf '</body>\n</html>\n'
}

tools=$(pages '*.1') files=$(pages '*.5') costs=$(pages '*.7')
libs='tensorutils-python.7 libtensorutils.3'
ours="tensorutils.7 $libs $tools $files $costs"
(draw) >/dev/null

cp scripts/html.css "$to/style.css"
cp "$work"/*.svg "$to"
for p in $ours; do
    page "$p" >"$to/$p.html"
done
index >"$to/index.html"
echo "$3/index.html"
