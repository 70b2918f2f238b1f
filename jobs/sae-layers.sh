#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: sae-layers.sh MODEL DOCS.jsonl SPEC T DIR [SBATCH OPTION...]
# Trains an SAE for each layer of SPEC in one Slurm job: the model runs on the
# documents, in windows of T tokens, and its activations go through a pipe to
# sae-train.  Nothing is stored but the SAEs, DIR/layers.0.mlp.up_proj/ and so
# on, as lut-precompute and hf-infer --sae take them:
#
#   SAE_OPTIONS='-k 64 --expansion 8 -n 20000' sae-layers.sh ~/Qwen3-0.6B \
#       docs.jsonl in:up_proj:all 512 $SCRATCH/saes --time=8:00:00 -c48
#
# SAE_OPTIONS: more options of sae-train; with -n, the number of steps, its
# learning rate can fall at the end.  Documents are read in their order: shuffle
# them before.  Prints the job's id.  A job that is preempted or out of time
# saves its state, is queued again and goes on there.
set -euo pipefail
# Slurm runs a copy of this script: its own directory is the second argument.
here=${2-}
[ "${1-}" = --task ] || here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
if [ "${1-}" != --task ]; then
    usage 5 "$@"
    model=$(realpath -- "$1") docs=$(realpath -- "$2") spec=$3 ctx=$4 dir=$5
    shift 5
    number T "$ctx"
    need_sbatch
    mkdir -p -- "$dir"
    dir=$(realpath -- "$dir")
    log=${dir//%/%%} # a % is Slurm's
    exec sbatch --parsable --job-name=sae-layers -o "$log/sae-%j.log" "$@" \
        --requeue --open-mode=append --signal=B:USR1@120 \
        "$here/sae-layers.sh" --task "$here" "$model" "$docs" "$spec" "$ctx" "$dir"
fi
model=$3 docs=$4 spec=$5 ctx=$6 dir=$7
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One token tells how many numbers a row has, and which layers SPEC names.
hf-infer "$model" --ids 0 --acts "$spec" -q -o "$work/x" --acts-meta "$work/meta"
dim=$(sed -n 's/.*"d_vit": \([0-9]*\),.*/\1/p' "$work/meta")
layers=$(sed -n 's/.*"layers": \[\(.*\)\].*/\1/p' "$work/meta")
point=$(sed -n 's/.*"acts": "\([^"]*\)".*/\1/p' "$work/meta")
names=$(hf-infer "$model" -q --places | awk -F '\t' -v point="$point" -v layers="$layers" '
    { hook[$2] = $1 }
    END {
        n = split(layers, layer, ", ")
        for (i = 1; i <= n; i++)
            printf "%s%s", (i > 1 ? "," : ""), hook[point ":" layer[i]]
    }')

# Where the model fails, sae-train is not to take the end of its rows for the end
# of the documents: it is stopped as by Slurm, and the job fails.
mkfifo "$work/rows"
# SAE_OPTIONS is a list of words, and no patterns of files.
set -f
# shellcheck disable=SC2086
sae-train -o "$dir" --layers "$names" --dim "$dim" --tokens "$ctx" --resume --any-isa \
    ${SAE_OPTIONS-} <"$work/rows" &
trainer=$!
{
    hf-infer "$model" --acts "$spec" --ctx "$ctx" --jsonl --file "$docs" -q || {
        status=$?
        [ $status -eq 141 ] || echo $status >"$work/failed"
        kill -TERM $trainer 2>/dev/null || :
        while kill -0 $trainer 2>/dev/null; do sleep .2; done
    }
} >"$work/rows" &
wait_part $trainer "sae-train" "$work/failed"
