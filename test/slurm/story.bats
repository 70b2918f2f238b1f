# SPDX-License-Identifier: ISC
# The story of tensorutils(7) as arrays and jobs that wait for each other, on a
# real Slurm: what section SLURM of the page shows is typed.
bats_require_minimum_version 1.5.0

load helpers

typed() {
    sh "$ROOT/test/typed.sh" tensorutils.7 "$1"
}

story() {
    "$PYTHON" "$ROOT/test/ref/story.py" "$@"
}

setup_file() {
    slurm_up
    export HOME=$PWD/home SCRATCH=$PWD/scratch
    mkdir -p home/.local/share scratch
    ln -s "$ROOT/jobs" home/.local/share/tensorutils
    ln -s "$ROOT/demo" home/demo
    cp -rL "$ROOT/demo/qwen3-moe-tiny" home/damaged
    story damage home/damaged
    story jsonl "$ROOT/demo/training.txt" >home/docs.jsonl
    export MAX_PATCHES=6400 # 100 documents of 64 tokens
    cd home
    typed SLURM >../story.sh
}

# in a directory of one's own, that of the user who types
setup() {
    cd "$BATS_FILE_TMPDIR/home"
    rm -rf "$SCRATCH"/*
}

done_all() {
    for _ in $(seq 1200); do
        [ -n "$(squeue -h)" ] || return 0
        sleep 0.1
    done
    squeue
    return 1
}

nll() {
    sed 's/.*"nll_sum":\([^,]*\),.*/\1/' "$1"
}

@test "slurm: the story as jobs that wait for each other makes what pipes make" {
    bash -eo pipefail ../story.sh
    done_all
    cat "$SCRATCH"/*/*.log "$SCRATCH"/*.log 2>/dev/null
    # without Slurm, in one go
    meta=$(echo "$SCRATCH"/acts/*.json)
    hf-infer demo/qwen3-tiny --acts in:up_proj:1 --ctx 64 --pad --jsonl -q --file docs.jsonl |
        saev-write -q -m "$meta" -o "$SCRATCH/want"
    diff -r -x manifest.xxh3 "$SCRATCH"/want/* "${meta%.json}"
    saev-read -q --shuffle --seed 0 "${meta%.json}" |
        sae-train -q -o "$SCRATCH/sae1" -k 32 --latents 1024 --lr 4e-3 --batch 512 --warmup 4
    cmp "$SCRATCH"/sae{1,/0/layers.1.mlp.up_proj}/sae.safetensors
    lut-precompute -q -m demo/qwen3-tiny -s "$SCRATCH/sae/0" --fuse gate_up -o "$SCRATCH/lut2"
    diff -r -x '*.log' "$SCRATCH/lut" "$SCRATCH/lut2"
    for f in dense: 'lut:--lut lut2'; do
        # shellcheck disable=SC2086
        (cd "$SCRATCH" && hf-infer "$HOME/demo/qwen3-tiny" --nll --json -q --file "$HOME/demo/held-out.txt" ${f#*:}) |
            cmp - "$SCRATCH/${f%%:*}.json"
    done
    awk 'BEGIN { exit !(ARGV[2] > ARGV[1]) }' "$(nll "$SCRATCH/dense.json")" "$(nll "$SCRATCH/lut.json")"
}

@test "slurm: a part that fails stops what waits for it, and the same lines continue" {
    cp docs.jsonl whole.jsonl
    n=$(wc -l <docs.jsonl)
    sed -i "$((n - 5))s/.*/{\"text\":/" docs.jsonl
    bash -eo pipefail ../story.sh
    done_all
    grep -h 'hf-infer: .*line' "$SCRATCH"/acts/*.log
    [ -z "$(find "$SCRATCH" -maxdepth 2 \( -name metadata.json -o -name lut.json -o -name 0 -o -name lut-index.log \))" ]
    [ ! -e "$SCRATCH/lut.json" ]
    cp whole.jsonl docs.jsonl
    bash -eo pipefail ../story.sh
    done_all
    cat "$SCRATCH"/acts/*.log
    saev-read verify --deep "$SCRATCH"/acts/*/
    awk 'BEGIN { exit !(ARGV[2] > ARGV[1]) }' "$(nll "$SCRATCH/dense.json")" "$(nll "$SCRATCH/lut.json")"
}
