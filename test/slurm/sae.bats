# SPDX-License-Identifier: ISC
# jobs/sae-sweep.sh and sae-layers.sh on a real Slurm: stopped, queued
# again, and the bytes of runs that were not.
bats_require_minimum_version 1.5.0

load helpers
OPTIONS='--latents 4096 --batch 16 --warmup 5 --save-every 20 -j 1'

setup_file() {
    slurm_up
    "$PYTHON" -c 'import json, sys
for text in open(sys.argv[1]).read().split("<|endoftext|>"):
    print(json.dumps({"text": text}))' "$ROOT/demo/training.txt" >docs.jsonl
    hf-infer "$DEMO" --acts in:up_proj:1 --ctx 32 --jsonl -q --file docs.jsonl --acts-meta m.json -o x
    saev-write -q -m m.json -o acts x >dump
}

setup() {
    mkdir -p "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cd "$BATS_FILE_TMPDIR/$BATS_TEST_NUMBER"
    cp ../docs.jsonl .
    dump=$(realpath "../$(cat ../dump)")
}

n_lines() {
    cat "$1" 2>/dev/null | wc -l
}

# same DIR DIR: the SAE and its log.
same() {
    for f in cfg.json sae.safetensors log.tsv; do
        cmp "$1/$f" "$2/$f"
    done
}

@test "slurm: tasks of a sweep that get USR1 are requeued, and go on to the same bits" {
    printf 'a:k=4\nb:k=8,lr=1e-3\nc:k=4,seed=3\n' >saes
    # shellcheck disable=SC2086 # words
    saev-read -q --shuffle --seed 0 "$dump" |
        sae-train -q -o want --sae a:k=4 --sae b:k=8,lr=1e-3 --sae c:k=4,seed=3 $OPTIONS
    steps=$(n_lines want/a/log.tsv)
    job=$(SAE_OPTIONS=$OPTIONS "$ROOT/jobs/sae-sweep.sh" "$dump" sweep 2 saes -n1)
    until_under_way 5 $((steps - 2)) n_lines sweep/0/a/log.tsv
    scancel -b -s USR1 "$job"
    gone "$job"
    cat sweep/*.log
    grep -q 'task 0/2: status 75' sweep/sae-0.log
    same want/a sweep/0/a
    same want/b sweep/1/b
    same want/c sweep/0/c
}

@test "slurm: layers that are trained through a pipe are requeued, and go on to the same bits" {
    # shellcheck disable=SC2086 # words
    hf-infer "$DEMO" --acts resid:0,2 --ctx 32 --jsonl -q --file docs.jsonl |
        sae-train -q -o want --layers layers.0,layers.2 --dim 128 --tokens 32 -k 4 $OPTIONS
    steps=$(n_lines want/layers.0/log.tsv)
    job=$(SAE_OPTIONS="-k 4 $OPTIONS" "$ROOT/jobs/sae-layers.sh" "$DEMO" docs.jsonl resid:0,2 32 saes -n1)
    until_under_way 5 $((steps - 2)) n_lines saes/layers.0/log.tsv
    scancel -b -s USR1 "$job"
    gone "$job"
    cat saes/*.log
    grep -q 'sae-train: status 75' saes/*.log
    same want/layers.0 saes/layers.0
    same want/layers.2 saes/layers.2
}
