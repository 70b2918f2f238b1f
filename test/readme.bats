# SPDX-License-Identifier: ISC
# README.md as its readers use it: what it shows is typed.
load helpers

@test "README: at most 150 lines of 80 columns, and the first ten say who needs it" {
    [ "$(wc -l <"$ROOT/README.md")" -le 150 ]
    run -1 grep -E '.{81}' "$ROOT/README.md"
    head -n 10 "$ROOT/README.md" | grep -q '^For researchers'
}

@test "README: its picture is one that sae-train draws, for light and dark" {
    picture=$(sed -n 's/^!\[.*\](\(.*\))$/\1/p' "$ROOT/README.md")
    grep -q 'prefers-color-scheme:dark' "$ROOT/$picture"
    grep -q '^<text .*>sae: loss</text>$' "$ROOT/$picture"
    grep -q '>5000<' "$ROOT/$picture" # not 5e+03
}

@test "README: the lines below the picture, as typed, by a normal user" {
    every_tool
    mkdir -p tree/build && cd tree
    cp -r "$ROOT/demo" "$ROOT/README.md" .
    for t in $TOOLS; do cp "$(command -v "$t")" build; done
    ls >../before
    sed -n '/^!/,/^## INSTALL/s/^    //p' README.md >../session
    [ "$(wc -l <../session)" -ge 8 ]
    chmod o+x "$BATS_RUN_TMPDIR" "$BATS_RUN_TMPDIR"/test ..
    chmod o+rwx .
    as_user build/st-inspect -V >/dev/null 2>&1 || skip "closed to other users"
    # On a terminal rm asks before it removes files that are write-protected.
    run -0 as_user timeout 100 "$PYTHON" -c 'import pty, sys
sys.exit(pty.spawn(["bash", "-eo", "pipefail", "../session"]) >> 8)' </dev/null
    [[ $output == *Paris* ]]
    # as the text above them says
    # a progress line may have been where a number is
    cost=$(tr -d '\r' <<<"$output" | sed 's|.*\x1b\[K||' | grep -xE '[0-9]+\.[0-9]+' | xargs printf ' %.2f')
    [ "$cost" = " 2.73 2.88" ]
    tr '\n' ' ' <README.md | grep -q 'perplexity of 2.88 instead of 2.73'
    ls | diff ../before -
}

# bats test_tags=long
@test "README: every row of the table works as typed, on 10 000 documents" {
    every_tool
    ln -s "$ROOT/demo" .
    sed -n '/^Every row/,/^    you have/s/^    //p' "$ROOT/README.md" | sed '$d' >script
    sed -n '/^    you have /,/^$/p' "$ROOT/README.md" | sed 1,2d | cut -c 38- |
        sed 's/^st-inspect diff .*/& || [ $? = 1 ]/; s/^hf-infer M --chat .*/&; echo/' >rows # 1: they differ
    [ "$(grep -c '^[a-z]' rows)" -ge 20 ]
    for t in st-inspect hf-infer saev-read sae-train sae-look lut-precompute kvc-convert moe-sft st-convert; do grep -q "^$t" rows; done
    cat rows >>script
    run -0 bash -eo pipefail script
    [ "$(wc -l <answers.jsonl)" = 10000 ] && [ "$(wc -l <nll)" = 10000 ]
    [ "$(saev-read info acts | awk '$2 == "rows.all.all" { print $3 }')" -gt 100000 ]
    [ "$(saev-read info seen | awk '$2 == "rows.all.all" { print $3 }')" = 1300 ] # 20 pictures: CLS and 64 patches
    # the perplexity of the model; on an SAE, a table, and an adapter: all higher
    grep -xE '[0-9]+\.[0-9]+' <<<"$output" | awk 'NR == 1 { m = $1 } NR > 1 && $1 <= m { exit 1 } END { exit NR != 4 }'
    [ "$(grep -o '<section ' latents.html | wc -l)" = 200 ]
    st-inspect verify sae/sae.safetensors lut/*.safetensors facts/adapter_model.safetensors new
}

# bats test_tags=long
@test "tensorutils(7): the first job, as typed: two layers of 10 000 documents" {
    every_tool
    ln -s "$ROOT/demo" .
    sh "$ROOT/test/typed.sh" tensorutils.7 "A FIRST JOB" >script
    run -0 --separate-stderr bash -eo pipefail script
    [ "$(wc -l <docs.jsonl)" = 10000 ]
    "$PYTHON" -c 'import json
texts = [json.loads(line)["text"] for line in open("docs.jsonl")]
demo = open("demo/training.txt").read().split("<|endoftext|>")
demo = [t for t in demo if t]
assert texts == [demo[i % len(demo)] for i in range(10000)]'
    [ "$(awk '$1 == "rows" { print $2 }' <<<"$output")" = 20000 ]
    # the model, with two SAEs, with two tables: each costs, and not too much
    grep -xE '[0-9]+\.[0-9]+' <<<"$output" |
        awk 'NR == 1 { m = $1 } NR > 1 && !($1 > m && $1 < 1.5 * m) { exit 1 } END { exit NR != 3 }'
}
