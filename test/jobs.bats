# SPDX-License-Identifier: ISC
# jobs where no Slurm is: names of any characters, with an sbatch that
# runs a job at once.
load helpers
NEEDS=hf-infer

setup() {
    skip_left_out
    cd "$BATS_TEST_TMPDIR" || return
    mkdir bin
    cat >bin/sbatch <<'END'
#!/bin/bash
# Options, then a script and its operands, or --wrap; prints an id.
last=0
while [[ $1 == -* ]]; do
    case $1 in
    --array=0-*) last=${1#--array=0-} ;;
    -o) printf '%s\n' "$2" >>"$LOGS"; shift ;;
    --wrap) wrap=$2; shift ;;
    esac
    shift
done
echo 7
exec >>"$LOGS.said" 2>&1
[ ! "${wrap-}" ] || exec sh -c "$wrap"
for i in $(seq 0 "$last"); do
    SLURM_JOB_ID=7 SLURM_ARRAY_TASK_ID=$i "$@" || exit
done
END
    chmod +x bin/sbatch
    PATH=$PWD/bin:$PATH
    export LOGS=$PWD/logs
    odd="a  b;touch PWNED;#%j*?\$(touch PWNED)\`touch PWNED\`'\"\$x&|<>(){}[]:=,~"
    mkdir "$odd"
    cp -rL "$DEMO" "$odd/m"
    seq 40 | sed 's/.*/{"text":"Document & of some, with a few words."}/' >"$odd/docs"
}

# Run in the directory above: what a name made would lie there.
not_run() {
    [ -z "$(find . -name PWNED)" ]
}

@test "acts-submit.sh: names of any characters are inputs like others, and not run" {
    export MAX_PATCHES=320
    "$ROOT/jobs/acts-submit.sh" "$odd/m" "$odd/docs" resid:0,3 8 "$odd/acts" 2 -n1 >ids || { cat logs.said; false; }
    IFS=$'\t' read -r tasks finish dump <ids
    [ "$tasks $finish" = "7 7" ]
    cat logs.said
    saev-read verify "$dump"
    [ "$dump" = "$PWD/$odd/acts/$(basename "$dump")" ]
    hf-infer "$odd/m" --acts resid:0,3 --ctx 8 --pad --jsonl -q --file "$odd/docs" \
        --acts-meta want.json --acts-ids want.npy | cmp - <(cat "$dump"/acts*.bin)
    cmp want.npy "$dump/ids.npy"
    saev-read --skip-ids special -q --index "$dump" >places
    # Slurm's %j in a log's name would be a job's number
    [ "$(sed -n 1p logs)" = "$PWD/${odd//%/%%}/acts/acts-%a.log" ]
    not_run
}

@test "acts-cron.sh: names of any characters are inputs like others, and not run" {
    export MAX_PATCHES=320 TU_BIN=$BUILD
    for _ in 1 2; do
        "$ROOT/jobs/acts-cron.sh" "$odd/m" "$odd/docs" resid:0,3 8 "$odd/a	cts"
    done
    saev-read verify "$odd/a	cts"/*/
    hf-infer "$odd/m" --acts resid:0 --ctx 8 --pad --jsonl -q --file "$odd/docs" --acts-ids want.npy >/dev/null
    cmp want.npy "$odd/a	cts"/*/ids.npy
    not_run
}

