# SPDX-License-Identifier: ISC
# make html: the pages as a browser shows them.
load helpers

# bats test_tags=long
@test "make html: every page, links that lead somewhere, pictures that are drawn" {
    need_commands mandoc
    sh "$ROOT/scripts/html.sh" "$BUILD" 0.1 html >said
    [ "$(cat said)" = html/index.html ]
    for p in "$ROOT"/man/*.[1-9]; do
        page=${p##*/}
        grep -qF "<a href=\"$page.html\">${page%.*}</a>(${page##*.})" html/index.html
        grep -qF '<link rel="stylesheet" href="style.css"' "html/$page.html"
        grep -qF '<a href="index.html">' "html/$page.html"
    done
    grep -oh 'href="[^"#]*\|src="[^"]*' html/*.html | sed 's/.*"//' | sort -u | grep -v '^https:' | sed '/^$/d' >links
    [ "$(wc -l <links)" -ge 20 ]
    while read -r link; do [ -s "html/$link" ]; done <links
    for p in st-inspect lut-apply saev-read sae-train moe-sft-tune; do
        grep -q "<img src=\"$p.1.svg\"" html/$p.1.html
        tail -n 1 html/$p.1.svg | grep -qx '</svg>'
    done
    grep -qF 'saev(5)</a>' html/saev-read.1.html
    grep -qF '<a class="page" href="moe-sft-tune.1.html">moe-sft-tune(1)</a>' html/moe-sft.1.html
    grep -qF '<a class="page" href="hf-infer.5.html">hf-infer(5)</a>' html/hf-infer.1.html
    [ "$(grep -c '^<dt>' html/index.html)" = "$(find "$ROOT/man" -name '*.[1-9]' | wc -l)" ]
    grep -qF '<span>make(1)</span>' html/tensorutils.7.html
    grep -qF '<a href="#THE_STORY">' html/tensorutils.7.html
    grep '^<dt>.*moe-sft' html/index.html | grep -o '[a-z-]*\.1\.html' | # a tool before its verbs
        cmp - <(printf '%s.1.html\n' moe-sft moe-sft-train moe-sft-tune)
}
