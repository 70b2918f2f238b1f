# SPDX-License-Identifier: ISC
# The man pages as their readers use them.  What each page's examples need is
# laid out in the test of its tool: "examples PAGE" there.
load helpers

@test "examples: what any page shows is typed by a test" {
    n=0
    for p in "$ROOT"/man/*; do
        page=${p##*/}
        grep -q '^\.Sh EXAMPLES' "$p" || continue
        n=$((n + 1))
        sh "$ROOT/test/typed.sh" "$page" EXAMPLES >/dev/null
        if [ "$page" = saev.5 ]; then # Python: one test an example
            [ "$(sed -n '/^\.Sh EXAMPLES/,/^\.Sh S/p' "$p" | grep -c '^\.Bd')" = "$(grep -c '^    example [0-9]\|^        example [0-9]' "$ROOT/test/saev.bats")" ]
        else
            grep -q "^    examples $page >script" "$ROOT"/test/*.bats || {
                echo "no test types the page's: examples $page >script"
                false
            }
        fi
    done
    [ "$n" -ge 9 ]
    for p in "$ROOT"/cmd/*; do grep -q '^\.Sh EXAMPLES' "$ROOT/man/$(basename "$p").1"; done
}

@test "examples: each tool's page has two commands before its options" {
    for p in "$ROOT"/man/*.1; do
        name=$(basename "$p" .1)
        sed -n '/^\.Sh DESCRIPTION/,/^\.It /p' "$p" | sed '/^\.S[hs] [^D]/q' >top
        tool=${name/moe-sft-*/moe-sft}
        n=$(sed -n '/^\.Bd -literal/,/^\.Ed/p' top | grep -cE "(^|\| *)${tool/sae-look-*/sae-look}( |$)" || :)
        [ "$n" -ge 2 ] || { echo "$name(1) begins with $n examples" && false; }
    done
}

@test "examples: a reader sees each line as it is typed" {
    need_commands mandoc
    for p in "$ROOT"/man/*; do
        grep -q '^\.Sh EXAMPLES' "$p" || continue
        LC_ALL=C.UTF-8 mandoc -Tutf8 -Owidth=78 "$p" | sed 's/.\x08//g; s/^[ \t]*//' >seen
        sh "$ROOT/test/typed.sh" "${p##*/}" EXAMPLES | sed 's/^ *//; s/ *$//; /^$/d' >lines
        if grep -vxFf seen lines; then
            echo "${p##*/} shows these otherwise"
            return 1
        fi
    done
}

@test "examples: typed.sh refuses what it would not type" {
    mkdir man test
    cp "$ROOT/test/typed.sh" test
    page() { printf '%s\n' '.Sh EXAMPLES' 'Text:' "$@" '.Sh SEE ALSO' >man/t.1; }
    page '.Bd -literal -offset indent' 'a \e' '    b' '.Ed' 'And:' '.Bd -literal' 'c' '.Ed'
    [ "$(sh test/typed.sh t.1 EXAMPLES)" = $'a \\\n    b\nc' ]
    for bad in '.Dl a' '.D1 a' '.Bd -unfilled' '.Bd -ragged -offset indent'; do
        page '.Bd -literal' 'c' '.Ed' "$bad"
        run -1 sh test/typed.sh t.1 EXAMPLES
    done
    for bad in '\fBa\fR' '.Fl a' 'a \(aq' 'a\'; do
        page '.Bd -literal' "$bad" '.Ed'
        run -1 sh test/typed.sh t.1 EXAMPLES
    done
    page
    run -1 sh test/typed.sh t.1 EXAMPLES
    run -1 sh test/typed.sh t.1 STORY
}

@test "tensorutils(7) names every page" {
    for p in "$ROOT"/man/*.[1-9]; do
        page=${p##*/} name=${p##*/}
        name=${name%.*}
        [ "$page" = tensorutils.7 ] && continue
        grep -q "^\.Xr $name ${page##*.}\( ,\|$\)" "$ROOT/man/tensorutils.7" || { echo "tensorutils.7 needs .Xr $name ${page##*.}" && false; }
    done
}
