# SPDX-License-Identifier: ISC
# jobs/batch.mk: the story as a Makefile, killed and gone on with.
load helpers
NEEDS=${LEFT_OUT-} # every tool

setup_file() {
    [[ -z $NEEDS && $BUILD != */*san ]] || return 0
    export S=$BATS_FILE_TMPDIR
    cd "$S"
    ln -s "$ROOT/demo" demo
    cp -rL demo/qwen3-moe-tiny damaged
    "$PYTHON" "$ROOT/test/ref/story.py" damage damaged
    "$PYTHON" "$ROOT/test/ref/story.py" compressor c.pth
    "$PYTHON" "$ROOT/test/ref/story.py" jsonl demo/training.txt >docs.jsonl
    cp demo/held-out.txt .
    mkdir whole
    cd whole
    batch -j2 >../log 2>&1 || {
        cat ../log
        return 1
    }
}

setup() {
    skip_left_out
    not_sanitized "they slow what is killed at a moment"
    cd "$BATS_TEST_TMPDIR" || return
}

# batch [OPTION OF MAKE...]: the whole story, in a directory beside the inputs.
batch() {
    MAX_PATCHES=3200 make -f "$ROOT/jobs/batch.mk" MODEL="$S/demo/qwen3-tiny" \
        TEXT="$S/held-out.txt" DOCS="$S/docs.jsonl" SPEC=in:up_proj:1 CTX=32 PARTS=3 \
        SAE_OPTIONS="-k 32 --latents 1024 --batch 512 --lr 4e-3 --warmup 4 --save-every 3" HOOK=layers.1.mlp.up_proj \
        LUT_OPTIONS="--fuse gate_up" LOOK_OPTIONS="--skip-ids special --top 5" PTH="$S/c.pth" \
        KVC_OPTIONS="--head-dim 32 --prefix-order compress_tk,compress_tv" \
        MOE="$S/damaged" TEACHER="$S/demo/qwen3-moe-tiny" LORA_OPTIONS="--rank 16 --alpha 16" \
        TRAIN_OPTIONS="-n 100 --length 64 --lr 1e-2 --schedule cosine --shuffle --save-every 10" "$@"
}

# places: each file with the time it was written, and its place on the disk.
places() {
    find . -type f -printf '%P\t%i\t%T@\n' | sort
}

nll() {
    awk -F '\t' -v what="$1" '$1 == what { print $2 }' nll.tsv
}

# equal: this directory holds what a run that nobody stopped makes, inputs/ but for
# times.
equal() {
    diff -r -x inputs "$S/whole" .
    diff <(ls -A "$S/whole/inputs") <(ls -A inputs)
}

@test "batch.mk: all is made, and told in the right order" {
    cd "$S/whole"
    [ "$(cut -f 1 nll.tsv | paste -sd' ')" = "dense lut lut-ratio kvc teacher moe lora" ]
    awk -F '\t' '{ v[$1] = $2 } END { exit !(v["dense"] < v["lut-ratio"] && v["lut-ratio"] < v["lut"] &&
        v["teacher"] < v["lora"] && v["lora"] < v["moe"] && v["kvc"] > 0) }' nll.tsv
    saev-read verify --deep "$(cat dump)"
    [ "$(saev-read info --json "$(cat dump)" | grep -o '"n_imgs": *[0-9]*' | grep -o '[0-9]*')" = "$(wc -l <../docs.jsonl)" ]
    # the same as each tool makes alone
    hf-infer ../demo/qwen3-tiny --acts in:up_proj:1 --ctx 32 --pad --jsonl -q --file ../docs.jsonl |
        cmp - <(cat "$(cat dump)"/acts*.bin)
    lut-precompute -q -m ../demo/qwen3-tiny -s sae --fuse gate_up -o "$BATS_TEST_TMPDIR/lut"
    diff -r lut "$BATS_TEST_TMPDIR/lut"
    sae-look scan -q -s sae/layers.1.mlp.up_proj --skip-ids special --top 5 -o "$BATS_TEST_TMPDIR/look" "$(cat dump)"
    diff -r look "$BATS_TEST_TMPDIR/look"
    [ "$(grep -o '<section ' latents.html | wc -l)" = 200 ]
    [ -z "$(find . -name '.*' -mindepth 1)" ]
}

@test "batch.mk: a second run does nothing" {
    cd "$S/whole"
    places >"$BATS_TEST_TMPDIR/before"
    batch -q
    run -0 batch -j2 --no-print-directory
    [[ -z $output || $output == *"is up to date." ]]
    places | cmp - "$BATS_TEST_TMPDIR/before"
}

@test "batch.mk: what is there is kept where its stamp is not" {
    cp -a "$S/whole/." .
    rm done/*
    places >before
    batch -j2 >/dev/null
    places | grep -E '^acts/|lut\.safetensors' | diff <(grep -E '^acts/|lut\.safetensors' before) -
    [ "$(grep -cE '^acts/|lut\.safetensors' before)" -ge 4 ]
    rm before
    equal
}

@test "batch.mk: another text makes other likelihoods, and nothing else" {
    cp -a "$S/whole/." .
    places >before
    touch "$S/held-out.txt"
    batch -j2 >/dev/null
    diff before <(places) | grep '^>' | cut -f 1 | sort |
        diff - <(printf '> %s\n' before dense.json inputs/TEXT kvc.json lora.json lut-ratio.json lut.json moe.json nll.tsv teacher.json)
    rm before
    equal
}

# dense ARGUMENT OF MAKE...: the model m, in this directory.
dense() {
    make -f "$ROOT/jobs/batch.mk" MODEL=m TEXT="$S/held-out.txt" "$@"
}

# bats test_tags=long
@test "batch.mk: no name of a file in the model's directory is run" {
    cp -rL "$S/demo/qwen3-tiny" m
    chmod -R u+w m
    touch 'm/config.json;touch PWNED;#.safetensors' # a rule's recipe begins behind ";"
    dense hashes
    [ ! -e PWNED ]
    for f in '$(shell touch PWNED)' '$(touch PWNED)' '`touch PWNED`' \
        $'\ntouch PWNED\n' 'a b' '%' "'" '"' '|' '*' '-f' '$x' 'a: b' '\'; do
        touch "m/$f.safetensors"
    done
    dense
    [ -z "$(find . -name PWNED)" ]
    [ "$(nll dense)" = "$(awk '$1 == "dense" { print $2 }' "$S/whole/nll.tsv")" ]
    cmp <(cut -f 2,3,5 hashes) <(cut -f 2,3,5 "$S/whole/hashes")
    dense -q
    # what changes is looked at again, be it older than before
    for change in "touch m/config.json" "touch -d 2001-01-01 m/model.safetensors" "rm m/%.safetensors" "mv m/-f.safetensors m/;.json"; do
        $change
        run -1 dense -q
        dense hashes dense.json >/dev/null
        dense -q hashes
    done
    [ -z "$(find . -name PWNED)" ]
}

# bats test_tags=long
@test "batch.mk: documents that have changed are another dump" {
    cp -L "$S/docs.jsonl" docs
    of() { make -f "$ROOT/jobs/batch.mk" MODEL="$S/demo/qwen3-tiny" TEXT="$S/held-out.txt" DOCS=docs SPEC=resid:0 CTX=16 PARTS=2 dump; }
    for change in p 's/: *"/&New /' s/New/Old/; do
        sed -i "$change;2q" docs # 'p' doubles a line
        for _ in 1 2; do of >/dev/null; done
        dump=$(ls -td acts/*/ | head -n 1)
        hf-infer "$S/demo/qwen3-tiny" --acts resid:0 --ctx 16 --pad --jsonl -q --file docs --acts-ids want.npy -f |
            cmp - <(cat "$dump"/acts*.bin)
        cmp want.npy "$dump/ids.npy"
        sleep 0.01
    done
    [ "$(ls -d acts/*/ | wc -l)" = 3 ]
}

# bats test_tags=long
@test "batch.mk: names of any characters are inputs like others, and not run" {
    odd="a  b;touch PWNED;#%*?\$(touch PWNED)\`touch PWNED\`'\"\$x\$(shell touch PWNED)&|<>(){}[]:=,~\\"
    mkdir "$odd" work
    for f in demo damaged c.pth docs.jsonl held-out.txt; do
        cp -rL "$S/$f" "$odd/$f"
    done
    cp -r "$S/whole/sae" "$odd/sae"
    cd work
    here() {
        local d=$1 more=("${@:2}")
        batch -j2 MODEL="$d/demo/qwen3-tiny" TEXT="$d/held-out.txt" DOCS="$d/docs.jsonl" SAE="$d/sae" PTH="$d/c.pth" \
            MOE="$d/damaged" TEACHER="$d/demo/qwen3-moe-tiny" "${more[@]}"
    }
    here "../$odd" SAE_OPTIONS=
    cmp nll.tsv "$S/whole/nll.tsv"
    here "../$odd" SAE_OPTIONS= -q
    # other words are the tools' to refuse
    for v in SPEC CTX THREADS; do
        run -2 here "../$odd" SAE_OPTIONS= -B "$v=;touch PWNED;" meta.json
        [[ $output == *"touch PWNED"* ]]
    done
    here "../$odd" -W dump HOOK=";touch PWNED;" done/sae
    [ -d "sae/;touch PWNED;" ]
    for parts in '1;touch PWNED' '$(shell touch PWNED)' 'a[$(touch PWNED)]' 0 -1 10000; do
        run -2 --separate-stderr here "../$odd" PARTS="$parts"
        [[ $stderr == *"*** PARTS is $parts (expected 1 to 9999).  Stop." && ${#stderr_lines[@]} = 1 ]]
    done
    run -2 --separate-stderr here $'a\nb'
    [[ $stderr == *"*** MODEL: has a newline, which make cannot carry.  Stop." && ${#stderr_lines[@]} = 1 ]]
    run -2 here "../$odd" DOCS="none;touch PWNED"
    [[ $output == *"*** DOCS is none;touch PWNED, which cannot be read.  Stop."* ]]
    cd ..
    [ -z "$(find . -name PWNED)" ]
    # a name is no option, and ~ is home
    cp -rL "$S/demo/qwen3-tiny" -- -f
    HOME=$BATS_TEST_TMPDIR
    make -f "$ROOT/jobs/batch.mk" MODEL=-f TEXT='~/work/../-f/config.json' dense.json
    # where its own file lies, alone or included
    mkdir -p 'a  b'
    cp "$ROOT/jobs/batch.mk" "$ROOT/jobs/acts-meta.sh" "$ROOT/jobs/acts-ids.sh" "$ROOT/jobs/common.sh" 'a  b'
    echo "include $ROOT/jobs/batch.mk" >Makefile
    for f in 'a  b/batch.mk' Makefile; do
        make -f "$f" MODEL="$S/demo/qwen3-tiny" TEXT="$S/held-out.txt" DOCS="$S/docs.jsonl" SPEC=resid:0 meta.json
        rm meta.json
    done
}

# bats test_tags=long
@test "batch.mk: kill -9 of all of it at any moment: nothing half, nothing twice" {
    n=0
    : >"$S/done"
    while :; do
        setsid bash -c "$(declare -f batch); batch -j2" >"$S/log" 2>&1 &
        # 70 to 910 ms, twice that in the next round, and so on
        ms=$(((n % 13 + 1) * 70 * (n / 13 + 1)))
        sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
        kill -9 -- -$! 2>/dev/null || kill -9 $! 2>/dev/null || :
        status=0
        wait $! 2>/dev/null || status=$?
        # what has its name is whole, and is what it will be, then and now
        for f in $(find . -type f -not -path '*/.*' -not -path './run/*' -not -path './sae/*' -not -path './sae.tmp/*' -not -path './inputs/*' \
            -not -name train.tsv -printf '%P\n'); do
            cmp "$f" "$S/whole/$f"
        done
        for f in run/*; do
            [ ! -e "$f" ] || st-inspect verify "$f"
        done
        # nothing that was there has been written again, shards under another name
        places | cut -f 2,3 | sort >"$S/now"
        sort "$S/done" | comm -23 - "$S/now" >"$S/again"
        [ ! -s "$S/again" ] || {
            grep -F -f "$S/again" "$S/names"
            false
        }
        # a dump that is not complete has its shards: what tells of them is made in the end
        places | sed -E '/^(run\/|train.tsv|sae\/|sae.tmp)|\.tmp\.|\.part\/(metadata.json|manifest.xxh3)|^(inputs\/)?\./d' >"$S/names"
        cut -f 2,3 "$S/names" >"$S/done"
        [ "$status" -eq 137 ] || break
        n=$((n + 1))
    done
    echo "$n kills, then status $status"
    [ "$status" = 0 ] || cat "$S/log"
    [ "$status" = 0 ]
    [ "$n" -ge 2 ]
    equal
}

@test "batch.mk: kill -9 before metadata has its name: it is not to be seen" {
    printf '#!/bin/sh\n"%s" "$@"\nkill -9 0\n' "$ROOT/jobs/acts-meta.sh" >"$S/dies"
    chmod +x "$S/dies"
    setsid bash -c "$(declare -f batch); batch ACTS_META=$S/dies meta.json" >/dev/null 2>&1 &
    status=0
    wait $! || status=$?
    [ $status = 137 ]
    [ "$(ls)" = "$(printf 'hashes\ninputs')" ]
    [ -e .meta/*.json ]
    batch -s meta.json
    cmp meta.json "$S/whole/meta.json"
    [ "$(ls -A)" = "$(printf 'hashes\ninputs\nmeta.json')" ]
}

# bats test_tags=long
@test "batch.mk: TERM stops it, and the same line continues" {
    setsid bash -c "$(declare -f batch); batch -j2" >"$S/log" 2>&1 &
    until [ -e run/state.safetensors ]; do kill -0 $!; sleep 0.01; done
    kill -TERM -- -$!
    run ! wait $!
    [ ! -e nll.tsv ]
    batch -j2 >/dev/null
    equal
}

@test "batch.mk: what fails publishes nothing, and says what is missing" {
    run -2 make -f "$ROOT/jobs/batch.mk" TEXT=t
    [[ $output == *"MODEL and TEXT are needed"* ]]
    for parts in DOCS:SPEC TRAINER:DOCS MOE:DOCS "MOE DOCS SPEC:TEACHER"; do
        given=${parts%:*}
        run -2 make -f "$ROOT/jobs/batch.mk" MODEL=m TEXT=t ${given// /=x }=x
        [[ $output == *"${given%% *} needs ${parts#*:}: see"* ]]
    done
    run -2 make -f "$ROOT/jobs/batch.mk" MODEL=m TEXT=t SAE_OPTIONS=x DOCS=x SPEC=resid:1
    [[ $output == *"SAE_OPTIONS needs HOOK: see"* ]]
    # a line that is wrong, near the end
    { cat "$S/docs.jsonl" && echo '{"text":'; } >docs.jsonl
    run -2 batch -k DOCS=docs.jsonl
    [[ $output == *"docs.jsonl: line "* ]]
    [ ! -e dump ] && [ ! -e sae ] && [ ! -e lut ] && [ ! -e nll.tsv ]
    [ -e dense.json ] && [ -e kvc.json ]
}

# bats test_tags=long
@test "batch.mk: another program trains the autoencoder" {
    batch -j2 SAE_OPTIONS= TRAINER="$PYTHON $ROOT/test/ref/story.py trainer" lut.json
    [ "$(ls sae)" = layers.1.mlp.up_proj ] && [ -s lut.json ] && [ ! -e done/sae ]
}

@test "batch.mk: a training whose steps end before the rows do has not failed; layers that are mixed are warned of" {
    run -0 batch -j2 SPEC=in:up_proj:0,1 SAE_OPTIONS="-k 4 --latents 64 --batch 16 --warmup 1 -n 2" done/sae
    [ "$(grep -c "the rows of all its layers, 0, 1, are used" <<<"$output")" = 1 ]
    rm done/sae # as after a kill: now sae-train reads nothing
    batch SAE_OPTIONS="-k 4 --latents 64 --batch 16 --warmup 1 -n 2" done/sae
    [ "$(tail -n 1 sae/*/log.tsv | cut -f 1)" = 2 ]
}
