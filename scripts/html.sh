#!/bin/sh
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
    picture=
    [ ! -e "$work/$1.svg" ] || picture=$1.svg
    sed "s/^\.Os\$/.Os \"tensorutils $version\"/" "man/$1" |
        mandoc -Thtml -O style=style.css,man=%N.%S.html |
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
            }
            picture != "" && /^ *<dt id="svg">/ { described = 1 }
            described && /<\/dd>/ {
                print "  <dd><img src=\"" picture "\" alt=\"What --svg draws of the demo\"/></dd>"
                described = 0
            }'
}

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
<p>Small Unix tools for the tensors around language and vision models.</p>
<dl class="index">
END
    for p in $ours; do
        what=$(sed -n 's/^\.Nd //p' "man/$p")
        name=${p%.*}
        printf '<dt><a href="%s.html">%s</a>(%s)</dt><dd>%s</dd>\n' "$p" "$name" "${p##*.}" "$what"
    done
    printf '</dl>\n</body>\n</html>\n'
}

ours=$(cd man && printf '%s ' tensorutils.7 *.1 *.3 *.5 [!t]*.7 tensorutils-*.7)
(draw) >/dev/null

cp scripts/html.css "$to/style.css"
cp "$work"/*.svg "$to"
for p in $ours; do
    page "$p" >"$to/$p.html"
done
index >"$to/index.html"
echo "$3/index.html"
