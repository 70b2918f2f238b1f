#!/usr/bin/env bash
# SPDX-License-Identifier: ISC
# usage: lut-submit.sh MODEL SAE DIR PARTS [SBATCH OPTION...]
# Lookup tables of all layers of MODEL that SAE has, made by PARTS tasks of a
# Slurm array (as many as there are layers: one each) and listed by one more
# job when all are done:
#
#   lut-submit.sh ~/Qwen3-0.6B ~/saes $SCRATCH/lut 56 --time=1:00:00 -c8
#
# LUT_OPTIONS: more options of lut-precompute, "--dtype f16 --fuse qkv".
# Prints the ids of both jobs.  A task that is killed, preempted or out of time
# makes the layers that are missing when it runs again.
set -euo pipefail
here=$(dirname -- "$(realpath -- "$0")")
# shellcheck source=jobs/common.sh
. "$here/common.sh"
usage 4 "$@"
model=$(realpath -- "$1") sae=$(realpath -- "$2") dir=$3 parts=$4
shift 4
number PARTS "$parts"
need_sbatch

mkdir -p -- "$dir"
dir=$(realpath -- "$dir")
log=${dir//%/%%} # a % is Slurm's
tasks=$(sbatch --parsable "$@" --array="0-$((parts - 1))" --job-name=lut \
    --requeue --open-mode=append --signal=B:USR1@120 -o "$log/lut-%a.log" \
    "$here/lut-task.sh" "$here" "$model" "$sae" "$dir" "$parts")
index=$(sbatch --parsable "$@" --job-name=lut-index \
    --dependency="afterok:$tasks" --kill-on-invalid-dep=yes \
    -o "$log/lut-index.log" \
    --wrap "exec lut-precompute --index '${dir//\'/\'\\\'\'}'")
printf '%s\t%s\n' "$tasks" "$index"