# bats test_tags=long
@test "acts-cron.sh: documents or a model that have changed are another dump" {
    export MAX_PATCHES=320 TU_BIN=$BUILD
    cp -r "$odd/m" m
    cp "$odd/docs" docs
    newest() { # dump, made by another command line
        dump=$(ls -td a/*/ | head -n 1)
        hf-infer m --acts resid:0,3 --ctx 8 --pad --jsonl -q --file docs | cmp - <(cat "$dump"/acts*.bin)
    }
    n=0
    for change in true 's/few/many/' 's/many/some/' model; do
        case $change in
        true) ;;
        model) sed -i 's/"rms_norm_eps": *[0-9.e-]*/"rms_norm_eps": 1e-3/' m/config.json ;;
        *) sed -i "$change" docs ;;
        esac
        for _ in 1 2; do "$ROOT/jobs/acts-cron.sh" m docs resid:0,3 8 a; done
        n=$((n + 1))
        [ "$(find a -name metadata.json | wc -l)" = $n ]
        newest
        sleep 0.01
    done
}

# bats test_tags=long
@test "acts-meta.sh: a line without tokens is refused, as images are counted by lines" {
    export MAX_PATCHES=64 TU_BIN=$BUILD
    cp -r "$odd/m" m
    seq 40 | sed 's/.*/{"ids":[&,1,2]}/' >good
    for line in '' '  ' '{"text":""}' '{"id":3, "ids": [ ]}' '{"prompt" : ""}'; do
        { head -n 2 good && printf '%s\n' "$line" && tail -n +3 good; } >docs
        for _ in 1 2; do # the second one finds what the first one left
            run -65 "$ROOT/jobs/acts-cron.sh" m docs resid:0,3 4 a
            case $line in
            *'{'*) [ "$output" = "acts-meta.sh: $PWD/docs: 1 of its lines has no tokens (expected a document with tokens in each line)" ] ;;
            *) [ "$output" = "acts-meta.sh: $PWD/docs: line 3 is empty (expected a document with tokens in each line)" ] ;;
            esac
        done
        [ -z "$(ls -A a)" ]
    done
    # text that only looks so, or that this tokenizer has a token for
    sed '3i\{"id":{"text":""},"text":"a \\"text\\": \\"\\""}\n{"text":" "}' good >docs
    "$ROOT/jobs/acts-cron.sh" m docs resid:0,3 4 a
    hf-infer m --acts resid:0,3 --ctx 4 --pad --jsonl -q --file docs | cmp - <(cat a/*/acts*.bin)
}

@test "acts-meta.sh: without room 73, and nothing is left" {
    small_disk 4k
    head -c 4096 /dev/zero >disk/full || :
    for _ in 1 2; do
        TU_BIN=$BUILD run -73 "$ROOT/jobs/acts-meta.sh" "$odd/m" "$odd/docs" resid:0 8 disk
        [[ $output == *"No space left on device"* ]]
        [ "$(ls -A disk)" = full ]
    done
}

@test "acts-cron.sh, acts-submit.sh, acts-meta.sh, lut-submit.sh: names that look like options are none" {
    export MAX_PATCHES=320 TU_BIN=$BUILD
    cp -r "$odd/m" ./-m
    cp "$odd/docs" ./-d
    cp -r "$ROOT/demo/sae" ./-s
    mkdir -- -x
    [[ $("$ROOT/jobs/acts-meta.sh" -m -d resid:0,3 8 -x) == -x/*.json ]]
    rm -r -- -x
    "$ROOT/jobs/acts-cron.sh" -m -d resid:0,3 8 -x
    saev-read verify ./-x/*/
    "$ROOT/jobs/acts-submit.sh" -m -d resid:0,3 8 -y 1 >ids || { cat logs.said; false; }
    diff -r --exclude='*.json' --exclude=manifest.xxh3 ./-x/*/ ./-y/*/
    LUT_OPTIONS='--layers *.up_proj' "$ROOT/jobs/lut-submit.sh" -m -s -l 1 >ids || { cat logs.said; false; }
    [ -e ./-l/metadata.json ]
}

# bats test_tags=long
@test "acts-submit.sh: every part has shards, and what it has is said" {
    unset MAX_PATCHES
    for parts in 1 3 7 40 50; do
        "$ROOT/jobs/acts-submit.sh" "$odd/m" "$odd/docs" resid:0,3 8 "a$parts" "$parts" >ids 2>said || { cat logs.said; false; }
        IFS=$'\t' read -r _ _ dump <ids
        n=$(ls "$dump"/acts*.bin | wc -l)
        [ "$n" -ge $((parts < 40 ? parts : 40)) ]
        [ "$parts" != 1 ] || [ "$n" = 1 ]
        saev-read verify -q "$dump"
        cat "$dump"/acts*.bin | cmp - <(cat "a1"/*/acts*.bin)
    done
    [ "$(cat said)" = "acts-submit.sh: each part has 0 to 1 documents" ]
    MAX_PATCHES=640 "$ROOT/jobs/acts-submit.sh" "$odd/m" "$odd/docs" resid:0,3 8 b 3 >ids 2>said
    [ "$(cat said)" = "acts-submit.sh: each part has 0 to 40 documents" ]
}

# bats test_tags=long
@test "jobs: tools are those installed with the scripts, then those in PATH" {
    mkdir -p pre/bin pre/share/tensorutils path mine
    cp "$ROOT"/jobs/* pre/share/tensorutils
    for d in pre/bin path mine; do
        for t in hf-infer saev-write lut-precompute st-inspect; do
            printf '#!/bin/sh\necho of %s >&2; exit 9\n' $d >$d/$t
            chmod +x $d/$t
        done
    done
    found() { # WHERE COMMAND...
        run "${@:2}"
        [[ $output == *"of $1"* && $output != *"of "*"of "* ]] || { echo "$output" && false; }
    }
    s=$PWD/pre/share/tensorutils
    for first in pre/bin mine path; do
        [ $first != mine ] || export TU_BIN=$PWD/mine
        [ $first != path ] || { unset TU_BIN; rm -r pre/bin; }
        for script in acts-meta.sh "acts-cron.sh" "acts-submit.sh"; do
            found $first env PATH="$PWD/path:$PATH" HOME="$PWD" "$s/$script" "$DEMO" "$odd/docs" resid:0 8 acts \
                $([ $script != acts-submit.sh ] || echo 2)
        done
        found $first env PATH="$PWD/path:$PATH" make -s -C "$PWD" -f "$s/batch.mk" MODEL="$DEMO" TEXT="$odd/docs"
    done
}

@test "lut-submit.sh: names of any characters are inputs like others, and not run" {
    cp -r "$ROOT/demo/sae" "$odd/sae"
    touch -- '--dtype=f16' # a name that a pattern of LUT_OPTIONS would find
    export LUT_OPTIONS='--layers *.up_proj'
    touch x.up_proj
    "$ROOT/jobs/lut-submit.sh" "$odd/m" "$odd/sae" "$odd/lut" 1 >/dev/null
    cat logs.said
    LUT_OPTIONS='' lut-precompute -q -m "$odd/m" -s "$odd/sae" --layers '*.up_proj' -o want
    diff -r want "$odd/lut"
    [ "$(sed -n 2p logs)" = "$PWD/${odd//%/%%}/lut/lut-index.log" ]
    not_run
}

@test "acts-submit.sh, lut-submit.sh, acts-meta.sh: a number that is none is refused, and not run" {
    for n in 'a[$(touch PWNED)]' 0 -1 1.5 '1 2' '' '1/e;s/.*/touch PWNED/'; do
        run -2 "$ROOT/jobs/acts-submit.sh" "$odd/m" "$odd/docs" resid:0 8 acts "$n"
        [ "$output" = "acts-submit.sh: PARTS is $n (expected a number)" ]
        run -2 "$ROOT/jobs/lut-submit.sh" "$odd/m" "$odd" lut "$n"
        [ "$output" = "lut-submit.sh: PARTS is $n (expected a number)" ]
        [ "$n" ] || continue
        MAX_PATCHES=$n run -2 "$ROOT/jobs/acts-meta.sh" "$odd/m" "$odd/docs" resid:0 8 .
        [ "$output" = "acts-meta.sh: MAX_PATCHES is $n (expected a number)" ]
    done
    [ ! -e logs ] && [ ! -e acts ] && [ ! -e lut ]
    not_run
}

# bats test_tags=long
@test "jobs: -h and too few operands print all of the usage; without Slurm nothing is begun" {
    rm bin/sbatch
    : >s && echo 'a:k=2' >saes
    # all commands of this machine but Slurm's; the first of a name counts
    mkdir only
    for d in ${PATH//:/ }; do ln -s -t only "$d"/* 2>/dev/null || :; done
    rm -f only/sbatch
    PATH=$PWD/only
    run ! command -v sbatch
    for script in "$ROOT"/jobs/*.sh; do
        name=$(basename "$script")
        awk 'NR > 2 && !/^#/ { exit } NR > 2' "$script" | sed 's/^#//; s/^ //' >want
        grep -q "^usage: $name " want || continue
        [[ $(tail -n 1 want) == *. || $(tail -n 1 want) == "  $name "* ]]
        for h in -h --help; do "$script" $h 2>&1 | cmp - want; done
        run -2 --separate-stderr "$script"
        [ -z "$output" ]
        cmp want - <<<"$stderr"
        case $name in
        acts-submit.sh) right="s s resid:0 8 made 2" wrong="s s resid:0 8 made x" ;;
        lut-submit.sh) right="s s made 2" wrong="s s made x" ;;
        sae-layers.sh) right="s s resid:0 8 made" wrong="s s resid:0 x made" ;;
        sae-look.sh) right="s s s made 2" wrong="s s s made x" ;;
        sae-sweep.sh) right="s made 1 saes" wrong="s made 2 saes" ;;
        moe-train.sh | tune.sh) right="-n1 -- -o made" wrong=-n1 ;;
        *) continue ;;
        esac
        # shellcheck disable=SC2086
        run -2 "$script" $wrong
        # shellcheck disable=SC2086
        run -69 "$script" $right
        [ "$output" = "$name: sbatch is not in PATH (expected Slurm's)" ]
        [ ! -e made ]
    done
}

@test "tune.sh: names of any characters are inputs like others, and not run; moe-sft's status is its own" {
    printf '{"ids":[1,2,3]}\n' >"$odd/d" && sed 's/}/,"labels":[1,2,3]}/' -i "$odd/d"
    export LAUNCH=env TU_BIN=$BUILD
    tune() { "$ROOT/jobs/tune.sh" -n1 -- -m "$odd/m" -d "$1" -o "$odd/run" -n 2 -j 1 >id; }
    tune "$odd/d"
    [ "$(cat id)" = 7 ]
    [ "$(tail -n 1 logs.said)" = "moe-sft tune: status 0" ]
    moe-sft tune -m "$odd/m" -d "$odd/d" -o want -n 2 -j 1
    cmp "$odd/run/log.tsv" want/log.tsv
    run -66 tune "$odd/none"
    not_run
    run -2 --separate-stderr "$ROOT/jobs/tune.sh" -n1
    [[ $stderr == "usage: tune.sh "* ]]
}

@test "sae-sweep.sh: each SAE of its tasks is the one that is trained alone" {
    hf-infer "$odd/m" --acts resid:0 --ctx 8 --pad --jsonl -q --file "$odd/docs" --acts-meta m.json -o x
    dump=$(saev-write -q -m m.json -o "$odd/acts" x)
    printf 'a:k=2\n\nb:k=3,latents=96,seed=5\nc:k=4,lr=1e-3\n' >"$odd/saes"
    SEED=7 SAE_OPTIONS='--latents 64 --batch 100 --warmup 2' \
        "$ROOT/jobs/sae-sweep.sh" "$dump" "$odd/sweep" 2 "$odd/saes" >id || { cat logs.said; false; }
    [ "$(cat id)" = 7 ]
    [ "$(cd "$odd/sweep" && echo */*/sae.safetensors)" = "0/a/sae.safetensors 0/c/sae.safetensors 1/b/sae.safetensors" ]
    alone() {
        saev-read -q --shuffle --seed 7 "$dump" | sae-train -q -o "$1" --batch 100 --warmup 2 "${@:2}"
    }
    alone a -k 2 --latents 64
    alone b -k 3 --latents 96 --seed 5
    alone c -k 4 --latents 64 --lr 1e-3
    for f in cfg.json sae.safetensors log.tsv; do
        cmp a/$f "$odd/sweep/0/a/$f"
        cmp c/$f "$odd/sweep/0/c/$f"
        cmp b/$f "$odd/sweep/1/b/$f"
    done
    [ "$(sed -n 1p logs)" = "$PWD/${odd//%/%%}/sweep/sae-%a.log" ]
    not_run
    for n in 0 4 x; do
        run -2 "$ROOT/jobs/sae-sweep.sh" "$dump" "$odd/sweep" $n "$odd/saes"
        [[ $output = "sae-sweep.sh: TASKS is $n (expected 1 to 3, the lines of "* ]]
    done
}

@test "sae-sweep.sh: rows of several layers are warned of where it is typed, and LAYER takes one" {
    hf-infer "$odd/m" --acts resid:0,3 --ctx 8 --pad --jsonl -q --file "$odd/docs" --acts-meta m.json -o x
    dump=$(saev-write -q -m m.json -o acts x)
    echo 'a:k=2' >saes
    export SAE_OPTIONS='--latents 64 --batch 100 --warmup 2'
    sweep() { "$ROOT/jobs/sae-sweep.sh" "$dump" "$1" 1 saes >id 2>said || { cat said logs.said; false; }; }
    sweep both
    [ "$(cat said)" = "saev-read: $PWD/$dump: the rows of all its layers, 0, 3, are used (one alone: --layer N; all of them: --layer all)" ]
    LAYER=3 sweep one
    [ ! -s said ]
    # shellcheck disable=SC2086 # words
    saev-read -q --layer 3 --shuffle --seed 0 "$dump" | sae-train -q -k 2 $SAE_OPTIONS -o alone
    cmp alone/sae.safetensors one/0/a/sae.safetensors
}

@test "sae-look.sh: its tasks and its merge make the bytes of one scan, and a page" {
    for i in $(seq 40); do
        echo "{\"text\":\"$(seq -s " and " "$i")\"}"
    done >"$odd/docs"
    hf-infer "$odd/m" --acts resid:0 --ctx 8 --pad --jsonl -q --file "$odd/docs" --acts-meta m.json \
        --acts-ids ids.npy -o x
    dump=$(saev-write -q -m m.json --ids ids.npy -o "$odd/acts" x)
    [ "$(saev-read --padding -q "$dump" | wc -c)" -gt "$(saev-read -q "$dump" | wc -c)" ]
    saev-read -q "$dump" | sae-train -q -k 2 --latents 64 --batch 100 --warmup 2 -n 20 --hook layers.0 -o "$odd/s"
    export LOOK_OPTIONS='--skip-ids special --top 3 --sample 5'
    look() { "$ROOT/jobs/sae-look.sh" "$dump" "$odd/s" "$odd/m" "$odd/look" "$@" >id || { cat logs.said; false; }; }
    look 3 -n1
    [ "$(cat id)" = "7	7" ]
    # shellcheck disable=SC2086 # words
    sae-look scan -q -s "$PWD/$odd/s" $LOOK_OPTIONS -o want "$dump"
    for f in look.json look.safetensors; do cmp want/$f "$odd/look/run/$f"; done
    sae-look lens -s "$odd/s" -m "$odd/m" -o want
    sae-look html want -m "$odd/m" --sort max -n 200 -o want.html
    grep -q '<ol class="plus">' want.html
    cmp want.html "$odd/look/latents.html"
    [ "$(sed -n 1p logs)" = "$PWD/${odd//%/%%}/look/look-%a.log" ]
    # a part that is missing is made again, and no other
    rm -r "$odd/look/part-1-of-3" logs.said
    look 3
    [ "$(grep -c 'status 0$' logs.said)" = 1 ]
    cmp want/look.safetensors "$odd/look/run/look.safetensors"
    not_run
    for n in 0 999 x; do
        run -2 "$ROOT/jobs/sae-look.sh" "$dump" "$odd/s" "$odd/m" "$odd/look" $n
        [[ $output == "sae-look.sh: TASKS is $n (expected "* ]]
    done
}

@test "sae-layers.sh: each layer's SAE is the one of that layer's activations" {
    export SAE_OPTIONS='-k 3 --latents 64 --batch 100 --warmup 2 -n 4'
    seq 90 | sed 's/.*/{"text":"Document & of some, with a few words."}/' >"$odd/docs"
    "$ROOT/jobs/sae-layers.sh" "$odd/m" "$odd/docs" in:down_proj:0,2 8 "$odd/saes" >id || { cat logs.said; false; }
    for l in 0 2; do
        hf-infer "$odd/m" --acts in:down_proj:$l --ctx 8 --jsonl -q --file "$odd/docs" -o x.npy -f
        # shellcheck disable=SC2086 # words
        sae-train -q -o s$l $SAE_OPTIONS --hook layers.$l.mlp.down_proj x.npy
        for f in cfg.json sae.safetensors log.tsv; do
            cmp s$l/$f "$odd/saes/layers.$l.mlp.down_proj/$f"
        done
    done
    hf-infer "$odd/m" --sae "$odd/saes/layers.0.mlp.down_proj" --sae "$odd/saes/layers.2.mlp.down_proj" --nll -q -p "A few words."
    not_run
}

@test "sae-layers.sh: a model that fails leaves no SAE that looks finished, and is not run again" {
    export SAE_OPTIONS='-k 3 --latents 64 --batch 100'
    printf '#!/bin/sh\necho "$*" >>scontrol.said\n' >bin/scontrol
    chmod +x bin/scontrol
    sed -i '30s/.*/{"text":/' "$odd/docs"
    run ! "$ROOT/jobs/sae-layers.sh" "$odd/m" "$odd/docs" resid:-1,0 8 "$odd/saes"
    grep -q "line 30" logs.said
    [ -z "$(find "$odd/saes" -name cfg.json)" ]
    [ ! -e scontrol.said ]
    # mended, the same line goes on
    sed -i '30s/.*/{"text":"A few words."}/' "$odd/docs"
    "$ROOT/jobs/sae-layers.sh" "$odd/m" "$odd/docs" resid:-1,0 8 "$odd/saes"
    [ "$(cd "$odd/saes" && echo */cfg.json)" = "embed_tokens/cfg.json layers.0/cfg.json" ]
}

@test "common.sh: what is requeued is the task, not the array whose id its last task has" {
    printf '#!/bin/sh\necho "$*" >>scontrol.said\n' >bin/scontrol
    chmod +x bin/scontrol
    # JOB ARRAY TASK STATUS: with - for none
    while read -r job array task status; do
        export SLURM_JOB_ID=$job SLURM_ARRAY_JOB_ID=$array SLURM_ARRAY_TASK_ID=$task
        [ "$array" != - ] || unset SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_ID
        run "-$status" bash -c '. "$ROOT/jobs/common.sh"; (exit '"$status"') & wait_part $! part'
    done <<<$'8 7 0 75\n7 7 3 75\n7 7 3 0\n9 - - 75\n9 7 3 75'
    [ "$(cat scontrol.said)" = "requeue 8"$'\n'"requeue 7_3"$'\n'"requeue 9"$'\n'"requeue 9" ]
}
